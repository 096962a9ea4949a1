"""Named sites in a network: training may change the features there, evaluation may read them.

A network calls `through` at its sites. In training its field `tap`, a function, replaces
the features there. In evaluation features pass unchanged, and `read` returns them.

A tap is a function (features, site, key) -> features. The result is an array or a `Rescaled`
map, with a scale and a shift per image and channel that are not applied yet. Batch norm
accepts such a map: if the tap does not change the map in a step, batch norm only reads the
map's sums, and only the map is stored for the gradient.
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

from jbias import errors
from jbias.runtime import xla

Map = Float[Array, "b h w c"]
Stats = Float[Array, "b c"]
Key = PRNGKeyArray | None


class Rescaled(NamedTuple):
    """The map scale * x + shift, with the scale and shift not applied yet.

    mean, var: mean and unbiased variance of x over the pixels.
    acts: whether scale and shift change x; if not, mean and var are not valid. None means
      that mean and var are always valid.
    """

    x: Map
    scale: Stats
    shift: Stats
    mean: Stats
    var: Stats
    acts: Bool[Array, ""] | None

    @property
    def value(self) -> Map:
        """The map with scale and shift applied."""
        return rescale(self.x, self.scale, self.shift, self.acts, self.x.dtype)

    def moments(
        self, mean: Float[Array, "c"], var: Float[Array, "c"]
    ) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
        """Return mean and biased variance of each channel of the map.

        mean, var: mean and biased variance of each channel of x, over all images.
        """
        count = self.x.shape[1] * self.x.shape[2]
        image_means = self.scale * self.mean + self.shift
        new_mean = jnp.mean(image_means, 0, keepdims=True)
        within = self.scale**2 * self.var * (count - 1) / count
        new_var = jnp.mean(within + (image_means - new_mean) ** 2, 0)
        if self.acts is None:
            return new_mean[0], new_var
        return (
            jnp.where(self.acts, new_mean[0], mean),
            jnp.where(self.acts, new_var, var),
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def rescale(
    x: Map, scale: Stats, shift: Stats, acts: Bool[Array, ""] | None, dtype: DTypeLike
) -> Map:
    """Return scale * x + shift in `dtype`.

    acts: whether scale and shift may differ between images; if not, all images have the same
      scale and shift per channel. None: they may always differ.
    """
    return _rescale_forward(x, scale, shift, acts, dtype)[0]


def _rescale_forward(x, scale, shift, acts, dtype):
    """Return the output of `rescale` and the residuals for its gradient."""
    y = x.astype(jnp.float32) * scale[:, None, None] + shift[:, None, None]
    return y.astype(dtype), (x, scale, acts)


def _rescale_backward(dtype, residuals, dy):
    """Return the gradients of x, scale (b c) and shift (b c), and None for `acts`.

    Sums for scale and shift are over the pixels of each image if `acts` is True or None; else
    over all images together, divided equally among the images, which is faster. residuals: (x,
    scale, acts). dtype: not used.
    """
    x, scale, acts = residuals

    def sums(x, dy, axes):
        """Return the sums over these axes of dy * x and of dy, in float32."""
        x, dy = x.astype(jnp.float32), dy.astype(jnp.float32)
        return jnp.sum(dy * x, axes), jnp.sum(dy, axes)

    def per_image(x, dy, totals):
        return sums(x, dy, (1, 2))

    def shared(x, dy, totals):
        return tuple(jnp.broadcast_to(s / len(scale), scale.shape) for s in totals)

    if acts is None:
        d_scale, d_shift = sums(x, dy, (1, 2))
    else:
        totals = sums(x, dy, (0, 1, 2))
        d_scale, d_shift = jax.lax.cond(acts, per_image, shared, x, dy, totals)
    dx = dy.astype(jnp.float32) * scale[:, None, None]
    return dx.astype(x.dtype), d_scale, d_shift, None


rescale.defvjp(_rescale_forward, _rescale_backward)

Tap = Callable[[Array, str, PRNGKeyArray], Array]

# Collection of the features at sites; flax does not count it among a network's variables.
_SEEN = "intermediates"
# Collection of zeros that are added at sites in evaluation, to take gradients there.
_ADDED = "added"
_MARK = "given to a tap"
_calls = contextvars.ContextVar("_calls", default=lambda tap, *args: tap(*args))


def site_key(key: Key, name: str) -> PRNGKeyArray:
    """Return the random key of a site or dropout layer, by its name and the network's key.

    ValueError for the key None.
    """
    if key is None:
        raise ValueError(f"models.taps: training {name} needs a key, got None")
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def through(
    module: nn.Module,
    x: Array,
    site: str,
    key: Key,
    train: bool,
    *,
    normed: bool = False,
) -> Array:
    """Return x after the tap of a module at a site, or x itself in evaluation.

    In evaluation x is stored in the collection "intermediates" if this collection is mutable. A
    variable of `site_gradient` at this site is added to x first.

    module: has the field `tap`. key: the network's key. train: whether this is training.
    normed: whether a batch norm follows, which accepts a `Rescaled` map. On a CPU the map
      is rescaled here, because rescaling in batch norm would change the rounding of results
      even if the tap changes nothing.

    With a tap in training: ValueError for the key None, TypeError if the tap returns None.
    """
    if train:
        if module.tap is None:
            return x
        tapped = _calls.get()(module.tap, x, site, site_key(key, site))
        if tapped is None:
            raise TypeError(f"a tap must return an array, got None at {site}")
        norm_rescales = normed and xla.platform() != "cpu"
        if isinstance(tapped, Rescaled) and not norm_rescales:
            return tapped.value
        return tapped
    name = variable_name(site)
    if module.has_variable(_ADDED, name):
        x = x + module.get_variable(_ADDED, name)
    module.sow(_SEEN, name, x, init_fn=lambda: x, reduce_fn=lambda _, new: new)
    return x


def check_acting(run: Callable, refuse: Callable[[Sequence[str]], None]) -> Callable:
    """Return a function like `run` that calls refuse(sites) if taps act at none of the sites.

    A tap acts if it returns anything but its input, or stores something that the results
    depend on. This is determined while `run` is traced; the compiled program does not change.
    `refuse` is not called if `run` reaches no site.
    """

    def checked(*args):
        """Return run(*args); call refuse(sites) if there are sites but no tap acts."""
        acted, results = _record_taps(run, args)
        if acted and not any(acted.values()):
            mark = functools.partial(checkpoint_name, name=_MARK)
            marked = jax.make_jaxpr(lambda: _record_taps(run, args, mark)[1])().jaxpr
            needed, _ = partial_eval.dce_jaxpr(marked, [True] * len(marked.outvars))
            if not _has_mark(needed):
                refuse(tuple(acted))
        return results

    return checked


def find_acting(run: Callable, *args: Any) -> dict[str, bool]:
    """Return a dict with each site that run(*args) reaches: True if a tap acts there.

    `run` is only traced. A tap acts if it returns anything but its input.
    """
    return _record_taps(functools.partial(jax.eval_shape, run), args)[0]


def _record_taps(
    run: Callable, args: tuple, transform: Callable = lambda x: x
) -> tuple[dict[str, bool], Any]:
    """Return ({site: True if a tap acted there}, the results of run(*args)).

    transform: applied to the inputs of taps.
    """
    acted: dict[str, bool] = {}
    outer = _calls.get()

    def call(tap, x, site, key):
        """Return the result of a tap, and record whether it acted."""
        tap_input = transform(x)
        new = outer(tap, tap_input, site, key)
        acted[site] = acted.get(site, False) or new is not tap_input
        return x if new is tap_input else new

    def run_with_call():
        _calls.set(call)
        return run(*args)

    return acted, contextvars.copy_context().run(run_with_call)


def _has_mark(jaxpr: Any) -> bool:
    """Return True if a jaxpr, or one nested in it, has an operation named `_MARK`."""
    nested = (
        inner for eqn in jaxpr.eqns for inner in core.jaxprs_in_params(eqn.params)
    )
    is_marked = any(eqn.params.get("name") == _MARK for eqn in jaxpr.eqns)
    return is_marked or any(map(_has_mark, nested))


def variable_name(site: str) -> str:
    """Return a site's name among a module's variables.

    The returned name differs from the site's name, which may be the name of a submodule.
    """
    return f"at {site}"


class Readable(Protocol):
    """The interface of networks that are not flax modules, to read features at their sites."""

    def sites(self, side: int) -> tuple[str, ...]:
        """Return the names of sites, in the order of computation.

        side: side of the images, in pixels.
        """

    def read(self, image: Map) -> tuple[Float[Array, "b k"], dict[str, Array]]:
        """Return the logits of images, and features by site; differentiable by JAX."""


def read(
    net: nn.Module | Readable, variables: Mapping[str, Any], image: Map
) -> tuple[Float[Array, "b k"], dict[str, Array]]:
    """Return the logits of images and the features by site, in evaluation.

    variables: variables of a flax module; not used for a `Readable` network.
    """
    if not isinstance(net, nn.Module):
        return net.read(image)
    logits, collections = net.apply(variables, image, train=False, mutable=[_SEEN])
    leaves = jax.tree_util.tree_leaves_with_path(collections)
    features = {path[-1].key: x for path, x in leaves}
    return logits, {
        site: features[variable_name(site)] for site in sites(net, image.shape[1])
    }


def site_gradient(
    net: nn.Module, variables: Mapping, image: Map, site: str, score: Callable
) -> tuple[Array, Array]:
    """Return the features at a site in evaluation, and the gradient of the scores there.

    score: logits -> a number per image; the gradient is of the sum of these numbers.
    ValueError if the network has no such site.
    """

    def run(added):
        """Return (sum of the scores, collection of the features at all sites).

        added: collection of arrays that the network adds to the features at their sites; {} adds
        nothing.
        """
        all_variables = {**variables, _ADDED: added}
        logits, collections = net.apply(
            all_variables, image, train=False, mutable=[_SEEN]
        )
        return score(logits).sum(), collections[_SEEN]

    _, shapes_at_sites = jax.eval_shape(run, {})
    leaves = jax.tree_util.tree_leaves_with_path(shapes_at_sites)
    matching = [(path, x) for path, x in leaves if path[-1].key == variable_name(site)]
    if not matching:
        must = f"be one of {', '.join(sites(net, image.shape[1]))}"
        errors.refuse("models.taps", must, site, name="site")
    ((path, shape),) = matching
    added = jnp.zeros(shape.shape, shape.dtype)
    for entry in reversed(path):
        added = {entry.key: added}
    gradient, features = jax.grad(run, has_aux=True)(added)
    for entry in path:
        features, gradient = features[entry.key], gradient[entry.key]
    return features, gradient


class NetworkShapes(NamedTuple):
    """Shapes of a network's variables and of the features at its sites.

    variables: tree of jax.ShapeDtypeStruct. sites: shapes for a batch of two images, in the
      order of computation.
    """

    variables: Mapping[str, Any]
    sites: Mapping[str, tuple[int, ...]]


def shapes(net: nn.Module, side: int = 0) -> NetworkShapes:
    """Return the shapes of a network's variables and of the features at its sites.

    Nothing is computed. side: side of the images, in pixels; 0: a side that the network
      accepts, for callers that do not depend on it.
    """
    # Large enough that no map is empty, and a multiple of the patch.
    side = side or math.lcm(64, vars(net).get("patch", 1))
    # Without the tap, which may refer to arrays that are being traced.
    return _shapes(net.clone(tap=None), side)


@functools.cache
def _shapes(net: nn.Module, side: int) -> NetworkShapes:
    """Return the shapes of a network without a tap; see `shapes`."""
    site_shapes = {}

    def record_shape(x, site, key):
        """Return x, and record its shape as that of the site."""
        site_shapes[site] = x.shape
        return x

    # Two images: batch norm of one value has no variance.
    channels = len(getattr(net, "mean", "rgb"))  # A user's network may have no mean.
    image = jax.ShapeDtypeStruct((2, side, side, channels), jnp.float32)

    def init(key, image):
        return net.clone(tap=record_shape).init(key, image, key, train=True)

    variables = jax.eval_shape(init, jax.random.key(0), image)
    return NetworkShapes(variables, site_shapes)


def sites(net: nn.Module | Readable, side: int = 0) -> tuple[str, ...]:
    """Return the names of a network's sites, in the order of computation.

    side: side of the images, in pixels; see `shapes`.
    """
    if not isinstance(net, nn.Module):
        return net.sites(side)
    return tuple(shapes(net, side).sites)


def map_sites(net: nn.Module) -> tuple[str, ...]:
    """Return the names of the sites whose features are maps, with rows and columns."""
    return tuple(site for site, shape in shapes(net).sites.items() if len(shape) == 4)


def check_sites(where: str, option: str, net: nn.Module, wanted: Sequence[str]) -> None:
    """Raise ValueError unless `wanted` are names of sites with feature maps, at least one.

    where: start of the message. option: name of the user's option.
    """
    known = map_sites(net)
    if not wanted or not set(wanted) <= set(known):
        raise ValueError(
            f"{where}: {option} must be some of {abbreviate(known)}, the sites of "
            f"{type(net).__name__} with feature maps, got {', '.join(wanted) or 'none'}"
        )


def abbreviate(names: Iterable[str]) -> str:
    """Return the names of sites in one text, such as "stem, stage1-4.block0-1.conv1-2".

    Names that differ only in numbers are joined, with the smallest and the largest of each
    number.
    """
    numbers_of: dict[str, list[list[int]]] = {}
    for name in names:
        numbers = [int(number) for number in re.findall(r"\d+", name)]
        numbers_of.setdefault(re.sub(r"\d+", "#", name), []).append(numbers)
    abbreviated = []
    for pattern, numbers in numbers_of.items():
        for column in zip(*numbers, strict=True):
            ends = dict.fromkeys((min(column), max(column)))
            pattern = pattern.replace("#", "-".join(map(str, ends)), 1)
        abbreviated.append(pattern)
    return ", ".join(abbreviated)
