"""The step of one seed vectorised over seeds, without grouped convolutions.

Under plain `jax.vmap` a convolution whose kernel differs from seed to seed becomes a
grouped one, which is slow on most backends. Here each convolution of the traced step
gives way to one with a batching rule of its own, and the rest is left to `jax.vmap`.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.extend import core
from jaxtyping import Array

from jbias.strategies import rewrite

HOWS = ("unrolled", "patches", "mixed")


def over_seeds(one: Callable, how: str) -> Callable:
    """Maps (state, arg, shared, static) -> outs over leading seed axes.

    The result takes states and args with a leading axis of seeds, and gives outs with
    one; `shared` has none. Where image and kernel both differ between seeds, `how` says
    what a convolution becomes:

    unrolled: an ordinary convolution for each seed.
    patches: one product of matrices for each seed, in one `dot_general`, of patches of
        the image, which take as many times its memory as the kernel has places.
    mixed: that where a patch is one pixel (1 x 1 kernels), else unrolled.

    Convolutions in groups are unrolled. What only one operand has a seed axis of is
    folded into the batch or the features, as jax does. ValueError for another `how`.
    """
    if how not in HOWS:
        raise ValueError(f"batched: how must be one of {', '.join(HOWS)}, got {how!r}")

    alone = rewrite.convolutions(one, functools.partial(_convolution, how=how))

    def many(states, args, shared, static):
        each = jax.vmap(lambda state, arg: alone(state, arg, shared, static))
        return each(states, args)

    return many


def _convolution(eqn: core.JaxprEqn, how: str) -> Callable:
    """The same convolution, with a batching rule of its own."""
    plain = functools.partial(eqn.primitive.bind, **eqn.params)

    @custom_vmap
    def convolution(lhs, rhs):
        return plain(lhs, rhs)

    @convolution.def_vmap
    def rule(seeds, batched, lhs, rhs):
        if not all(batched):
            axes = tuple(0 if here else None for here in batched)
            return jax.vmap(plain, axes)(lhs, rhs), True
        if _as_patches(eqn, how):
            return _product(lhs, rhs, eqn), True
        at = functools.partial(jax.lax.index_in_dim, keepdims=False)
        return jnp.stack([plain(at(lhs, i), at(rhs, i)) for i in range(seeds)]), True

    return convolution


def _as_patches(eqn: core.JaxprEqn, how: str) -> bool:
    slices = min(map(math.prod, rewrite.extents(eqn)))
    if rewrite.in_groups(eqn) or slices == 0:
        return False
    return how == "patches" or (how == "mixed" and slices == 1)


def _product(lhs: Array, rhs: Array, eqn: core.JaxprEqn) -> Array:
    """A convolution over leading seed axes, as products of matrices.

    out[b, o, p] = sum_{c, k} lhs[b, c, stride p + dilation k] rhs[o, c, k], the image
    padded and dilated. The patches lhs[b, c, p, k] are stacked slices of the image: one
    for every k, or one for every p where those are fewer, as in the gradient of a kernel.
    They lie before the axis that makes the product's rows or columns contiguous.
    """
    params = eqn.params
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    kernel, outs = rewrite.extents(eqn)
    strides = params["window_strides"]
    # Where a patch is one pixel, no zeros need be multiplied: they are put in later.
    late = math.prod(kernel) == 1 and max(params["lhs_dilation"]) > 1
    if late:
        strides, outs = (1,) * len(outs), [lhs.shape[1 + i] for i in lhs_spec[2:]]
    else:
        lhs = _padded(lhs, lhs_spec, params)

    by_kernel = math.prod(kernel) <= math.prod(outs)
    looped, kept = (kernel, params["rhs_dilation"]), (outs, strides)
    if not by_kernel:
        looped, kept = kept, looped
    at = 1 + lhs_spec[1 if by_kernel else 0]
    for d in reversed(range(len(kernel))):
        axis = 1 + lhs_spec[2 + d]
        axis += (axis >= at) * (len(kernel) - 1 - d)  # Behind the axes stacked so far.
        lhs = _windows(lhs, axis, at, *((n[d], step[d]) for n, step in (looped, kept)))

    def moved(axis):
        return 1 + axis + (1 + axis >= at) * len(kernel)

    stacked, own = range(at, at + len(kernel)), [moved(i) for i in lhs_spec[2:]]
    summed, free = (stacked, own) if by_kernel else (own, stacked)
    pairs = zip([moved(lhs_spec[1]), *summed], rhs_spec[1:], strict=True)
    left, right = zip(*sorted((i, 1 + other) for i, other in pairs), strict=True)
    out = jax.lax.dot_general(
        lhs,
        rhs,
        ((left, right), ((0,), (0,))),
        precision=params["precision"],
        preferred_element_type=eqn.outvars[0].aval.dtype,
    )
    rows = zip([moved(lhs_spec[0]), *free], (out_spec[0], *out_spec[2:]), strict=True)
    order = [axis for _, axis in sorted(rows)] + [out_spec[1]]
    out = jnp.transpose(out, (0, *(1 + np.argsort(order))))
    if not late:
        return out
    out = _padded(out, out_spec, params)
    for axis, stride in zip(out_spec[2:], params["window_strides"], strict=True):
        out = jax.lax.slice_in_dim(out, 0, None, stride, 1 + axis)
    return out


def _padded(image: Array, spec: tuple[int, ...], params: Mapping[str, Any]) -> Array:
    """Images of each seed, dilated and padded as the convolution says."""
    config = [(0, 0, 0)] * image.ndim
    edges = zip(spec[2:], params["padding"], params["lhs_dilation"], strict=True)
    for axis, (low, high), dilation in edges:
        config[1 + axis] = (low, high, dilation - 1)
    return jax.lax.pad(image, jnp.zeros((), image.dtype), config)


def _windows(
    image: Array, axis: int, at: int, looped: tuple[int, int], kept: tuple[int, int]
) -> Array:
    """Replaces an axis x by two: looped i in a new axis `at`, kept j in the old one.

    x = i far + j step, where looped is (how many i, far), kept (how many j, step).
    """
    (count, far), (size, step) = looped, kept
    span = (size - 1) * step + 1
    starts = range(0, count * far, far)
    cut = functools.partial(jax.lax.slice_in_dim, image, stride=step, axis=axis)
    return jnp.stack([cut(start, start + span) for start in starts], at)
