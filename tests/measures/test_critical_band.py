"""The critical band: fits, thresholds and intervals against published values and scipy."""

import functools
import math
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

from jbias import evals
from jbias.measures import critical_band
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


def test_equal_harm_of_all_octaves_has_no_band():
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


@cases.each(
    "thresholds",
    [[0, 0, 0, 4, 0, 0, 0], [0, 0, 0, 0, 0, 0, 3], [1, 0, 0, 0, 0, 0, 0]],
)
def test_one_octave_does_not_determine_the_width(thresholds):
    band = evals.critical_band_fit(thresholds)
    assert band.flag == "narrow"
    assert not band.converged
    assert math.isnan(band.bandwidth) and math.isnan(band.center_frequency)
    assert band.residual == pytest.approx(0, abs=1e-6)


@cases.each(
    ("thresholds", "flag"),
    [
        ([3, 1, 0, 0, 0, 0, 1], ""),
        ([1, 2, 2, 2, 3, 3, 3], ""),  # 114.5: within half an octave of 112.
        ([0, 0, 1, 1, 1, 2, 2], "center_above"),
        ([2, 2, 1, 1, 1, 0, 0], "center_below"),
        ([2, 4, 0, 3, 1, 0, 3], "center_below"),
    ],
)
def test_a_centre_outside_the_octaves_is_undefined(thresholds, flag):
    band = evals.critical_band_fit(thresholds)
    assert band.flag == flag
    assert band.converged == (flag == "")
    numbers = [getattr(band, metric) for metric in critical_band.METRICS]
    assert np.isnan(numbers).all() == (flag != "")
    assert band.residual > 0


@cases.each(
    ("thresholds", "residual", "bandwidth", "centre"),
    [
        # By scipy.optimize.brute, as in the test below.
        ([0, 3, 3, 2, 0, 1, 3], 11.006439, 2.3231, 6.1194),
        ([0, 0, 0, 2, 0, 3, 4], 4.255625, 2.0069, 93.305),
        ([0, 0, 1, 1, 0, 2, 1], 2.000002, 0.829, 74.6),
    ],
)
def test_the_lowest_of_several_minima_is_the_fit(
    thresholds, residual, bandwidth, centre
):
    band = evals.critical_band_fit(thresholds)
    assert band.converged
    assert band.residual == pytest.approx(residual, abs=2e-6)
    assert band.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    assert band.center_frequency == pytest.approx(centre, rel=1e-3)


def squares(t: np.ndarray, mu, log_s, highest: float):
    """Return the residual sum of squares of the best height at each mu and s."""
    f = np.arange(len(t))
    mu, log_s = np.broadcast_arrays(mu, log_s)
    distances = (f - mu[..., None]) / np.exp(log_s)[..., None]
    shape = np.exp(-(distances**2) / 2)
    a = (shape @ t) / np.maximum((shape**2).sum(-1), 1e-300)
    a = np.clip(a, 0, highest)[..., None]
    return ((a * shape - t) ** 2).sum(-1)


def least_squares_left(t: np.ndarray, highest: float, seed: int) -> float:
    """Return the least residual sum of squares of scipy's optimisers and a constant.

    Optimisers: differential evolution on a wide range, which misses narrow minima, and a grid
    within the octaves followed by the simplex method.
    """
    n = len(t)
    evolved = scipy.optimize.differential_evolution(
        lambda x: squares(t, x[0], x[1:2], highest).T,
        [(-3.0 * n, 4.0 * n), (np.log(0.1), np.log(100))],
        popsize=40,
        maxiter=150,
        seed=seed,
        tol=1e-12,
        vectorized=True,
        updating="deferred",
    )
    _, on_grid, *_ = scipy.optimize.brute(
        lambda x: float(squares(t, x[0], x[1], highest)),
        [slice(-1, n, 0.1), slice(-1.5, 3, 0.1)],
        full_output=True,
    )
    constant = np.clip(t.mean(), 0, highest)
    return min(float(evolved.fun), float(on_grid), float(((t - constant) ** 2).sum()))


@pytest.mark.parametrize(
    "count", [pytest.param(4), pytest.param(150, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("highest", [4, 5])
def test_fits_leave_no_more_than_those_of_scipys_optimisers(count, highest):
    """Whole thresholds up to 4, and continuous ones up to 5."""
    rng = np.random.default_rng(3)
    values = rng.uniform(0, 5, (count, 7))
    if highest == 4:
        values = np.floor(values)
        values[:2] = [0, 3, 3, 2, 0, 1, 3], [0, 0, 0, 2, 0, 3, 4]
    *_, left, _ = critical_band.fit_gaussians(values, highest=highest)
    for i, t in enumerate(values):
        assert left[i] <= least_squares_left(t, highest, seed=i) + 1e-6


@pytest.mark.parametrize("octaves", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_fits_of_all_thresholds_are_the_best_on_a_fine_grid(octaves):
    values = np.stack(np.meshgrid(*[np.arange(5.0)] * octaves), -1)
    values = values.reshape(-1, octaves)
    a, _, s, left, converged = critical_band.fit_gaussians(values, highest=4)
    points = np.linspace(-5, octaves + 4, 121)[:, None, None]
    widths = np.geomspace(0.15, 60, 60)[:, None]
    shape = np.exp(-((np.arange(octaves) - points) ** 2) / (2 * widths**2))
    shape = shape.reshape(-1, octaves)
    shape_squares = (shape**2).sum(-1) + 1e-300
    for rows in np.array_split(np.arange(len(values)), 1 + len(values) // 300):
        with_t = values[rows] @ shape.T
        height = np.clip(with_t / shape_squares, 0, 4)
        least = (height * (height * shape_squares - 2 * with_t)).min(1)
        least += (values[rows] ** 2).sum(1)
        assert (left[rows] <= least + 1e-6).all()
    is_reliable = (s > 0.25) & (s < 100)
    assert converged[is_reliable].all()
    np.testing.assert_array_less(a, 4 + 1e-12)


def test_thresholds_in_reverse_give_the_mirrored_band():
    values = np.random.default_rng(8).integers(0, 5, (200, 7)).astype(float)
    _, mu, s, left, converged = critical_band.fit_gaussians(values, highest=4)
    mirrored = critical_band.fit_gaussians(values[:, ::-1], highest=4)
    np.testing.assert_allclose(mirrored[3], left, atol=1e-6)
    # If two minima are equally low, either is right.
    is_same_minimum = converged & (abs(mirrored[2] / s - 1) < 1e-3)
    assert is_same_minimum.sum() > 180
    np.testing.assert_allclose(
        mirrored[1][is_same_minimum], 6 - mu[is_same_minimum], rtol=1e-3, atol=1e-3
    )


def test_the_end_of_an_interval_outside_the_octaves_is_undefined():
    """Draws above the octaves count as above all centres among them."""
    inside = [
        critical_band.CriticalBand(2.0, centre, 0.5, 0.1, True, "")
        for centre in np.linspace(10, 20, 91)
    ]
    above = [critical_band.CriticalBand(residual=1.0, flag="center_above")] * 9
    undefined_bands = [critical_band.CriticalBand(flag="flat")] * 100

    def interval(metric, bands, value=15.0):
        numbers = critical_band.band_interval("x", metric, bands, n=50, value=value)
        assert [number.metric for number in numbers] == [
            "x_lower",
            "x_upper",
            "x_undefined",
        ]
        return [number.value for number in numbers]

    low, high, undefined = interval(
        "center_frequency", inside + above + undefined_bands
    )
    ends = np.quantile(np.linspace(10, 20, 91), [0.025 / 0.91, 0.975])
    assert low == pytest.approx(ends[0], abs=0.1)
    assert high is None
    assert undefined == pytest.approx(109 / 200)
    low, high, undefined = interval("bandwidth", inside + above + undefined_bands)
    assert (low, high) == (2, 2) and undefined == pytest.approx(109 / 200)
    low, high, undefined = interval("center_frequency", inside + undefined_bands)
    assert high == pytest.approx(ends[1]) and undefined == pytest.approx(100 / 191)
    for metric in critical_band.METRICS:  # An undefined number has no interval.
        assert interval(metric, inside, value=np.nan) == [None, None, 0]


def test_older_records_without_a_flag_get_one():
    frequencies = critical_band.octave_frequencies(224)
    for width, centre, flag in (
        (2.0, 276205.0, "center_above"),
        (2.0, 0.1, "center_below"),
        (0.3, 14.0, "narrow"),
        (10.4565, 114.495, ""),
    ):
        assert critical_band.flag_of_numbers(width, centre, frequencies) == flag


@cases.each("side", [32, 64, 224])
def test_a_band_of_known_shape_is_recovered(side):
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
    """No (mu, s), with its best a, has a smaller residual, for random threshold vectors."""
    values = np.random.default_rng(0).integers(0, 5, (60, 7)).astype(float)
    *_, left, _ = critical_band.fit_gaussians(values, highest=4)
    f = np.arange(7)
    mu = np.linspace(-30, 40, 281)[:, None, None]
    s = np.geomspace(0.06, 60, 150)[:, None]
    shape = np.exp(-((f - mu) ** 2) / (2 * s**2))
    shape_squares = (shape**2).sum(-1) + 1e-300
    for t, residual in zip(values, left):
        with_t = (shape * t).sum(-1)
        a = np.clip(with_t / shape_squares, 0, 4)
        least = (t @ t + a**2 * shape_squares - 2 * a * with_t).min()
        assert residual <= least + 1e-9
        assert residual >= 0


def test_octaves_are_halvings_of_half_the_side():
    assert critical_band.octave_frequencies(224) == (1.75, 3.5, 7, 14, 28, 56, 112)
    assert critical_band.octave_frequencies(64) == (2, 4, 8, 16, 32)
    assert critical_band.octave_frequencies(32) == (2, 4, 8, 16)


def test_published_accuracies_give_the_published_thresholds_and_band():
    thresholds = critical_band.threshold_indices(RESNET50)
    assert thresholds.tolist() == [0, 0, 2, 2, 3, 4, 2]
    band = evals.critical_band_fit(thresholds)
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
    thresholds = critical_band.threshold_indices(np.array(list(columns), float).T)
    np.testing.assert_array_equal(thresholds, list(columns.values()))


def test_normalised_tables_have_their_largest_at_100():
    table = RESNET50 / 2
    assert critical_band.normalised(table).max() == 100
    np.testing.assert_allclose(
        critical_band.normalised(table), critical_band.normalised(RESNET50)
    )
    assert np.isnan(critical_band.normalised(np.zeros((5, 7)))).all()


@cases.each("n", [21, 24, 29, 97])
def test_half_of_the_largest_accuracy_is_not_above_the_threshold(n):
    """The criterion is strict, and no rounding of shares moves a count over it."""
    for largest in range(2, n + 1, 2):
        table = np.zeros((5, 7))
        table[0], table[1] = 100 * largest / n, 100 * (largest // 2) / n
        thresholds = critical_band.threshold_indices(critical_band.normalised(table))
        assert (thresholds == 4).all()


def test_continuous_thresholds_find_a_planted_curve():
    crossings = np.array([0.01, 0.03, 0.0566, 0.12, 0.5])
    sigma = np.array(critical_band.SIGMAS)[1:, None]
    # Half of a clean accuracy of 100: the curve's middle is where it crosses.
    noisy = 100 / (1 + (sigma / crossings) ** 3)
    thresholds = critical_band.continuous_thresholds(
        np.vstack([np.full(5, 100.0), noisy])
    )
    expected = np.clip(0.5 - np.log2(crossings / 0.16), 0, 5)
    np.testing.assert_allclose(thresholds, expected, atol=2e-3)


@pytest.mark.parametrize(
    "count", [pytest.param(20), pytest.param(400, marks=pytest.mark.slow)]
)
def test_continuous_thresholds_are_of_the_best_logistic_curve(count):
    """No curve on a fine grid fits better than those that cross at the thresholds."""
    rng = np.random.default_rng(1)
    strength = np.log2(np.array(critical_band.SIGMAS[1:]) / 0.16)
    columns = rng.uniform(0, 100, (5, count))
    columns[0] = rng.uniform(60, 100, count)
    # Two minima each: from the higher, thresholds would be 2.89 and 1.48.
    columns[:, 0] = 80.5404964, 1.9235334, 81.9394766, 84.5604983, 10.4392007
    columns[:, 1] = 71.2319208, 61.1901446, 46.8586216, 71.7327898, 27.6290550
    thresholds = critical_band.continuous_thresholds(columns)
    middle, slope = np.linspace(-8, 8, 401)[:, None], np.linspace(-2, 4, 201)[None]
    for threshold, (clean, *noisy) in zip(thresholds, columns.T, strict=True):
        total, crossing = 0, middle + np.log(clean / 50 - 1) / 2**slope
        for at, accuracy in zip(strength, noisy, strict=True):
            power = np.clip(2**slope * (at - middle), -700, 700)
            total = total + (clean / (1 + np.exp(power)) - accuracy) ** 2
        is_near = np.abs(np.clip(0.5 - crossing, 0, 5) - threshold) < 0.05
        # A step of the grid from the best point costs little.
        assert total[is_near].min() <= total.min() + 0.01 * total.min() + 0.5


def test_continuous_thresholds_round_to_the_indices():
    """For accuracies that fall steeply and steadily, both kinds of threshold agree."""
    crossings = np.array([0.015, 0.0283, 0.0566, 0.113, 0.2])
    sigma = np.array(critical_band.SIGMAS)[1:, None]
    noisy = 90 / (1 + (sigma / crossings) ** 8)
    table = np.vstack([np.full(5, 90.0), noisy])
    between = critical_band.continuous_thresholds(table)
    indices = critical_band.threshold_indices(table)
    np.testing.assert_array_equal(np.minimum(np.round(between), 4), indices)


def test_thresholds_are_the_highest_without_accuracy_on_clean_images():
    thresholds = critical_band.continuous_thresholds(
        np.array([[40, math.nan], [0, 9], [0, 9], [0, 9], [0, 9]], float)
    )
    np.testing.assert_array_equal(thresholds, [5, math.nan])


@cases.each(
    ("thresholds", "message"),
    [
        ([1, 2, 3], "side 224 have 7 octaves"),
        ([0, 0, 0, 5, 0, 0, 0], r"in \[0, 4\]"),
        ([0, 0, 0, -1, 0, 0, 0], r"in \[0, 4\]"),
        ([0, 0, 0, math.inf, 0, 0, 0], r"in \[0, 4\]"),
    ],
)
def test_wrong_thresholds_are_refused(thresholds, message):
    with pytest.raises(ValueError, match=f"critical_band_fit: .*{message}"):
        evals.critical_band_fit(thresholds)


def test_three_octaves_are_too_few_for_a_fit():
    with pytest.raises(ValueError, match="critical_band_fit: a fit needs 4 octaves"):
        evals.critical_band_fit([1, 2, 1], side=16)
    assert evals.critical_band_fit([1, 3, 2, 1], side=17).converged
