"""The tables of a report: scores, tests, selection."""

import dataclasses
import math

import numpy as np
import pandas as pd

from jbias import results
from jbias.report import gather, tables, words
from jbias.report import study as study_lib


def score_table(study: study_lib.Study, analysis: study_lib.Analysis) -> tables.Table:
    """Shows mean ± std of every algorithm on every data set, the best one strong."""
    cells = analysis.cells.set_index(["algorithm", "dataset"])
    unit, images = study.unit, _images(study)
    ranked = None
    if analysis.nemenyi is not None:
        ranked = dict(zip(analysis.algorithms, analysis.nemenyi.ranks, strict=True))
    counts = study.values.groupby("algorithm")["seed"].nunique()
    rows = []
    for algorithm in study.algorithms:
        shown = []
        for dataset in study.datasets:
            cell = cells.loc[(algorithm, dataset)]
            fewer = 0 < cell["n"] < counts.get(algorithm, 0)
            note = f" (n={int(cell['n'])})" if fewer else ""
            shown.append(unit.spread(cell["mean"], cell["std"]) + note)
        rank = f"{ranked[algorithm]:.2f}" if ranked and algorithm in ranked else "–"
        rows.append((algorithm, str(counts.get(algorithm, 0)), rank, *shown))
    marks = {d: f"{d} (n={images[d]:,})" if d in images else d for d in study.datasets}
    what = "seeds" if study.is_runs else "runs"
    caption = f"{words.made_of(study, analysis)} The best mean of a data set is strong."
    if images:
        caption += " n in the head counts images."
    return tables.Table(
        name="scores",
        caption=caption,
        head=("Algorithm", what, "Mean rank", *(marks[d] for d in study.datasets)),
        rows=tuple(rows),
        data=analysis.cells,
        strong=frozenset(_best(study, analysis)),
    )


def validation_table(study: study_lib.Study) -> tables.Table | None:
    """Shows validation accuracy and the epochs that were selected."""
    rows_of = study.selected[
        (study.selected["dataset"] == results.VALID)
        & (study.selected["metric"] == "accuracy")
        & (study.selected["condition"] == "")
    ]
    if rows_of.empty:
        return None
    rows, data = [], []
    unit = study_lib.unit_of("accuracy", rows_of["value"])
    for algorithm in study.algorithms:
        mine = rows_of[rows_of["label"] == algorithm]
        mean, std = mine["value"].mean(), mine["value"].std()
        sizes = sorted(set(mine["n"].dropna()))
        epochs = [f"{e:g}" for e in mine["epoch"]]
        told = ", ".join(epochs) if len(epochs) <= 10 else f"{epochs[0]} … {epochs[-1]}"
        n = ", ".join(f"{size:,}" for size in sizes) or "–"
        rows.append((algorithm, str(len(mine)), unit.spread(mean, std), n, told or "–"))
        data.append((algorithm, len(mine), mean, std, n, " ".join(epochs)))
    when = "Last epoch" if study.selection == "last_n" else "Epochs selected"
    head = ("Algorithm", "seeds", "Validation accuracy", "images", when)
    columns = ["algorithm", "seeds", "mean", "std", "images", "epochs"]
    return tables.Table(
        name="validation",
        caption=f"Accuracy in % on the validation set of the training data, at {study.rule}. "
        "Mean ± standard deviation over seeds; epochs are listed by seed.",
        head=head,
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=columns),
    )


def shape_bias_table(study: study_lib.Study) -> tables.Table | None:
    """Shows shape bias with the counts that it is made of."""
    mine = study.selected[study.selected["metric"] == "shape_bias"]
    if mine.empty:
        return None
    unit = study_lib.unit_of("shape_bias", mine["value"])
    rows, data = [], []
    datasets = dict.fromkeys(mine["dataset"])
    values = gather.values_of(study.selected, "shape_bias", list(datasets))
    cells = study_lib.cells_of(values, study.algorithms, list(datasets))
    for cell in cells.itertuples():
        here = mine[
            (mine["label"] == cell.algorithm) & (mine["dataset"] == cell.dataset)
        ]
        shape, both = here["count"].sum(min_count=1), here["n"].sum(min_count=1)
        counted = not (pd.isna(shape) or pd.isna(both))
        told = (f"{shape:,}", f"{both - shape:,}") if counted else ("–", "–")
        shown = unit.spread(cell.mean, cell.std)
        rows.append((cell.algorithm, cell.dataset, str(cell.n), shown, *told))
        data.append((*cell[1:], shape, both - shape))
    columns = ["algorithm", "dataset", "mean", "std", "seeds"]
    columns += ["shape_decisions", "texture_decisions"]
    return tables.Table(
        name="shape_bias",
        caption="Shape bias in %: decisions for the shape, of all decisions for either shape "
        f"or texture. Mean ± standard deviation over seeds, at {study.rule}. Decisions are "
        "summed over seeds; a mean of several evaluations has no counts.",
        head=(
            "Algorithm",
            "Data set",
            "seeds",
            "Shape bias",
            "for shape",
            "for texture",
        ),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=columns),
        texts=2,
    )


def friedman_table(analysis: study_lib.Analysis) -> tables.Table:
    """Shows Friedman's and Iman and Davenport's test with and without correction."""
    rows, data = [], []
    kinds = [("corrected", analysis.friedman), ("not corrected", analysis.uncorrected)]
    for ties, result in kinds:
        df = f"{result.df[0]}, {result.df[1]}"
        numbers = (result.chi2, result.chi2_pvalue, result.kendall_w)
        p = (tables.p_text(result.pvalue), tables.p_text(result.chi2_pvalue))
        f = words.f_text(result)
        w = f"{result.kendall_w:.3f}"
        rows.append(
            (ties, f, df, p[0], f"{result.chi2:.3f}", str(result.df[0]), p[1], w)
        )
        data.append((ties, result.statistic, *result.df, result.pvalue, *numbers))
    columns = ["ties", "F", "df1", "df2", "p", "chi2", "chi2_p", "kendall_w"]
    return tables.Table(
        name="friedman",
        caption="Do the algorithms rank alike? F after Iman and Davenport (1980) from "
        "Friedman's χ²; W is Kendall's agreement of the data sets, 0 to 1. The first line is "
        f"the one that counts. Data sets: {', '.join(analysis.datasets)}.",
        head=("Ties", "F", "df", "p", "χ²", "df of χ²", "p of χ²", "W"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=columns),
    )


def rank_table(study: study_lib.Study, analysis: study_lib.Analysis) -> tables.Table:
    """Shows the ranks that the tests see."""
    ranked = study_lib.rank_table(study, analysis)
    means = dict(zip(analysis.algorithms, analysis.nemenyi.ranks, strict=True))
    rows = [
        (name, *(f"{r:g}" for r in ranked[name]), f"{means[name]:.2f}")
        for name in analysis.algorithms
    ]
    data = ranked.T.reset_index(names="algorithm").assign(
        mean_rank=list(means.values())
    )
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
    data = pd.DataFrame(result.pvalues, columns=names)
    data.insert(0, "algorithm", names)
    return tables.Table(
        name="nemenyi",
        caption="p-values of Nemenyi's test for all pairs, exact from the studentised range "
        "and adjusted for all pairs by its nature; best mean rank first. Strong where "
        f"p ≤ {analysis.alpha:g} and Friedman's test rejects. Critical difference of mean "
        f"ranks: {analysis.critical_difference:.3f}.",
        head=("Algorithm", "Mean rank", *(names[i] for i in order)),
        rows=tuple(rows),
        data=data,
        strong=frozenset(strong),
    )


def reference_table(
    study: study_lib.Study, analysis: study_lib.Analysis, reference: str
) -> tables.Table:
    """Shows differences of means to one algorithm."""
    matrix = analysis.cells.pivot(index="algorithm", columns="dataset", values="mean")
    matrix = matrix.loc[list(study.algorithms), list(study.datasets)]
    apart = (matrix - matrix.loc[reference]).drop(index=reference)
    p = {frozenset(pair[:2]): pair[2] for pair in analysis.pairs}
    p = [p.get(frozenset((name, reference)), math.nan) for name in apart.index]
    rows = []
    for (name, row), pvalue in zip(apart.iterrows(), p, strict=True):
        shown = (study.unit.show(value, signed=True) for value in row)
        rows.append(
            (name, *shown, "–" if math.isnan(pvalue) else tables.p_text(pvalue))
        )
    points = "percentage points" if study.unit.name else "the scores' unit"
    return tables.Table(
        name="reference",
        caption=f"Difference of means to {reference}, in {points}; p of Nemenyi's test for "
        "that pair among all pairs.",
        head=("Algorithm", *study.datasets, "p"),
        rows=tuple(rows),
        data=apart.reset_index().assign(p=p),
    )


def selection_table(study: study_lib.Study) -> tables.Table:
    """Shows what other selection rules would have given."""
    rules = {name: values for name, values in study.others}
    means = {
        name: study_lib.cells_of(values, study.algorithms, study.datasets).set_index(
            ["algorithm", "dataset"]
        )["mean"]
        for name, values in rules.items()
    }
    data = pd.DataFrame(means)
    gap = "oracle − best validation"
    if {"oracle", "best validation"} <= set(rules):
        data[gap] = data["oracle"] - data["best validation"]
    rows = [
        (*key, *(study.unit.show(row[c], signed=c == gap) for c in data.columns))
        for key, row in data.iterrows()
    ]
    heads = (f"{c} (not a result)" if c == "oracle" else c for c in data.columns)
    return tables.Table(
        name="selections",
        caption="Means over seeds by rule of selection. The oracle chooses each epoch by "
        "looking at the test set; its gap shows how much a study gains that does so.",
        head=("Algorithm", "Data set", *heads),
        rows=tuple(rows),
        data=data.reset_index(),
        texts=2,
    )


def selection_test_table(study: study_lib.Study, alpha: float) -> tables.Table:
    """Shows what the tests would have said under other selection rules."""
    rows, data = [], []
    for name, values in study.others:
        other = study_lib.analyse(dataclasses.replace(study, values=values), alpha)
        result, count = other.friedman, len(other.significant)
        if result is None:
            rows.append((name, "–", "–", "–", "–"))
            data.append((name, math.nan, math.nan, 0, ""))
            continue
        order = np.argsort(result.ranks, kind="stable")
        ranked = ", ".join(
            f"{other.algorithms[i]} {result.ranks[i]:.2f}" for i in order
        )
        shown = (words.f_text(result), tables.p_text(result.pvalue), str(count), ranked)
        rows.append((name, *shown))
        data.append((name, result.statistic, result.pvalue, count, ranked))
    return tables.Table(
        name="selection_tests",
        caption="The same tests under each rule of selection: F and p after Iman and "
        f"Davenport, how many pairs differ at α = {alpha:g}, and mean ranks. A conclusion "
        "that changes with the rule is a weak one.",
        head=("Selection", "F", "p", "pairs", "Mean ranks"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["selection", "F", "p", "pairs", "mean_ranks"]),
    )


def _images(study: study_lib.Study) -> dict[str, int]:
    """Gives the number of images of the data sets where it is one number."""
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].unique()
    return {name: int(n[0]) for name, n in sizes.items() if len(n) == 1}


def _best(study: study_lib.Study, analysis: study_lib.Analysis):
    matrix = analysis.cells.pivot(index="algorithm", columns="dataset", values="mean")
    for j, dataset in enumerate(study.datasets):
        column = matrix[dataset].reindex(list(study.algorithms)).round(12)
        best = column.max() if study.larger_is_better else column.min()
        for i, value in enumerate(column):
            if value == best and len(column) > 1:
                yield i, j + 3
