"""What networks of a stem, four stages and a head share, and layers as PyTorch has them.

A subclass makes the modules `stem` and `stage1` to `stage4` in its setup, each called
as part(x, key, train=train), and has a method `_head`, which takes what leaves stage 4 to
logits. Modules of the head are named fc, the last of them, fc1 and so on.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import norm, resnet, taps

HE_FAN_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
HE_FAN_IN = nn.initializers.variance_scaling(2.0, "fan_in", "normal")
# Uniform within +-1/sqrt(fan_in), PyTorch's own for kernels.
TORCH = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class Staged(nn.Module):
    """A network that can be cut before any stage, as resnet.ResNet can.

    net(x) is head_of(features(x)): `features` runs the stem and the stages before
    `stop`, `head_of` the stages from `start` on and the head. Images are in [0, 1], NHWC;
    the first layer subtracts `mean` and divides by `std`. Logits are float32.

    classes: number of outputs.
    tap: called in training as tap(x, site, key), at "stem" and "stage1" ... "stage4"
      after these, after each convolution inside them at a site that ends in "conv" or
      "conv1", "conv2" and so on, and at "fc1" ... after linear layers before the last
      and their activation, where x is of shape (b, c); see taps.py.
    dropout: rate in the head.
    dtype: what convolutions compute in; parameters are float32 always.
    norm_group: how many consecutive rows of a batch batch norm takes together; 0 is all.
    """

    classes: int
    tap: taps.Tap | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32
    mean: tuple[float, ...] = resnet.IMAGENET_MEAN
    std: tuple[float, ...] = resnet.IMAGENET_STD
    norm_decay: float = 0.9
    norm_eps: float = 1e-5
    norm_group: int = 0

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
        """Returns the output of the stem and of the stages before `stop`, of 1 to 5."""
        _check_cut("stop", stop)
        x = self.stem(self._normalise(image), key, train=train)
        x = taps.through(self, x, "stem", key, train)
        return self._stages(x, range(1, stop), key, train)

    def head_of(
        self,
        f: Float[Array, "b h2 w2 c2"],
        key: PRNGKeyArray | None = None,
        *,
        train: bool = False,
        start: int = 3,
    ) -> Float[Array, "b k"]:
        """Returns logits of a feature map that enters stage `start`, of 1 to 5."""
        _check_cut("start", start)
        x = self._stages(f.astype(self.dtype), range(start, 5), key, train)
        return self._head(x, key, train)

    @staticmethod
    def stage_of(name: str) -> int:
        """Says to which stage a module belongs, given its name: 0 stem, 5 head."""
        if name.startswith("stage"):
            return int(name.removeprefix("stage"))
        return 0 if name == "stem" else 5

    def _least(self) -> int:
        """Pixels that an image must have on each side, for no layer to be empty."""
        return 1

    def _norm(self) -> Callable[..., nn.Module]:
        return functools.partial(
            norm.BatchNorm,
            decay=self.norm_decay,
            eps=self.norm_eps,
            dtype=self.dtype,
            group=self.norm_group,
        )

    def _normalise(self, image: Float[Array, "b h w c"]) -> Array:
        where = f"models.{type(self).__name__}"
        channels = len(self.mean)
        if image.shape[-1] != channels or not jnp.issubdtype(image.dtype, jnp.floating):
            raise ValueError(
                f"{where}: images must be floats in [0, 1] with {channels} channels "
                f"last, got {image.dtype} of shape {image.shape}"
            )
        if min(image.shape[1:3]) < self._least():
            raise ValueError(
                f"{where}: images must have at least {self._least()} pixels a side, "
                f"got shape {image.shape}; resize them or take another model"
            )
        mean, std = (jnp.asarray(v).reshape(1, 1, 1, -1) for v in (self.mean, self.std))
        return ((image - mean) / std).astype(self.dtype)

    def _stages(self, x: Array, which: range, key, train: bool) -> Array:
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        for stage in which:
            x = stages[stage - 1](x, key, train=train)
            x = taps.through(self, x, f"stage{stage}", key, train)
        return x

    def _drop(self, x: Array, name: str, key, train: bool) -> Array:
        """Zeroes a share `dropout` of x in training and scales the rest up."""
        if not (train and self.dropout):
            return x
        keep = 1 - self.dropout
        mask = jax.random.bernoulli(taps.stream(key, name), keep, x.shape)
        return jnp.where(mask, x / keep, 0)


def conv(
    features: int,
    size: int,
    stride: int = 1,
    *,
    dtype: Any,
    pad: int | None = None,
    bias: bool = False,
    groups: int = 1,
    init: Callable = HE_FAN_OUT,
    bias_init: Callable = nn.initializers.zeros,
    name: str | None = None,
) -> nn.Conv:
    """A convolution whose borders are padded with size // 2 zeros, or with `pad`."""
    return nn.Conv(
        features,
        (size, size),
        (stride, stride),
        padding=size // 2 if pad is None else pad,
        feature_group_count=groups,
        use_bias=bias,
        dtype=dtype,
        kernel_init=init,
        bias_init=bias_init,
        name=name,
    )


def uniform(fan_in: int) -> Callable:
    """PyTorch's own initialisation of biases: uniform within +-1/sqrt(fan_in)."""

    def init(key: PRNGKeyArray, shape, dtype=jnp.float32) -> Array:
        limit = 1 / math.sqrt(fan_in)
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def max_pool(
    x: Float[Array, "b h w c"], size: int = 3, *, ceil: bool = False
) -> Float[Array, "b h2 w2 c"]:
    """Takes the maxima of windows at every second pixel.

    With `ceil`, PyTorch's ceil_mode: a last window may stick out at the end of a side.
    """

    def after(n: int) -> tuple[int, int]:
        return 0, max(0, math.ceil((n - size) / 2) * 2 + size - n) if ceil else 0

    pads = tuple(after(n) for n in x.shape[1:3])
    return nn.max_pool(x, (size, size), (2, 2), pads)


def adaptive_mean(x: Float[Array, "b h w c"], side: int) -> Float[Array, "b s s c"]:
    """PyTorch's adaptive_avg_pool2d: means of side * side cells, whatever the size of x.

    Cell i of n pixels is from floor(i n / side) to ceil((i + 1) n / side), so that cells
    overlap where side does not divide n, and pixels repeat where n is less than side.
    """
    if x.shape[1:3] == (side, side):
        return x
    rows, columns = (jnp.asarray(_cells(n, side), x.dtype) for n in x.shape[1:3])
    return jnp.einsum("bhwc,ih,jw->bijc", x, rows, columns)


def flat(x: Float[Array, "b h w c"]) -> Float[Array, "b n"]:
    """Lays out each image as PyTorch does: channels first, then rows."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def _cells(n: int, side: int) -> Float[np.ndarray, "s n"]:
    i, pixel = np.arange(side)[:, None], np.arange(n)[None]
    inside = (pixel >= i * n // side) & (pixel < -((-(i + 1) * n) // side))
    return inside / inside.sum(1, keepdims=True)


def _check_cut(name: str, stage: int) -> None:
    if not 1 <= stage <= 5:
        raise ValueError(f"models.staged: {name} must be in 1 to 5, got {stage}")
