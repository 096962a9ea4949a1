"""DenseNet-121: each layer reads the outputs of all earlier layers of its block.

Source: Huang, Liu, van der Maaten and Weinberger, CVPR 2017,
https://arxiv.org/abs/1608.06993. Initialisation and parameter shapes are as in torchvision, so that
torchvision's published weights fit.
"""

import functools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
from flax import linen as nn

from jbias.models import backbone, layers, pooling

# See resnet.NAMES.
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


def stem(scope: backbone.Scope, x: backbone.Map, *, width: int) -> backbone.Map:
    """Return the map after a 7x7 convolution of stride 2, batch norm, ReLU and max-pool."""
    x = scope.conv(x, "conv", width, 7, 2, init=_INIT, name="conv0")
    return pooling.max_pool_of_stem(nn.relu(scope.norm(x, "bn0")))


def layer(scope: backbone.Scope, x: backbone.Map, *, growth: int) -> backbone.Map:
    """Return x with `growth` more channels, computed by a 1x1 and then a 3x3 convolution.

    Batch norm and ReLU precede each convolution.
    """
    y = x
    for i, (width, size) in enumerate(((4 * growth, 1), (growth, 3)), 1):
        y = nn.relu(scope.norm(y, f"bn{i}"))
        y = scope.conv(y, f"conv{i}", width, size, init=_INIT)
    return jnp.concatenate((x, y), -1)


def transition(scope: backbone.Scope, x: backbone.Map) -> backbone.Map:
    """Return the map with half the channels and half the sides.

    The layers are batch norm, ReLU, a 1x1 convolution and average pooling.
    """
    x = nn.relu(scope.norm(x, "bn"))
    x = scope.conv(x, "conv", x.shape[-1] // 2, 1, init=_INIT)
    return nn.avg_pool(x, (2, 2), (2, 2))


def stage(
    scope: backbone.Scope, x: backbone.Map, *, depth: int, growth: int, last: bool
) -> backbone.Map:
    """Return the map after a dense block of `depth` layers and a transition.

    growth: channels that each layer appends.
    last: whether this is the last stage, which has batch norm and ReLU instead of the
      transition.
    """
    for i in range(1, depth + 1):
        x = scope.inner(layer, f"layer{i}", x, growth=growth)
    if last:
        return nn.relu(scope.norm(x, "bn5"))
    return scope.inner(transition, "transition", x)


class DenseNet(backbone.Staged):
    """A DenseNet; a stage is a dense block and the transition or norm after it.

    depths: layers in each of the four dense blocks; the default is DenseNet-121.
    growth: channels that each layer appends.
    width: channels of the stem.
    """

    depths: tuple[int, int, int, int] = (6, 12, 24, 16)
    growth: int = 32
    width: int = 64

    def setup(self):
        """Create the layers."""
        super().setup()
        self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=layers.TORCH)

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        yield functools.partial(stem, width=self.width)
        for i, depth in enumerate(self.depths, 1):
            yield functools.partial(stage, depth=depth, growth=self.growth, last=i == 4)

    def _min_side(self) -> int:
        """Return the smallest side of an image, in pixels, at which no map is empty."""
        return 29
