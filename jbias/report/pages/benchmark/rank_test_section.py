"""Report section on tests of ranks: of all algorithms, of all pairs, and against a reference.

A cell is an algorithm on a data set.
"""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import document, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_blocks, prose

Analysis = analysis_lib.Analysis


def blocks(
    analysis: Analysis, seed_tests: Iterable[document.Block | None]
) -> document.Blocks:
    """Yield reasons for missing tests, the tests over seeds, and the tables of the rank tests.

    The table against the reference is left out if the reference was not tested. seed_tests: blocks
    of `seed_sections`.
    """
    yield from map(document.Text, prose.untested(analysis))
    yield from seed_tests
    if analysis.tests is not None:
        yield omnibus_table(analysis)
        yield strict_table(analysis)
        yield nemenyi_table(analysis)
        yield posthoc_table(analysis)
        if analysis.has_reference:
            yield control_table(analysis)
        yield ranks_table(analysis)


def ranks_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of ranks, one row per algorithm.

    Columns: algorithm, one per data set, and mean_rank. Ranks must have been tested; the table is
    then never None.
    """
    keys, columns = benchmark_blocks.dataset_columns(
        analysis.datasets, first="algorithm", last="mean_rank:.2", form="{:g}".format
    )
    data = analysis.ranks.T.set_axis(keys, axis=1).reset_index(names="algorithm")
    caption = (
        "Ranks of the means, 1 the best; ties (to 12 digits) share their mean rank."
    )
    caption += benchmark_blocks.hidden_datasets(analysis.datasets)
    data = data.assign(mean_rank=analysis.nemenyi.ranks)
    return benchmark_blocks.table("ranks", caption, data, columns)


def nemenyi_table(analysis: Analysis) -> tables.Table:
    """Return the matrix of Nemenyi's p-values, with algorithms in the order of mean ranks.

    Columns of the page: algorithm, mean rank, and one per algorithm, for the first
    `benchmark_blocks.MAX_COLUMNS` algorithms. Columns of the files: algorithm, and one per
    algorithm, for all algorithms in the order of `analysis.algorithms`. Significant cells are bold,
    small p-values are shaded. Ranks must have been tested.
    """
    names = analysis.algorithms
    result = analysis.nemenyi
    order = analysis.order[: benchmark_blocks.MAX_COLUMNS]
    num_hidden = len(names) - len(order)
    hidden = (
        f" {num_hidden:,} more algorithms are in the CSV file." if num_hidden else ""
    )
    significant = {frozenset(pair) for *pair, _ in analysis.significant}
    data = pd.DataFrame(
        result.pvalues, columns=tables.distinct_keys(names, ("algorithm",))
    )
    data.insert(0, "algorithm", names)
    rows = []
    bold = set()
    for row, i in enumerate(order):
        p = ["" if i == j else tables.p_text(result.pvalues[i, j]) for j in order]
        rows.append((names[i], f"{result.ranks[i]:.2f}", *p))
        is_significant = [{names[i], names[j]} in significant for j in order]
        # Two columns, the name and the mean rank, precede the p-values.
        bold |= {
            (row, column) for column, is_bold in enumerate(is_significant, 2) if is_bold
        }
    levels = analysis.alpha / np.array([1, 5, 50])
    depths = (result.pvalues[order][:, order, None] <= levels).mean(-1)
    np.fill_diagonal(depths, 0)
    return tables.Table(
        "nemenyi",
        "p of Nemenyi's test, which corrects for all pairs. Bold where "
        f"p ≤ {analysis.alpha:g} and F by permutation rejects; darker at "
        f"{', '.join(f'{level:g}' for level in levels)}. Critical difference of mean ranks: "
        f"{analysis.critical_difference:.3f}.{hidden}",
        head=("Algorithm", "Mean rank", *(names[i] for i in order)),
        rows=tuple(rows),
        data=data,
        bold=frozenset(bold),
        shade={
            (row, column + 2): depths[row, column]
            for row, column in np.argwhere(depths).tolist()
        },
    )


def omnibus_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of all tests of equality of all algorithms, one row per test.

    Tests: Iman and Davenport's F with and without correction for ties, Friedman's χ², F by
    permutation, Quade's test and aligned ranks. Columns: test, statistic, df (text) and p. Ranks
    must have been tested; the table is then never None.
    """
    f = analysis.friedman
    exact = analysis.permutation
    uncorrected = analysis.uncorrected
    if exact.exact:
        permutations = "all permutations"
    else:
        permutations = (
            f"{exact.permutations:,} permutations, ± {exact.standard_error:.2g}"
        )
    decisive_test = f"F by permutation ({permutations}), which decides"
    quade = analysis.tests.quade
    aligned = analysis.tests.aligned_ranks
    rows = [
        ("Iman and Davenport's F", f.statistic, f.df, f.pvalue),
        (
            "the same, ties not corrected",
            uncorrected.statistic,
            uncorrected.df,
            uncorrected.pvalue,
        ),
        ("Friedman's χ²", f.chi2, f.df[:1], f.chi2_pvalue),
        (decisive_test, exact.statistic, (), exact.pvalue),
        ("Quade", quade.statistic, quade.df, quade.pvalue),
        ("aligned ranks", aligned.statistic, aligned.df, aligned.pvalue),
    ]
    data = pd.DataFrame(rows, columns=["test", "statistic", "df", "p"])
    data["df"] = [", ".join(f"{d:g}" for d in df) or "–" for df in data["df"]]
    return benchmark_blocks.table(
        "omnibus",
        "Tests of equality of all algorithms. Quade's test and aligned ranks need one unit. "
        f"Kendall's W is {f.kendall_w:.3f}. "
        f"Data sets: {tables.few(analysis.datasets, benchmark_blocks.MAX_COLUMNS)}."
        f"{benchmark_blocks.note_on_infinite_f([f.statistic, uncorrected.statistic])}",
        data,
        tables.columns("test statistic:.3 df p:p"),
        in_results=True,
    )


def strict_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of rank tests with and without test sets that an algorithm trained on.

    One row per setting ("all test sets", "strict"). Columns: setting, datasets (number), and the
    keys of `benchmark_blocks.decision`. None if no algorithm trained on a test set.
    """
    study = analysis.study
    rows = []
    trained_on = set()
    for setting in ("all test sets", "strict") if study.trained else ():
        options = dataclasses.replace(study.options, strict=setting == "strict")
        setting_analysis = analysis_lib.analyse(
            dataclasses.replace(study, options=options)
        )
        datasets = setting_analysis.datasets
        row = {"setting": setting, "datasets": len(datasets)}
        rows.append(row | benchmark_blocks.decision(setting_analysis))
        trained_on |= {dataset for _, dataset in study.trained if dataset in datasets}
    return benchmark_blocks.table(
        "strict",
        "The tests over all test sets, and without test sets that some algorithm trained on "
        f"({', '.join(sorted(trained_on))}); pairs: number of pairs that differ at "
        f"α = {analysis.alpha:g}.{benchmark_blocks.note_on_infinite_f(row['F'] for row in rows)}",
        rows,
        tables.columns("setting datasets:d", datasets="data sets")
        | benchmark_blocks.DECISION_COLUMNS,
        in_results=True,
    )


def posthoc_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of all pairwise tests, one row per pair of algorithms.

    Columns: better, worse, rank_difference (mean rank of worse minus better), adjusted p of
    Nemenyi's, max-T, Conover's and Wilcoxon's test, and Bayesian probabilities. The Bradley-Terry
    model has no column if the model is None. p of at most alpha is bold; the page has 60 rows.
    Ranks must have been tested.
    """
    tests = analysis.tests
    ranks = analysis.nemenyi.ranks
    bradley_terry = tests.bradley_terry
    least = tests.wilcoxon.least_adjusted
    probabilities = "the Bayesian Bradley-Terry model."
    if bradley_terry is None:
        takes_long = len(analysis.algorithms) > analysis_lib.MANY_ALGORITHMS
        reason = (
            "which takes long for this number of algorithms"
            if takes_long
            else "which has too few usable draws"
        )
        probabilities = f"not by the Bayesian Bradley-Terry model, {reason}."
    notes = ""
    if least > analysis.alpha:
        notes += (
            f" Wilcoxon's test can give no adjusted p below {tables.p_text(least)} with "
            f"{len(analysis.datasets)} data sets and this number of pairs: it can never reject "
            "here."
        )
    if math.isinf(analysis.friedman.statistic):
        notes += (
            " Conover's test divides by the same disagreement as F, which is 0 here, so its p "
            "means nothing."
        )
    p_tests = {
        "nemenyi": analysis.nemenyi,
        "max_t": tests.max_t,
        "conover_holm": tests.conover,
        "wilcoxon_holm": tests.wilcoxon,
    }
    rows = benchmark_blocks.pairs(
        analysis,
        rank_difference=ranks - ranks[:, None],
        **{name: test.adjusted for name, test in p_tests.items()},
        signed_rank_better=tests.signed_rank.better,
        signed_rank_rope=tests.signed_rank.rope,
    )
    if bradley_terry is not None:
        pair_probabilities = benchmark_blocks.pairs(
            analysis, bradley_terry_better=bradley_terry.better
        )
        rows["bradley_terry_better"] = pair_probabilities["bradley_terry_better"]
    return benchmark_blocks.table(
        "posthoc",
        "Every pair under every test: p adjusted for all pairs, bold where "
        f"p ≤ {analysis.alpha:g}; probability that the first is better, by the Bayesian "
        "signed-rank test with a region of practical equivalence (rope) of ± "
        f"{analysis.rope:g} and {probabilities}{notes}",
        rows,
        tables.columns(
            "better worse rank_difference:.2 nemenyi:p max_t:p conover_holm:p wilcoxon_holm:p "
            "signed_rank_better:.2 signed_rank_rope:.2 bradley_terry_better:.2"
        ),
        most=60,
        bold=lambda row: [key for key in p_tests if row[key] <= analysis.alpha],
        in_results=True,
    )


def control_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of every algorithm against the reference.

    Columns: algorithm, z (above 0 for a better mean rank than the reference), and p of Dunn's test
    by Bonferroni and by Holm, and of Wilcoxon's test by Holm. p is adjusted for these tests only;
    p of at most alpha is bold. The reference must have been tested; the table is then never None.
    """
    dunn = analysis.tests.dunn
    alpha = analysis.alpha
    p = {"dunn": dunn.adjusted, "holm": stats.adjust(dunn.pvalues, "holm")}
    p["wilcoxon_holm"] = analysis.tests.control_wilcoxon.adjusted
    return benchmark_blocks.table(
        "control",
        f"Every algorithm against {dunn.control}, adjusted for these comparisons alone: valid "
        f"if {dunn.control} was the control before the scores were seen. z > 0: a better mean "
        f"rank than {dunn.control}; bold where p ≤ {alpha:g}.",
        {"algorithm": dunn.algorithms, "z": dunn.statistics, **p},
        tables.columns("algorithm z:+.2 dunn:p holm:p wilcoxon_holm:p"),
        bold=lambda row: [key for key in p if row[key] <= alpha],
        in_results=True,
    )
