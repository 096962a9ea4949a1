"""The Laplacian pyramid: equal to plain loops, and to values of the authors' tool."""

import numpy as np
import pytest

from jbias.measures import pyramid
from tests import cases

# specs: checked there against the tool that the authors used.
IMPULSE_RMS = [
    4.152360e-3,
    6.625731e-4,
    2.715967e-4,
    1.298400e-4,
    6.811126e-5,
    3.423223e-5,
    2.866704e-5,
]
IMPULSE_CENTRE = [0.911865, 0.071138, 0.013008, 0.003007, 0.000775, 0.000150, 0.000057]
WAVES_RMS = [0.131776, 0.070081, 0.131098, 0.164007, 0.022038, 0.012795, 0.017810]
NOISE_RMS = [0.9426, 0.1466, 0.0626, 0.0312, 0.0161, 0.0085, 0.0068]


def rms(x):
    return np.sqrt(np.mean(np.square(x), axis=(-2, -1)))


def band(image, level):
    """Return one level of the pyramid at full size."""
    upper, lower = pyramid.level_matrices(image.shape[-1])[level : level + 2]
    return upper @ image @ upper.T - lower @ image @ lower.T


def bands(image):
    levels = range(len(pyramid.sizes(image.shape[-1])))
    return np.stack([band(image, level) for level in levels])


def down(a):
    """Return a halved image by plain loops: mirror, correlate and drop every second sample."""
    for _ in range(2):
        padded = np.pad(a, ((0, 0), (2, 2)), mode="reflect")
        smooth = [np.correlate(row, pyramid.KERNEL, "valid") for row in padded]
        a = np.array(smooth)[:, ::2].T
    return a


def up(a, side):
    """Return an image of the given side by plain loops: insert zeros, mirror and correlate."""
    for _ in range(2):
        spread = np.zeros((side, a.shape[1]))
        spread[::2] = a
        padded = np.pad(spread.T, ((0, 0), (2, 2)), mode="reflect")
        a = np.array([np.correlate(row, pyramid.KERNEL, "valid") for row in padded])
    return a


@cases.each("side", [28, 37, 64])
def test_bands_equal_those_of_the_pyramid(side):
    image = np.random.default_rng(side).standard_normal((side, side))
    sizes, level_images = pyramid.sizes(side), [image]
    for _ in sizes[1:]:
        level_images.append(down(level_images[-1]))
    for level, (size, expected) in enumerate(zip(sizes, level_images)):
        assert expected.shape == (size, size)
        if level < len(sizes) - 1:
            expected = expected - up(level_images[level + 1], size)
        for larger in reversed(sizes[:level]):
            expected = up(expected, larger)
        np.testing.assert_allclose(band(image, level), expected, atol=1e-13)


def test_an_impulse_spreads_as_published():
    image = np.zeros((224, 224))
    image[112, 112] = 1
    impulse_bands = bands(image)
    np.testing.assert_allclose(rms(impulse_bands), IMPULSE_RMS, rtol=5e-7)
    np.testing.assert_allclose(impulse_bands[:, 112, 112], IMPULSE_CENTRE, atol=6e-7)
    np.testing.assert_allclose(impulse_bands.sum(0), image, atol=1e-15)


def test_two_waves_fall_into_bands_as_published():
    i, j = np.mgrid[:224, :224] / 224
    wave_bands = bands(
        0.5 * np.sin(2 * np.pi * 7 * j) + 0.25 * np.cos(2 * np.pi * 40 * i)
    )
    np.testing.assert_allclose(rms(wave_bands), WAVES_RMS, atol=6e-7)


def test_white_noise_has_the_published_rms_in_each_band():
    band_rms = rms(bands(np.random.default_rng(0).standard_normal((20, 224, 224))))
    # The published values are means of 40 draws.
    error = band_rms.std(1) * np.sqrt(1 / 20 + 1 / 40)
    assert (abs(band_rms.mean(1) - NOISE_RMS) < 4 * error + 5e-5).all()
    assert (error[:4] < 0.02 * band_rms.mean(1)[:4]).all()


def test_levels_halve_the_side_until_four():
    assert pyramid.sizes(224) == (224, 112, 56, 28, 14, 7, 4)
    assert pyramid.sizes(64) == (64, 32, 16, 8, 4)
    assert pyramid.sizes(32) == (32, 16, 8, 4)
    assert pyramid.sizes(28) == (28, 14, 7, 4)


def test_the_centroid_is_the_mean_frequency_of_noise_in_the_band():
    noise = np.random.default_rng(1).standard_normal((400, 32, 32))
    frequency = np.fft.fftfreq(32, 1 / 32)
    radius = np.hypot(frequency[:, None], frequency)
    for level, noise_band in enumerate(bands(noise)):
        power = (abs(np.fft.fft2(noise_band)) ** 2).mean(0)
        expected = (radius * power).sum() / power.sum()
        assert pyramid.centroid(32, level) == pytest.approx(expected, rel=0.02)


def test_centroids_are_within_the_half_power_range_of_their_band():
    """The half-power ranges are those of 224 pixels."""
    lowest = [40, 14, 7, 4, 2, 0, 0]
    highest = [160, 36, 18, 10, 5, 3, 2]
    for level in range(7):
        assert lowest[level] <= pyramid.centroid(224, level) <= highest[level]
