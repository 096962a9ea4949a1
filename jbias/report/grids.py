"""Methods over a grid of values of one setting, such as the learning rate, and their order."""

import itertools
import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import analysis as analysis_lib
from jbias.report import document, few_seeds, tables, workdirs
from jbias.runs import results


def grid_of(study: analysis_lib.BenchmarkScores) -> tuple[str, pd.DataFrame]:
    """Return (setting, runs): the only setting in which runs of each method differ.

    The frame of runs has the columns label, algorithm and value, sorted by value. Of several
    settings, the setting of most runs is returned. Without any, the setting is "" and the
    frame is empty.
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


def frame(study: analysis_lib.BenchmarkScores, grid: pd.DataFrame) -> pd.DataFrame:
    """Return one row per metric and run of the grid: score, validation and selection.

    Columns: those of the grid, metric, score (mean over data sets), merit (the score, or
    minus the score if the smallest is best), valid (validation accuracy), tied (within one
    image of the best validation accuracy of the method) and chosen (the first tied run). Runs
    without a score or a validation accuracy are left out.
    """
    selected = study.selected
    valid = selected[selected["dataset"] == results.VALID]
    valid = valid[(valid["metric"] == "accuracy") & (valid["condition"] == "")]
    valid_means = valid.groupby("label")["value"].mean()
    grid = grid.assign(valid=grid["label"].map(valid_means))
    frames = []
    for name, rows, unit in few_seeds.metrics(study):
        cells = rows.groupby(["algorithm", "dataset"], observed=True)["value"].mean()
        means = cells.groupby("algorithm", observed=True).mean()
        run_scores = grid.assign(
            metric=name, score=unit.scale * grid["label"].map(means)
        )
        run_scores = run_scores.dropna(subset=["score", "valid"])
        is_smallest_best = (
            name == study.options.metric and not study.options.larger_is_better
        )
        run_scores["merit"] = run_scores["score"] * (-1 if is_smallest_best else 1)
        best_valid = run_scores.groupby("algorithm")["valid"].transform("max")
        gap = best_valid - run_scores["valid"]
        run_scores["tied"] = (gap == 0) | (gap * valid["n"].max() < 1)
        is_first = run_scores.groupby("algorithm")["tied"].cumsum() == 1
        frames.append(run_scores.assign(chosen=run_scores["tied"] & is_first))
    return pd.concat(frames, ignore_index=True)


def pairs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per metric and pair of methods, with shares in which their order holds.

    runs: the result of `frame`. Columns: metric; better and worse, by the runs that validation
    chooses; difference of these runs; combinations and same_value, the shares of all pairs of
    values, and of pairs with equal values, in which the difference has the same sign. Shares
    are NaN without such pairs and if the chosen runs have equal scores.
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


def blocks(study: analysis_lib.BenchmarkScores) -> Iterator[document.Block | None]:
    """Yield a sentence per metric, the table of methods and the table of pairs of methods.

    Nothing if no method was run at several values of a single setting.
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
    study: analysis_lib.BenchmarkScores, runs: pd.DataFrame, setting: str
) -> tables.Table | None:
    """Return the table of each method over the grid. runs: the result of `frame`."""
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
        columns[name] = name.replace("_", " "), show
    return tables.from_rows(
        "grid",
        f"Means over data sets of each method at all its values of {setting}. Chosen: the best "
        "mean validation accuracy; = joins values within one image of the best, of which the "
        "first is chosen. Methods with a single value, or with runs that differ in more than "
        "this setting, are left out.",
        rows,
        columns,
        data=runs.drop(columns=["label", "merit"]),
    )


def _pair_table(
    study: analysis_lib.BenchmarkScores, compared: pd.DataFrame, setting: str
) -> tables.Table | None:
    """Return the table of pairs of methods. compared: the result of `pairs`."""
    show = tables.digits(study.unit.digits)
    columns = tables.columns("metric better worse")
    columns["difference"] = "difference", show
    for name in ("combinations", "same_value"):
        columns[name] = name.replace("_", " "), lambda share: f"{100 * share:.0f} %"
    return tables.from_rows(
        "grid_pairs",
        f"Pairs at the chosen {setting}, with the share of all combinations of values, and of "
        "equal values, at which the first is ahead. Bold: at all combinations.",
        compared,
        columns,
        bold=lambda row: ["combinations"] if row["combinations"] == 1 else [],
    )
