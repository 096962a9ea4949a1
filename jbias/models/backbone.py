"""What all networks share: images in, four stages that can be cut apart, logits out.

`Backbone` is the interface, `BatchNormed` adds the options of batch norm, and `Staged` is
for networks whose stem and stages are one module each. `Part` is such a module, or a piece
of one: a function that makes its layers by a `Call`.
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


class Part(nn.Module, kw_only=True):
    """A piece of a network, which `run` tells: (call, x) -> x, called with a `Call`.

    tap, dtype: the network's. norm: makes its batch norms; None where it has none. site:
    begins the names of the piece's own sites.
    """

    run: Callable[..., Array]
    tap: taps.Tap | None
    dtype: Any
    norm: Callable[..., nn.Module] | None = None
    site: str

    @nn.compact
    def __call__(self, x: Map, key: Key, *, train: bool) -> Array:
        return self.run(Call(self, key, train), x)


class Call(NamedTuple):
    """One call of a piece: makes the layers that its function asks for, by their names."""

    piece: Part
    key: Key
    train: bool

    def through(self, x: Map, site: str, **options: Any) -> Array:
        """Lets x pass a site of the piece; options are those of taps.through."""
        site = f"{self.piece.site}.{site}"
        return taps.through(self.piece, x, site, self.key, self.train, **options)

    def conv(
        self, x: Map, site: str, *shape: int, name: str = "", normed=False, **options
    ) -> Array:
        """A convolution, as layers.conv makes it, and the site after it; "" is none."""
        dtype = self.piece.dtype
        x = layers.conv(*shape, dtype=dtype, name=name or site, **options)(x)
        return self.through(x, site, normed=normed) if site else x

    def norm(self, x: Map, name: str, **options: Any) -> Array:
        """Batch norm, if the network has any."""
        norm = self.piece.norm
        return norm(name=name, **options)(x, train=self.train) if norm else x

    def convs(self, x: Map, *plan: tuple[int, int, int, int], **options: Any) -> Array:
        """Convolutions with batch norms, and ReLUs between: width, size, stride, groups."""
        for i, (*shape, groups) in enumerate(plan, 1):
            x = nn.relu(x) if i > 1 else x
            x = self.conv(x, f"conv{i}", *shape, groups=groups, **options)
            x = self.norm(x, f"bn{i}")
        return x

    def inner(self, run: Callable, name: str, x: Map, **options: Any) -> Array:
        """A piece of this piece, whose sites are called by its name."""
        tap, dtype, norm = self.piece.tap, self.piece.dtype, self.piece.norm
        run, site = functools.partial(run, **options), f"{self.piece.site}.{name}"
        part = Part(run=run, tap=tap, dtype=dtype, norm=norm, site=site, name=name)
        return part(x, self.key, train=self.train)


def blocks(call: Call, x: Map, *, run: Callable, options: Iterable[Mapping]) -> Array:
    """Pieces one after the other, each with options of its own."""
    for i, own in enumerate(options):
        x = call.inner(run, f"block{i}", x, **own)
    return x


class Backbone(nn.Module):
    """A network of a stem, four stages and a head, which can be cut before any stage.

    net(x) is head_of(features(x)): `features` runs the stem and the stages before
    `stop`, `head_of` the stages from `start` on and the head. Images are in [0, 1], NHWC;
    the first layer subtracts `mean` and divides by `std`. Logits are float32.

    A subclass has two methods: `_stem(x, key, train)` is what comes before stage 1, with
    its sites; `_stage(number, x, key, train)` a stage, but for the site after it. Where
    the defaults below do not fit it has two more: `_head(x, key, train)` makes logits of
    what leaves stage 4; and `stage_of(name)` says where the module of a name is: 0 the
    stem, 1 to 4 the stages, 5 the head.

    classes: number of outputs.
    tap: called in training as tap(x, site, key) at the network's sites, "stem" and
      "stage1" ... "stage4" after these among them; see taps.py.
    dropout: rate in the head.
    dtype: what layers compute in; parameters are float32 always.
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
        """Returns logits. `key` is for taps and dropout; evaluation needs none."""
        return self.head_of(self.features(image, key, train=train), key, train=train)

    def features(
        self, image: Map, key: Key = None, *, train: bool = False, stop: int = 3
    ) -> Map:
        """Returns the output of the stem and of the stages before `stop`, of 1 to 5."""
        self._check_cut("stop", stop)
        x = self._stem(self._normalise(image), key, train)
        return self._stages(x, range(1, stop), key, train)

    def head_of(
        self, f: Map, key: Key = None, *, train: bool = False, start: int = 3
    ) -> Float[Array, "b k"]:
        """Returns logits of a feature map that enters stage `start`, of 1 to 5."""
        self._check_cut("start", start)
        x = self._stages(f.astype(self.dtype), range(start, 5), key, train)
        return self._head(x, key, train)

    def _check_side(self, height: int, width: int) -> None:
        """Raises ValueError for images that the network cannot take."""

    @staticmethod
    def stage_of(name: str) -> int:
        """Says to which stage a module belongs, given its name: 0 stem, 5 head.

        By default the stages' begin with "stage" and a number, the head's with "fc".
        """
        if name.startswith("stage"):
            return int(name[len("stage")])
        return 5 if name.startswith("fc") else 0

    def _head(self, x: Array, key, train: bool) -> Array:
        """By default `fc` of the means over the map."""
        x = self._drop(jnp.mean(x, (1, 2)), "dropout", key, train)
        return self.fc(x.astype(jnp.float32))

    def _stages(self, x: Array, which: range, key, train: bool) -> Array:
        for stage in which:
            x = self._stage(stage, x, key, train)
            x = taps.through(self, x, f"stage{stage}", key, train)
        return x

    def _drop(self, x: Array, name: str, key, train: bool) -> Array:
        """Zeroes a share `dropout` of x in training and scales the rest up."""
        if not (train and self.dropout):
            return x
        keep = 1 - self.dropout
        mask = jax.random.bernoulli(taps.site_key(key, name), keep, x.shape)
        return jnp.where(mask, x / keep, 0)

    def _normalise(self, image: Map) -> Array:
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
        if not 1 <= stage <= 5:
            raise ValueError(f"{self._where()}: {name} must be in 1 to 5, got {stage}")

    def _where(self) -> str:
        """The start of a message: "models.resnet"."""
        return type(self).__module__.removeprefix("jbias.")


class BatchNormed(Backbone):
    """A backbone with batch norms, whose options are the network's.

    norm_decay: of running statistics, as layers.BatchNorm has it.
    norm_group: how many consecutive rows of a batch batch norm takes together; 0 is all.
    """

    norm_decay: float = 0.9
    norm_eps: float = 1e-5
    norm_group: int = 0

    def _norm(self) -> Callable[..., nn.Module]:
        own = dict(decay=self.norm_decay, eps=self.norm_eps, group=self.norm_group)
        return functools.partial(layers.BatchNorm, dtype=self.dtype, **own)

    def _part(self, run: Callable, site: str) -> Part:
        norm = self._norm()
        return Part(run=run, site=site, tap=self.tap, norm=norm, dtype=self.dtype)


class Staged(BatchNormed):
    """A backbone made of parts.

    A subclass has the method `_runs`, which yields the functions of its parts `stem` and
    `stage1` to `stage4`, and makes the modules of the head in its setup, after this one's.
    These are named fc, the last of them, fc1 and so on. Sites are, besides those of
    Backbone, after each convolution one that ends in "conv" or "conv1", "conv2" and so on,
    and "fc1" ... after linear layers before the last and their activation, where x is of
    shape (b, c).
    """

    def setup(self):
        self.stem, self.stage1, self.stage2, self.stage3, self.stage4 = (
            self._part(run, f"stage{i}" if i else "stem")
            for i, run in enumerate(self._runs())
        )

    def _least(self) -> int:
        """Pixels that an image must have on each side, for no layer to be empty."""
        return 1

    def _check_side(self, height: int, width: int) -> None:
        if min(height, width) < self._least():
            raise ValueError(
                f"{self._where()}: images must have at least {self._least()} pixels a "
                f"side, got {height}x{width}; resize them or take another model"
            )

    def _stem(self, x: Array, key, train: bool) -> Array:
        x = self.stem(x, key, train=train)
        return taps.through(self, x, "stem", key, train)

    def _stage(self, number: int, x: Array, key, train: bool) -> Array:
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        return stages[number - 1](x, key, train=train)
