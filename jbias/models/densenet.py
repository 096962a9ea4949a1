"""DenseNet-121: each layer reads what all layers of its block before it made.

Source: Huang, Liu, van der Maaten and Weinberger, CVPR 2017,
https://arxiv.org/abs/1608.06993, with the initialisation and parameter shapes of
torchvision's, which published weights have.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers

# As resnet.NAMES.
NAMES = (
    (r"stem/conv0", r"features.conv0"),
    (r"stem/bn0", r"features.norm0"),
    (r"stage(\d)/layer(\d+)/conv(\d)", r"features.denseblock\1.denselayer\2.conv\3"),
    (r"stage(\d)/layer(\d+)/bn(\d)", r"features.denseblock\1.denselayer\2.norm\3"),
    (r"stage(\d)/transition/conv", r"features.transition\1.conv"),
    (r"stage(\d)/transition/bn", r"features.transition\1.norm"),
    (r"stage4/bn5", r"features.norm5"),
    (r"fc", r"classifier"),
)
_INIT = layers.HE_FAN_IN


class Stem(backbone.Part, kw_only=True):
    """A 7x7 convolution of stride 2, batch norm, ReLU and max-pool."""

    width: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        x = self.conv(x, key, train, "conv", self.width, 7, 2, init=_INIT, name="conv0")
        x = nn.relu(self.norm(name="bn0")(x, train=train))
        return nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))


class Layer(backbone.Part, kw_only=True):
    """Adds `growth` channels: batch norm, ReLU and a convolution, 1x1 and then 3x3."""

    growth: int

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        y = x
        for i, (width, size) in enumerate(((4 * self.growth, 1), (self.growth, 3)), 1):
            y = nn.relu(self.norm(name=f"bn{i}")(y, train=train))
            y = self.conv(y, key, train, f"conv{i}", width, size, init=_INIT)
        return jnp.concatenate((x, y), -1)


class Transition(backbone.Part):
    """Halves channels by batch norm, ReLU and a 1x1 convolution, and sides by a mean."""

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        x = nn.relu(self.norm(name="bn")(x, train=train))
        x = self.conv(x, key, train, "conv", x.shape[-1] // 2, 1, init=_INIT)
        return nn.avg_pool(x, (2, 2), (2, 2))


class Stage(backbone.Part, kw_only=True):
    """A dense block, and a transition or, where it is the last, batch norm and ReLU."""

    depth: int
    growth: int
    last: bool

    @nn.compact
    def __call__(self, x: backbone.Map, key: backbone.Key, *, train: bool) -> Array:
        for i in range(1, self.depth + 1):
            layer = self.piece(Layer, f"layer{i}", growth=self.growth)
            x = layer(x, key, train=train)
        if self.last:
            return nn.relu(self.norm(name="bn5")(x, train=train))
        return self.piece(Transition, "transition")(x, key, train=train)


class DenseNet(backbone.Staged):
    """A DenseNet; a stage is a dense block and what follows it.

    depths: layers in each of the four dense blocks; the default is DenseNet-121.
    growth: channels that each layer adds.
    width: channels of the stem.
    """

    depths: tuple[int, int, int, int] = (6, 12, 24, 16)
    growth: int = 32
    width: int = 64

    def setup(self):
        self.stem = Stem(width=self.width, **self._shared())
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            Stage(
                depth=depth,
                growth=self.growth,
                last=i == 4,
                site=f"stage{i}",
                **self._shared(),
            )
            for i, depth in enumerate(self.depths, 1)
        )
        self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=layers.TORCH)

    def _least(self) -> int:
        return 29
