"""Time variants in turns, and compare their rates."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import result_files


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
    return result_files.markdown(
        (title, "images/s", f"of {base}", "within a round"), rows
    )
