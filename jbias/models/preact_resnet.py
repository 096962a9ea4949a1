"""ResNet-18 whose blocks normalise first, in the form of the data distortion paper.

Source: He, Zhang, Ren and Sun, "Identity mappings", ECCV 2016,
https://arxiv.org/abs/1603.05027. Reference code: https://github.com/ecs-vlc/FMix at
e5991dc, whose form that paper has (Marcu and Pruegel-Bennett, ICML 2022). It differs from
the source's: batch norm and ReLU follow the stem at once, nothing follows the last block,
and each shortcut, also the identity, starts from the normalised input. Images of 32
pixels are what it is made for: the stem keeps the size.
"""

import functools

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


class Stem(backbone.Part, kw_only=True):
    """A 3x3 convolution, batch norm and ReLU."""

    width: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        init = layers.TORCH
        x = self.conv(x, key, train, "conv", self.width, 3, init=init, name="conv1")
        return nn.relu(self.norm(name="bn1")(x, train=train))


class Block(backbone.Part, kw_only=True):
    """Batch norm, ReLU and a 3x3 convolution, twice, beside a shortcut."""

    width: int
    stride: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        w, init = self.width, layers.TORCH
        x = nn.relu(self.norm(name="bn1")(x, train=train))
        y = self.conv(x, key, train, "conv1", w, 3, self.stride, init=init)
        y = nn.relu(self.norm(name="bn2")(y, train=train))
        y = self.conv(y, key, train, "conv2", w, 3, init=init)
        if self.stride != 1 or x.shape[-1] != w:
            conv = functools.partial(layers.conv, dtype=self.dtype, init=init)
            x = conv(w, 1, self.stride, name="proj")(x)
        return x + y


class PreActResNet(backbone.Staged):
    """A network of pre-activation blocks.

    depths: blocks in each of the four stages.
    width: channels of the stem and of stage 1; 64 is the published size.
    """

    depths: tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64

    def setup(self):
        self.stem = Stem(width=self.width, **self._shared())
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            backbone.Blocks(
                block=Block,
                options=tuple(
                    dict(width=self.width << i, stride=2 if i and not j else 1)
                    for j in range(depth)
                ),
                site=f"stage{i + 1}",
                **self._shared(),
            )
            for i, depth in enumerate(self.depths)
        )
        self.fc = layers.linear(8 * self.width, self.classes)
