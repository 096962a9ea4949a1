"""Kernel gradients summed over chunks of a batch equal those of the full batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.training import convolutions
from tests import cases


def loss(stride, state, arg, shared, static):
    """Return a loss of a convolution and its gradients for kernel and image."""
    del shared, static

    def loss_of(kernel, image):
        out = jax.lax.conv_general_dilated(
            image,
            kernel,
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return jnp.sum(jnp.sin(out))

    return jax.value_and_grad(loss_of, argnums=(0, 1))(state, arg)


def gradient_batches(function, *args) -> list[int]:
    """Return the number of examples of each kernel gradient in the compiled program."""
    text = jax.jit(function, static_argnums=3).lower(*args).as_text()
    lines = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    gradients = [line for line in lines if "[f, 0, 1, b]" in line]
    return [int(line.rpartition("(tensor<")[2].split("x")[0]) for line in gradients]


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

    def step(*args):
        return loss(stride, *args)

    chunked = convolutions.chunk_kernel_gradients(step)
    assert gradient_batches(step, *args) == [batch]
    assert gradient_batches(chunked, *args) == [batch // chunks] * chunks
    value, (kernel_grad, image_grad) = jax.jit(chunked, static_argnums=3)(*args)
    expected, (expected_kernel, expected_image) = jax.jit(step, static_argnums=3)(*args)
    assert value == expected
    np.testing.assert_array_equal(image_grad, expected_image)
    np.testing.assert_allclose(kernel_grad, expected_kernel, rtol=1e-4, atol=1e-3)


def test_grouped_convolutions_are_not_chunked():
    def step(state, arg, shared, static):
        del shared, static

        def loss_of(kernel):
            out = jax.lax.conv_general_dilated(
                arg,
                kernel,
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=4,
            )
            return jnp.sum(jnp.sin(out))

        return jax.grad(loss_of)(state)

    args = jnp.ones((3, 3, 1, 4)), jnp.ones((64, 16, 16, 4)), None, None
    text = jax.jit(step, static_argnums=3).lower(*args).as_text()
    chunked = jax.jit(convolutions.chunk_kernel_gradients(step), static_argnums=3)
    chunked_text = chunked.lower(*args).as_text()
    assert chunked_text.count("convolution(") == text.count("convolution(")
