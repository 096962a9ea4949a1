"""The studies of false claims of repeated comparisons: simulations, stored files, and attacks."""

import math
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from studies import breaking_the_guarantee as attacks
from studies import command
from studies import sequential_nulls as nulls

TABLES = {
    name: pd.read_csv(command.RESULTS / f"{name}.csv", keep_default_na=False)
    for name in (
        "sequential_nulls",
        "sequential_nulls_by_look",
        "sequential_ebh",
        "breaking_the_guarantee",
    )
}
NULLS, BY_LOOK, EBH, ATTACKS = TABLES.values()
SHAPES = nulls.shapes()
TTESTS = (nulls.PAIRED, nulls.WELCH)


def draw(name, studies, looks, difference=0, seed=0):
    """Return the scores of a chunk of studies in which all methods have the difference."""
    chunks = nulls.simulate(
        SHAPES[name],
        studies=studies,
        difference=difference,
        num_different=7,
        key=(seed, 77),
        looks=looks,
    )
    return next(chunks)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("points", [None, 40])
def test_decisions_are_those_of_compare_with_control(name, points):
    """Differences of -15 and 15 points, at a level that decides early."""
    looks = 20
    scores = draw(name, 2, looks, difference=15)
    sign = np.array([1, -1, 1, -1, 1, -1, 1]).reshape(7, 1)
    a = np.where(sign > 0, scores.methods, scores.control)
    b = np.where(sign > 0, scores.control, scores.methods)
    decision, stopped_at = nulls.decide(nulls.evidences(a - b, points), 0.5)
    for index in ((0, 0), (1, 1)):
        result = stats.compare(a[index], b[index], alpha=0.5, points=points)
        assert (result.decision or "") == decision[index]
        assert (result.stopped_at or looks + 1) == stopped_at[index]
    assert (decision != "").any()


def test_ttests_are_those_of_scipy_after_every_seed():
    scores = draw("skewed", 40, 12, difference=5)
    a, b = scores.methods[:, 0], np.broadcast_to(scores.control[:, 0], (40, 12))
    level, margin, never = 0.1, 0.05, 13
    expected = {name: np.full(40, never) for name in ("paired", "equivalent", "welch")}
    for n in range(12, 2, -1):
        x, y = a[:, :n], b[:, :n]
        low, high = (
            scipy.stats.ttest_1samp(x - y, end, axis=1, alternative=side).pvalue
            for end, side in ((margin, "less"), (-margin, "greater"))
        )
        pvalues = {
            "paired": scipy.stats.ttest_rel(x, y, axis=1).pvalue,
            "equivalent": np.maximum(low, high),
            "welch": scipy.stats.ttest_ind(x, y, axis=1, equal_var=False).pvalue,
        }
        for name, pvalue in pvalues.items():
            expected[name][pvalue < level] = n
    paired = nulls.paired_ttest(a - b, level)
    both = nulls.paired_ttest(a - b, level, points=100 * margin)
    np.testing.assert_array_equal(paired.stopped_at, expected["paired"])
    np.testing.assert_array_equal(nulls.welch_ttest(a, b, level), expected["welch"])
    earliest = np.minimum(expected["paired"], expected["equivalent"])
    np.testing.assert_array_equal(both.stopped_at, earliest)
    is_equal = (earliest == expected["equivalent"]) & (earliest < never)
    np.testing.assert_array_equal(both.decision == "equivalent", is_equal)
    last = np.minimum(paired.stopped_at, 12)
    sums = np.cumsum(a - b, axis=1)[np.arange(40), last - 1]
    names = np.where(paired.stopped_at == never, "", np.where(sums > 0, "a", "b"))
    np.testing.assert_array_equal(paired.decision, names)
    assert len(set(names)) == 3 and is_equal.any()


def test_e_bh_of_many_studies_is_that_of_one():
    logs = np.random.default_rng(0).normal(4, 1.5, (300, 7))
    logs[:50, 3] = logs[:50, 4]
    logs[50:60] -= 5
    expected = [stats.sequential.e_bh(np.exp(row), alpha=0.05) for row in logs]
    np.testing.assert_array_equal(nulls.e_bh(logs), expected)
    by_look = nulls.e_bh(np.stack([logs, logs - 1], axis=2))
    np.testing.assert_array_equal(by_look[..., 0], expected)
    assert len({int(row.sum()) for row in expected}) > 4
    is_null = np.arange(7) < 4
    result = nulls.discoveries(logs, is_null)
    for row, share, count in zip(expected, result.false_share, result.count):
        assert count == row.sum()
        assert share == (row[:4].sum() / row.sum() if row.any() else 0)


@pytest.mark.parametrize("name", SHAPES)
def test_methods_have_the_true_difference_and_scores_from_0_to_1(name):
    """280,000 scores of methods and 40,000 of the control: within 4 standard errors."""
    for difference in (0, *nulls.MARGINS):
        scores = draw(name, 200, 200, difference=difference)
        for values in (scores.methods, scores.control):
            assert values.min() >= 0 and values.max() <= 1
        error = math.sqrt(
            scores.methods.var() / scores.methods.size
            + scores.control.var() / scores.control.size
        )
        mean = scores.methods.mean() - scores.control.mean()
        assert mean == pytest.approx(difference / 100, abs=4 * error)
    seeds = nulls.erm_seeds()
    assert len(seeds) == 100 and (seeds > 0.5).sum() == 24
    weights = nulls.tilted_weights(seeds, 0.1)
    assert weights @ seeds == pytest.approx(seeds.mean() + 0.1, abs=1e-9)
    assert weights.sum() == pytest.approx(1) and (np.diff(weights) >= 0).all()


def test_no_comparison_makes_false_claims_in_more_than_5_percent_of_studies():
    """10,000 studies each. The upper bound of the guarantee is 5 %; no share is above it."""
    assert (NULLS.studies == 10_000).all() and (NULLS.looks == 200).all()
    is_sequential = NULLS.rule.isin([nulls.SEQUENTIAL, nulls.WINS])
    assert NULLS.share[is_sequential].max() <= 0.05
    assert (NULLS.false_claims == (NULLS.share * NULLS.studies).round()).all()
    cases = set(
        zip(NULLS["shape"], NULLS.methods, NULLS.rule, NULLS.difference, NULLS.points)
    )
    assert len(cases) == len(NULLS)
    for name in SHAPES:
        for methods in nulls.METHODS:
            for difference, points in (
                (0, ""),
                (0, "10"),
                (0, "20"),
                (10, "10"),
                (20, "20"),
            ):
                assert (name, methods, nulls.SEQUENTIAL, difference, points) in cases
            assert (name, methods, nulls.PAIRED, 0, "") in cases
            assert (name, methods, nulls.WELCH, 0, "") in cases
    # The hardest scores come near the guarantee, so the simulations can fail.
    assert NULLS.share[is_sequential].max() > 0.02


def test_repeated_ttests_make_false_claims_in_more_than_a_fifth_of_studies():
    is_ttest = NULLS.rule.isin(TTESTS)
    assert NULLS.share[is_ttest & (NULLS.difference == 0)].min() > 0.2
    assert (NULLS.first_look[is_ttest] == 3).all()
    expected = np.sqrt(NULLS.share * (1 - NULLS.share) / NULLS.studies)
    np.testing.assert_allclose(NULLS.standard_error, expected, rtol=1e-4)


def test_shares_by_look_grow_to_the_share_of_all_looks():
    keys = ["shape", "methods", "rule"]
    last = NULLS[(NULLS.difference == 0) & (NULLS.points == "")].set_index(keys).share
    groups = BY_LOOK.groupby(keys)
    assert set(groups.groups) == set(last.index)
    for key, group in groups:
        assert tuple(group.look) == nulls.SHOWN_LOOKS
        assert (np.diff(group.share) >= 0).all()
        assert group.share.iloc[-1] == last[key]


def test_false_discovery_rates_are_at_most_5_percent_at_all_stopping_times():
    assert (EBH.studies == 10_000).all() and EBH.false_discovery_rate.max() <= 0.05
    assert EBH.stopping.nunique() == 6
    assert set(zip(EBH.methods, EBH.true_differences)) == {
        (5, 0),
        (5, 2),
        (8, 0),
        (8, 3),
    }
    # Without differences, all discoveries are false: the rate is the share of studies with any.
    is_null = EBH.true_differences == 0
    assert (EBH.discoveries >= EBH.false_discovery_rate)[is_null].all()
    is_last = (EBH.stopping == "last look") & ~is_null & (EBH["shape"] == "normal")
    assert (EBH.discoveries[is_last] >= EBH.true_differences[is_last]).all()


def test_attacks_inside_of_the_guarantee_fail_and_attacks_outside_succeed():
    names = [
        (attack.description, guarantee)
        for guarantee, group in attacks.ATTACKS.items()
        for attack in group
    ]
    assert list(zip(ATTACKS.attack, ATTACKS.guarantee)) == names
    assert len({name for name, _ in names}) == len(names)
    assert (ATTACKS.studies == 10_000).all()
    is_inside = ATTACKS.guarantee == "inside"
    assert ATTACKS.share[is_inside].max() <= 0.05
    assert ATTACKS.share[~is_inside].min() > 0.1
    assert (ATTACKS.false_claims == (ATTACKS.share * ATTACKS.studies).round()).all()


def test_pairs_that_are_left_out_have_no_part_in_the_claim():
    rng = np.random.default_rng(3)
    differences = np.sign(rng.normal(0.3, 1, (40, 30)))
    is_kept = rng.random((40, 30)) < 0.6
    claims = attacks.has_claim_of(differences, is_kept)
    expected = [
        bool(attacks.has_claim(row[index])) for row, index in zip(differences, is_kept)
    ]
    np.testing.assert_array_equal(claims, expected)
    assert 0 < claims.sum() < 40


def near(count, studies, share):
    """Return True if the count is within 4 standard errors of the share, or 3 studies."""
    error = math.sqrt(share * (1 - share) * studies)
    return abs(count - share * studies) <= 4 * error + 3


def test_other_studies_of_the_seeds_of_erm_have_the_stored_shares():
    rows, _ = nulls.nulls("ERM seeds", studies=60, seed=10**6)
    stored = NULLS[NULLS["shape"] == "ERM seeds"]
    for row, share in zip(rows, stored.share, strict=True):
        assert near(row["false_claims"], 60, share), row


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_other_studies_have_the_stored_shares(name):
    rows, by_look = nulls.nulls(name, studies=500, seed=10**6)
    stored = NULLS[NULLS["shape"] == name].to_dict("records")
    for row, other in zip(rows, stored, strict=True):
        for key in ("methods", "rule", "difference"):
            assert row[key] == other[key]
        assert near(row["false_claims"], 500, other["share"]), row
    shares = BY_LOOK[BY_LOOK["shape"] == name].share
    for row, share in zip(by_look, shares, strict=True):
        assert near(500 * row["share"], 500, share), row
    rows = nulls.false_discoveries(name, studies=500, seed=10**6)
    stored = EBH[EBH["shape"] == name].to_dict("records")
    for row, other in zip(rows, stored, strict=True):
        assert row["stopping"] == other["stopping"]
        error = (
            20 * other["standard_error"] + 0.003
        )  # 20: 10,000 stored studies, 500 here.
        rate = other["false_discovery_rate"]
        assert row["false_discovery_rate"] == pytest.approx(rate, abs=error)
        assert row["discoveries"] == pytest.approx(other["discoveries"], abs=0.3)


@pytest.mark.slow
def test_other_studies_of_the_attacks_have_the_stored_shares():
    rows = attacks.rows(500, seed=10**6)
    for row, share in zip(rows, ATTACKS.share, strict=True):
        assert near(row["false_claims"], 500, share), row


@pytest.mark.slow
@pytest.mark.parametrize("module", [nulls, attacks])
def test_the_commands_write_the_files(module, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "new"
    name = module.__name__.rpartition(".")[2]
    monkeypatch.setattr(sys, "argv", [name, "--studies=2", f"--out={folder}"])
    module.main()
    printed = capsys.readouterr().out
    paths = sorted(folder.iterdir())
    assert len(paths) == (3 if module is nulls else 1)
    for path in paths:
        written, stored = pd.read_csv(path), TABLES[path.stem]
        assert list(written.columns) == list(stored.columns)
        assert len(written) == len(stored) and (written.studies == 2).all()
        assert f"wrote {path}" in printed
