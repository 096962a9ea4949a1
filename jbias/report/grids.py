"""Does it hold at every rate? Methods over a grid of one setting, compared at each value."""

import itertools
from collections.abc import Iterator

import pandas as pd

from jbias.report import analysis as analysis_lib
from jbias.report import document, tables, workdirs
from jbias.runs import results


def grid_of(study: analysis_lib.Study) -> tuple[str, pd.DataFrame]:
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


def frame(study: analysis_lib.Study, grid: pd.DataFrame) -> pd.DataFrame:
    """Gives a row a metric and run of the grid: its score, validation, and what that chooses.

    Columns: those of the grid, metric, score (mean over data sets), valid, tied (to within
    an image with the best validation of the method) and chosen (the first of these).
    """
    selected, metric, bias = study.selected, study.options.metric, "shape_bias"
    valid = selected[selected["dataset"] == results.VALID]
    valid = valid[(valid["metric"] == "accuracy") & (valid["condition"] == "")]
    of = valid.groupby("label")
    told = grid.assign(valid=grid["label"].map(of["value"].mean()))
    best = told.groupby("algorithm")["valid"].transform("max")
    told["tied"] = (best - told["valid"]) * of["n"].max().max() < 1
    told["chosen"] = told["tied"] & (told.groupby("algorithm")["tied"].cumsum() == 1)
    shape = selected[(selected["metric"] == bias) & (selected["condition"] == "")]
    scores = {bias: shape.rename(columns={"label": "of"})} if metric != bias else {}
    scores[metric] = study.values.rename(columns={"algorithm": "of"})
    parts = []
    for name, rows in scores.items():
        cells = rows.groupby(["of", "dataset"], observed=True)["value"].mean()
        means = study.unit.scale * cells.groupby("of", observed=True).mean()
        parts.append(told.assign(metric=name, score=told["label"].map(means)))
    return pd.concat(parts, ignore_index=True).dropna(subset=["score", "valid"])


def pairs(found: pd.DataFrame) -> pd.DataFrame:
    """Gives a row a metric and pair of methods: whether their order holds over the grid.

    Columns: metric, better and worse where validation chooses, their difference there, and
    the share of all combinations, and of equal values, in which it has that sign.
    """
    rows = []
    for metric, of in found.groupby("metric", sort=False):
        methods = [(name, one) for name, one in of.groupby("algorithm", sort=False)]
        for (a, first), (b, second) in itertools.combinations(methods, 2):
            gap = first.loc[first["chosen"], "score"].sum()
            gap -= second.loc[second["chosen"], "score"].sum()
            if gap < 0:
                (a, first), (b, second), gap = (b, second), (a, first), -gap
            both = first.merge(second, how="cross")
            above, equal = (
                both["score_x"] > both["score_y"],
                both["value_x"] == both["value_y"],
            )
            rows.append(
                {
                    **dict(metric=metric, better=a, worse=b, difference=gap),
                    "combinations": above.mean(),
                    "same_value": above[equal].mean(),
                }
            )
    return pd.DataFrame(rows)


def blocks(study: analysis_lib.Study) -> Iterator[document.Block | None]:
    """Gives what holds in words, the methods over the grid, and their pairs."""
    key, grid = grid_of(study) if study.is_runs else ("", pd.DataFrame())
    if grid.empty:
        return
    found = frame(study, grid)
    compared = pairs(found)
    setting = key.rpartition(".")[2]
    for metric, of in compared.groupby("metric", sort=False) if len(compared) else ():
        every, same = of["combinations"] == 1, of["same_value"] == 1
        yield document.Text(
            f"By {metric.replace('_', ' ')}, {every.sum()} of {len(of)} pairs have the order "
            f"that validation's choice gives at every combination of {setting}, and "
            f"{same.sum()} wherever both have the same."
        )
    show = tables.digits(study.unit.digits)
    rows = []
    for (metric, name), of in found.groupby(["metric", "algorithm"], sort=False):
        scores = of["score"]
        row = dict(metric=metric, algorithm=name, values=", ".join(of["value"]))
        row["chosen"] = " = ".join(of.loc[of["tied"], "value"])
        row["at_choice"] = of.loc[of["chosen"], "score"].sum()
        row |= dict(best=scores.max(), median=scores.median(), worst=scores.min())
        rows.append(row)
    columns = tables.columns("metric algorithm values chosen", values=setting)
    for name in ("at_choice", "best", "median", "worst"):
        columns[name] = name.replace("_", " "), show
    yield tables.from_rows(
        "grid",
        f"Means over data sets of each method at every {setting} that it was run with. Chosen: "
        "the best mean validation accuracy; = joins those that lie within one image of it, the "
        "first of which is taken.",
        rows,
        columns,
        data=found.drop(columns="label"),
    )
    columns = tables.columns("metric better worse")
    columns["difference"] = "difference", show
    for name in ("combinations", "same_value"):
        columns[name] = name.replace("_", " "), lambda share: f"{100 * share:.0f} %"
    yield tables.from_rows(
        "grid_pairs",
        f"Pairs at the chosen {setting}, and in how many of all combinations, and where both "
        "have the same value, the first lies above. Strong: in all combinations.",
        compared,
        columns,
        strong=lambda row: ["combinations"] if row["combinations"] == 1 else [],
    )
