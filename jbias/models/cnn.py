"""Two convolutions and a linear layer, for digits and other small, simple images."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import norm, taps


class CNN(nn.Module):
    """Conv 5x5, batch norm, ReLU, max-pool 2x2, twice, and a linear layer on all pixels.

    It is cut as resnet.ResNet is: a convolution with what follows is a stage, stages 3
    and 4 are empty, and cuts from 3 on are before the linear layer. Sites of `tap` are
    "stage1.conv", "stage1", "stage2.conv" and "stage2".

    width: channels of the first stage; the second has twice as many.
    norm_group: how many consecutive rows of a batch batch norm takes together; 0 is all.
    """

    classes: int
    width: int = 32
    tap: taps.Tap | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    norm_group: int = 0

    def setup(self):
        self.stage1_conv = self._conv(self.width)
        self.stage1_bn = norm.BatchNorm(dtype=self.dtype, group=self.norm_group)
        self.stage2_conv = self._conv(2 * self.width)
        self.stage2_bn = norm.BatchNorm(dtype=self.dtype, group=self.norm_group)
        self.fc = nn.Dense(self.classes, dtype=jnp.float32)

    def _conv(self, features: int) -> nn.Conv:
        return nn.Conv(features, (5, 5), use_bias=False, dtype=self.dtype)

    def __call__(
        self,
        image: Float[Array, "b h w c"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
    ) -> Float[Array, "b k"]:
        """Returns logits. `key` is for taps and dropout; evaluation needs none."""
        return self.head_of(self.features(image, key, train=train), key, train=train)

    def features(
        self,
        image: Float[Array, "b h w c"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
        stop: int = 3,
    ) -> Float[Array, "b h2 w2 c2"]:
        """Returns the output of the stages before `stop`, of 1 to 5."""
        mean, std = (jnp.asarray(v).reshape(1, 1, 1, -1) for v in (self.mean, self.std))
        return self._stages(
            ((image - mean) / std).astype(self.dtype), 1, stop, key, train
        )

    def head_of(
        self,
        f: Float[Array, "b h2 w2 c2"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
        start: int = 3,
    ) -> Float[Array, "b k"]:
        """Returns logits of a feature map that enters stage `start`, of 1 to 5."""
        x = self._stages(f, start, 5, key, train)
        x = x.reshape(len(x), -1)
        if train and self.dropout:
            keep = 1 - self.dropout
            mask = jax.random.bernoulli(taps.stream(key, "dropout"), keep, x.shape)
            x = jnp.where(mask, x / keep, 0)
        return self.fc(x.astype(jnp.float32))

    @staticmethod
    def stage_of(name: str) -> int:
        """Says to which stage a module belongs, given its name: 5 is linear."""
        return 5 if name == "fc" else int(name[len("stage")])

    def _stages(self, x: Array, start: int, stop: int, key, train: bool) -> Array:
        stages = (self.stage1_conv, self.stage1_bn), (self.stage2_conv, self.stage2_bn)
        for number, (conv, bn) in enumerate(stages, 1):
            if start <= number < stop:
                x = taps.through(self, conv(x), f"stage{number}.conv", key, train)
                x = nn.max_pool(nn.relu(bn(x, train=train)), (2, 2), (2, 2))
                x = taps.through(self, x, f"stage{number}", key, train)
        return x


def side(at: Callable[[str], tuple[int, ...] | None]) -> int:
    """Height and width of the images that weights are for; see models.importing."""
    maps, kernel = at("stage2_conv/kernel"), at("fc/kernel")
    if maps is None or kernel is None or kernel[0] < maps[-1]:
        return 28
    return 4 * round((kernel[0] / maps[-1]) ** 0.5)
