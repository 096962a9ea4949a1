"""What the data-distortion study cost: the measures, and the training of its runs."""

import glob
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias.report import (
    distortion_read,
    distortion_values,
    measured_records,
    sources,
    tables,
)

_COSTS = {
    "device_hours": ("device hours", tables.digits(3)),
    "energy_kwh": ("kWh", tables.digits(3)),
    "kg_co2e": ("kg CO2e", tables.digits(3)),
}
_ENERGY = (
    "Device hours of a CPU are core hours. Energy is an estimate: hours times the power in "
    "use times the building's factor (PUE)."
)


class Run(NamedTuple):
    """A workdir that trained networks, and what it says of its cost."""

    workdir: pathlib.Path
    config: Mapping[str, Any]
    costs: Mapping[str, Any]  # costs.json, {} where there is none.


def read(patterns: Sequence[str]) -> tuple[Run, ...]:
    """Reads runs (paths or globs). Raises ValueError where there is none."""
    found = []
    for pattern in patterns:
        for path in map(pathlib.Path, sorted(glob.glob(pattern)) or [pattern]):
            config, costs = path / "config.json", path / "costs.json"
            if config.exists():
                told = measured_records.read_json(costs) if costs.exists() else {}
                found.append(Run(path, measured_records.read_json(config), told))
    if not found:
        raise ValueError(
            f"--runs: must match workdirs of runs, got none: {' '.join(patterns)}; check it"
        )
    return tuple(found)


def of(study: distortion_values.Study, runs: Sequence[Run]) -> Iterator[tables.Table]:
    """Gives the tables of training, where runs were named, and of measures."""
    for table in (_training(study, runs), _measures(study)):
        if table is not None:
            yield table


def _training(study, runs: Sequence[Run]) -> tables.Table | None:
    measured: dict[pathlib.Path, set[int]] = {}
    for one in study.networks:
        path = one.config.get("run", {}).get("path")
        if path:
            seeds = measured.setdefault(pathlib.Path(path).resolve(), set())
            seeds.add(distortion_read.seed(one))
    rows = []
    for run in runs:
        starts, total = (run.costs.get(name, {}) for name in ("starts", "total"))
        rows.append(
            {
                "run": str(run.workdir),
                "method": run.config.get("variant") or None,
                "data": run.config.get("train", {}).get("data"),
                "assumed": "; ".join(dict.fromkeys(map(sources.assumed, starts)))
                or None,
                "seeds": len(run.config.get("seeds", ())),
                "measured": len(measured.get(run.workdir.resolve(), ())),
                **{name: total.get(name) for name in _COSTS},
            }
        )
    rows += _totals(rows, "run", "assumed", ("seeds", "measured"))
    return tables.from_rows(
        "training",
        "Runs that trained networks, how many of their seeds are measured here, and what "
        f"training cost, by costs.json of each. {_ENERGY}",
        rows,
        {
            "run": ("Run", str),
            "method": ("method", str),
            "data": ("data", str),
            "assumed": ("energy is of", str),
            "seeds": ("seeds", tables.whole),
            "measured": ("measured", tables.whole),
            **_COSTS,
        },
    )


def _measures(study: distortion_values.Study) -> tables.Table | None:
    found: dict[tuple[str, str, str, str], list[Mapping]] = {}
    for key, group in study.groups.items():
        for one in group.networks:
            for place, told in one.measures.items():
                if told["seconds"] is not None:
                    measure = key.model, key.data, "@".join(place), _device(told)
                    found.setdefault(measure, []).append(told)
    rows = []
    names = ("model", "data", "measure", "device")
    for measure, each in found.items():
        seconds = [told["seconds"] for told in each]
        row = dict(zip(names, measure, strict=True)) | {"n": len(each)}
        row |= {"each": sum(seconds) / len(each), "hours": sum(seconds) / 3600}
        for name in _COSTS:
            values = [(told.get("cost") or {}).get(name) for told in each]
            row[name] = None if None in values else sum(values)
        rows.append(row)
    rows += _totals(rows, "model", "device", ("hours",))
    return tables.from_rows(
        "seconds",
        "How long each measure took, compiling included: seconds a network, and hours and "
        "cost of n networks of all methods together. What was decided for another measure "
        f"already is left out. {_ENERGY}",
        rows,
        {
            "model": ("Model", str),
            "data": ("data", str),
            "measure": ("measure", str),
            "device": ("device", str),
            "n": ("n", tables.whole),
            "each": ("seconds a network", tables.digits(1)),
            "hours": ("hours", tables.digits(3)),
            **_COSTS,
        },
    )


def _totals(
    rows: Sequence[Mapping], lead: str, device: str, names: Sequence[str]
) -> list[dict]:
    """Gives a row a device with sums; hours of unlike devices are not added up.

    A cost that one row does not have is not known of the total, either.
    """
    found = []
    for one in dict.fromkeys(row[device] for row in rows):
        mine = [row for row in rows if row[device] == one]
        total = {lead: "total", device: one}
        for name in (*names, *_COSTS):
            values = [row[name] for row in mine]
            total[name] = None if None in values else sum(values)
        found.append(total)
    return found


def _device(told: Mapping) -> str:
    """Says what a measure ran on, and what its energy is of."""
    if told.get("cost"):
        return sources.assumed(told["cost"])
    device = told.get("environment", {}).get("device", {})
    return f"{device.get('count', '?')} × {device.get('kind', '?')}"
