"""BagNets: ResNet-50s that see small patches, and average what each tells.

Source: Brendel and Bethge, ICLR 2019, https://arxiv.org/abs/1904.00760, after the
authors' code and with its initialisation and parameter shapes:
https://github.com/wielandbrendel/bag-of-local-features-models at 8493fb4.
"""

import functools
from typing import Any

from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers

# As resnet.NAMES.
NAMES = (
    (r"stem/(conv\d|bn1)", r"\1"),
    (r"stage(\d)/block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)/block(\d+)/proj", r"layer\1.\2.downsample.0"),
    (r"stage(\d)/block(\d+)/bn_proj", r"layer\1.\2.downsample.1"),
    (r"fc", r"fc"),
)


class Stem(backbone.Part, kw_only=True):
    """A 1x1 and a 3x3 convolution, batch norm and ReLU."""

    width: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        for i, size in ((1, 1), (2, 3)):
            x = self.conv(x, key, train, f"conv{i}", self.width, size, pad=0)
        # The authors' momentum of this one layer.
        return nn.relu(self.norm(decay=0.999, name="bn1")(x, train=train))


class Block(backbone.Part, kw_only=True):
    """A bottleneck without padding; the shortcut loses the same rows and columns."""

    width: int
    size: int
    stride: int
    project: bool

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        w, y = self.width, x
        plan = ((1, w, 1), (self.size, w, self.stride), (1, 4 * w, 1))
        for i, (size, features, stride) in enumerate(plan, 1):
            y = self.conv(y, key, train, f"conv{i}", features, size, stride, pad=0)
            y = self.norm(name=f"bn{i}")(y, train=train)
            if i < len(plan):
                y = nn.relu(y)
        if self.project:
            conv = functools.partial(layers.conv, dtype=self.dtype, pad=0)
            x = conv(4 * w, 1, self.stride, name="proj")(x)
            x = self.norm(name="bn_proj")(x, train=train)
        # After these, last rows and columns: the published shortcut is not centred.
        return nn.relu(x[:, : y.shape[1], : y.shape[2]] + y)


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
        self.stem = Stem(width=self.width, **self._shared())
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            backbone.Blocks(
                block=Block,
                options=tuple(self._block(i, j) for j in range(depth)),
                site=f"stage{i + 1}",
                **self._shared(),
            )
            for i, depth in enumerate(self.depths)
        )
        self.fc = layers.linear(32 * self.width, self.classes)

    def _block(self, stage: int, place: int) -> dict[str, Any]:
        """The first block of a stage has the stride, and may have the 3x3 kernel."""
        size, stride = 3 if stage < self.wide else 1, 2 if stage < 3 else 1
        own = (1, 1) if place else (size, stride)
        width = self.width << stage
        return dict(width=width, size=own[0], stride=own[1], project=place == 0)

    def _least(self) -> int:
        return 1 + 2 ** (self.wide + 1)


# Called with the number of classes, and BagNet's other fields as options.
bagnet9 = functools.partial(BagNet, wide=2)
bagnet17 = functools.partial(BagNet, wide=3)
bagnet33 = functools.partial(BagNet, wide=4)
