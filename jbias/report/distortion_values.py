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
import scipy.stats
from jaxtyping import Float

from jbias.evals import interference
from jbias.report import distortion_places, distortion_read, measured_read

CONFIDENCE = 0.95
PART = "0.3"  # Of the pixels; what Table 4 hides.
_MIXED = {"MixUp": "mixup", "FMix": "fmix", "CutMix": "cutmix"}


class Quantity(NamedTuple):
    """What it is called, in which unit, and what makes it."""

    title: str
    unit: str
    digits: int
    probe: str
    on: str = "test"
    short: str = ""  # In a sentence that says of which table it is.

    @property
    def word(self) -> str:
        return self.short or self.title


QUANTITIES: Mapping[str, Quantity] = {
    "di_grid": Quantity("DI index, grid shuffle", "%", 2, "grid_shuffle", short="DI"),
    "di_black": Quantity(
        "DI index, CutOcclusion black", "%", 2, "cut_occlusion", short="DI"
    ),
    "di_other": Quantity(
        "DI index, 30 % other images", "%", 2, "cut_occlusion", short="DI"
    ),
    "di_anywhere": Quantity(
        "DI index, other images", "%", 2, "cut_occlusion", short="DI"
    ),
    "cut_occlusion": Quantity("CutOcclusion", "%", 2, "occlusion"),
    "iocclusion": Quantity("iOcclusion", "", 2, "occlusion"),
    "affinity": Quantity("Affinity", "points", 2, "mixing"),
    "diversity": Quantity("Diversity", "nats", 2, "mixing", "train"),
    "mix_diversity": Quantity("MixDiversity", "nats", 2, "mixing", "train"),
    "gst_shape": Quantity("GST, shape", "%", 2, "shape_bias", "cue-conflict"),
    "gst_texture": Quantity("GST, texture", "%", 2, "shape_bias", "cue-conflict"),
    "accuracy": Quantity("Accuracy", "%", 2, "plain"),
    "cifar": Quantity("By CIFAR label", "%", 2, "plain", "stacked_cifar"),
    "mnist": Quantity("By MNIST label", "%", 2, "plain", "stacked_mnist"),
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

    @property
    def mean(self) -> float:
        return float(np.mean(self.runs))

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
        """Gives the group that is meant; a training that only begins is any of its kind."""
        if like.training in (distortion_read.WITHOUT, distortion_read.PART):
            for key in self.groups:
                kind = key.training.startswith(like.training)
                if kind and key._replace(training=like.training) == like:
                    return key
        return like

    def value(self, quantity: str, key: distortion_read.Key) -> Values | None:
        """Gives a quantity of a group, None where it was not measured.

        The affinity of an augmentation is of networks that were trained without it.
        """
        key = self.match(key)
        if (quantity, key) not in self._known:
            of = key
            if quantity == "affinity":
                of = key._replace(method="basic")
            group = self.groups.get(of)
            found = group and _find(group, quantity, key.method)
            self._known[quantity, key] = found
        return self._known[quantity, key]


def _find(group: distortion_read.Group, quantity: str, method: str) -> Values | None:
    if quantity.startswith("di_"):
        return index(group, *interfering(group, quantity))
    if quantity == "iocclusion":
        return _gap(group, f"grad_cam most {PART}")
    if quantity == "cut_occlusion":
        place = distortion_places.where(group, "occlusion", fill="other")
        return numbers(group, place, "accuracy", f"rectangle {PART}", scale=100)
    one = QUANTITIES[quantity]
    place = distortion_places.where(group, one.probe, on=one.on)
    if quantity in ("affinity", "diversity", "mix_diversity"):
        return numbers(group, place, quantity, _MIXED.get(method, method))
    metrics = {"gst_shape": "accuracy_shape", "gst_texture": "accuracy_texture"}
    return numbers(group, place, metrics.get(quantity, "accuracy"), "", scale=100)


def grid(data: str) -> str:
    """Gives the grid that Table 1 has of a data set."""
    coarse, fine = ("FashionMNIST", "MNIST"), ("ImageNet",)
    return "2x2" if data in coarse else "8x8" if data in fine else "4x4"


def interfering(
    group: distortion_read.Group, quantity: str
) -> tuple[measured_read.Place | None, str]:
    """Gives the measure and the condition that a table's index is of."""
    if quantity == "di_grid":
        return distortion_places.where(group, "grid_shuffle"), grid(group.key.data)
    wanted = dict(area="beta", placement="unrestricted")
    if quantity == "di_other":
        wanted = dict(area=float(PART), placement="restricted")
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
    told = [one.number(place, metric, condition) for one in group.networks]
    pairs = [
        (seed, scale * number.value)
        for seed, number in zip(group.seeds, told, strict=True)
        if number is not None and number.value is not None
    ]
    return plain(*zip(*pairs, strict=True)) if pairs else None


def plain(seeds: Sequence[int], values: Sequence[float]) -> Values:
    """Gives values by seed with Student's interval of their mean."""
    runs = np.asarray(values, np.float64)
    r, mean = len(runs), float(np.mean(runs))
    low = high = math.nan
    if r > 1:
        t = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, r - 1))
        half = t * float(runs.std(ddof=1)) / math.sqrt(r)
        low, high = mean - half, mean + half
    return Values(runs, tuple(seeds), low, high, runs, _mean)


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values))


def _gap(group: distortion_read.Group, condition: str) -> Values | None:
    """Gives iOcclusion at one condition; seeds without a gap are left out."""
    found = distortion_places.curves(group, fill="other")
    way, _, part = condition.rpartition(" ")
    if found is None or way not in found[1]:
        return None
    seeds, by_way = found
    curve = by_way[way]
    (at,) = np.nonzero(np.isclose(curve.fraction, float(part)))
    if not len(at):
        return None
    runs = curve.iocclusion[at[0]]
    known = np.isfinite(runs)
    kept = [seed for seed, is_known in zip(seeds, known, strict=True) if is_known]
    return plain(kept, runs[known]) if kept else None


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
    )


def _index(increase: np.ndarray, *, variant: str) -> float:
    return interference.index(increase, variant=variant).mean
