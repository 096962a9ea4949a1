import functools
import math
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias import evals
from jbias.evals import critical_band
from tests import cases

PUBLISHED = pathlib.Path(__file__).parents[2] / "examples" / "published"
# specs: accuracies of ResNet-50 among 16 classes, by sigma (rows) and octave.
RESNET50 = np.array(
    [
        [90.0, 85.7, 96.7, 96.9, 90.2, 96.4, 90.6],
        [93.1, 87.1, 71.0, 70.0, 66.7, 40.0, 94.4],
        [87.9, 76.5, 82.8, 65.5, 44.4, 9.4, 69.2],
        [94.6, 87.5, 48.4, 27.8, 15.6, 12.5, 28.6],
        [86.2, 53.1, 33.3, 15.0, 5.3, 3.1, 4.3],
    ]
)


@functools.cache
def published() -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / "critical_band.csv")


def digits(word: str) -> list[int]:
    return [int(digit) for digit in word.removeprefix("t")]


def test_published_vectors_give_the_published_bands():
    table = published()
    regular = table[table["center_frequency"].notna()]
    assert len(regular) == 25
    for _, row in regular.iterrows():
        band = evals.critical_band_fit(digits(row["thresholds"]))
        assert band.converged
        assert band.flag == ""
        for name in ("bandwidth", "center_frequency", "peak_noise_sensitivity"):
            # Printed to four digits: 0.5167 is known to 1e-4 of itself.
            assert getattr(band, name) == pytest.approx(row[name], rel=1.1e-4)


def test_nothing_but_noise_is_harmful_has_no_band():
    band = evals.critical_band_fit([4] * 7)
    assert band.flag == "all_critical"
    assert math.isnan(band.bandwidth)
    assert math.isnan(band.center_frequency)
    assert math.isnan(band.peak_noise_sensitivity)
    (row,) = published()[published()["center_frequency"].isna()].itertuples()
    assert digits(row.thresholds) == [4] * 7
    # Where the authors' optimiser stopped on its way to infinity.
    assert row.bandwidth == pytest.approx(11295.35, abs=0.005)


def test_equal_thresholds_have_no_band():
    assert evals.critical_band_fit([0] * 7).flag == "no_critical_band"
    assert evals.critical_band_fit([2] * 7).flag == "flat"
    # Nothing narrower than thousands of octaves fits as well: the mean is best.
    assert evals.critical_band_fit([3, 2, 2, 0, 0, 3, 3]).flag == "flat"
    assert evals.critical_band_fit([0, 0, math.nan, 4, 0, 0, 0]).flag == "unknown"


def test_one_octave_alone_does_not_tell_the_width():
    band = evals.critical_band_fit([0, 0, 0, 4, 0, 0, 0])
    assert not band.converged
    assert band.residual == pytest.approx(0, abs=1e-6)


@cases.each("side", [32, 64, 224])
def test_a_band_of_known_shape_is_found(side):
    frequencies = critical_band.octave_frequencies(side)
    f = np.arange(len(frequencies))
    band = evals.critical_band_fit(
        3 * np.exp(-((f - 1.7) ** 2) / (2 * 1.1**2)), side=side
    )
    assert band.bandwidth == pytest.approx(2.3548200450309493 * 1.1, rel=1e-6)
    assert band.center_frequency == pytest.approx(frequencies[0] * 2**1.7, rel=1e-6)
    assert band.peak_noise_sensitivity == pytest.approx(0.5, rel=1e-6)
    assert band.residual < 1e-12


def test_fits_are_the_best_on_a_fine_grid():
    """No (mu, s) with its best a leaves less, over random threshold vectors."""
    values = np.random.default_rng(0).integers(0, 5, (60, 7)).astype(float)
    *_, left, _ = critical_band.fit_gaussians(values, highest=4)
    f = np.arange(7)
    mu = np.linspace(-30, 40, 281)[:, None, None]
    s = np.geomspace(0.06, 60, 150)[:, None]
    shape = np.exp(-((f - mu) ** 2) / (2 * s**2))
    own = (shape**2).sum(-1) + 1e-300
    for t, residual in zip(values, left):
        with_t = (shape * t).sum(-1)
        a = np.clip(with_t / own, 0, 4)
        least = (t @ t + a**2 * own - 2 * a * with_t).min()
        assert residual <= least + 1e-9
        assert residual >= 0


def test_octaves_are_halvings_of_half_the_side():
    assert critical_band.octave_frequencies(224) == (1.75, 3.5, 7, 14, 28, 56, 112)
    assert critical_band.octave_frequencies(64) == (2, 4, 8, 16, 32)
    assert critical_band.octave_frequencies(32) == (2, 4, 8, 16)


def test_published_accuracies_give_the_published_thresholds_and_band():
    found = critical_band.threshold_indices(RESNET50)
    assert found.tolist() == [0, 0, 2, 2, 3, 4, 2]
    band = evals.critical_band_fit(found)
    assert round(band.bandwidth, 2) == 3.99
    assert round(band.center_frequency, 2) == 39.42
    assert round(band.peak_noise_sensitivity, 2) == 0.71


def test_thresholds_count_failures_from_the_loudest_down():
    columns = {
        (90, 90, 90, 90, 90): 0,
        (90, 90, 90, 60, 50): 1,  # 50 does not pass 50.
        (90, 10, 10, 60, 10): 1,
        (90, 10, 10, 10, 10): 4,
        (10, 10, 10, 10, 10): 4,
        (90, 60, 10, 10, 10): 3,
        (90, 60, math.nan, 10, 10): math.nan,
    }
    found = critical_band.threshold_indices(np.array(list(columns), float).T)
    np.testing.assert_array_equal(found, list(columns.values()))


def test_normalised_tables_have_their_largest_at_100():
    table = RESNET50 / 2
    assert critical_band.normalised(table).max() == 100
    np.testing.assert_allclose(
        critical_band.normalised(table), critical_band.normalised(RESNET50)
    )
    assert np.isnan(critical_band.normalised(np.zeros((5, 7)))).all()


@cases.each("n", [21, 24, 29, 97])
def test_the_half_of_the_largest_does_not_pass(n):
    """The criterion is strict, and no rounding of shares moves a count over it."""
    for largest in range(2, n + 1, 2):
        table = np.zeros((5, 7))
        table[0], table[1] = 100 * largest / n, 100 * (largest // 2) / n
        found = critical_band.threshold_indices(critical_band.normalised(table))
        assert (found == 4).all()


def test_continuous_thresholds_find_a_planted_curve():
    crossings = np.array([0.01, 0.03, 0.0566, 0.12, 0.5])
    sigma = np.array(critical_band.SIGMAS)[1:, None]
    # Half of a clean accuracy of 100: the curve's middle is where it crosses.
    noisy = 100 / (1 + (sigma / crossings) ** 3)
    found = critical_band.continuous_thresholds(np.vstack([np.full(5, 100.0), noisy]))
    expected = np.clip(0.5 - np.log2(crossings / 0.16), 0, 5)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_continuous_thresholds_round_to_the_indices():
    """Where accuracies fall steeply and steadily the two readings agree."""
    crossings = np.array([0.015, 0.0283, 0.0566, 0.113, 0.2])
    sigma = np.array(critical_band.SIGMAS)[1:, None]
    noisy = 90 / (1 + (sigma / crossings) ** 8)
    table = np.vstack([np.full(5, 90.0), noisy])
    between = critical_band.continuous_thresholds(table)
    indices = critical_band.threshold_indices(table)
    np.testing.assert_array_equal(np.minimum(np.round(between), 4), indices)


def test_what_is_not_recognised_clean_is_beyond_the_highest():
    found = critical_band.continuous_thresholds(
        np.array([[40, math.nan], [0, 9], [0, 9], [0, 9], [0, 9]], float)
    )
    np.testing.assert_array_equal(found, [5, math.nan])


@cases.each(
    ("thresholds", "complaint"),
    [
        ([1, 2, 3], "side 224 have 7 octaves"),
        ([0, 0, 0, 5, 0, 0, 0], r"in \[0, 4\]"),
        ([0, 0, 0, -1, 0, 0, 0], r"in \[0, 4\]"),
    ],
)
def test_wrong_thresholds_are_refused(thresholds, complaint):
    with pytest.raises(ValueError, match=f"critical_band_fit: .*{complaint}"):
        evals.critical_band_fit(thresholds)
