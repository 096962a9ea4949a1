"""Named sites in a network, which training may change and evaluation may read.

A network calls `through` at its sites. In training its field `tap` replaces what passes;
in evaluation nothing happens, unless the call asks for what passes, as `read` does.

A tap returns an array or a `Rescaled` map: a scale and a shift per image and channel that
are not applied yet. Batch norm takes such a map as it is; where the tap does not act it
then reads no more than the map's own sums, and only the map is stored for the gradient.
"""

import contextvars
import functools
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core
from jax.interpreters import partial_eval
from jaxtyping import Array, Bool, DTypeLike, Float, PRNGKeyArray

from jbias.runtime import xla

Map = Float[Array, "b h w c"]
Stats = Float[Array, "b c"]
Key = PRNGKeyArray | None


class Rescaled(NamedTuple):
    """scale * x + shift, and the mean and unbiased variance of x over the pixels.

    acts: whether anything changes; where nothing does, mean and variance are unknown.
      None: they are known in any case, and nothing is gated.
    """

    x: Map
    scale: Stats
    shift: Stats
    mean: Stats
    var: Stats
    acts: Bool[Array, ""] | None

    @property
    def value(self) -> Map:
        """The map, applied."""
        return rescale(self.x, self.scale, self.shift, self.acts, self.x.dtype)

    def moments(
        self, mean: Float[Array, "c"], var: Float[Array, "c"]
    ) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
        """Mean and biased variance of each channel, given those of x."""
        count = self.x.shape[1] * self.x.shape[2]
        each = self.scale * self.mean + self.shift
        moved = jnp.mean(each, 0, keepdims=True)
        within = self.scale**2 * self.var * (count - 1) / count
        spread = jnp.mean(within + (each - moved) ** 2, 0)
        if self.acts is None:
            return moved[0], spread
        return jnp.where(self.acts, moved[0], mean), jnp.where(self.acts, spread, var)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def rescale(
    x: Map, scale: Stats, shift: Stats, acts: Bool[Array, ""] | None, dtype: DTypeLike
) -> Map:
    """Return scale * x + shift; where nothing acts, all images of a channel have the same.

    acts: None is for scales and shifts that may differ in any case.
    """
    return _rescale_forward(x, scale, shift, acts, dtype)[0]


def _rescale_forward(x, scale, shift, acts, dtype):
    y = x.astype(jnp.float32) * scale[:, None, None] + shift[:, None, None]
    return y.astype(dtype), (x, scale, acts)


def _rescale_backward(dtype, kept, dy):
    """Sums over the pixels of each image where it may act, else of all images together."""
    x, scale, acts = kept

    def sums(x, dy, axes):
        x, dy = x.astype(jnp.float32), dy.astype(jnp.float32)
        return jnp.sum(dy * x, axes), jnp.sum(dy, axes)

    def apart(x, dy, together):
        return sums(x, dy, (1, 2))

    def shared(x, dy, together):
        return tuple(jnp.broadcast_to(s / len(scale), scale.shape) for s in together)

    if acts is None:
        d_scale, d_shift = sums(x, dy, (1, 2))
    else:
        together = sums(x, dy, (0, 1, 2))
        d_scale, d_shift = jax.lax.cond(acts, apart, shared, x, dy, together)
    dx = dy.astype(jnp.float32) * scale[:, None, None]
    return dx.astype(x.dtype), d_scale, d_shift, None


rescale.defvjp(_rescale_forward, _rescale_backward)

Tap = Callable[[Array, str, PRNGKeyArray], Array]

_SEEN = "intermediates"  # The collection that flax leaves out of a network's variables.
_ADDED = "added"  # What is added at a site in evaluation, so that it has a gradient.
_MARK = "given to a tap"
_calls = contextvars.ContextVar("_calls", default=lambda tap, *args: tap(*args))


def site_key(key: Key, name: str) -> PRNGKeyArray:
    """Derives the key of a named place in the network from the key of the call."""
    if key is None:
        raise ValueError(f"models.taps: training {name} needs a key, got None")
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def through(
    module, x: Array, site: str, key: Key, train: bool, *, normed: bool = False
) -> Array:
    """Lets x pass a site of a module with the field `tap`; `key` is the network's own.

    `normed`: batch norm is next, which takes a map that is not rescaled yet. On CPU it
    would change the bits of a tap that never acts.
    """
    if train:
        if module.tap is None:
            return x
        passed = _calls.get()(module.tap, x, site, site_key(key, site))
        if passed is None:
            raise TypeError(f"a tap must return an array, got None at {site}")
        waits = normed and xla.platform() != "cpu"
        return passed if waits or not isinstance(passed, Rescaled) else passed.value
    name = variable_name(site)
    if module.has_variable(_ADDED, name):
        x = x + module.get_variable(_ADDED, name)
    module.sow(_SEEN, name, x, init_fn=lambda: x, reduce_fn=lambda _, new: new)
    return x


def check_acting(run: Callable, refuse: Callable[[Sequence[str]], None]) -> Callable:
    """What `run` does; calls refuse(sites) where its networks' taps act at no site.

    A tap acts if it returns something else than it was given, or keeps something that the
    results depend on. That is seen while `run` is traced, and its program stays the same.
    """

    def watched(*args):
        acted, results = _watch(run, args)
        if acted and not any(acted.values()):
            mark = functools.partial(checkpoint_name, name=_MARK)
            again = jax.make_jaxpr(lambda: _watch(run, args, mark)[1])().jaxpr
            needed, _ = partial_eval.dce_jaxpr(again, [True] * len(again.outvars))
            if not _marked(needed):
                refuse(tuple(acted))
        return results

    return watched


def acting(run: Callable, *args: Any) -> dict[str, bool]:
    """Traces `run`: by site that its networks' taps are called at, whether one acts.

    That is whether it returns something else than it is given.
    """
    return _watch(functools.partial(jax.eval_shape, run), args)[0]


def _watch(
    run: Callable, args: tuple, give: Callable = lambda x: x
) -> tuple[dict[str, bool], Any]:
    """What `run` does, where taps are given give(x); by site, whether one acted."""
    acted: dict[str, bool] = {}
    outer = _calls.get()

    def call(tap, x, site, key):
        given = give(x)
        new = outer(tap, given, site, key)
        acted[site] = acted.get(site, False) or new is not given
        return x if new is given else new

    def traced():
        _calls.set(call)
        return run(*args)

    return acted, contextvars.copy_context().run(traced)


def _marked(jaxpr: Any) -> bool:
    """Whether it needs what a tap was given, or a jaxpr within it does."""
    inner = (one for eqn in jaxpr.eqns for one in core.jaxprs_in_params(eqn.params))
    given = any(eqn.params.get("name") == _MARK for eqn in jaxpr.eqns)
    return given or any(map(_marked, inner))


def variable_name(site: str) -> str:
    """A site's name among a module's variables; a part of it may be called as the site."""
    return f"at {site}"


class Readable(Protocol):
    """A network that is no module of flax, and can be read at its sites all the same."""

    def sites(self, side: int) -> tuple[str, ...]:
        """Names of its sites, of images of that side, in the order of passage."""

    def read(self, image: Map) -> tuple[Float[Array, "b k"], dict[str, Array]]:
        """Logits, and by site what passes; a function that JAX differentiates."""


def read(
    net: nn.Module | Readable, variables: Mapping[str, Any], image: Map
) -> tuple[Float[Array, "b k"], dict[str, Array]]:
    """Returns logits, and by site what passes there in evaluation."""
    if not isinstance(net, nn.Module):
        return net.read(image)
    logits, seen = net.apply(variables, image, train=False, mutable=[_SEEN])
    leaves = jax.tree_util.tree_leaves_with_path(seen)
    named, there = {path[-1].key: x for path, x in leaves}, sites(net, image.shape[1])
    return logits, {site: named[variable_name(site)] for site in there}


def site_gradient(
    net: nn.Module, variables: Mapping, image: Map, site: str, score: Callable
) -> tuple[Array, Array]:
    """Returns what passes a site in evaluation, and the gradient there of score(logits).

    ValueError for a site that the network has not.
    """

    def run(added):
        held = {**variables, _ADDED: added}
        logits, seen = net.apply(held, image, train=False, mutable=[_SEEN])
        return score(logits).sum(), seen

    _, seen = jax.eval_shape(run, {})
    found = jax.tree_util.tree_leaves_with_path(seen[_SEEN])
    way = [(path, x) for path, x in found if path[-1].key == variable_name(site)]
    if not way:
        known = ", ".join(sites(net, image.shape[1]))
        raise ValueError(f"models.taps: site must be of {known}, got {site!r}")
    ((path, shape),) = way
    added = jnp.zeros(shape.shape, shape.dtype)
    for entry in reversed(path):
        added = {entry.key: added}
    gradient, seen = jax.grad(run, has_aux=True)(added)
    seen = seen[_SEEN]
    for entry in path:
        seen, gradient = seen[entry.key], gradient[entry.key]
    return seen, gradient


class Shapes(NamedTuple):
    """Shapes of what a network is made of, and of what passes its sites."""

    variables: Mapping[str, Any]
    sites: Mapping[str, tuple[int, ...]]  # Of two images, in the order of passage.


def shapes(net: nn.Module, side: int = 0) -> Shapes:
    """Draws a network, in shapes alone.

    side: of the images, in pixels; 0 is one that the network takes, where it does not
      matter which.
    """
    # Any that leaves no map empty, and a whole number of patches.
    side = side or math.lcm(64, vars(net).get("patch", 1))
    return _shapes(net.clone(tap=None), side)  # A tap may hold what is being traced.


@functools.cache
def _shapes(net: nn.Module, side: int) -> Shapes:
    found = {}

    def note(x, site, key):
        found[site] = x.shape
        return x

    # Two images: batch norm of one value has no variance.
    channels = len(getattr(net, "mean", "rgb"))  # A net of one's own may have no mean.
    image = jax.ShapeDtypeStruct((2, side, side, channels), jnp.float32)

    def init(key, image):
        return net.clone(tap=note).init(key, image, key, train=True)

    return Shapes(jax.eval_shape(init, jax.random.key(0), image), found)


def sites(net: nn.Module | Readable, side: int = 0) -> tuple[str, ...]:
    """The names of a network's sites, in the order in which it passes them."""
    if not isinstance(net, nn.Module):
        return net.sites(side)
    return tuple(shapes(net, side).sites)


def map_sites(net: nn.Module) -> tuple[str, ...]:
    """Those sites at which feature maps pass, with rows and columns."""
    return tuple(site for site, shape in shapes(net).sites.items() if len(shape) == 4)


def check_sites(where: str, option: str, net: nn.Module, wanted: Sequence[str]) -> None:
    """Refuses sites where no feature map of this network passes, or none at all."""
    there = map_sites(net)
    if not wanted or not set(wanted) <= set(there):
        raise ValueError(
            f"{where}: {option} must be some of {abbreviate(there)}, where feature maps of "
            f"{type(net).__name__} pass, got {', '.join(wanted) or 'none'}"
        )


def abbreviate(names: Iterable[str]) -> str:
    """Lists sites with ranges of numbers: stem, stage1-4.block0-1.conv1-2, stage1-4."""
    kinds: dict[str, list[list[int]]] = {}
    for name in names:
        numbers = [int(number) for number in re.findall(r"\d+", name)]
        kinds.setdefault(re.sub(r"\d+", "#", name), []).append(numbers)
    told = []
    for kind, numbers in kinds.items():
        for each in zip(*numbers, strict=True):
            ends = dict.fromkeys((min(each), max(each)))
            kind = kind.replace("#", "-".join(map(str, ends)), 1)
        told.append(kind)
    return ", ".join(told)
