"""One checkpoint's records as a row of "Can Biases in ImageNet Models Explain
Generalization?": ten benchmarks, four averages of these, and the biases.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; their results at
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, raw-data/benchmark.csv.
"""

import csv
import dataclasses
import math
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from etils import epath

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
BENCHMARKS = tuple(name for members in CATEGORIES.values() for name in members)
_BANDS = ("cb_bw", "cb_cf", "cb_pns")
BIASES = (
    *("shape_bias", "low_freq_bias", "high_freq_bias"),
    *_BANDS,
    *(f"{name}_norm" for name in _BANDS),
)
# Beside the study's own columns: the 1000 classes of Stylized-ImageNet, and the 15
# corruptions that most papers report.
EXTRA = ("stylized1000", "imagenet_c15")
PGD_COUNTED, PGD_IMAGES = 50_048, 50_000

Key = tuple[str, str, str]  # Data set, condition and metric of a record.


class _Place(NamedTuple):
    """Where a record of a number is found."""

    dataset: str
    metric: str
    condition: str = ""


_BAND_METRICS = dict(
    zip(_BANDS, ("bandwidth", "center_frequency", "peak_noise_sensitivity"))
)
_PLACES: Mapping[str, _Place] = MappingProxyType(
    {
        "imagenet": _Place("imagenet", "accuracy"),
        "imagenet_real": _Place("imagenet_real", "real_accuracy"),
        **{
            name: _Place(name, "accuracy")
            for name in (
                *("imagenet_v2", "imagenet_a", "imagenet_r", "imagenet_sketch"),
                *("stylized16", "stylized1000"),
            )
        },
        "pgd": _Place("imagenet", "pgd_accuracy", "linf 0.5/255"),
        "shape_bias": _Place("cue_conflict", "shape_bias"),
        "low_freq_bias": _Place("imagenet", "low_freq_bias"),
        "high_freq_bias": _Place("imagenet", "high_freq_bias"),
        **{
            f"{name}{column}": _Place("imagenet", f"critical_band_{metric}{ending}")
            for name, metric in _BAND_METRICS.items()
            for column, ending in (("", "_absolute"), ("_norm", ""))
        },
    }
)
_CELLS = {
    "imagenet_c": tuple(corruptions.CORRUPTIONS),
    "imagenet_cbar": tuple(corruptions.BAR),
    "imagenet_c15": tuple(n for n, c in corruptions.CORRUPTIONS.items() if not c.extra),
}
_CELL = re.compile(r"(?:.*[/ ])?([a-z_]+)[-/ _]([1-5])")


@dataclasses.dataclass(frozen=True)
class Row:
    """What is known of one checkpoint.

    values: benchmarks in %, biases as they are; without what is missing. categories:
    averages in %, of those whose members are all there. missing: what the study has and
    this checkpoint has not, in words.
    """

    values: Mapping[str, float]
    categories: Mapping[str, float]
    missing: tuple[str, ...]


def row(
    records: Mapping[Key, float | None],
    *,
    sets: Mapping[str, str] = MappingProxyType({}),
) -> Row:
    """Collects a checkpoint's row from its records, shares in [0, 1].

    records: values by data set, condition and metric. The measure's name may stand before
      a condition, as in "pgd/linf 0.5/255"; "-" in a set's name is "_".
    sets: names of data sets that differ from the study's, such as {"imagenet": "val"}.

    Corruptions are found as conditions ("fog/3", "fog 3") of "imagenet" or of
    "imagenet_c" and "imagenet_cbar", or as sets of their own ("fog-3"); their mean is
    taken where all are there, 95 or 50. ValueError where two records give different
    values for one number.
    """
    flat = {
        (dataset.replace("-", "_"), condition, metric): float(value)
        for (dataset, condition, metric), value in records.items()
        if value is not None and math.isfinite(value)
    }
    named = {name: other.replace("-", "_") for name, other in sets.items()}
    values, missing = {}, []
    for name, place in _PLACES.items():
        value = _found(
            flat, place._replace(dataset=named.get(place.dataset, place.dataset))
        )
        if value is not None:
            values[name] = value if name in BIASES else 100 * value
    cells = corrupted(flat, {named.get(name, name) for name in ("imagenet", *_CELLS)})
    for name, members in _CELLS.items():
        wanted = [(one, str(s)) for one in members for s in corruptions.SEVERITIES]
        there = [cells[cell] for cell in wanted if cell in cells]
        if len(there) == len(wanted):
            values[name] = 100 * float(np.mean(there))
        elif there and name not in EXTRA:
            missing.append(f"{name} ({len(there)} of {len(wanted)} conditions)")
    told = {text.partition(" ")[0] for text in missing}
    missing += [
        name
        for name in (*BENCHMARKS, *BIASES)
        if name not in values and name not in told
    ]
    return Row(values, categories(values), tuple(missing))


def categories(values: Mapping[str, float]) -> dict[str, float]:
    """Unweighted means of the members, of categories that have them all."""
    return {
        name: float(np.mean([values[one] for one in members]))
        for name, members in CATEGORIES.items()
        if all(one in values for one in members)
    }


def published(line: Mapping[str, str]) -> dict[Key, float]:
    """A line of the study's benchmark.csv as records; empty cells are left out.

    The two spectral biases are the means over the five cut-offs 0.1 to 0.5, which is
    what the study's tables hold; its text says four.
    """
    cell = {name: float(text) for name, text in line.items() if _is_number(text)}
    columns = {
        **{
            name: f"top1_acc/{name.replace('_', '-')}"
            for name in BENCHMARKS
            if name not in ("imagenet_c", "imagenet_cbar", "stylized16", "pgd")
        },
        "stylized16": "top1_acc/stylized",
        "pgd": "top1_acc/PGD-40/low",
    }
    found = {
        _key(_PLACES[name]): cell[column] / 100
        for name, column in columns.items()
        if column in cell
    }
    for one in (*_CELLS["imagenet_c"], *_CELLS["imagenet_cbar"]):
        for severity in corruptions.SEVERITIES:
            if f"top1_acc/{one}_{severity}" in cell:
                share = cell[f"top1_acc/{one}_{severity}"] / 100
                found["imagenet", f"{one}/{severity}", "accuracy"] = share
    biases = {"shape_bias": "shape-bias"} | {
        name: f"metric/criticalband/{name.removeprefix('cb_')}"
        for name in BIASES
        if name.startswith("cb_")
    }
    for name, column in biases.items():
        if column in cell:
            found[_key(_PLACES[name])] = cell[column]
    for name, kind in (("low_freq_bias", "LFC"), ("high_freq_bias", "HFC")):
        cuts = [f"metric/bandpass/{kind}/{c / 10:g}" for c in range(1, 6)]
        if all(cut in cell for cut in cuts):
            found[_key(_PLACES[name])] = float(np.mean([cell[cut] for cut in cuts]))
    return found


def corrected_pgd(
    published: float, *, counted: int = PGD_COUNTED, images: int = PGD_IMAGES
) -> float:
    """The robust accuracy behind a published one, both shares in [0, 1].

    The study divided the images that were fooled by 391 batches of 128, 50,048, where
    there are 50,000: 1 - (1 - published) * counted / images, lower by at most 0.1 points.
    """
    return 1 - (1 - published) * counted / images


def write(
    path: epath.PathLike, rows: Mapping[str, Row], kinds: Mapping[str, str]
) -> None:
    """Writes rows by model as one CSV: model, category of training, what the study has.

    kinds: the category of each model, such as "augmentation". A cell that is missing is
    empty. The columns of the study's two tables, those of EXTRA, and the averages.
    """
    columns = (*BENCHMARKS, *BIASES, *EXTRA)
    with epath.Path(path).open("w") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["model", "category", *columns, *CATEGORIES])
        for model, one in rows.items():
            cells = [one.values.get(name) for name in columns]
            cells += [one.categories.get(name) for name in CATEGORIES]
            told = ["" if cell is None else repr(float(cell)) for cell in cells]
            out.writerow([model, kinds.get(model, ""), *told])


def _found(flat: Mapping[Key, float], place: _Place) -> float | None:
    """The number at a place: with its exact condition, or behind a measure's name."""
    exact = flat.get((place.dataset, place.condition, place.metric))
    if exact is not None:
        return exact
    behind = f"/{place.condition}" if place.condition else ""
    values = {
        value
        for (dataset, condition, metric), value in flat.items()
        if (dataset, metric) == (place.dataset, place.metric)
        and condition.endswith(behind)
        and "/" not in condition.removesuffix(behind)
    }
    if len(values) > 1:
        raise ValueError(
            f"generalisation: {place.metric} on {place.dataset} must have one value, got"
            f" {', '.join(f'{v:.6g}' for v in sorted(values))}; leave one measure"
        )
    return next(iter(values), None)


def corrupted(
    flat: Mapping[Key, float], sets: Collection[str]
) -> dict[tuple[str, str], float]:
    """Accuracy by corruption and severity; files of their own before those made.

    sets: those whose images were corrupted. ValueError where one cell has two values.
    """
    found, own = {}, {}
    known = {name for names in _CELLS.values() for name in names}
    for (dataset, condition, metric), value in flat.items():
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


def _key(place: _Place) -> Key:
    return place.dataset, place.condition, place.metric


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
