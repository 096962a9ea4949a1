"""Report section on the selection of checkpoints, and on deviations within and between runs.

A cell is an algorithm on a data set.
"""

import dataclasses
import functools

import numpy as np
import pandas as pd

from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_blocks, benchmark_scores
from jbias.runs import results, selection

Analysis = analysis_lib.Analysis
_SPREAD = [*benchmark_scores.SPREAD]


def blocks(analysis: Analysis, deviations: pd.DataFrame | None) -> document.Blocks:
    """Yield the figure of variability and the tables on selection; nothing for scores.

    deviations: result of `variability`; None for a file of scores.
    """
    study = analysis.study
    if study.is_runs:
        yield variability_figure(study, deviations)
        yield validation_table(study)
        yield selection_tests_table(analysis)
        yield selections_table(study)
        yield variability_table(study, deviations)


def validation_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
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
        row |= {**records["value"].agg(**benchmark_scores.SPREAD)}
        row["images"] = ", ".join(f"{size:,}" for size in sizes) or "–"
        row["epochs"] = " ".join(f"{epoch:g}" for epoch in records["epoch"])
        if study.options.selection == "worst_class":
            classes = by_class[by_class["label"] == algorithm]
            lowest = classes.loc[classes.groupby(["run", "seed"])["value"].idxmin()]
            statistics = lowest["value"].agg(**benchmark_scores.SPREAD)
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
        spread = benchmark_scores.unit_of("accuracy", valid["value"]).spread(cells)
        columns[keys[0]] = tables.Column(head, spread, tuple(keys[1:]))
    return benchmark_blocks.table(
        "validation",
        f"Accuracy in % on the validation set, at {study.rule}: mean ± std over seeds. "
        f"{benchmark_scores.RANGED}",
        rows,
        columns | {"epochs": (epochs_head, list_epochs)},
    )


def selections_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
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
    return benchmark_blocks.table(
        "selections", caption, data.reset_index(), all_columns
    )


def selection_tests_table(analysis: Analysis) -> tables.Table | None:
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
        row = {"selection": name} | benchmark_blocks.decision(rule_analysis)
        row["mean_ranks"] = ", ".join(mean_ranks) or "–"
        rows.append(row)
    return benchmark_blocks.table(
        "selection_tests",
        "The tests under each rule of selection; pairs: number of pairs that differ at "
        f"α = {analysis.alpha:g}. A conclusion that changes with the rule is weak."
        f"{benchmark_blocks.note_on_infinite_f(row['F'] for row in rows)}",
        pd.DataFrame(rows).drop(columns="critical_difference"),
        tables.columns("selection")
        | benchmark_blocks.DECISION_COLUMNS
        | tables.columns("mean_ranks"),
    )


def variability_table(
    study: benchmark_scores.BenchmarkScores, data: pd.DataFrame
) -> tables.Table | None:
    """Return the table of deviations within runs and between runs; None if all are unknown.

    One row per algorithm and data set with a known deviation. Columns: algorithm, dataset, within,
    between and seeds; the files also have evaluations. data: the result of
    `variability`.
    """
    data = data.dropna(subset=["within", "between"], how="all")
    show = study.unit.show
    return benchmark_blocks.table(
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


def variability(study: benchmark_scores.BenchmarkScores) -> pd.DataFrame:
    """Return the standard deviations within and between runs, one row per algorithm and data set.

    Columns: algorithm, dataset, within, between, seeds (number of seeds) and evaluations (smallest
    number of averaged evaluations of a seed). `within` is the deviation over the last
    `options.last` evaluations of a seed (root of the mean variance over seeds). `between` is the
    deviation of the seeds' means over these evaluations. Both deviations have ddof 1 and the unit
    of the records (fractions for accuracies). A deviation is NaN without evaluations, and for a
    single number. Seeds of different runs are different seeds. Source: BiasBed, figure 2.
    """
    evaluations = benchmark_blocks.evaluations_of(
        study, study.options.metric, study.datasets
    )
    if not evaluations["epoch"].is_monotonic_increasing:
        evaluations = evaluations.sort_values("epoch", kind="stable")
    keys = results.number_rows(evaluations, ["label", "dataset", "run", "seed"])
    num_later = selection.count_later(keys)
    is_late = num_later < study.options.last
    late = evaluations["value"][is_late].groupby(keys[is_late])
    is_last = num_later == 0
    seeds = evaluations.loc[is_last, ["label", "dataset"]].set_index(keys[is_last])
    seeds = seeds.join(late.agg(["mean", "var", "size"]))
    groups = seeds.astype({"label": str, "dataset": str}).groupby(["label", "dataset"])
    deviations = {
        "within": np.sqrt(groups["var"].mean()),
        "between": groups["mean"].std(),
        "seeds": groups.size(),
        "evaluations": groups["size"].min(),
    }
    order = pd.MultiIndex.from_product([study.algorithms, study.datasets])
    frame = pd.DataFrame(deviations).reindex(order)
    return frame.rename_axis(["algorithm", "dataset"]).reset_index()


def variability_figure(
    study: benchmark_scores.BenchmarkScores, deviations: pd.DataFrame
) -> document.Figure | None:
    """Return the figure of box plots of deviations within and between runs, or None.

    The figure shows the first `benchmark_blocks.MAX_CURVES` algorithms. None if all deviations
    within runs, or all deviations between runs, are unknown for these algorithms. deviations: the
    result of `variability`.
    """
    names = study.algorithms[: benchmark_blocks.MAX_CURVES]
    kinds = ["within", "between"]
    is_drawn = deviations["algorithm"].isin(names)
    deviations = deviations[is_drawn].set_index("algorithm")
    if not deviations[kinds].notna().any().all():
        return None
    by_algorithm = [study.unit.scale * deviations.loc[[name], kinds] for name in names]
    values = {
        f"{kind} runs": [rows[kind].to_numpy() for rows in by_algorithm]
        for kind in kinds
    }
    unit = f" in {study.unit.name}" if study.unit.name else ""
    caption = (
        "Standard deviation of scores on the data sets: within runs over their last "
        "evaluations, and between runs. Boxes span the quartiles, whiskers all data sets."
    )
    label = f"standard deviation{unit}"
    return document.Figure(
        "variability", caption, lambda: plots.variability(names, values, label=label)
    )
