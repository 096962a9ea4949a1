"""Drops, their intervals, tests and verdicts, against closed forms, scipy and simulation."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.data import shifts
from jbias.report import shift_drops, shift_runs
from jbias.stats import resampling
from tests import cases

DRAWS = shift_drops.Draws(2_000, 0)


def cell(
    level,
    inside,
    outside,
    *,
    n=1_000,
    attribute="colour",
    model="resnet18",
    algorithm="erm",
    seeds=None,
    settings=(),
    options=(),
):
    inside, outside = np.atleast_1d(inside), np.atleast_1d(outside)
    return shift_runs.ShiftCell(
        recipe=shift_runs.Recipe(model, algorithm, "digits"),
        attribute=attribute,
        level=level,
        images=800,
        options=dict(options),
        settings=dict(settings),
        seeds=tuple(seeds or range(len(inside))),
        accuracy={"id": inside.astype(float), "ood": outside.astype(float)},
        sizes={"id": n, "ood": n},
        groups={},
        runs=(),
        rows=pd.DataFrame(),
    )


def test_a_drop_is_of_the_means_over_seeds():
    one = DRAWS.draw(cell("C6", [0.8, 1.0], [0.2, 0.6]))
    assert one.points[0] == pytest.approx(100 * (0.9 - 0.4))
    assert one.percent[0] == pytest.approx(100 * 0.5 / 0.9)  # No mean of 75 and 40.
    assert shift_drops.percent([0.5, 0.0], [0.25, 0.0]).tolist() == [50, 0]


def test_of_one_seed_only_images_vary():
    """Two binomials, their difference nearly normal with 5,000 images."""
    n, p, q = 5_000, 0.9, 0.4
    found = shift_drops.estimate(DRAWS.draw(cell("C6", p, q, n=n)).points)
    error = 100 * math.sqrt(p * (1 - p) / n + q * (1 - q) / n)
    # Quantiles of 2,000 draws vary by 4 % of the width or so.
    assert found.low == pytest.approx(50 - 1.96 * error, abs=0.25 * error)
    assert found.high == pytest.approx(50 + 1.96 * error, abs=0.25 * error)


def test_no_interval_is_empty_where_all_images_are_right():
    found = shift_drops.estimate(DRAWS.draw(cell("C6", [1, 1], [1, 1], n=100)).points)
    assert found.low < 0 == found.value < found.high


def test_few_seeds_vary_as_their_deviation_says():
    """Percentiles of the draws are Student's t interval of the mean."""
    values = np.array([0.3, 0.4, 0.56])
    draws, one = (
        shift_drops.Draws(40_000, 0),
        cell("C6", 0 * values + 0.9, values, n=10**9),
    )
    mean, *drawn = draws.draw(one).points
    error = 100 * values.std(ddof=1) / math.sqrt(3)
    told = scipy.stats.t.interval(0.5, 2, mean, error)  # Wider ones end at 0 and 100.
    np.testing.assert_allclose(np.percentile(drawn, (25, 75)), told, atol=0.2)


def verdicts(cells, draws=DRAWS, **how):
    """Rows of recipes and attributes."""
    return shift_drops.verdicts(cells, draws, **how)[0]


def test_the_control_is_taken_off():
    cells = [cell("C0", 0.9, 0.81), cell("C3", 0.9, 0.7), cell("C6", 0.8, 0.4)]
    _, (curve,) = shift_drops.verdicts(cells, DRAWS)
    assert (curve["kind"], curve["level"]) == ("conditional", "C6")
    assert [row["level"] for row in curve["_levels"]] == ["C0", "C3", "C6"]
    assert curve["control"] == pytest.approx(9)
    assert curve["over"] == pytest.approx(40 - 9)
    assert curve["normalised"] == pytest.approx(50 - 10)
    assert curve["area"] == pytest.approx((0.3 * 14.5 + 0.2 * 30) / 0.5)
    _, (curve,) = shift_drops.verdicts(cells[1:], DRAWS)
    assert math.isnan(curve["control"]) and curve["over"] == pytest.approx(40)


def test_a_bug_is_surely_larger_than_tau():
    cells = [cell("C0", 0.9, 0.9), cell("C6", 0.9, 0.84)]
    (one,) = verdicts(cells)
    assert one["over_low"] < 5 < one["over"]
    assert one["holm"] > 0.05
    assert one["verdict"] == shift_drops.NONE
    (one,) = verdicts(cells, tau=1)
    assert one["verdict"] == shift_drops.BUG


def test_area_is_the_mean_height():
    grid = np.linspace(0.5, 1, 2_001)
    assert shift_drops.area(grid, grid**3) == pytest.approx(
        (1 - 0.5**4) / 4 / 0.5, rel=1e-6
    )
    assert shift_drops.area([0.5, 1], [10, 30]) == 20
    assert shift_drops.area([0.5, 0.6, 1], [0, 0, 50]) == pytest.approx(20)
    assert math.isnan(shift_drops.area([1], [10]))


def test_without_noise_of_images_the_test_is_students():
    random = np.random.default_rng(1)
    last, first = random.normal(0.52, 0.02, 4), random.normal(0.5, 0.02, 5)
    cells = [cell("C6", 0.9 + 0 * x, 0.9 - x, n=10**12) for x in (last, first)]
    welch = dict(equal_var=False, alternative="greater")
    expected = scipy.stats.ttest_ind(last, first, **welch).pvalue
    assert shift_drops.p_larger(*cells) == pytest.approx(expected, rel=1e-4)
    alone = scipy.stats.ttest_1samp(last, 0.51, alternative="greater")
    moved = cell("C6", 0.9 + 0 * last, 0.9 - last + 0.51, n=10**12)
    found = shift_drops.p_larger(moved, None)
    assert found == pytest.approx(alone.pvalue, rel=1e-4)


def simulated(random, levels, *, seeds, n=400, drop=0.0, std=0.02, attribute="a"):
    """Cells whose seeds see the same images: an image is hard or not for all of them."""
    found = []
    for level in levels:
        parts = []
        for mean in (0.8, 0.8 - drop * (shifts.LEVELS[level].share > 0.5)):
            hard = random.random(n)
            own = np.clip(random.normal(mean, std, seeds), 0, 1)
            parts.append([(hard < p).mean() for p in own])
        found.append(cell(level, *parts, n=n, attribute=attribute))
    return found


@pytest.mark.slow
@cases.each(("seeds", "std"), [(1, 0.0), (3, 0.02), (5, 0.05)])
def test_p_keeps_its_level_where_nothing_drops(seeds, std):
    random = np.random.default_rng(seeds)
    hits, times = 0, 1_500
    for _ in range(times):
        cells = simulated(random, ("C6", "C0"), seeds=seeds, std=std)
        hits += shift_drops.p_larger(*cells) < 0.05
    # Five standard errors of a share of 1,500.
    assert hits / times < 0.05 + 5 * math.sqrt(0.05 * 0.95 / times)
    assert hits / times > 0.005  # Nor does it never say anything.


@cases.each("seeds", [1, 3, 5])
def test_intervals_hold_the_truth(seeds):
    random = np.random.default_rng(seeds)
    draws, held, times = shift_drops.Draws(400, 0), 0, 300
    for _ in range(times):
        (one,) = simulated(
            random, ("C6",), seeds=seeds, drop=0.3, std=0.01 * (seeds > 1)
        )
        found = shift_drops.estimate(draws.draw(one).points)
        held += found.low <= 30 <= found.high
    assert held / times > 0.9  # 95 % but for 300 simulations and few seeds.


@pytest.mark.slow
def test_a_family_of_clean_attributes_has_few_bugs():
    """Holm over ten attributes and three kinds, with no least size of a bug."""
    random = np.random.default_rng(3)
    draws, wrong, times = shift_drops.Draws(100, 0), 0, 120
    levels = ("M0", "M4", "C0", "C6", "J0", "J4")
    for _ in range(times):
        cells = [
            one
            for name in "abcdefghij"
            for one in simulated(random, levels, seeds=3, attribute=name)
        ]
        found = verdicts(cells, draws, tau=0)
        wrong += any(one["verdict"] == shift_drops.BUG for one in found)
    assert wrong / times <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / times)


@pytest.mark.slow
@cases.each("seed", range(10))
@cases.each("kind", ["marginal", "conditional"])
def test_a_planted_bug_is_first_and_of_its_kind(seed, kind):
    random = np.random.default_rng(seed)
    cells = []
    for name in "abcdefghij":
        for control, last in (("M0", "M4"), ("C0", "C6")):
            here = name == "e" and shifts.LEVELS[last].kind == kind
            cells += simulated(
                random, (control, last), seeds=5, drop=0.3 * here, attribute=name
            )
    found = verdicts(cells)
    assert [one["verdict"] for one in found] == [shift_drops.BUG] + 9 * ["none found"]
    assert (found[0]["attribute"], found[0]["kind"]) == ("e", kind)


def test_holm_is_over_all_candidates_and_kinds():
    random = np.random.default_rng(5)
    cells = [
        one
        for name in "ab"
        for one in simulated(
            random, ("M0", "M4", "C0", "C6"), seeds=3, drop=0.03, attribute=name
        )
    ]
    cells += [cell("C0", 0.9, 0.9, attribute="z")]  # A control alone is not tested.
    found, kinds = shift_drops.verdicts(cells, DRAWS)
    tested = [one for one in kinds if not math.isnan(one["p"])]
    assert len(tested) == 4
    running = 0.0
    for i, one in enumerate(sorted(tested, key=lambda one: one["p"])):
        running = max(running, min((4 - i) * one["p"], 1))
        assert one["holm"] == pytest.approx(running)
    assert found[-1]["attribute"] == "z" and "kind" not in found[-1]
    assert found[-1]["verdict"] == shift_drops.UNKNOWN


def test_a_significant_but_small_drop_is_no_bug():
    cells = [cell("M0", [0.9] * 5, [0.9] * 5, n=10**6)]
    cells += [cell("M4", [0.9] * 5, [0.86] * 5, n=10**6)]
    (one,) = verdicts(cells)
    assert one["over_low"] > 3.5
    assert one["over"] == pytest.approx(4)
    assert one["verdict"] == shift_drops.NONE
    (one,) = verdicts(cells, tau=3)
    assert one["verdict"] == shift_drops.BUG


def test_what_is_closed_of_a_drop():
    plain = cell("C6", [0.9, 0.92, 0.94], [0.3, 0.32, 0.34])
    most = cell("C6", [0.88, 0.9, 0.92], [0.73, 0.75, 0.77], algorithm="group_dro")
    less = cell("C5", 0.9, 0.5)
    less_too = cell("C5", 0.9, 0.6, algorithm="group_dro")
    found = shift_drops.remedies([less, less_too, most, plain], DRAWS)
    assert [one["_cell"] for one in found] == [
        plain,
        most,
    ]  # The last level they share.
    first, second = found
    assert second["closed"] == pytest.approx(0.75)
    assert second["closed_low"] < 0.75 < second["closed_high"]
    assert second["id_cost"] == pytest.approx(2)
    assert second["gain"] == pytest.approx(43)
    assert [one["pairs"] for one in found] == ["plain", "yes"]
    assert math.isnan(first["closed"])


def test_pairs_of_seeds_make_a_remedy_surer():
    """Both vary alike by seed, so their difference does not vary but by images."""
    ups = np.array([-0.2, 0.0, 0.2, 0.1, -0.1])
    plain = cell("C6", 0 * ups + 0.9, 0.4 + ups, n=10**6)
    same = cell("C6", 0 * ups + 0.9, 0.6 + ups, n=10**6, algorithm="irm")
    other = cell(
        "C6", 0 * ups + 0.9, 0.6 + ups, n=10**6, algorithm="irm", seeds=range(5, 10)
    )
    (_, near), (_, far) = (
        shift_drops.remedies([plain, x], DRAWS) for x in (same, other)
    )
    widths = [one["gain_high"] - one["gain_low"] for one in (near, far)]
    assert (near["pairs"], far["pairs"]) == ("yes", "no")
    assert widths[0] < 0.1 * widths[1]


def test_nothing_is_closed_of_no_drop():
    plain, other = cell("C6", 0.9, 0.9), cell("C6", 0.9, 0.95, algorithm="irm")
    _, found = shift_drops.remedies([plain, other], DRAWS)
    assert math.isnan(found["closed"])
    with pytest.raises(
        ValueError, match="--reference: must be an algorithm of the runs"
    ):
        shift_drops.remedies([plain, other], DRAWS, reference="sagnet")


def test_the_plain_recipe_is_that_with_the_fewest_inputs():
    jitter = cell("C6", 0.9, 0.6, settings={"inputs": '[{"name": "jitter"}]'})
    plain = cell("C6", 0.9, 0.3, settings={"inputs": "[]"})
    found = shift_drops.remedies([jitter, plain], DRAWS)
    assert found[0]["_cell"] is plain and found[0]["pairs"] == "plain"
    assert found[1]["closed"] == pytest.approx(0.5)
    unlike = cell("C6", 0.9, 0.6, algorithm="irm", options={"images": "1000"})
    assert shift_drops.remedies([plain, unlike], DRAWS) == []


def test_ranks_of_models_are_scipys():
    random = np.random.default_rng(0)
    inside, outside = random.random(6), random.random(6)
    cells = [
        cell("C6", x, y, model=f"m{i}", n=10**9)
        for i, (x, y) in enumerate(zip(inside, outside, strict=True))
    ]
    (one,) = shift_drops.ranks(cells, DRAWS)
    tau = scipy.stats.kendalltau(inside, outside, method="exact")
    assert (one["tau"], one["tau_p"]) == pytest.approx((tau.statistic, tau.pvalue))
    assert one["rho"] == pytest.approx(scipy.stats.spearmanr(inside, outside).statistic)
    crossed = one["discordant"] / one["pairs"]
    assert one["tau"] == pytest.approx(1 - 2 * crossed)  # No ties.
    assert (
        one["low"] == one["high"] == pytest.approx(one["tau"])
    )  # Nothing varies here.
    assert not list(shift_drops.ranks(cells[:2], DRAWS))


def test_ranks_are_of_the_most_extreme_level_that_models_share():
    ids = dict(zip("abc", (0.7, 0.8, 0.9), strict=True))
    of_level = {"C4": (1, 1, 1), "C5": (1, 1, -1), "C6": (1, 1)}
    cells = [
        cell(level, x, 0.5 + sign * x / 4, model=model, n=10**9)
        for level, signs in of_level.items()
        for (model, x), sign in zip(ids.items(), signs)
    ]
    (one,) = shift_drops.ranks(cells, DRAWS)
    assert one["crossed"] == "2 of 3"
    (one,) = shift_drops.ranks([x for x in cells if x.level == "C4"], DRAWS)
    assert one["discordant"] == 0


def test_redrawn_ranks_are_the_measures_own():
    random = np.random.default_rng(2)
    x, y = random.integers(4, size=(2, 50, 7)).astype(float)
    expected = [stats.kendall(a, b, permutations=1).statistic for a, b in zip(x, y)]
    named, models = ("here", "erm", "digits", "colour", "joint"), "abcdefg"
    found = shift_drops.agreement(named, models, shift_drops.DrawnAccuracies(x.T, y.T))
    told = resampling.estimate(0, np.array(expected[1:]), confidence=0.95)
    assert found["tau"] == pytest.approx(expected[0])
    assert (found["low"], found["high"]) == pytest.approx((told.low, told.high))
