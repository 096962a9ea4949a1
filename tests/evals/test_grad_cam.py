"""Grad-CAM against closed forms, and its resizing against PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias import models
from jbias.evals import grad_cam
from jbias.models import taps

KEY = jax.random.key(5)


class Pooled(nn.Module):
    """A convolution, a mean over places, and a linear head: the case of CAM."""

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, x, key=None, *, train=False):
        x = nn.Conv(6, (3, 3), strides=2)(x)
        x = taps.through(self, x, "map", key, train)
        x = jnp.mean(x, (1, 2))
        x = taps.through(self, x, "pooled", key, train)
        return nn.Dense(4, name="fc")(x)


def resized(cam, height, width):
    """Bilinear, by the sum over the four neighbours of each pixel's centre."""
    i, j = cam.shape

    def corners(n, size):
        at = np.clip((np.arange(n) + 0.5) * size / n - 0.5, 0, size - 1)
        low = np.minimum(at.astype(int), max(size - 2, 0))
        return low, np.minimum(low + 1, size - 1), at - low

    top, below, v = corners(height, i)
    left, right, u = corners(width, j)
    v, u = v[:, None], u[None, :]
    return (
        (1 - v) * (1 - u) * cam[np.ix_(top, left)]
        + (1 - v) * u * cam[np.ix_(top, right)]
        + v * (1 - u) * cam[np.ix_(below, left)]
        + v * u * cam[np.ix_(below, right)]
    )


def test_before_a_linear_head_on_means_weights_are_the_class_s():
    """Then Grad-CAM is CAM: relu(sum_c w_kc a_c) / max."""
    net = Pooled()
    image = jax.random.uniform(KEY, (5, 12, 16, 3))
    variables = net.init(KEY, image)
    got = np.asarray(grad_cam.of(net, variables, image, "map"))
    logits, seen = taps.read(net, variables, image)
    kernel = variables["params"]["fc"]["kernel"]
    for one, a, z in zip(got, seen["map"], logits, strict=True):
        cam = np.maximum(np.asarray(a @ kernel[:, z.argmax()]), 0)
        cam = cam / cam.max() if cam.any() else cam
        np.testing.assert_allclose(one, resized(cam, 12, 16), atol=1e-5)
    assert (got.max((1, 2)) > 0.5).any()


def test_maps_are_as_computed_by_hand():
    """Two channels of means 1 and -2, on a map of 2 by 2."""
    a = jnp.array([[[1.0, 0.0], [2.0, 0.5]], [[0.0, 3.0], [4.0, 0.0]]])[None]
    gradient = jnp.array([[[4.0, -2.0], [0.0, -2.0]], [[0.0, -2.0], [0.0, -2.0]]])[None]
    # a w: 1, 2 - 1 over 0 - 6, 4; halves of these, cut at 0, over 2.
    expected = np.array([[0.25, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(grad_cam.maps(a, gradient, 2, 2)[0], expected, atol=1e-6)


def test_resizing_is_pytorch_s():
    """torch 2.13: interpolate([[0, 1], [0.5, 0.25]], (3, 4), mode="bilinear").

    And to the last digit that of OpenCV 5.0, resize(..., (4, 3)).
    """
    a = jnp.array([[0.0, 1.0], [0.5, 0.25]])[None, :, :, None]
    expected = [
        [0, 0.25, 0.75, 1],
        [0.25, 0.34375, 0.53125, 0.625],
        [0.5, 0.4375, 0.3125, 0.25],
    ]
    got = grad_cam.maps(a, jnp.ones_like(a), 3, 4)[0]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(resized(np.asarray(a[0, ..., 0]), 3, 4), expected)


def test_a_map_without_evidence_is_zero():
    a = jnp.ones((1, 3, 3, 2))
    for gradient in (jnp.zeros_like(a), -a):
        got = grad_cam.maps(a, gradient, 6, 6)
        np.testing.assert_array_equal(got, jnp.zeros((1, 6, 6)))


def test_patches_of_a_vit_are_laid_out_without_the_class_token():
    x = np.random.default_rng(0).random((2, 1, 1 + 12, 5), np.float32)
    gradient = np.random.default_rng(1).random((2, 1, 1 + 12, 5), np.float32)
    got = grad_cam.maps(jnp.asarray(x), jnp.asarray(gradient), 9, 12)
    laid = [jnp.asarray(one[:, 0, 1:].reshape(2, 3, 4, 5)) for one in (x, gradient)]
    np.testing.assert_array_equal(got, grad_cam.maps(*laid, 9, 12))


@pytest.mark.parametrize("name", ["preact_resnet18", "bagnet9", "vit"])
def test_networks_are_looked_into(name):
    if name == "vit":
        net = models.vit.ViT(4, width=16, heads=2, patch=8, depth=4)
    else:
        net = models.MODELS[name](4, width=4)
    image = jax.random.uniform(KEY, (2, 32, 32, 3))
    variables = net.init(KEY, image)
    got = jax.jit(lambda x: grad_cam.of(net, variables, x, "stage3"))(image)
    assert got.shape == (2, 32, 32)
    assert bool(jnp.isfinite(got).all()) and 0 <= got.min() and got.max() <= 1


def test_sites_without_places_are_refused():
    net = Pooled()
    image = jnp.ones((1, 8, 8, 3))
    variables = net.init(KEY, image)
    with pytest.raises(ValueError, match="pooled must have rows and columns"):
        grad_cam.of(net, variables, image, "pooled")
    x = jnp.ones((1, 1, 1 + 11, 5))
    with pytest.raises(ValueError, match="tokens of patches, got"):
        grad_cam.maps(x, x, 8, 8)
