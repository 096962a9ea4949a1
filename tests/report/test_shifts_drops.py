"""Drops with intervals, tests and verdicts, against closed forms, scipy and simulation."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.data import shifts
from jbias.report.pages.shifts import shift_cells, shift_drops
from jbias.stats import bootstrap_intervals
from tests import cases

DRAWS = shift_drops.AccuracyDraws(2_000, 0)


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
    return shift_cells.ShiftCell(
        recipe=shift_cells.Recipe(model, algorithm, "digits"),
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


def test_a_drop_is_the_difference_of_means_over_seeds():
    drawn_drop = DRAWS.draw(cell("C6", [0.8, 1.0], [0.2, 0.6]))
    assert drawn_drop.points[0] == pytest.approx(100 * (0.9 - 0.4))
    # Not the mean of 75 and 40.
    assert drawn_drop.percent[0] == pytest.approx(100 * 0.5 / 0.9)
    assert shift_drops.percent([0.5, 0.0], [0.25, 0.0]).tolist() == [50, 0]


def test_the_interval_of_a_single_seed_covers_sampling_of_images():
    """The difference of two binomials is nearly normal with 5,000 images."""
    n, p, q = 5_000, 0.9, 0.4
    interval = shift_drops.estimate(DRAWS.draw(cell("C6", p, q, n=n)).points)
    error = 100 * math.sqrt(p * (1 - p) / n + q * (1 - q) / n)
    # Quantiles of 2,000 draws vary by about 4 % of the width.
    assert interval.low == pytest.approx(50 - 1.96 * error, abs=0.25 * error)
    assert interval.high == pytest.approx(50 + 1.96 * error, abs=0.25 * error)


def test_intervals_have_a_width_if_all_images_are_right():
    interval = shift_drops.estimate(
        DRAWS.draw(cell("C6", [1, 1], [1, 1], n=100)).points
    )
    assert interval.low < 0 == interval.value < interval.high


def test_draws_of_few_seeds_follow_students_t():
    """Percentiles of the draws match Student's t interval of the mean."""
    values = np.array([0.3, 0.4, 0.56])
    draws = shift_drops.AccuracyDraws(40_000, 0)
    mean, *drawn = draws.draw(cell("C6", 0 * values + 0.9, values, n=10**9)).points
    error = 100 * values.std(ddof=1) / math.sqrt(3)
    # Wider intervals are cut at 0 and 100.
    expected = scipy.stats.t.interval(0.5, 2, mean, error)
    np.testing.assert_allclose(np.percentile(drawn, (25, 75)), expected, atol=0.2)


def verdicts(cells, draws=DRAWS, **options):
    """Return the rows of recipes and attributes."""
    return shift_drops.verdicts(cells, draws, **options)[0]


def test_the_drop_of_the_control_is_subtracted():
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


def test_a_bug_is_significantly_larger_than_tau():
    cells = [cell("C0", 0.9, 0.9), cell("C6", 0.9, 0.84)]
    (verdict,) = verdicts(cells)
    assert verdict["over_low"] < 5 < verdict["over"]
    assert verdict["holm"] > 0.05
    assert verdict["verdict"] == shift_drops.NONE
    (verdict,) = verdicts(cells, tau=1)
    assert verdict["verdict"] == shift_drops.BUG


def test_area_is_the_mean_height_of_the_curve():
    grid = np.linspace(0.5, 1, 2_001)
    assert shift_drops.area(grid, grid**3) == pytest.approx(
        (1 - 0.5**4) / 4 / 0.5, rel=1e-6
    )
    assert shift_drops.area([0.5, 1], [10, 30]) == 20
    assert shift_drops.area([0.5, 0.6, 1], [0, 0, 50]) == pytest.approx(20)
    assert math.isnan(shift_drops.area([1], [10]))


def test_with_many_images_the_test_is_students_t():
    random = np.random.default_rng(1)
    last, first = random.normal(0.52, 0.02, 4), random.normal(0.5, 0.02, 5)
    cells = [cell("C6", 0.9 + 0 * x, 0.9 - x, n=10**12) for x in (last, first)]
    welch = scipy.stats.ttest_ind(last, first, equal_var=False, alternative="greater")
    p = shift_drops.p_larger(cells[0], cells[1])
    assert p == pytest.approx(welch.pvalue, rel=1e-4)
    alone = scipy.stats.ttest_1samp(last, 0.51, alternative="greater")
    moved = cell("C6", 0.9 + 0 * last, 0.9 - last + 0.51, n=10**12)
    p = shift_drops.p_larger(moved, None)
    assert p == pytest.approx(alone.pvalue, rel=1e-4)


def simulated(random, levels, *, seeds, n=400, drop=0.0, std=0.02, attribute="a"):
    """Return cells whose seeds share images: an image is equally hard for all seeds."""
    cells = []
    for level in levels:
        accuracies = []
        for mean in (0.8, 0.8 - drop * (shifts.LEVELS[level].share > 0.5)):
            difficulty = random.random(n)
            seed_means = np.clip(random.normal(mean, std, seeds), 0, 1)
            accuracies.append([(difficulty < p).mean() for p in seed_means])
        inside, outside = accuracies
        cells.append(cell(level, inside, outside, n=n, attribute=attribute))
    return cells


@pytest.mark.slow
@cases.each(("seeds", "std"), [(1, 0.0), (3, 0.02), (5, 0.05)])
def test_p_values_keep_the_level_without_a_drop(seeds, std):
    random = np.random.default_rng(seeds)
    hits, times = 0, 1_500
    for _ in range(times):
        shifted, control = simulated(random, ("C6", "C0"), seeds=seeds, std=std)
        hits += shift_drops.p_larger(shifted, control) < 0.05
    # Five standard errors of a share of 1,500.
    assert hits / times < 0.05 + 5 * math.sqrt(0.05 * 0.95 / times)
    assert hits / times > 0.005  # The test is not trivially conservative.


@cases.each("seeds", [1, 3, 5])
def test_intervals_cover_the_true_drop(seeds):
    random = np.random.default_rng(seeds)
    draws, num_covered, times = shift_drops.AccuracyDraws(400, 0), 0, 300
    for _ in range(times):
        (shifted,) = simulated(
            random, ("C6",), seeds=seeds, drop=0.3, std=0.01 * (seeds > 1)
        )
        interval = shift_drops.estimate(draws.draw(shifted).points)
        num_covered += interval.low <= 30 <= interval.high
    # Nominally 95 %; 300 simulations and few seeds allow less.
    assert num_covered / times > 0.9


@pytest.mark.slow
def test_attributes_without_drops_rarely_have_a_bug():
    """Holm over ten attributes and three kinds bounds false bugs, even with tau = 0."""
    random = np.random.default_rng(3)
    draws, false_alarms, times = shift_drops.AccuracyDraws(100, 0), 0, 120
    levels = ("M0", "M4", "C0", "C6", "J0", "J4")
    for _ in range(times):
        cells = [
            shifted
            for name in "abcdefghij"
            for shifted in simulated(random, levels, seeds=3, attribute=name)
        ]
        rows = verdicts(cells, draws, tau=0)
        false_alarms += any(row["verdict"] == shift_drops.BUG for row in rows)
    assert false_alarms / times <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / times)


@pytest.mark.slow
@cases.each("seed", range(10))
@cases.each("kind", ["marginal", "conditional"])
def test_a_planted_bug_is_ranked_first_with_its_kind(seed, kind):
    random = np.random.default_rng(seed)
    cells = []
    for name in "abcdefghij":
        for control, last in (("M0", "M4"), ("C0", "C6")):
            has_bug = name == "e" and shifts.LEVELS[last].kind == kind
            cells += simulated(
                random, (control, last), seeds=5, drop=0.3 * has_bug, attribute=name
            )
    rows = verdicts(cells)
    assert [row["verdict"] for row in rows] == [shift_drops.BUG] + 9 * ["none found"]
    assert (rows[0]["attribute"], rows[0]["kind"]) == ("e", kind)


def test_holm_covers_all_candidates_and_kinds():
    random = np.random.default_rng(5)
    cells = [
        shifted
        for name in "ab"
        for shifted in simulated(
            random, ("M0", "M4", "C0", "C6"), seeds=3, drop=0.03, attribute=name
        )
    ]
    # A control without a shift is not tested.
    cells += [cell("C0", 0.9, 0.9, attribute="z")]
    rows, kinds = shift_drops.verdicts(cells, DRAWS)
    tested = [row for row in kinds if not math.isnan(row["p"])]
    assert len(tested) == 4
    running = 0.0
    for i, row in enumerate(sorted(tested, key=lambda row: row["p"])):
        running = max(running, min((4 - i) * row["p"], 1))
        assert row["holm"] == pytest.approx(running)
    assert rows[-1]["attribute"] == "z" and "kind" not in rows[-1]
    assert rows[-1]["verdict"] == shift_drops.UNKNOWN


def test_a_significant_but_small_drop_is_no_bug():
    cells = [cell("M0", [0.9] * 5, [0.9] * 5, n=10**6)]
    cells += [cell("M4", [0.9] * 5, [0.86] * 5, n=10**6)]
    (verdict,) = verdicts(cells)
    assert verdict["over_low"] > 3.5
    assert verdict["over"] == pytest.approx(4)
    assert verdict["verdict"] == shift_drops.NONE
    (verdict,) = verdicts(cells, tau=3)
    assert verdict["verdict"] == shift_drops.BUG


def test_remedies_have_the_share_of_the_drop_they_close():
    plain = cell("C6", [0.9, 0.92, 0.94], [0.3, 0.32, 0.34])
    stronger = cell("C6", [0.88, 0.9, 0.92], [0.73, 0.75, 0.77], algorithm="group_dro")
    less = cell("C5", 0.9, 0.5)
    less_too = cell("C5", 0.9, 0.6, algorithm="group_dro")
    rows = shift_drops.remedies([less, less_too, stronger, plain], DRAWS)
    # C6 is the most extreme level that the recipes share.
    assert [row["_cell"] for row in rows] == [plain, stronger]
    first, second = rows
    assert second["closed"] == pytest.approx(0.75)
    assert second["closed_low"] < 0.75 < second["closed_high"]
    assert second["id_cost"] == pytest.approx(2)
    assert second["gain"] == pytest.approx(43)
    assert [row["pairs"] for row in rows] == ["plain", "yes"]
    assert math.isnan(first["closed"])


def test_paired_seeds_give_narrower_intervals_of_a_remedy():
    """Both recipes vary equally with the seed, so their difference varies only by images."""
    shifts_by_seed = np.array([-0.2, 0.0, 0.2, 0.1, -0.1])
    plain = cell("C6", 0 * shifts_by_seed + 0.9, 0.4 + shifts_by_seed, n=10**6)
    paired = cell(
        "C6", 0 * shifts_by_seed + 0.9, 0.6 + shifts_by_seed, n=10**6, algorithm="irm"
    )
    unpaired = cell(
        "C6",
        0 * shifts_by_seed + 0.9,
        0.6 + shifts_by_seed,
        n=10**6,
        algorithm="irm",
        seeds=range(5, 10),
    )
    (_, paired_row), (_, unpaired_row) = (
        shift_drops.remedies([plain, x], DRAWS) for x in (paired, unpaired)
    )
    widths = [row["gain_high"] - row["gain_low"] for row in (paired_row, unpaired_row)]
    assert (paired_row["pairs"], unpaired_row["pairs"]) == ("yes", "no")
    assert widths[0] < 0.1 * widths[1]


def test_without_a_drop_the_closed_share_is_undefined():
    plain, other = cell("C6", 0.9, 0.9), cell("C6", 0.9, 0.95, algorithm="irm")
    _, row = shift_drops.remedies([plain, other], DRAWS)
    assert math.isnan(row["closed"])
    with pytest.raises(
        ValueError, match="--reference: must be an algorithm of the runs"
    ):
        shift_drops.remedies([plain, other], DRAWS, reference="sagnet")


def test_the_recipe_with_the_fewest_inputs_is_plain():
    jitter = cell("C6", 0.9, 0.6, settings={"inputs": '[{"name": "jitter"}]'})
    plain = cell("C6", 0.9, 0.3, settings={"inputs": "[]"})
    rows = shift_drops.remedies([jitter, plain], DRAWS)
    assert rows[0]["_cell"] is plain and rows[0]["pairs"] == "plain"
    assert rows[1]["closed"] == pytest.approx(0.5)
    different_options = cell(
        "C6", 0.9, 0.6, algorithm="irm", options={"images": "1000"}
    )
    assert shift_drops.remedies([plain, different_options], DRAWS) == []


def test_rank_correlations_of_models_match_scipy():
    random = np.random.default_rng(0)
    inside, outside = random.random(6), random.random(6)
    cells = [
        cell("C6", x, y, model=f"m{i}", n=10**9)
        for i, (x, y) in enumerate(zip(inside, outside, strict=True))
    ]
    (row,) = shift_drops.ranks(cells, DRAWS)
    tau = scipy.stats.kendalltau(inside, outside, method="exact")
    assert (row["tau"], row["tau_p"]) == pytest.approx((tau.statistic, tau.pvalue))
    assert row["rho"] == pytest.approx(scipy.stats.spearmanr(inside, outside).statistic)
    crossed = row["discordant"] / row["pairs"]
    assert row["tau"] == pytest.approx(1 - 2 * crossed)  # No ties.
    # With many images and one seed, nothing varies.
    assert row["low"] == row["high"] == pytest.approx(row["tau"])
    assert not list(shift_drops.ranks(cells[:2], DRAWS))


def test_ranks_use_the_most_extreme_level_shared_by_the_models():
    ids = dict(zip("abc", (0.7, 0.8, 0.9), strict=True))
    of_level = {"C4": (1, 1, 1), "C5": (1, 1, -1), "C6": (1, 1)}
    cells = [
        cell(level, x, 0.5 + sign * x / 4, model=model, n=10**9)
        for level, signs in of_level.items()
        for (model, x), sign in zip(ids.items(), signs)
    ]
    (row,) = shift_drops.ranks(cells, DRAWS)
    assert row["crossed"] == "2 of 3"
    (row,) = shift_drops.ranks([x for x in cells if x.level == "C4"], DRAWS)
    assert row["discordant"] == 0


def test_redrawn_rank_correlations_match_kendalls_tau():
    random = np.random.default_rng(2)
    x, y = random.integers(4, size=(2, 50, 7)).astype(float)
    expected = [stats.kendall(a, b, permutations=1).statistic for a, b in zip(x, y)]
    fields, models = ("here", "erm", "digits", "colour", "joint"), "abcdefg"
    row = shift_drops.agreement(fields, models, shift_drops.DrawnAccuracies(x.T, y.T))
    interval = bootstrap_intervals.estimate(0, np.array(expected[1:]), confidence=0.95)
    assert row["tau"] == pytest.approx(expected[0])
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
