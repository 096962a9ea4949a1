"""What the data-distortion study has of each group of networks, seed by seed.

Quantities are the columns of the paper's tables. An index of interference is of several
networks together (`jbias.evals.interference`), so its values by seed are not independent.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from jbias.evals import interference
from jbias.report import (
    distortion_gaps,
    distortion_places,
    distortion_read,
    measured_read,
)

CONFIDENCE = 0.95
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

    units: what a test may exchange between groups, an entry a seed; `statistic` of some of
      them is their mean value.
    """

    runs: Float[np.ndarray, "r"]
    seeds: tuple[int, ...]
    low: float
    high: float
    units: Float[np.ndarray, "r ..."]
    statistic: Callable[[np.ndarray], float]
    worst: float = math.nan
    dominant: str = ""  # The class that errors gather in.
    images: int = 0  # That each was shown, of one set.
    left_out: int = 0  # Seeds of which it cannot be told; they are not in `runs`.

    @property
    def mean(self) -> float:
        return _mean(self.runs)

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
        return numbers(
            group, place, "accuracy", f"rectangle {distortion_gaps.PART}", scale=100
        )
    one = QUANTITIES[quantity]
    place = distortion_places.where(group, one.probe, on=one.on)
    if quantity in ("affinity", "diversity", "mix_diversity"):
        return numbers(group, place, quantity, _MIXED.get(method, method))
    metrics = {"gst_shape": "accuracy_shape", "gst_texture": "accuracy_texture"}
    return numbers(group, place, metrics.get(quantity, "accuracy"), "", scale=100)


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
    *,
    scale: float = 1.0,
) -> Values | None:
    """Gives one metric of the seeds that have it."""
    if place is None:
        return None
    told = {
        seed: one.number(place, metric, condition)
        for seed, one in zip(group.seeds, group.networks, strict=True)
    }
    known = {s: n for s, n in told.items() if n is not None and n.value is not None}
    if not known:
        return None
    values = [scale * number.value for number in known.values()]
    return plain(tuple(known), values, max(number.n for number in known.values()))


def plain(seeds: Sequence[int], values: Sequence[float], images: int = 0) -> Values:
    """Gives values by seed with Student's interval of their mean."""
    runs = np.asarray(values, np.float64)
    r, half = len(runs), math.nan
    if r > 1:
        t = float(scipy.special.stdtrit(r - 1, (1 + CONFIDENCE) / 2))
        half = t * float(runs.std(ddof=1)) / math.sqrt(r)
    ends = _mean(runs) - half, _mean(runs) + half
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
    one = plain(seeds, runs[told], images=found.images[1].max())
    return dataclasses.replace(one, left_out=int((~told).sum()))


def index(
    group: distortion_read.Group,
    place: measured_read.Place | None,
    condition: str,
    *,
    variant: str = "share",
) -> Values | None:
    """Gives the index of interference of the seeds whose decisions were kept."""
    known = distortion_places.decided(group, place, condition)
    if not known:
        return None
    names = distortion_places.classes(group, place)
    clean, distorted = ([pair[i] for _, pair in known] for i in range(2))
    found = interference.of_runs(
        clean, distorted, classes=len(names), variant=variant, interval="bootstrap"
    )
    c = found.dominant
    return Values(
        runs=found.runs,
        seeds=tuple(seed for seed, _ in known),
        low=found.low,
        high=found.high,
        units=found.increase,
        statistic=functools.partial(_index, variant=variant),
        worst=found.worst,
        dominant="" if c is None else names[c],
        images=len(clean[0].prediction),
    )


def _index(increase: np.ndarray, *, variant: str) -> float:
    return interference.index(increase, variant=variant).mean
