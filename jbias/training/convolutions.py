"""Replace convolutions in a training step: one per seed under vmap, or in chunks on a CPU.

A function is traced before its convolutions are replaced. In the traced jaxpr, derivatives
are already taken, so the forward convolution and both gradient convolutions are equations
of one primitive. Each can be replaced by a function of the same operands, also inside a
branch, a loop or a remat.

`over_seeds`: plain `jax.vmap` turns a convolution whose kernel differs between seeds into a
grouped convolution, which is slow on most backends. `over_seeds` gives convolutions their
own batching rule and leaves all other operations to `jax.vmap`.

`chunk_kernel_gradients`: XLA's CPU backend computes the gradient of a kernel as a
convolution whose kernel is as large as the image. This convolution takes three times as long as the
forward pass and hardly uses more than one core. A sum over chunks of the batch takes about half the
time (`python -m benchmarks.train --whole`).
"""

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend import core

# Map a convolution's equation to its replacement, a function of (images, kernels), or to
# None to leave the equation unchanged.
Replace = Callable[[core.JaxprEqn], Callable | None]


def replace_convolutions(function: Callable, replace: Replace) -> Callable:
    """Return a function like `function` in which convolutions are replaced.

    function: (state, arg, shared, static) -> outputs. replace: maps a convolution's equation
    to its replacement, see `Replace`.
    """

    def rewritten(state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
        """Trace `function`, replace its convolutions, and run the result."""
        trace = jax.make_jaxpr(function, static_argnums=3, return_shape=True)
        closed_jaxpr, outs = trace(state, arg, shared, static)
        run = core.jaxpr_as_fun(_rewrite(closed_jaxpr, replace))
        flat_outs = run(*jax.tree.leaves((state, arg, shared)))
        return jax.tree.unflatten(jax.tree.structure(outs), flat_outs)

    return rewritten


def _rewrite(value: Any, replace: Replace) -> Any:
    """Return a jaxpr, or a parameter of an equation, with its convolutions replaced.

    A parameter without replaced convolutions is returned as the same object, because jax
    caches by identity.
    """
    if isinstance(value, core.Jaxpr):
        eqns = [_rewrite_equation(eqn, replace) for eqn in value.eqns]
        return value if _are_identical(eqns, value.eqns) else value.replace(eqns=eqns)
    if isinstance(value, core.ClosedJaxpr):  # Since jax 0.11 a Jaxpr, see above.
        inner = _rewrite(value.jaxpr, replace)
        return value if inner is value.jaxpr else value.replace(jaxpr=inner)
    if type(value) is tuple:  # The branches of a cond.
        branches = tuple(_rewrite(branch, replace) for branch in value)
        return value if _are_identical(branches, value) else branches
    return value


def _are_identical(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return True if two sequences consist of the same objects in the same order."""
    return all(a is b for a, b in zip(values, others, strict=True))


def _rewrite_equation(eqn: core.JaxprEqn, replace: Replace) -> core.JaxprEqn:
    """Return the equation with its convolution, or convolutions in its jaxprs, replaced.

    The same object is returned if nothing is replaced.
    """
    if eqn.primitive is core.primitives.conv_general_dilated_p:
        replacement = replace(eqn)
        if replacement is None:
            return eqn
        operands = [var.aval for var in eqn.invars]
        (call,) = jax.make_jaxpr(replacement)(*operands).eqns
        return eqn.replace(primitive=call.primitive, params=call.params)
    params = {name: _rewrite(value, replace) for name, value in eqn.params.items()}
    is_unchanged = all(params[name] is value for name, value in eqn.params.items())
    return eqn if is_unchanged else eqn.replace(params=params)


def over_seeds(function: Callable) -> Callable:
    """Return a function that computes `function` for each seed along leading seed axes.

    function: (state, arg, shared, static) -> outputs, of one seed. The returned function
    takes states and args with a leading axis of seeds and returns outputs with that axis;
    `shared` has no such axis. If image and kernel both differ between seeds, each seed has
    an ordinary convolution. If only one operand has a seed axis, the axis is folded into the
    batch or the features, as jax does.
    """
    function_of_seed = replace_convolutions(function, _with_batching_rule)

    def function_of_seeds(states: Any, args: Any, shared: Any, static: Hashable) -> Any:
        """Map `function_of_seed` over the leading axes of states and args."""
        mapped = jax.vmap(
            lambda state, arg: function_of_seed(state, arg, shared, static)
        )
        return mapped(states, args)

    return function_of_seeds


def _with_batching_rule(eqn: core.JaxprEqn) -> Callable:
    """Return the convolution of an equation as a function (images, kernels) -> output.

    Under `jax.vmap` over seeds the function computes one convolution per seed.
    """
    convolve = _as_function(eqn)

    @custom_vmap
    def convolution(lhs, rhs):
        return convolve(lhs, rhs)

    @convolution.def_vmap
    def rule(num_seeds, batched, lhs, rhs):
        """Return (outputs stacked along a leading axis of seeds, True), as custom_vmap requires.

        batched: two booleans, whether lhs and rhs have a leading axis of `num_seeds` seeds. An
        operand without this axis is the same for all seeds.
        """
        if not all(batched):
            axes = tuple(0 if is_batched else None for is_batched in batched)
            return jax.vmap(convolve, axes)(lhs, rhs), True

        def of_seed(x, seed):
            return jax.lax.index_in_dim(x, seed, keepdims=False)

        outs = [convolve(of_seed(lhs, i), of_seed(rhs, i)) for i in range(num_seeds)]
        return jnp.stack(outs), True

    return convolution


def _as_function(eqn: core.JaxprEqn) -> Callable:
    """Return the equation as a function of its operands, with its parameters bound."""
    return functools.partial(eqn.primitive.bind, **eqn.params)


MAX_CHUNKS = 8
MIN_PRODUCTS = 512  # Products per element of a chunk's kernel gradient.


def chunk_kernel_gradients(function: Callable) -> Callable:
    """Return a function like `function` that sums kernel gradients over chunks of the batch.

    function: (state, arg, shared, static) -> outputs. The outputs are equal up to the order
    of float sums. Use it only if the batch is on one device: chunks of a batch that is
    divided among devices would have to move between devices.
    """
    return replace_convolutions(function, _in_chunks)


def _in_chunks(eqn: core.JaxprEqn) -> Callable | None:
    """Return a function (images, gradients) -> gradient of a kernel, computed in chunks.

    The function sums the convolution of the equation over equal chunks of the batch: as many
    as possible, at most `MAX_CHUNKS`. Return None if the equation is not the gradient of a
    kernel, if it has groups, or if the batch cannot be divided into two or more chunks with
    `MIN_PRODUCTS` products per element.
    """
    lhs, rhs, out = eqn.params["dimension_numbers"]
    lhs_shape, rhs_shape, out_shape = (
        x.aval.shape for x in (*eqn.invars, *eqn.outvars)
    )
    window_size = math.prod(rhs_shape[i] for i in rhs[2:])
    num_positions = math.prod(out_shape[i] for i in out[2:])
    groups = (eqn.params["feature_group_count"], eqn.params["batch_group_count"])
    # Only in the gradient of a kernel is the window larger than the result.
    if window_size <= num_positions or groups != (1, 1):
        return None
    examples = lhs_shape[lhs[1]]
    divisors = (c for c in range(MAX_CHUNKS, 1, -1) if examples % c == 0)
    large_enough = (c for c in divisors if examples // c * window_size >= MIN_PRODUCTS)
    num_chunks = next(large_enough, 1)
    if num_chunks == 1:
        return None
    chunk_size = examples // num_chunks
    convolve = _as_function(eqn)

    @jax.jit
    def convolution(images, gradients):
        """Return the gradient of the kernel, summed over chunks of the batch."""

        def chunk(i: int):
            """Return the part of the gradient of the i-th chunk."""
            start, stop = i * chunk_size, (i + 1) * chunk_size
            x = jax.lax.slice_in_dim(images, start, stop, axis=lhs[1])
            g = jax.lax.slice_in_dim(gradients, start, stop, axis=rhs[1])
            return convolve(x, g)

        return functools.reduce(jnp.add, map(chunk, range(num_chunks)))

    return convolution
