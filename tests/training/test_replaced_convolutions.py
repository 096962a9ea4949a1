"""Convolutions are replaced in nested jaxprs, and nothing else is changed."""

import jax
import jax.numpy as jnp
import numpy as np

from jbias.training import convolutions

CONSTANT = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)


def convolved(images, kernels):
    return jax.lax.conv_general_dilated(
        images, kernels, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def nested(images, kernels, shared, static):
    """Apply two convolutions, the first with a constant in a loop in a branch in a remat."""
    del shared, static

    def step(carry, _):
        return convolved(carry, kernels) + CONSTANT, None

    def loop(x):
        return jax.lax.scan(step, x, None, length=2)[0]

    inner = jax.checkpoint(lambda x: jax.lax.cond(x.sum() > 0, loop, jnp.sin, x))
    return convolved(inner(images), kernels)


def arguments():
    images, kernels = jax.random.split(jax.random.key(0))
    return jax.random.uniform(images, (2, 4, 4, 1)), jax.random.normal(
        kernels, (3, 3, 1, 1)
    )


def test_nested_convolutions_are_replaced():
    equations = []

    def replace(eqn):
        equations.append(eqn)
        return jax.jit(lambda images, kernels: 2 * convolved(images, kernels))

    images, kernels = arguments()
    replaced = convolutions.replace_convolutions(nested, replace)
    out = replaced(images, kernels, None, None)
    expected = nested(images, 2 * kernels, None, None)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert len(equations) == 2


def test_a_jaxpr_without_replacements_stays_the_same_object():
    """This also holds for closed and nested jaxprs."""
    trace = jax.make_jaxpr(nested, static_argnums=3)
    closed = trace(*arguments(), None, None)
    assert convolutions._rewrite(closed, lambda eqn: None) is closed
    changed = convolutions._rewrite(closed, lambda eqn: jax.jit(convolved))
    assert changed is not closed and changed.consts == closed.consts
