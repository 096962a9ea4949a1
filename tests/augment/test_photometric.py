"""Jitter, greys, blur and lighting: formulas, limits, and shares of images."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy import ndimage

from jbias import augment
from jbias.augment import photometric, random_numbers
from tests import cases

KEY = jax.random.key(8)
B = 8
RNG = np.random.default_rng(0)
IMAGE = RNG.uniform(size=(B, 12, 10, 3)).astype(np.float32)
IMAGE[1] = IMAGE[1, ..., :1]  # Grey: without a hue.
IMAGE[2, 0, 0] = (1, 0, 0)
BATCH = {"image": jnp.asarray(IMAGE), "index": jnp.arange(B)}
LUMA = np.array([0.2989, 0.587, 0.114])


def apply_transform(name, batch=BATCH, **options):
    return np.asarray(jax.jit(augment.AUGMENTS[name](**options))(batch, KEY)["image"])


NULLS = {
    "colour_jitter": [
        {"p": 0},
        dict(brightness=0, contrast=0, saturation=0, hue=0),
    ],
    "grayscale": [{"p": 0}],
    "blur": [{"p": 0}],
    "lighting": [{"std": 0}],
}


@cases.each(
    ("name", "options"), [(n, o) for n, several in NULLS.items() for o in several]
)
def test_null_settings_change_nothing(name, options):
    make = augment.AUGMENTS[name]
    assert make(**options)(BATCH, KEY) is BATCH


@pytest.mark.slow
@cases.each("name", ["colour_jitter", "grayscale", "blur"])
def test_a_share_of_the_images_is_changed(name):
    """A traced probability of 0 changes no bit."""
    repeated = {"image": jnp.asarray(np.tile(IMAGE[:1], (2000, 1, 1, 1)))}
    changed = (apply_transform(name, repeated, p=0.3) != IMAGE[0]).any((1, 2, 3))
    assert abs(changed.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 2000)
    make = augment.AUGMENTS[name]
    never = jax.jit(lambda p: make(p=p)(BATCH, KEY)["image"])(0.0)
    np.testing.assert_array_equal(never, IMAGE)


def blend(x, away, factor):
    return np.clip(factor * x + (1 - factor) * away, 0, 1)


def jitter_by_definition(x, order, factors, shift):
    """Return the jittered image by the definitions, in float64 and colorsys."""
    x = x.astype(np.float64)
    for which in order:
        grey = (x * LUMA).sum(-1, keepdims=True)
        if which == 3:
            turned = [_rotate_hue(pixel, shift) for pixel in x.reshape(-1, 3)]
            x = np.reshape(turned, x.shape)
        else:
            x = blend(x, [0, grey.mean(), grey][which], factors[which])
    return x


def _rotate_hue(pixel, hue_shift):
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return colorsys.hsv_to_rgb((hue + hue_shift) % 1, saturation, value)


def test_jitter_equals_its_definition():
    """All four changes, in the order and with the amounts that each image draws."""
    strength = np.array([0.4, 0.5, 1.2])
    jittered_images = apply_transform(
        "colour_jitter", brightness=0.4, contrast=0.5, saturation=1.2, hue=0.3
    )
    draw = jax.vmap(lambda k: random_numbers.uniforms(k, (), (3,), (), (4,)))
    _, share, turn, place = (np.asarray(u) for u in draw(random_numbers.keys(KEY, B)))
    low = np.maximum(1 - strength, 0)
    factors, orders = low + share * (1 + strength - low), np.argsort(place)
    assert len({tuple(order) for order in orders}) > B // 2
    for i in range(B):
        expected = jitter_by_definition(
            IMAGE[i], orders[i], factors[i], 0.3 * (2 * turn[i] - 1)
        )
        np.testing.assert_allclose(jittered_images[i], expected, atol=2e-5)


def test_greys_are_luma():
    greys = apply_transform("grayscale", p=1.0)
    expected = (IMAGE * LUMA).sum(-1, keepdims=True)
    np.testing.assert_allclose(greys, np.broadcast_to(expected, IMAGE.shape), atol=1e-6)


@pytest.mark.slow
@cases.each(
    ("sigma", "radius"),
    [(0.1, 1), (0.8, 3), (2.0, 5)],
    quick=(
        "0.1",
        "0.8",
    ),
)
def test_blur_equals_scipys(sigma, radius):
    """SciPy's Gaussian with the same truncation and mirrored borders."""
    blurred = photometric.gaussian_blur(BATCH["image"][0], jnp.float32(sigma), radius)
    expected = ndimage.gaussian_filter(
        IMAGE[0].astype(float), sigma, mode="mirror", radius=radius, axes=(0, 1)
    )
    np.testing.assert_allclose(blurred, expected, atol=2e-6)


def test_blur_radii_are_at_most_a_tenth_of_the_height(monkeypatch):
    radii = []

    def gaussian(image, sigma, radius):
        radii.append(radius)
        return image

    monkeypatch.setattr(photometric, "gaussian_blur", gaussian)
    for side in (8, 32, 64, 224):
        shape = {"image": jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)}
        jax.eval_shape(photometric.blur(), shape, KEY)
    assert radii == [1, 1, 3, 11]


def test_blur_keeps_flat_images():
    flat = {"image": jnp.full((B, 12, 12, 3), 0.7)}
    np.testing.assert_allclose(apply_transform("blur", flat, p=1.0), 0.7, rtol=1e-6)


def test_lighting_shifts_along_the_axes_of_colours():
    """Coordinates of an image's shift on the axes are normal with their deviations."""
    grey = {"image": jnp.full((4000, 2, 2, 3), 0.5)}
    shift = apply_transform("lighting", grey) - 0.5
    np.testing.assert_array_equal(shift, np.broadcast_to(shift[:, :1, :1], shift.shape))
    axes, values = (
        np.array(photometric._COLOUR_AXES),
        np.array(photometric._COLOUR_DEVIATIONS),
    )
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=2e-3)  # Orthonormal.
    along = shift[:, 0, 0] @ axes / values
    for coordinate in along.T:
        assert scipy.stats.kstest(coordinate / 0.1, "norm").pvalue > 0.001


@cases.each(
    ("name", "options", "message"),
    [
        ("colour_jitter", {"hue": 0.6}, "hue must be in"),
        ("colour_jitter", {"contrast": -1}, "contrast must be in"),
        ("colour_jitter", {"p": 2}, "p must be in"),
        ("grayscale", {"p": -0.1}, "p must be in"),
        ("blur", {"sigma": (2.0, 0.1)}, "sigma must be in"),
        ("blur", {"kernel": 2}, "kernel must be in"),
        ("lighting", {"std": -1}, "std must be in"),
    ],
)
def test_bad_options_are_refused_in_one_line(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        augment.AUGMENTS[name](**options)
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)
