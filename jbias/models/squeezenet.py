"""SqueezeNet 1.0 and 1.1: 1x1 convolutions that squeeze what wider ones read.

Source: Iandola, Han, Moskewicz, Ashraf, Dally and Keutzer, 2016,
https://arxiv.org/abs/1602.07360, with the initialisation, parameter shapes and pooling
of torchvision's, which published weights have.
"""

import functools

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
_DRAWN = dict(bias=True, init=nn.initializers.he_uniform())


class Stem(backbone.Part, kw_only=True):
    """A convolution of stride 2 without padding, ReLU and max-pool."""

    width: int
    size: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        shape = self.width, self.size, 2
        x = self.conv(x, key, train, "conv", *shape, pad=0, name="conv0", **_DRAWN)
        return layers.max_pool(nn.relu(x), ceil=True)


class Fires(backbone.Part, kw_only=True):
    """Two fire modules, and a max-pool after those of `pooled`.

    A fire module is a 1x1 convolution to `width` channels and, side by side on these, a
    1x1 and a 3x3 convolution to four times as many each.
    """

    width: int
    places: tuple[int, int]
    pooled: tuple[int, ...]

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        for place in self.places:
            x = self.piece(Fire, f"fire{place}", width=self.width)(x, key, train=train)
            if place in self.pooled:
                x = layers.max_pool(x, ceil=True)
        return x


class Fire(backbone.Part, kw_only=True):
    """See Fires."""

    width: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        def through(x, site, width, size, name):
            shape = width, size
            return nn.relu(self.conv(x, key, train, site, *shape, name=name, **_DRAWN))

        x = through(x, "conv1", self.width, 1, "squeeze")
        one = through(x, "conv2", 4 * self.width, 1, "expand1x1")
        three = through(x, "conv3", 4 * self.width, 3, "expand3x3")
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
        self.stem = Stem(width=self.stem_width, size=self.stem_size, **self._shared())
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            Fires(
                width=(i + 1) * self.squeezed,
                places=self.places[2 * i : 2 * i + 2],
                pooled=self.pooled,
                site=f"stage{i + 1}",
                **self._shared(),
            )
            for i in range(4)
        )
        init = nn.initializers.normal(0.01)
        self.fc = layers.conv(self.classes, 1, bias=True, dtype=jnp.float32, init=init)

    def _least(self) -> int:
        return 14 + self.stem_size

    def _head(self, x: Array, key, train: bool) -> Array:
        x = self._drop(x, "dropout", key, train)
        # Published so: a ReLU before the mean, so that no logit is negative.
        return jnp.mean(nn.relu(self.fc(x.astype(jnp.float32))), (1, 2))


# Called with the number of classes, and SqueezeNet's other fields as options.
squeezenet1_0 = SqueezeNet
squeezenet1_1 = functools.partial(
    SqueezeNet,
    stem_width=64,
    stem_size=3,
    places=(3, 4, 6, 7, 9, 10, 11, 12),
    pooled=(4, 7),
)
