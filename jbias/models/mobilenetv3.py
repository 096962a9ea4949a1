"""MobileNetV3: bottlenecks with depthwise convolutions and gates on channels.

Source: Howard et al., ICCV 2019, https://arxiv.org/abs/1905.02244, tables 1 and 2, with
the initialisation, parameter shapes and batch norms of torchvision's, which published
weights have.
"""

import functools
import itertools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import backbone, layers, taps

# As resnet.NAMES. The number of a module is its place in the published list of layers.
NAMES = (
    (r"(?:stem|stage4)/conv(\d+)", r"features.\1.0"),
    (r"(?:stem|stage4)/bn(\d+)", r"features.\1.1"),
    (r"stage\d/block(\d+)/conv(\d)", r"features.\1.block.\2.0"),
    (r"stage\d/block(\d+)/bn(\d)", r"features.\1.block.\2.1"),
    (r"stage\d/block(\d+)/gate(\d)/(fc\d)", r"features.\1.block.\2.\3"),
    (r"fc1", r"classifier.0"),
    (r"fc", r"classifier.3"),
)
# The blocks of each stage: kernel, expanded channels, channels after, whether there is a
# gate, whether activations are hard swish, stride.
_FIELDS = ("kernel", "expanded", "width", "gate", "swish", "stride")
_LARGE = (
    (
        (3, 16, 16, False, False, 1),
        (3, 64, 24, False, False, 2),
        (3, 72, 24, False, False, 1),
    ),
    (
        (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1),
        (5, 120, 40, True, False, 1),
    ),
    (
        (3, 240, 80, False, True, 2),
        (3, 200, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 480, 112, True, True, 1),
        (3, 672, 112, True, True, 1),
    ),
    (
        (5, 672, 160, True, True, 2),
        (5, 960, 160, True, True, 1),
        (5, 960, 160, True, True, 1),
    ),
)
_SMALL = (
    ((3, 16, 16, True, False, 2),),
    ((3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1)),
    (
        (5, 96, 40, True, True, 2),
        (5, 240, 40, True, True, 1),
        (5, 240, 40, True, True, 1),
        (5, 120, 48, True, True, 1),
        (5, 144, 48, True, True, 1),
    ),
    (
        (5, 288, 96, True, True, 2),
        (5, 576, 96, True, True, 1),
        (5, 576, 96, True, True, 1),
    ),
)


class Gate(nn.Module):
    """Squeeze and excitation: scales channels by what their means say."""

    dtype: Any

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Array:
        channels = x.shape[-1]
        y = jnp.mean(x, (1, 2), keepdims=True)
        plan = (("fc1", _divisible(channels // 4), nn.relu),)
        plan += (("fc2", channels, nn.hard_sigmoid),)
        for name, width, activation in plan:
            layer = layers.conv(width, 1, bias=True, dtype=self.dtype, name=name)
            y = activation(layer(y))
        return x * y


class Block(backbone.Part, kw_only=True):
    """Convolutions 1x1, depthwise and 1x1, a gate before the last, and a shortcut.

    Without the first where the channels are already as many.
    """

    kernel: int
    expanded: int
    width: int
    gate: bool
    swish: bool
    stride: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        act = nn.hard_swish if self.swish else nn.relu
        e, fan_in, y = self.expanded, x.shape[-1], x
        plan = [(e, 1, 1, 1, act)] if e != fan_in else []
        plan.append((e, self.kernel, self.stride, e, act))
        plan += ["gate"] * self.gate + [(self.width, 1, 1, 1, lambda x: x)]
        for i, one in enumerate(plan):
            if one == "gate":
                y = Gate(self.dtype, name=f"gate{i}")(y)
                continue
            width, size, stride, groups, activation = one
            shape = width, size, stride
            y = self.conv(y, key, train, f"conv{i}", *shape, groups=groups)
            y = activation(self.norm(name=f"bn{i}")(y, train=train))
        return x + y if self.stride == 1 and fan_in == self.width else y


class Stem(backbone.Part, kw_only=True):
    """A 3x3 convolution of stride 2, batch norm and hard swish."""

    width: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        x = self.conv(x, key, train, "conv", self.width, 3, 2, name="conv0")
        return nn.hard_swish(self.norm(name="bn0")(x, train=train))


class Stage(backbone.Part, kw_only=True):
    """Blocks, `first` being the place of the first; the last stage widens sixfold."""

    blocks: tuple[tuple, ...]
    multiplier: float
    first: int
    last: bool

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        for i, block in enumerate(self.blocks, self.first):
            own = dict(zip(_FIELDS, block, strict=True))
            for width in ("expanded", "width"):
                own[width] = _divisible(own[width] * self.multiplier)
            x = self.piece(Block, f"block{i}", **own)(x, key, train=train)
        if not self.last:
            return x
        place = self.first + len(self.blocks)
        width = 6 * x.shape[-1]
        x = self.conv(x, key, train, "conv", width, 1, name=f"conv{place}")
        return nn.hard_swish(self.norm(name=f"bn{place}")(x, train=train))


class MobileNetV3(backbone.Staged):
    """A MobileNetV3; but for the first, a stage begins where the stride doubles.

    blocks: of each stage: kernel, expanded channels, channels after, whether there is a
      gate, whether activations are hard swish, stride.
    hidden: size of the linear layer before the last.
    multiplier: of all widths, which are rounded to multiples of 8.
    """

    dropout: float = 0.2
    norm_decay: float = 0.99
    norm_eps: float = 1e-3
    blocks: tuple[tuple, ...] = _LARGE
    hidden: int = 1280
    multiplier: float = 1.0

    def setup(self):
        self.stem = Stem(width=_divisible(16 * self.multiplier), **self._shared())
        firsts = itertools.accumulate(map(len, self.blocks), initial=1)
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            Stage(
                blocks=blocks,
                multiplier=self.multiplier,
                first=first,
                last=i == len(self.blocks),
                site=f"stage{i}",
                **self._shared(),
            )
            for i, (blocks, first) in enumerate(zip(self.blocks, firsts), 1)
        )
        init = nn.initializers.normal(0.01)
        hidden = _divisible(self.hidden * self.multiplier)
        self.fc1 = nn.Dense(hidden, dtype=self.dtype, kernel_init=init)
        self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=init)

    def _head(self, x: Array, key, train: bool) -> Array:
        x = nn.hard_swish(self.fc1(jnp.mean(x, (1, 2))))
        x = taps.through(self, x, "fc1", key, train)
        x = self._drop(x, "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def _divisible(channels: float) -> int:
    """Rounds to a multiple of 8, never down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


# Called with the number of classes, and MobileNetV3's other fields as options.
mobilenetv3_large = MobileNetV3
mobilenetv3_small = functools.partial(MobileNetV3, blocks=_SMALL, hidden=1024)
