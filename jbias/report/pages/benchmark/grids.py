"""Functions for the section on methods that were run at several values of one setting.

An example is the learning rate. The section shows the scores at every value, and the share of cases
in which the same method of a pair is better.
"""

import itertools
import math

import pandas as pd

from jbias.report import document, tables, workdirs
from jbias.report.pages.benchmark import benchmark_scores, few_seeds
from jbias.runs import results


def grid_of(study: benchmark_scores.BenchmarkScores) -> tuple[str, pd.DataFrame]:
    """Return (setting, runs) for the setting in which the runs of a method differ.

    setting: dotted key of the setting. runs: frame with a row per label (runs that differ only in
    seeds share a label) and the columns label, algorithm and value (text of the setting), sorted by
    value; values that are not numbers are last. A method is left out unless all its runs have a
    config.json and differ in exactly one setting, which all its runs have. If methods differ in
    different settings, the setting of most runs is returned. If all methods are left out, the
    setting is "" and the frame is empty.
    """
    methods: dict[str, dict[str, workdirs.Run]] = {}
    for run in study.runs:
        methods.setdefault(run.base_label, {})[run.label] = run
    rows_by_setting: dict[str, list[tuple[str, str, str]]] = {}
    for name, runs in methods.items():
        settings_by_label = {label: run.identity for label, run in runs.items()}
        if None in settings_by_label.values():
            continue
        keys = workdirs.differing([*settings_by_label.values()])
        if len(keys) != 1:
            continue
        (key,) = keys
        if all(key in settings for settings in settings_by_label.values()):
            rows_by_setting.setdefault(key, []).extend(
                (label, name, settings[key])
                for label, settings in settings_by_label.items()
            )
    setting = max(
        rows_by_setting, key=lambda key: len(rows_by_setting[key]), default=""
    )
    grid = pd.DataFrame(
        rows_by_setting.get(setting, []), columns=["label", "algorithm", "value"]
    )
    numbers = pd.to_numeric(grid["value"], errors="coerce")
    return setting, grid.iloc[numbers.argsort(kind="stable")].reset_index(drop=True)


def frame(study: benchmark_scores.BenchmarkScores, grid: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of scores and validation accuracies, one row per metric and row of `grid`.

    Columns: the columns of `grid` (label, algorithm, value), and
    metric: the metric of the study, and shape bias if known.
    score: mean over data sets, in the page's unit.
    merit: the score, or minus the score if the smallest score is best.
    valid: validation accuracy, a fraction.
    tied: True if `valid` is less than one image below the method's highest validation accuracy.
    chosen: True for the first tied run of a method.

    Runs without a score or a validation accuracy are left out. grid: the frame of `grid_of`.
    """
    selected = study.selected
    is_valid = (selected["dataset"] == results.VALID) & (selected["condition"] == "")
    valid_rows = selected[is_valid & (selected["metric"] == "accuracy")]
    valid_accuracy = valid_rows.groupby("label")["value"].mean()
    num_valid_images = valid_rows["n"].max()
    grid = grid.assign(valid=grid["label"].map(valid_accuracy))
    frames = []
    for metric, scores, unit in few_seeds.metrics(study):
        # Mean over seeds, then over data sets. Scores name a run of the grid by its label,
        # in the column algorithm.
        cells = scores.groupby(["algorithm", "dataset"], observed=True)["value"].mean()
        means = cells.groupby("algorithm", observed=True).mean()
        rows = grid.assign(metric=metric, score=unit.scale * grid["label"].map(means))
        rows = rows.dropna(subset=["score", "valid"])
        is_smallest_best = (
            metric == study.options.metric and not study.options.larger_is_better
        )
        rows["merit"] = rows["score"] * (-1 if is_smallest_best else 1)
        # Accuracies that differ by less than one validation image are tied.
        best_valid = rows.groupby("algorithm")["valid"].transform("max")
        gap = best_valid - rows["valid"]
        rows["tied"] = (gap == 0) | (gap * num_valid_images < 1)
        num_tied_so_far = rows.groupby("algorithm")["tied"].cumsum()
        is_up_to_first_tie = num_tied_so_far == 1
        frames.append(rows.assign(chosen=rows["tied"] & is_up_to_first_tie))
    return pd.concat(frames, ignore_index=True)


def pairs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a frame that compares methods over the grid, one row per metric and pair of methods.

    runs: the result of `frame`. Columns:
    metric.
    better, worse: names of the methods, ordered by the score of their chosen runs.
    difference: difference of the scores of these runs, not negative.
    combinations: share of all pairs of values of the setting at which `better` scores better.
    same_value: share of pairs with equal values at which `better` scores better.

    Shares are NaN if the chosen runs have equal scores, and same_value is NaN if no values are
    equal.
    """
    rows = []
    for metric, metric_runs in runs.groupby("metric", sort=False):
        slack = 1e-9 * metric_runs["merit"].abs().max()
        is_chosen = metric_runs["chosen"]
        merits = metric_runs[is_chosen].set_index("algorithm")["merit"]
        for pair in itertools.combinations(merits.index, 2):
            better, worse = sorted(pair, key=merits.get, reverse=True)
            first = metric_runs[metric_runs["algorithm"] == better]
            second = metric_runs[metric_runs["algorithm"] == worse]
            combined = first.merge(second, how="cross")
            is_ahead = combined["merit_x"] - combined["merit_y"] > slack
            has_same_value = combined["value_x"] == combined["value_y"]
            difference = merits[better] - merits[worse]
            has_order = difference > slack
            rows.append(
                {
                    "metric": metric,
                    "better": better,
                    "worse": worse,
                    "difference": difference,
                    "combinations": is_ahead.mean() if has_order else math.nan,
                    "same_value": is_ahead[has_same_value].mean()
                    if has_order
                    else math.nan,
                }
            )
    columns = [
        "metric",
        "better",
        "worse",
        "difference",
        "combinations",
        "same_value",
    ]
    return pd.DataFrame(rows, columns=columns)


def blocks(study: benchmark_scores.BenchmarkScores) -> document.Blocks:
    """Yield a sentence per metric, the table of methods and the table of pairs of methods.

    A table without rows is None; with a single method there is no sentence. Nothing is yielded if
    no method was run at several values of a single setting.
    """
    key, grid = grid_of(study) if study.is_runs else ("", pd.DataFrame())
    if grid.empty:
        return
    runs = frame(study, grid)
    compared = pairs(runs)
    setting = key.rpartition(".")[2]
    for metric, rows in compared.groupby("metric", sort=False) if len(compared) else ():
        in_all = rows["combinations"].dropna() == 1
        in_all_equal = rows["same_value"].dropna() == 1
        yield document.Text(
            f"By mean {metric.replace('_', ' ')}, the same method is ahead at all combinations "
            f"of {setting} in {in_all.sum()} of {len(in_all)} pairs, and at all equal values in "
            f"{in_all_equal.sum()}. This describes these runs; it is not a test."
        )
    yield _method_table(study, runs, setting)
    yield _pair_table(study, compared, setting)


def _method_table(
    study: benchmark_scores.BenchmarkScores, runs: pd.DataFrame, setting: str
) -> tables.Table | None:
    """Return the table of scores over the grid, one row per metric and method; None if empty.

    Columns: metric, algorithm, all values of the setting, the chosen values (tied values joined by
    " = "), and the score at the choice and the best, median and worst score. The files have the
    rows of `frame`. runs: the result of `frame`. setting: name of the setting, for headings and the
    caption.
    """
    show = tables.digits(study.unit.digits)
    rows = []
    for (metric, name), method_runs in runs.groupby(
        ["metric", "algorithm"], sort=False
    ):
        scores = method_runs.sort_values("merit")["score"]
        rows.append(
            {
                "metric": metric,
                "algorithm": name,
                "values": ", ".join(method_runs["value"]),
                "chosen": " = ".join(method_runs.loc[method_runs["tied"], "value"]),
                "at_choice": method_runs.loc[method_runs["chosen"], "score"].item(),
                "best": scores.iloc[-1],
                "worst": scores.iloc[0],
                "median": scores.median(),
            }
        )
    columns = tables.columns("metric algorithm values chosen", values=setting)
    for name in ("at_choice", "best", "median", "worst"):
        columns[name] = tables.Column(name.replace("_", " "), show)
    return tables.from_rows(
        "grid",
        f"Means over data sets of each method at all its values of {setting}. Chosen: the best "
        "mean validation accuracy; = joins values within one image of the best, of which the "
        "first is chosen. Methods with a single value, or with runs that differ in more than "
        "this setting, are left out.",
        rows,
        columns,
        data=runs.drop(columns=["label", "merit"]),
        in_results=True,
    )


def _pair_table(
    study: benchmark_scores.BenchmarkScores, compared: pd.DataFrame, setting: str
) -> tables.Table | None:
    """Return a table with a row per metric and pair of methods; None if there are no pairs.

    Columns: the columns of `pairs`, with shares in %; combinations is bold if it is 100 %.
    compared: the result of `pairs`. setting: name of the setting, for the caption.
    """
    show = tables.digits(study.unit.digits)
    columns = tables.columns("metric better worse")
    columns["difference"] = tables.Column("difference", show)
    for name in ("combinations", "same_value"):
        columns[name] = tables.Column(
            name.replace("_", " "), lambda share: f"{100 * share:.0f} %"
        )
    return tables.from_rows(
        "grid_pairs",
        f"Pairs at the chosen {setting}, with the share of all combinations of values, and of "
        "equal values, at which the first is ahead. Bold: at all combinations.",
        compared,
        columns,
        bold=lambda row: ["combinations"] if row["combinations"] == 1 else [],
        in_results=True,
    )
