"""The published study: every reference value, and Tables 4 and 5 to the printed digits.

Eight inputs: four tables of scores, each over all 10 data sets and over the "strict" 7.
"""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
ORACLES = ROOT / "tests" / "oracles"
REFERENCE = json.loads((ORACLES / "biasbed_stats.json").read_text())
PAIRS = json.loads((ORACLES / "biasbed_pairs.json").read_text())
TABLES = {
    "paper_configuration": ROOT / "examples" / "biasbed_paper_configuration.csv",
    "table2_printed": ROOT / "examples" / "biasbed_table2.csv",
    "c2_means": ROOT / "examples" / "biasbed_runs.csv",
    "table3_printed": ROOT / "examples" / "published" / "biasbed_table3.csv",
}


def scores_of(name):
    table, which = name.split("/")
    frame = pd.read_csv(TABLES[table])
    matrix = frame.groupby(["dataset", "algorithm"])["score"].mean().unstack()
    order = REFERENCE["datasets"][which], REFERENCE["algorithms"]
    return matrix.loc[order[0], order[1]].to_numpy()


@cases.each("name", REFERENCE["inputs"])
def test_friedman_gives_the_reference(name):
    expected = REFERENCE["inputs"][name]
    scores = scores_of(name)
    assert scores.shape == (expected["n"], expected["k"])
    result = stats.friedman(scores, larger_is_better=True)
    named = dict(zip(REFERENCE["algorithms"], result.ranks, strict=True))
    assert named == pytest.approx(expected["avg_ranks"], abs=1e-6)
    # The reference is rounded to six decimals, its p-values are not.
    assert result.statistic == pytest.approx(expected["F"], abs=1e-6)
    assert result.chi2 == pytest.approx(expected["chi2"], abs=1e-6)
    assert result.kendall_w == pytest.approx(expected["kendall_W"], abs=1e-6)
    assert result.pvalue == pytest.approx(expected["p_F_demsar"], rel=1e-9)
    assert result.chi2_pvalue == pytest.approx(expected["p_chi2"], rel=1e-9)
    conover = stats.friedman(scores, larger_is_better=True, df="conover")
    assert conover.pvalue == pytest.approx(expected["p_F_pingouin"], rel=1e-9)
    plain = stats.friedman(scores, larger_is_better=True, ties=False)
    correction = plain.chi2 / result.chi2
    assert correction == pytest.approx(expected["tie_correction"], abs=1e-8)


@cases.each("name", REFERENCE["inputs"])
def test_nemenyi_gives_the_reference(name):
    expected = REFERENCE["inputs"][name]
    result = stats.nemenyi(scores_of(name), larger_is_better=True)
    np.testing.assert_allclose(result.pvalues, expected["nemenyi_p"], atol=1e-6)
    for alpha, key in [(0.05, "CD_0_05"), (0.1, "CD_0_10")]:
        assert result.critical_difference(alpha) == pytest.approx(
            expected[key], abs=1e-6
        )


def test_without_tie_correction():
    for which, f in [("all", 7.489), ("strict", 4.942)]:
        scores = scores_of(f"table2_printed/{which}")
        plain = stats.friedman(scores, larger_is_better=True, ties=False)
        assert plain.statistic == pytest.approx(f, abs=5e-4)


def test_published_statistics():
    """The paper prints F 7.46 and 4.98 and p 0.000002 and 0.00045.

    4.98 and 0.00045 are cut off, not rounded, and both p come from the degrees of freedom
    of the package that its authors used.
    """
    for which, f, p, digits in [("all", 7.46, 2e-6, 6), ("strict", 4.98, 0.00045, 5)]:
        scores = scores_of(f"paper_configuration/{which}")
        result = stats.friedman(scores, larger_is_better=True, df="conover")
        assert np.floor(result.statistic * 100) / 100 == pytest.approx(f)
        assert np.floor(result.pvalue * 10**digits) / 10**digits == pytest.approx(p)


@pytest.mark.parametrize("which", ["all", "strict"])
def test_published_pairs_to_the_printed_digits(which):
    """Our mean ranks give the printed p-values with the table that the authors used."""
    result = stats.nemenyi(
        scores_of(f"paper_configuration/{which}"), larger_is_better=True
    )
    interpolated = json.loads((ORACLES / "psturng.json").read_text())[which]
    place = {name: i for i, name in enumerate(REFERENCE["algorithms"])}
    for a, b, printed in REFERENCE["published"][which]:
        if a == b:
            continue
        apart = abs(result.ranks[place[a]] - result.ranks[place[b]]) * result.n
        p = interpolated.get(str(round(apart)), 0.9)
        assert p == pytest.approx(printed, abs=5e-4), (a, b)


@pytest.mark.parametrize(
    ("which", "largest", "lowest_capped"),
    [("all", 0.0226, 0.907), ("strict", 0.0268, 0.958)],
)
def test_published_pairs_against_exact_ones(which, largest, lowest_capped):
    """The authors' table is interpolated and ends at 0.9; no decision at 0.05 changes."""
    result = stats.nemenyi(
        scores_of(f"paper_configuration/{which}"), larger_is_better=True
    )
    place = {name: i for i, name in enumerate(REFERENCE["algorithms"])}
    pairs = [(a, b, p) for a, b, p in REFERENCE["published"][which] if a != b]
    assert len(pairs) == 28
    for a, b, printed in pairs:
        exact = result.pvalues[place[a], place[b]]
        assert (exact < 0.05) == (printed < 0.05)
        if printed == 0.9:
            assert exact >= lowest_capped
        else:
            assert abs(exact - printed) <= largest


def test_which_pairs_differ():
    expected = {
        "all": {
            ("pAdaIN", "Debiased"): 0.0122,
            ("pAdaIN", "DeepAugERM-CAE"): 0.0015,
            ("SagNet", "Debiased"): 0.0304,
            ("SagNet", "DeepAugERM-CAE"): 0.0045,
        },
        "strict": {
            ("pAdaIN", "Debiased"): 0.0237,
            ("pAdaIN", "DeepAugERM-CAE"): 0.0051,
        },
    }
    names = REFERENCE["algorithms"]
    for which, wanted in expected.items():
        scores = scores_of(f"paper_configuration/{which}")
        pvalues = stats.nemenyi(scores, larger_is_better=True).pvalues
        result = {
            (names[i], names[j]): pvalues[i, j]
            for i, j in zip(*np.triu_indices(8, 1), strict=True)
            if pvalues[i, j] < 0.05
        }
        assert result == pytest.approx(wanted, abs=5e-5)


@cases.each("name", PAIRS["inputs"])
def test_wilcoxon_gives_the_reference(name):
    expected = PAIRS["inputs"][name]
    result = stats.wilcoxon(scores_of(name), larger_is_better=True)
    # The reference is rounded to six decimals.
    np.testing.assert_allclose(result.pvalues, expected["wilcoxon_p"], atol=6e-7)
    np.testing.assert_allclose(result.adjusted, expected["wilcoxon_holm_p"], atol=6e-7)


@pytest.mark.parametrize("which", ["all", "strict"])
def test_against_erm_gives_the_reference(which):
    expected = pd.DataFrame(PAIRS["versus_ERM_control"][which])
    matrix = pd.DataFrame(
        scores_of(f"paper_configuration/{which}"), columns=REFERENCE["algorithms"]
    )
    options = {"larger_is_better": True, "control": "ERM", "adjust": "holm"}
    z = stats.bonferroni_dunn(matrix, **options)
    w = stats.wilcoxon(matrix, **options)
    assert list(z.algorithms) == list(w.algorithms) == list(expected["alg"])
    assert z.control == w.control == "ERM"
    np.testing.assert_allclose(z.statistics, expected["z"], atol=6e-5)
    np.testing.assert_allclose(z.pvalues, expected["p_z"], atol=6e-6)
    np.testing.assert_allclose(z.adjusted, expected["holm_z"], atol=6e-6)
    np.testing.assert_allclose(w.pvalues, expected["p_wilcoxon"], atol=6e-6)
    np.testing.assert_allclose(w.adjusted, expected["holm_wilcoxon"], atol=6e-6)


def test_wilcoxon_can_never_reject_here():
    """28 pairs over 10 or 7 data sets: the least adjusted p is 0.0547 or 0.44."""
    for which, least, adjusted in [("all", 0.00195, 0.0547), ("strict", 0.0156, 0.44)]:
        scores = scores_of(f"paper_configuration/{which}")
        result = stats.wilcoxon(scores, larger_is_better=True)
        assert result.least == pytest.approx(least, rel=5e-3)
        assert result.least_adjusted == pytest.approx(adjusted, rel=7e-3)
        assert result.adjusted.min() >= result.least_adjusted > 0.05
        assert result.cliques(0.05)[0] == tuple(np.argsort(result.ranks, kind="stable"))


def test_permutation_lies_between_f_and_chi2():
    """Four million draws gave 0.000584 (strict); F gives 0.00036, chi-squared 0.0023."""
    scores = scores_of("paper_configuration/strict")
    result = stats.friedman_permutation(
        scores, larger_is_better=True, permutations=100_000
    )
    assert not result.exact
    assert result.pvalue == pytest.approx(0.000584, abs=4 * result.standard_error)
    assert result.approximate.pvalue < result.pvalue < result.approximate.chi2_pvalue
    scores = scores_of("paper_configuration/all")
    result = stats.friedman_permutation(scores, larger_is_better=True)
    assert result.pvalue <= 3 / 10_001
