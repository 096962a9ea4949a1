"""BagNets: ResNet-50s with small receptive fields, whose features are averaged.

Source: Brendel and Bethge, ICLR 2019, https://arxiv.org/abs/1904.00760; layers,
initialisation and parameter shapes are as in the authors' code:
https://github.com/wielandbrendel/bag-of-local-features-models at 8493fb4.
"""

import functools
from collections.abc import Callable, Iterator

from flax import linen as nn

from jbias.models import backbone, layers

# See resnet.NAMES.
NAMES = (
    (r"stem/(conv\d|bn1)", r"\1"),
    (r"stage(\d)/block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)/block(\d+)/proj", r"layer\1.\2.downsample.0"),
    (r"stage(\d)/block(\d+)/bn_proj", r"layer\1.\2.downsample.1"),
    (r"fc", r"fc"),
)


def stem(scope: backbone.Scope, x: backbone.Map, *, width: int) -> backbone.Map:
    """Return the map after a 1x1 and a 3x3 convolution, batch norm and ReLU.

    width: output channels.
    """
    for i, size in ((1, 1), (2, 3)):
        x = scope.conv(x, f"conv{i}", width, size, pad=0)
    # Only this layer has another momentum in the authors' code.
    return nn.relu(scope.norm(x, "bn1", decay=0.999))


def block(
    scope: backbone.Scope,
    x: backbone.Map,
    *,
    width: int,
    size: int,
    stride: int,
    project: bool,
) -> backbone.Map:
    """Return the map after a bottleneck without padding, whose shortcut is cropped to fit.

    width: channels of the first two convolutions; the block has 4 * width outputs.
    size, stride: kernel size and stride of the second convolution.
    project: whether the shortcut is a convolution and batch norm, not the identity.
    """
    first = (width, 1, 1, 1)
    second = (width, size, stride, 1)
    third = (4 * width, 1, 1, 1)
    y = scope.convs(x, first, second, third, pad=0)
    if project:
        x = scope.norm(scope.conv(x, "", 4 * width, 1, stride, name="proj"), "bn_proj")
    # The published shortcut is not centred: it loses the last rows and columns.
    return nn.relu(x[:, : y.shape[1], : y.shape[2]] + y)


class BagNet(backbone.Staged):
    """A BagNet; each position of the last map depends on 1 + 2^(wide + 1) pixels a side.

    wide: number of stages, counted from the first, that begin with a 3x3 convolution.
    depths: blocks in each of the four stages.
    width: channels of the stem and inside stage 1; 64 is the published size.
    """

    wide: int = 4
    depths: tuple[int, int, int, int] = (3, 4, 6, 3)
    width: int = 64

    def setup(self):
        """Create the layers."""
        super().setup()
        self.fc = layers.linear(32 * self.width, self.classes)

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        yield functools.partial(stem, width=self.width)
        for i, depth in enumerate(self.depths):
            # The first block of a stage has the stride, and may have the 3x3 kernel.
            first = dict(
                size=3 if i < self.wide else 1,
                stride=2 if i < 3 else 1,
                project=True,
            )
            options = [first] + [dict(size=1, stride=1, project=False)] * (depth - 1)
            yield functools.partial(
                backbone.apply_blocks,
                block=functools.partial(block, width=self.width << i),
                options=options,
            )

    def _min_side(self) -> int:
        """Return the smallest side of an image, in pixels, at which no map is empty."""
        return 1 + 2 ** (self.wide + 1)
