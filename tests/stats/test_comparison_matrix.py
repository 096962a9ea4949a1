"""The Multi-Comparison Matrix against its authors' package, scipy, and its law: pairs stay alone."""

import dataclasses
import itertools
import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import posthoc
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
# Numbers of the authors' package; the command is in multi_comparison.py beside the file.
ORACLE = json.loads((ROOT / "tests/oracles/multi_comparison.json").read_text())
UP = {"larger_is_better": True}


def read_example(name):
    """Return the scores of a table of examples/ as a frame, data sets in rows."""
    rows = pd.read_csv(ROOT / "examples" / name)
    return rows.pivot(index="dataset", columns="algorithm", values="score")


def pair_of(result, first, second):
    """Return all numbers of a pair, in the direction (first, second)."""
    i, j = map(result.methods.index, (first, second))
    matrices = (result.differences, result.wins, result.ties, result.losses)
    verdict = result.significant(0.05)[i, j]
    return (*(matrix[i, j] for matrix in matrices), result.pvalues[i, j], verdict)


def by_all_signs(d):
    """Return p of the signed-rank test from all signs; zeros are ranked and then dropped."""
    ranks = scipy.stats.rankdata(np.abs(d))
    observed = abs(np.sum(np.sign(d) * ranks))
    weights = ranks[d != 0]
    signs = np.array(list(itertools.product([-1, 1], repeat=len(weights))))
    return np.mean(np.abs(signs @ weights) >= observed - 1e-9)


@cases.each("name", list(ORACLE))
def test_numbers_and_verdicts_of_the_authors_package(name):
    """p is theirs without ties; with ties, where theirs ignores them, p is by all signs."""
    answer = ORACLE[name]
    scores = read_example(name)
    result = stats.multi_comparison_matrix(scores, **UP)
    assert [result.methods[i] for i in result.order] == answer["order"]
    np.testing.assert_allclose(
        result.means[result.order], answer["means"], atol=0.5e-4, rtol=0
    )
    num_equal = 0
    for first, second, difference, *counts, pvalue, verdict in answer["pairs"]:
        pair = pair_of(result, first, second)
        assert pair[0] == pytest.approx(difference, abs=1e-12)
        assert [*pair[1:4]] == counts
        assert pair[5] == verdict
        d = (scores[first] - scores[second]).round(6).to_numpy()
        if len(np.unique(np.abs(d))) == len(d) and d.all():
            num_equal += 1
            assert pair[4] == pytest.approx(pvalue, rel=1e-12)
        else:
            assert pair[4] == pytest.approx(by_all_signs(d), abs=1e-12)
    assert num_equal >= 16
    assert len(answer["pairs"]) == 28


@cases.each("zeros", ["pratt", "wilcox"])
def test_pvalues_of_scipy_with_zeros_and_ties(zeros):
    """Up to 200 blocks p is exact; above, it is scipy's normal approximation."""
    few = np.random.default_rng(0).integers(0, 5, size=(9, 3)).astype(float)
    result = stats.multi_comparison_matrix(few, zeros=zeros, **UP)
    large = np.random.default_rng(1).integers(0, 2, size=(400, 3)) + 0.0
    normal = stats.multi_comparison_matrix(large, zeros=zeros, **UP)
    assert result.ties[0, 1] > 0 and normal.ties[0, 1] > 100
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        method = scipy.stats.PermutationMethod(n_resamples=2**12)
        expected = scipy.stats.wilcoxon(
            few[:, i], few[:, j], zero_method=zeros, method=method
        )
        assert result.pvalues[i, j] == pytest.approx(expected.pvalue, rel=1e-9)
        expected = scipy.stats.wilcoxon(
            large[:, i],
            large[:, j],
            zero_method=zeros,
            method="asymptotic",
            correction=False,
        )
        assert normal.pvalues[i, j] == pytest.approx(expected.pvalue, rel=1e-9)


def third_methods(n, rng):
    """Yield scores (n, runs) of third methods that could change other pairs."""
    yield rng.normal(70, 1, size=(n, 1))
    yield np.zeros((n, 1))
    yield rng.normal(size=(n, 1)) * 1e60  # A wide range of scores.
    yield rng.uniform(0, 100, size=(n, 20)).astype(np.float32)  # More runs, in float32.


def test_no_third_method_changes_a_pair():
    """All numbers and the verdict of a pair are equal to the bit, whoever else takes part."""
    rng = np.random.default_rng(2)
    n, runs = 12, 9
    first = rng.normal(70, 1, size=(n, runs))
    second = np.where(rng.uniform(size=(n, 1)) < 0.3, first, first + 1e-6)
    second[:4] += rng.normal(size=(4, runs)).round(1)

    def table(**methods):
        """Return a tidy frame; methods: scores (data sets, runs) by name."""
        return pd.DataFrame(
            [
                (name, f"set {i}", run, scores[i, run])
                for name, scores in methods.items()
                for i, run in np.ndindex(scores.shape)
            ],
            columns=["algorithm", "dataset", "run", "score"],
        )

    alone = pair_of(
        stats.multi_comparison_matrix(table(a=first, b=second), **UP), "a", "b"
    )
    assert alone[2] > 0, "the pair has ties"
    for third in third_methods(n, rng):
        tables = (
            table(a=first, b=second, c=third),
            table(c=third, a=first, b=second),
            table(a=first, c=third, b=second, d=third + 1),
        )
        for scores in tables:
            result = stats.multi_comparison_matrix(scores, **UP)
            assert pair_of(result, "a", "b") == alone
            frame = result.to_frame(0.05)
            (row,) = frame[
                frame["first"].isin(["a", "b"]) & frame["second"].isin(["a", "b"])
            ].index
            difference, wins, ties, losses, pvalue, verdict = alone
            if frame["first"][row] == "b":
                difference, wins, losses = -difference, losses, wins
            expected = (difference, wins, ties, losses, pvalue, verdict)
            assert tuple(frame.loc[row].iloc[2:]) == expected
            small = result.only(["b", "a"])
            assert pair_of(small, "a", "b") == alone


def test_rounding_errors_are_those_of_the_pair():
    """A wide third method makes a small difference a tie for Wilcoxon's test of a whole table."""
    rng = np.random.default_rng(3)
    first = rng.uniform(70.1, 70.6, size=10)
    pair = np.stack([first, first + rng.uniform(1e-6, 2e-6, size=10)], axis=1)
    wide = np.column_stack([pair, rng.uniform(0, 100, size=10)])
    expected = 2**-9  # All differences have one sign.
    assert stats.wilcoxon(wide, adjust="none", **UP).pvalues[0, 1] == 1
    for scores in (pair, wide):
        result = stats.multi_comparison_matrix(scores, **UP)
        assert result.pvalues[0, 1] == expected
        assert result.losses[0, 1] == 10


def numbers(result):
    """Return the arrays of a result by name."""
    return {
        field.name: getattr(result, field.name)
        for field in dataclasses.fields(result)
        if isinstance(getattr(result, field.name), np.ndarray)
    }


def test_order_of_methods_and_blocks_changes_nothing():
    scores = np.random.default_rng(4).normal(size=(11, 5)).round(1)
    result = stats.multi_comparison_matrix(scores, **UP)
    rng = np.random.default_rng(5)
    columns, rows = rng.permutation(5), rng.permutation(11)
    mixed = stats.multi_comparison_matrix(scores[rows][:, columns], **UP)
    for name, values in numbers(result).items():
        expected = (
            values[columns] if values.ndim == 1 else values[np.ix_(columns, columns)]
        )
        np.testing.assert_array_equal(getattr(mixed, name), expected, err_msg=name)
    np.testing.assert_array_equal(
        result.wins + result.ties + result.losses + 11 * np.eye(5, dtype=int), 11
    )
    np.testing.assert_array_equal(result.differences, -result.differences.T)


def test_the_better_side_turns_wins_and_the_order_only():
    scores = np.random.default_rng(6).normal(size=(9, 4)).round(1)
    up = stats.multi_comparison_matrix(scores, larger_is_better=True)
    down = stats.multi_comparison_matrix(scores, larger_is_better=False)
    np.testing.assert_array_equal(down.wins, up.losses)
    assert down.order == up.order[::-1]
    for name in ("means", "differences", "ties", "pvalues"):
        np.testing.assert_array_equal(getattr(down, name), getattr(up, name))
    turned = stats.multi_comparison_matrix(-4 * scores, larger_is_better=False)
    np.testing.assert_array_equal(turned.wins, up.wins)
    np.testing.assert_array_equal(turned.differences, -4 * up.differences)


@pytest.mark.slow
def test_pairs_of_equal_methods_are_significant_at_the_level():
    """p is not adjusted: of 1,200 pairs of equal methods, alpha are significant, not fewer."""
    rng = np.random.default_rng(7)
    tables = [rng.normal(size=(15, 3)) for _ in range(400)]
    results = [stats.multi_comparison_matrix(table, **UP) for table in tables]
    rejected = [r.significant(0.05)[np.triu_indices(3, 1)] for r in results]
    # Exact tests of 15 blocks have the level 0.0479; four standard errors of 400 tables.
    assert np.mean(rejected) == pytest.approx(0.048, abs=4 * 0.0107)
    adjusted = [
        posthoc.wilcoxon(table, **UP).adjusted[np.triu_indices(3, 1)]
        for table in tables
    ]
    assert np.mean(rejected) > 1.5 * np.mean(np.array(adjusted) < 0.05)


def test_pairs_share_the_blocks_that_both_have():
    """A pair with missing cells equals the pair of the complete table of its blocks."""
    rng = np.random.default_rng(8)
    scores = pd.DataFrame(rng.normal(size=(12, 4)).round(1), columns=list("abcd"))
    whole = stats.shared_comparison_matrix(scores, **UP)
    complete = stats.multi_comparison_matrix(scores, **UP)
    for name, values in numbers(complete).items():
        np.testing.assert_array_equal(getattr(whole, name), values)
    missing = scores.mask(rng.uniform(size=scores.shape) < 0.3)
    result = stats.shared_comparison_matrix(missing, **UP)
    for a, b in itertools.combinations("abcd", 2):
        shared = missing[[a, b]].dropna()
        assert 2 <= len(shared) < 12
        expected = stats.multi_comparison_matrix(shared, **UP)
        assert pair_of(result, a, b) == pair_of(expected, a, b)
    assert result.means[0] == pytest.approx(missing["a"].mean())


def test_pairs_with_fewer_than_two_shared_blocks_are_not_tested():
    nan = np.nan
    scores = pd.DataFrame({"a": [1.0, 2, nan], "b": [nan, 1, 3], "c": [nan, nan, 5]})
    result = stats.shared_comparison_matrix(scores, **UP)
    assert pair_of(result, "a", "b")[:4] == (1, 1, 0, 0)
    assert np.isnan(pair_of(result, "a", "b")[4])
    assert np.isnan(pair_of(result, "a", "c")[0])
    assert pair_of(result, "a", "c")[1:4] == (0, 0, 0)
    assert not result.significant(0.05).any()


def test_the_frame_has_a_row_per_pair_the_better_mean_first():
    scores = pd.DataFrame({"low": [1.0, 2, 3], "high": [4.0, 5, 9], "mid": [2.0, 5, 5]})
    frame = stats.multi_comparison_matrix(scores, **UP).to_frame(0.3)
    assert list(frame) == [
        "first",
        "second",
        "mean_difference",
        "wins",
        "ties",
        "losses",
        "p_value",
        "significant",
    ]
    assert frame.values.tolist() == [
        ["high", "mid", 2.0, 2, 1, 0, 0.5, False],
        ["high", "low", 4.0, 3, 0, 0, 0.25, True],
        ["mid", "low", 2.0, 3, 0, 0, 0.25, True],
    ]
    level = stats.multi_comparison_matrix(scores, **UP).significant(0.25)
    assert not level.any(), "significant means p < alpha"


COMPLETE = pd.DataFrame({"a": [1.0, 2], "b": [2.0, 3]})


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (COMPLETE[["a"]], "at least 2 methods"),
        (COMPLETE.set_axis(["a", "a"], axis=1), "distinct names"),
        (COMPLETE.assign(c=np.nan), "a score of every method"),
        (COMPLETE.assign(c=np.inf), "finite or missing"),
        (COMPLETE.assign(c=1e80), "below 1e"),
        (COMPLETE.assign(c="x"), "real number"),
    ],
)
def test_refused_tables(scores, message):
    with pytest.raises(ValueError, match=message):
        stats.shared_comparison_matrix(scores, **UP)


def test_refused_arguments():
    with pytest.raises(ValueError, match="zeros"):
        stats.multi_comparison_matrix(COMPLETE, zeros="drop", **UP)
    with pytest.raises(ValueError, match="finite number on every data set"):
        stats.multi_comparison_matrix(COMPLETE.mask(COMPLETE == 3), **UP)
    result = stats.multi_comparison_matrix(COMPLETE, **UP)
    with pytest.raises(ValueError, match="alpha"):
        result.significant(5)
    with pytest.raises(ValueError, match="method"):
        result.only(["a", "z"])
