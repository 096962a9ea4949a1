"""The plan of a comparison: pairs, looks and the next action, as tables and laws."""

import dataclasses
import itertools

import numpy as np
import pytest

from jbias.deciding import comparison as comparison_lib
from jbias.deciding.comparison import Batch, Comparison, Decided, Limits, Train
from jbias.stats import sequential

SETTINGS = comparison_lib.Settings(metric="accuracy", dataset="edge")


def plan(**changes) -> Comparison:
    """Return a comparison of one method with a reference that is a config."""
    fields = {
        "settings": SETTINGS,
        "methods": ("new",),
        "reference": "old",
        "first_seeds": (0,),
        "are_trained": False,
        **changes,
    }
    return Comparison(**fields)


def scored(seeds, value):
    return dict.fromkeys(seeds, value)


def run(comparison, limits, score, hours=0.0):
    """Carry out actions with `score(method, seed)` until the end; return the end and the plan."""
    while True:
        action = comparison_lib.next_action(comparison, limits, hours=hours)
        if not isinstance(action, Train):
            return action, comparison
        comparison = comparison.with_batches(action.batches)
        comparison = comparison.with_scores(
            {
                name: {
                    seed: score(name, seed)
                    for batch in comparison.batches
                    if batch.method == name
                    for seed in batch.seeds
                }
                for name in (*comparison.methods, comparison.reference)
            }
        )


def test_pairs_are_the_seeds_of_the_reference_in_order_then_their_successors():
    comparison = plan(first_seeds=(2, 5, 9), are_trained=True)
    assert comparison.pair_seeds(5) == (2, 5, 9, 10, 11)
    assert comparison.planned("old") == 3
    assert comparison.planned("new") == 0


LIMITS = Limits(max_seeds=10, batch_seeds={"new": 4, "newer": 3})
# Trained seeds of the reference, planned batches, ended seeds of method and reference, and the
# batches that are trained next.
NEXT = {
    "both start": ((), [], [], [], ["new 0-3", "old 0-3"]),
    "the reference has seeds": ((0, 1, 2, 3, 4), [], [], [0, 1, 2, 3, 4], ["new 0-3"]),
    "the reference runs out": (
        (0, 1, 2),
        [],
        [],
        [0, 1, 2],
        ["new 0-3", "old 3-3"],
    ),
    "a batch was killed": ((), ["new 0-3", "old 0-3"], [0, 1], [], "all"),
    "one side is late": (
        (),
        ["new 0-3", "old 0-3"],
        [0, 1, 2, 3],
        [],
        ["old 0-3"],
    ),
    "next batch": (
        (),
        ["new 0-3", "old 0-3"],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        ["new 4-7", "old 4-7"],
    ),
    "the last batch is short": (
        (),
        ["new 0-3", "old 0-3", "new 4-7", "old 4-7"],
        range(8),
        range(8),
        ["new 8-9", "old 8-9"],
    ),
    "batches beyond a lowered limit end": (
        (),
        ["new 0-12", "old 0-12"],
        [],
        range(13),
        ["new 0-12"],
    ),
}


def batch(text: str) -> Batch:
    method, seeds = text.split()
    first, last = map(int, seeds.split("-"))
    return Batch(method, tuple(range(first, last + 1)))


@pytest.mark.parametrize(
    ("trained", "batches", "ended", "reference_ended", "expected"),
    NEXT.values(),
    ids=NEXT,
)
def test_next_batches(trained, batches, ended, reference_ended, expected):
    comparison = plan(first_seeds=trained or (0,), are_trained=bool(trained))
    comparison = dataclasses.replace(
        comparison.with_batches([*map(batch, batches)]),
        scores={"new": scored(ended, 0.5), "old": scored(reference_ended, 0.5)},
    )
    action = comparison_lib.next_action(comparison, LIMITS)
    wanted = batches if expected == "all" else expected
    assert action == Train(tuple(map(batch, wanted)))


def test_a_late_seed_holds_back_later_seeds_and_a_diverged_pair_is_left_out():
    comparison = plan().with_batches([batch("new 0-9"), batch("old 0-9")])
    scores = {"new": scored(range(10), 0.9), "old": scored(range(10), 0.2)}
    del scores["new"][6]
    scores["old"][2] = None
    latest = comparison_lib.look(comparison.with_scores(scores))["new"]
    assert (latest.num_seeds, latest.num_diverged) == (6, 1)
    assert latest.scores == (0.9,) * 5
    assert latest.reference_scores == (0.2,) * 5


def test_a_look_does_not_depend_on_the_order_in_which_runs_end():
    """Orders in which six seeds end lead to the same looks at the same numbers of seeds."""
    rng = np.random.default_rng(0)
    scores = {name: dict(enumerate(rng.random(3))) for name in ("new", "old")}
    start = plan().with_batches([batch("new 0-2"), batch("old 0-2")])
    estimates = {}
    # Of the 720 orders, every 16th.
    orders = itertools.permutations(itertools.product(scores, range(3)))
    for order in itertools.islice(orders, 0, None, 16):
        comparison = start
        for name, seed in order:
            comparison = comparison.with_scores({name: {seed: scores[name][seed]}})
            latest = comparison_lib.look(comparison)["new"]
            key = tuple(latest.result.difference.lower)
            assert estimates.setdefault(latest.num_seeds, key) == key


def test_decisions_are_those_of_the_whole_sequence_whatever_the_batches():
    """Seeds at a time change how many seeds are trained, but not the decision and its look."""
    rng = np.random.default_rng(1)
    table = {"new": 0.3 + 0.3 * rng.random(40), "old": 0.3 * rng.random(40)}
    whole = sequential.compare(table["new"], table["old"])
    assert whole.decision == "a"
    for size in (4, 40):
        limits = Limits(max_seeds=40, batch_seeds={"new": size})
        end, comparison = run(plan(), limits, lambda name, seed: table[name][seed])
        latest = comparison_lib.look(comparison)["new"]
        assert isinstance(end, Decided)
        assert latest.result.decision == whole.decision
        assert latest.result.stopped_at == whole.stopped_at
        # Less than one batch is trained in vain.
        assert comparison.planned("new") < whole.stopped_at + size


def test_several_methods_share_the_reference_and_the_error():
    """Each comparison has alpha / k; a decided method gets no further seeds."""
    rng = np.random.default_rng(2)
    table = {
        "far": 0.9 + 0.05 * rng.random(30),
        "near": 0.3 + 0.2 * rng.random(30),
        "old": 0.2 * rng.random(30),
    }
    comparison = plan(methods=("far", "near"))
    limits = Limits(max_seeds=30, batch_seeds={"far": 4, "near": 4})
    end, comparison = run(comparison, limits, lambda name, seed: table[name][seed])
    looks = comparison_lib.look(comparison)
    assert comparison.level == 0.025
    assert looks["far"].result.decision == "a"
    assert looks["far"].result.alpha == 0.025
    assert isinstance(end, Decided)
    assert comparison.planned("far") < comparison.planned("near")
    assert comparison.planned("old") == comparison.planned("near")
    controlled = sequential.compare_with_control(
        {"far": looks["far"].scores, "near": looks["near"].scores}, table["old"]
    )
    for name, result in controlled.comparisons.items():
        assert result.decision == looks[name].result.decision
        assert result.stopped_at == looks[name].result.stopped_at


def test_a_comparison_ends_at_its_limits():
    rng = np.random.default_rng(3)
    table = {"new": 0.45 + 0.1 * rng.random(100), "old": 0.45 + 0.1 * rng.random(100)}

    def score(name, seed):
        return table[name][seed]

    sizes = {"new": 4}
    end, comparison = run(plan(), Limits(max_seeds=9, batch_seeds=sizes), score)
    assert end.ends["new"].reason == "seeds"
    assert comparison.planned("new") == 9
    # From 10 pairs on it is hopeless within 100 seeds, but not within a raised limit.
    end, comparison = run(plan(), Limits(max_seeds=100, batch_seeds=sizes), score)
    assert end.ends["new"].reason == "chance"
    assert end.ends["new"].outlook.chance < comparison_lib.LEAST_CHANCE
    assert 10 <= comparison.planned("new") <= 12
    end, comparison = run(plan(), Limits(batch_seeds=sizes), lambda name, seed: None)
    assert end.ends["new"].reason == "diverged"
    assert comparison.planned("new") == 4
    end, comparison = run(plan(), Limits(max_hours=1.0), score, hours=1.0)
    assert end.ends["new"].reason == "hours"
    assert comparison.batches == ()


def test_a_raised_limit_continues_where_the_comparison_ended():
    rng = np.random.default_rng(4)
    table = {"new": 0.2 + 0.4 * rng.random(80), "old": 0.4 * rng.random(80)}

    def score(name, seed):
        return table[name][seed]

    low, high = (Limits(max_seeds=n, batch_seeds={"new": 4}) for n in (8, 80))
    _, stopped = run(plan(), low, score)
    end, continued = run(stopped, high, score)
    straight_end, straight = run(plan(), high, score)
    assert end == straight_end == Decided()
    assert continued == straight


def test_impossible_limits_and_contradicting_scores_are_refused():
    with pytest.raises(ValueError, match="--max-seeds: must be at least 7"):
        comparison_lib.next_action(plan(), Limits(max_seeds=6))
    comparison = plan().with_batches([batch("new 0-1"), batch("old 0-1")])
    comparison = comparison.with_scores({"new": {0: 0.25}})
    with pytest.raises(ValueError, match=r"seed 0 was 0.25 at an earlier look"):
        comparison.with_scores({"new": {0: 0.5}})
    # A lost run does not remove a score that was seen.
    assert comparison.with_scores({}).scores["new"] == {0: 0.25}
    trained = plan(first_seeds=(0, 1), are_trained=True)
    trained = trained.with_batches([batch("new 0-1")])
    trained = trained.with_scores({"new": {0: 0.5, 1: 0.5}, "old": {0: 0.5}})
    with pytest.raises(ValueError, match="seed 1 of the reference has no score"):
        comparison_lib.next_action(trained, LIMITS)


def test_the_least_number_of_pairs_for_equivalence_is_that_of_equal_scores():
    """Scores without any difference are equivalent after these pairs, and no earlier."""
    for points, quantity in ((10.0, "mean"), (5.0, "wins")):
        settings = dataclasses.replace(SETTINGS, points=points, quantity=quantity)
        least = comparison_lib.least_equivalent_pairs(plan(settings=settings))
        equal = [0.5] * least
        result = sequential.compare(equal, equal, points=points, quantity=quantity)
        assert (result.decision, result.stopped_at) == ("equivalent", least)
    assert comparison_lib.least_equivalent_pairs(plan()) is None


def test_a_score_outside_of_the_bounds_voids_the_comparison():
    settings = dataclasses.replace(SETTINGS, bounds=(0.4, 0.6))
    comparison = plan(settings=settings).with_batches(
        [batch("new 0-1"), batch("old 0-1")]
    )
    comparison = comparison.with_scores(
        {"new": {0: 0.5, 1: 0.7}, "old": {0: 0.5, 1: 0.5}}
    )
    with pytest.raises(
        ValueError, match=r"new: accuracy of seed 1 is 0.7, outside of --bounds=0.4,0.6"
    ):
        comparison_lib.look(comparison)


def test_runs_of_a_reference_cannot_be_exchanged_before_their_pairs_are_due():
    """All scores of the first seeds are in the plan from the start."""
    trained = plan(first_seeds=(0, 1, 2), are_trained=True)
    trained = trained.with_batches([batch("new 0-0")])
    trained = trained.with_scores({"old": {0: 0.5, 1: 0.6, 2: 0.7, 9: 0.1}})
    assert trained.scores["old"] == {0: 0.5, 1: 0.6, 2: 0.7}
    with pytest.raises(ValueError, match=r"old: the score of seed 2 was 0.7"):
        trained.with_scores({"old": {2: 0.8}})


def test_hours_must_be_positive():
    for hours in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="--max-hours: must be positive"):
            comparison_lib.next_action(plan(), Limits(max_hours=hours))
