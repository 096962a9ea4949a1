"""Does it hold at every rate? Methods over a grid of one setting, compared at each value."""

import itertools
import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import analysis as analysis_lib
from jbias.report import document, few_seeds, tables, workdirs
from jbias.runs import results


def grid_of(study: analysis_lib.BenchmarkScores) -> tuple[str, pd.DataFrame]:
    """Gives the setting in which runs of a method differ alone, and the labels of such runs.

    Columns: label, algorithm, value. Empty, and the setting "", where there are none; of
    several settings that of the most runs.
    """
    methods: dict[str, dict[str, workdirs.Run]] = {}
    for run in study.runs:
        methods.setdefault(run.called, {})[run.label] = run
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, runs in methods.items():
        settings = {label: run.identity for label, run in runs.items()}
        if None in settings.values():
            continue
        keys = workdirs.differing([*settings.values()])
        if len(keys) == 1 and all(keys[0] in one for one in settings.values()):
            rows = ((label, name, one[keys[0]]) for label, one in settings.items())
            found.setdefault(keys[0], []).extend(rows)
    key = max(found, key=lambda key: len(found[key]), default="")
    names = ["label", "algorithm", "value"]
    rows = pd.DataFrame(found.get(key, []), columns=names)
    numbers = pd.to_numeric(rows["value"], errors="coerce")
    return key, rows.iloc[numbers.argsort(kind="stable")].reset_index(drop=True)


def frame(study: analysis_lib.BenchmarkScores, grid: pd.DataFrame) -> pd.DataFrame:
    """Gives a row a metric and run of the grid: its score, validation, and what that chooses.

    Columns: those of the grid, metric, score (mean over data sets), merit (the score, or
    minus it where the smallest is best), valid, tied (to within an image with the best
    validation of the method) and chosen (the first of these). Runs without either are left
    out.
    """
    selected = study.selected
    valid = selected[selected["dataset"] == results.VALID]
    valid = valid[(valid["metric"] == "accuracy") & (valid["condition"] == "")]
    told = grid.assign(valid=grid["label"].map(valid.groupby("label")["value"].mean()))
    parts = []
    for name, rows, unit in few_seeds.metrics(study):
        cells = rows.groupby(["algorithm", "dataset"], observed=True)["value"].mean()
        means = cells.groupby("algorithm", observed=True).mean()
        part = told.assign(metric=name, score=unit.scale * told["label"].map(means))
        part = part.dropna(subset=["score", "valid"])
        turned = name == study.options.metric and not study.options.larger_is_better
        part["merit"] = part["score"] * (-1 if turned else 1)
        behind = part.groupby("algorithm")["valid"].transform("max") - part["valid"]
        part["tied"] = (behind == 0) | (behind * valid["n"].max() < 1)
        first = part.groupby("algorithm")["tied"].cumsum() == 1
        parts.append(part.assign(chosen=part["tied"] & first))
    return pd.concat(parts, ignore_index=True)


def pairs(found: pd.DataFrame) -> pd.DataFrame:
    """Gives a row a metric and pair of methods: whether their order holds over the grid.

    Columns: metric, better and worse where validation chooses, their difference there, and
    the share of all combinations, and of equal values, in which it has that sign; NaN where
    there is none, or both are equal at their choices.
    """
    rows = []
    for metric, of in found.groupby("metric", sort=False):
        slack = 1e-9 * of["merit"].abs().max()
        chosen = of[of["chosen"]].set_index("algorithm")["merit"]
        for pair in itertools.combinations(chosen.index, 2):
            better, worse = sorted(pair, key=chosen.get, reverse=True)
            first, second = (of[of["algorithm"] == name] for name in (better, worse))
            both = first.merge(second, how="cross")
            above = both["merit_x"] - both["merit_y"] > slack
            same = above[both["value_x"] == both["value_y"]]
            gap = chosen[better] - chosen[worse]
            shares = (above.mean(), same.mean()) if gap > slack else (math.nan,) * 2
            rows.append((metric, better, worse, gap, *shares))
    names = "metric better worse difference combinations same_value"
    return pd.DataFrame(rows, columns=names.split())


def blocks(study: analysis_lib.BenchmarkScores) -> Iterator[document.Block | None]:
    """Gives what holds in words, the methods over the grid, and their pairs."""
    key, grid = grid_of(study) if study.is_runs else ("", pd.DataFrame())
    if grid.empty:
        return
    found = frame(study, grid)
    compared = pairs(found)
    setting = key.rpartition(".")[2]
    for metric, of in compared.groupby("metric", sort=False) if len(compared) else ():
        every, same = (of[key].dropna() == 1 for key in ("combinations", "same_value"))
        yield document.Text(
            f"By mean {metric.replace('_', ' ')}, the same method is ahead at every "
            f"combination of {setting} in {every.sum()} of {len(every)} pairs, and in "
            f"{same.sum()} wherever both have the same. That is as seen, not tested."
        )
    show = tables.digits(study.unit.digits)
    rows = []
    for (metric, name), of in found.groupby(["metric", "algorithm"], sort=False):
        scores = of.sort_values("merit")["score"]
        row = dict(metric=metric, algorithm=name, values=", ".join(of["value"]))
        row["chosen"] = " = ".join(of.loc[of["tied"], "value"])
        row["at_choice"] = of.loc[of["chosen"], "score"].item()
        row |= dict(best=scores.iloc[-1], worst=scores.iloc[0], median=scores.median())
        rows.append(row)
    columns = tables.columns("metric algorithm values chosen", values=setting)
    for name in ("at_choice", "best", "median", "worst"):
        columns[name] = name.replace("_", " "), show
    yield tables.from_rows(
        "grid",
        f"Means over data sets of each method at every {setting} that it was run with. Chosen: "
        "the best mean validation accuracy; = joins those that lie within one image of it, the "
        "first of which is taken. Methods that were run at one value, or that differ in more "
        "than this setting, are left out.",
        rows,
        columns,
        data=found.drop(columns=["label", "merit"]),
    )
    columns = tables.columns("metric better worse")
    columns["difference"] = "difference", show
    for name in ("combinations", "same_value"):
        columns[name] = name.replace("_", " "), lambda share: f"{100 * share:.0f} %"
    yield tables.from_rows(
        "grid_pairs",
        f"Pairs at the chosen {setting}, and in how many of all combinations, and where both "
        "have the same value, the first lies above. Bold: in all combinations.",
        compared,
        columns,
        bold=lambda row: ["combinations"] if row["combinations"] == 1 else [],
    )
