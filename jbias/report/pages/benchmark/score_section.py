"""Report section on scores: tables of means, runs and shape biases, and the figure of ranks.

A cell is an algorithm on a data set.
"""

import functools
import math
from collections.abc import Mapping

import numpy as np

from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import (
    benchmark_blocks,
    benchmark_scores,
    inputs,
    prose,
)

Analysis = analysis_lib.Analysis
_SPREAD = [*benchmark_scores.SPREAD]


def blocks(
    analysis: Analysis, biases: Mapping[str, Mapping[str, str]]
) -> document.Blocks:
    """Yield the table of scores, the differences from the reference, and the figure of ranks.

    biases: result of `shape_biases`.
    """
    yield scores_table(analysis, biases)
    if analysis.study.options.reference:
        yield reference_table(analysis)
    if analysis.tests is not None:
        yield rank_figure(analysis)


def scores_table(
    analysis: Analysis, biases: Mapping[str, Mapping[str, str]] | None = None
) -> tables.Table:
    """Return the main table: mean ± std, or median and range, per algorithm and data set.

    `Unit.spread` chooses mean or median per data set. One row per algorithm. Columns: name, number
    of seeds or runs (not for a file of means), mean rank if ranks were tested, and the first
    `benchmark_blocks.MAX_COLUMNS` data sets. "(n=2)" follows the score of a cell with fewer seeds
    than the algorithm, and "(chance)" follows a score at chance. The cells of `Analysis.best_cells`
    and the mean ranks of `Analysis.leaders` are bold, and the cells of `BenchmarkScores.trained`
    are underlined. The files have the rows of `Analysis.cells`. biases: shape biases as text, as
    returned by `shape_biases`, for further columns on the page; None for no further columns.
    """
    study = analysis.study
    is_tested = analysis.friedman is not None
    datasets = study.datasets[: benchmark_blocks.MAX_COLUMNS]
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
    hidden_datasets = benchmark_blocks.hidden_datasets(study.datasets)
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


def _deviation(unit: benchmark_scores.Unit, cell: Mapping) -> str:
    """Return the deviation of a mean in a file of scores as " ± 0.2"; "" if there is none.

    cell: a row of `Analysis.cells`.
    """
    deviation = cell.get("deviation", math.nan)
    if math.isnan(deviation):
        return ""
    text = unit.show(deviation)
    rounds_to_zero = deviation and not float(text.replace(",", ""))
    return f" ± {deviation * unit.scale:.1g}" if rounds_to_zero else f" ± {text}"


def reference_table(analysis: Analysis) -> tables.Table | None:
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
    keys, columns = benchmark_blocks.dataset_columns(
        study.datasets, first="algorithm", last="p:p", form=show_signed
    )
    return benchmark_blocks.table(
        "reference",
        f"Each algorithm's mean minus the mean of {name}, in {unit.of_differences}"
        f"{better_side}{source_of_p}.{benchmark_blocks.hidden_datasets(study.datasets)}",
        differences.set_axis(keys, axis=1).reset_index(names="algorithm").assign(p=p),
        columns,
    )


def runs_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
    """Return the table of scores, one row per seed, or run, of an algorithm.

    Columns: algorithm, seed, and one per data set. Rows are in the order of the study's algorithms,
    then sorted by the number at the end of the seed's name. None without scores.
    """
    repeat = study.repeats.removesuffix("s")
    keys, columns = benchmark_blocks.dataset_columns(
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
    hidden_datasets = benchmark_blocks.hidden_datasets(study.datasets)
    caption = f"Scores of each {repeat}, at {study.rule}.{hidden_datasets}"
    order = np.lexsort((number, place))
    return benchmark_blocks.table("runs", caption, wide.iloc[order], columns, most=200)


# Metrics in the table of shape bias, and sentences for its caption. These metrics separate a shape
# bias of many decisions for shape or texture from a shape bias of few such decisions.
_CUE_METRICS = {
    "fraction_neither": " Neither: decisions for neither cue, in % of images whose cues conflict, mean over seeds.",
    "mrr_shape": " MRR: mean over images and seeds of 1 / rank of the cue's class among all",
    "mrr_texture": " logits.",
}


def shape_bias_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
    """Return the table of shape biases with counts of decisions, and MRR if recorded.

    One row per algorithm and data set of cue conflicts. Columns: algorithm, dataset, seeds, shape
    bias over seeds, decisions for shape and for texture (sums over seeds), and means of
    fraction_neither, mrr_shape and mrr_texture. A mean is missing unless all seeds have the metric.
    None without records of shape bias.
    """
    records = study.selected[study.selected["metric"] == "shape_bias"]
    datasets = list(dict.fromkeys(records["dataset"]))
    values = inputs.values_of(study.selected, "shape_bias", datasets)
    cells = benchmark_scores.cells_of(values, study.algorithms, datasets)
    cells = cells.rename(columns={"n": "seeds"})
    counts = records.groupby(["label", "dataset"])[["count", "n"]].sum(min_count=1)
    decisions = cells.join(counts, on=["algorithm", "dataset"])
    spread = benchmark_scores.unit_of("shape_bias", records["value"]).spread(cells)
    cells["shape_decisions"] = decisions["count"]
    cells["texture_decisions"] = decisions["n"] - decisions["count"]
    caption = (
        "Shape bias in %: decisions for the shape among decisions for the shape or the "
        f"texture, mean ± std over seeds, at {study.rule}. {benchmark_scores.RANGED} Counts are "
        "sums over seeds."
    )
    for metric, sentence in _CUE_METRICS.items():
        values = inputs.values_of(study.selected, metric, datasets)
        if len(values):
            metric_cells = benchmark_scores.cells_of(values, study.algorithms, datasets)
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
    return benchmark_blocks.table("shape_bias", caption, cells, columns)


def shape_biases(
    study: benchmark_scores.BenchmarkScores, table: tables.Table | None
) -> dict[str, dict[str, str]]:
    """Return shape biases in % as shown on the page, by data set, then by algorithm.

    "(chance)" follows a shape bias if the share of decisions for shape or texture is at chance.
    Rows that the page does not show are left out. Empty without a table, and if shape bias is the
    metric of the study. table: the result of `shape_bias_table`; None for a file of scores.
    """
    if table is None or study.options.metric == "shape_bias":
        return {}
    place = table.head.index("shape bias")
    at_chance = {
        (cell["algorithm"], cell["dataset"])
        for cell in study.at_chance
        if cell["metric"] == benchmark_scores.CUES
    }
    biases: dict[str, dict[str, str]] = {}
    for algorithm, dataset, row in zip(
        table.data["algorithm"], table.data["dataset"], table.rows, strict=False
    ):
        chance = " (chance)" if (algorithm, dataset) in at_chance else ""
        biases.setdefault(dataset, {})[algorithm] = row[place] + chance
    return biases


def rank_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of mean ranks with their critical difference; ranks must be tested."""
    names = analysis.algorithms
    ranks = analysis.nemenyi.ranks
    styles = plots.styles(analysis.study.algorithms)
    cliques = analysis.cliques
    difference = analysis.critical_difference

    def draw() -> plots.Figure:
        return plots.critical_difference(
            names,
            ranks,
            cliques,
            difference,
            alpha=analysis.alpha,
            colours=[styles[name]["color"] for name in names],
        )

    caption = (
        "Mean ranks, the best on the left. A bar joins algorithms that Nemenyi's test does not "
        f"separate at α = {analysis.alpha:g}."
    )
    return document.Figure("critical_difference", caption, draw)
