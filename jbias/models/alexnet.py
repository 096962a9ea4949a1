"""AlexNet in the form of torchvision: one column and no response normalisation.

Source: Krizhevsky, Sutskever and Hinton, NeurIPS 2012; the single column is that of
Krizhevsky, "One weird trick", https://arxiv.org/abs/1404.5997, with the initialisation,
parameter shapes and pooling to 6x6 of torchvision's, which published weights have.
"""

import functools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers, taps

# As resnet.NAMES.
NAMES = (
    *((rf"\w+/conv{i}", rf"features.{n}") for i, n in enumerate((0, 3, 6, 8, 10), 1)),
    *((r"fc1", r"classifier.1"), (r"fc2", r"classifier.4"), (r"fc", r"classifier.6")),
)


def convolution(
    call: backbone.Call, x: Array, *, number: int, width: int, size: int, pooled: bool
) -> Array:
    """A convolution, a ReLU, and where `pooled` a max-pool of 3x3."""
    own = dict(pad=2 if size > 3 else 1, name=f"conv{number}")
    own |= dict(bias=True, bias_init=layers.torch_bias(x.shape[-1] * size**2))
    shape = width, size, 4 if number == 1 else 1
    x = call.conv(x, "conv", *shape, init=layers.TORCH, **own)
    return layers.max_pool(nn.relu(x)) if pooled else nn.relu(x)


class AlexNet(backbone.Staged):
    """AlexNet; the stem and each stage have one convolution.

    width: channels of the stem; 64 is the published size.
    hidden: size of the two linear layers before the last.
    """

    dropout: float = 0.5
    width: int = 64
    hidden: int = 4096

    def setup(self):
        super().setup()
        self.fc1 = layers.linear(144 * self.width, self.hidden, self.dtype)
        self.fc2 = layers.linear(self.hidden, self.hidden, self.dtype)
        self.fc = layers.linear(self.hidden, self.classes)

    def _runs(self) -> Iterator[Callable]:
        for i, (width, size) in enumerate(((1, 11), (3, 5), (6, 3), (4, 3), (4, 3))):
            own = dict(number=i + 1, width=width * self.width, size=size)
            yield functools.partial(convolution, **own, pooled=i not in (2, 3))

    def _least(self) -> int:
        return 63

    def _head(self, x: Array, key, train: bool) -> Array:
        x = layers.flatten(layers.adaptive_mean(x, 6))
        for name, layer in (("fc1", self.fc1), ("fc2", self.fc2)):
            x = self._drop(x, f"dropout.{name}", key, train)
            x = taps.through(self, nn.relu(layer(x)), name, key, train)
        return self.fc(x.astype(jnp.float32))
