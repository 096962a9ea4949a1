"""The page on numbers of seeds: power and replay are recomputed here by other code."""

import csv
import itertools
import math
import pathlib
import re
import string

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from studies import (
    all_results,
    how_many_seeds,
    sequential_equivalence,
    sequential_power,
    sequential_replay,
)

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / how_many_seeds.PAGE).read_text("utf-8")
TEMPLATE = how_many_seeds.TEMPLATE.read_text("utf-8")
ALL = all_results.read_of_more_seeds()
POWER = pd.read_csv(ROOT / "studies/results" / sequential_power.TABLE)
REPLAY = pd.read_csv(ROOT / "studies/results" / sequential_replay.TABLE)
EQUIVALENCE = pd.read_csv(ROOT / "studies/results" / sequential_equivalence.TABLE)
SPREADS = pd.read_csv(ROOT / "studies/results" / sequential_power.SPREADS)
# Digits of the page that no result decides: settings, designs and formulas.
CONSTANTS = (
    r"(?s)```.*?```|d/\(1\+d\)|\(1\+d\)\^−n|ln\(1/α\)/ln\(1\+d\)|0 against 1|"
    r"`bounds=\(0\.4, 0\.6\)`|at most 5 %|own 5 %|for 2 points|for 10 |, 5 points|"
    r"any of 200 looks|`100 \* scores|seeds 0 to 49 against 50 to 99"
)
FRACTIONS = (0.25, 0.55, 0.85, 0.98)


def own_stop(differences, alpha):
    """Return (pairs, sign) of the first look with an e-value of 1 / alpha; (None, 0) if none.

    differences: in [-1, 1]. The capital of a bet c on either sign is the product of 1 ± c d.
    """
    capitals = [1.0] * (2 * len(FRACTIONS))
    bets = [sign * c for c in FRACTIONS for sign in (1, -1)]
    total = 0.0
    for i, d in enumerate(differences):
        total += d
        capitals = [x * (1 + bet * d) for x, bet in zip(capitals, bets)]
        if sum(capitals) / len(capitals) >= 1 / alpha:
            return i + 1, np.sign(total)
    return None, 0


def hundred():
    rows = ALL[(ALL["study"] == "hundred-seeds") & (ALL["metric"] == "shape_bias")]
    return rows.sort_values("seed")["score"].to_numpy()


def power_row(spread, difference, rule, methods=2, low=0.0):
    rows = POWER[(POWER["spread"] == spread) & (POWER["difference"] == difference)]
    rows = rows[(rows["rule"] == rule) & (rows["methods"] == methods)]
    rows = rows if rule == "t" else rows[rows["low"] == low]
    (record,) = rows.to_dict("records")
    return record


def test_every_number_of_the_page_is_a_field():
    literals = (literal for literal, *_ in string.Formatter().parse(TEMPLATE))
    text = re.sub(CONSTANTS, "", "".join(literals))
    assert not re.findall(r".{0,20}\d.{0,20}", text)


def test_the_page_is_the_template_with_the_stored_tables():
    fields = how_many_seeds.results(how_many_seeds.Tables())
    assert how_many_seeds.text(fields) == PAGE
    words = re.sub(r"(?s)```.*?```|[|]|-{3,}", " ", PAGE).split()
    assert len(words) <= 900


def test_the_first_ten_lines_answer_the_question():
    """Seeds for three differences, a command that can decide, its chance and its hours."""
    rows = {d: power_row("hundred", d, "mean") for d in (0.4, 0.2, 0.1)}
    lines = PAGE.splitlines()
    start = " ".join(lines[:10])
    for d, row in rows.items():
        assert f"{100 * d:.0f}" in start and f"{row['needed']:.0f}" in start
    assert f"chance of {100 * rows[0.4]['right_30']:.0f} %" in start
    assert rows[0.4]["right_30"] >= 0.8 and "--max-seeds=30" in " ".join(lines[:13])
    folder = ROOT / "docs/results/shapes/tables"
    with (folder / "costs.csv").open(newline="") as file:
        costs = {row["run"]: float(row["device_hours"]) for row in csv.DictReader(file)}
    with (folder / "runs.csv").open(newline="") as file:
        runs = {
            (row["algorithm"], row["seed"].split(":")[0])
            for row in csv.DictReader(file)
        }
    both = sum(costs[run] for name, run in runs if name in ("erm", "sagnet"))
    # Ten seeds of each, on two cores.
    for seeds in (30, rows[0.2]["needed"]):
        assert f"{seeds * both / 20:.1f} hours" in start


def test_equal_methods_are_shown_to_be_equivalent():
    """Studies of ERM's seeds in plain Python; tolerances are four standard errors of 300."""
    row = EQUIVALENCE[(EQUIVALENCE["spread"] == "hundred")].set_index("points").loc[40]
    rng = np.random.default_rng(5)
    looks = []
    for _ in range(300):
        a, b = rng.choice(hundred(), (2, 100))
        lower, _ = own_stop_at(a - b, -0.4)
        upper, _ = own_stop_at(b - a, -0.4)
        looks.append(max(lower, upper))
    for cap in (30, 100):
        share = np.mean([n <= cap for n in looks])
        assert share == pytest.approx(
            row[f"within_{cap}"], abs=4 * 0.5 / math.sqrt(300)
        )
    errors = EQUIVALENCE["error"]
    assert (errors <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / EQUIVALENCE["studies"])).all()
    assert (EQUIVALENCE["needed"] >= EQUIVALENCE["least"]).all()


def own_stop_at(differences, mean):
    """Return (pairs, capital) of the first look that excludes `mean` from below; (inf, last)."""
    capitals = [1.0] * (2 * len(FRACTIONS))
    total = 0.0
    for i, d in enumerate(differences):
        total += d
        x, m = (1 + d) / 2, (1 + mean) / 2
        factors = [(1 + c * (x - m) / m) for c in FRACTIONS]
        factors += [(1 - c * (x - m) / (1 - m)) for c in FRACTIONS]
        capitals = [y * factor for y, factor in zip(capitals, factors)]
        if np.mean(capitals) >= 20 and total / (i + 1) > mean:
            return i + 1, np.mean(capitals)
    return math.inf, np.mean(capitals)


def test_equivalence_is_decided_as_compare_does():
    rng = np.random.default_rng(6)
    a, b = rng.beta(4, 2, (12, 60)), rng.beta(4, 2, (12, 60))
    b[:3] = rng.beta(2, 4, (3, 60))
    pairs, is_claimed = sequential_equivalence.find_equivalence((1 + a - b) / 2, 20)
    for i in range(len(a)):
        result = stats.compare(a[i], b[i], points=20)
        is_equivalent = result.decision == "equivalent"
        assert pairs[i] == (result.stopped_at if is_equivalent else math.inf)
        assert is_claimed[i] == (result.decision in ("a", "b"))
    assert np.isfinite(pairs).any() and is_claimed.any()


@pytest.mark.slow
def test_figures_are_rebuilt_to_the_byte(tmp_path):
    assert how_many_seeds.main([f"--out={tmp_path}"]) == 0
    for name in (how_many_seeds.FIGURE, how_many_seeds.REPLAY_FIGURE):
        stored = (ROOT / "docs" / name).read_bytes()
        assert (tmp_path / name).read_bytes() == stored, name


def test_quartiles_of_spreads():
    """Standard deviations over the seeds of each cell, without pandas' groups."""
    with (ROOT / "docs/results/all.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    rows = [row for row in rows if row["study"] not in all_results.OF_THREE_SEEDS]
    keys = ("study", "rate", "method", "set", "epochs")
    for metric, stored in SPREADS.groupby("metric"):
        cells = {}
        for row in rows:
            if row["metric"] == metric:
                cell = cells.setdefault(tuple(row[key] for key in keys), [])
                cell.append(float(row["score"]))
        deviations = [np.std(cell, ddof=1) for cell in cells.values()]
        expected = np.percentile(deviations, [25, 50, 75])
        np.testing.assert_allclose(stored["deviation"], expected, rtol=1e-5)
        assert set(stored["groups"]) == {len(cells)}


@pytest.mark.parametrize("difference", sequential_power.DIFFERENCES)
def test_laws_have_the_difference_and_the_deviation(difference):
    """Means and deviations of a million draws; tolerances are five standard errors."""
    laws = {"hundred": sequential_power.hundred_law(hundred(), difference)}
    for deviation, bounds in itertools.product(
        SPREADS["deviation"], sequential_power.BOUNDS
    ):
        name = f"{deviation}, {bounds}"
        laws[name] = sequential_power.beta_law(deviation, difference, bounds)
    rng = np.random.default_rng(0)
    for law in filter(None, laws.values()):
        a, b = (draw(rng, (1, 100_000)) for draw in (law.better, law.worse))
        assert 0 <= min(a.min(), b.min()) <= max(a.max(), b.max()) <= 1
        error = 5 * law.deviation * math.sqrt(2 / a.size)
        assert a.mean() - b.mean() == pytest.approx(difference, abs=error)
        pooled = math.sqrt((a.var() + b.var()) / 2)
        assert pooled == pytest.approx(law.deviation, rel=0.02)
    assert laws["hundred"] is not None
    wide = [law for name, law in laws.items() if name.endswith("(0.0, 1.0)")]
    assert None not in wide  # Rows of every spread.


@pytest.mark.slow
def test_simulated_studies_stop_as_compare_does():
    rng = np.random.default_rng(1)
    a, b = rng.beta(4, 2, (25, 40)), rng.beta(2, 2, (25, 40))
    for alpha in (0.05, 0.05 / 7):
        (stops,) = sequential_power.find_stops((1 + a - b) / 2, [alpha])
        for i in range(len(a)):
            result = stats.compare(a[i], b[i], alpha=alpha)
            assert stops.pairs[i] == (result.stopped_at or math.inf)
            assert stops.is_right[i] == (result.decision == "a")


@pytest.mark.parametrize(("rule", "methods"), [("mean", 2), ("mean", 8), ("wins", 2)])
def test_power_with_the_shape_bias_of_erm(rule, methods):
    """Studies drawn seed by seed in plain Python; tolerances are four standard errors of 400."""
    row = power_row("hundred", 0.4, rule, methods)
    scores, rng = hundred(), np.random.default_rng(2)
    share = 0.4 / (1 - 2 * scores.mean())
    stops = []
    for _ in range(400):
        better, worse = rng.choice(scores, 100), rng.choice(scores, 100)
        is_mirrored = rng.random(100) < share
        differences = np.where(is_mirrored, 1 - better, better) - worse
        differences = np.sign(differences) if rule == "wins" else differences
        stops.append(own_stop(differences, 0.05 / (methods - 1)))
    for cap in (30, 100):
        right = np.mean([n is not None and n <= cap and s > 0 for n, s in stops])
        assert right == pytest.approx(row[f"right_{cap}"], abs=4 * 0.5 / 20)
    pairs = [min(n or 200, 200) for n, _ in stops]
    if rule == "mean":  # Nearly all are decided within 100 pairs of seeds.
        error = 4 * np.std(pairs) / 20
        assert np.mean(pairs) == pytest.approx(row["mean_200"], abs=error + 1)


def test_decisions_are_seldom_wrong_and_add_up():
    sequential = POWER[POWER["rule"] != "t"]
    for cap in (30, 100, 200):
        decided = sequential[f"right_{cap}"] + sequential[f"wrong_{cap}"]
        assert (decided <= 1 + 1e-9).all()
        is_needed = sequential["needed"] <= cap
        assert (decided[is_needed] >= 0.8 - 1e-9).all()
        assert (decided[~is_needed] < 0.8).all()
    # Wrong decisions and decisions between equal methods: below alpha, of 10,000 studies.
    for column in ("wrong_200", "error"):
        bound = sequential["alpha"] + 4 * np.sqrt(sequential["alpha"] / 10_000)
        assert (sequential[column] <= bound).all()
    assert (sequential["median"] <= sequential["needed"]).all()


def test_the_fixed_design_is_the_smallest_with_its_power():
    for row in POWER[POWER["rule"] == "t"].itertuples():
        n = int(row.needed)
        if not 2 < n < 1000:
            continue  # An approximation above 1,000.
        powers = []
        for size in (n - 1, n):
            degrees = 2 * size - 2
            shift = row.difference / (row.deviation * math.sqrt(2 / size))
            t = scipy.stats.t.isf(row.alpha / 2, degrees)
            tails = scipy.stats.nct.sf(t, degrees, shift)
            # The other tail is NaN where it is too small for scipy.
            powers.append(
                tails + np.nan_to_num(scipy.stats.nct.cdf(-t, degrees, shift))
            )
        assert powers[0] < 0.8 <= powers[1] + 1e-9


def test_no_rule_needs_fewer_seeds_than_a_hidden_failure_allows():
    """Equal means: the difference is d, or -1 with probability d / (1 + d)."""
    for d in sequential_power.DIFFERENCES:
        n = how_many_seeds.least_without_assumptions(d)
        failure = d / (1 + d)
        assert (1 - failure) * d - failure == pytest.approx(0)
        assert (1 - failure) ** n <= 0.05 < (1 - failure) ** (n - 1)
        assert n < power_row("hundred", d, "mean")["least"]
        fewer = how_many_seeds.least_without_assumptions(d, power=0.8)
        assert 0.8 * (1 - failure) ** fewer <= 0.05 < 0.8 * (1 - failure) ** (fewer - 1)
        # Independent failures: a is (1 + d) / 2 or 0, b is (1 - d) / 2 or 1; half the pairs.
        assert (1 + d) / 2 * (1 - failure) == pytest.approx(0.5)
        pairs, _ = own_stop([d] * 400, 0.05)
        assert pairs == power_row("hundred", d, "mean")["least"]


def replay_scores(row):
    """Return the seeds of both methods of a row, as arrays by ascending seed."""
    rows = ALL[(ALL["set"] == row.dataset) & (ALL["metric"] == row.metric)]
    if row.study == "hundred-seeds":
        scores = rows[rows["study"] == "hundred-seeds"].sort_values("seed")["score"]
        return scores.to_numpy()[:50], scores.to_numpy()[50:]
    sides = (
        (row.study, row.rate, row.method),
        (row.reference_study, row.reference_rate, row.reference),
    )
    scores = []
    for study, rate, method in sides:
        is_side = (rows["study"] == study) & (rows["rate"] == rate)
        is_side &= rows["method"] == method
        scores.append(rows[is_side].sort_values("seed")["score"].to_numpy())
    return scores


def test_replayed_decisions_and_tests():
    """Every fourth row, by the e-value in plain Python and by scipy."""
    signs = {"higher": 1, "lower": -1}
    for row in REPLAY.iloc[::4].itertuples():
        a, b = replay_scores(row)
        d = a[: row.pairs] - b[: row.pairs]
        assert row.pairs == min(len(a), len(b))
        for decision, seeds, differences in (
            (row.decision, row.seeds, d),
            (row.wins_decision, row.wins_seeds, np.sign(d)),
        ):
            pairs, sign = own_stop(differences, 0.05)
            assert (pairs or -1) == (-1 if math.isnan(seeds) else seeds)
            assert sign == signs.get(decision, 0)
        assert row.difference == pytest.approx(a.mean() - b.mean(), abs=2e-6)
        assert row.paired_difference == pytest.approx(d.mean(), abs=2e-6)
    for row in REPLAY.iloc[::40].itertuples():
        a, b = replay_scores(row)
        paired = scipy.stats.ttest_rel(a[: row.pairs], b[: row.pairs]).pvalue
        welch = scipy.stats.ttest_ind(a, b, equal_var=False).pvalue
        assert (row.paired_p, row.welch_p) == pytest.approx((paired, welch), rel=1e-4)


def test_every_comparison_is_replayed():
    """Each method of a study but its ERM, on ten test sets and for shape bias."""
    assert not REPLAY.duplicated(
        ["study", "rate", "method", "reference_study", "dataset", "metric"]
    ).any()
    for study, size in (("every-rate", 3 * 7 * 11), ("shapes", 14 * 11)):
        is_own = (REPLAY["study"] == study) & (REPLAY["reference_study"] == study)
        assert is_own.sum() == size
    studies = {*ALL["study"]} - {"one-init", "one-order"}
    assert {*REPLAY["study"]} == studies
    same_rate = REPLAY["study"] == "every-rate"
    assert (REPLAY["rate"] == REPLAY["reference_rate"])[same_rate].all()


def test_random_halves_are_seldom_decided():
    """Recounted with other splits; tolerances are four standard errors of 300 splits."""
    stored = pd.read_csv(ROOT / "studies/results" / sequential_replay.HALVES)
    assert (stored[["mean", "wins"]] <= 0.05 + 4 * math.sqrt(0.05 / 2000)).all(
        axis=None
    )
    (row,) = stored[stored["metric"] == "shape_bias"].to_dict("records")
    scores, rng = hundred(), np.random.default_rng(3)
    for quantity, transform in (("mean", np.asarray), ("wins", np.sign)):
        is_decided = []
        for _ in range(300):
            first, second = np.split(rng.permutation(scores), 2)
            pairs, _ = own_stop(transform(first - second), 0.05)
            is_decided.append(pairs is not None)
        assert np.mean(is_decided) == pytest.approx(row[quantity], abs=0.05)


def test_pvalues_are_adjusted_within_a_family():
    is_hundred = REPLAY["reference_study"] == "hundred-seeds"
    family = REPLAY["study"].mask(is_hundred, "hundred-seeds")
    for _, rows in REPLAY.groupby(family):
        for test in ("paired", "welch"):
            pvalues = rows[f"{test}_p"].to_numpy()
            order = np.argsort(pvalues)
            factors = np.arange(len(order), 0, -1)
            steps = np.maximum.accumulate(pvalues[order] * factors)
            expected = np.minimum(steps, 1)
            adjusted = rows[f"{test}_holm"].to_numpy()[order]
            np.testing.assert_allclose(adjusted, expected, rtol=1e-4)


def test_statements_without_numbers_hold():
    """The words of the page that no field decides."""
    replay = how_many_seeds.replay_numbers(how_many_seeds.Tables())
    for rule in ("mean", "wins"):
        assert replay[rule]["agree"] == replay[rule]["decided"]
    assert replay["halves"]["mean"]["decided"] == 0
    halves = REPLAY[REPLAY["study"] == "hundred-seeds"]
    decided = halves.dropna(subset="wins_decision")
    assert set(decided["wins_seeds"]) == {decided["wins_seeds"].iloc[0]}
    # No pairs of five seeds can be decided; the t-test of the figure needs the fewest.
    assert (
        REPLAY.loc[REPLAY["pairs"] == 5, ["decision", "wins_decision"]]
        .isna()
        .all(axis=None)
    )
    for spread in ("accuracy median", "hundred"):
        for d in sequential_power.DIFFERENCES:
            t = power_row(spread, d, "t")["needed"]
            rules = ("mean", "wins")
            assert t <= min(power_row(spread, d, rule)["needed"] for rule in rules)


@pytest.mark.slow
def test_other_studies_show_equivalence_as_often(tmp_path):
    """200 other studies per row; tolerances are four standard errors."""
    stored = EQUIVALENCE[["within_30", "within_100", "within_200", "error"]].to_numpy()
    rows = pd.DataFrame(sequential_equivalence.rows(200, seed=1))
    assert [*rows] == [*EQUIVALENCE] == [*sequential_equivalence.COLUMNS]
    shares = rows[["within_30", "within_100", "within_200", "error"]].to_numpy()
    error = np.sqrt(stored * (1 - stored) / 200)
    assert (abs(shares - stored) <= 4 * error + 0.015).all()
    argv = ["--studies=2", f"--out={tmp_path}"]
    assert sequential_equivalence.main(argv) == 0
    written = pd.read_csv(tmp_path / sequential_equivalence.TABLE)
    assert [*written] == [*EQUIVALENCE] and len(written) == len(EQUIVALENCE)
