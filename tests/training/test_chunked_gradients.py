"""Kernel gradients in chunks of the batch are those of the whole batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.training import convolutions
from tests import cases


def loss(stride, state, arg, shared, static):
    """Some loss of a convolution, with its gradients of kernel and image."""
    del shared, static

    def of(kernel, image):
        out = jax.lax.conv_general_dilated(
            image,
            kernel,
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return jnp.sum(jnp.sin(out))

    return jax.value_and_grad(of, argnums=(0, 1))(state, arg)


def sizes(one, *args) -> list[int]:
    """Over how many examples each kernel gradient of the program sums."""
    text = jax.jit(one, static_argnums=3).lower(*args).as_text()
    lines = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    wanted = [line for line in lines if "[f, 0, 1, b]" in line]
    return [int(line.rpartition("(tensor<")[2].split("x")[0]) for line in wanted]


@pytest.mark.slow
@cases.each(
    ("batch", "side", "chunks"),
    [(64, 16, 8), (12, 16, 6), (7, 32, 7), (64, 4, 2), (1, 16, 1)],
)
@cases.each("stride", [1, 2])
def test_the_sum_over_chunks_is_the_gradient(batch, side, chunks, stride):
    keys = jax.random.split(jax.random.key(0))
    image = jax.random.normal(keys[0], (batch, side * stride, side * stride, 3))
    kernel = jax.random.normal(keys[1], (3, 3, 3, 5))
    args = (kernel, image, None, None)

    def one(*args):
        return loss(stride, *args)

    many = convolutions.chunk_kernel_gradients(one)
    assert sizes(one, *args) == [batch]
    assert sizes(many, *args) == [batch // chunks] * chunks
    (value, (kernel_grad, image_grad)) = jax.jit(many, static_argnums=3)(*args)
    (lone, (lone_kernel, lone_image)) = jax.jit(one, static_argnums=3)(*args)
    assert value == lone
    np.testing.assert_array_equal(image_grad, lone_image)
    np.testing.assert_allclose(kernel_grad, lone_kernel, rtol=1e-4, atol=1e-3)


def test_convolutions_in_groups_stay_whole():
    def one(state, arg, shared, static):
        del shared, static

        def of(kernel):
            out = jax.lax.conv_general_dilated(
                arg,
                kernel,
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=4,
            )
            return jnp.sum(jnp.sin(out))

        return jax.grad(of)(state)

    args = jnp.ones((3, 3, 1, 4)), jnp.ones((64, 16, 16, 4)), None, None
    text = jax.jit(one, static_argnums=3).lower(*args).as_text()
    many = jax.jit(convolutions.chunk_kernel_gradients(one), static_argnums=3)
    assert many.lower(*args).as_text().count("convolution(") == text.count(
        "convolution("
    )
