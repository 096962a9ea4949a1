"""Lines of a comparison: forecasts, ends, differences of configs, and equivalence out of reach."""

import dataclasses

import numpy as np

from jbias.deciding import comparison as comparison_lib
from jbias.deciding import descriptions
from jbias.deciding.comparison import Batch, Comparison, Limits

SETTINGS = comparison_lib.Settings(metric="accuracy", dataset="edge")
RNG = np.random.default_rng(0)


def plan(count, shift=0.0, **changes) -> Comparison:
    """Return a comparison of `count` pairs, in which "new" is better by `shift` on average."""
    seeds = range(count)
    comparison = Comparison(
        settings=dataclasses.replace(SETTINGS, **changes),
        methods=("new",),
        reference="old",
        first_seeds=(0,),
        are_trained=False,
    ).with_batches([Batch("new", (*seeds,)), Batch("old", (*seeds,))])
    scores = {
        "new": {seed: 0.3 + shift + 0.1 * RNG.random() for seed in seeds},
        "old": {seed: 0.3 + 0.1 * RNG.random() for seed in seeds},
    }
    return comparison.with_scores(scores)


def line(comparison, limits) -> str:
    look = comparison_lib.look(comparison)["new"]
    return descriptions.describe_look(comparison, look, limits)


def test_a_forecast_says_what_would_be_decided_and_whether_the_limit_is_too_low():
    better = plan(6, shift=0.3)
    assert "more seeds would decide it (80 %), probably: new is higher" in line(
        better, Limits(max_seeds=100)
    )
    assert "more than --max-seeds=8" in line(better, Limits(max_seeds=8))
    worse = plan(6, shift=-0.2, quantity="wins")
    assert "probably: old wins more pairs" in line(worse, Limits(max_seeds=100))
    equal = plan(6, points=20.0)
    assert line(equal, Limits(max_seeds=500)).endswith("probably: equivalent")


def test_the_end_names_the_limit_that_would_continue():
    comparison = plan(8, shift=0.3)
    limits = Limits(max_seeds=8)
    end = comparison_lib.next_action(comparison, limits).ends["new"]
    text = descriptions.describe_end(comparison, "new", end, limits)
    number = f"{8 + end.outlook.pairs:.0f}"
    assert text.endswith(f"would decide it (80 %); to continue: --max-seeds={number}")


def test_the_start_says_if_equivalence_is_out_of_reach():
    lines = descriptions.describe_start(plan(1, points=10.0), Limits(max_seeds=30))
    assert "equivalence within 10 points needs at least 44 seeds" in lines[1]
    assert (
        len(descriptions.describe_start(plan(1, points=10.0), Limits(max_seeds=44)))
        == 1
    )
    assert len(descriptions.describe_start(plan(1), Limits())) == 1


def test_differences_beyond_the_algorithm_are_named():
    """Entries of the algorithm are what is compared."""
    configs = {
        "new": {"algo": {"name": "sagnet", "p": 1}, "epochs": 4.0, "own_code": {}},
        "old": {"algo": {"name": "erm"}, "epochs": 8.0, "own_code": {"a.py": "1"}},
    }
    (text,) = descriptions.describe_differences(configs, plan(1))
    assert "differ beyond the algorithm: epochs: 4.0 != 8.0; the decision" in text
    configs["new"]["epochs"] = 8.0
    assert descriptions.describe_differences(configs, plan(1)) == []
