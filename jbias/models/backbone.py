"""Base classes of all networks: a stem, four stages that can be cut apart, and a head.

`Backbone` is the interface, `BatchNormed` adds the options of batch norm, and `Staged` is
for networks whose stem and stages are one module each. A `Submodule` is a stem, a stage or
a block; a function defines its layers by the methods of a `Scope`.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import layers, taps

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Map = taps.Map
Key = taps.Key


class Submodule(nn.Module, kw_only=True):
    """A stem, stage or block of a network, whose layers a function defines.

    forward: (scope, x) -> x, called with a `Scope`.
    tap, dtype: fields of the network; see `Backbone`.
    norm: makes a batch norm; None for a network without batch norms.
    site: prefix of the names of all sites in the submodule.
    """

    forward: Callable[..., Array]
    tap: taps.Tap | None
    dtype: Any
    norm: Callable[..., nn.Module] | None = None
    site: str

    @nn.compact
    def __call__(self, x: Map, key: Key, *, train: bool) -> Array:
        """Return forward(scope, x), with a `Scope` of this module, `key` and `train`."""
        return self.forward(Scope(self, key, train), x)


class Scope(NamedTuple):
    """The module, key and `train` of a call of a `Submodule`, with methods that apply layers."""

    module: Submodule
    key: Key
    train: bool

    def through(self, x: Map, site: str, *, normed: bool = False) -> Array:
        """Return x after the tap at a site of this submodule; see taps.through.

        site: name of the site within the submodule. normed: whether a batch norm follows.
        """
        site = f"{self.module.site}.{site}"
        return taps.through(self.module, x, site, self.key, self.train, normed=normed)

    def conv(
        self,
        x: Map,
        site: str,
        *shape: int,
        name: str = "",
        normed: bool = False,
        **options,
    ) -> Array:
        """Return x after a convolution and, unless `site` is "", the tap at its site.

        site: name of the site; "" for a convolution without a site.
        shape: features, kernel size and, optionally, stride, as in layers.conv.
        name: name of the layer; "": the name of the site.
        normed: whether a batch norm follows; see taps.through.
        options: other arguments of layers.conv.
        """
        dtype = self.module.dtype
        x = layers.conv(*shape, dtype=dtype, name=name or site, **options)(x)
        return self.through(x, site, normed=normed) if site else x

    def norm(self, x: Map, name: str, **options: Any) -> Array:
        """Return x after a batch norm, or x itself if the network has no batch norms.

        name: name of the layer. options: fields of layers.BatchNorm that differ from the
          batch norms of the network.
        """
        norm = self.module.norm
        return norm(name=name, **options)(x, train=self.train) if norm else x

    def convs(self, x: Map, *plan: tuple[int, int, int, int], **options: Any) -> Array:
        """Return x after convolutions, each followed by batch norm, with ReLUs between them.

        plan: (features, kernel size, stride, groups) of each convolution. The layers and
          sites are called conv1, bn1, conv2 and so on.
        options: options of `conv` for all convolutions.
        """
        for i, (width, size, stride, groups) in enumerate(plan, 1):
            x = nn.relu(x) if i > 1 else x
            x = self.conv(x, f"conv{i}", width, size, stride, groups=groups, **options)
            x = self.norm(x, f"bn{i}")
        return x

    def inner(self, forward: Callable, name: str, x: Map, **options: Any) -> Array:
        """Return x after a nested submodule called `name`.

        forward: (scope, x, **options) -> x, which defines the layers. options: its keyword
        arguments. Sites in the submodule are named <site of this submodule>.<name>.<site>.
        """
        submodule = Submodule(
            forward=functools.partial(forward, **options),
            tap=self.module.tap,
            dtype=self.module.dtype,
            norm=self.module.norm,
            site=f"{self.module.site}.{name}",
            name=name,
        )
        return submodule(x, self.key, train=self.train)


def apply_blocks(
    scope: Scope, x: Map, *, block: Callable, options: Iterable[Mapping]
) -> Array:
    """Return x after blocks called block0, block1 and so on, one after the other.

    block: (scope, x, **options) -> x.
    options: the keyword arguments of each block.
    """
    for i, block_options in enumerate(options):
        x = scope.inner(block, f"block{i}", x, **block_options)
    return x


class Backbone(nn.Module):
    """A network of a stem, four stages and a head, which can be cut before any stage.

    net(x) is head_of(features(x)): `features` runs the stem and the stages before
    `stop`, `head_of` the stages from `start` on and the head. Images are in [0, 1], NHWC;
    the first layer subtracts `mean` and divides by `std`. Logits are float32.

    A subclass defines two methods: `_stem(x, key, train)`, the layers before stage 1 with
    their sites, and `_stage(number, x, key, train)`, one stage without the site after it.
    A subclass may override two more methods: `_head(x, key, train)`, which returns logits from the
    output of stage 4, and `stage_of(name)`, which returns the stage of the module of that name:
    0 for the stem, 1 to 4 for the stages, 5 for the head.

    classes: number of outputs.
    tap: called in training as tap(x, site, key) at the network's sites, among them "stem"
      after the stem and "stage1" ... "stage4" after each stage; see taps.py.
    dropout: rate in the head.
    dtype: dtype of the computation; parameters are always float32.
    mean, std: per-channel normalisation constants of images in [0, 1].
    """

    classes: int
    tap: taps.Tap | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __call__(
        self, image: Map, key: Key = None, *, train: bool = False
    ) -> Float[Array, "b k"]:
        """Return the logits of images.

        key: random key of the tap and dropout; None in evaluation.
        train: whether the tap, dropout and batch statistics are active.
        """
        return self.head_of(self.features(image, key, train=train), key, train=train)

    def features(
        self, image: Map, key: Key = None, *, train: bool = False, stop: int = 3
    ) -> Map:
        """Return the feature map of images that enters stage `stop`, 1 to 5; 5 is the head.

        key, train: see `__call__`.
        """
        self._check_cut("stop", stop)
        x = self._stem(self._normalise(image), key, train)
        return self._stages(x, range(1, stop), key, train)

    def head_of(
        self, f: Map, key: Key = None, *, train: bool = False, start: int = 3
    ) -> Float[Array, "b k"]:
        """Return the logits of a feature map f that enters stage `start`, 1 to 5.

        key, train: see `__call__`.
        """
        self._check_cut("start", start)
        x = self._stages(f.astype(self.dtype), range(start, 5), key, train)
        return self._head(x, key, train)

    def _check_side(self, height: int, width: int) -> None:
        """Raise ValueError if the network cannot process images of this size, in pixels."""

    @staticmethod
    def stage_of(name: str) -> int:
        """Return the stage of a module, given its name: 0 is the stem, 5 the head.

        By default modules of a stage have names that begin with "stage" and its number,
        modules of the head names that begin with "fc".
        """
        if name.startswith("stage"):
            return int(name[len("stage")])
        return 5 if name.startswith("fc") else 0

    def _head(self, x: Map, key: Key, train: bool) -> Array:
        """Return logits, given the output x of stage 4; default: `fc` of the spatial mean of x."""
        x = self._drop(jnp.mean(x, (1, 2)), "dropout", key, train)
        return self.fc(x.astype(jnp.float32))

    def _stages(self, x: Map, numbers: Iterable[int], key: Key, train: bool) -> Map:
        """Return x after the given stages, each followed by the tap at its site."""
        for stage in numbers:
            x = self._stage(stage, x, key, train)
            x = taps.through(self, x, f"stage{stage}", key, train)
        return x

    def _drop(self, x: Array, name: str, key: Key, train: bool) -> Array:
        """Return x after dropout in training, else x unchanged.

        name: name of the random stream, which is derived from `key`.
        """
        if not (train and self.dropout):
            return x
        keep = 1 - self.dropout
        mask = jax.random.bernoulli(taps.site_key(key, name), keep, x.shape)
        return jnp.where(mask, x / keep, 0)

    def _normalise(self, image: Map) -> Array:
        """Return (image - mean) / std in the network's dtype.

        ValueError for images that are not floats, or have a wrong number of channels or a wrong
        size.
        """
        channels = len(self.mean)
        if image.shape[-1] != channels or not jnp.issubdtype(image.dtype, jnp.floating):
            raise ValueError(
                f"{self._where()}: images must be floats in [0, 1] with {channels} "
                f"channels last, got {image.dtype} of shape {image.shape}"
            )
        self._check_side(*image.shape[1:3])
        mean, std = (jnp.asarray(v).reshape(1, 1, 1, -1) for v in (self.mean, self.std))
        return ((image - mean) / std).astype(self.dtype)

    def _check_cut(self, name: str, stage: int) -> None:
        """Raise ValueError unless `stage`, the value of the argument `name`, is 1 to 5."""
        if not 1 <= stage <= 5:
            raise ValueError(f"{self._where()}: {name} must be in 1 to 5, got {stage}")

    def _where(self) -> str:
        """Return the prefix of error messages, such as "models.resnet"."""
        return type(self).__module__.removeprefix("jbias.")


class BatchNormed(Backbone):
    """A backbone with batch norms; all batch norms have the same options.

    norm_decay: decay of the running statistics; see layers.BatchNorm.
    norm_eps: added to variances.
    norm_group: consecutive rows of a batch that are normalised together; 0 is all rows.
    """

    norm_decay: float = 0.9
    norm_eps: float = 1e-5
    norm_group: int = 0

    def _norm(self) -> Callable[..., nn.Module]:
        """Return a function that makes a batch norm; arguments: fields of layers.BatchNorm."""
        return functools.partial(
            layers.BatchNorm,
            dtype=self.dtype,
            decay=self.norm_decay,
            eps=self.norm_eps,
            group=self.norm_group,
        )

    def _submodule(self, forward: Callable, site: str) -> Submodule:
        """Return a submodule with the network's tap, batch norms and dtype.

        forward, site: fields of `Submodule`.
        """
        return Submodule(
            forward=forward,
            site=site,
            tap=self.tap,
            norm=self._norm(),
            dtype=self.dtype,
        )


class Staged(BatchNormed):
    """A backbone whose stem and stages are one `Submodule` each.

    A subclass has the method `_stage_functions`, which yields five functions
    (scope, x) -> x, for `stem` and for `stage1` to `stage4`. The setup of a subclass calls this
    setup, then creates the linear layers of the head: `fc`, the last layer, and before it
    `fc1`, `fc2`. Sites, in addition to those of Backbone: after each convolution a site that
    ends in "conv" or "conv1", "conv2" and so on; and "fc1", "fc2" after the activation of these
    layers, where x has shape (b, c).
    """

    def setup(self):
        """Create the layers."""
        self.stem, self.stage1, self.stage2, self.stage3, self.stage4 = (
            self._submodule(forward, f"stage{i}" if i else "stem")
            for i, forward in enumerate(self._stage_functions())
        )

    def _min_side(self) -> int:
        """Return the smallest side of an image, in pixels, at which no map is empty."""
        return 1

    def _check_side(self, height: int, width: int) -> None:
        """Raise ValueError if the network cannot process images of this size, in pixels."""
        if min(height, width) < self._min_side():
            raise ValueError(
                f"{self._where()}: images must have at least {self._min_side()} pixels a "
                f"side, got {height}x{width}; resize them or take another model"
            )

    def _stem(self, x: Map, key: Key, train: bool) -> Map:
        """Return the output of the stem, given normalised images x."""
        x = self.stem(x, key, train=train)
        return taps.through(self, x, "stem", key, train)

    def _stage(self, number: int, x: Map, key: Key, train: bool) -> Map:
        """Return the output of stage `number`, 1 to 4, without the site after it."""
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        return stages[number - 1](x, key, train=train)
