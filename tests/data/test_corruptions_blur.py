"""Blurs equal other ways of computing them, and leave uniform images unchanged."""

import math

import numpy as np
import pytest
from scipy import ndimage

from jbias.data import corruptions
from jbias.data.corruptions import blur
from jbias.data.corruptions import host_operations as host
from tests import cases

BLURS = ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur")


@cases.each("name", BLURS)
def test_uniform_colour_is_unchanged(name):
    image = np.full((224, 224, 3), (10, 130, 240), np.uint8)
    for severity in corruptions.SEVERITIES:
        rng = np.random.default_rng(severity)
        out = corruptions.corrupt(image, name, severity, rng).astype(float)
        gain = 1.013 if name == "defocus_blur" and severity > 3 else 1
        np.testing.assert_allclose(out, image * gain, atol=1.5)


@cases.each("sigma", [1, 2, 3, 4, 6])
def test_gaussian_has_its_width(sigma):
    field = np.zeros((65, 65))
    field[32, 32] = 1
    out = host.filtered(field, host.gaussian(65, sigma))
    y, x = np.mgrid[-32:33, -32:33]
    assert out.sum() == pytest.approx(1)
    # Cut at 4 sigma, it lacks 0.1 % of the variance.
    assert (out * x**2).sum() == pytest.approx(sigma**2, rel=0.002)
    assert (out * x * y).sum() == pytest.approx(0, abs=1e-9)


def test_gaussian_repeats_edges():
    field = np.random.default_rng(0).random((20, 20, 3))
    padded = np.pad(field, ((9, 9), (9, 9), (0, 0)), mode="edge")
    gaussian = host.gaussian(20, 2)
    out = host.filtered(padded, gaussian)[9:-9, 9:-9]
    np.testing.assert_allclose(host.filtered(field, gaussian), out, atol=1e-12)


@cases.each(("radius", "alias", "points"), [(3, 0.1, 29), (4, 0.5, 49), (6, 0.5, 113)])
def test_disk_is_even_and_sums_to_one(radius, alias, points):
    kernel = host.disk(224, radius, alias)
    assert kernel.shape == (17, 17)
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert kernel[8, 8] == pytest.approx(1 / points, rel=1e-5)
    np.testing.assert_allclose(kernel, kernel.T, atol=1e-8)
    np.testing.assert_allclose(kernel, kernel[::-1], atol=1e-8)
    second = (kernel * np.arange(-8, 9) ** 2).sum()
    assert second == pytest.approx(radius**2 / 4, rel=0.2)


def test_disk_at_its_border_is_mirrored():
    assert host.disk(224, 8, 0.5).sum() == pytest.approx(1.013, abs=5e-4)
    assert host.disk(224, 10, 0.5).shape == (21, 21)
    assert host.disk(224, 10, 0.5).sum() == pytest.approx(1.011, abs=5e-4)


@cases.each("radius", [1, 2, 4])
def test_glass_copies_in_the_order_of_the_sweep(radius):
    side = 20
    x = np.arange(side * side).reshape(side, side)
    inner = side - 2 * radius
    drawn = np.random.default_rng(radius).integers(-radius, radius, (inner, inner, 2))
    columns, rows = drawn[..., 0], drawn[..., 1]
    expected = x.copy()
    for i, h in enumerate(range(side - radius, radius, -1)):
        for j, w in enumerate(range(side - radius, radius, -1)):
            expected[h, w] = expected[h + rows[i, j], w + columns[i, j]]
    rng = np.random.default_rng(radius)
    offsets = host.glass_offsets(rng, radius, 1, side=side)[0]
    origins = blur.glass_origins(offsets, radius, host)
    np.testing.assert_array_equal(origins.reshape(side, side), expected)
    assert (expected != x).mean() > 0.3


@cases.each("degrees", [-135, -90, -45, -20, 0, 33, 45])
def test_motion_blurs_in_one_direction(degrees):
    field = np.zeros((81, 81))
    field[40, 40] = 1e6
    out = blur.along_line(field, host, host.line(10, 5.0), degrees)
    kernel = host.motion_kernel(10, 5.0)
    assert kernel.sum() == pytest.approx(1) and len(kernel) == 21
    assert kernel[5] / kernel[0] == pytest.approx(math.exp(-0.5))
    assert out.sum() == pytest.approx(1e6, rel=1e-4)
    y, x = np.mgrid[-40:41, -40:41]
    mean_distance = (kernel * np.arange(21)).sum()
    turn = math.radians(degrees)
    # Each step is rounded to half a pixel at most.
    assert (out * x).sum() / 1e6 == pytest.approx(
        -mean_distance * math.cos(turn), abs=0.5
    )
    assert (out * y).sum() / 1e6 == pytest.approx(
        -mean_distance * math.sin(turn), abs=0.5
    )


def test_motion_repeats_edges_and_cuts_fractions():
    field = np.tile(np.arange(40.0), (40, 1))
    out = blur.along_line(field, host, host.line(6, 2.0), 0.0)
    kernel = host.motion_kernel(6, 2.0)
    expected = [kernel @ np.minimum(x + np.arange(13), 39) for x in range(40)]
    np.testing.assert_array_equal(
        out, np.tile(np.floor(np.array(expected) + 1e-9), (40, 1))
    )


@cases.each("side", [32, 64, 224])
def test_zoom_is_scipys_trimmed(side):
    field = np.random.default_rng(0).random((side, side, 3))
    for factor in (1.0, 1.01, 1.13, 1.25, 1.3, 2.25, 3.0, 4.5):
        crop = math.ceil(side / factor)
        top = (side - crop) // 2
        centre = field[top : top + crop, top : top + crop]
        grown = ndimage.zoom(centre, (factor, factor, 1), order=1)
        trim = (len(grown) - side) // 2
        expected = grown[trim : trim + side, trim : trim + side]
        np.testing.assert_allclose(host.zoomed(field, factor), expected, atol=1e-9)


def test_zoom_blur_keeps_the_centre_and_smears_the_rim():
    y, x = np.mgrid[:224, :224] - 111.5
    rays = np.where(np.arctan2(y, x) % (np.pi / 4) < np.pi / 8, 255, 0)
    rings = np.where(np.hypot(y, x) % 8 < 4, 255, 0)
    rng = np.random.default_rng(0)

    def blur_grey(pattern):
        image = np.repeat(pattern[..., None], 3, -1).astype(np.uint8)
        return corruptions.corrupt(image, "zoom_blur", 5, rng)[..., 0]

    blurred_rays, blurred_rings = blur_grey(rays), blur_grey(rings)
    rim = np.hypot(y, x) > 60
    assert np.abs(blurred_rays - rays.astype(float))[rim].mean() < 10
    assert blurred_rings[rim].std() < 0.4 * rings[rim].std()
