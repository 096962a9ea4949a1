"""Benchmarks of "Can Biases in ImageNet Models Explain Generalization?", and what they are
made of.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; their results at
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, raw-data/benchmark.csv.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from jbias.data import corruptions

# Averages and their members, each of which counts the same.
CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ID": ("imagenet", "imagenet_real", "imagenet_v2"),
        "Robustness": ("imagenet_a", "imagenet_c", "imagenet_cbar"),
        "Concepts": ("imagenet_r", "imagenet_sketch", "stylized16"),
        "Adversarial": ("pgd",),
    }
)

Key = tuple[str, str, str]  # Data set, condition and metric of a record.
CORRUPTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "imagenet_c": tuple(corruptions.CORRUPTIONS),
        "imagenet_cbar": tuple(corruptions.BAR),
    }
)
_CELL = re.compile(r"(?:(.*)[/ ])?([a-z_]+)[-/ _]([1-5])")
FILES = "", ""  # Whose corruptions are sets of their own, as published.


class Mean(NamedTuple):
    """Mean accuracy over all corruptions and severities of a benchmark, in [0, 1]."""

    value: float
    files: int  # Conditions that are published files.
    source: tuple[
        str, str
    ]  # Measure and set of the others; FILES where there are none.


def corruption_means(records: Mapping[Key, float]) -> dict[str, Mean]:
    """Means of ImageNet-C and C-bar, where all 95 or 50 conditions are there.

    records: shares in [0, 1] by data set, condition and metric; NaN is none. Files go
    first. The first measure of "imagenet", or of the benchmark itself, that has all which
    they lack fills it; of two measures there is no mean.
    """
    known = {key: value for key, value in records.items() if not math.isnan(value)}
    by_place = corrupted(known)
    files = by_place.pop(FILES, {})
    made = {
        place: cells
        for place, cells in by_place.items()
        if place[1] in ("imagenet", *CORRUPTED)
    }
    found = {}
    for name, members in CORRUPTED.items():
        wanted = [(one, s) for one in members for s in corruptions.SEVERITIES]
        own = {cell: files[cell] for cell in wanted if cell in files}
        for place, cells in ({FILES: {}} | made).items():
            both = cells | own
            if name not in found and all(cell in both for cell in wanted):
                value = float(np.mean([both[cell] for cell in wanted]))
                found[name] = Mean(value, len(own), place)
    return found


def corrupted(
    records: Mapping[Key, float],
) -> dict[tuple[str, str], dict[tuple[str, int], float]]:
    """Accuracy by corruption and severity of each measure and set, and of FILES.

    A condition is "fog-3" after the name of its measure, such as "imagenet_c/fog-3".
    ValueError where one has two values.
    """
    found = {}
    known = {name for names in CORRUPTED.values() for name in names}
    for (dataset, condition, metric), value in records.items():
        alone = None if condition else _CELL.fullmatch(dataset)
        match = alone or _CELL.fullmatch(condition)
        if metric != "accuracy" or not match or match[2] not in known:
            continue
        place = FILES if alone else (match[1] or "", dataset)
        cell = match[2], int(match[3])
        cells = found.setdefault(place, {})
        if cells.setdefault(cell, value) != value:
            raise ValueError(
                f"generalisation: {match[2]} {match[3]} must have one accuracy, got"
                f" {cells[cell]:.6g} and {value:.6g}; leave one set of its name"
            )
    return found
