"""SqueezeNet 1.0 and 1.1: 1x1 convolutions that squeeze what wider ones read.

Source: Iandola, Han, Moskewicz, Ashraf, Dally and Keutzer, 2016,
https://arxiv.org/abs/1602.07360, with the initialisation, parameter shapes and pooling
of torchvision's, which published weights have.
"""

import functools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers

# As resnet.NAMES. The number of a module is its place in the published list of layers.
NAMES = (
    (r"(?:stem|stage\d)/conv(\d+)", r"features.\1"),
    (r"stage\d/fire(\d+)/squeeze", r"features.\1.squeeze"),
    (r"stage\d/fire(\d+)/expand(\d)x\d", r"features.\1.expand\2x\2"),
    (r"fc", r"classifier.1"),
)
# Of version 1.1; the defaults are those of 1.0.
VERSION_1_1 = dict(stem_width=64, stem_size=3, pooled=(4, 7))
VERSION_1_1["places"] = (3, 4, 6, 7, 9, 10, 11, 12)
_DRAWN = dict(bias=True, init=nn.initializers.he_uniform())


def stem(call: backbone.Call, x: Array, *, width: int, size: int) -> Array:
    """A convolution of stride 2 without padding, ReLU and max-pool."""
    x = call.conv(x, "conv", width, size, 2, pad=0, name="conv0", **_DRAWN)
    return layers.max_pool(nn.relu(x), ceil=True)


def fires(call: backbone.Call, x: Array, *, width: int, places, pooled) -> Array:
    """Two fire modules, and a max-pool after those of `pooled`."""
    for place in places:
        x = call.inner(fire, f"fire{place}", x, width=width)
        x = layers.max_pool(x, ceil=True) if place in pooled else x
    return x


def fire(call: backbone.Call, x: Array, *, width: int) -> Array:
    """A 1x1 convolution to `width` channels; on these a 1x1 and a 3x3 side by side.

    The last two have four times as many each.
    """

    def conv(x: Array, site: str, width: int, size: int, name: str) -> Array:
        return nn.relu(call.conv(x, site, width, size, name=name, **_DRAWN))

    x = conv(x, "conv1", width, 1, "squeeze")
    one = conv(x, "conv2", 4 * width, 1, "expand1x1")
    three = conv(x, "conv3", 4 * width, 3, "expand3x3")
    return jnp.concatenate((one, three), -1)


class SqueezeNet(backbone.Staged):
    """A SqueezeNet; a stage has the two fire modules of one width.

    stem_width, stem_size: channels and kernel of the first convolution.
    places: of the eight fire modules in the published list of layers.
    pooled: those of `places` after which there is a max-pool.
    squeezed: channels between the convolutions of the first fire modules; each stage
      has as many more.
    """

    dropout: float = 0.5
    stem_width: int = 96
    stem_size: int = 7
    places: tuple[int, ...] = (3, 4, 5, 7, 8, 9, 10, 12)
    pooled: tuple[int, ...] = (5, 10)
    squeezed: int = 16

    def setup(self):
        super().setup()
        init = nn.initializers.normal(0.01)
        self.fc = layers.conv(self.classes, 1, bias=True, dtype=jnp.float32, init=init)

    def _runs(self) -> Iterator[Callable]:
        yield functools.partial(stem, width=self.stem_width, size=self.stem_size)
        for i in range(4):
            places = self.places[2 * i : 2 * i + 2]
            own = dict(width=(i + 1) * self.squeezed, places=places)
            yield functools.partial(fires, **own, pooled=self.pooled)

    def _least(self) -> int:
        return 14 + self.stem_size

    def _head(self, x: Array, key, train: bool) -> Array:
        x = self._drop(x, "dropout", key, train)
        # Published so: a ReLU before the mean, so that no logit is negative.
        return jnp.mean(nn.relu(self.fc(x.astype(jnp.float32))), (1, 2))
