"""Input that no test can use raises a one-line error, instead of NaN or p = 0."""

import math

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.stats import correlation, score_table, two_sample
from tests import cases

RUNS = np.random.default_rng(0).normal(size=(6, 3, 4))
UP = dict(larger_is_better=True)
FRAME = pd.DataFrame(RUNS[:, :, 0], columns=["a", "b", "c"])
HOLES = FRAME.where(FRAME != FRAME.iloc[0])
OTHER = pd.DataFrame({"method": ["x"], "dataset": ["p"], "score": [1.0]})


def wins(value):
    return np.array([[0, value, 3], [1, 0, 2], [1, 1, 0]])


def power(**changed):
    return stats.power_of_design(RUNS, **{"difference": 1, "draws": 100, **changed})


REFUSED = [
    (
        lambda: two_sample.exchange([1, math.nan, 3], [0, 1]),
        "exchange: the statistic must be finite .* got nan for the observed",
    ),
    (
        lambda: two_sample.exchange([1, math.inf], [0, 1], np.ptp),
        "exchange: the statistic must be finite",
    ),
    (
        lambda: two_sample.exchange([1], [0], draws=0),
        "draws: must be at least 1, got 0",
    ),
    (lambda: stats.mixed_model(RUNS, confidence=1.5, **UP), "confidence: .* got 1.5"),
    (
        lambda: stats.hierarchical_t(RUNS, rope=0, confidence=0, draws=10**9, **UP),
        "confidence: must lie between 0 and 1, got 0",
    ),
    (
        lambda: stats.bayesian_signed_rank(RUNS, rope=0, draws=0, **UP),
        "draws: must be at least 1, got 0",
    ),
    (
        lambda: stats.intervals(RUNS, bounds=[(0, 1)] * 5 + [(0, math.nan)], **UP),
        "bounds: .* both finite, not so for 5",
    ),
    (
        lambda: stats.intervals(RUNS, bounds=[(0, math.inf)] * 6, **UP),
        "bounds: .* both finite, not so for 0",
    ),
    (lambda: stats.bradley_terry_of_wins(wins(math.nan)), "wins: must be .* counts"),
    (lambda: stats.bradley_terry_of_wins(wins(math.inf)), "wins: must be .* counts"),
    (lambda: stats.bradley_terry_of_wins(3), "wins: must be .* got shape \\(\\)"),
    (
        lambda: stats.bradley_terry_of_wins(wins(1), equivalence=(0.6, 0.4)),
        "equivalence: must be a range in \\[0, 1\\]",
    ),
    (
        lambda: stats.bradley_terry(RUNS, local_rope=math.inf, **UP),
        "local_rope: must be 0 or larger, got inf",
    ),
    (
        lambda: correlation.pairwise_matrix(HOLES, ["a", "x"]),
        "measures: must be columns, got 'x'",
    ),
    (
        lambda: correlation.pairwise_matrix(HOLES, ["a", "b"], ["a"]),
        "measures: must each be named once",
    ),
    (
        lambda: correlation.pairwise_matrix(HOLES, method="pearson"),
        "method: must be one of spearman, kendall, got 'pearson'",
    ),
    (
        lambda: correlation.pairwise_matrix(
            HOLES.replace({"b": FRAME["b"][3]}, math.inf)
        ),
        "^b: must be a finite number for every model, got inf for 3",
    ),
    (lambda: score_table.missing_cells(OTHER), "; rename method to algorithm$"),
    (
        lambda: score_table.drop_incomplete(OTHER, drop="runs"),
        "; rename method to algorithm$",
    ),
    (lambda: power(comparisons=0), "comparisons: must be at least 1, got 0"),
    (lambda: power(difference=math.inf), "difference: must be positive, got inf"),
    (
        lambda: stats.power_of_t(difference=1, deviation=0, datasets=5),
        "deviation: must be positive, got 0",
    ),
    (
        lambda: stats.power_of_t(difference=1, deviation=1, datasets=1),
        "datasets: must be at least 2, got 1",
    ),
    (
        lambda: stats.power_of_t(difference=1, deviation=1, datasets=5, alpha=2),
        "alpha: must lie between 0 and 1, got 2",
    ),
    (
        lambda: stats.minimal_difference_of_t(deviation=1, datasets=5, target=0.05),
        "target: must lie between alpha and 1, got 0.05",
    ),
    (
        lambda: stats.datasets_for_nemenyi(gap=0.5, algorithms=3, alpha=1),
        "alpha: must lie between 0 and 1, got 1",
    ),
    (
        lambda: stats.datasets_for_nemenyi(gap=0.5, algorithms=1),
        "algorithms: must be at least 2, got 1",
    ),
]


@cases.each(("call", "message"), REFUSED)
def test_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_all_columns_are_correlated_by_default():
    matrix = correlation.pairwise_matrix(HOLES)
    named = correlation.pairwise_matrix(HOLES, ["a", "b", "c"])
    pd.testing.assert_frame_equal(matrix.pvalue, named.pvalue)
    assert matrix.family == 3


@pytest.mark.parametrize(
    "values", [[1 + 1j, 2, 3, 4, 5], np.arange(5).astype("datetime64[D]")]
)
def test_measures_must_be_real_numbers(values):
    with pytest.raises(ValueError, match="must be real numbers"):
        stats.spearman(values, [1, 2, 3, 4, 0])


def test_masked_values_are_missing():
    masked = np.ma.array([0.01, 0.5, 0.2, 0.3], mask=[1, 0, 0, 0])
    with pytest.raises(ValueError, match="finite number for every model"):
        stats.spearman(masked, [1, 2, 3, 0])
    with pytest.raises(ValueError, match="numbers from 0 to 1"):
        stats.adjust(masked, "holm")


def test_differences_that_are_none_are_refused():
    options = dict(larger_is_better=True, seeds=(1,))
    for difference in (-1, math.nan):
        with pytest.raises(ValueError, match="difference: must be 0 or larger"):
            stats.few_seeds([[1, 2.0], [2, 3.0]], difference=difference, **options)
    with pytest.raises(ValueError, match="thresholds: must be finite"):
        stats.performance_profiles(RUNS, thresholds=[math.nan], **UP)
    with pytest.raises(ValueError, match="wins: must be a square matrix of counts"):
        stats.bradley_terry_of_wins([["0", "a"], ["1", "0"]])
