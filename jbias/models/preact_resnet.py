"""Pre-activation ResNet-18, as in Marcu and Pruegel-Bennett, ICML 2022, on data distortion.

Source: He, Zhang, Ren and Sun, "Identity mappings", ECCV 2016,
https://arxiv.org/abs/1603.05027. Reference code: https://github.com/ecs-vlc/FMix at
e5991dc, which Marcu and Pruegel-Bennett use.
Differences from the source, as in the reference code: batch norm and ReLU directly follow the
stem but do not follow the last block, and each shortcut, the identity included, starts from the
normalised input. The network is for images of 32 pixels: the stem keeps the size.
"""

import functools
from collections.abc import Callable, Iterator

from flax import linen as nn

from jbias.models import backbone, layers

# See resnet.NAMES.
NAMES = (
    (r"stem/(conv1|bn1)", r"\1"),
    (r"stage(\d)/block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)/block(\d+)/proj", r"layer\1.\2.shortcut.0"),
    (r"fc", r"linear"),
)


def stem(scope: backbone.Scope, x: backbone.Map, *, width: int) -> backbone.Map:
    """Return the map after a 3x3 convolution, batch norm and ReLU."""
    x = scope.conv(x, "conv", width, 3, init=layers.TORCH, name="conv1")
    return nn.relu(scope.norm(x, "bn1"))


def block(
    scope: backbone.Scope, x: backbone.Map, *, width: int, stride: int
) -> backbone.Map:
    """Return the map after batch norm, ReLU and a 3x3 convolution, twice, plus the shortcut.

    The shortcut is x after the first ReLU, and a 1x1 convolution if the stride is not 1 or the
    channels differ. width: output channels. stride: stride of the first convolution.
    """
    conv = functools.partial(scope.conv, init=layers.TORCH)
    x = nn.relu(scope.norm(x, "bn1"))
    y = conv(x, "conv1", width, 3, stride)
    y = conv(nn.relu(scope.norm(y, "bn2")), "conv2", width, 3)
    if stride != 1 or x.shape[-1] != width:
        x = conv(x, "", width, 1, stride, name="proj")
    return x + y


class PreActResNet(backbone.Staged):
    """A residual network of pre-activation blocks.

    depths: blocks in each of the four stages.
    width: channels of the stem and of stage 1; 64 is the published size.
    """

    depths: tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64

    def setup(self):
        """Create the layers."""
        super().setup()
        self.fc = layers.linear(8 * self.width, self.classes)

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        yield functools.partial(stem, width=self.width)
        for i, depth in enumerate(self.depths):
            options = [dict(stride=2 if i and not j else 1) for j in range(depth)]
            yield functools.partial(
                backbone.apply_blocks,
                block=functools.partial(block, width=self.width << i),
                options=options,
            )
