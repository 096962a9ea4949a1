"""Corruptions on the device equal those of the host for the same random draws."""

import functools
import pathlib

import jax
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

from jbias.augment import corrupt, corruption_draws, jpeg
from jbias.data import corruptions
from jbias.data.corruptions import device_filters, host_operations
from tests import cases

ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "corruptions.npz"
KNOWN = tuple(corruptions.KNOWN)
# Shares of values that may be off by more than 1. There float32 puts a value on the other
# side of a threshold, or a ray of light meets a pole; glass is cut to bytes twice.
JUMPS = dict.fromkeys(
    ("caustic_refraction", "cocentric_sine_waves", "checkerboard_cutout", "spatter")
    + ("blue_noise_sample", "snow"),
    2e-3,
) | {"glass_blur": 0.03, "shot_noise": 5e-5}
# Shares that may be off by 1: values that are whole in exact arithmetic, such as those
# of even regions, which the host's may miss from below.
TIES = dict.fromkeys(
    ("brightness", "glass_blur", "frost", "gaussian_blur", "zoom_blur"), 0.1
) | {"saturate": 0.25, "defocus_blur": 0.25}


class Scripted:
    """A generator for the host that returns the device's draws, in the host's order."""

    def __init__(self, name, drawn, row):
        values = [np.asarray(x, float) for x in drawn]
        if name == "glass_blur":  # There counted from the end of the sweep.
            start = row[1] - 1
            values = [u[::-1, ::-1][start:, start:] for u in values[0]]
        self.values = iter(values)

    def random(self, size=()):
        shape = np.atleast_1d(size).astype(int)
        value = next(self.values)[tuple(slice(n) for n in shape)]
        assert value.shape == tuple(shape)
        return value

    standard_normal = random

    def uniform(self, low, high, size=()):
        return low + (high - low) * self.random(size)

    def normal(self, mean, sigma, size=()):
        return mean + sigma * self.random(size)

    def integers(self, low, high=None, size=()):
        low, high = (0, low) if high is None else (low, high)
        scaled = self.random(size).astype(np.float32) * np.float32(high - low)
        return low + np.floor(scaled).astype(int)

    def poisson(self, mean):
        return stats.poisson.ppf(self.random(mean.shape), mean)

    def permutation(self, items):
        if isinstance(items, int):
            return self.random(items).argsort(kind="stable")
        return items[::-1] if self.random() >= 0.5 else items


@pytest.fixture(scope="module")
def ice(tmp_path_factory):
    """Write a folder of photographs of noise, of several sizes; return its path."""
    folder, rng = tmp_path_factory.mktemp("ice"), np.random.default_rng(0)
    for i, name in enumerate(host_operations.FROSTS):
        image = rng.integers(0, 256, (330 + 5 * i, 350 - 5 * i, 3), np.uint8)
        Image.fromarray(image).save(folder / name, "PNG")
    return folder


@functools.cache
def picture(side, seed):
    """Return an image with smooth colours, edges, noise, and a patch of greys."""
    rng = np.random.default_rng(seed)
    field = ndimage.gaussian_filter(rng.standard_normal((side, side, 3)), (4, 4, 0))
    field = 128 + 60 * field / field.std() + rng.normal(0, 4, field.shape)
    field[side // 3 : side // 2, side // 4 : side // 2] = (200, 40, 90)
    field[: side // 8, : side // 8] = 100
    field[: side // 8, -side // 8 :] = 0
    field[-side // 8 :, : side // 8] = 255
    image = np.clip(field, 0, 255).astype(np.uint8)
    image.flags.writeable = False
    return image


@functools.cache
def program(name, side):
    """Return (images, keys, settings) -> draws and bytes, compiled once for all
    severities.
    """

    def run(images, keys, settings):
        draw = corruption_draws.DRAWS[name]
        out = corrupt.corrupt_batch(images, keys, name, settings)
        return jax.vmap(lambda key: draw(key, side))(keys), out * 255

    return jax.jit(run)


def check(name, side, severities, ice):
    images = np.stack([picture(side, seed) for seed in (0, 1)])
    keys = jax.random.split(jax.random.key(side), 2)
    run = program(name, side)
    for severity in severities:
        settings = corruptions.settings(name, severity, side=side, frost=ice)
        drawn, out = jax.device_get(run(np.float32(images) / 255, keys, settings))
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, np.rint(out), atol=1e-4)
        row = corruptions.severity_settings(name, side)[severity - 1]
        for i, image in enumerate(images):
            rng = Scripted(name, [leaf[i] for leaf in drawn], row)
            host = corruptions.corrupt(image, name, severity, rng, frost=ice)
            difference = np.abs(np.rint(out[i]) - host)
            assert (difference > 1).mean() <= JUMPS.get(name, 0), (
                severity,
                difference.max(),
            )
            assert difference.max() <= 2 or name != "glass_blur", severity
            assert (difference > 0).mean() <= TIES.get(name, 0.01), severity
        assert run._cache_size() == 1
    # The same bits again, and in another place of the batch.
    swapped = run(np.float32(images[::-1]) / 255, keys[::-1], settings)[1]
    np.testing.assert_array_equal(swapped[::-1], out)
    return out


@pytest.mark.slow
@cases.each(
    "name",
    KNOWN,
    quick=(
        "fog",
        "pixelate",
        "contrast",
    ),
)
def test_results_equal_the_hosts_at_32(name, ice):
    check(name, 32, corruptions.SEVERITIES, ice)


@cases.each(
    "name",
    KNOWN,
    quick=(
        "checkerboard_cutout",
        "pixelate",
        "contrast",
    ),
)
def test_results_equal_the_hosts_at_64(name, ice):
    check(name, 64, (1, 4), ice)


@cases.each(
    "name",
    ("gaussian_blur", "glass_blur", "fog", "pixelate"),
    quick=(
        "gaussian_blur",
        "pixelate",
    ),
)
def test_results_equal_the_hosts_at_224(name, ice):
    check(name, 224, (2, 5), ice)


@pytest.mark.slow
@cases.each("name", KNOWN)
def test_all_results_equal_the_hosts_at_224(name, ice):
    check(name, 224, corruptions.SEVERITIES, ice)


@pytest.mark.slow
@cases.each(
    "name",
    ("glass_blur", "gaussian_blur", "shot_noise"),
    quick=(
        "gaussian_blur",
        "shot_noise",
    ),
)
def test_an_image_alone_equals_the_image_in_a_batch(name):
    images = np.stack([picture(32, seed) for seed in range(2)]) / np.float32(255)
    keys = jax.random.split(jax.random.key(0), 2)
    settings = corruptions.settings(name, 3, side=32)
    run = program(name, 32)
    _, batch = run(images, keys, settings)
    _, single = run(images[1:], keys[1:], settings)
    np.testing.assert_array_equal(single[0], batch[1])


def test_settings_may_be_arrays_of_the_host():
    """Settings may be NumPy arrays, indexed by traced values."""
    images = np.stack([picture(32, seed) for seed in range(2)]) / np.float32(255)
    keys = jax.random.split(jax.random.key(0), 2)
    settings = corruptions.settings("zoom_blur", 1, side=32)
    out = corrupt.corrupt_batch(images, keys, "zoom_blur", settings) * 255
    _, compiled = program("zoom_blur", 32)(images, keys, settings)
    assert np.abs(out - compiled).max() < 1.01
    assert (np.abs(out - compiled) < 0.01).mean() > 0.999


@cases.each(
    "name",
    ("brightness", "contrast", "defocus_blur", "gaussian_blur", "pixelate", "saturate")
    + ("zoom_blur",),
)
def test_results_are_close_to_the_released_codes(name):
    """Every fifth pixel is as close to the released code's as the host's pixel."""
    with np.load(ORACLE) as stored:
        image, answers = stored["picture/32"], stored[f"32/{name}"]
    images, keys = np.stack([image] * 2), jax.random.split(jax.random.key(0), 2)
    for severity, expected in enumerate(answers, 1):
        settings = corruptions.settings(name, severity, side=32)
        _, out = program(name, 32)(np.float32(images) / 255, keys, settings)
        difference = np.abs(np.rint(out[0, ::5, ::5]) - expected)
        assert difference.max() <= 1 and (difference > 0).mean() <= 0.06, severity


NORMAL = {
    corruption_draws.DRAWS[name]: leaves
    for name, leaves in {
        "gaussian_noise": {0},
        "snow": {0},
        "spatter": {0},
        "sparkles": {2, 3, 4, 5, 6},
        "inverse_sparkles": {2},
    }.items()
}


@cases.each(
    "draw",
    dict.fromkeys(corruption_draws.DRAWS.values()),
    quick=("draw_fog", "draw_snow"),
)
def test_draws_are_uniform_or_normal(draw):
    keys = jax.random.split(jax.random.key(3), 400)
    drawn = jax.vmap(lambda key: draw(key, 8))(keys)
    for i, leaf in enumerate(drawn):
        # Few values per key: rounding does not affect the largest of few values.
        flat = np.asarray(leaf).reshape(400, -1)[:, :50].ravel()
        law = stats.norm if i in NORMAL.get(draw, ()) else stats.uniform
        assert stats.kstest(flat, law.cdf).pvalue > 1e-3, i
        assert len(np.unique(flat)) > 0.99 * len(flat)


@pytest.mark.slow
def test_shot_noise_counts_photons():
    """Mean and variance are those of Poisson(count x) / count."""
    level, count = 102, 60  # 0.4 of white.
    images = np.full((40, 32, 32, 3), level / 255, np.float32)
    settings = corruptions.settings("shot_noise", 1, side=32, table=224)
    keys = jax.random.split(jax.random.key(0), 40)
    out = corrupt.corrupt_batch(images, keys, "shot_noise", settings, quantise=False)
    n = out.size
    assert np.mean(out) == pytest.approx(0.4, abs=5 * (0.4 / count / n) ** 0.5)
    assert np.var(out) == pytest.approx(0.4 / count, rel=5 * (2 / n) ** 0.5 + 1e-3)


def test_quantised_images_are_clipped_and_others_are_not():
    images = picture(32, 0)[None] / np.float32(255)
    keys = jax.random.split(jax.random.key(0), 1)
    settings = corruptions.settings("gaussian_noise", 5, side=32, table=224)
    run = jax.jit(corrupt.corrupt_batch, static_argnames=("name", "quantise"))
    unquantised = 255 * run(images, keys, "gaussian_noise", settings, quantise=False)
    quantised = 255 * run(images, keys, "gaussian_noise", settings)
    assert unquantised.min() < -20 and unquantised.max() > 275
    np.testing.assert_allclose(
        quantised, np.floor(np.clip(unquantised, 0, 255)), atol=1.001
    )
    assert (
        np.abs(np.floor(np.clip(unquantised, 0, 255)) - quantised) < 0.01
    ).mean() > 0.998
    tables = device_filters.jpeg(85)
    stored = run(images, keys, "gaussian_noise", settings, stored=tables)
    expected = host_operations.compressed(np.rint(quantised[0]).astype(np.uint8), 85)
    np.testing.assert_array_equal(np.rint(stored[0] * 255), expected)
    with pytest.raises(ValueError, match="stored images are bytes; set quantise=True"):
        corrupt.corrupt_batch(
            images, keys, "contrast", settings, quantise=False, stored=tables
        )


@cases.each(
    "side",
    [28, 33, 64],
    quick=(
        "64",
        "33",
    ),
)
def test_jpeg_equals_pillows(side):
    noise = np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)
    coded = jax.jit(jpeg.round_trip)
    for image in (picture(side, 3), noise):
        for quality in (5, 25, 50, 85, 95):
            out = coded(np.float32(image), device_filters.jpeg(quality))
            expected = host_operations.compressed(image, quality)
            np.testing.assert_array_equal(out, expected)
