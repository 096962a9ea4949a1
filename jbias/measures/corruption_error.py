"""Accuracy on corrupted images: by corruption and severity, and means over benchmarks.

`numbers` computes metrics from decisions on ImageNet-C or ImageNet-C-bar.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.

`corruption_means` averages the records of runs; CATEGORIES are the groups of benchmarks that
"Can Biases in ImageNet Models Explain Generalization?" averages.
Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; their results at
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, raw-data/benchmark.csv.
"""

import itertools
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jbias import errors as caller_errors
from jbias.data import corruptions
from jbias.measures import decisions
from jbias.measures.decisions import ByName, Number, Numbers

# The fifteen corruptions of the paper's tables.
COMMON = tuple(name for name, x in corruptions.CORRUPTIONS.items() if not x.extra)


@decisions.per_rule
def numbers(
    by_condition: ByName, *, errors: Mapping[str, float] | None = None
) -> Numbers:
    """Return accuracies by condition such as "fog-3", by corruption such as "fog", and overall.

    by_condition: decisions by corruption and severity, such as "fog-3". Metrics:
    "accuracy": the accuracy under a condition.
    "corruption_accuracy": the mean over severities of a corruption, and overall over
      corruptions and severities.
    "corruption_accuracy_15": the mean over the common fifteen, if all fifteen, or all except frost,
      are measured at all severities.
    Means over all corruptions except frost are called "..._without_frost". Overall means over
    fewer corruptions, such as the common fifteen alone, and all means over fewer severities are
    called "..._part".

    errors: by corruption, a reference network's mean error, in (0, 1], over the severities
      that are measured here. With it, "mean_corruption_error" is the mean over these
      corruptions of the error divided by the reference's.

    ValueError if a condition is not a corruption with a severity, or if a corruption lacks a
    severity that another corruption has. ValueError also if `errors` is empty, names a corruption
    that was not measured, or has an error that is not above 0.
    """
    by_cell = {}
    for condition, decided in by_condition.items():
        cell = _parse_condition(condition)
        by_cell[cell] = decisions.mean("accuracy", decided.right, condition)
    names = tuple(dict.fromkeys(name for name, _ in by_cell))
    severities = tuple(dict.fromkeys(severity for _, severity in by_cell))
    absent = [
        f"{name}-{severity}"
        for name, severity in itertools.product(names, severities)
        if (name, severity) not in by_cell
    ]
    if absent:
        must = "corruptions: all corruptions must have the same severities"
        remedy = "measure them, or leave their corruption out"
        raise ValueError(f"{must}, got no {', '.join(absent)}; {remedy}")

    def mean(metric: str, members: tuple[str, ...], condition: str = "") -> Number:
        """Return the mean accuracy over all severities of the corruptions `members`."""
        cells = [by_cell[cell] for cell in itertools.product(members, severities)]
        value = sum(number.value for number in cells) / len(cells)
        num_correct = sum(number.count for number in cells)
        n = sum(number.n for number in cells)
        return Number(metric, value, num_correct, n, condition)

    lacks_severities = set(severities) != set(corruptions.SEVERITIES)
    ending = "_part" if lacks_severities else ""
    means = [mean(f"corruption_accuracy{ending}", (name,), name) for name in names]
    overall_ending = ending or _ending_of_mean(names)
    means.append(mean(f"corruption_accuracy{overall_ending}", names))
    common = tuple(name for name in COMMON if name in names)
    if set(COMMON) - {"frost"} <= set(common) and not lacks_severities:
        frost = "" if "frost" in common else "_without_frost"
        means.append(mean(f"corruption_accuracy_15{frost}", common))
    if errors is not None:
        own_errors = {
            number.condition: 1 - number.value for number in means if number.condition
        }
        absent = [name for name in errors if name not in own_errors]
        if absent or not errors or min(errors.values()) <= 0:
            must = "errors must be above 0 and of corruptions that are measured"
            lacking = f"not measured are {', '.join(absent) or 'none'}"
            raise ValueError(f"corruptions: {must}, got {dict(errors)}; {lacking}")
        ratios = [own_errors[name] / error for name, error in errors.items()]
        n = sum(number.n for number in by_cell.values())
        mean_ratio = sum(ratios) / len(errors)
        means.append(Number("mean_corruption_error", mean_ratio, None, n))
    return [*by_cell.values(), *means]


def _parse_condition(condition: str) -> tuple[str, int]:
    """Return (corruption, severity) of a condition such as "fog-3"; ValueError for other text."""
    name, _, severity = condition.rpartition("-")
    is_known = name in {**corruptions.CORRUPTIONS, **corruptions.BAR}
    is_known = is_known and severity in map(str, corruptions.SEVERITIES)
    must = "be a corruption and a severity, such as 'fog-3'"
    caller_errors.check(is_known, "corruptions", must, condition, name="a condition")
    return name, int(severity)


def _ending_of_mean(names: tuple[str, ...]) -> str:
    """Return "", "_without_frost" or "_part", the ending of a metric that is a mean over `names`.

    "" if the corruptions are all of ImageNet-C or all of ImageNet-C-bar.
    """
    name_set = set(names)
    if name_set in (set(corruptions.CORRUPTIONS), set(corruptions.BAR)):
        return ""
    lacks_only_frost = name_set | {"frost"} == set(corruptions.CORRUPTIONS)
    return "_without_frost" if lacks_only_frost else "_part"


# Errors of AlexNet on ImageNet-C, each the mean over the five severities, as in table 1 of
# the paper; digits from https://github.com/hendrycks/robustness at 8190fe3. The clean error is
# that of torchvision's weights, 43.5 % in the paper.
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
    """Mean error, mCE and relative mCE over the corruptions that have all five severities."""

    names: tuple[str, ...]  # Corruptions that the mean is over.
    missing: tuple[str, ...]  # Other corruptions of the benchmark.
    # Mean error over corruptions and severities, in [0, 1]; None without corruptions.
    mean: float | None
    # None if a corruption is missing, or AlexNet's errors do not apply.
    mce: float | None
    relative_mce: float | None  # None also if the clean error is unknown.


def summarise_errors(
    cells: Mapping[tuple[str, int], float],
    *,
    names: tuple[str, ...] = COMMON,
    is_imagenet_c: bool = True,
    clean_error: float | None = None,
) -> ErrorSummary:
    """Return the mean error, mean corruption error (mCE) and relative mCE of one network.

    cells: accuracy in [0, 1] by (corruption, severity). names: the corruptions of the
    benchmark. is_imagenet_c: whether the benchmark is ImageNet-C with 1,000 classes, so that
    AlexNet's errors apply. clean_error: the error, in [0, 1], on the same images without
    corruption.

    With E the errors of the network, A the errors of AlexNet, c one of 15 corruptions, s a
    severity: mCE = mean_c sum_s E_sc / sum_s A_sc; relative mCE = mean_c
    sum_s (E_sc - E_clean) / sum_s (A_sc - A_clean). Both are 1 for AlexNet itself, and None
    unless all 15 corruptions are measured and AlexNet's errors apply.
    Source: Hendrycks and Dietterich, ICLR 2019, section 4.
    """
    severities = corruptions.SEVERITIES
    errors = {
        name: float(np.mean([1 - cells[name, s] for s in severities]))
        for name in names
        if all((name, s) in cells for s in severities)
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


# Averages and their members, which have equal weights.
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "ID": ("imagenet", "imagenet_real", "imagenet_v2"),
    "Robustness": ("imagenet_a", "imagenet_c", "imagenet_cbar"),
    "Concepts": ("imagenet_r", "imagenet_sketch", "stylized16"),
    "Adversarial": ("pgd",),
}

Key = tuple[str, str, str]  # Data set, condition and metric of a record.
Cells = dict[tuple[str, int], float]  # By corruption and severity.
CORRUPTED: Mapping[str, tuple[str, ...]] = {
    "imagenet_c": tuple(corruptions.CORRUPTIONS),
    "imagenet_cbar": tuple(corruptions.BAR),
}
_CELL = re.compile(r"(?:(.*)[/ ])?([a-z_]+)[-/ _]([1-5])")
# (measure, set) of corruptions that are data sets of their own, as the published files are.
FILES = "", ""


class BenchmarkMean(NamedTuple):
    """Mean accuracy over all corruptions and severities of a benchmark, in [0, 1]."""

    value: float
    files: int  # Number of conditions that are published files.
    source: tuple[str, str]  # Measure and set of the other conditions; FILES for none.


def corruption_means(records: Mapping[Key, float]) -> dict[str, BenchmarkMean]:
    """Return the mean accuracy on "imagenet_c" and on "imagenet_cbar", as a dict by name.

    A benchmark is left out unless all of its 95 or 50 conditions are measured. records:
    metrics in [0, 1] by (data set, condition, metric); NaN is ignored. A data set of one
    condition (`is_single_corruption`) takes precedence, as it is a published file. All
    conditions without such a file come from one measure: the first measure on "imagenet",
    "imagenet_c" or "imagenet_cbar" that has all of these conditions. ValueError as `by_corruption`
    raises.
    """
    known = {key: value for key, value in records.items() if not math.isnan(value)}
    by_place = by_corruption(known)
    files = by_place.pop(FILES, {})
    sets = ("imagenet", *CORRUPTED)
    measured = {place: cells for place, cells in by_place.items() if place[1] in sets}
    means = {}
    for name, members in CORRUPTED.items():
        wanted = [(member, s) for member in members for s in corruptions.SEVERITIES]
        from_files = {cell: files[cell] for cell in wanted if cell in files}
        for place, cells in ({FILES: {}} | measured).items():
            merged = cells | from_files
            if name not in means and all(cell in merged for cell in wanted):
                value = float(np.mean([merged[cell] for cell in wanted]))
                means[name] = BenchmarkMean(value, len(from_files), place)
    return means


def is_single_corruption(dataset: str) -> bool:
    """Return True if a data set's name ends with a corruption and a severity, such as "fog-3"."""
    match = _CELL.fullmatch(dataset)
    return match is not None and any(match[2] in names for names in CORRUPTED.values())


def by_corruption(records: Mapping[Key, float]) -> dict[tuple[str, str], Cells]:
    """Return accuracies by (corruption, severity), for each (measure, set) and for FILES.

    records: values by (data set, condition, metric), of which only values of the metric "accuracy"
    are used. A condition is the name of its measure and "fog-3", such as "imagenet_c/fog-3"; for
    "fog-3" alone, the measure is "". Data sets of one corruption and severity
    (`is_single_corruption`), without a condition, are under FILES. Other records are ignored.
    ValueError if a corruption and severity has two values in one measure and set, or in FILES.
    """
    by_place = {}
    known = {name for names in CORRUPTED.values() for name in names}
    for (dataset, condition, metric), value in records.items():
        set_match = None if condition else _CELL.fullmatch(dataset)
        match = set_match or _CELL.fullmatch(condition)
        if metric != "accuracy" or not match or match[2] not in known:
            continue
        place = FILES if set_match else (match[1] or "", dataset)
        cell = match[2], int(match[3])
        cells = by_place.setdefault(place, {})
        if cells.setdefault(cell, value) != value:
            must = f"generalisation: {match[2]} {match[3]} must have one accuracy"
            got = f"got {cells[cell]:.6g} and {value:.6g}"
            raise ValueError(f"{must}, {got}; leave one set of its name")
    return by_place
