"""Replaces the convolutions of a step: one for each seed under vmap, in chunks on CPUs.

The function is traced first: what it differentiates is then done, and its forward and both
its gradient convolutions are equations of one kind. Each may give way to a function of the
same operands, wherever it lies: in a branch, a loop, a remat.

`over_seeds`: under plain `jax.vmap` a convolution whose kernel differs from seed to seed
becomes a grouped one, which is slow on most backends. Here it gets a batching rule of its
own, and the rest is left to `jax.vmap`.

`chunk_kernel_gradients`: XLA's CPU backend computes the gradient of a kernel as a
convolution whose kernel is as large as the image, three times slower than the forward pass
and hardly in parallel. As a sum over chunks of the batch it takes about half the time
(`python -m benchmarks.train --whole`).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend import core

# An equation -> what takes its place, a function of (images, kernels); None: it stays.
Replace = Callable[[core.JaxprEqn], Callable | None]


def replace_convolutions(one: Callable, replace: Replace) -> Callable:
    """The function (state, arg, shared, static) -> outs, some convolutions replaced."""

    def rewritten(state, arg, shared, static):
        trace = jax.make_jaxpr(one, static_argnums=3, return_shape=True)
        closed, outs = trace(state, arg, shared, static)
        run = core.jaxpr_as_fun(_rewritten(closed, replace))
        flat = run(*jax.tree.leaves((state, arg, shared)))
        return jax.tree.unflatten(jax.tree.structure(outs), flat)

    return rewritten


def _rewritten(value: Any, replace: Replace) -> Any:
    """A parameter of an equation, the convolutions of its jaxprs replaced.

    What holds none stays the same object, so that jax knows it again.
    """
    if isinstance(value, core.Jaxpr):
        parts = [_equation(eqn, replace) for eqn in value.eqns]
        same = all(new is old for new, old in zip(parts, value.eqns, strict=True))
        return value if same else value.replace(eqns=parts)
    if isinstance(value, core.ClosedJaxpr):  # Since jax 0.11 a Jaxpr, met above.
        inner = _rewritten(value.jaxpr, replace)
        return value if inner is value.jaxpr else value.replace(jaxpr=inner)
    if type(value) is tuple:  # The branches of a cond.
        parts = tuple(_rewritten(part, replace) for part in value)
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else parts
    return value


def _equation(eqn: core.JaxprEqn, replace: Replace) -> core.JaxprEqn:
    if eqn.primitive is core.primitives.conv_general_dilated_p:
        if (replaced := replace(eqn)) is None:
            return eqn
        (call,) = jax.make_jaxpr(replaced)(*(var.aval for var in eqn.invars)).eqns
        return eqn.replace(primitive=call.primitive, params=call.params)
    params = {name: _rewritten(value, replace) for name, value in eqn.params.items()}
    same = all(params[name] is value for name, value in eqn.params.items())
    return eqn if same else eqn.replace(params=params)


def over_seeds(one: Callable) -> Callable:
    """Maps (state, arg, shared, static) -> outs over leading seed axes.

    The result takes states and args with a leading axis of seeds, and gives outs with
    one; `shared` has none. Where image and kernel both differ between seeds, each seed
    has an ordinary convolution. What only one operand has a seed axis of is folded into
    the batch or the features, as jax does.
    """
    alone = replace_convolutions(one, _convolution)

    def many(states, args, shared, static):
        each = jax.vmap(lambda state, arg: alone(state, arg, shared, static))
        return each(states, args)

    return many


def _convolution(eqn: core.JaxprEqn) -> Callable:
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
        at = functools.partial(jax.lax.index_in_dim, keepdims=False)
        return jnp.stack([plain(at(lhs, i), at(rhs, i)) for i in range(seeds)]), True

    return convolution


MAX_CHUNKS = 8  # Chunks.
MIN_PRODUCTS = 512  # Products that each number of a chunk's gradient sums.


def chunk_kernel_gradients(one: Callable) -> Callable:
    """The step (state, arg, shared, static) -> outs, up to the order of float sums.

    For a batch that lies on one device: the chunks of a shared one would cross devices.
    """
    return replace_convolutions(one, _in_chunks)


def _in_chunks(eqn: core.JaxprEqn) -> Callable | None:
    lhs, rhs, out = eqn.params["dimension_numbers"]
    images, kernels, outs = (x.aval.shape for x in (*eqn.invars, *eqn.outvars))
    kernel, places = math.prod(kernels[i] for i in rhs[2:]), [outs[i] for i in out[2:]]
    groups = (eqn.params["feature_group_count"], eqn.params["batch_group_count"])
    if kernel <= math.prod(places) or groups != (1, 1):
        return None  # No gradient of a kernel.
    examples = images[lhs[1]]
    fits = (c for c in range(MAX_CHUNKS, 1, -1) if examples % c == 0)
    count = next((c for c in fits if examples // c * kernel >= MIN_PRODUCTS), 1)
    if count == 1:
        return None
    size = examples // count
    plain = functools.partial(eqn.primitive.bind, **eqn.params)

    @jax.jit
    def convolution(images, gradients):
        def chunk(i: int):
            cut = (i * size, (i + 1) * size)
            x = jax.lax.slice_in_dim(images, *cut, axis=lhs[1])
            return plain(x, jax.lax.slice_in_dim(gradients, *cut, axis=rhs[1]))

        return functools.reduce(jnp.add, map(chunk, range(count)))

    return convolution
