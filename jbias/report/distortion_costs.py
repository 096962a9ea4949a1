"""What the data-distortion study cost: the measures, and the training of its runs."""

import glob
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias.report import (
    distortion_detail,
    distortion_read,
    distortion_values,
    measured_cells,
    tables,
    workdirs,
)


class Run(NamedTuple):
    """A workdir that trained networks, and what it says of its cost."""

    workdir: pathlib.Path
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]


def read(patterns: Sequence[str]) -> tuple[Run, ...]:
    """Reads runs (paths or globs). Raises ValueError where there is none."""
    found = []
    for pattern in patterns:
        for name in sorted(glob.glob(pattern)) or [pattern]:
            path = pathlib.Path(name)
            if (path / "config.json").exists():
                parts = (_json(path / f"{x}.json") for x in ("config", "provenance"))
                found.append(Run(path, *parts))
    if not found:
        raise ValueError(
            f"--runs: must match workdirs of runs, got none: {' '.join(patterns)}; check it"
        )
    return tuple(found)


def _json(path: pathlib.Path) -> dict:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}: must be JSON, got a damaged file ({error})"
        ) from None


def of(study: distortion_values.Study, runs: Sequence[Run]) -> Iterator[tables.Table]:
    """Gives the tables of training, where runs were named, and of measures."""
    for table in (_training(study, runs), _measures(study)):
        if table is not None:
            yield table


def _training(study, runs: Sequence[Run]) -> tables.Table | None:
    measured: dict[pathlib.Path, list[int]] = {}
    for one in study.networks:
        path = one.config.get("run", {}).get("path")
        if path:
            seeds = measured.setdefault(pathlib.Path(path).resolve(), [])
            seeds.append(distortion_read.seed(one))
    rows = []
    for run in runs:
        seeds = run.config.get("seeds", ())
        there = measured.get(run.workdir.resolve(), ())
        row = {"run": str(run.workdir), "method": run.config.get("variant") or None}
        row |= {"data": run.config.get("train", {}).get("data")}
        row |= {"seeds": len(seeds), "measured": len(set(there))}
        cost = run.provenance.get("cost")
        told = workdirs.flatten(cost) if isinstance(cost, Mapping) else {}
        rows.append(row | {f"cost {name}": value for name, value in told.items()})
    costs = dict.fromkeys(name for row in rows for name in row if name[:5] == "cost ")
    return measured_cells.table(
        "training",
        "Runs that trained networks, how many of their seeds are measured here, and what "
        "their provenance says of the cost.",
        rows,
        {
            "run": ("Run", str),
            "method": ("method", str),
            "data": ("data", str),
            **{
                name: (name.removeprefix("cost ").replace("_", " "), str)
                for name in costs
            },
            "seeds": ("seeds", measured_cells.whole),
            "measured": ("measured", measured_cells.whole),
        },
    )


def _measures(study: distortion_values.Study) -> tables.Table | None:
    rows = []
    for key, group in study.groups.items():
        seconds: dict[tuple[str, str], list[float]] = {}
        for one in group.networks:
            for place, told in one.measures.items():
                if told["seconds"] is not None:
                    measure = "@".join(place), _device(told)
                    seconds.setdefault(measure, []).append(told["seconds"])
        for (measure, device), found in seconds.items():
            row = distortion_detail.of(key) | {"measure": measure, "device": device}
            row |= {"n": len(found), "each": sum(found) / len(found)}
            rows.append(row | {"hours": sum(found) / 3600})
    return measured_cells.table(
        "seconds",
        "How long each measure took, compiling included: device hours of n networks together, "
        "and seconds a network. What was decided for another measure already is left out.",
        rows,
        {
            **distortion_detail.GROUP,
            "measure": ("measure", str),
            "device": ("device", str),
            "n": ("n", measured_cells.whole),
            "each": ("seconds a network", measured_cells.digits(1)),
            "hours": ("hours", measured_cells.digits(3)),
        },
    )


def _device(told: Mapping) -> str:
    device = told.get("environment", {}).get("device", {})
    return f"{device.get('count', '?')} × {device.get('kind', '?')}"
