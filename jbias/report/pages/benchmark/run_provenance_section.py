"""Report section on the runs: their settings, costs, software, devices and data.

A cell is an algorithm on a data set.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.report import document, tables, workdirs
from jbias.report.pages.benchmark import benchmark_blocks, benchmark_scores


def blocks(study: benchmark_scores.BenchmarkScores) -> document.Blocks:
    """Yield the tables of runs, the source of the scores, and the folded settings of each run."""
    if study.is_runs:
        yield settings_table(study)
        yield costs_table(study)
        yield provenance_table(study)
        yield data_table(study)
    yield document.Text(f"Made from {study.source}.")
    for run in study.runs:
        if run.config is not None:
            text = json.dumps(dict(run.config), indent=1, ensure_ascii=False)
            yield document.Folded(f"All settings of {run.workdir}", text)


def settings_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
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


def costs_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
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
    return benchmark_blocks.table(
        "costs",
        "Cost of each run, the sum over its starts: device hours (on a CPU, core hours), and "
        "an estimate of the energy: hours × power in use × the building's factor (PUE).",
        data,
        columns,
    )


def provenance_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
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


def data_table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
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
    return benchmark_blocks.table(name, caption, data, columns)


def _unique_names(runs: Sequence[workdirs.Run]) -> list[str]:
    """Return the names of runs, or the workdirs of all runs if two runs have the same name."""
    names = [run.name for run in runs]
    are_unique = len({*names}) == len(names)
    return names if are_unique else [run.workdir for run in runs]
