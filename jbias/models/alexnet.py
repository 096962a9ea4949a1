"""AlexNet as in torchvision: one column and no response normalisation.

Source: Krizhevsky, Sutskever and Hinton, NeurIPS 2012; the single column is from Krizhevsky,
"One weird trick", https://arxiv.org/abs/1404.5997. Initialisation, parameter shapes and pooling
to 6x6 are as in torchvision, so that torchvision's published weights fit.
"""

import functools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers, taps

# See resnet.NAMES.
NAMES = (
    (r"\w+/conv1", r"features.0"),
    (r"\w+/conv2", r"features.3"),
    (r"\w+/conv3", r"features.6"),
    (r"\w+/conv4", r"features.8"),
    (r"\w+/conv5", r"features.10"),
    (r"fc1", r"classifier.1"),
    (r"fc2", r"classifier.4"),
    (r"fc", r"classifier.6"),
)


def convolution(
    scope: backbone.Scope,
    x: backbone.Map,
    *,
    number: int,
    width: int,
    size: int,
    pooled: bool,
) -> backbone.Map:
    """Return the map after a convolution, a ReLU and, if `pooled`, a 3x3 max-pool.

    number: position of the convolution in the network, 1 to 5. width: output channels. size:
      side of the kernel in pixels.
    """
    stride = 4 if number == 1 else 1
    x = scope.conv(
        x,
        "conv",
        width,
        size,
        stride,
        pad=2 if size > 3 else 1,
        name=f"conv{number}",
        bias=True,
        init=layers.TORCH,
        bias_init=layers.torch_bias(x.shape[-1] * size**2),
    )
    return layers.max_pool(nn.relu(x)) if pooled else nn.relu(x)


class AlexNet(backbone.Staged):
    """An AlexNet; the stem and each stage have one convolution.

    dropout: rate before both hidden linear layers.
    width: channels of the stem; 64 is the published size.
    hidden: output features of the two linear layers before the last.
    """

    dropout: float = 0.5
    width: int = 64
    hidden: int = 4096

    def setup(self):
        """Create the layers."""
        super().setup()
        self.fc1 = layers.linear(144 * self.width, self.hidden, self.dtype)
        self.fc2 = layers.linear(self.hidden, self.hidden, self.dtype)
        self.fc = layers.linear(self.hidden, self.classes)

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        for i, (factor, size) in enumerate(((1, 11), (3, 5), (6, 3), (4, 3), (4, 3))):
            yield functools.partial(
                convolution,
                number=i + 1,
                width=factor * self.width,
                size=size,
                pooled=i not in (2, 3),
            )

    def _min_side(self) -> int:
        """Return the smallest side of an image, in pixels, at which no map is empty."""
        return 63

    def _head(self, x: backbone.Map, key: backbone.Key, train: bool) -> Array:
        """Return the logits, given the output x of stage 4."""
        x = layers.flatten(layers.adaptive_mean(x, 6))
        for name, layer in (("fc1", self.fc1), ("fc2", self.fc2)):
            x = self._drop(x, f"dropout.{name}", key, train)
            x = taps.through(self, nn.relu(layer(x)), name, key, train)
        return self.fc(x.astype(jnp.float32))
