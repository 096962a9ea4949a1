"""Benchmarks of "Can Biases in ImageNet Models Explain Generalization?", and what they are
made of.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; their results at
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, raw-data/benchmark.csv.
"""

import math
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

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
PGD_COUNTED, PGD_IMAGES = 50_048, 50_000

Key = tuple[str, str, str]  # Data set, condition and metric of a record.
_CORRUPTED = {
    "imagenet_c": tuple(corruptions.CORRUPTIONS),
    "imagenet_cbar": tuple(corruptions.BAR),
}
_CELL = re.compile(r"(?:.*[/ ])?([a-z_]+)[-/ _]([1-5])")


def corruption_means(records: Mapping[Key, float]) -> dict[str, float]:
    """Mean accuracy of ImageNet-C and C-bar, where all 95 or 50 conditions are there.

    records: shares in [0, 1] by data set, condition and metric; NaN is none. Conditions
    are those of "imagenet" or of the benchmark itself, or sets of their own, such as fog-3.
    """
    known = {key: value for key, value in records.items() if not math.isnan(value)}
    cells = corrupted(known, {"imagenet", *_CORRUPTED})
    found = {}
    for name, members in _CORRUPTED.items():
        wanted = [(one, str(s)) for one in members for s in corruptions.SEVERITIES]
        if all(cell in cells for cell in wanted):
            found[name] = float(np.mean([cells[cell] for cell in wanted]))
    return found


def corrupted(
    records: Mapping[Key, float], sets: Collection[str]
) -> dict[tuple[str, str], float]:
    """Accuracy by corruption and severity; files of their own before those made.

    sets: those whose images were corrupted. ValueError where one cell has two values.
    """
    found, own = {}, {}
    known = {name for names in _CORRUPTED.values() for name in names}
    for (dataset, condition, metric), value in records.items():
        alone = _CELL.fullmatch(dataset) if not condition else None
        match = alone or _CELL.fullmatch(condition)
        if metric != "accuracy" or not match or match[1] not in known:
            continue
        into = own if alone else found
        if not alone and dataset not in sets:
            continue
        if into.setdefault(match.groups(), value) != value:
            raise ValueError(
                f"generalisation: {match[1]} {match[2]} must have one accuracy, got"
                f" {into[match.groups()]:.6g} and {value:.6g}; leave one measure"
            )
    return found | own


def corrected_pgd(
    published: float, *, counted: int = PGD_COUNTED, images: int = PGD_IMAGES
) -> float:
    """The robust accuracy behind a published one, both shares in [0, 1].

    The study divided the images that were fooled by 391 batches of 128, 50,048, where
    there are 50,000: 1 - (1 - published) * counted / images, lower by at most 0.1 points.
    """
    return 1 - (1 - published) * counted / images
