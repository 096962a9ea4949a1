"""What the data-distortion study has of each group of networks, seed by seed.

Quantities are the columns of the paper's tables. An index of interference is of several
networks together (`jbias.evals.interference`), so its values by seed are not independent.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from jbias.evals import decisions, interference
from jbias.report import (
    distortion_gaps,
    distortion_places,
    distortion_read,
    measured_read,
)

CONFIDENCE = 0.95
# Whoever decides more than this for one class has no index: it cannot grow.
ONE_CLASS = 0.9
_PERCENT = (0.0, 100.0)
_GRIDS = {"FashionMNIST": "2x2", "MNIST": "2x2", "ImageNet": "8x8"}  # Of Table 1.
_MIXED = {"MixUp": "mixup", "FMix": "fmix", "CutMix": "cutmix"}


class Quantity(NamedTuple):
    """What it is called, and what makes it."""

    title: str
    probe: str
    on: str = "test"


QUANTITIES: Mapping[str, Quantity] = {
    "di_grid": Quantity("DI index, grid shuffle", "grid_shuffle"),
    "di_black": Quantity("DI index, CutOcclusion black", "cut_occlusion"),
    "di_other": Quantity("DI index, 30 % other images", "cut_occlusion"),
    "di_anywhere": Quantity("DI index, other images", "cut_occlusion"),
    "cut_occlusion": Quantity("CutOcclusion", "occlusion"),
    "iocclusion": Quantity("iOcclusion", "occlusion"),
    "affinity": Quantity("Affinity", "mixing"),
    "diversity": Quantity("Diversity", "mixing", "train"),
    "mix_diversity": Quantity("MixDiversity", "mixing", "train"),
    "gst_shape": Quantity("GST, shape", "shape_bias", "cue-conflict"),
    "gst_texture": Quantity("GST, texture", "shape_bias", "cue-conflict"),
    "accuracy": Quantity("Accuracy", "plain"),
    "cifar": Quantity("By CIFAR label", "plain", "stacked_cifar"),
    "mnist": Quantity("By MNIST label", "plain", "stacked_mnist"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """One quantity of the r seeds of a group, as shown. With one seed there is no spread.

    units: what a test may exchange between groups, an entry a seed, and `statistic` of
      some of them the number that is tested: the mean, but of iOcclusion the ratio of
      mean gaps. No units where it cannot be told.
    """

    runs: Float[np.ndarray, "r"]
    seeds: tuple[int, ...]
    low: float
    high: float
    units: Float[np.ndarray, "u ..."]
    statistic: Callable[[np.ndarray], float]
    worst: float = math.nan
    chance: float = math.nan  # The index if no class were preferred.
    dominant: str = ""  # The class that errors gather in.
    images: int = 0  # That each was shown, of one set.
    left_out: int = 0  # Seeds of which it cannot be told; they are not in `runs`.

    @property
    def mean(self) -> float:
        return _mean(self.runs)

    @property
    def tested(self) -> float:
        return float(self.statistic(self.units)) if len(self.units) else math.nan

    @property
    def std(self) -> float:
        return float(np.std(self.runs, ddof=1)) if len(self.runs) > 1 else math.nan


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """All groups, and what is known of them."""

    groups: Mapping[distortion_read.Key, distortion_read.Group]
    _known: dict = dataclasses.field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(key.model for key in self.groups))

    @property
    def data(self) -> list[str]:
        return list(dict.fromkeys(key.data for key in self.groups))

    @property
    def networks(self) -> list[measured_read.Network]:
        return [one for group in self.groups.values() for one in group.networks]

    def match(self, like: distortion_read.Key) -> distortion_read.Key:
        """Gives the group that is meant; "without " is without any class."""
        without = distortion_read.WITHOUT
        if like.training == without:
            for key in self.groups:
                if key.training.startswith(without) and key[:3] == like[:3]:
                    return key
        return like

    def value(self, quantity: str, key: distortion_read.Key) -> Values | None:
        """Gives a quantity of a group, None where it was not measured.

        The affinity of an augmentation is of networks that were trained without it.
        """
        key = self.match(key)
        if (quantity, key) not in self._known:
            whose = key._replace(method="basic") if quantity == "affinity" else key
            group = self.groups.get(whose)
            self._known[quantity, key] = group and _find(group, quantity, key.method)
        return self._known[quantity, key]


def _find(group: distortion_read.Group, quantity: str, method: str) -> Values | None:
    if quantity.startswith("di_"):
        return index(group, *interfering(group, quantity))
    if quantity == "iocclusion":
        return _gap(group, "grad_cam most")
    if quantity == "cut_occlusion":
        place = distortion_places.where(group, "occlusion", fill="other")
        return numbers(group, place, "accuracy", f"rectangle {distortion_gaps.PART}")
    one = QUANTITIES[quantity]
    place = distortion_places.where(group, one.probe, on=one.on)
    if quantity in ("affinity", "diversity", "mix_diversity"):
        return numbers(group, place, quantity, _MIXED.get(method, method))
    metrics = {"gst_shape": "accuracy_shape", "gst_texture": "accuracy_texture"}
    return numbers(group, place, metrics.get(quantity, "accuracy"))


def interfering(
    group: distortion_read.Group, quantity: str
) -> tuple[measured_read.Place | None, str]:
    """Gives the measure and the condition that a table's index is of."""
    if quantity == "di_grid":
        grid = _GRIDS.get(group.key.data, "4x4")
        return distortion_places.where(group, "grid_shuffle"), grid
    wanted = dict(area="beta", placement="unrestricted")
    if quantity == "di_other":
        wanted = dict(area=float(distortion_gaps.PART), placement="restricted")
    fill = "black" if quantity == "di_black" else "other"
    return distortion_places.where(group, "cut_occlusion", fill=fill, **wanted), fill


def numbers(
    group: distortion_read.Group,
    place: measured_read.Place | None,
    metric: str,
    condition: str = "",
) -> Values | None:
    """Gives one metric of the seeds that have it, accuracies in percent."""
    if place is None:
        return None
    told = {
        seed: one.number(place, metric, condition)
        for seed, one in zip(group.seeds, group.networks, strict=True)
    }
    known = {s: n for s, n in told.items() if n is not None and n.value is not None}
    if not known:
        return None
    values = np.array([number.value for number in known.values()])
    images = max(number.n for number in known.values())
    if metric.startswith("accuracy"):
        return plain(tuple(known), 100 * values, images, within=_PERCENT)
    return plain(tuple(known), values, images)


def plain(
    seeds: Sequence[int],
    values: Sequence[float],
    images: int = 0,
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Values:
    """Gives values by seed with Student's interval of their mean, cut where none can be."""
    runs = np.asarray(values, np.float64)
    r, half = len(runs), math.nan
    if r > 1:
        t = float(scipy.special.stdtrit(r - 1, (1 + CONFIDENCE) / 2))
        half = t * float(runs.std(ddof=1)) / math.sqrt(r)
    ends = np.clip([_mean(runs) - half, _mean(runs) + half], *within).tolist()
    return Values(runs, tuple(seeds), *ends, runs, _mean, images=int(images))


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _gap(group: distortion_read.Group, way: str) -> Values | None:
    """Gives iOcclusion with `PART` hidden, of the seeds of which it can be told."""
    found = distortion_gaps.of(group, "other")
    if found is None or way not in found.curves:
        return None
    at = np.isclose(found.curves[way].fraction, float(distortion_gaps.PART))
    if not at.any():
        return None
    runs, told = found.index(way)[at][0], found.told
    seeds = [seed for seed, is_told in zip(found.seeds, told, strict=True) if is_told]
    one = plain(seeds, runs[told], found.images[1].max(), within=(0, math.inf))
    return dataclasses.replace(
        one,
        units=found.units(way)[at][0],
        statistic=distortion_gaps.ratio,
        left_out=int((~told).sum()),
    )


def index(
    group: distortion_read.Group,
    place: measured_read.Place | None,
    condition: str,
    *,
    variant: str = "share",
) -> Values | None:
    """Gives the index of interference of the seeds whose decisions were kept.

    Seeds that decide nearly all images for one class are left out (`ONE_CLASS`).
    """
    kept = distortion_places.decided(group, place, condition)
    if not kept:
        return None
    names = distortion_places.classes(group, place)
    known = [one for one in kept if _most(one[1][0]) <= ONE_CLASS]
    lost = len(kept) - len(known)
    if not known:
        images = len(kept[0][1][0].prediction)
        return dataclasses.replace(plain((), (), images), left_out=lost)
    clean, distorted = ([pair[i] for _, pair in known] for i in range(2))
    asked = dict(classes=len(names))
    found = interference.of_runs(clean, distorted, **asked, variant=variant)
    share = variant == "share"
    c = found.dominant
    return Values(
        runs=found.runs,
        seeds=tuple(seed for seed, _ in known),
        low=found.low,
        high=found.high,
        units=found.parts if share else found.runs,
        statistic=_product if share else _mean,
        worst=found.worst,
        chance=interference.by_chance(clean, distorted, **asked) if share else math.nan,
        dominant="" if c is None else names[c],
        images=len(clean[0].prediction),
        left_out=lost,
    )


def _most(decided: decisions.Decisions) -> float:
    """The share of images that is decided for the most frequent class."""
    counts = np.unique(decided.prediction, return_counts=True)[1]
    return float(counts.max() / counts.sum())


def _product(parts: Float[np.ndarray, "r 2"]) -> float:
    """The index of seeds whose errors gather in a class, by its part and its growth."""
    return float(np.prod(parts.mean(axis=0)))
