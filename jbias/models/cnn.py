"""`CNN`, a network of two convolutions and a linear layer, for digits and other small images."""

import functools
from collections.abc import Callable, Iterable

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, taps


class CNN(backbone.BatchNormed):
    """A network of two stages (conv 5x5, batch norm, ReLU, max-pool 2x2) and a linear layer.

    The linear layer reads all pixels of the map. The stem and stages 3 and 4 are empty and
    have no sites; the sites are "stage1.conv", "stage1", "stage2.conv" and "stage2".

    width: channels of stage 1; stage 2 has twice as many.
    """

    width: int = 32
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def setup(self):
        """Create the layers."""
        conv = functools.partial(
            nn.Conv, kernel_size=(5, 5), use_bias=False, dtype=self.dtype
        )
        self.stage1_conv = conv(self.width)
        self.stage1_bn = self._norm()()
        self.stage2_conv = conv(2 * self.width)
        self.stage2_bn = self._norm()()
        self.fc = nn.Dense(self.classes, dtype=jnp.float32)

    def _stem(self, x: backbone.Map, key: backbone.Key, train: bool) -> backbone.Map:
        """Return the output of the stem, given normalised images x."""
        return x

    def _stages(
        self, x: Array, numbers: Iterable[int], key: backbone.Key, train: bool
    ) -> Array:
        """Return x after the given stages; stages 3 and 4 are empty."""
        return super()._stages(x, [n for n in numbers if n < 3], key, train)

    def _stage(
        self, number: int, x: backbone.Map, key: backbone.Key, train: bool
    ) -> backbone.Map:
        """Return the output of stage `number`, 1 or 2, without the site after the stage."""
        stages = (self.stage1_conv, self.stage1_bn), (self.stage2_conv, self.stage2_bn)
        conv, bn = stages[number - 1]
        x = taps.through(self, conv(x), f"stage{number}.conv", key, train)
        return nn.max_pool(nn.relu(bn(x, train=train)), (2, 2), (2, 2))

    def _head(self, x: backbone.Map, key: backbone.Key, train: bool) -> Array:
        """Return the logits, given the output x of stage 4."""
        x = self._drop(x.reshape(len(x), -1), "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def infer_side(shape_of: Callable[[str], tuple[int, ...] | None]) -> int:
    """Return the side of the images, in pixels, for which weights have these shapes.

    Return 28 if the shapes do not determine the side.

    shape_of: path of a parameter, such as "fc/kernel", -> its shape in the file, None if
      the file has no such parameter; see models.importing.
    """
    conv, linear = shape_of("stage2_conv/kernel"), shape_of("fc/kernel")
    if conv is None or linear is None or linear[0] < conv[-1]:
        return 28
    return 4 * round((linear[0] / conv[-1]) ** 0.5)
