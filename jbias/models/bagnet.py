"""BagNets: ResNet-50s that see small patches, and average what each tells.

Source: Brendel and Bethge, ICLR 2019, https://arxiv.org/abs/1904.00760, after the
authors' code and with its initialisation and parameter shapes:
https://github.com/wielandbrendel/bag-of-local-features-models at 8493fb4.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import backbone, layers, taps

# As resnet.NAMES.
NAMES = (
    (r"stem/(conv\d|bn1)", r"\1"),
    (r"stage(\d)/block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)/block(\d+)/proj", r"layer\1.\2.downsample.0"),
    (r"stage(\d)/block(\d+)/bn_proj", r"layer\1.\2.downsample.1"),
    (r"fc", r"fc"),
)


class Stem(nn.Module):
    """A 1x1 and a 3x3 convolution, batch norm and ReLU."""

    width: int
    tap: taps.Tap | None
    norm: Callable[..., nn.Module]
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        for i, size in ((1, 1), (2, 3)):
            x = _conv(self.width, size, 1, self.dtype, f"conv{i}")(x)
            x = taps.through(self, x, f"stem.conv{i}", key, train)
        # The authors' momentum of this one layer.
        return nn.relu(self.norm(decay=0.999, name="bn1")(x, train=train))


class Block(nn.Module):
    """A bottleneck without padding; the shortcut loses the same rows and columns."""

    width: int
    size: int
    stride: int
    project: bool
    site: str
    tap: taps.Tap | None
    norm: Callable[..., nn.Module]
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        w, y = self.width, x
        plan = ((1, w, 1), (self.size, w, self.stride), (1, 4 * w, 1))
        for i, (size, features, stride) in enumerate(plan, 1):
            y = _conv(features, size, stride, self.dtype, f"conv{i}")(y)
            y = taps.through(self, y, f"{self.site}.conv{i}", key, train)
            y = self.norm(name=f"bn{i}")(y, train=train)
            if i < len(plan):
                y = nn.relu(y)
        if self.project:
            x = _conv(4 * w, 1, self.stride, self.dtype, "proj")(x)
            x = self.norm(name="bn_proj")(x, train=train)
        # After these, last rows and columns: the published shortcut is not centred.
        return nn.relu(x[:, : y.shape[1], : y.shape[2]] + y)


class Stage(nn.Module):
    """Blocks of one width; the first has the stride, and may have the 3x3 kernel."""

    depth: int
    width: int
    size: int
    stride: int
    site: str
    tap: taps.Tap | None
    norm: Callable[..., nn.Module]
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        for i in range(self.depth):
            x = Block(
                width=self.width,
                size=1 if i else self.size,
                stride=1 if i else self.stride,
                project=i == 0,
                site=f"{self.site}.block{i}",
                tap=self.tap,
                norm=self.norm,
                dtype=self.dtype,
                name=f"block{i}",
            )(x, key, train=train)
        return x


class BagNet(backbone.Staged):
    """A BagNet; a place of its last feature map sees a patch of 1 + 2^(wide + 1) pixels.

    wide: how many stages, from the first, begin with a 3x3 convolution.
    depths: blocks in each of the four stages.
    width: channels of the stem and inside stage 1; 64 is the published size.
    """

    wide: int = 4
    depths: tuple[int, int, int, int] = (3, 4, 6, 3)
    width: int = 64

    def setup(self):
        common = dict(tap=self.tap, norm=self._norm(), dtype=self.dtype)
        self.stem = Stem(width=self.width, **common)
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            Stage(
                depth=depth,
                width=self.width << i,
                size=3 if i < self.wide else 1,
                stride=2 if i < 3 else 1,
                site=f"stage{i + 1}",
                **common,
            )
            for i, depth in enumerate(self.depths)
        )
        self.fc = layers.linear(32 * self.width, self.classes)

    def _least(self) -> int:
        return 1 + 2 ** (self.wide + 1)

    def _head(self, x: Array, key, train: bool) -> Array:
        x = self._drop(jnp.mean(x, (1, 2)), "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def _conv(features: int, size: int, stride: int, dtype: Any, name: str) -> nn.Conv:
    return layers.conv(features, size, stride, dtype=dtype, pad=0, name=name)


# Called with the number of classes, and BagNet's other fields as options.
bagnet9 = functools.partial(BagNet, wide=2)
bagnet17 = functools.partial(BagNet, wide=3)
bagnet33 = functools.partial(BagNet, wide=4)
