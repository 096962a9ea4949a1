"""ResNet-18 whose blocks normalise first, in the form of the data distortion paper.

Source: He, Zhang, Ren and Sun, "Identity mappings", ECCV 2016,
https://arxiv.org/abs/1603.05027. Reference code: https://github.com/ecs-vlc/FMix at
e5991dc, whose form that paper has (Marcu and Pruegel-Bennett, ICML 2022). It differs from
the source's: batch norm and ReLU follow the stem at once, nothing follows the last block,
and each shortcut, also the identity, starts from the normalised input. Images of 32
pixels are what it is made for: the stem keeps the size.
"""

import functools
from collections.abc import Callable, Iterator

from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers

# As resnet.NAMES.
NAMES = (
    (r"stem/(conv1|bn1)", r"\1"),
    (r"stage(\d)/block(\d+)/((?:conv|bn)\d)", r"layer\1.\2.\3"),
    (r"stage(\d)/block(\d+)/proj", r"layer\1.\2.shortcut.0"),
    (r"fc", r"linear"),
)


def stem(call: backbone.Call, x: Array, *, width: int) -> Array:
    """A 3x3 convolution, batch norm and ReLU."""
    x = call.conv(x, "conv", width, 3, init=layers.TORCH, name="conv1")
    return nn.relu(call.norm(x, "bn1"))


def block(call: backbone.Call, x: Array, *, width: int, stride: int) -> Array:
    """Batch norm, ReLU and a 3x3 convolution, twice, beside a shortcut."""
    conv = functools.partial(call.conv, init=layers.TORCH)
    x = nn.relu(call.norm(x, "bn1"))
    y = conv(x, "conv1", width, 3, stride)
    y = conv(nn.relu(call.norm(y, "bn2")), "conv2", width, 3)
    if stride != 1 or x.shape[-1] != width:
        x = conv(x, "", width, 1, stride, name="proj")
    return x + y


class PreActResNet(backbone.Staged):
    """A network of pre-activation blocks.

    depths: blocks in each of the four stages.
    width: channels of the stem and of stage 1; 64 is the published size.
    """

    depths: tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64

    def setup(self):
        super().setup()
        self.fc = layers.linear(8 * self.width, self.classes)

    def _runs(self) -> Iterator[Callable]:
        yield functools.partial(stem, width=self.width)
        for i, depth in enumerate(self.depths):
            own = [dict(stride=2 if i and not j else 1) for j in range(depth)]
            run = functools.partial(block, width=self.width << i)
            yield functools.partial(backbone.blocks, run=run, options=own)
