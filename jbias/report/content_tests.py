"""The tables of a report: what the tests say."""

import math

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib
from jbias.report import tables, words

_PAIRS = 60  # That the page shows; the CSV file has all.
_TERRY = (
    " and by the Bayesian Bradley-Terry model.",
    ". The Bayesian Bradley-Terry model is left out: for so many algorithms it takes long.",
)


def rank_table(study: study_lib.Study, analysis: study_lib.Analysis) -> tables.Table:
    """Shows the ranks that the tests see."""
    ranked = study_lib.rank_table(study, analysis)
    means = dict(zip(analysis.algorithms, analysis.nemenyi.ranks, strict=True))
    rows = [
        (name, *(f"{r:g}" for r in ranked[name]), f"{means[name]:.2f}")
        for name in analysis.algorithms
    ]
    columns = tables.apart(analysis.datasets, ("algorithm", "mean_rank"))
    data = ranked.T.set_axis(columns, axis=1).reset_index(names="algorithm")
    data = data.assign(mean_rank=list(means.values()))
    return tables.Table(
        name="ranks",
        caption="Ranks of the means on each data set, 1 is the best; ties share their mean "
        "rank. Means that agree to 12 digits are ties.",
        head=("Algorithm", *analysis.datasets, "Mean"),
        rows=tuple(rows),
        data=data,
    )


def nemenyi_table(analysis: study_lib.Analysis) -> tables.Table:
    """Shows the matrix of p-values, in the order of mean ranks."""
    names, result = analysis.algorithms, analysis.nemenyi
    order = [int(i) for i in np.argsort(result.ranks, kind="stable")]
    claimed = {frozenset(pair[:2]) for pair in analysis.significant}
    rows, strong = [], set()
    for a, i in enumerate(order):
        shown = []
        for b, j in enumerate(order):
            shown.append("" if i == j else tables.p_text(result.pvalues[i, j]))
            if frozenset((names[i], names[j])) in claimed:
                strong.add((a, b + 2))
        rows.append((names[i], f"{result.ranks[i]:.2f}", *shown))
    data = pd.DataFrame(result.pvalues, columns=tables.apart(names, ("algorithm",)))
    data.insert(0, "algorithm", names)
    return tables.Table(
        name="nemenyi",
        caption="p-values of Nemenyi's test for all pairs, from the studentised range (as of many "
        "data sets) and adjusted for all pairs by its nature; best mean rank first. Strong where "
        f"p ≤ {analysis.alpha:g} and Friedman's test rejects. Critical difference of mean "
        f"ranks: {analysis.critical_difference:.3f}.",
        head=("Algorithm", "Mean rank", *(names[i] for i in order)),
        rows=tuple(rows),
        data=data,
        strong=frozenset(strong),
    )


def omnibus_table(
    analysis: study_lib.Analysis, evidence: evidence_lib.Evidence
) -> tables.Table:
    """Shows all tests of the same question side by side."""
    f, plain, exact = analysis.friedman, analysis.uncorrected, analysis.permutation
    drawn = (
        "all permutations"
        if exact.exact
        else f"{exact.permutations:,} permutations, ± {exact.standard_error:.2g}"
    )
    found = [
        ("Iman and Davenport's F (the one that counts)", f.statistic, f.df, f.pvalue),
        ("the same, ties not corrected", plain.statistic, plain.df, plain.pvalue),
        ("Friedman's χ²", f.chi2, (f.df[0],), f.chi2_pvalue),
        (f"F by permutation ({drawn})", exact.statistic, (), exact.pvalue),
        ("Quade", *_numbers(evidence.quade)),
        ("aligned ranks", *_numbers(evidence.aligned)),
    ]
    rows, data = [], []
    for name, statistic, df, p in found:
        shown = "∞" if math.isinf(statistic) else f"{statistic:.3f}"
        degrees = ", ".join(f"{d:g}" for d in df) or "–"
        rows.append((name, shown, degrees, tables.p_text(p)))
        data.append((name, statistic, degrees, p))
    return tables.Table(
        name="omnibus",
        caption="Do the algorithms rank alike? Tests of the same means side by side. Quade "
        "weighs data sets by how far they spread the algorithms, aligned ranks compare "
        "across data sets; both need all data sets in one unit. Kendall's W, the agreement "
        f"of the data sets from 0 to 1, is {f.kendall_w:.3f}. Data sets: "
        f"{', '.join(analysis.datasets)}.",
        head=("Test", "statistic", "df", "p"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["test", "statistic", "df", "p"]),
    )


def _numbers(result) -> tuple:
    return result.statistic, result.df, result.pvalue


def posthoc_table(
    analysis: study_lib.Analysis, evidence: evidence_lib.Evidence
) -> tables.Table:
    """Shows every pair under every test."""
    at = {name: i for i, name in enumerate(analysis.algorithms)}
    ranked = analysis.nemenyi.ranks
    tests = {
        "Nemenyi": analysis.nemenyi.adjusted,
        "max-T": evidence.max_t.adjusted,
        "Conover–Holm": evidence.conover.adjusted,
        "Wilcoxon–Holm": evidence.wilcoxon.adjusted,
    }
    terry = evidence.bradley_terry
    rows, data, strong = [], [], set()
    for row, (better, worse, _) in enumerate(analysis.pairs):
        i, j = at[better], at[worse]
        p = [matrix[i, j] for matrix in tests.values()]
        chances = [evidence.signed_rank.better[i, j], evidence.signed_rank.rope[i, j]]
        if terry is not None:
            chances.append(terry.better[i, j])
        apart = ranked[j] - ranked[i]
        data.append((better, worse, apart, *p, *chances))
        shown = [*map(tables.p_text, p), *(f"{chance:.2f}" for chance in chances)]
        if row < _PAIRS:
            rows.append((better, worse, f"{apart:.2f}", *shown))
            strong |= {(row, 3 + c) for c, v in enumerate(p) if v <= analysis.alpha}
    least = evidence.wilcoxon.least_adjusted
    never = (
        f" Wilcoxon's test can give no adjusted p below {tables.p_text(least)} with "
        f"{len(analysis.datasets)} data sets and so many pairs: it can never reject here."
        if least > analysis.alpha
        else ""
    )
    more = len(data) - len(rows)
    left = f" {more:,} more pairs stand in the CSV file." if more else ""
    return tables.Table(
        name="posthoc",
        caption="Every pair under every test: p adjusted for all pairs, strong where "
        f"p ≤ {analysis.alpha:g}. Nemenyi and max-T (by permutation) take mean ranks; "
        "Conover's test, meant to follow a Friedman test that rejects, rejects more; "
        "Wilcoxon's takes differences of scores and depends on no other algorithm. P: "
        "probability that the first is better, by the Bayesian signed-rank test with a "
        f"region of practical equivalence of ± {evidence.rope:g}"
        f"{_TERRY[terry is None]}{never}{left}",
        head=(
            *("better", "worse", "Δ rank", *tests),
            *("P better", "P equivalent"),
            *(["P better (Bradley-Terry)"] if terry else []),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(
            data,
            columns=[
                *("better", "worse", "rank_difference", "nemenyi", "max_t"),
                *("conover_holm", "wilcoxon_holm", "signed_rank_better"),
                "signed_rank_rope",
                *(["bradley_terry_better"] if terry else []),
            ],
        ),
        strong=frozenset(strong),
        texts=2,
    )


def control_table(evidence: evidence_lib.Evidence, alpha: float) -> tables.Table:
    """Shows all algorithms against the reference, adjusted for these alone."""
    dunn = evidence.control
    holm = stats.adjust(dunn.pvalues, "holm")
    paired = evidence.control_wilcoxon
    rows, data, strong = [], [], set()
    for row, name in enumerate(dunn.algorithms):
        p = (dunn.adjusted[row], holm[row], paired.adjusted[row])
        z = dunn.statistics[row]
        rows.append((name, f"{z:+.2f}".replace("-", "−"), *map(tables.p_text, p)))
        data.append((name, z, *p))
        strong |= {(row, 2 + c) for c, value in enumerate(p) if value <= alpha}
    return tables.Table(
        name="control",
        caption=f"Every algorithm against {dunn.control}, adjusted for these comparisons "
        "alone: fewer than all pairs, so more can be found. z is of mean ranks, positive "
        f"where better than {dunn.control}; strong where p ≤ {alpha:g}. Only if "
        f"{dunn.control} was the control before the scores were seen.",
        head=("Algorithm", "z", "Bonferroni-Dunn", "ranks, Holm", "Wilcoxon, Holm"),
        rows=tuple(rows),
        data=pd.DataFrame(
            data, columns=["algorithm", "z", "dunn", "holm", "wilcoxon_holm"]
        ),
        strong=frozenset(strong),
    )


def settings_of_tests(
    study: study_lib.Study, analysis: study_lib.Analysis
) -> tables.Table | None:
    """Shows what the tests say with and without the sets that some trained on."""
    if not study.trained:
        return None
    rows, data, seen = [], [], set()
    for name, strict in (("all test sets", False), ("strict", True)):
        other = study_lib.analyse(study, analysis.alpha, strict=strict)
        seen |= {d for _, d in study.trained if not strict and d in other.datasets}
        result = other.friedman
        if result is None:
            rows.append((name, str(len(other.datasets)), *("–",) * 4))
            data.append((name, len(other.datasets), *(math.nan,) * 4))
            continue
        distance, count = other.critical_difference, len(other.significant)
        shown = (words.f_text(result), tables.p_text(result.pvalue))
        rows.append(
            (name, str(len(other.datasets)), *shown, f"{distance:.2f}", str(count))
        )
        data.append(
            (
                name,
                len(other.datasets),
                result.statistic,
                result.pvalue,
                distance,
                count,
            )
        )
    return tables.Table(
        name="strict",
        caption="The tests over all test sets, and in the strict setting without those "
        f"that some algorithm trained on ({', '.join(sorted(seen))}): F and p after Iman "
        "and Davenport, the critical difference of mean ranks, and how many pairs differ "
        f"at α = {analysis.alpha:g}.",
        head=("Setting", "data sets", "F", "p", "CD", "pairs"),
        rows=tuple(rows),
        data=pd.DataFrame(
            data,
            columns=["setting", "datasets", "F", "p", "critical_difference", "pairs"],
        ),
    )
