"""Few seeds: explicit enumeration, closed forms for normal scores, and the runs of BiasBed."""

import importlib
import itertools
import math
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from tests import cases

few_seeds = importlib.import_module("jbias.stats.few_seeds")
ROOT = pathlib.Path(__file__).parents[2]
UP = dict(difference=10.0, larger_is_better=True)


def normal(n, mean=0.0, deviation=1.0):
    """Return n normal quantiles with exactly this mean and standard deviation."""
    x = scipy.stats.norm.ppf((np.arange(n) + 0.5) / n)
    return mean + deviation * (x - x.mean()) / x.std(ddof=1)


def test_groups_of_four_seeds_by_hand():
    """Scores 0, 0, 0, 40: single seeds differ in 6 of 12 orders, pairs in all six."""
    result = stats.few_seeds(
        [[0, 0, 0, 40], [1, 2, 3, 4]], **UP | {"difference": 19}, seeds=(1, 2, 3)
    )
    assert result.apart[:, 0] == pytest.approx([0.5, 1, math.nan], nan_ok=True)
    assert result.apart[:2, 1].tolist() == [0, 0]
    # The first has the larger mean, 10, but groups without the 40 have a smaller one.
    assert result.reversed[:, 0, 1] == pytest.approx([3 / 4, 1 / 2, 1 / 4])
    assert (result.reversed[:, 0, 1] == result.reversed[:, 1, 0]).all()
    assert np.isnan(result.reversed[:, [0, 1], [0, 1]]).all()
    best = 40 * 7 / 16 - 10, 20 * 3 / 4 - 10
    factors = math.sqrt(4 / 3), math.sqrt(2)  # sqrt(n / (n - s))
    assert result.lead[:2, 0] == pytest.approx(np.multiply(best, factors))
    assert np.isnan(result.lead[2]).all()


def test_a_difference_equal_to_the_limit_does_not_count_and_a_tie_is_a_reversal():
    result = stats.few_seeds([[0.1, 0.4], [0.4, 0.4]], **UP | {"difference": 0.3})
    assert result.apart[0].tolist() == [0, 0]
    assert result.reversed[0, 0, 1] == 0.5
    equal_means = stats.few_seeds([[1.0, 3.0], [2.0, 2.0]], **UP)
    assert np.isnan(equal_means.reversed).all() and equal_means.needed[0, 1] == math.inf


@cases.each(("n", "s"), [(10, 3), (40, 5)])
def test_squared_differences_of_groups_estimate_those_of_new_seeds(n, s):
    """2 S^2 / s, exact if all groups are used, within 2 % for 5,000 draws."""
    x = np.random.default_rng(0).normal(size=n) ** 3
    order = few_seeds._groups(n, s, 5000, 0)
    first, other = x[order[:s]].mean(0), x[order[s : 2 * s]].mean(0)
    exact = order.shape[1] == math.comb(n, s) * math.comb(n - s, s)
    assert exact == (n == 10)
    assert np.mean((first - other) ** 2) == pytest.approx(
        2 * x.var(ddof=1) / s, rel=1e-9 if exact else 0.1
    )


@cases.each("s", [1, 3, 10])
def test_normal_scores_have_closed_forms(s):
    """200 seeds drawn 20,000 times; three standard errors are 0.01."""
    deviation, gap, k = 8.0, 5.0, 3
    scores = [normal(200, mean, deviation) for mean in (60, 60 - gap, 60 - 2 * gap)]
    result = stats.few_seeds(scores, **UP, seeds=(s,), draws=20_000)
    error, cdf = deviation / math.sqrt(s), scipy.stats.norm.cdf
    apart = 2 * cdf(-10 / (error * math.sqrt(2)))
    assert result.apart[0] == pytest.approx([apart] * k, abs=0.015)
    reversed_ = cdf(-gap / (error * math.sqrt(2)))
    assert result.reversed[0, 0, 1] == pytest.approx(reversed_, abs=0.015)
    # The expected largest of three standard normals is 3 / (2 sqrt(pi)).
    lead = error * 3 / (2 * math.sqrt(math.pi))
    assert result.lead[0] == pytest.approx([lead] * k, rel=0.03)
    smaller = stats.few_seeds(scores, **UP | {"larger_is_better": False}, seeds=(s,))
    assert smaller.lead[0] == pytest.approx([lead] * k, rel=0.05)
    needed = stats.seeds_for_t(difference=gap, deviation=deviation)
    assert result.needed[0, 1] == result.needed[1, 0] == needed


@cases.each(
    ("difference", "target", "expected"),
    [
        (1, 0.8, 16.71477),
        (0.5, 0.8, 63.76576),
        (0.2, 0.8, 393.4057),
        (1, 0.9, 22.02110),
    ],
)
def test_seeds_for_t_equal_power_t_test(difference, target, expected):
    """Equal to R 4: power.t.test(delta=..., sd=1, power=...)."""
    result = stats.seeds_for_t(difference=difference, deviation=1, target=target)
    assert result == math.ceil(expected)


def test_seeds_for_t_are_the_fewest():
    """Checked by the noncentral t from two seeds on, and by Guenther's formula above 1000."""
    for effect in np.geomspace(0.1, 20, 40):
        result = stats.seeds_for_t(difference=effect, deviation=1)
        n = np.arange(2, result + 1)
        critical = scipy.stats.t.isf(0.025, 2 * n - 2)
        *fewer, power = scipy.stats.nct.sf(critical, 2 * n - 2, effect * np.sqrt(n / 2))
        assert power >= 0.8 > max(fewer, default=0)
    assert stats.seeds_for_t(difference=0.01, deviation=1) == 156979


@pytest.fixture(scope="module")
def biasbed():
    runs = stats.score_table.read(pd.read_csv(ROOT / "examples/biasbed_runs.csv"))
    runs_of_data_sets = [
        [row[np.isfinite(row)] for row in runs.values[i]]
        for i in range(len(runs.datasets))
    ]
    result = [
        stats.few_seeds(data_set_runs, **UP, seeds=(1, 3, 5))
        for data_set_runs in runs_of_data_sets
    ]
    return runs, result


def test_pairs_with_erm_in_biasbed(biasbed):
    """1, 3 and 5 runs reverse the comparison with ERM in 12, 6 and 4 % of pairs."""
    runs, result = biasbed
    erm = runs.algorithms.index("ERM")
    shares = np.nanmean(
        [dataset_result.reversed[:, erm] for dataset_result in result], axis=(0, 2)
    )
    assert [f"{share:.0%}" for share in shares] == ["12%", "6%", "4%"]


def test_reversals_equal_a_plain_count(biasbed):
    runs, result = biasbed
    x, y = (runs.runs(name)[0] for name in ("SagNet", "pAdaIN"))
    i, j = (runs.algorithms.index(name) for name in ("SagNet", "pAdaIN"))
    first_means, second_means = (
        [np.mean(group) for group in itertools.combinations(method_runs, 3)]
        for method_runs in (x, y)
    )
    sign = np.sign(x.mean() - y.mean())
    is_same_order = [
        sign * (a - b) > 1e-9 for a, b in itertools.product(first_means, second_means)
    ]
    assert result[0].reversed[1, i, j] == pytest.approx(1 - np.mean(is_same_order))


def test_three_seeds_of_the_study_here():
    """Two groups of three seeds of ERM differ in shape bias by over 10 points in 60 %."""
    seeds = pd.read_csv(ROOT / "docs/results/shapes/tables/seeds.csv").fillna("")
    erm = seeds[(seeds["algorithm"] == "erm") & (seeds["variant"] == "")]["value"]
    result = stats.few_seeds([100 * erm], **UP)
    assert result.apart[1, 0] == pytest.approx(0.6)
    assert np.isnan(result.apart[3, 0])  # Two groups of ten do not fit into ten.


@cases.each("scores", [[], [[1.0]], [[1.0, math.nan]], [[[1.0, 2.0]]]])
def test_scores_without_a_spread_are_refused(scores):
    with pytest.raises(ValueError, match="scores: every method must have two finite"):
        stats.few_seeds(scores, **UP)
