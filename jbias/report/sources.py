"""The tables of a report: what its runs were made of."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.report import study as study_lib
from jbias.report import tables, workdirs


def settings_table(study: study_lib.Study) -> tables.Table | None:
    """Shows the settings that are not equal in all runs."""
    known = [run for run in study.runs if run.config is not None]
    keys = workdirs.differing([run.config for run in known])
    if not keys:
        return None
    names = _names(known)
    rows = [(key, *(run.config.get(key, "∅") for run in known)) for key in keys]
    return tables.Table(
        name="settings",
        caption="Settings that are not equal in all runs; ∅ where a run has none.",
        head=("Setting", *names),
        rows=tuple(rows),
        data=pd.DataFrame(rows, columns=["setting", *names]),
        texts=1 + len(known),
    )


def costs_table(study: study_lib.Study) -> tables.Table | None:
    """Shows what each run cost, and what the estimates of energy assume."""
    rows, seen = [], set()
    for name, run in zip(_names(study.runs), study.runs, strict=True):
        starts, told = run.costs.get("starts", ()), run.costs.get("total", {})
        if not starts or str(starts) in seen:  # Branches of one run share its file.
            continue
        seen.add(str(starts))
        row = {"run": name, "assumed": _all(starts, assumed), "starts": len(starts)}
        row |= told.get("hours", {})
        row |= {k: told.get(k) for k in ("device_hours", "energy_kwh", "kg_co2e")}
        rows.append(row)
    if not rows:
        return None
    data = pd.DataFrame(rows)
    words = ("run", "assumed", "starts")
    return tables.Table(
        name="costs",
        caption=(
            "What each run cost, all its starts together: device hours (of a CPU, core "
            "hours) in all and of each work, and an estimate of the energy: hours times "
            "power in use times the building's factor (PUE). –: not known. Steps that a "
            "kill undid are in it, and what came after a killed start's last save is not."
        ),
        head=tuple(_COSTS.get(key, key) for key in data),
        rows=tuple(
            tuple(str(row[key]) if key in words else _digits(row[key]) for key in data)
            for row in rows
        ),
        data=data,
        texts=2,
    )


_COSTS = {
    "run": "Run",
    "device_hours": "device hours",
    "energy_kwh": "kWh",
    "kg_co2e": "kg CO2e",
}


def assumed(start: Mapping[str, Any]) -> str:
    """Says what an estimate of energy takes for granted."""
    watts = start["watts"]
    power = f"{watts:g} W each ({start['source']})" if watts else "power not known"
    factor = f"{100 * start['share']:g} % of it in use, PUE {start['pue']:g}"
    emitted = start.get("intensity")
    said = f"{start['devices']} × {start['device']}, {power}, {factor}"
    return said + (f", {emitted:g} kg CO2e a kWh" if emitted else "")


def _all(starts, words) -> str:
    return "; ".join(dict.fromkeys(map(words, starts)))


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def provenance_tables(study: study_lib.Study) -> Iterator[tables.Table]:
    """Shows versions, devices and data, one column a run where they differ."""
    flat = {}
    for name, run in zip(_names(study.runs), study.runs, strict=True):
        parts = {k: v for k, v in run.provenance.items() if k not in ("config", "data")}
        told = {"workdir": run.workdir, "label": run.label} | workdirs.flatten(parts)
        flat[name] = told
    keys = dict.fromkeys(key for one in flat.values() for key in one)
    rows = []
    for key in keys:
        values = [one.get(key, "∅") for one in flat.values()]
        rows.append(
            (key, *values) if len(set(values)) > 1 else (key, values[0], *_same(values))
        )
    yield tables.Table(
        name="provenance",
        caption="Code, packages and devices of each run; ″ repeats what stands to the left.",
        head=("What", *flat),
        rows=tuple(rows),
        data=pd.DataFrame(
            [(key, *(one.get(key, "") for one in flat.values())) for key in keys],
            columns=["key", *flat],
        ),
        texts=1 + len(flat),
    )
    data = {}
    for run in study.runs:
        for name, told in (run.provenance.get("data") or {}).items():
            told = workdirs.flatten(told if isinstance(told, dict) else {"": told})
            data.setdefault((name, *told.items()), []).append(run.name)
    columns = list(dict.fromkeys(key for told in data for key, _ in told[1:]))
    rows = [
        (told[0], *(dict(told[1:]).get(c, "∅") for c in columns), ", ".join(names))
        for told, names in data.items()
    ]
    if rows:
        head = ("Data set", *columns, "runs")
        yield tables.Table(
            name="data",
            caption="Data that the runs saw. A data set with several lines is not the same in "
            "all runs.",
            head=head,
            rows=tuple(rows),
            data=pd.DataFrame(rows, columns=list(head)),
            texts=len(head),
        )


def _names(runs: Sequence[workdirs.Run]) -> list[str]:
    names = [run.name for run in runs]
    unique = len(set(names)) == len(names)
    return names if unique else [run.workdir for run in runs]


def _same(values: list[str]) -> list[str]:
    return ["″"] * (len(values) - 1)
