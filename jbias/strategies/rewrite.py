"""Replaces the convolutions of a function, whatever they are for.

The function is traced first: what it differentiates is then done, and its forward and
both its gradient convolutions are equations of one kind. Each may give way to a function
of the same operands, wherever it lies: in a branch, a loop, a remat.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

# An equation -> what takes its place, a function of (images, kernels); None: it stays.
Replace = Callable[[core.JaxprEqn], Callable | None]


def convolutions(one: Callable, replace: Replace) -> Callable:
    """The function (state, arg, shared, static) -> outs, some convolutions replaced."""

    def rewritten(state, arg, shared, static):
        trace = jax.make_jaxpr(one, static_argnums=3, return_shape=True)
        closed, outs = trace(state, arg, shared, static)
        run = core.jaxpr_as_fun(_rewritten(closed, replace))
        flat = run(*jax.tree.leaves((state, arg, shared)))
        return jax.tree.unflatten(jax.tree.structure(outs), flat)

    return rewritten


def extents(eqn: core.JaxprEqn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The spatial extents of a convolution's kernel, and of its output."""
    _, rhs, out = eqn.params["dimension_numbers"]
    kernel, outs = eqn.invars[1].aval.shape, eqn.outvars[0].aval.shape
    return tuple(kernel[i] for i in rhs[2:]), tuple(outs[i] for i in out[2:])


def in_groups(eqn: core.JaxprEqn) -> bool:
    """Whether a convolution is one in groups."""
    groups = (eqn.params["feature_group_count"], eqn.params["batch_group_count"])
    return math.prod(groups) > 1


def _rewritten(value: Any, replace: Replace) -> Any:
    """A parameter of an equation, the convolutions of its jaxprs replaced.

    What holds none stays the same object, so that jax knows it again.
    """
    if isinstance(value, core.Jaxpr):
        eqns = [_equation(eqn, replace) for eqn in value.eqns]
        same = all(new is old for new, old in zip(eqns, value.eqns, strict=True))
        return value if same else value.replace(eqns=eqns)
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
        replaced = replace(eqn)
        if replaced is None:
            return eqn
        avals = (var.aval for var in eqn.invars)
        (call,) = jax.make_jaxpr(replaced)(*avals).eqns
        return eqn.replace(primitive=call.primitive, params=call.params)
    params = {name: _rewritten(value, replace) for name, value in eqn.params.items()}
    if all(params[name] is value for name, value in eqn.params.items()):
        return eqn
    return eqn.replace(params=params)
