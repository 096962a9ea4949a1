"""Time variants in turns, compare their rates, and write results."""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jbias.runs import workdirs

RESULTS = pathlib.Path(__file__).parent / "results"


def in_turns(
    variants: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    warm: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each variant in each round.

    Variants take turns, so that noise of the machine affects all. Every round starts with
    another variant. The first `warm` rounds do not count. Each turn is printed to standard
    error, so that an interrupted benchmark still shows its measurements.
    """
    seconds = {name: [] for name in variants}
    for number in range(-warm, rounds):
        names = [*variants]
        start = number % len(names)
        for name in names[start:] + names[:start]:
            began = clock()
            variants[name]()
            turn = clock() - began
            print(f"round {number}, {name}: {turn:.4g} s", file=sys.stderr, flush=True)
            if number >= 0:
                seconds[name].append(turn)
    return seconds


def against(
    seconds: Mapping[str, Sequence[float]], base: str, images: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Return images per second of each variant, and its ratio to variant `base`.

    Rates and ratios are of medians over rounds. `lowest` and `highest` are ratios within a
    round. images: images of each variant in a turn.
    """

    def rates(name: str) -> list[float]:
        return [images[name] / second for second in seconds[name]]

    base_rates = rates(base)
    comparison = {}
    for name in seconds:
        own_rates = rates(name)
        ratios = [a / b for a, b in zip(own_rates, base_rates, strict=True)]
        comparison[name] = {
            "images_per_second": statistics.median(own_rates),
            "ratio": statistics.median(own_rates) / statistics.median(base_rates),
            "lowest": min(ratios),
            "highest": max(ratios),
        }
    return comparison


def table(comparison: Mapping[str, Mapping[str, Any]], base: str, title: str) -> str:
    """Return the result of `against` as Markdown; title: head of the first column."""
    rows = [
        (
            name,
            f"{r['images_per_second']:,.1f}",
            f"{r['ratio']:.2f}",
            f"{r['lowest']:.2f} to {r['highest']:.2f}",
        )
        for name, r in comparison.items()
    ]
    return markdown((title, "images/s", f"of {base}", "within a round"), rows)


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
