"""Weather: laws of the plasma fractal, and effects of snow, fog and spatter on uniform
images.
"""

import math

import numpy as np
import pytest

from jbias.data import corruptions
from jbias.data.corruptions import host_operations as host
from jbias.data.corruptions import weather
from tests import cases


def uniform_image(value, side=64):
    return np.full((side, side, 3), value, np.uint8)


def corrupt(image, name, severity, seed=0):
    return corruptions.corrupt(image, name, severity, np.random.default_rng(seed))


def residuals(heights, step):
    """Return the differences of the centres of squares `step` wide from their corners, on
    the torus.
    """
    corners = heights[::step, ::step]
    rows = corners + np.roll(corners, -1, 0)
    mean = (rows + np.roll(rows, -1, 1)) / 4
    return heights[step // 2 :: step, step // 2 :: step] - mean


@cases.each("decay", [1.4, 2, 3])
def test_plasma_adds_uniform_noise_that_falls_with_the_step(decay):
    heights = weather.plasma(np, np.random.default_rng(0), 9, decay)
    fine, coarse = residuals(heights, 2), residuals(heights, 4)
    assert np.abs(fine).max() / fine.std() == pytest.approx(math.sqrt(3), rel=0.02)
    # The width is squared, so the noise falls by the square of the decay.
    assert coarse.std() / fine.std() == pytest.approx(decay**2, rel=0.03)
    odd = heights[::2, 1::2]
    cross = heights[1::2, 1::2] + np.roll(heights[1::2, 1::2], 1, 0)
    cross += heights[::2, ::2] + np.roll(heights[::2, ::2], -1, 1)
    assert (odd - cross / 4).std() == pytest.approx(fine.std(), rel=0.02)


@cases.each("levels", [5, 6, 8])
def test_plasma_is_scaled_and_periodic(levels):
    seams, inside = [], []
    for seed in range(10):
        heights = weather.plasma(np, np.random.default_rng(seed), levels, 3)
        assert heights.min() == 0 and heights.max() == 1
        seams.append(np.abs(heights[-1] - heights[0]).mean())
        inside.append(np.abs(np.diff(heights, axis=0)).mean())
    assert np.mean(seams) < 1.5 * np.mean(inside)


@cases.each("severity", [1, 2, 3, 4, 5])
def test_fog_keeps_the_brightest_and_black(severity):
    thick = (0.4, 0.7, 1, 1.5, 2)[severity - 1]
    out = corrupt(uniform_image(255), "fog", severity)
    assert out.max() >= 254 and out.min() == pytest.approx(255 / (1 + thick), abs=1)
    assert (corrupt(uniform_image(0), "fog", severity) == 0).all()
    np.testing.assert_array_equal(out[..., 0], out[..., 2])


@cases.each("severity", [1, 2, 3, 4, 5])
def test_snow_looks_equal_upside_down(severity):
    keep = (0.8, 0.7, 0.7, 0.65, 0.55)[severity - 1]
    out = corrupt(uniform_image(0, 224), "snow", severity)
    np.testing.assert_array_equal(out, out[::-1, ::-1])
    assert out.min() >= int(255 * (1 - keep) * 0.5)
    assert out.std() > 5


def test_snow_falls_downwards():
    """Snowflakes are smeared along a line within 45 degrees of vertical."""
    steep = []
    for seed in range(5):
        flakes = corrupt(uniform_image(0, 224), "snow", 3, seed)[..., 0].astype(float)
        down, right = (np.abs(np.diff(flakes, axis=axis)).mean() for axis in (0, 1))
        steep.append(down < right)
    assert sum(steep) >= 4


def test_snow_whitens_by_the_grey():
    image = uniform_image((200, 40, 90), 64)
    out = corrupt(image, "snow", 1).min((0, 1))
    grey = (0.299 * 200 + 0.587 * 40 + 0.114 * 90) / 255
    x = np.array([200, 40, 90]) / 255
    lifted = 0.8 * x + 0.2 * np.maximum(x, 1.5 * grey + 0.5)
    np.testing.assert_allclose(out, 255 * lifted, atol=1)


@cases.each("severity", [1, 2, 3])
def test_water_is_pale_turquoise_light(severity):
    out = corrupt(uniform_image(0, 224), "spatter", severity).astype(float)
    np.testing.assert_array_equal(out[..., 1], out[..., 2])
    np.testing.assert_allclose(out[..., 0], out[..., 1] * 175 / 238, atol=1)
    strength = (0.6, 0.6, 0.5)[severity - 1]
    assert out.max() == pytest.approx(238 * strength, abs=1)
    assert (out == 0).mean() > 0.3


@pytest.mark.parametrize("severity", [4, 5])
def test_mud_is_brown_and_covers(severity):
    out = corrupt(uniform_image(255, 224), "spatter", severity).astype(int)
    off = 255 - out
    assert off.max((0, 1)) == pytest.approx([255 - 63, 255 - 42, 255 - 20], abs=1)
    assert (off[off > 0] >= 0.8 * (255 - 63) - 1).all()  # Thin mud is left away.
    assert 0.02 < (off > 0).mean() < 0.5


def test_spatter_without_drops_changes_nothing():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    rng = np.random.default_rng(0)
    for mud in (False, True):
        row = {"mean": 0.5, "sigma": 0.01, "blur": 1.0, "least": 0.9, "strength": 0.6}
        settings = weather.prepare_spatter(host, 32, row | {"mud": mud}, ())
        out = weather.spatter(image, rng, host, **settings)
        np.testing.assert_array_equal(host.truncated(out), image)
