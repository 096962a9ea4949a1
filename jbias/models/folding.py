"""Folds batch norms into the convolutions before them, for evaluation.

With running statistics a batch norm is an affine map of each channel, and so is what it
makes of a convolution: with slope = scale / sqrt(var + eps),

    BN(conv(x, kernel) + b) = conv(x, kernel * slope) + (b - mean) * slope + bias

A GPU then computes convolution, bias, shortcut and ReLU in one call of cuDNN, and the map
between convolution and batch norm is never written. The factors are multiplied in float32,
inside the program that uses them: variables stay as they are, and the fold adds no pass over
memory where kernels are converted to bfloat16 anyway. Results are equal up to rounding.

Which batch norms can be folded is read from the function's own jaxpr: those that take the
output of a convolution as it is, where nothing else reads that output or its kernel.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, PyTree

from jbias.models import layers

# (variables, images) -> logits, in evaluation.
Apply = Callable[[PyTree, Array], Array]


class _Convolution(NamedTuple):
    """The places of a convolution's parameters among the leaves of the variables."""

    kernel: int
    bias: int | None  # None: it has none.


class _Norm(NamedTuple):
    """The places of a batch norm's variables among the leaves, and its epsilon."""

    scale: int
    bias: int
    mean: int
    var: int
    eps: float


def fold_norms(apply: Apply) -> Apply:
    """Return the function with batch norms folded into the convolutions before them.

    apply: (variables, images) -> logits; may call several flax modules, or methods of one.
      Variables of nn.Conv and layers.BatchNorm must reach them as they are in `variables`;
      what does not is left as it is, and so are maps that anything else reads.
    """

    def folded(variables: PyTree, image: Array) -> Array:
        original, tree = jax.tree.flatten(variables)
        leaves = [*original]
        # What a folded batch norm adds, by the identity of the array in its scale's place.
        levels: dict[int, Array | None] = {}
        for conv, norm in _foldable(apply, variables, image):
            slope = original[norm.scale] * jax.lax.rsqrt(original[norm.var] + norm.eps)
            level = original[norm.bias] - original[norm.mean] * slope
            leaves[conv.kernel] = original[conv.kernel] * _widen(
                slope, original[conv.kernel]
            )
            if conv.bias is None:
                leaves[norm.scale] = levels[id(level)] = level
            else:
                leaves[conv.bias] = original[conv.bias] * slope + level
                leaves[norm.scale], levels[id(slope)] = slope, None

        def skip(call, args, kwargs, context):
            module = context.module
            if not _is_call(context, layers.BatchNorm):
                return call(*args, **kwargs)
            scale = module.variables["params"]["scale"]
            if id(scale) not in levels:
                return call(*args, **kwargs)
            x = args[0].astype(module.dtype)
            level = levels[id(scale)]
            return x if level is None else x + _widen(level.astype(module.dtype), x)

        with nn.intercept_methods(skip):
            return apply(jax.tree.unflatten(tree, leaves), image)

    return folded


def _widen(channels: Float[Array, "c"], x: Array) -> Array:
    """Return a vector of channels with the rank of x, whose last axis it has."""
    return channels.reshape((1,) * (x.ndim - 1) + (-1,))


def count_foldable(apply: Apply, variables: PyTree, image: Any) -> int:
    """Return the number of batch norms that `fold_norms` folds; arguments may be shapes."""
    return len(_foldable(apply, variables, image))


def _foldable(
    apply: Apply, variables: PyTree, image: Any
) -> list[tuple[_Convolution, _Norm]]:
    """Return the pairs of a convolution and a batch norm that can be one convolution."""
    calls: list[_Convolution | _Norm] = []

    def watched(variables: PyTree, image: Array) -> Array:
        place = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(variables))}

        def mark(call, args, kwargs, context):
            name, module = f"{_MARK}{len(calls)}", context.module
            if _is_call(context, nn.Conv):
                out = call(*args, **kwargs)
                if known := _convolution(module, place):
                    calls.append(known)
                    return checkpoint_name(out, name)
                return out
            is_norm = _is_call(context, layers.BatchNorm) and not kwargs.get("train")
            if is_norm and (known := _norm(module, place)):
                calls.append(known)
                return call(checkpoint_name(args[0], name), *args[1:], **kwargs)
            return call(*args, **kwargs)

        with nn.intercept_methods(mark):
            return apply(variables, image)

    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    shapes = jax.tree.map(shape, (variables, image))
    return _pairs(jax.make_jaxpr(watched)(*shapes).jaxpr, calls)


_MARK = "folding: call "


def _pairs(
    jaxpr: Any, calls: Sequence[_Convolution | _Norm]
) -> list[tuple[_Convolution, _Norm]]:
    """Return the convolutions whose output only a batch norm reads, with that batch norm.

    jaxpr: with the output of each convolution and the input of each batch norm named by its
    place in `calls`. Those inside loops, branches and the like are not found, and stay.
    """
    readers = collections.defaultdict(list)
    for eqn in jaxpr.eqns:
        for x in eqn.invars:
            if not hasattr(x, "val"):  # No literal.
                readers[x].append(eqn)
    for x in jaxpr.outvars:
        if not hasattr(x, "val"):
            readers[x].append(None)

    def marked(eqn: Any) -> _Convolution | _Norm | None:
        """Return what an equation names."""
        name = str(eqn.params.get("name", "")) if eqn else ""
        return calls[int(name.removeprefix(_MARK))] if name.startswith(_MARK) else None

    def is_read_once(places: Sequence[int | None]) -> bool:
        return all(len(readers[jaxpr.invars[i]]) == 1 for i in places if i is not None)

    pairs = []
    for eqn in jaxpr.eqns:
        conv, reading = marked(eqn), readers[eqn.outvars[0]] if eqn.outvars else []
        if not isinstance(conv, _Convolution) or len(reading) != 1:
            continue
        norm = marked(reading[0])
        if isinstance(norm, _Norm) and is_read_once([*conv, norm.scale]):
            pairs.append((conv, norm))
    return pairs


def _is_call(context: Any, kind: type) -> bool:
    """Return whether a module of this very class is called, not another method of it."""
    return type(context.module) is kind and context.method_name == "__call__"


def _convolution(module: nn.Conv, place: dict[int, int]) -> _Convolution | None:
    """Return where a convolution's parameters are; None where they are not known."""
    params = module.variables["params"]
    kernel = place.get(id(params["kernel"]))
    bias = place.get(id(params["bias"])) if module.use_bias else None
    if kernel is None or (module.use_bias and bias is None):
        return None
    return _Convolution(kernel=kernel, bias=bias)


def _norm(module: layers.BatchNorm, place: dict[int, int]) -> _Norm | None:
    """Return where a batch norm's variables are; None where they are not known."""
    params, stats = module.variables["params"], module.variables["stats"]
    values = (params["scale"], params["bias"], stats["mean"], stats["var"])
    places = [place.get(id(value)) for value in values]
    if None in places:
        return None
    scale, bias, mean, var = places
    return _Norm(scale=scale, bias=bias, mean=mean, var=var, eps=module.eps)
