"""ResNet-18 whose blocks normalise first, in the form of the data distortion paper.

Source: He, Zhang, Ren and Sun, "Identity mappings", ECCV 2016,
https://arxiv.org/abs/1603.05027. Reference code: https://github.com/ecs-vlc/FMix at
e5991dc, whose form that paper has (Marcu and Pruegel-Bennett, ICML 2022). It differs from
the source's: batch norm and ReLU follow the stem at once, nothing follows the last block,
and each shortcut, also the identity, starts from the normalised input. Images of 32
pixels are what it is made for: the stem keeps the size.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import backbone, layers, taps

# As resnet.NAMES.
NAMES = (
    (r"stem/(conv1|bn1)", r"\1"),
    (r"stage(\d)/block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)/block(\d+)/proj", r"layer\1.\2.shortcut.0"),
    (r"fc", r"linear"),
)


class Stem(nn.Module):
    """A 3x3 convolution, batch norm and ReLU."""

    width: int
    tap: taps.Tap | None
    norm: Callable[..., nn.Module]
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        x = _conv(self.width, 3, 1, self.dtype, "conv1")(x)
        x = taps.through(self, x, "stem.conv", key, train)
        return nn.relu(self.norm(name="bn1")(x, train=train))


class Block(nn.Module):
    """Batch norm, ReLU and a 3x3 convolution, twice, beside a shortcut."""

    width: int
    stride: int
    site: str
    tap: taps.Tap | None
    norm: Callable[..., nn.Module]
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], key: PRNGKeyArray | None, *, train: bool
    ) -> Array:
        x = nn.relu(self.norm(name="bn1")(x, train=train))
        y = _conv(self.width, 3, self.stride, self.dtype, "conv1")(x)
        y = taps.through(self, y, f"{self.site}.conv1", key, train)
        y = nn.relu(self.norm(name="bn2")(y, train=train))
        y = _conv(self.width, 3, 1, self.dtype, "conv2")(y)
        y = taps.through(self, y, f"{self.site}.conv2", key, train)
        if self.stride != 1 or x.shape[-1] != self.width:
            x = _conv(self.width, 1, self.stride, self.dtype, "proj")(x)
        return x + y


class Stage(nn.Module):
    """Blocks of one width; the first has the stride."""

    depth: int
    width: int
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
                stride=1 if i else self.stride,
                site=f"{self.site}.block{i}",
                tap=self.tap,
                norm=self.norm,
                dtype=self.dtype,
                name=f"block{i}",
            )(x, key, train=train)
        return x


class PreActResNet(backbone.Staged):
    """A network of pre-activation blocks.

    depths: blocks in each of the four stages.
    width: channels of the stem and of stage 1; 64 is the published size.
    """

    depths: tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64

    def setup(self):
        common = dict(tap=self.tap, norm=self._norm(), dtype=self.dtype)
        self.stem = Stem(width=self.width, **common)
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            Stage(
                depth=depth,
                width=self.width << i,
                stride=2 if i else 1,
                site=f"stage{i + 1}",
                **common,
            )
            for i, depth in enumerate(self.depths)
        )
        self.fc = layers.linear(8 * self.width, self.classes)

    def _head(self, x: Array, key, train: bool) -> Array:
        x = self._drop(jnp.mean(x, (1, 2)), "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def _conv(features: int, size: int, stride: int, dtype: Any, name: str) -> nn.Conv:
    return layers.conv(
        features, size, stride, dtype=dtype, init=layers.TORCH, name=name
    )
