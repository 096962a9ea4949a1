"""MobileNetV3: bottlenecks with depthwise convolutions and squeeze-and-excitation gates.

Source: Howard et al., ICCV 2019, https://arxiv.org/abs/1905.02244, tables 1 and 2.
Initialisation, parameter shapes and batch norms are as in torchvision, so that torchvision's
published weights fit.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, taps

# See resnet.NAMES. A module's number is its position in the published list of layers.
NAMES = (
    (r"(?:stem|stage4)/conv(\d+)", r"features.\1.0"),
    (r"(?:stem|stage4)/bn(\d+)", r"features.\1.1"),
    (r"stage\d/block(\d+)/conv(\d)", r"features.\1.block.\2.0"),
    (r"stage\d/block(\d+)/bn(\d)", r"features.\1.block.\2.1"),
    (r"stage\d/block(\d+)/gate(\d)/(fc\d)", r"features.\1.block.\2.\3"),
    (r"fc1", r"classifier.0"),
    (r"fc", r"classifier.3"),
)


# A block: (kernel size, expanded channels, output channels, has a gate, uses hard swish
# instead of ReLU, stride).
Block = tuple[int, int, int, bool, bool, int]


_LARGE: tuple[tuple[Block, ...], ...] = (
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
_SMALL: tuple[tuple[Block, ...], ...] = (
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
# Options of the small network; the defaults of MobileNetV3 are the large one.
SMALL = dict(blocks=_SMALL, hidden=1024)


def gates(scope: backbone.Scope, x: backbone.Map) -> backbone.Map:
    """Return the map with each channel scaled by a gate in [0, 1] (squeeze and excitation).

    The gates are computed from the means of all channels.
    """
    conv, channels = functools.partial(scope.conv, bias=True), x.shape[-1]
    y = jnp.mean(x, (1, 2), keepdims=True)
    y = nn.relu(conv(y, "", _divisible(channels // 4), 1, name="fc1"))
    return x * nn.hard_sigmoid(conv(y, "", channels, 1, name="fc2"))


def block(scope: backbone.Scope, x: backbone.Map, *, plan: Block) -> backbone.Map:
    """Return the map after a 1x1, a depthwise and a 1x1 convolution.

    Gates may precede the last convolution. The first convolution is left out if x already has
    the expanded number of channels. The shortcut is added if shapes match. plan: plan of the
    block; see `Block`.
    """
    kernel, expanded, width, has_gate, uses_swish, stride = plan
    activation = nn.hard_swish if uses_swish else nn.relu
    numbers = itertools.count()

    def conv(y: Array, *shape: int, **options: int) -> Array:
        """Return y after a batch-normed convolution; shape, options: see `Scope.conv`."""
        i = next(numbers)
        return scope.norm(scope.conv(y, f"conv{i}", *shape, **options), f"bn{i}")

    y = activation(conv(x, expanded, 1)) if expanded != x.shape[-1] else x
    y = activation(conv(y, expanded, kernel, stride, groups=expanded))
    y = scope.inner(gates, f"gate{next(numbers)}", y) if has_gate else y
    y = conv(y, width, 1)
    return x + y if stride == 1 and x.shape[-1] == width else y


def stem(scope: backbone.Scope, x: backbone.Map, *, width: int) -> backbone.Map:
    """Return the map after a 3x3 convolution of stride 2, batch norm and hard swish."""
    x = scope.conv(x, "conv", width, 3, 2, name="conv0")
    return nn.hard_swish(scope.norm(x, "bn0"))


def stage(
    scope: backbone.Scope, x: backbone.Map, *, blocks: tuple, first: int, last: bool
) -> backbone.Map:
    """Return the map after the blocks of one stage.

    blocks: plan of each block; see `Block`.
    first: number of the first block in the published list of layers.
    last: whether this is the last stage, which ends with a 1x1 convolution to six times the
      channels.
    """
    for place, plan in enumerate(blocks, first):
        x = scope.inner(block, f"block{place}", x, plan=plan)
    if not last:
        return x
    place = first + len(blocks)
    x = scope.conv(x, "conv", 6 * x.shape[-1], 1, name=f"conv{place}")
    return nn.hard_swish(scope.norm(x, f"bn{place}"))


class MobileNetV3(backbone.Staged):
    """A MobileNetV3; stages 2 to 4 begin with a block of stride 2.

    blocks: the blocks of each stage; see `Block`.
    hidden: output features of the linear layer before the last.
    multiplier: factor of all widths, which are then rounded to multiples of 8.
    """

    dropout: float = 0.2
    norm_decay: float = 0.99
    norm_eps: float = 1e-3
    blocks: tuple[tuple[Block, ...], ...] = _LARGE
    hidden: int = 1280
    multiplier: float = 1.0

    def setup(self):
        """Create the layers."""
        super().setup()
        init = nn.initializers.normal(0.01)
        hidden = _divisible(self.hidden * self.multiplier)
        self.fc1 = nn.Dense(hidden, dtype=self.dtype, kernel_init=init)
        self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=init)

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        yield functools.partial(stem, width=_divisible(16 * self.multiplier))
        first = 1
        for i, plans in enumerate(self.blocks, 1):
            yield functools.partial(
                stage,
                blocks=[self._scale(plan) for plan in plans],
                last=i == len(self.blocks),
                first=first,
            )
            first += len(plans)

    def _scale(self, plan: Block) -> Block:
        """Return the plan of a block with its widths multiplied by `multiplier`."""
        kernel, expanded, width, has_gate, uses_swish, stride = plan
        expanded = _divisible(expanded * self.multiplier)
        width = _divisible(width * self.multiplier)
        return kernel, expanded, width, has_gate, uses_swish, stride

    def _head(self, x: backbone.Map, key: backbone.Key, train: bool) -> Array:
        """Return the logits, given the output x of stage 4."""
        x = nn.hard_swish(self.fc1(jnp.mean(x, (1, 2))))
        x = taps.through(self, x, "fc1", key, train)
        x = self._drop(x, "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def _divisible(channels: float) -> int:
    """Return `channels` rounded to a multiple of 8, never down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
