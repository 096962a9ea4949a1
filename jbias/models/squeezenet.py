"""SqueezeNet 1.0 and 1.1: 1x1 convolutions reduce the channels before 3x3 convolutions.

Source: Iandola, Han, Moskewicz, Ashraf, Dally and Keutzer, 2016,
https://arxiv.org/abs/1602.07360. Initialisation, parameter shapes and pooling are as in
torchvision, so that torchvision's published weights fit.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers

# See resnet.NAMES. A module's number is its position in the published list of layers.
NAMES = (
    (r"(?:stem|stage\d)/conv(\d+)", r"features.\1"),
    (r"stage\d/fire(\d+)/squeeze", r"features.\1.squeeze"),
    (r"stage\d/fire(\d+)/expand(\d)x\d", r"features.\1.expand\2x\2"),
    (r"fc", r"classifier.1"),
)
# Options of version 1.1; the defaults of SqueezeNet are version 1.0.
VERSION_1_1 = dict(
    stem_width=64,
    stem_size=3,
    pooled=(4, 7),
    places=(3, 4, 6, 7, 9, 10, 11, 12),
)
_INIT = nn.initializers.he_uniform()


def stem(
    scope: backbone.Scope, x: backbone.Map, *, width: int, size: int
) -> backbone.Map:
    """Return the map after a convolution of stride 2 without padding, ReLU and max-pool.

    width: output channels. size: side of the kernel in pixels.
    """
    x = scope.conv(
        x, "conv", width, size, 2, pad=0, name="conv0", bias=True, init=_INIT
    )
    return layers.max_pool(nn.relu(x), ceil=True)


def fires(
    scope: backbone.Scope,
    x: backbone.Map,
    *,
    width: int,
    places: Sequence[int],
    pooled: Collection[int],
) -> backbone.Map:
    """Return the map after one fire module for each of `places`.

    width: squeezed channels. places: numbers of the fire modules in the published list of
      layers. pooled: the numbers that are followed by a max-pool.
    """
    for place in places:
        x = scope.inner(fire, f"fire{place}", x, width=width)
        x = layers.max_pool(x, ceil=True) if place in pooled else x
    return x


def fire(scope: backbone.Scope, x: backbone.Map, *, width: int) -> backbone.Map:
    """Return the map, of 8 * width channels, after a fire module.

    A 1x1 convolution reduces the map to `width` channels. A 1x1 and a 3x3 convolution of the
    result have 4 * width channels each, and their outputs are concatenated. A ReLU follows each
    convolution.
    """

    def conv(x: Array, site: str, *, width: int, size: int, name: str) -> Array:
        """Return x after a convolution to `width` channels and a ReLU; see `Scope.conv`."""
        return nn.relu(
            scope.conv(x, site, width, size, name=name, bias=True, init=_INIT)
        )

    x = conv(x, "conv1", width=width, size=1, name="squeeze")
    expanded_1x1 = conv(x, "conv2", width=4 * width, size=1, name="expand1x1")
    expanded_3x3 = conv(x, "conv3", width=4 * width, size=3, name="expand3x3")
    return jnp.concatenate((expanded_1x1, expanded_3x3), -1)


class SqueezeNet(backbone.Staged):
    """A SqueezeNet; each stage consists of two fire modules of one width.

    stem_width, stem_size: channels and kernel size of the first convolution.
    places: numbers of the eight fire modules in the published list of layers.
    pooled: the members of `places` that are followed by a max-pool.
    squeezed: squeezed channels in stage 1; stage i has i times as many.
    """

    dropout: float = 0.5
    stem_width: int = 96
    stem_size: int = 7
    places: tuple[int, ...] = (3, 4, 5, 7, 8, 9, 10, 12)
    pooled: tuple[int, ...] = (5, 10)
    squeezed: int = 16

    def setup(self):
        """Create the layers."""
        super().setup()
        init = nn.initializers.normal(0.01)
        self.fc = layers.conv(self.classes, 1, bias=True, dtype=jnp.float32, init=init)

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        yield functools.partial(stem, width=self.stem_width, size=self.stem_size)
        for i in range(4):
            yield functools.partial(
                fires,
                width=(i + 1) * self.squeezed,
                places=self.places[2 * i : 2 * i + 2],
                pooled=self.pooled,
            )

    def _min_side(self) -> int:
        """Return the smallest side of an image, in pixels, at which no map is empty."""
        return 14 + self.stem_size

    def _head(self, x: backbone.Map, key: backbone.Key, train: bool) -> Array:
        """Return the logits, given the output x of stage 4."""
        x = self._drop(x, "dropout", key, train)
        # As published, a ReLU precedes the mean, so that no logit is negative.
        return jnp.mean(nn.relu(self.fc(x.astype(jnp.float32))), (1, 2))
