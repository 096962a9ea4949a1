"""Accuracy on corrupted images: by corruption and severity, and means over benchmarks.

`numbers` counts decisions on ImageNet-C or ImageNet-C-bar.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.

`corruption_means` averages the records of runs, and CATEGORIES are the benchmarks that "Can
Biases in ImageNet Models Explain Generalization?" averages.
Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; their results at
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, raw-data/benchmark.csv.
"""

import itertools
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jbias.data import corruptions
from jbias.evals import decisions, probe
from jbias.evals.decisions import ByName, Number, Numbers

# The fifteen of the paper's tables.
COMMON = tuple(name for name, x in corruptions.CORRUPTIONS.items() if not x.extra)


@decisions.per_rule
def numbers(found: ByName, *, errors: Mapping[str, float] | None = None) -> Numbers:
    """Accuracies of conditions "fog-3", of corruptions "fog", and over all, "".

    "accuracy" is that of a condition; "corruption_accuracy" the mean over severities of
    a corruption, and over corruptions and severities; "corruption_accuracy_15" that over
    the common fifteen. Means over all but frost are called "..._without_frost". Those over
    neither all nor these, as over the common fifteen alone, or over some of the severities,
    are called "..._part". What follows a space in a condition's name, such as a rule of
    decision, is kept apart.

    errors: of a reference, by corruption, each its mean error over the severities that
      are measured here. With it, "mean_corruption_error" is the mean over its corruptions
      of the error over the reference's; all of them must have been measured.

    Raises ValueError where a condition is no corruption and severity, or some
    corruption lacks a severity that another has.
    """
    each = {}
    for condition, decided in found.items():
        each[_parsed(condition)] = decisions.mean("accuracy", decided.right, condition)
    names, severities = (tuple(dict.fromkeys(part)) for part in zip(*each))
    cells = [*itertools.product(names, severities)]
    absent = ["{}-{}".format(*cell) for cell in cells if cell not in each]
    if absent:
        must = "corruptions: all corruptions must have the same severities"
        remedy = "measure them, or leave their corruption out"
        raise ValueError(f"{must}, got no {', '.join(absent)}; {remedy}")

    def mean(metric: str, of: tuple[str, ...], condition: str = "") -> Number:
        counted = [each[cell] for cell in itertools.product(of, severities)]
        value = sum(one.value for one in counted) / len(counted)
        right, n = sum(one.count for one in counted), sum(one.n for one in counted)
        return Number(metric, value, right, n, condition)

    some = set(severities) != set(corruptions.SEVERITIES)
    part = "_part" * some
    means = [mean(f"corruption_accuracy{part}", (name,), name) for name in names]
    means.append(mean("corruption_accuracy" + (part or _lacking(names)), names))
    common = tuple(name for name in COMMON if name in names)
    if set(COMMON) - {"frost"} <= set(common) and not some:
        frost = "" if "frost" in common else "_without_frost"
        means.append(mean(f"corruption_accuracy_15{frost}", common))
    if errors is not None:
        wrong = {one.condition: 1 - one.value for one in means if one.condition}
        absent = [name for name in errors if name not in wrong]
        if absent or not errors or min(errors.values()) <= 0:
            must = "errors must be above 0 and of corruptions that are measured"
            lacking = f"not measured are {', '.join(absent) or 'none'}"
            raise ValueError(f"corruptions: {must}, got {dict(errors)}; {lacking}")
        ratio = sum(wrong[name] / error for name, error in errors.items()) / len(errors)
        n = sum(one.n for one in each.values())
        means.append(Number("mean_corruption_error", ratio, None, n))
    return [*each.values(), *means]


def _parsed(condition: str) -> tuple[str, int]:
    name, _, severity = condition.rpartition("-")
    known = name in {**corruptions.CORRUPTIONS, **corruptions.BAR}
    known = known and severity in map(str, corruptions.SEVERITIES)
    must = "a condition must be a corruption and a severity, such as 'fog-3'"
    probe.check(known, "corruptions", must, condition)
    return name, int(severity)


def _lacking(names: tuple[str, ...]) -> str:
    """The ending of the name of a mean over these: "" where they are all of a family."""
    named = set(names)
    if named in (set(corruptions.CORRUPTIONS), set(corruptions.BAR)):
        return ""
    without = named | {"frost"} == set(corruptions.CORRUPTIONS)
    return "_without_frost" if without else "_part"


# Errors of AlexNet on ImageNet-C, each the mean over the five severities, as in table 1 of
# the paper; digits of https://github.com/hendrycks/robustness at 8190fe3. The last is that
# on clean images, of torchvision's weights, 43.5 % in the paper.
ALEXNET_ERRORS: Mapping[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
ALEXNET_CLEAN_ERROR = 0.43478


class ErrorSummary(NamedTuple):
    """Errors over the corruptions that have all five severities, in [0, 1]."""

    names: tuple[str, ...]  # Of the corruptions that the mean is over.
    missing: tuple[str, ...]  # Of the others of the benchmark.
    mean: float | None  # Over corruptions and severities; None of no corruption.
    mce: float | None  # None where one is missing, or AlexNet's errors do not apply.
    relative_mce: float | None  # None where the clean error is not known, either.


def summarise_errors(
    cells: Mapping[tuple[str, int], float],
    *,
    names: tuple[str, ...] = COMMON,
    is_imagenet_c: bool = True,
    clean_error: float | None = None,
) -> ErrorSummary:
    """Return mean error, mCE and relative mCE of one network on corrupted images.

    cells: accuracy by corruption and severity. names: of the corruptions of the benchmark.
    is_imagenet_c: whether these are the fifteen of ImageNet-C, among 1,000 classes, so
    that AlexNet's errors apply. clean_error: on the same images, not corrupted.

    With E the errors of the network, A those of AlexNet, c one of 15 corruptions, s a
    severity: mCE = mean_c sum_s E_sc / sum_s A_sc; relative mCE = mean_c
    sum_s (E_sc - E_clean) / sum_s (A_sc - A_clean). AlexNet itself has 1 and 1.
    Source: Hendrycks and Dietterich, ICLR 2019, section 4.
    """
    severities = corruptions.SEVERITIES
    whole = [name for name in names if all((name, s) in cells for s in severities)]
    errors = {
        name: float(np.mean([1 - cells[name, s] for s in severities])) for name in whole
    }
    missing = tuple(name for name in names if name not in errors)
    mean = float(np.mean([*errors.values()])) if errors else None
    mce = relative = None
    if is_imagenet_c and not missing and {*names} == {*ALEXNET_ERRORS}:
        mce = float(np.mean([e / ALEXNET_ERRORS[name] for name, e in errors.items()]))
        if clean_error is not None:
            ratios = [
                (e - clean_error) / (ALEXNET_ERRORS[name] - ALEXNET_CLEAN_ERROR)
                for name, e in errors.items()
            ]
            relative = float(np.mean(ratios))
    return ErrorSummary(tuple(errors), missing, mean, mce, relative)


# Averages and their members, each of which counts the same.
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "ID": ("imagenet", "imagenet_real", "imagenet_v2"),
    "Robustness": ("imagenet_a", "imagenet_c", "imagenet_cbar"),
    "Concepts": ("imagenet_r", "imagenet_sketch", "stylized16"),
    "Adversarial": ("pgd",),
}

Key = tuple[str, str, str]  # Data set, condition and metric of a record.
Cells = dict[tuple[str, int], float]  # By corruption and severity.
CORRUPTED: Mapping[str, tuple[str, ...]] = dict(
    imagenet_c=(*corruptions.CORRUPTIONS,), imagenet_cbar=(*corruptions.BAR,)
)
_CELL = re.compile(r"(?:(.*)[/ ])?([a-z_]+)[-/ _]([1-5])")
FILES = "", ""  # Whose corruptions are sets of their own, as published.


class Mean(NamedTuple):
    """Mean accuracy over all corruptions and severities of a benchmark, in [0, 1]."""

    value: float
    files: int  # Conditions that are published files.
    source: tuple[str, str]  # Measure and set of the others; FILES where none are.


def corruption_means(records: Mapping[Key, float]) -> dict[str, Mean]:
    """Means of ImageNet-C and C-bar, where all 95 or 50 conditions are there.

    records: shares in [0, 1] by data set, condition and metric; NaN is none. Files go
    first. The first measure of "imagenet", or of the benchmark itself, that has all which
    they lack fills it; of two measures there is no mean.
    """
    known = {key: value for key, value in records.items() if not math.isnan(value)}
    by_place = by_corruption(known)
    files = by_place.pop(FILES, {})
    own_sets = ("imagenet", *CORRUPTED)
    made = {place: cells for place, cells in by_place.items() if place[1] in own_sets}
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


def is_file_of_one(dataset: str) -> bool:
    """Return whether a set is of one corruption and severity by its name, such as fog-3."""
    match = _CELL.fullmatch(dataset)
    return match is not None and any(match[2] in names for names in CORRUPTED.values())


def by_corruption(records: Mapping[Key, float]) -> dict[tuple[str, str], Cells]:
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
            must = f"generalisation: {match[2]} {match[3]} must have one accuracy"
            got = f"got {cells[cell]:.6g} and {value:.6g}"
            raise ValueError(f"{must}, {got}; leave one set of its name")
    return found
