"""The tables of a report: scores, validation, shape bias, single runs."""

import math

import numpy as np
import pandas as pd

from jbias.report import doubts, gather, tables, words
from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib
from jbias.runs import results

_RUNS = 200  # Rows that the page shows; the CSV file has all.


def score_table(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    evidence: evidence_lib.Evidence | None,
) -> tables.Table:
    """Shows mean ± std of every algorithm on every data set.

    Strong is what may be called best, underlined what an algorithm trained on.
    """
    cells = analysis.cells.set_index(["algorithm", "dataset"])
    unit, images = study.unit, _images(study)
    ranked = None
    if analysis.nemenyi is not None:
        ranked = dict(zip(analysis.algorithms, analysis.nemenyi.ranks, strict=True))
    counts = study.values.groupby("algorithm")["seed"].nunique()
    guessed = {(one["algorithm"], one["dataset"]) for one in doubts.at_chance(study)}
    rows = []
    for algorithm in study.algorithms:
        shown = []
        for dataset in study.datasets:
            cell = cells.loc[(algorithm, dataset)]
            fewer = 0 < cell["n"] < counts.get(algorithm, 0)
            note = f" (n={int(cell['n'])})" if fewer else ""
            note += " (chance)" * ((algorithm, dataset) in guessed)
            shown.append(unit.spread(cell["mean"], cell["std"]) + note)
        rank = f"{ranked[algorithm]:.2f}" if ranked and algorithm in ranked else "–"
        rows.append((algorithm, str(counts.get(algorithm, 0)), rank, *shown))
    marks = {d: f"{d} (n={images[d]:,})" if d in images else d for d in study.datasets}
    what = "seeds" if study.is_runs else "runs"
    strong = _best(study, analysis, evidence)
    caption = f"{words.made_of(study, analysis)} {_strong_words(evidence, strong)}"
    under = frozenset(
        (i, j + 3)
        for i, algorithm in enumerate(study.algorithms)
        for j, dataset in enumerate(study.datasets)
        if (algorithm, dataset) in study.trained
    )
    if under:
        caption += " Underlined: the algorithm trained on that kind of data."
    if guessed:
        caption += " (chance): as guessing would be, so that no claim follows."
    if images:
        caption += " n in the head counts images."
    return tables.Table(
        name="scores",
        caption=caption,
        head=("Algorithm", what, "Mean rank", *(marks[d] for d in study.datasets)),
        rows=tuple(rows),
        data=analysis.cells,
        strong=strong,
        under=under,
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
        caption=f"Means less that of {reference}, in {points}"
        f"{'' if study.larger_is_better else ', below zero where better'}; p of Nemenyi's "
        "test for that pair among all pairs.",
        head=("Algorithm", *study.datasets, "p"),
        rows=tuple(rows),
        data=apart.set_axis(tables.apart(study.datasets, ("algorithm", "p")), axis=1)
        .reset_index(names="algorithm")
        .assign(p=p),
    )


def _images(study: study_lib.Study) -> dict[str, int]:
    """Gives the number of images of the data sets where it is one number."""
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].unique()
    return {name: int(n[0]) for name, n in sizes.items() if len(n) == 1}


def _best(study, analysis, evidence) -> frozenset[tuple[int, int]]:
    """Gives the cells of the table that may be called best; the mean rank is one."""
    found = set()
    if analysis.significant:
        names = analysis.algorithms
        first = names[int(np.argmin(analysis.nemenyi.ranks))]
        behind = {worse for better, worse, _ in analysis.significant if better == first}
        if behind:
            found = {(a, 2) for a in names if a not in behind}
    if evidence is not None:
        cells = evidence_lib.best_cells(
            evidence.runs,
            larger_is_better=study.larger_is_better,
            alpha=analysis.alpha,
        )
        columns = [study.datasets.index(d) + 3 for d in analysis.datasets]
        found |= {(analysis.algorithms[a], columns[i]) for a, i in cells}
    return frozenset((study.algorithms.index(a), j) for a, j in found)


def _strong_words(evidence, strong) -> str:
    if evidence is None:
        return "Nothing is strong: nothing was tested."
    single = f"; {evidence.no_seeds}" if evidence.no_seeds else ""
    if not strong:
        return f"Nothing is strong: no test tells a best one apart{single}."
    return (
        "Strong: the best of a data set, and those next to it that Welch's t test over seeds "
        "(Bonferroni for all pairs, each data set by itself) does not tell apart from it, "
        f"where it tells any apart; likewise mean ranks, by Nemenyi's test{single}."
    )


def runs_table(study: study_lib.Study) -> tables.Table:
    """Shows the scores of every single run."""
    wide = study.values.pivot(
        index=["algorithm", "seed"], columns="dataset", values="value"
    ).reindex(columns=list(study.datasets))
    order = {name: i for i, name in enumerate(study.algorithms)}
    wide.columns = tables.apart(study.datasets, ("algorithm", "seed"))
    wide = wide.reset_index()
    wide["algorithm"] = wide["algorithm"].astype(str)
    by_number = wide["seed"].astype(str).str.extract(r"(\d+)$")[0].astype(float)
    wide = wide.iloc[np.argsort(by_number.fillna(0).to_numpy(), kind="stable")]
    wide = wide.sort_values("algorithm", key=lambda c: c.map(order), kind="stable")
    shown = wide.head(_RUNS)
    rows = [
        (a, str(seed), *(study.unit.show(value) for value in values))
        for a, seed, *values in shown.itertuples(index=False, name=None)
    ]
    more = len(wide) - len(shown)
    left = f" {more:,} more rows stand in the CSV file." if more else ""
    what = "seed" if study.is_runs else "run"
    return tables.Table(
        name="runs",
        caption=f"Every {what} by itself, at {study.rule}.{left}",
        head=("Algorithm", what, *study.datasets),
        rows=tuple(rows),
        data=wide,
        texts=2,
    )
