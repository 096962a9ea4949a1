"""Grad-CAM against closed forms and the released code, and its resizing against OpenCV's."""

import functools

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias import models
from jbias.evals import grad_cam, inference, occlusion
from jbias.models import taps
from tests import cases, drawn

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


@pytest.mark.slow
def test_before_a_linear_head_on_means_weights_are_the_class_s():
    """Then Grad-CAM is CAM: relu(sum_c w_kc a_c) / max."""
    net = Pooled()
    image = jax.random.uniform(KEY, (5, 12, 16, 3))
    variables = net.init(KEY, image)
    got = np.asarray(grad_cam.image_maps(net, variables, image, "map"))
    logits, seen = taps.read(net, variables, image)
    kernel = variables["params"]["fc"]["kernel"]
    for one, a, z in zip(got, seen["map"], logits, strict=True):
        cam = np.maximum(np.asarray(a @ kernel[:, z.argmax()]), 0)
        cam = cam / cam.max() if cam.any() else cam
        np.testing.assert_allclose(one, cv2.resize(cam, (16, 12)), atol=1e-5)
    assert (got.max((1, 2)) > 0.5).any()


def test_maps_are_as_computed_by_hand():
    """Two channels of means 1 and -2, on a map of 2 by 2."""
    a = jnp.array([[[1.0, 0.0], [2.0, 0.5]], [[0.0, 3.0], [4.0, 0.0]]])[None]
    gradient = jnp.array([[[4.0, -2.0], [0.0, -2.0]], [[0.0, -2.0], [0.0, -2.0]]])[None]
    # a w: 1, 2 - 1 over 0 - 6, 4; halves of these, cut at 0, over 2.
    expected = np.array([[0.25, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(grad_cam.maps(a, gradient, 2, 2)[0], expected, atol=1e-6)


@cases.each("size", [(32, 32), (28, 21), (6, 5), (4, 4)])
def test_resizing_is_opencv_s_as_in_the_release(size):
    """Its default, and that of torch's interpolate(mode="bilinear"), which is equal."""
    a = np.random.default_rng(2).random((6, 5), np.float32)
    a[3, 2] = 1
    shown = jnp.asarray(a)[None, :, :, None]
    got = grad_cam.maps(shown, jnp.ones_like(shown), *size)[0]
    np.testing.assert_allclose(got, cv2.resize(a, size[::-1]), atol=1e-6)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["preact_resnet18", "vit"])
def test_networks_are_looked_into(name):
    if name == "vit":
        net = models.vit.ViT(4, width=16, heads=2, patch=4, depth=4)
    else:
        net = models.MODELS[name](4, width=4)
    image = jax.random.uniform(KEY, (2, 16, 16, 3))
    variables = jax.jit(net.init)(KEY, image)
    got = jax.jit(lambda x: grad_cam.image_maps(net, variables, x, "stage3"))(image)
    assert got.shape == (2, 16, 16)
    assert bool(jnp.isfinite(got).all()) and 0 <= got.min() and got.max() <= 1


def test_sites_without_places_are_refused():
    net = Pooled()
    image = jnp.ones((1, 8, 8, 3))
    variables = net.init(KEY, image)
    with pytest.raises(ValueError, match="pooled must have rows and columns"):
        grad_cam.image_maps(net, variables, image, "pooled")
    x = jnp.ones((1, 1, 1 + 11, 5))
    with pytest.raises(ValueError, match="tokens of patches, got"):
        grad_cam.maps(x, x, 8, 8)


@functools.cache
def released():
    """The network of tests/oracles/distortion.py, its images, and what is stored."""
    stored = np.load(drawn.ORACLES / "distortion.npz")
    constants = dict(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
    net = models.MODELS["preact_resnet18"](10, **constants)
    return net, drawn.variables(net, 32, 1.3), stored


@functools.cache
def seen():
    """Return the activations at stage 3, and their gradient, for all images."""
    net, variables, stored = released()
    image = jnp.asarray(stored["images"], jnp.float32) / 255
    pull = functools.partial(
        taps.site_gradient, site="stage3", score=lambda z: z.max(-1)
    )
    return jax.jit(lambda image: pull(net, variables, image))(image)


@pytest.mark.slow
def test_maps_are_those_of_the_released_code():
    stored = released()[2]["maps"]
    assert stored.shape == (6, 32, 32) and (stored.max((1, 2)) > 0.5).all()
    np.testing.assert_allclose(grad_cam.maps(*seen(), 32, 32), stored, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["most", "least"])
def test_pixels_are_hidden_as_in_the_released_code(order):
    """But for ties in 8 bits, and the rounding of how many of the least go."""
    net, variables, stored = released()
    made = occlusion.make(
        masks=("grad_cam",), orders=(order,), fractions=(0.3,), quantise=True
    )
    network = inference.BoundJaxNetwork(net.apply, variables, lambda *_: seen())
    rows = np.arange(6, dtype=np.int32)
    batch = inference.Batch(stored["images"], rows, rows, rows, 6)
    shown = inference.make_stimuli(network, made, batch, f"grad_cam {order} 0.3")
    gone = (np.asarray(shown) == 0).all(-1)
    theirs = np.unpackbits(stored[f"{order} hidden"]).reshape(gone.shape) > 0
    steps = np.floor(255 * stored["maps"])
    for step, a, b in zip(steps, gone, theirs, strict=True):
        assert (a.sum(), b.sum()) == (308, 308 if order == "most" else 307)
        edge = step[b].min() if order == "most" else step[b].max()
        assert set(step[a != b]) <= {edge, edge + 1}
