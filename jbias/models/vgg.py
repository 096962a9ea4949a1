"""VGG networks: 3x3 convolutions and max-pools, with batch norm or without.

Source: Simonyan and Zisserman, ICLR 2015, https://arxiv.org/abs/1409.1556. Initialisation,
parameter shapes and pooling to 7x7 are as in torchvision, so that torchvision's published weights
fit.
"""

import functools
from collections.abc import Callable, Iterable, Iterator

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jbias.models import backbone, layers, taps

# See resnet.NAMES. A convolution's number is its position in the published list of layers.
NAMES = (
    (r"(?:stem|stage\d)/(?:conv|bn)(\d+)", r"features.\1"),
    (r"fc1", r"classifier.0"),
    (r"fc2", r"classifier.3"),
    (r"fc", r"classifier.6"),
)


def convolutions(
    scope: backbone.Scope, x: backbone.Map, *, width: int, places: Iterable[int]
) -> backbone.Map:
    """Return x after convolutions of `width` channels, each with a ReLU, and a 2x2 max-pool.

    places: numbers of the convolutions in the published list of layers.
    """
    for i, place in enumerate(places, 1):
        x = scope.conv(x, f"conv{i}", width, 3, bias=True, name=f"conv{place}")
        x = nn.relu(scope.norm(x, f"bn{place + 1}"))
    return layers.max_pool(x, 2)


class VGG(backbone.Staged):
    """A VGG network; its first group of convolutions is the stem.

    depths: convolutions in the stem and in each stage.
    batch_norm: adds a batch norm after each convolution.
    width: channels of the stem; 64 is the published size.
    hidden: output features of the two linear layers before the last. With 0 there are no
      such layers, and the last layer reads the spatial mean of the map, which is 1x1 for
      images of 32 pixels. VGGs for small images have such a head, for example in
      https://github.com/kuangliu/pytorch-cifar.
    """

    dropout: float = 0.5
    depths: tuple[int, int, int, int, int] = (2, 2, 3, 3, 3)
    batch_norm: bool = False
    width: int = 64
    hidden: int = 4096

    def setup(self):
        """Create the layers."""
        super().setup()
        init = nn.initializers.normal(0.01)
        if not self.hidden:
            self.fc = layers.linear(8 * self.width, self.classes)
            return
        self.fc1 = nn.Dense(self.hidden, dtype=self.dtype, kernel_init=init)
        self.fc2 = nn.Dense(self.hidden, dtype=self.dtype, kernel_init=init)
        self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=init)

    def _norm(self) -> Callable[..., nn.Module] | None:
        """Return a function that makes a batch norm, None for a network without batch norms."""
        return super()._norm() if self.batch_norm else None

    def _stage_functions(self) -> Iterator[Callable]:
        """Yield five functions (scope, x) -> x: of the stem and of stages 1 to 4."""
        start, step = 0, 3 if self.batch_norm else 2
        for i, depth in enumerate(self.depths):
            stop = start + step * depth
            yield functools.partial(
                convolutions,
                width=self.width * 2 ** min(i, 3),
                places=range(start, stop, step),
            )
            start = stop + 1  # The max-pool has a number, too.

    def _min_side(self) -> int:
        """Return the smallest side of an image, in pixels, at which no map is empty."""
        return 32

    def _head(self, x: backbone.Map, key: backbone.Key, train: bool) -> Array:
        """Return the logits, given the output x of stage 4."""
        if not self.hidden:
            return super()._head(x, key, train)
        x = layers.flatten(layers.adaptive_mean(x, 7))
        for name, layer in (("fc1", self.fc1), ("fc2", self.fc2)):
            x = taps.through(self, nn.relu(layer(x)), name, key, train)
            x = self._drop(x, f"dropout.{name}", key, train)
        return self.fc(x.astype(jnp.float32))
