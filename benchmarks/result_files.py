"""Write the results of a command, with the conditions of the measurement."""

import datetime
import json
import os
import pathlib
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jbias.runs import workdirs

RESULTS = pathlib.Path(__file__).parent / "results"


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def processor() -> str:
    """Return the model of the CPU."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return models[0] if models else platform.processor()


def facts() -> dict[str, Any]:
    """Return the conditions of a measurement: date, command, versions, device and load."""
    environment = workdirs.environment()
    environment["device"]["processor"] = processor()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    path = pathlib.Path(sys.argv[0])  # Of the command's module.
    # Paths of this machine are not of interest.
    args = [re.sub("=.*/.*", "=...", arg) for arg in sys.argv[1:]]
    return {
        "date": datetime.date.today().isoformat(),
        "command": " ".join([f"python -m {path.parent.name}.{path.stem}", *args]),
        **environment,
        "load": load,
    }


def write(
    name: str,
    results: Any,
    text: str,
    *,
    ratios: Mapping[str, float],
    out: pathlib.Path = RESULTS,
    **more: Any,
) -> None:
    """Write results and their conditions to <out>/<name>.json and .md, and print the latter.

    text: the page; a line on the conditions is added. ratios: numbers that
    `benchmarks.check` compares; larger is better. more: further entries of the JSON file.
    """
    written = {**facts(), **more, "ratios": dict(ratios), "results": results}
    device, where = written["device"], written["device"]["processor"]
    if device["platform"] != "cpu":
        where = f"{device['count']} {device['kind']}, {where}"
    packages = ", ".join(f"{k} {v}" for k, v in written["packages"].items())
    text += (
        f"\n{where}, {device['cores']} cores; {written['date']};"
        f" Python {written['python']}, {packages}; `{written['command']}`.\n"
    )
    save(name, written, text, out)


def save(name: str, written: Any, text: str, out: pathlib.Path = RESULTS) -> None:
    """Write <out>/<name>.json and .md, and print the latter."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / name
    path.with_suffix(".json").write_text(json.dumps(written, indent=1) + "\n")
    path.with_suffix(".md").write_text(text)
    print(text, f"{path}.json and .md written", sep="\n", flush=True)
