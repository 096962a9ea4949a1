"""Named places in a network: what training may change there, and evaluation may read.

A network calls `through` at its sites. In training its field `tap` replaces what passes;
in evaluation nothing happens, unless the call asks for what passes, as `read` does.
"""

import contextvars
import functools
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core
from jax.interpreters import partial_eval
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import rescaled
from jbias.runtime import xla

Tap = Callable[[Array, str, PRNGKeyArray], Array]

_SEEN = "intermediates"  # The collection that flax leaves out of a network's variables.
_ADDED = "added"  # What is added at a site in evaluation, so that it has a gradient.
_MARK = "given to a tap"
_calls = contextvars.ContextVar("_calls", default=lambda tap, *args: tap(*args))


def stream(key: PRNGKeyArray | None, name: str) -> PRNGKeyArray:
    """Derives the key of a named place in the network from the key of the call."""
    if key is None:
        raise ValueError(f"models.taps: training {name} needs a key, got None")
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def through(
    module: nn.Module,
    x: Array,
    site: str,
    key: PRNGKeyArray | None,
    train: bool,
    *,
    normed: bool = False,
) -> Array:
    """Lets x pass a site of a module with the field `tap`; `key` is the network's own.

    `normed`: batch norm is next, which takes a map that is not rescaled yet. On CPU it
    would change the bits of a tap that never acts.
    """
    if train:
        if module.tap is None:
            return x
        passed = _calls.get()(module.tap, x, site, stream(key, site))
        if passed is None:
            raise TypeError(f"a tap must return an array, got None at {site}")
        waits = normed and xla.platform() != "cpu"
        if isinstance(passed, rescaled.Rescaled) and not waits:
            return passed.value
        return passed
    name = kept_as(site)
    if module.has_variable(_ADDED, name):
        x = x + module.get_variable(_ADDED, name)
    module.sow(_SEEN, name, x, init_fn=lambda: x, reduce_fn=lambda _, new: new)
    return x


def acting(run: Callable, refuse: Callable[[Sequence[str]], None]) -> Callable:
    """What `run` does; calls refuse(sites) where its networks' taps act at no site.

    A tap acts if it returns something else than it was given, or keeps something that the
    results depend on. That is seen while `run` is traced, and its program stays the same.
    """

    def watched(*args):
        acted: dict[str, bool] = {}

        def traced(give):
            def call(tap, x, site, key):
                given = give(x)
                new = tap(given, site, key)
                acted[site] = acted.get(site, False) or new is not given
                return x if new is given else new

            _calls.set(call)
            return run(*args)

        results = contextvars.copy_context().run(traced, lambda x: x)
        if acted and not any(acted.values()):
            marked = functools.partial(traced, lambda x: checkpoint_name(x, _MARK))
            again = contextvars.copy_context().run(jax.make_jaxpr(marked)).jaxpr
            needed, _ = partial_eval.dce_jaxpr(again, [True] * len(again.outvars))
            if not _marked(needed):
                refuse(tuple(acted))
        return results

    return watched


def _marked(jaxpr: Any) -> bool:
    """Whether it needs what a tap was given, or a jaxpr within it does."""
    inner = (one for eqn in jaxpr.eqns for one in core.jaxprs_in_params(eqn.params))
    given = any(eqn.params.get("name") == _MARK for eqn in jaxpr.eqns)
    return given or any(map(_marked, inner))


def kept_as(site: str) -> str:
    """A site's name among a module's variables; a part of it may be called as the site."""
    return f"at {site}"


def read(
    net: nn.Module, variables: Mapping[str, Any], image: Float[Array, "b h w c"]
) -> tuple[Float[Array, "b k"], dict[str, Array]]:
    """Returns logits, and by site what passes there in evaluation."""
    logits, seen = net.apply(variables, image, train=False, mutable=[_SEEN])
    leaves = jax.tree_util.tree_leaves_with_path(seen)
    named = {path[-1].key: leaf for path, leaf in leaves}
    return logits, {site: named[kept_as(site)] for site in sites(net, image.shape[1])}


def pull(
    net: nn.Module,
    variables: Mapping[str, Any],
    image: Float[Array, "b h w c"],
    site: str,
    score: Callable[[Float[Array, "b k"]], Float[Array, "b"]],
) -> tuple[Array, Array]:
    """Returns what passes a site in evaluation, and the gradient there of score(logits).

    ValueError for a site that the network has not.
    """

    def run(added):
        logits, seen = net.apply(
            {**variables, _ADDED: added}, image, train=False, mutable=[_SEEN]
        )
        return score(logits).sum(), seen

    _, seen = jax.eval_shape(run, {})
    found = jax.tree_util.tree_leaves_with_path(seen[_SEEN])
    way = [(path, x) for path, x in found if path[-1].key == kept_as(site)]
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


class Drawn(NamedTuple):
    """Shapes of what a network is made of, and of what passes its sites."""

    variables: Mapping[str, Any]
    sites: Mapping[str, tuple[int, ...]]  # Of two images, in the order of passage.


def drawn(net: nn.Module, side: int = 0) -> Drawn:
    """Draws a network, in shapes alone.

    side: of the images, in pixels; 0 is one that the network takes, where it does not
      matter which.
    """
    # Any that leaves no map empty, and a whole number of patches.
    side = side or math.lcm(64, vars(net).get("patch", 1))
    return _drawn(net.clone(tap=None), side)  # A tap may hold what is being traced.


@functools.cache
def _drawn(net: nn.Module, side: int) -> Drawn:
    found = {}

    def note(x, site, key):
        del key
        found[site] = x.shape
        return x

    # Two images: batch norm of one value has no variance.
    channels = len(getattr(net, "mean", "rgb"))  # A net of one's own may have no mean.
    image = jax.ShapeDtypeStruct((2, side, side, channels), jnp.float32)

    def init(key, image):
        return net.clone(tap=note).init(key, image, key, train=True)

    variables = jax.eval_shape(init, jax.random.key(0), image)
    return Drawn(variables, found)


def sites(net: nn.Module, side: int = 0) -> tuple[str, ...]:
    """The names of a network's sites, in the order in which it passes them."""
    return tuple(drawn(net, side).sites)


def maps(net: nn.Module) -> tuple[str, ...]:
    """Those sites at which feature maps pass, with rows and columns."""
    return tuple(site for site, shape in drawn(net).sites.items() if len(shape) == 4)


def check(where: str, option: str, net: nn.Module, wanted: Sequence[str]) -> None:
    """Refuses sites where no feature map of this network passes, or none at all."""
    there = maps(net)
    if not wanted or not set(wanted) <= set(there):
        raise ValueError(
            f"{where}: {option} must be some of {brief(there)}, where feature maps of "
            f"{type(net).__name__} pass, got {', '.join(wanted) or 'none'}"
        )


def brief(names: Iterable[str]) -> str:
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
