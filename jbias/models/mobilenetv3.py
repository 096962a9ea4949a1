"""MobileNetV3: bottlenecks with depthwise convolutions and gates on channels.

Source: Howard et al., ICCV 2019, https://arxiv.org/abs/1905.02244, tables 1 and 2, with
the initialisation, parameter shapes and batch norms of torchvision's, which published
weights have.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, taps

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


def _alike(
    kernel: int, gate: bool, swish: bool, stride: int, *sizes: tuple[int, int]
) -> tuple[tuple, ...]:
    """Blocks of one stage that differ in sizes, expanded and after; the first strides."""
    return tuple(
        (kernel, *size, gate, swish, stride if i == 0 else 1)
        for i, size in enumerate(sizes)
    )


_LARGE = (
    _alike(3, False, False, 1, (16, 16))
    + _alike(3, False, False, 2, (64, 24), (72, 24)),
    _alike(5, True, False, 2, (72, 40), (120, 40), (120, 40)),
    _alike(3, False, True, 2, (240, 80), (200, 80), (184, 80), (184, 80))
    + _alike(3, True, True, 1, (480, 112), (672, 112)),
    _alike(5, True, True, 2, (672, 160), (960, 160), (960, 160)),
)
_SMALL = (
    _alike(3, True, False, 2, (16, 16)),
    _alike(3, False, False, 2, (72, 24), (88, 24)),
    _alike(5, True, True, 2, (96, 40), (240, 40), (240, 40), (120, 48), (144, 48)),
    _alike(5, True, True, 2, (288, 96), (576, 96), (576, 96)),
)
SMALL = dict(blocks=_SMALL, hidden=1024)  # The defaults are the large one's.


def gates(call: backbone.Call, x: Array) -> Array:
    """Squeeze and excitation: scales channels by what their means say."""
    conv, channels = functools.partial(call.conv, bias=True), x.shape[-1]
    y = jnp.mean(x, (1, 2), keepdims=True)
    y = nn.relu(conv(y, "", _divisible(channels // 4), 1, name="fc1"))
    return x * nn.hard_sigmoid(conv(y, "", channels, 1, name="fc2"))


def block(call: backbone.Call, x: Array, *, plan: tuple) -> Array:
    """Convolutions 1x1, depthwise and 1x1, a gate before the last, and a shortcut.

    Without the first where the channels are already as many. `plan` is a row of `blocks`.
    """
    kernel, expanded, width, gate, swish, stride = plan
    act, places = nn.hard_swish if swish else nn.relu, itertools.count()

    def conv(y: Array, *shape: int, **options: int) -> Array:
        i = next(places)
        return call.norm(call.conv(y, f"conv{i}", *shape, **options), f"bn{i}")

    y = act(conv(x, expanded, 1)) if expanded != x.shape[-1] else x
    y = act(conv(y, expanded, kernel, stride, groups=expanded))
    y = call.inner(gates, f"gate{next(places)}", y) if gate else y
    y = conv(y, width, 1)
    return x + y if stride == 1 and x.shape[-1] == width else y


def stem(call: backbone.Call, x: Array, *, width: int) -> Array:
    """A 3x3 convolution of stride 2, batch norm and hard swish."""
    x = call.conv(x, "conv", width, 3, 2, name="conv0")
    return nn.hard_swish(call.norm(x, "bn0"))


def stage(
    call: backbone.Call, x: Array, *, blocks: tuple, first: int, last: bool
) -> Array:
    """Blocks, `first` being the place of the first; the last stage widens sixfold."""
    for place, plan in enumerate(blocks, first):
        x = call.inner(block, f"block{place}", x, plan=plan)
    if not last:
        return x
    place = first + len(blocks)
    x = call.conv(x, "conv", 6 * x.shape[-1], 1, name=f"conv{place}")
    return nn.hard_swish(call.norm(x, f"bn{place}"))


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
        super().setup()
        init = nn.initializers.normal(0.01)
        hidden = _divisible(self.hidden * self.multiplier)
        self.fc1 = nn.Dense(hidden, dtype=self.dtype, kernel_init=init)
        self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=init)

    def _runs(self) -> Iterator[Callable]:
        yield functools.partial(stem, width=_divisible(16 * self.multiplier))
        first = 1
        for i, plans in enumerate(self.blocks, 1):
            own = dict(blocks=[*map(self._widened, plans)], last=i == len(self.blocks))
            yield functools.partial(stage, **own, first=first)
            first += len(plans)

    def _widened(self, plan: tuple) -> tuple:
        kernel, *sizes, gate, swish, stride = plan
        sizes = (_divisible(size * self.multiplier) for size in sizes)
        return kernel, *sizes, gate, swish, stride

    def _head(self, x: Array, key, train: bool) -> Array:
        x = nn.hard_swish(self.fc1(jnp.mean(x, (1, 2))))
        x = taps.through(self, x, "fc1", key, train)
        x = self._drop(x, "dropout", key, train)
        return self.fc(x.astype(jnp.float32))


def _divisible(channels: float) -> int:
    """Rounds to a multiple of 8, never down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
