"""Tone corruptions equal colorsys and formulas, warps obey laws, encodings equal OpenCV's."""

import colorsys

import cv2
import numpy as np
import pytest
from scipy import ndimage

from jbias.data import corruptions
from jbias.data.corruptions import digital
from jbias.data.corruptions import host_operations as host
from tests import cases

SEVERITIES = corruptions.SEVERITIES


def colours():
    """Return random colours, with greys, black and white among them."""
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    image[:4] = image[:4, :, :1]
    image[0, 0], image[0, 1] = 0, 255
    return image


def corrupt(image, name, severity, *, table=None):
    rng = np.random.default_rng(severity)
    return corruptions.corrupt(image, name, severity, rng, table=table)


def elastic(image, rng, *, alpha, sigma):
    """Return the bytes of elastic_transform without jitter."""
    smoother = host.smoother(len(image), sigma)
    out = digital.elastic_transform(
        image, rng, host, alpha=alpha, smoother=smoother, jitter=0
    )
    return host.truncated(out)


def through_hsv(image, change):
    out = np.empty(image.shape)
    for place in np.ndindex(image.shape[:2]):
        hsv = colorsys.rgb_to_hsv(*(image[place] / 255))
        out[place] = colorsys.hsv_to_rgb(*change(*hsv))
    return np.floor(out * 255)


def assert_close(got, expected):
    """Assert equality up to one level: fractions that rounding puts below a whole number
    are cut off.
    """
    off = np.abs(got - expected)
    assert off.max() <= 1 and (off > 0).mean() < 0.1


@cases.each("severity", SEVERITIES)
def test_brightness_adds_to_value(severity):
    image, added_value = colours(), severity / 10
    expected = through_hsv(image, lambda h, s, v: (h, s, min(v + added_value, 1)))
    assert_close(corrupt(image, "brightness", severity, table=224), expected)


@pytest.mark.parametrize(
    ("side", "rows"),
    [
        (224, ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))),
        (32, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
    ],
)
def test_saturate_scales_saturation(side, rows):
    image = colours()
    for severity, (times, plus) in enumerate(rows, 1):
        expected = through_hsv(
            image, lambda h, s, v, a=times, b=plus: (h, min(s * a + b, 1), v)
        )
        assert_close(corrupt(image, "saturate", severity, table=side), expected)


def test_saturate_turns_greys_red():
    grey = np.full((224, 224, 3), 100, np.uint8)
    np.testing.assert_array_equal(corrupt(grey, "saturate", 3), grey)
    assert corrupt(grey, "saturate", 5)[0, 0] == pytest.approx([100, 80, 80], abs=1)


@cases.each("severity", SEVERITIES)
def test_contrast_scales_about_each_channels_mean(severity):
    image = np.random.default_rng(0).integers(40, 180, (224, 224, 3), np.uint8)
    scale = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    mean = image.mean((0, 1))
    expected = mean + scale * (image - mean)
    np.testing.assert_allclose(
        corrupt(image, "contrast", severity), np.floor(expected), atol=1
    )


@pytest.mark.parametrize(("severity", "block"), [(2, 2), (5, 4)])
def test_pixelate_averages_whole_blocks(severity, block):
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    blocks = image.reshape(224 // block, block, 224 // block, block, 3)
    mean = blocks.mean((1, 3), keepdims=True)
    expected = np.broadcast_to(mean, blocks.shape).reshape(image.shape)
    # Pillow rounds after each axis.
    np.testing.assert_allclose(corrupt(image, "pixelate", severity), expected, atol=1)


@cases.each(("side", "count"), [(224, 67), (64, 38), (32, 24)])
def test_pixelate_leaves_the_published_number_of_columns(side, count):
    ramp = np.broadcast_to(np.linspace(0, 255, side)[None, :, None], (side, side, 3))
    out = corrupt(ramp.astype(np.uint8), "pixelate", 4)
    assert (np.diff(out[0, :, 0].astype(int)) != 0).sum() <= side
    assert len(np.unique(out[0, :, 0])) == pytest.approx(count, rel=0.5)
    assert (out[0] == out[-1]).all()


@cases.each("severity", SEVERITIES)
@cases.each(
    ("side", "qualities"), [(224, (25, 18, 15, 10, 7)), (32, (80, 65, 58, 50, 40))]
)
def test_jpeg_equals_opencvs(severity, side, qualities):
    noise = np.random.default_rng(0).standard_normal((side, side, 3))
    image = np.clip(128 + 400 * ndimage.gaussian_filter(noise, (4, 4, 0)), 0, 255)
    image = image.astype(np.uint8)
    quality = [cv2.IMWRITE_JPEG_QUALITY, qualities[severity - 1]]
    code = cv2.imencode(".jpg", image[..., ::-1], quality)[1]
    expected = cv2.imdecode(code, cv2.IMREAD_COLOR)[..., ::-1]
    out = corrupt(image, "jpeg_compression", severity)
    # The same coefficients; decoders may round apart.
    np.testing.assert_allclose(out, expected.astype(int), atol=2)


@cases.each("sigma", [0, 2.4, 19.5, 170.8])
def test_smoother_is_scipys_filter(sigma):
    field = np.random.default_rng(0).random((64, 64))
    matrix = host.smoother(64, sigma)
    expected = ndimage.gaussian_filter(field, sigma, mode="reflect", truncate=3)
    np.testing.assert_allclose(matrix @ field @ matrix.T, expected, atol=1e-12)
    np.testing.assert_allclose(matrix.sum(1), 1)


def test_elastic_without_displacement_is_affine():
    """At 32 pixels and severity 1, planes stay planes within the frame."""
    y, x = np.mgrid[:32, :32]
    image = np.stack([4 * x + 60, 4 * y + 60, 2 * x + 2 * y + 60], -1)
    out = corrupt(image.astype(np.uint8), "elastic_transform", 1).astype(float)
    inner = out[8:-8, 8:-8]
    for axis in (0, 1):  # Within the cut of fractions.
        assert np.abs(np.diff(inner, n=2, axis=axis)).max() <= 2
    assert np.abs(out - image).mean() > 2
    np.testing.assert_allclose(inner[..., 2], inner[..., :2].mean(-1), atol=1.5)


def test_elastic_keeps_the_image_without_jitter_and_displacement():
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    out = elastic(image, np.random.default_rng(0), alpha=0, sigma=1.0)
    assert np.abs(out.astype(int) - image).max() <= 1


def test_elastic_displaces_by_its_settings():
    """Smoothed U(-1, 1) noise has the deviation 1 / (sqrt(3) 2 sqrt(pi) sigma)."""
    y, x = np.mgrid[:224, :224]
    image = np.stack([x, y, x], -1).astype(np.uint8)
    sigma, shifts = 2.44, []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        out = elastic(image, rng, alpha=29.28, sigma=sigma).astype(float)
        shifts.append((out - image)[30:-30, 30:-30, :2] + 0.5)
    expected = 29.28 / (np.sqrt(12 * np.pi) * sigma)
    assert np.std(shifts) == pytest.approx(expected, rel=0.05)
    assert np.mean(shifts) == pytest.approx(0, abs=0.2)
    across, along = np.stack(shifts)[..., 0].ravel(), np.stack(shifts)[..., 1].ravel()
    assert abs(np.corrcoef(across, along)[0, 1]) < 0.1
