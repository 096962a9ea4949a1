"""BagNets: ResNet-50s that see small patches, and average what each tells.

Source: Brendel and Bethge, ICLR 2019, https://arxiv.org/abs/1904.00760, after the
authors' code and with its initialisation and parameter shapes:
https://github.com/wielandbrendel/bag-of-local-features-models at 8493fb4.
"""

import functools
from collections.abc import Callable, Iterator

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


def stem(call: backbone.Call, x: Array, *, width: int) -> Array:
    """A 1x1 and a 3x3 convolution, batch norm and ReLU."""
    for i, size in ((1, 1), (2, 3)):
        x = call.conv(x, f"conv{i}", width, size, pad=0)
    # The authors' momentum of this one layer.
    return nn.relu(call.norm(x, "bn1", decay=0.999))


def block(
    call: backbone.Call, x: Array, *, width: int, size: int, stride: int, project: bool
) -> Array:
    """A bottleneck without padding; the shortcut loses the same rows and columns."""
    last = (4 * width, 1, 1, 1)
    y = call.convs(x, (width, 1, 1, 1), (width, size, stride, 1), last, pad=0)
    if project:
        x = call.norm(call.conv(x, "", 4 * width, 1, stride, name="proj"), "bn_proj")
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
        super().setup()
        self.fc = layers.linear(32 * self.width, self.classes)

    def _runs(self) -> Iterator[Callable]:
        yield functools.partial(stem, width=self.width)
        for i, depth in enumerate(self.depths):
            # The first block of a stage has the stride, and may have the 3x3 kernel.
            first = dict(size=3 if i < self.wide else 1, stride=2 if i < 3 else 1)
            own = [dict(size=1, stride=1, project=False)] * (depth - 1)
            own = [{**first, "project": True}, *own]
            run = functools.partial(block, width=self.width << i)
            yield functools.partial(backbone.blocks, run=run, options=own)

    def _least(self) -> int:
        return 1 + 2 ** (self.wide + 1)
