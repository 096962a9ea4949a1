"""SqueezeNet 1.0 and 1.1: 1x1 convolutions that squeeze what wider ones read.

Source: Iandola, Han, Moskewicz, Ashraf, Dally and Keutzer, 2016,
https://arxiv.org/abs/1602.07360, with the initialisation, parameter shapes and pooling
of torchvision's, which published weights have.
"""

import functools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import backbone, layers, taps

# As resnet.NAMES. The number of a module is its place in the published list of layers.
NAMES = (
    (r"(?:stem|stage\d)/conv(\d+)", r"features.\1"),
    (r"stage\d/fire(\d+)/squeeze", r"features.\1.squeeze"),
    (r"stage\d/fire(\d+)/expand(\d)x\d", r"features.\1.expand\2x\2"),
    (r"fc", r"classifier.1"),
)
_HE_UNIFORM = nn.initializers.he_uniform()


class Stem(nn.Module):
    """A convolution of stride 2 without padding, ReLU and max-pool."""

    width: int
    size: int
    tap: taps.Tap | None
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        x = _conv(self.width, self.size, self.dtype, "conv0", stride=2, pad=0)(x)
        x = taps.through(self, x, "stem.conv", key, train)
        return layers.max_pool(nn.relu(x), ceil=True)


class Fires(nn.Module):
    """Two fire modules, and a max-pool after those of `pooled`.

    A fire module is a 1x1 convolution to `width` channels and, side by side on these, a
    1x1 and a 3x3 convolution to four times as many each.
    """

    width: int
    places: tuple[int, int]
    pooled: tuple[int, ...]
    site: str
    tap: taps.Tap | None
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        for place in self.places:
            x = Fire(
                width=self.width,
                site=f"{self.site}.fire{place}",
                tap=self.tap,
                dtype=self.dtype,
                name=f"fire{place}",
            )(x, key, train=train)
            if place in self.pooled:
                x = layers.max_pool(x, ceil=True)
        return x


class Fire(nn.Module):
    """See Fires."""

    width: int
    site: str
    tap: taps.Tap | None
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        def through(x, width, size, name, site):
            x = _conv(width, size, self.dtype, name)(x)
            return nn.relu(taps.through(self, x, f"{self.site}.{site}", key, train))

        x = through(x, self.width, 1, "squeeze", "conv1")
        one = through(x, 4 * self.width, 1, "expand1x1", "conv2")
        three = through(x, 4 * self.width, 3, "expand3x3", "conv3")
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
        common = dict(tap=self.tap, dtype=self.dtype)
        self.stem = Stem(width=self.stem_width, size=self.stem_size, **common)
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            Fires(
                width=(i + 1) * self.squeezed,
                places=self.places[2 * i : 2 * i + 2],
                pooled=self.pooled,
                site=f"stage{i + 1}",
                **common,
            )
            for i in range(4)
        )
        self.fc = layers.conv(
            self.classes,
            1,
            bias=True,
            dtype=jnp.float32,
            init=nn.initializers.normal(0.01),
        )

    def _least(self) -> int:
        return 14 + self.stem_size

    def _head(self, x: Array, key, train: bool) -> Array:
        x = self._drop(x, "dropout", key, train)
        # Published so: a ReLU before the mean, so that no logit is negative.
        return jnp.mean(nn.relu(self.fc(x.astype(jnp.float32))), (1, 2))


def _conv(features: int, size: int, dtype: Any, name: str, **options) -> nn.Conv:
    return layers.conv(
        features, size, bias=True, dtype=dtype, init=_HE_UNIFORM, name=name, **options
    )


# Called with the number of classes, and SqueezeNet's other fields as options.
squeezenet1_0 = SqueezeNet
squeezenet1_1 = functools.partial(
    SqueezeNet,
    stem_width=64,
    stem_size=3,
    places=(3, 4, 6, 7, 9, 10, 11, 12),
    pooled=(4, 7),
)
