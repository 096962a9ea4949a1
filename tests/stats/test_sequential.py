"""Anytime-valid comparisons: the package confseq, enumeration, Ville's inequality, invariants."""

import itertools
import json
import math
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.stats import sequential

ORACLE = pathlib.Path(__file__).parents[1] / "oracles/confseq_capitals.json"
CASES = json.loads(ORACLE.read_text())
DKELLY = tuple((i + 1) / 11 for i in range(10))


def scores(n=40, seed=0):
    """Return skewed scores of two methods whose means differ by 0.25."""
    rng = np.random.default_rng(seed)
    return rng.beta(4, 3, n), rng.beta(2, 4, n)


@pytest.mark.parametrize("name", CASES)
def test_evalues_are_those_of_confseq(name):
    values = np.array(CASES[name]["values"])
    for key, expected in CASES[name]["evalues"].items():
        bets, mean = key.rsplit(", ", 1)
        fractions = sequential.FRACTIONS if bets == "jbias" else DKELLY
        evalues = np.exp(sequential.log_evalues(values, float(mean), fractions))
        np.testing.assert_allclose(evalues, expected, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_intervals_are_those_of_confseq_on_its_grid(name):
    """confseq rounds outwards to a grid of 1,000 means, and then adds one step."""
    case = CASES[name]
    sequence = sequential.confidence_sequence(case["values"])
    lower = np.ceil(1000 * sequence.lower - 1e-9) / 1000 - 1 / 1000
    upper = np.floor(1000 * sequence.upper + 1e-9) / 1000 + 1 / 1000
    np.testing.assert_allclose(np.maximum(lower, 0), case["lower"], atol=1e-9)
    np.testing.assert_allclose(np.minimum(upper, 1), case["upper"], atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_ends_of_intervals_are_where_the_capital_of_confseq_is_20(name):
    """Roots of the package's capital, found by scipy; 1e-9 is the bracket at means of 0 and 1."""
    case = CASES[name]
    sequence = sequential.confidence_sequence(case["values"])
    np.testing.assert_allclose(sequence.lower, case["lower_ends"], atol=1e-9)
    np.testing.assert_allclose(sequence.upper, case["upper_ends"], atol=1e-9)


@pytest.mark.parametrize("mean", [0.1, 0.5, 0.8])
def test_an_evalue_is_1_on_average_if_the_mean_is_right(mean):
    """All sequences of eight values of a law on 0, 0.4 and 1, with their probabilities."""
    # P(0.4) = 0.2, and P(1) such that the mean is right.
    law = {0.0: 1 - 0.2 - (mean - 0.08), 0.4: 0.2, 1.0: mean - 0.08}
    paths = np.array([*itertools.product(law, repeat=8)])
    probability = np.prod([[law[x] for x in path] for path in paths], axis=1)
    average = probability @ np.exp(sequential.log_evalues(paths, mean))
    np.testing.assert_allclose(average, 1, rtol=1e-12)


def test_the_mean_leaves_the_sequence_in_few_studies_of_any_shape():
    """Ville's inequality: at most alpha of paths ever exceed 1 / alpha; looks are 200."""
    rng = np.random.default_rng(0)
    shapes = {
        "normal": np.clip(rng.normal(0.5, 0.1, (4000, 200)), 0, 1),
        "two humps": rng.choice([0.05, 0.95], p=[0.5, 0.5], size=(4000, 200)),
        "skewed": rng.choice([0.0, 1.0], p=[0.9, 0.1], size=(4000, 200)),
    }
    means = {"normal": 0.5, "two humps": 0.5, "skewed": 0.1}
    for shape, values in shapes.items():
        logs = sequential.log_evalues(values, means[shape])
        share = (logs >= math.log(20)).any(axis=1).mean()
        assert share <= 0.05, (
            shape
        )  # Expected well below: the bound is for infinite paths.


def test_a_decision_is_final_and_prefixes_agree():
    a, b = scores()
    whole = stats.compare(a, b)
    assert whole.decision == "a"
    for n in range(41):
        prefix = stats.compare(a[:n], b)
        assert prefix.looks == n
        np.testing.assert_array_equal(prefix.evalues, whole.evalues[:n])
        np.testing.assert_array_equal(
            prefix.difference.lower, whole.difference.lower[:n]
        )
        if n < whole.stopped_at:
            assert prefix.decision is None
            assert prefix.stopped_at is None
        else:
            assert (prefix.decision, prefix.stopped_at) == ("a", whole.stopped_at)


def test_the_decision_is_made_when_the_evalue_reaches_1_by_alpha():
    a, b = scores()
    for alpha in (0.2, 0.05, 0.001):
        result = stats.compare(a, b, alpha=alpha)
        reached = result.evalues >= 1 / alpha
        expected = int(np.argmax(reached)) + 1 if reached.any() else None
        assert result.stopped_at == expected


def test_swapped_methods_and_other_units_change_only_signs_and_units():
    a, b = scores()
    result = stats.compare(a, b, points=5)
    swapped = stats.compare(b, a, points=5)
    percent = stats.compare(100 * a, 100 * b, points=5, bounds=(0, 100))
    assert (result.decision, swapped.decision, percent.decision) == ("a", "b", "a")
    assert result.stopped_at == swapped.stopped_at == percent.stopped_at
    np.testing.assert_allclose(
        swapped.difference.lower, -result.difference.upper, atol=1e-9
    )
    np.testing.assert_allclose(
        percent.difference.upper, 100 * result.difference.upper, atol=1e-7
    )


def test_equal_methods_are_equivalent_only_within_points():
    rng = np.random.default_rng(1)
    a, b = rng.beta(30, 30, (2, 80))
    assert stats.compare(a, b).decision is None
    result = stats.compare(a, b, points=10)
    assert result.decision == "equivalent"
    last = result.stopped_at - 1
    assert -0.1 < result.difference.lower[last]
    assert result.difference.upper[last] < 0.1
    earlier = result.difference.upper[last - 1] - result.difference.lower[last - 1]
    assert earlier > 0.1
    assert stats.compare(a, b, points=2).decision is None


def test_wins_decide_small_differences_that_hardly_vary():
    a, b = np.linspace(0.51, 0.53, 20), np.linspace(0.48, 0.50, 20)
    assert stats.compare(a, b).decision is None
    wins = stats.compare(a, b, quantity="wins")
    assert (wins.decision, wins.stopped_at) == ("a", sequential.least_pairs())
    # The same as scores of 0 and 1.
    extreme = stats.compare(np.ones(20), np.zeros(20))
    np.testing.assert_array_equal(wins.evalues, extreme.evalues)
    tied = stats.compare(a, a, quantity="wins")
    np.testing.assert_allclose(tied.evalues, 1)


def test_narrower_bounds_need_fewer_pairs():
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.8, 0.01, 60), rng.normal(0.75, 0.01, 60)
    narrow = stats.compare(a, b, bounds=(0.6, 0.9))
    wide = stats.compare(a, b)
    assert narrow.stopped_at < 0.6 * wide.looks
    assert wide.decision is None
    assert narrow.difference.lower[-1] > wide.difference.lower[-1]


@pytest.mark.parametrize(
    ("points", "bounds"), [(5, (0.4, 0.6)), (20, (0, 100)), (0.5, (0, 0.04))]
)
def test_points_are_of_the_score_whatever_the_bounds(points, bounds):
    """5 points are 0.05 of scores up to 1, and 5 of scores in %."""
    low, high = bounds
    margin = points if high > 1 else points / 100
    rng = np.random.default_rng(5)
    a, b = low + (high - low) * rng.beta(30, 30, (2, 200))
    result = stats.compare(a, b, points=points, bounds=bounds)
    is_within = (result.difference.lower > -margin) & (result.difference.upper < margin)
    assert result.decision == "equivalent"
    assert result.stopped_at == np.argmax(is_within) + 1 > 1
    batch = sequential.forecast(a[:5], b[:5], points=points, bounds=bounds, draws=50)
    share = sequential.forecast(
        (a[:5] - low) / (high - low),
        (b[:5] - low) / (high - low),
        points=100 * margin / (high - low),
        draws=50,
    )
    np.testing.assert_array_equal(batch.chance, share.chance)
    for wrong in (0, 100 * (high - low) / (100 if high > 1 else 1)):
        with pytest.raises(ValueError, match="points"):
            stats.compare(a, b, points=wrong, bounds=bounds)


def test_points_of_wins_are_of_the_share_of_wins():
    a, b = np.tile([0.3, 0.5], 100), np.tile([0.4, 0.4], 100)
    result = stats.compare(a, b, quantity="wins", points=40)
    assert result.decision == "equivalent"
    assert result.difference.upper[result.stopped_at - 1] < 0.4
    percent = stats.compare(100 * a, 100 * b, quantity="wins", points=40)
    np.testing.assert_array_equal(percent.evalues, result.evalues)


def test_differences_by_rounding_are_ties():
    a, b = np.full(20, 0.1 + 0.2), np.full(20, 0.3)
    assert (a != b).all()
    for unit in (1, 100):
        wins = stats.compare(unit * a, unit * b, quantity="wins")
        assert (wins.evalues <= 1).all() and wins.difference.estimate[-1] == 0
    assert stats.compare(a + 1e-6, b, quantity="wins").decision == "a"


def test_scores_by_seed_are_paired_by_seed():
    """Any order of the entries gives the arrays in ascending order of the common seeds."""
    a, b = scores(12)
    seeds = np.arange(3, 15)
    order = np.random.default_rng(6).permutation(12)
    by_seed_a = pd.Series(a, seeds).iloc[order]
    by_seed_b = pd.Series(b, seeds).drop([5, 14])
    is_common = ~np.isin(seeds, [5, 14])
    expected = stats.compare(a[is_common], b[is_common])
    for first, second in (
        (by_seed_a, by_seed_b),
        (dict(by_seed_a), dict(by_seed_b)),
        (dict(by_seed_a), by_seed_b),
    ):
        result = stats.compare(first, second)
        np.testing.assert_array_equal(result.evalues, expected.evalues)
        assert (result.unpaired_a, result.unpaired_b) == ((5, 14), ())
        assert repr(result).endswith("; 2 of 12 scores of a wait for a partner: 5, 14")
        chance = stats.forecast(first, second, draws=20).chance
        by_position = stats.forecast(a[is_common], b[is_common], draws=20).chance
        np.testing.assert_array_equal(chance, by_position)
    control = stats.compare_with_control({"m": by_seed_a}, by_seed_b)
    assert control.comparisons["m"].looks == 10
    named = pd.Series([0.9, 0.8, 0.7], ["z", "y", "x"])
    result = stats.compare(named, named[::-1])
    assert (result.looks, result.difference.estimate[-1]) == (3, 0)


def test_arrays_are_paired_by_position_and_the_result_names_the_rest():
    a, b = scores(10)
    result = stats.compare(a, b[:8])
    assert (result.looks, result.unpaired_a) == (8, (8, 9))
    assert repr(result).endswith("; 2 of 10 scores of a wait for a partner: 8, 9")
    series = pd.Series(b[:8], index=range(100, 108))
    mixed = stats.compare(a, series)  # Only one has seeds, so both count by position.
    np.testing.assert_array_equal(mixed.evalues, result.evalues)
    assert "partner" not in repr(stats.compare(a, b))
    first = repr(stats.compare(a[:0], b))
    assert first.endswith("10 of 10 scores of b wait for a partner: 0, 1, 2, 3, 4, ...")


@pytest.mark.slow
def test_evalues_of_thousands_of_pairs_are_finite():
    result = stats.compare(np.ones(3000), np.zeros(3000), quantity="wins")
    assert np.isfinite(result.evalues).all()
    assert result.evalues[-1] == np.exp(sequential.MOST_LOG_EVALUE)


def test_least_pairs_with_points_shows_equivalence_of_equal_scores():
    for points, bounds in ((40, (0, 1)), (30, (0, 100)), (10, (0.4, 0.6))):
        n = sequential.least_pairs(points=points, bounds=bounds)
        a = np.full(n, bounds[0])
        result = stats.compare(a, a, points=points, bounds=bounds)
        assert (result.decision, result.stopped_at) == ("equivalent", n)
    assert sequential.least_pairs(points=10) > 40
    assert sequential.least_pairs(0.01, 10) > sequential.least_pairs(0.05, 10)


def test_least_pairs_is_the_first_look_that_can_decide():
    for alpha in (0.1, 0.05, 0.01):
        n = sequential.least_pairs(alpha)
        best = stats.compare(np.ones(n), np.zeros(n), alpha=alpha)
        assert best.stopped_at == n
    assert sequential.least_pairs() == 7


def test_each_of_k_methods_is_compared_at_alpha_by_k():
    a, b = scores()
    methods = {"better": a, "equal": b[::-1], "new": a[:0], "late": a[:3]}
    result = stats.compare_with_control(methods, b, alpha=0.08, points=5)
    assert [*result.comparisons] == [*methods]
    for name, values in methods.items():
        single = stats.compare(values, b, alpha=0.02, points=5)
        assert result.comparisons[name].decision == single.decision
        assert result.comparisons[name].stopped_at == single.stopped_at
    assert result.discoveries == ("better",)


def test_e_bh_rejects_the_largest_set_that_its_rule_allows():
    rng = np.random.default_rng(3)
    for _ in range(200):
        k = int(rng.integers(1, 7))
        evalues = np.exp(rng.normal(2, 2, k))
        largest = max(
            (
                subset
                for size in range(k + 1)
                for subset in itertools.combinations(range(k), size)
                if all(evalues[i] >= k / (0.1 * size) for i in subset)
            ),
            key=len,
        )
        rejected = sequential.e_bh(evalues, alpha=0.1)
        assert rejected.sum() == len(largest)
        if largest and rejected.sum() < k:
            assert evalues[rejected].min() >= evalues[~rejected].max()


def test_a_forecast_is_the_share_of_continuations_that_decide():
    """Constant differences have a single continuation, which `compare` shows."""
    a, b = np.full(5, 0.9), np.full(5, 0.3)
    needed = stats.compare(np.full(50, 0.9), np.full(50, 0.3)).stopped_at
    assert needed > 5
    result = sequential.forecast(a, b, draws=20, most=40)
    assert result.pairs == needed - 5
    assert result.chance[: needed - 6].max() == 0
    assert result.chance[needed - 6 :].min() == 1
    equal = sequential.forecast(a, a, points=10, draws=20, most=100)
    stopped = stats.compare(np.zeros(100), np.zeros(100), points=10).stopped_at
    assert equal.pairs == stopped - 5
    assert sequential.forecast(a, a, draws=20, most=30).pairs == math.inf


@pytest.mark.slow
def test_forecasts_meet_their_target_on_average():
    """New pairs decide about 80 % of the studies at the number that was forecast."""
    rng = np.random.default_rng(4)
    shares = []
    for seed in range(40):
        a, b = rng.beta(4, 3, 15), rng.beta(2, 4, 15)
        if stats.compare(a, b).decision:
            continue
        # A forecast of more than 300 pairs counts at 300.
        pairs = int(min(sequential.forecast(a, b, seed=seed, most=300).pairs, 300))
        more_a = np.concatenate([np.tile(a, (100, 1)), rng.beta(4, 3, (100, pairs))], 1)
        more_b = np.concatenate([np.tile(b, (100, 1)), rng.beta(2, 4, (100, pairs))], 1)
        logs = sequential.log_evalues((1 + more_a - more_b) / 2, 0.5)
        shares.append((logs >= math.log(20)).any(axis=1).mean())
    assert len(shares) > 10
    assert 0.65 < np.mean(shares) < 0.95


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([0.2, math.nan], [0.1, 0.1], r"a\[1\] must be from 0 to 1, got nan"),
        ([0.2], [45.0], r"b\[0\] must be from 0 to 1, got 45; .*divide scores in %"),
        ([0.2], [0.1, math.nan][1:], r"b\[0\] .* leave out a seed .* in both methods"),
        ([[0.2]], [0.1], "a: must be 1-D"),
        (["0.2"], [0.1], "a: must be numbers"),
        ([0.2], [None, "x"], "b: must be numbers"),
        ({0: 0.2}, [0.1], "a: must be an array, .* or pass scores by seed for both"),
        ({0: 0.2}, {1: 0.1}, "no seed in common"),
        ({3: 0.2}, {3: 2.0}, r"b\[3\] must be from 0 to 1, got 2"),
        (pd.Series([1, 0], [4, 4]), pd.Series([1]), "a: seed 4 occurs twice"),
    ],
)
def test_wrong_scores_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        stats.compare(a, b)


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0}, {"points": 0}, {"points": 100}, {"quantity": "median"}]
    + [{"bounds": (1, 0)}, {"bounds": (0, math.inf)}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        stats.compare([0.2], [0.1], **options)


def test_other_wrong_calls_are_refused():
    with pytest.raises(ValueError, match="methods"):
        stats.compare_with_control({}, [0.1])
    with pytest.raises(ValueError, match="evalues"):
        sequential.e_bh([1.0, math.nan])
    with pytest.raises(ValueError, match="pairs"):
        sequential.forecast([0.1], [0.2])
