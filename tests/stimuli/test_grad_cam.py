"""Grad-CAM: oracles are closed forms, the released code, and OpenCV's resizing."""

import functools

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias import models
from jbias.evals import inference
from jbias.models import taps
from jbias.stimuli import grad_cam, occlusion
from tests import cases, drawn

KEY = jax.random.key(5)


class Pooled(nn.Module):
    """A network of a convolution, a mean over positions, and a linear head, as for CAM."""

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, x, key=None, *, train=False):
        x = nn.Conv(6, (3, 3), strides=2)(x)
        x = taps.through(self, x, "map", key, train)
        x = jnp.mean(x, (1, 2))
        x = taps.through(self, x, "pooled", key, train)
        return nn.Dense(4, name="fc")(x)


@pytest.mark.slow
def test_grad_cam_of_a_linear_head_on_means_is_cam():
    """CAM is relu(sum_c w_kc a_c) / max."""
    net = Pooled()
    image = jax.random.uniform(KEY, (5, 12, 16, 3))
    variables = net.init(KEY, image)
    maps = np.asarray(grad_cam.image_maps(net, variables, image, "map"))
    logits, activations = taps.read(net, variables, image)
    kernel = variables["params"]["fc"]["kernel"]
    for image_map, a, z in zip(maps, activations["map"], logits, strict=True):
        cam = np.maximum(np.asarray(a @ kernel[:, z.argmax()]), 0)
        cam = cam / cam.max() if cam.any() else cam
        np.testing.assert_allclose(image_map, cv2.resize(cam, (16, 12)), atol=1e-5)
    assert (maps.max((1, 2)) > 0.5).any()


def test_maps_are_as_computed_by_hand():
    """The gradients of two channels have the means 1 and -2; the map has 2 by 2 positions."""
    a = jnp.array([[[1.0, 0.0], [2.0, 0.5]], [[0.0, 3.0], [4.0, 0.0]]])[None]
    gradient = jnp.array([[[4.0, -2.0], [0.0, -2.0]], [[0.0, -2.0], [0.0, -2.0]]])[None]
    # a w: 1, 2 - 1 over 0 - 6, 4; then the means over channels, cut at 0, divided by 2.
    expected = np.array([[0.25, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(grad_cam.maps(a, gradient, 2, 2)[0], expected, atol=1e-6)


@cases.each("size", [(32, 32), (28, 21), (6, 5), (4, 4)])
def test_resizing_is_opencv_s_as_in_the_release(size):
    """The release uses OpenCV's default; torch's interpolate(mode="bilinear") is equal."""
    a = np.random.default_rng(2).random((6, 5), np.float32)
    a[3, 2] = 1
    activations = jnp.asarray(a)[None, :, :, None]
    height, width = size
    gradient = jnp.ones_like(activations)
    resized = grad_cam.maps(activations, gradient, height, width)[0]
    np.testing.assert_allclose(resized, cv2.resize(a, size[::-1]), atol=1e-6)


def test_a_map_without_evidence_is_zero():
    a = jnp.ones((1, 3, 3, 2))
    for gradient in (jnp.zeros_like(a), -a):
        maps = grad_cam.maps(a, gradient, 6, 6)
        np.testing.assert_array_equal(maps, jnp.zeros((1, 6, 6)))


def test_patches_of_a_vit_are_laid_out_without_the_class_token():
    x = np.random.default_rng(0).random((2, 1, 1 + 12, 5), np.float32)
    gradient = np.random.default_rng(1).random((2, 1, 1 + 12, 5), np.float32)
    maps = grad_cam.maps(jnp.asarray(x), jnp.asarray(gradient), 9, 12)
    x_grid, gradient_grid = (
        jnp.asarray(tokens[:, 0, 1:].reshape(2, 3, 4, 5)) for tokens in (x, gradient)
    )
    np.testing.assert_array_equal(maps, grad_cam.maps(x_grid, gradient_grid, 9, 12))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["preact_resnet18", "vit"])
def test_networks_have_maps_in_0_to_1(name):
    if name == "vit":
        net = models.vit.ViT(4, width=16, heads=2, patch=4, depth=4)
    else:
        net = models.MODELS[name](4, width=4)
    image = jax.random.uniform(KEY, (2, 16, 16, 3))
    variables = jax.jit(net.init)(KEY, image)
    maps = jax.jit(lambda x: grad_cam.image_maps(net, variables, x, "stage3"))(image)
    assert maps.shape == (2, 16, 16)
    assert bool(jnp.isfinite(maps).all()) and 0 <= maps.min() and maps.max() <= 1


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
def read_released():
    """Return the network of tests/oracles/distortion.py, its variables, and its results."""
    stored = np.load(drawn.ORACLES / "distortion.npz")
    constants = dict(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
    net = models.MODELS["preact_resnet18"](10, **constants)
    return net, drawn.variables(net, 32, 1.3), stored


@functools.cache
def compute_activations():
    """Return the activations at stage 3, and their gradient, for all images."""
    net, variables, stored = read_released()
    image = jnp.asarray(stored["images"], jnp.float32) / 255
    pull = functools.partial(
        taps.site_gradient, site="stage3", score=lambda z: z.max(-1)
    )
    return jax.jit(lambda image: pull(net, variables, image))(image)


@pytest.mark.slow
def test_maps_equal_those_of_the_released_code():
    stored = read_released()[2]["maps"]
    assert stored.shape == (6, 32, 32) and (stored.max((1, 2)) > 0.5).all()
    np.testing.assert_allclose(
        grad_cam.maps(*compute_activations(), 32, 32), stored, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("order", ["most", "least"])
def test_pixels_are_hidden_as_in_the_released_code(order):
    """Differences: ties in 8 bits, and the rounding of the number of least salient pixels."""
    net, variables, stored = read_released()
    occlusion_probe = occlusion.make(
        masks=("grad_cam",), orders=(order,), fractions=(0.3,), quantise=True
    )
    network = inference.BoundJaxNetwork(
        net.apply, variables, lambda *_: compute_activations()
    )
    rows = np.arange(6, dtype=np.int32)
    batch = inference.Batch(stored["images"], rows, rows, rows, 6)
    stimuli = inference.make_stimuli(
        network, occlusion_probe, batch, f"grad_cam {order} 0.3"
    )
    is_hidden = (np.asarray(stimuli) == 0).all(-1)
    released_hidden = (
        np.unpackbits(stored[f"{order} hidden"]).reshape(is_hidden.shape) > 0
    )
    quantised_maps = np.floor(255 * stored["maps"])
    for quantised, a, b in zip(quantised_maps, is_hidden, released_hidden, strict=True):
        assert (a.sum(), b.sum()) == (308, 308 if order == "most" else 307)
        edge = quantised[b].min() if order == "most" else quantised[b].max()
        assert set(quantised[a != b]) <= {edge, edge + 1}
