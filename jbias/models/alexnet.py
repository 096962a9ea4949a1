"""AlexNet in the form of torchvision: one column and no response normalisation.

Source: Krizhevsky, Sutskever and Hinton, NeurIPS 2012; the single column is that of
Krizhevsky, "One weird trick", https://arxiv.org/abs/1404.5997, with the initialisation,
parameter shapes and pooling to 6x6 of torchvision's, which published weights have.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers, taps

# As resnet.NAMES.
NAMES = (
    (r"stem/conv1", r"features.0"),
    (r"stage1/conv2", r"features.3"),
    (r"stage2/conv3", r"features.6"),
    (r"stage3/conv4", r"features.8"),
    (r"stage4/conv5", r"features.10"),
    (r"fc1", r"classifier.1"),
    (r"fc2", r"classifier.4"),
    (r"fc", r"classifier.6"),
)


class Convolution(backbone.Part, kw_only=True):
    """A convolution, a ReLU, and where `pooled` a max-pool of 3x3."""

    number: int
    fan_in: int
    width: int
    size: int
    pooled: bool

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        shape = self.width, self.size, 4 if self.number == 1 else 1
        x = self.conv(
            *(x, key, train, "conv", *shape),
            pad=2 if self.size > 3 else 1,
            bias=True,
            init=layers.TORCH,
            bias_init=layers.torch_bias(self.fan_in * self.size**2),
            name=f"conv{self.number}",
        )
        return layers.max_pool(nn.relu(x)) if self.pooled else nn.relu(x)


class AlexNet(backbone.Staged):
    """AlexNet; the stem and each stage have one convolution.

    width: channels of the stem; 64 is the published size.
    hidden: size of the two linear layers before the last.
    """

    dropout: float = 0.5
    width: int = 64
    hidden: int = 4096

    def setup(self):
        w = self.width
        widths = (len(self.mean), w, 3 * w, 6 * w, 4 * w, 4 * w)
        self.stem, self.stage1, self.stage2, self.stage3, self.stage4 = (
            Convolution(
                number=i + 1,
                fan_in=widths[i],
                width=widths[i + 1],
                size=size,
                pooled=i not in (2, 3),
                site=f"stage{i}" if i else "stem",
                **self._shared(),
            )
            for i, size in enumerate((11, 5, 3, 3, 3))
        )
        self.fc1 = layers.linear(36 * widths[-1], self.hidden, self.dtype)
        self.fc2 = layers.linear(self.hidden, self.hidden, self.dtype)
        self.fc = layers.linear(self.hidden, self.classes)

    def _least(self) -> int:
        return 63

    def _head(self, x: Array, key, train: bool) -> Array:
        x = layers.flatten(layers.adaptive_mean(x, 6))
        for name, layer in (("fc1", self.fc1), ("fc2", self.fc2)):
            x = self._drop(x, f"dropout.{name}", key, train)
            x = taps.through(self, nn.relu(layer(x)), name, key, train)
        return self.fc(x.astype(jnp.float32))
