"""Two convolutions and a linear layer, for digits and other small, simple images."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, taps


class CNN(backbone.BatchNormed):
    """Conv 5x5, batch norm, ReLU, max-pool 2x2, twice, and a linear layer on all pixels.

    A convolution with what follows is a stage; the stem and stages 3 and 4 are empty and
    have no sites. There are "stage1.conv", "stage1", "stage2.conv" and "stage2".

    width: channels of the first stage; the second has twice as many.
    """

    width: int = 32
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def setup(self):
        own = dict(use_bias=False, dtype=self.dtype)
        self.stage1_conv = nn.Conv(self.width, (5, 5), **own)
        self.stage1_bn = self._norm()()
        self.stage2_conv = nn.Conv(2 * self.width, (5, 5), **own)
        self.stage2_bn = self._norm()()
        self.fc = nn.Dense(self.classes, dtype=jnp.float32)

    def _stem(self, x: Array, key, train: bool) -> Array:
        return x

    def _stages(self, x: Array, which: range, key, train: bool) -> Array:
        return super()._stages(x, [n for n in which if n < 3], key, train)

    def _stage(self, number: int, x: Array, key, train: bool) -> Array:
        stages = (self.stage1_conv, self.stage1_bn), (self.stage2_conv, self.stage2_bn)
        conv, bn = stages[number - 1]
        x = taps.through(self, conv(x), f"stage{number}.conv", key, train)
        return nn.max_pool(nn.relu(bn(x, train=train)), (2, 2), (2, 2))

    def _head(self, x: Array, key, train: bool) -> Array:
        x = self._drop(x.reshape(len(x), -1), "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def side(at: Callable[[str], tuple[int, ...] | None]) -> int:
    """Height and width of the images that weights are for; see models.importing."""
    maps, kernel = at("stage2_conv/kernel"), at("fc/kernel")
    if maps is None or kernel is None or kernel[0] < maps[-1]:
        return 28
    return 4 * round((kernel[0] / maps[-1]) ** 0.5)
