"""FMix's masks: equal to the release's, spectra, and dependence on ranks."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import fmix
from tests import cases

KEY = jax.random.key(4)
ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "fmix.npz"


@pytest.fixture(scope="module")
def oracle():
    with np.load(ORACLE) as stored:
        return dict(stored)


@pytest.mark.slow
@cases.each("case", range(11))
def test_released_masks_equal_the_releases_to_the_pixel(case, oracle):
    """Square, oblong, odd and wide, hard and soft masks, from the release's draws."""
    height, width, decay, lam, up, max_soft = oracle["cases"][case]
    height, width = int(height), int(width)
    normal = oracle[f"{case}/normal"]
    assert normal.shape == fmix.noise_shape(height, width, "released")

    @jax.jit
    def make_mask(normal, lam):
        grey = fmix.field(normal, height, width, decay=decay, spectrum="released")
        return grey, fmix.binarise(grey, lam, bool(up), max_soft=max_soft)

    grey, mask = make_mask(normal, jnp.float32(lam))
    np.testing.assert_allclose(grey, oracle[f"{case}/grey"], atol=1e-5)
    # Hard masks to the bit; a ramp's values up to their rounding.
    np.testing.assert_allclose(
        mask, oracle[f"{case}/mask"], atol=1e-6 if max_soft else 0
    )


SIZES = [(32, 32), (24, 40), (17, 15)]


@functools.cache
def fields(height, width, decay=3.0, spectrum="isotropic"):
    """Return 600 grey images."""
    normal = jax.random.normal(KEY, (600, *fmix.noise_shape(height, width, spectrum)))

    @jax.jit
    @jax.vmap
    def draw_fields(normal):
        return fmix.field(normal, height, width, decay=decay, spectrum=spectrum)

    return np.asarray(draw_fields(normal))


def power(greys):
    spectral = np.fft.rfft2(greys - greys.mean((1, 2), keepdims=True))
    return np.abs(spectral) ** 2


@cases.each("decay", [3.0, 1.5])
@cases.each("size", SIZES[:2])
def test_isotropic_power_falls_as_twice_the_decay(size, decay):
    """Log power has slope -2 decay in log frequency, in every direction."""
    height, width = size
    greys = fields(height, width, decay)
    f = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1])[None, :])
    log_power = np.log(power(greys) + 1e-30).mean(0)
    # Columns 0 and the last are folded; below one cycle a mask the power is flat.
    inner = np.zeros(f.shape, bool)
    inner[:, 1:-1] = True
    inner &= f >= 1 / max(size)
    line = scipy.stats.linregress(np.log(f[inner]), log_power[inner])
    assert line.slope == pytest.approx(-2 * decay, abs=0.03)
    # log of an exponential variate has deviation pi / sqrt(6).
    residuals = log_power - line.intercept - line.slope * np.log(np.maximum(f, 1e-9))
    assert np.abs(residuals[inner]).max() < 5 * np.pi / np.sqrt(6 * 600)


@pytest.mark.slow
@cases.each("size", SIZES)
def test_released_fields_have_one_cycle_across(size):
    height, width = size
    released = power(fields(height, width, spectrum="released"))
    assert released[:, :, 1].sum() > 1
    assert released[:, :, 2:].max() < 1e-6 * released.max()
    isotropic = power(fields(height, width))
    assert isotropic[:, :, 2:].sum() > 0.01 * isotropic.sum()


@pytest.mark.slow
@cases.each("spectrum", fmix.SPECTRA)
@cases.each("size", SIZES)
def test_fields_span_zero_to_one(size, spectrum):
    height, width = size
    greys = fields(height, width, spectrum=spectrum)
    assert greys.shape[1:] == size
    np.testing.assert_array_equal(greys.min((1, 2)), 0)
    np.testing.assert_allclose(greys.max((1, 2)), 1, rtol=1e-6)


@pytest.fixture(scope="module")
def grey():
    return fields(24, 40)[0]


@cases.each("lam", [0.0, 1e-4, 0.3, 0.5, 0.99, 1.0])
def test_masks_are_binary_with_the_drawn_mean(lam, grey):
    """Means are rounded to whole pixels; the lightest pixels are 1."""
    n = grey.size
    for up, round_count in ((True, np.ceil), (False, np.floor)):
        mask = np.asarray(fmix.binarise(grey, jnp.float32(lam), up))
        assert set(np.unique(mask)) <= {0.0, 1.0}
        assert mask.sum() == round_count(np.float32(lam) * np.float32(n))
        if 0 < mask.mean() < 1:
            assert grey[mask == 1].min() >= grey[mask == 0].max()


@cases.each("monotone", [np.exp, np.cbrt, lambda x: 3 * x - 1])
def test_masks_depend_on_ranks_only(monotone):
    grey = np.random.default_rng(0).permutation(960).reshape(24, 40) / 960
    lam = jnp.float32(0.4)
    for soft in (0.0, 0.2):
        expected = fmix.binarise(jnp.asarray(grey), lam, True, max_soft=soft)
        mask = fmix.binarise(jnp.asarray(monotone(grey)), lam, True, max_soft=soft)
        np.testing.assert_array_equal(mask, expected)


@cases.each("lam", [0.02, 0.4, 0.97])
def test_soft_masks_keep_the_mean(lam, grey):
    mask = np.asarray(fmix.binarise(grey, jnp.float32(lam), False, max_soft=0.2))
    assert abs(mask.mean() - lam) <= 1 / grey.size + 1e-6
    between = ((mask > 1e-6) & (mask < 1 - 1e-6)).sum()
    soft = int(grey.size * min(0.2, lam, 1 - lam))
    # A ramp from 1 to 0 over 2 soft ranks has both ends.
    assert between == 2 * soft - 2


def test_counts_are_rounded_up_half_the_time():
    """5 x 5 pixels and lam = 0.5: 12 or 13."""
    batch = {"image": jnp.zeros((2, 5, 5, 3))}
    draw = fmix.mix_sampler(1.0)

    @jax.jit
    @jax.vmap
    def drawn(key):
        mask, lam = draw(key, batch, False)
        return mask.sum(), lam

    count, lam = (np.asarray(x) for x in drawn(jax.random.split(KEY, 2000)))
    up = count > 25 * lam
    assert (np.abs(count - 25 * lam) < 1 + 1e-4).all()
    assert abs(up.mean() - 0.5) < 4 * 0.5 / 2000**0.5
    assert scipy.stats.kstest(lam, "uniform").pvalue > 0.001


@cases.each(
    ("options", "words"),
    [
        ({"spectrum": "white"}, "spectrum must be one of isotropic, released"),
        ({"max_soft": 0.7}, r"max_soft must be in \[0, 0.5\], got 0.7"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=f"fmix: {words}"):
        fmix.make(**options)
