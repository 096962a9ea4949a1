"""What is measured: ways that take turns, their ratios, and how results are written."""

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
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    warm: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each way in each round: a noisy machine is noisy to all.

    Every round begins with another way; the first `warm` rounds do not count. Each turn
    is told on standard error: whoever is stopped halfway has shown something.
    """
    seconds = {name: [] for name in ways}
    for number in range(-warm, rounds):
        names = [*ways]
        for name in names[number % len(names) :] + names[: number % len(names)]:
            began = clock()
            ways[name]()
            took = clock() - began
            print(f"round {number}, {name}: {took:.4g} s", file=sys.stderr, flush=True)
            if number >= 0:
                seconds[name].append(took)
    return seconds


def against(
    seconds: Mapping[str, Sequence[float]], base: str, images: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Images a second of each way, and over those of `base`: ratios of medians.

    `lowest` and `highest` are ratios within one round.
    """

    def rates(name: str) -> list[float]:
        return [images[name] / second for second in seconds[name]]

    first = rates(base)
    found = {}
    for name in seconds:
        each = rates(name)
        within = [a / b for a, b in zip(each, first, strict=True)]
        found[name] = {
            "images_per_second": statistics.median(each),
            "ratio": statistics.median(each) / statistics.median(first),
            "lowest": min(within),
            "highest": max(within),
        }
    return found


def table(found: Mapping[str, Mapping[str, Any]], base: str, what: str) -> str:
    """What `against` found, as Markdown."""
    rows = [
        (
            name,
            f"{r['images_per_second']:,.1f}",
            f"{r['ratio']:.2f}",
            f"{r['lowest']:.2f} to {r['highest']:.2f}",
        )
        for name, r in found.items()
    ]
    return markdown((what, "images/s", f"of {base}", "within a round"), rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def processor() -> str:
    """The model of the CPU, as Linux tells it."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return models[0] if models else platform.processor()


def facts() -> dict[str, Any]:
    """What numbers depend on beside the code that is measured."""
    environment = workdirs.environment()
    environment["device"]["processor"] = processor()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    name = pathlib.Path(sys.argv[0]).stem
    # Where files lie on this machine says nothing.
    args = [re.sub("=.*/.*", "=...", one) for one in sys.argv[1:]]
    return {
        "date": datetime.date.today().isoformat(),
        "command": " ".join([f"python -m benchmarks.{name}", *args]),
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
    """Writes results with what they depend on, as `save` does.

    `ratios` are what `benchmarks.check` compares; larger is better.
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
    """Writes <out>/<name>.json and .md, and prints the latter."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / name
    path.with_suffix(".json").write_text(json.dumps(written, indent=1) + "\n")
    path.with_suffix(".md").write_text(text)
    print(text, f"{path}.json and .md written", sep="\n", flush=True)
