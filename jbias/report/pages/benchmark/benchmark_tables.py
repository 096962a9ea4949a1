"""Functions that build the tables of the report that compares algorithms, one per table.

A cell is an algorithm on a data set. Ranks were tested if `Analysis.friedman` is not None, and
seeds were analysed if `Analysis.runs` is not None.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import tables, workdirs
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import inputs, prose
from jbias.runs import results, selection

Analysis = analysis_lib.Analysis
_SPREAD = [*analysis_lib.SPREAD]
MAX_ROWS = 500  # Rows of a table on the page; the table's files have all rows.
MAX_COLUMNS = 60  # Data sets, or algorithms, side by side on the page.
_DECISION_COLUMNS = tables.columns(
    "F:.3 p:p permutation_p:p critical_difference:.2 pairs:d",
    p="p by F",
    permutation_p="p by permutation, which decides",
)


def _table(
    name: str,
    caption: str,
    data: pd.DataFrame | Sequence[Mapping] | Mapping[str, Sequence],
    columns: Mapping[str, tables.Column],
    *,
    most: int = MAX_ROWS,
    **options: Any,
) -> tables.Table | None:
    """Return a table whose files have all columns of `data`, even empty columns.

    None if there are no rows. data: any input of `pd.DataFrame`. columns: shown columns by key.
    most: maximal number of rows on the page. options: further arguments of `tables.from_rows`.
    """
    data = pd.DataFrame(data)
    return tables.from_rows(
        name, caption, data, columns, most=most, data=data, **options
    )


def scores(
    analysis: Analysis, biases: Mapping[str, Mapping[str, str]] | None = None
) -> tables.Table:
    """Return the main table: mean ± std, or median and range, per algorithm and data set.

    `Unit.spread` chooses mean or median per data set. One row per algorithm. Columns: name, number
    of seeds or runs (not for a file of means), mean rank if ranks were tested, and the first
    `MAX_COLUMNS` data sets. "(n=2)" follows the score of a cell with fewer seeds than the
    algorithm, and "(chance)" follows a score at chance. The cells of `Analysis.best_cells` and the
    mean ranks of `Analysis.leaders` are bold, and the cells of `BenchmarkScores.trained` are
    underlined. The files have the rows of `Analysis.cells`. biases: shape biases as text, as
    returned by `shape_biases`, for further columns on the page; None for no further columns.
    """
    study = analysis.study
    is_tested = analysis.friedman is not None
    datasets = study.datasets[:MAX_COLUMNS]
    shown = analysis.cells[analysis.cells["dataset"].isin(datasets)]
    keys = zip(shown["algorithm"], shown["dataset"])
    cells = dict(zip(keys, shown.to_dict("records"), strict=True))
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].unique()
    sizes = {name: f" (n={n[0]:,})" for name, n in sizes.items() if len(n) == 1}
    # Metrics of cues have no meaning if decisions for shape or texture are at chance.
    is_cue_metric = study.options.metric not in ("accuracy", "real_accuracy")
    at_chance = {
        (cell["algorithm"], cell["dataset"])
        for cell in study.at_chance
        if is_cue_metric or cell["metric"] == study.options.metric
    }
    ranks = {}
    if is_tested:
        ranks = dict(zip(analysis.algorithms, analysis.nemenyi.ranks))
    rows = []
    places = {}
    rank_column = 0
    formats = {
        dataset: study.unit.spread(dataset_cells)
        for dataset, dataset_cells in shown.groupby("dataset")
    }
    for i, algorithm in enumerate(study.algorithms):
        seeds = study.seeds.get(algorithm, 0)
        row = [algorithm]
        if not study.is_of_means:
            row.append(str(seeds))
        if is_tested:
            rank_column = len(row)
            row.append(f"{ranks[algorithm]:.2f}" if algorithm in ranks else "–")
        for dataset in datasets:
            key = algorithm, dataset
            cell, places[key] = cells[key], (i, len(row))
            fewer = f" (n={cell['n']:.0f})" if 0 < cell["n"] < seeds else ""
            chance = " (chance)" if key in at_chance else ""
            statistics = [cell[name] for name in _SPREAD]
            text = formats[dataset](*statistics) + _deviation(study.unit, cell)
            row.append(text + fewer + chance)
        rows.append(tuple(row))
    bold = {(study.algorithms.index(name), rank_column) for name in analysis.leaders}
    bold |= {places[key] for key in analysis.best_cells if key in places}
    underlined = {places[key] for key in study.trained if key in places}
    caption = [
        prose.describe_scores(analysis),
        prose.describe_bold(analysis, has_bold=bool(bold)),
    ]
    if underlined:
        caption.append("Underlined: the algorithm trained on that kind of data.")
    if at_chance:
        caption.append("(chance): indistinguishable from guessing; no claim follows.")
    hidden_datasets = _hidden_datasets(study.datasets)
    if hidden_datasets:
        caption.append(hidden_datasets.strip())
    if sizes:
        caption.append("n in the head is the number of images.")
    heads = [f"{name}{sizes.get(name, '')}" for name in datasets]
    repeats_head = () if study.is_of_means else (study.repeats.capitalize(),)
    rank_head = ("Mean rank",) if is_tested else ()
    return tables.Table(
        "scores",
        " ".join(caption),
        head=("Algorithm", *repeats_head, *rank_head, *heads),
        rows=tuple(rows),
        data=analysis.cells,
        bold=frozenset(bold),
        under=frozenset(underlined),
        corner="Data set",
        page_columns={
            f"Shape bias, % ({dataset})": [
                by_algorithm.get(name, "–") for name in study.algorithms
            ]
            for dataset, by_algorithm in (biases or {}).items()
        },
    )


def _deviation(unit: analysis_lib.Unit, cell: Mapping) -> str:
    """Return the deviation of a mean in a file of scores as " ± 0.2"; "" if there is none.

    cell: a row of `Analysis.cells`.
    """
    deviation = cell.get("deviation", math.nan)
    if math.isnan(deviation):
        return ""
    text = unit.show(deviation)
    rounds_to_zero = deviation and not float(text.replace(",", ""))
    return f" ± {deviation * unit.scale:.1g}" if rounds_to_zero else f" ± {text}"


def reference(analysis: Analysis) -> tables.Table | None:
    """Return the table of each algorithm's mean minus the reference's mean, per data set.

    One row per algorithm but the reference. Columns: algorithm, one per data set, and p of
    Nemenyi's test, NaN if the pair was not tested.
    None if the reference is the only algorithm. `study.options.reference` must be an algorithm of
    the study.
    """
    study = analysis.study
    unit = analysis.study.unit
    name = study.options.reference
    matrix = analysis.cells.pivot(index="algorithm", columns="dataset", values="mean")
    matrix = matrix.loc[list(study.algorithms), list(study.datasets)]
    differences = (matrix - matrix.loc[name]).drop(index=name)
    p_by_pair = {frozenset(pair): pvalue for *pair, pvalue in analysis.pairs}
    p = [
        p_by_pair.get(frozenset((other_name, name)), math.nan)
        for other_name in differences.index
    ]
    better_side = "" if study.options.larger_is_better else "; negative is better"
    source_of_p = "; p by Nemenyi's test" if analysis.pairs else ""
    show_signed = functools.partial(unit.show, signed=True)
    keys, columns = _dataset_columns(
        study.datasets, first="algorithm", last="p:p", form=show_signed
    )
    return _table(
        "reference",
        f"Each algorithm's mean minus the mean of {name}, in {unit.of_differences}"
        f"{better_side}{source_of_p}.{_hidden_datasets(study.datasets)}",
        differences.set_axis(keys, axis=1).reset_index(names="algorithm").assign(p=p),
        columns,
    )


def _hidden_datasets(datasets: Sequence[str]) -> str:
    """Return the sentence on data sets that the page does not show; "" if the page shows all."""
    count = len(datasets) - MAX_COLUMNS
    return f" {count:,} more data sets are in the CSV file." if count > 0 else ""


def _dataset_columns(
    datasets: Sequence[str], *, first: str, last: str, form: Callable, **heads: str
) -> tuple[list[str], dict[str, tables.Column]]:
    """Return (column key of each data set, columns of the page by key).

    A key is the data set's name, followed by " (name)" if another column has the same key. The page
    shows at most `MAX_COLUMNS` data sets. first, last: columns before and after the data sets, as
    the specification of `tables.columns`. form: function that formats a score. heads: column
    headings of `first` and `last` by key.
    """
    first_columns = tables.columns(first, **heads)
    last_columns = tables.columns(last, **heads)
    keys = tables.distinct_keys(datasets, [*first_columns, *last_columns])
    shown = zip(keys[:MAX_COLUMNS], datasets[:MAX_COLUMNS])
    columns = {key: tables.Column(name, form) for key, name in shown}
    return keys, first_columns | columns | last_columns


def runs(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of scores, one row per seed, or run, of an algorithm.

    Columns: algorithm, seed, and one per data set. Rows are in the order of the study's algorithms,
    then sorted by the number at the end of the seed's name. None without scores.
    """
    repeat = study.repeats.removesuffix("s")
    keys, columns = _dataset_columns(
        study.datasets,
        first="algorithm seed",
        last="",
        form=study.unit.show,
        seed=repeat,
    )
    wide = study.values.pivot(
        index=["algorithm", "seed"], columns="dataset", values="value"
    )
    wide = wide.reindex(columns=list(study.datasets)).set_axis(keys, axis=1)
    wide = wide.reset_index().astype({"algorithm": str})
    number = wide["seed"].astype(str).str.extract(r"(\d+)$")[0].astype(float).fillna(0)
    place = wide["algorithm"].map({name: i for i, name in enumerate(study.algorithms)})
    caption = (
        f"Scores of each {repeat}, at {study.rule}.{_hidden_datasets(study.datasets)}"
    )
    order = np.lexsort((number, place))
    return _table("runs", caption, wide.iloc[order], columns, most=200)


def validation(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of validation accuracies and selected epochs, one row per algorithm.

    Columns: algorithm, seeds, validation accuracy over seeds, images (text), and epochs (text; the
    page has only the first and the last of more than 10). The selection "worst_class" adds the
    accuracy and the number of images of each seed's worst class. None if no run has a validation
    accuracy.
    """
    rows = []
    selected = study.selected
    worst_keys = ["worst", *(f"worst_{key}" for key in _SPREAD[1:])]
    by_class = selected[selection.of_classes(selected)]
    is_valid = (selected["dataset"] == results.VALID) & (selected["condition"] == "")
    valid = selected[is_valid & (selected["metric"] == "accuracy")]
    for algorithm in study.algorithms if len(valid) else ():
        records = valid[valid["label"] == algorithm]
        sizes = sorted(set(records["n"].dropna()))
        row = {"algorithm": algorithm, "seeds": len(records)}
        row |= {**records["value"].agg(**analysis_lib.SPREAD)}
        row["images"] = ", ".join(f"{size:,}" for size in sizes) or "–"
        row["epochs"] = " ".join(f"{epoch:g}" for epoch in records["epoch"])
        if study.options.selection == "worst_class":
            classes = by_class[by_class["label"] == algorithm]
            lowest = classes.loc[classes.groupby(["run", "seed"])["value"].idxmin()]
            statistics = lowest["value"].agg(**analysis_lib.SPREAD)
            row |= dict(zip(worst_keys, statistics, strict=True))
            row["worst_images"] = tables.span(lowest["n"])
        rows.append(row)

    def list_epochs(text: str) -> str:
        epochs = text.split()
        if len(epochs) <= 10:
            return ", ".join(epochs)
        return f"{epochs[0]} … {epochs[-1]}"

    is_last_n = study.options.selection == "last_n"
    epochs_head = "Last epoch" if is_last_n else "Epochs selected"
    columns = tables.columns(
        "algorithm seeds:d mean images worst worst_images epochs",
        worst_images="images of the worst class",
    )
    heads = {"validation accuracy": _SPREAD, "of the worst class": worst_keys}
    for head, keys in heads.items():
        cells = pd.DataFrame(rows, columns=keys).set_axis(_SPREAD, axis=1)
        spread = analysis_lib.unit_of("accuracy", valid["value"]).spread(cells)
        columns[keys[0]] = tables.Column(head, spread, tuple(keys[1:]))
    return _table(
        "validation",
        f"Accuracy in % on the validation set, at {study.rule}: mean ± std over seeds. "
        f"{analysis_lib.RANGED}",
        rows,
        columns | {"epochs": (epochs_head, list_epochs)},
    )


# Metrics in the table of shape bias, and sentences for its caption. These metrics separate a shape
# bias of many decisions for shape or texture from a shape bias of few such decisions.
_CUE_METRICS = {
    "fraction_neither": " Neither: decisions for neither cue, in % of images whose cues conflict, mean over seeds.",
    "mrr_shape": " MRR: mean over images and seeds of 1 / rank of the cue's class among all",
    "mrr_texture": " logits.",
}


def shape_bias(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of shape biases with counts of decisions, and MRR if recorded.

    One row per algorithm and data set of cue conflicts. Columns: algorithm, dataset, seeds, shape
    bias over seeds, decisions for shape and for texture (sums over seeds), and means of
    fraction_neither, mrr_shape and mrr_texture. A mean is missing unless all seeds have the metric.
    None without records of shape bias.
    """
    records = study.selected[study.selected["metric"] == "shape_bias"]
    datasets = list(dict.fromkeys(records["dataset"]))
    values = inputs.values_of(study.selected, "shape_bias", datasets)
    cells = analysis_lib.cells_of(values, study.algorithms, datasets)
    cells = cells.rename(columns={"n": "seeds"})
    counts = records.groupby(["label", "dataset"])[["count", "n"]].sum(min_count=1)
    decisions = cells.join(counts, on=["algorithm", "dataset"])
    spread = analysis_lib.unit_of("shape_bias", records["value"]).spread(cells)
    cells["shape_decisions"] = decisions["count"]
    cells["texture_decisions"] = decisions["n"] - decisions["count"]
    caption = (
        "Shape bias in %: decisions for the shape among decisions for the shape or the "
        f"texture, mean ± std over seeds, at {study.rule}. {analysis_lib.RANGED} Counts are "
        "sums over seeds."
    )
    for metric, sentence in _CUE_METRICS.items():
        values = inputs.values_of(study.selected, metric, datasets)
        if len(values):
            metric_cells = analysis_lib.cells_of(values, study.algorithms, datasets)
            # Older runs may lack the metric, so some seeds may have no value.
            is_complete = metric_cells["n"] == cells["seeds"]
            cells[metric] = metric_cells["mean"].where(is_complete).to_numpy()
            caption += sentence
    columns = tables.columns(
        "algorithm dataset seeds:d mean shape_decisions:d texture_decisions:d "
        "fraction_neither:% mrr_shape:.3 mrr_texture:.3",
        fraction_neither="for neither, %",
        shape_decisions="for shape",
        texture_decisions="for texture",
        mrr_shape="MRR of shape",
        mrr_texture="MRR of texture",
    )
    columns["mean"] = tables.Column("shape bias", spread, tuple(_SPREAD[1:]))
    return _table("shape_bias", caption, cells, columns)


def shape_biases(
    study: analysis_lib.BenchmarkScores, table: tables.Table | None
) -> dict[str, dict[str, str]]:
    """Return shape biases in % as shown on the page, by data set, then by algorithm.

    "(chance)" follows a shape bias if the share of decisions for shape or texture is at chance.
    Rows that the page does not show are left out. Empty without a table, and if shape bias is the
    metric of the study. table: the result of `shape_bias`; None for a file of scores.
    """
    if table is None or study.options.metric == "shape_bias":
        return {}
    place = table.head.index("shape bias")
    at_chance = {
        (cell["algorithm"], cell["dataset"])
        for cell in study.at_chance
        if cell["metric"] == analysis_lib.CUES
    }
    biases: dict[str, dict[str, str]] = {}
    for algorithm, dataset, row in zip(
        table.data["algorithm"], table.data["dataset"], table.rows, strict=False
    ):
        chance = " (chance)" if (algorithm, dataset) in at_chance else ""
        biases.setdefault(dataset, {})[algorithm] = row[place] + chance
    return biases


def ranks(analysis: Analysis) -> tables.Table | None:
    """Return the table of ranks, one row per algorithm.

    Columns: algorithm, one per data set, and mean_rank. Ranks must have been tested; the table is
    then never None.
    """
    keys, columns = _dataset_columns(
        analysis.datasets, first="algorithm", last="mean_rank:.2", form="{:g}".format
    )
    data = analysis.ranks.T.set_axis(keys, axis=1).reset_index(names="algorithm")
    caption = (
        "Ranks of the means, 1 the best; ties (to 12 digits) share their mean rank."
    )
    caption += _hidden_datasets(analysis.datasets)
    data = data.assign(mean_rank=analysis.nemenyi.ranks)
    return _table("ranks", caption, data, columns)


def nemenyi(analysis: Analysis) -> tables.Table:
    """Return the matrix of Nemenyi's p-values, with algorithms in the order of mean ranks.

    Columns of the page: algorithm, mean rank, and one per algorithm, for the first `MAX_COLUMNS`
    algorithms. Columns of the files: algorithm, and one per algorithm, for all algorithms in the
    order of `analysis.algorithms`. Significant cells are bold, small p-values are shaded. Ranks
    must have been tested.
    """
    names = analysis.algorithms
    result = analysis.nemenyi
    order = analysis.order[:MAX_COLUMNS]
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


def omnibus(analysis: Analysis) -> tables.Table | None:
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
    return _table(
        "omnibus",
        "Tests of equality of all algorithms. Quade's test and aligned ranks need one unit. "
        f"Kendall's W is {f.kendall_w:.3f}. "
        f"Data sets: {tables.few(analysis.datasets, MAX_COLUMNS)}."
        f"{_note_on_infinite_f([f.statistic, uncorrected.statistic])}",
        data,
        tables.columns("test statistic:.3 df p:p"),
        in_results=True,
    )


def _note_on_infinite_f(statistics: Iterable[float]) -> str:
    """Return a sentence for the caption if a value of F is infinite, else ""."""
    if not any(map(math.isinf, statistics)):
        return ""
    return f" {prose.INFINITE_F} The p of the F distribution then means nothing."


_BLOCK_HEADS = {
    "by": "blocks by",
    "f": "F over means",
    "means": "by permutation",
    "whole": "blocks permuted whole",
    "least": "least possible",
}


def blocked(analysis: Analysis) -> tables.Table | None:
    """Return the table of p-values of Friedman's test over blocks of similar data sets.

    The first row is the test over single data sets; one row per kind of similarity follows.
    Columns: by, blocks (number of blocks), f and means (p over the blocks' means, by F and by
    permutation; missing for a single block), whole (p over data sets, with blocks permuted whole)
    and least (smallest possible p of whole). p of at most alpha is bold. Ranks must have been
    tested; the table is then never None.
    """
    alpha = analysis.alpha
    permutation_p = analysis.permutation.pvalue
    rows = [
        {
            "by": "each data set",
            "blocks": len(analysis.datasets),
            "f": analysis.friedman.pvalue,
            "means": permutation_p,
            "whole": permutation_p,
            "least": math.nan,
        }
    ]
    for by, (blocks, test) in analysis.dataset_blocks.items():
        test_of_means = test.means
        rows.append(
            {
                "by": by,
                "blocks": blocks.count,
                "f": test_of_means.approximate.pvalue if test_of_means else math.nan,
                "means": test_of_means.pvalue if test_of_means else math.nan,
                "whole": test.pvalue,
                "least": test.least,
            }
        )
    num_blocks = analysis.study.options.blocks
    until = f"until {num_blocks} are left" if num_blocks else "while r is at least 0.5"
    columns = tables.columns("by blocks:d f:p means:p whole:p least:p", **_BLOCK_HEADS)
    return _table(
        "blocked",
        "p of Friedman's test over blocks of similar data sets, joined by average linkage of "
        f"1 - r {until}: over the blocks' mean scores, by F and by permutation, and over all "
        "data sets, with the same permutation of algorithms for all data sets of a block. Bold "
        f"where p ≤ {alpha:g}, which is impossible if the least possible p is larger.",
        pd.DataFrame(rows, columns=[*columns]),
        columns,
        bold=lambda row: [key for key in ("f", "means", "whole") if row[key] <= alpha],
        in_results=True,
    )


def dataset_blocks(analysis: Analysis) -> tables.Table | None:
    """Return the table of the blocks of similar data sets, with one row per data set.

    A column per kind of similarity has the number, from 1, of the data set's block. Never None for
    tested ranks.
    """
    rows = {"dataset": analysis.datasets}
    rows |= {
        by: 1 + blocks.labels for by, (blocks, _) in analysis.dataset_blocks.items()
    }
    columns = tables.columns("dataset scores:d deviations:d", dataset="data set")
    return _table(
        "dataset_blocks",
        "The block of each data set.",
        rows,
        columns,
        in_results=True,
    )


def _decision(analysis: Analysis) -> dict[str, float]:
    """Return the results of the rank tests by key of `_DECISION_COLUMNS`; all NaN if untested.

    Keys: F and p (Friedman's test, p by the F distribution), permutation_p, critical_difference (of
    mean ranks, Nemenyi's test) and pairs, the number of pairs that differ significantly.
    """
    test = analysis.friedman
    if test is None:
        return dict.fromkeys(_DECISION_COLUMNS, math.nan)
    return {
        "F": test.statistic,
        "p": test.pvalue,
        "permutation_p": analysis.permutation.pvalue,
        "critical_difference": analysis.critical_difference,
        "pairs": len(analysis.significant),
    }


def strict(analysis: Analysis) -> tables.Table | None:
    """Return the table of rank tests with and without test sets that an algorithm trained on.

    One row per setting ("all test sets", "strict"). Columns: setting, datasets (number), and the
    keys of `_decision`. None if no algorithm trained on a test set.
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
        rows.append(row | _decision(setting_analysis))
        trained_on |= {dataset for _, dataset in study.trained if dataset in datasets}
    return _table(
        "strict",
        "The tests over all test sets, and without test sets that some algorithm trained on "
        f"({', '.join(sorted(trained_on))}); pairs: number of pairs that differ at "
        f"α = {analysis.alpha:g}.{_note_on_infinite_f(row['F'] for row in rows)}",
        rows,
        tables.columns("setting datasets:d", datasets="data sets") | _DECISION_COLUMNS,
        in_results=True,
    )


def _pairs(analysis: Analysis, **matrices: np.ndarray) -> pd.DataFrame:
    """Return one row per pair of algorithms, the smallest p of Nemenyi's test first.

    Columns: better, worse, and one per matrix. matrices: arrays (k, k) by name of the column; the
    entry [i, j] is for (better i, worse j), indexed in the order of `analysis.algorithms`.
    """
    frame = pd.DataFrame(analysis.pairs, columns=["better", "worse", "p"])
    i = frame["better"].map(analysis.algorithms.index)
    j = frame["worse"].map(analysis.algorithms.index)
    cells = {key: matrix[i, j] for key, matrix in matrices.items()}
    return frame.drop(columns="p").assign(**cells)


def posthoc(analysis: Analysis) -> tables.Table | None:
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
    rows = _pairs(
        analysis,
        rank_difference=ranks - ranks[:, None],
        **{name: test.adjusted for name, test in p_tests.items()},
        signed_rank_better=tests.signed_rank.better,
        signed_rank_rope=tests.signed_rank.rope,
    )
    if bradley_terry is not None:
        pair_probabilities = _pairs(analysis, bradley_terry_better=bradley_terry.better)
        rows["bradley_terry_better"] = pair_probabilities["bradley_terry_better"]
    return _table(
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


def control(analysis: Analysis) -> tables.Table | None:
    """Return the table of every algorithm against the reference.

    Columns: algorithm, z (above 0 for a better mean rank than the reference), and p of Dunn's test
    by Bonferroni and by Holm, and of Wilcoxon's test by Holm. p is adjusted for these tests only;
    p of at most alpha is bold. The reference must have been tested; the table is then never None.
    """
    dunn = analysis.tests.dunn
    alpha = analysis.alpha
    p = {"dunn": dunn.adjusted, "holm": stats.adjust(dunn.pvalues, "holm")}
    p["wilcoxon_holm"] = analysis.tests.control_wilcoxon.adjusted
    return _table(
        "control",
        f"Every algorithm against {dunn.control}, adjusted for these comparisons alone: valid "
        f"if {dunn.control} was the control before the scores were seen. z > 0: a better mean "
        f"rank than {dunn.control}; bold where p ≤ {alpha:g}.",
        {"algorithm": dunn.algorithms, "z": dunn.statistics, **p},
        tables.columns("algorithm z:+.2 dunn:p holm:p wilcoxon_holm:p"),
        bold=lambda row: [key for key in p if row[key] <= alpha],
        in_results=True,
    )


def stability(analysis: Analysis) -> tables.Table | None:
    """Return the table of mean ranks, means and IQM with bootstrap intervals over seeds.

    One row per algorithm, the best mean rank first. Columns: algorithm, mean_rank, first (share of
    draws in which the algorithm ranks first), mean, iqm and optimality_gap. Seeds must have been
    analysed; the table is then never None.
    """
    digits = analysis.study.unit.digits
    stable = analysis.seeds.stability
    intervals = analysis.seeds.intervals
    data = {"algorithm": stable.algorithms, "first": stable.best}
    estimates = {
        "mean_rank": stable.ranks,
        "mean": intervals.mean,
        "iqm": intervals.iqm,
        "optimality_gap": intervals.optimality_gap,
    }
    for key, estimate in estimates.items():
        data[key] = estimate.value
        data[f"{key}_low"], data[f"{key}_high"] = estimate.low, estimate.high
    columns = tables.columns(
        f"algorithm mean_rank:.2[] first mean:.{digits}[] iqm:.3[] optimality_gap:.3[]"
    )
    return _table(
        "stability",
        f"{analysis.bounds.capitalize()} over {analysis.study.repeats} redrawn "
        f"{analysis.draws:,} times, for all data sets together. First: share of draws in which "
        f"the algorithm ranks first (standard error up to {50 / math.sqrt(analysis.draws):.1f} points). Interquartile mean (IQM) and optimality gap (to the best run; smaller "
        "is better) are of scores normalised by the worst and best run of each data set.",
        pd.DataFrame(data).sort_values("mean_rank", kind="stable"),
        columns | {"first": ("first", prose.share)},
        in_results=True,
    )


def differences(analysis: Analysis) -> tables.Table | None:
    """Return the table of differences with intervals and effect sizes, one row per pair.

    The pair with the smallest p of Nemenyi's test is first. The page shows at most 60 rows; the
    files have all rows. Columns: better, worse, difference with its interval over seeds, its
    interval over seeds and data sets, better_on_other_sets and better_run (shares), rank_biserial,
    hedges_g and mixed_p. The files also have a12. Seeds must have been analysed; the result is then
    never None.
    """
    unit = analysis.study.unit
    seeds = analysis.seeds
    number = tables.digits(unit.digits)
    advantage = tables.interval(tables.digits(unit.digits, plus=True))
    over_seeds = seeds.mean_differences.pairs
    over_datasets = seeds.differences_over_datasets
    effects = seeds.effects
    rows = _pairs(
        analysis,
        difference=over_seeds.value,
        seeds_low=over_seeds.low,
        seeds_high=over_seeds.high,
        both_low=over_datasets.pairs.low,
        both_high=over_datasets.pairs.high,
        better_on_other_sets=over_datasets.better,
        better_run=seeds.improvement.pairs.value,
        a12=effects.a12_mean.value,
        rank_biserial=effects.rank_biserial.value,
        hedges_g=effects.hedges_g.value,
        mixed_p=seeds.mixed.pvalues,
    )
    show_interval = lambda low, high: f"[{number(low)}, {number(high)}]"
    columns = tables.columns(
        "better worse difference both_low better_on_other_sets:.2 better_run:.2 "
        "rank_biserial:+.2 hedges_g:+.2 mixed_p:p"
    )
    columns["difference"] = tables.Column(
        "advantage", advantage, ("seeds_low", "seeds_high")
    )
    columns["both_low"] = tables.Column(
        "with other data sets", show_interval, ("both_high",)
    )
    return _table(
        "differences",
        f"Advantage of the first algorithm, in {unit.of_differences}, averaged over data sets: "
        f"with {analysis.bounds} over redrawn {analysis.study.repeats}, and with 95 % intervals "
        "over redrawn runs and data sets, widened as for Student's t. P(sets): share of the "
        "latter draws in which the first is better. P(run): probability that one run of the "
        "first beats one run of the second (Vargha and Delaney's A). p: of the mixed model.",
        rows,
        columns,
        most=60,
        in_results=True,
    )


def outperforming(analysis: Analysis) -> tables.Table | None:
    """Return the table of P(A > B), the share of seeds for which A beats the reference B.

    The page has one row per algorithm except B, the files one per algorithm and data set. Columns:
    algorithm, pairs (shared seeds), p with its interval (mean over data sets), and the numbers of
    data sets significant, better and ordered (almost stochastic order). p, significant and better
    are missing for fewer than 3 shared seeds. Instead of ordered, the files have violation and
    bound of almost stochastic order. The study must have a tested reference and analysed
    seeds; the table is then never None.
    """
    runs = analysis.runs
    reference = analysis.study.options.reference
    larger_is_better = analysis.study.options.larger_is_better
    algorithms = [name for name in runs.algorithms if name != reference]
    datasets = runs.datasets
    rows = []
    cells = []
    comparisons = len(algorithms) * len(datasets)
    for algorithm in algorithms:
        order = stats.almost_stochastic_order(
            runs.runs(algorithm),
            runs.runs(reference),
            comparisons=comparisons,
            confidence=1 - analysis.alpha,
            larger_is_better=larger_is_better,
        )
        scores, reference_scores = analysis_lib.shared_seeds(
            analysis, algorithm, reference
        )
        row = {"algorithm": algorithm, "pairs": scores.shape[1]}
        dataset_cells = {**row, "dataset": datasets}
        if row["pairs"] > 2:
            p = stats.probability_of_outperforming(
                scores, reference_scores, larger_is_better=larger_is_better
            )
            row |= {
                "p": p.mean.value,
                "p_low": p.mean.low,
                "p_high": p.mean.high,
                "significant": p.significant.sum(),
                "better": p.better.sum(),
            }
            dataset_cells |= {
                "p": p.share.value,
                "p_low": p.share.low,
                "p_high": p.share.high,
                "significant": p.significant,
                "better": p.better,
            }
        rows.append({**row, "ordered": order.better.sum()})
        dataset_cells |= {"violation": order.violation, "bound": order.bound}
        cells.append(pd.DataFrame(dataset_cells))
    table = _table(
        "outperforming",
        f"P(A > B): share of seeds with which A beats {reference}, averaged over data sets, "
        "with 95% percentile intervals over redrawn pairs (–: too few pairs; the coverage is "
        "about 87 % with six pairs and 90 % with ten). Significant: number of data sets, of "
        f"{len(datasets)}, on which Clopper and Pearson's 95% interval is above 0.5, not adjusted "
        f"for {comparisons} comparisons. Better: number of these on which P(A > B) is also at "
        f"least {stats.outperformance.GAMMA:g}, which is reliable with "
        f"{stats.pairs_for_outperforming()} pairs or more. Ordered: number of data sets on which "
        "the bound of ε of almost stochastic order is below "
        f"{stats.outperformance.TAU:g}; this describes the scores and is no test. The CSV file "
        "has each data set.",
        rows,
        tables.columns(
            "algorithm pairs:d p:.2[] significant:d better:d ordered:d", p="P(A > B)"
        ),
        in_results=True,
    )
    return table and dataclasses.replace(table, data=pd.concat(cells))


def power(analysis: Analysis) -> tables.Table:
    """Return the table of the power of each test in this study: paired t, Wilcoxon, Nemenyi.

    The page also has the difference that each test detects with the target power, or "never". The
    files have the columns test, seeds ("here" for this study), datasets and power, with rows for
    other numbers of seeds and data sets. Seeds must have been analysed.
    """
    result = analysis.seeds.power
    repeats = analysis.study.repeats
    digits = analysis.study.unit.digits + 1
    rows = []
    data = []
    tests = {"t": "paired t", "wilcoxon": "Wilcoxon", "nemenyi": "Nemenyi"}
    for test, name in tests.items():
        least = result.minimal[test]
        present = result.present[test]
        shown = f"{least:.{digits}f}" if math.isfinite(least) else "never"
        rows.append((name, "as here", f"{present:.2f}", shown))
        data.append((test, "here", len(analysis.datasets), present))
        for seeds, row in zip(result.seeds, result.power[test], strict=True):
            cells = zip(result.datasets, row, strict=True)
            data += [
                (test, str(seeds), num_datasets, share) for num_datasets, share in cells
            ]
    return tables.Table(
        "power",
        "Probability that a study like this one finds a difference of "
        f"{result.difference:g} between two algorithms, and the difference that it finds with "
        f"probability {result.target:g}, by simulation. t and Wilcoxon at α = {result.alpha:g} shared among "
        f"{tables.count(result.comparisons, 'pair')}. The CSV file has other numbers of {repeats} and data sets.",
        head=("Test", "study", "power", f"found with {result.target:g}"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["test", "seeds", "datasets", "power"]),
        texts=2,
        in_results=True,
    )


def selections(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of mean scores, one row per algorithm and data set, one column per rule.

    With the rules "oracle" and "best validation", a last column has the difference of the two
    rules. None if there is no rule of selection, as for a file of scores.
    """
    means = {
        name: study.cells_of(values).set_index(["algorithm", "dataset"])["mean"]
        for name, values in study.values_by_rule
    }
    data = pd.DataFrame(means)
    show = study.unit.show
    columns = {name: tables.Column(name, show) for name in data}
    if {"oracle", "best validation"} <= {*data}:
        gap = "oracle − best validation"
        data[gap] = data["oracle"] - data["best validation"]
        columns["oracle"] = tables.Column("oracle (not a result)", show)
        columns[gap] = tables.Column(gap, functools.partial(show, signed=True))
    caption = "Means over seeds by rule of selection; the oracle looks at the test set."
    all_columns = tables.columns("algorithm dataset") | columns
    return _table("selections", caption, data.reset_index(), all_columns)


def selection_tests(analysis: Analysis) -> tables.Table | None:
    """Return the table of the rank tests, one row per rule of selection.

    Columns: selection, F, its p, p by permutation, pairs (number of significant pairs), and
    mean_ranks as text. None for one or two data sets, for which ranks are not tested.
    """
    if len(analysis.study.datasets) <= analysis_lib.FEW_SETS:
        return None
    rows = []
    for name, values in analysis.study.values_by_rule:
        rule_analysis = analysis_lib.analyse(
            dataclasses.replace(analysis.study, values=values)
        )
        is_tested = rule_analysis.friedman is not None
        mean_ranks = [
            f"{rule_analysis.algorithms[i]} {rule_analysis.nemenyi.ranks[i]:.2f}"
            for i in (rule_analysis.order if is_tested else ())
        ]
        row = {"selection": name} | _decision(rule_analysis)
        row["mean_ranks"] = ", ".join(mean_ranks) or "–"
        rows.append(row)
    return _table(
        "selection_tests",
        "The tests under each rule of selection; pairs: number of pairs that differ at "
        f"α = {analysis.alpha:g}. A conclusion that changes with the rule is weak."
        f"{_note_on_infinite_f(row['F'] for row in rows)}",
        pd.DataFrame(rows).drop(columns="critical_difference"),
        tables.columns("selection") | _DECISION_COLUMNS | tables.columns("mean_ranks"),
    )


def variability(
    study: analysis_lib.BenchmarkScores, data: pd.DataFrame
) -> tables.Table | None:
    """Return the table of deviations within runs and between runs; None if all are unknown.

    One row per algorithm and data set with a known deviation. Columns: algorithm, dataset, within,
    between and seeds; the files also have evaluations. data: the result of
    `benchmark_figures.variability`.
    """
    data = data.dropna(subset=["within", "between"], how="all")
    show = study.unit.show
    return _table(
        "variability",
        _variability_caption(data["evaluations"].max()),
        data,
        tables.columns("algorithm dataset within between seeds:d")
        | {key: (f"{key} runs", show) for key in ("within", "between")},
        in_results=True,
    )


def _variability_caption(evaluations: float) -> str:
    """Return the caption of the table of variability.

    evaluations: number of evaluations per run, NaN if unknown.
    """
    if evaluations == 1:
        return (
            "Standard deviation of scores between runs, at the last evaluation of each run. The "
            "deviation within a run needs two evaluations or more."
        )
    return (
        f"Standard deviation of scores: within a run over its last {evaluations:.0f} "
        "evaluations (root mean variance), and between the runs' means over these evaluations."
    )


def settings(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of settings that differ between runs, one row per setting.

    There is a column per run; runs without a config.json are left out. None if no setting differs.
    """
    configured = [run for run in study.runs if run.config is not None]
    keys = workdirs.differing([run.config for run in configured])
    values_by_run = {
        name: [run.config.get(key, "∅") for key in keys]
        for name, run in zip(_unique_names(configured), configured, strict=True)
    }
    caption = "Settings that differ between runs; ∅: the run does not have the setting."
    return _text_table("settings", caption, {"setting": keys} | values_by_run)


def costs(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of device hours and energy, one row per run; None if not recorded.

    Columns: run, assumed (text), starts (number), hours of each kind, device_hours, energy_kwh and
    kg_co2e. Runs without recorded costs are left out. Runs with the same starts, such as branches
    of one run, share the row of the first run.
    """
    rows = []
    seen_starts = set()
    for name, run in zip(_unique_names(study.runs), study.runs, strict=True):
        starts = run.costs.get("starts", ())
        total = run.costs.get("total", {})
        # Branches of a run share one file.
        if not starts or str(starts) in seen_starts:
            continue
        seen_starts.add(str(starts))
        assumed = "; ".join(dict.fromkeys(map(workdirs.assumed, starts)))
        row = {"run": name, "assumed": assumed, "starts": len(starts)}
        row |= total.get("hours", {})
        for key in ("device_hours", "energy_kwh", "kg_co2e"):
            row[key] = total.get(key)
        rows.append(row)
    data = pd.DataFrame(rows)
    columns = tables.columns("run assumed starts:d")
    for key in data.columns[3:]:
        head = tables.HEADS.get(key, key.replace("_", " "))
        columns[key] = tables.Column(head, "{:.3g}".format)
    return _table(
        "costs",
        "Cost of each run, the sum over its starts: device hours (on a CPU, core hours), and "
        "an estimate of the energy: hours × power in use × the building's factor (PUE).",
        data,
        columns,
    )


def provenance(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of code, package versions and devices, one row per key, one column per run.

    On the page, "∅" is a missing value, and a value that all runs share is shown once, followed by
    "″". The runs of the study must not be empty.
    """
    columns = []
    for run in study.runs:
        recorded = {
            key: value
            for key, value in run.provenance.items()
            if key not in ("config", "data")
        }
        column = {"workdir": run.workdir, "label": run.label}
        columns.append(column | workdirs.flatten(recorded))
    data = pd.DataFrame(columns, _unique_names(study.runs)).T.fillna("")
    data = data.rename_axis("key").reset_index()
    shown = data.replace("", "∅")
    is_shared = shown.iloc[:, 1:].nunique(axis=1) == 1
    shown.loc[is_shared, shown.columns[2:]] = "″"
    caption = "Code, packages and devices of each run; ″: the same as in the column to the left."
    table = _text_table("provenance", caption, shown)
    return dataclasses.replace(table, data=data)


def data(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Return the table of recorded data sets, one row per data set and provenance.

    The columns are the dotted keys of the provenance, "∅" where a data set lacks a key. The last
    column lists the names of the runs with that provenance. None if no run recorded a data set.
    """
    runs_by_record: dict[tuple, list[str]] = {}
    for run in study.runs:
        for name, provenance_of_set in run.data.items():
            is_tree = isinstance(provenance_of_set, dict)
            tree = provenance_of_set if is_tree else {"": provenance_of_set}
            record = (name, *workdirs.flatten(tree).items())
            runs_by_record.setdefault(record, []).append(run.name)
    rows = [
        {"Data set": name} | dict(fields) | {"runs": ", ".join(run_names)}
        for (name, *fields), run_names in runs_by_record.items()
    ]
    columns = dict.fromkeys(key for row in rows for key in row if key != "runs")
    frame = pd.DataFrame(rows, columns=[*columns, "runs"]).fillna("∅")
    caption = (
        "Data of the runs. A data set with several rows is not the same in all runs."
    )
    return _text_table("data", caption, frame)


def _text_table(
    name: str,
    caption: str,
    data: pd.DataFrame | Sequence[Mapping] | Mapping[str, Sequence],
) -> tables.Table | None:
    """Return a table that shows cells as text, with the column names of `data` as headings.

    None if there are no rows. name, caption: name and caption of the table. data: any input of
    `pd.DataFrame`.
    """
    data = pd.DataFrame(data)
    columns = {key: tables.Column(key, str) for key in data}
    return _table(name, caption, data, columns)


def _unique_names(runs: Sequence[workdirs.Run]) -> list[str]:
    """Return the names of runs, or the workdirs of all runs if two runs have the same name."""
    names = [run.name for run in runs]
    are_unique = len({*names}) == len(names)
    return names if are_unique else [run.workdir for run in runs]
