"""Corruption noises have the moments and probabilities of their settings."""

import numpy as np
import pytest
from scipy import stats

from jbias.data import corruptions
from tests import cases

N = 224 * 224 * 3


def noisy(name, severity, level):
    image = np.full((224, 224, 3), level, np.uint8)
    return corruptions.corrupt(image, name, severity, np.random.default_rng(severity))


def cut(x):
    return np.floor(np.clip(x, 0, 1) * 255)


@cases.each("level", [60, 128, 220])
@cases.each(
    ("name", "sigmas"),
    [
        ("gaussian_noise", (0.08, 0.12, 0.18, 0.26, 0.38)),
        ("speckle_noise", (0.15, 0.2, 0.35, 0.45, 0.6)),
    ],
)
def test_normal_noises_are_clipped_normals(name, sigmas, level):
    quantiles = stats.norm.ppf((np.arange(N) + 0.5) / N)
    for severity, sigma in enumerate(sigmas, 1):
        out = noisy(name, severity, level)
        sigma *= level / 255 if name == "speckle_noise" else 1
        expected = cut(level / 255 + sigma * quantiles)
        # Five standard errors of a mean and, at kurtosis 3, of a deviation.
        assert out.mean() == pytest.approx(
            expected.mean(), abs=5 * 255 * sigma / N**0.5
        )
        assert out.std() == pytest.approx(expected.std(), rel=5 / (2 * N) ** 0.5)


def test_shot_noise_counts_photons():
    for severity, count in enumerate((60, 25, 12, 5, 3), 1):
        out = noisy("shot_noise", severity, 102)  # 0.4 of white.
        photons = np.arange(100)
        weights = stats.poisson.pmf(photons, 0.4 * count)
        values = cut(photons / count)
        mean = weights @ values
        deviation = (weights @ (values - mean) ** 2) ** 0.5
        assert out.mean() == pytest.approx(mean, abs=5 * deviation / N**0.5)
        assert out.std() == pytest.approx(deviation, rel=0.02)
        assert set(np.unique(out)) <= set(values)


def test_impulses_hit_channels_independently_and_both_extremes_equally():
    for severity, chance in enumerate((0.03, 0.06, 0.09, 0.17, 0.27), 1):
        out = noisy("impulse_noise", severity, 100)
        is_changed = out != 100
        error = 5 * (chance / N) ** 0.5
        assert is_changed.mean() == pytest.approx(chance, abs=error)
        assert (out == 0).mean() == pytest.approx(chance / 2, abs=error)
        assert (out == 255).mean() == pytest.approx(chance / 2, abs=error)
        joint_rate = (is_changed[..., 0] & is_changed[..., 1]).mean()
        assert joint_rate == pytest.approx(chance**2, abs=5 * chance / 224)
