"""Networks of the data-distortion study: groups of seeds, and their quantities.

A group is one model trained with one method on one data set; its networks are its seeds. An
index of interference is computed from several networks together (`jbias.evals.interference`),
so its values by seed are not independent. iOcclusion divides by the gap between training and
test accuracy; with few images, the gap may be chance alone and the index arbitrarily large. So
iOcclusion is given only for seeds whose gap is more than `ERRORS` standard errors from 0; other
seeds are counted and named.
"""

import dataclasses
import functools
import itertools
import json
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.special
from jaxtyping import Bool, Float, Int

from jbias.evals import interference, iocclusion
from jbias.report import network_records, tables, workdirs

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
DATA |= {"fashion_mnist": "FashionMNIST", "tiny_imagenet": "Tiny ImageNet"}
DATA |= {"imagenet": "ImageNet", "mnist": "MNIST"}
STACKED = "MNIST-CIFAR"  # A digit over a photograph.
METHODS = dict(basic="basic", mixup="MixUp", fmix="FMix", cutmix="CutMix", rm="RM")
# Input transforms that mix images, for runs without a variant.
_MIXING = dict(mixup="mixup", fmix="fmix", cutmix="cutmix", random_masks="rm")
# Names of the variants of configs/distortion.py.
_VARIANT = re.compile(
    r"(?P<method>basic|mixup|fmix|cutmix|rm)(-with-(?P<other>[^-+]+))?"
    # Dropped classes and further variants are joined by +; classes are read from the config.
    r"(-without-.+?(?=-kept-|-released|$))?(-kept-(?P<kept>.+?))?"
    r"(?P<more>(-released)?(\+.*)?)"
)
# Further properties of the training: texts or prefixes of texts of the page.
PLAIN, OTHER, WITHOUT, PART = "", "mixed with ", "without ", "part "
# Settings in which runs of a group may differ.
_FREE_SETTINGS = ("run", "seeds", "save_every", "eval_every", "tests", "valid")
# Data sets that never count as "test".
_NO_TESTS = {"train", "valid", "other", "edge", "silhouette", "cue-conflict"}
_NO_TESTS |= {"stacked_cifar", "stacked_mnist"}
FILLS = {"black": "black", "mean": "the mean colour of the data set"}
FILLS |= {"other": "images of another data set"}
# Default options of probes.
_ANYWHERE = dict(area="beta", placement="unrestricted")
_DEFAULTS = {"cut_occlusion": _ANYWHERE | dict(fills=tuple(FILLS))}
_DEFAULTS["occlusion"] = dict(fill="black", site="stage3", quantise=False)
# Options that select conditions; other options define the conditions.
_WHICH = ("fills", "fractions", "grids", "masks", "orders")
HIDDEN = "0.3"  # Share of hidden pixels in tables; curves have other shares, too.
ERRORS = 2.0
RULE = (
    f"iOcclusion covers seeds whose gap is more than {ERRORS:g} standard errors from 0; the "
    "squared standard error is the sum of p (1 - p) / n for training and test accuracy. Since "
    "seeds with a small gap are left out, iOcclusion is biased downwards if these are many."
)
RULED = dict(rule=RULE, errors=ERRORS)
CONFIDENCE = 0.95
# Networks that decide for one class on a larger share of images have no DI index.
ONE_CLASS = 0.9
Measurement = network_records.Measurement
MeasuredNetwork = network_records.MeasuredNetwork


class Key(NamedTuple):
    """Identity of a group; fields are texts of the page."""

    model: str
    data: str
    method: str
    training: str = PLAIN

    @property
    def words(self) -> str:
        """Method, data set and training as text."""
        return ", ".join(filter(None, (f"{self.method} on {self.data}", self.training)))


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Networks that differ only in their seeds, by increasing seed."""

    key: Key
    networks: Mapping[int, MeasuredNetwork]

    def measures_of(self, probe: str) -> list[tuple[MeasuredNetwork, Measurement]]:
        """Return pairs of network and measure for a probe."""
        return [
            (network, place)
            for network in self.networks.values()
            for place in network.measurements_of(probe)
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class DistortionStudy:
    """All groups of a study, with access to their quantities."""

    groups: Mapping[Key, Group]

    def names(self, field: str) -> list[str]:
        """Return the distinct models, data sets or methods of the groups."""
        return list(dict.fromkeys(getattr(key, field) for key in self.groups))

    @property
    def networks(self) -> list[MeasuredNetwork]:
        """All networks of all groups."""
        return [
            network
            for group in self.groups.values()
            for network in group.networks.values()
        ]

    @property
    def measures(self) -> list[tuple[Key, MeasuredNetwork, Measurement]]:
        """Key of the group, network and place of every measure."""
        each = ((k, x) for k, of in self.groups.items() for x in of.networks.values())
        return [(key, one, place) for key, one in each for place in one.measures]

    def match(self, like: Key) -> Key:
        """Return the key of the matching group; training "without " matches any left-out class."""
        if like.training == WITHOUT:
            for key in self.groups:
                if key.training.startswith(WITHOUT) and key[:3] == like[:3]:
                    return key
        return like

    def value(self, quantity: str, key: Key) -> "Values | None":
        """Return one of `QUANTITIES` of a group, None if not measured.

        The affinity of an augmentation is measured on networks trained without it.
        """
        key = self.match(key)
        whose = key._replace(method="basic") if quantity == "affinity" else key
        group = self.groups.get(whose)
        return group and _value(group, quantity, key.method)


def read(patterns: Sequence[str]) -> tuple[DistortionStudy, list[str]]:
    """Read workdirs of measured networks; return their groups, and notes.

    Raises ValueError as `network_records.read` does, and if a seed of a group was measured
    twice.
    """
    notes: list[str] = []
    networks_by_key: dict[Key, dict[int, MeasuredNetwork]] = {}
    networks = network_records.read(patterns, notes)
    for network in sorted(networks, key=lambda x: (seed(x), str(x.workdir))):
        key = key_of(network)
        first = networks_by_key.setdefault(key, {}).setdefault(seed(network), network)
        if first is not network:
            raise ValueError(
                f"{network.workdir}: must be another seed than {first.workdir}, both are seed "
                f"{seed(network)} of {key.words} ({key.model}); name the workdirs of one"
            )
    groups = {
        key: Group(key, networks_by_key[key])
        for key in sorted(networks_by_key, key=_order)
    }
    return DistortionStudy(groups), [
        *notes,
        *itertools.chain(*map(_notes, groups.values())),
    ]


def seed(network: MeasuredNetwork) -> int:
    """Return the seed with which a network was trained."""
    return int(network.records["seed"].iloc[0])


def key_of(network: MeasuredNetwork) -> Key:
    """Return the key of a network's group, from the variant of its training run.

    Variants of configs/distortion.py, such as "mixup-with-fashion_mnist", are parsed; the
    variant of another config is a method.
    """
    first = network.records.iloc[0]
    data, variant = str(first["train_data"]), str(first["variant"])
    config = network.config.get("config", {})
    if not variant and first["algorithm"] == "erm":
        names = [part.get("name") for part in config.get("inputs", ()) if part]
        variant = next((_MIXING[name] for name in names if name in _MIXING), "basic")
    method, training = variant or str(first["algorithm"]), []
    if variant_match := _VARIANT.fullmatch(variant):
        method = METHODS[variant_match["method"]]
        if mixed_data := variant_match["other"]:
            is_same = mixed_data in ("same", data)
            training.append(
                OTHER + ("itself" if is_same else DATA.get(mixed_data, mixed_data))
            )
        if dropped := config.get("train", {}).get("drop", ""):
            training.append(WITHOUT + " and ".join(dropped.split("+")))
        if variant_match["kept"]:
            training.append(PART + variant_match["kept"])
        training += filter(None, re.split(r"[-+]", variant_match["more"]))
    name = STACKED if data.startswith("stacked") else DATA.get(data, data)
    return Key(str(first["model"]), name, method, ", ".join(training))


def _order(key: Key) -> tuple:
    def rank(name: str, known: Iterable[str]) -> tuple[int, str]:
        return [*known, name].index(name), name

    data = rank(key.data, (*DATA.values(), STACKED))
    return key.model, data, key.training, rank(key.method, METHODS.values())


def _notes(group: Group) -> Iterator[str]:
    """Yield notes on measures of other training images, and on seeds with other settings."""
    for network in group.networks.values():
        descriptions = {made.get("otherwise") for made in network.measures.values()} - {
            None
        }
        for words in sorted(descriptions):
            yield f"{network.name}: measured on training images other than its own: {words}."
    networks = group.networks.values()
    settings = [
        workdirs.flatten(network.config.get("config", {})) for network in networks
    ]
    keys = (key.split(".") for key in workdirs.differing(settings))
    keys = [x for x in keys if x[0] not in _FREE_SETTINGS and x[-1] != "root"]
    if keys:
        yield (
            f"{group.key.words} ({group.key.model}): its seeds differ in "
            f"{tables.join(map('.'.join, keys))}, but are pooled."
        )


def where(
    group: Group, probe: str, *, on: str = "test", **wanted
) -> Measurement | None:
    """Return the measure and data set of a probe with the wanted options, or None.

    on: name of the data set; "test" matches any data set that is neither for training nor for
    validation and has no cue conflicts. Raises ValueError if several measures match, or if
    options differ between networks.
    """
    networks_by_place: dict[Measurement, dict[str, MeasuredNetwork]] = {}
    for network, place in group.measures_of(probe):
        options = _options(network, place)
        if wanted.get("fill") in options.get("fills", ()):
            options["fill"] = wanted["fill"]
        if wanted.items() <= options.items():
            networks_by_place.setdefault(place, {})[kind(network, place)] = network
    sets = [place for place in networks_by_place if place[1] == on]
    if not sets and on == "test":
        sets = [place for place in networks_by_place if place[1] not in _NO_TESTS]
        sets = [place for place in sets if place[1] == sets[0][1]]
    kinds = [network for place in sets for network in networks_by_place[place].values()]
    if len(kinds) > 1:
        raise ValueError(
            f"{kinds[-1].workdir}: must have one measure of {probe} for this, with the same "
            f"options for all seeds of {group.key.words}, got "
            f"{', '.join(map('@'.join, sets))} ({len(kinds)} kinds); name workdirs of one"
        )
    return sets[0] if sets else None


def _options(network: MeasuredNetwork, place: Measurement) -> dict[str, Any]:
    """Return the options of a measure, with the probe's defaults."""
    measure = network.measures[place]["measure"]
    return _DEFAULTS.get(measure["probe"], {}) | measure.get("options", {})


def kind(network: MeasuredNetwork, place: Measurement) -> str:
    """Return the options that define a measure's conditions, as JSON; equal for all seeds."""
    options = _options(network, place).items()
    return json.dumps(dict(x for x in options if x[0] not in _WHICH), sort_keys=True)


_kept = functools.lru_cache(maxsize=16)(MeasuredNetwork.read_decisions)


@dataclasses.dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps between training and test accuracy of r seeds, with f fractions of pixels hidden.

    Numbers of training images are NaN if no training images were shown.
    """

    seeds: tuple[int, ...]
    images: Int[np.ndarray, "2 r"]  # Number of training and of test images.
    curves: Mapping[str, iocclusion.Curve]  # By way of choosing the hidden pixels.
    clean: Float[np.ndarray, "2 r"]  # Accuracy with nothing hidden.

    @property
    def gap(self) -> Float[np.ndarray, "r"]:
        """Training minus test accuracy without hidden pixels, by seed."""
        return self.clean[0] - self.clean[1]

    @property
    def error(self) -> Float[np.ndarray, "r"]:
        """Standard error of each gap, as a difference of two independent shares."""
        variance = self.clean * (1 - self.clean) / np.maximum(self.images, 1)
        return np.sqrt(variance.sum(axis=0))

    @property
    def known(self) -> Bool[np.ndarray, "r"]:
        """Seeds whose gap is large enough for iOcclusion."""
        return np.abs(self.gap) > ERRORS * self.error

    def index(self, way: str) -> Float[np.ndarray, "f k"]:
        """Return iOcclusion as in the paper, by fraction and known seed."""
        return self.curves[way].iocclusion[:, self.known]

    def units(self, way: str) -> Float[np.ndarray, "f u 2"]:
        """Return each seed's gap with and without hidden pixels, divided by the mean gap.

        `ratio` takes these units. Without units (u = 0) if the mean gap is less than `ERRORS`
        mean standard errors from 0: all seeds see the same images, so that more seeds do not
        reduce this error.
        """
        curve, mean = self.curves[way], self.gap.mean()
        left = curve.train - curve.test
        if not abs(mean) > ERRORS * self.error.mean():
            return np.empty((len(left), 0, 2))
        return np.stack([left, np.broadcast_to(self.gap, left.shape)], -1) / mean

    def of_means(self, way: str) -> list[float]:
        """Return the ratio of mean gaps over all seeds, by fraction; NaN if unknown."""
        return [ratio(of) if len(of) else math.nan for of in self.units(way)]


def ratio(units: Float[np.ndarray, "u 2"]) -> float:
    """Return iOcclusion computed from mean gaps."""
    left, gap = units.mean(axis=0)
    return float(iocclusion.index(gap, 0, left, 0))


def gaps(group: Group, fill: str) -> Gaps | None:
    """Return the gaps with a kind of filling of hidden pixels; None without test images."""
    sets = [where(group, "occlusion", on=on, fill=fill) for on in ("train", "test")]
    train, test = (_accuracies(group, place) for place in sets)
    if test.empty:
        return None
    shared = [seed for seed in test if seed in train]
    seeds = shared or list(test)
    test = test[seeds].dropna()
    train = train[seeds].dropna() if shared else test * math.nan
    by = [x.T.to_dict("list") for x in (train, test)]  # Seeds by condition.
    those = [group.networks[seed] for seed in seeds]
    plain = [[one.number(place, "accuracy") for one in those] for place in sets]
    images = np.array([[one.n if one else 0 for one in each] for each in plain])
    clean = np.array([one[""] for one in by])
    return Gaps(tuple(seeds), images, iocclusion.curves(*by), clean)


def _accuracies(group: Group, place: Measurement | None) -> pd.DataFrame:
    """Return accuracy in [0, 1] by condition and seed, for seeds with clean accuracy."""
    accuracies = {}
    for seed, network in group.networks.items():
        plain = network.number(place, "accuracy")
        if plain and plain.value is not None:
            numbers = (x for x in network.numbers[place] if x.metric == "accuracy")
            accuracies[seed] = {x.condition: x.value for x in numbers}
    return pd.DataFrame(accuracies, dtype=float)


def hiding(groups: Iterable[Group]) -> pd.DataFrame:
    """Return accuracies, gaps and iOcclusion by group, filling, way and hidden fraction."""
    frames = [pd.DataFrame(columns=[*Key._fields, "fill", "hidden"])]
    for group in groups:
        for fill in dict.fromkeys(
            _options(*x)["fill"] for x in group.measures_of("occlusion")
        ):
            found = gaps(group, fill)
            for way, curve in found.curves.items() if found else ():
                row = {**group.key._asdict(), "fill": fill, "way": way}
                row |= {"hidden": curve.fraction, "n": len(found.seeds)}
                row["train_images"], row["test_images"] = found.images.min(axis=1)
                row |= _over_seeds("train", curve.train)
                row |= _over_seeds("test", curve.test)
                row |= {"gap": found.gap.mean(), "gap_error": found.error.mean()}
                row["told"] = found.known.sum()
                row |= _over_seeds("iocclusion", found.index(way))
                frames.append(pd.DataFrame(row | {"of_means": found.of_means(way)}))
    return pd.concat(frames[len(frames) > 1 :], ignore_index=True)


def _over_seeds(name: str, values: Float[np.ndarray, "f r"]) -> dict[str, pd.Series]:
    """Return mean and standard deviation over seeds as columns `name` and `name`_std."""
    frame = pd.DataFrame(values)
    return {name: frame.mean(axis=1), f"{name}_std": frame.std(axis=1)}


def left_out(hiding: pd.DataFrame) -> str:
    """Return a phrase on groups of `hiding` with seeds without iOcclusion, or ""."""
    rows = hiding[hiding["train"].notna() & (hiding["told"] < hiding["n"])]
    phrases, sizes = [], set()
    for row in rows.drop_duplicates([*Key._fields]).itertuples():
        name = ", ".join(filter(None, (row.method, row.training)))
        phrases.append(f"{row.n - row.told} of {row.n} seeds of {name}")
        sizes.add(f"{row.train_images:,} training and {row.test_images:,} test images")
    images_text = tables.join(sorted(sizes))
    return (
        f"{tables.join(phrases)} have a gap too small to measure with {images_text}"
        if phrases
        else ""
    )


class Quantity(NamedTuple):
    """A number that describes a group: its title, and the measure that it is taken from."""

    title: str
    probe: str
    metric: str = "accuracy"
    on: str = "test"
    options: Mapping[str, Any] = types.MappingProxyType({})


_OTHERS, _BLACK = dict(fill="other"), dict(fill="black")
_INSIDE = dict(area=float(HIDDEN), placement="restricted")
_CUT, _CUES = ("cut_occlusion", "accuracy", "test"), "cue-conflict"
QUANTITIES = {
    "di_grid": Quantity("DI index, grid shuffle", "grid_shuffle"),
    "di_black": Quantity("DI index, CutOcclusion black", *_CUT, _ANYWHERE | _BLACK),
    "di_other": Quantity("DI index, 30 % other images", *_CUT, _INSIDE | _OTHERS),
    "di_anywhere": Quantity("DI index, other images", *_CUT, _ANYWHERE | _OTHERS),
    "cut_occlusion": Quantity("CutOcclusion", "occlusion", options=_OTHERS),
    "iocclusion": Quantity("iOcclusion", "occlusion", options=_OTHERS),
    "affinity": Quantity("Affinity", "mixing", "affinity"),
    "diversity": Quantity("Diversity", "mixing", "diversity", "train"),
    "mix_diversity": Quantity("MixDiversity", "mixing", "mix_diversity", "train"),
    "gst_shape": Quantity("GST, shape", "shape_bias", "accuracy_shape", _CUES),
    "gst_texture": Quantity("GST, texture", "shape_bias", "accuracy_texture", _CUES),
    "accuracy": Quantity("Accuracy", "plain"),
    "cifar": Quantity("By CIFAR label", "plain", on="stacked_cifar"),
    "mnist": Quantity("By MNIST label", "plain", on="stacked_mnist"),
}
_GRIDS = {"FashionMNIST": "2x2", "MNIST": "2x2", "ImageNet": "8x8"}  # As published.
_NAMES = {title: name for name, title in METHODS.items()}


class NumberKey(NamedTuple):
    """Identity of a number, apart from the model."""

    quantity: str
    data: str
    method: str
    training: str = PLAIN

    def key(self, model: str) -> Key:
        """Return the key of the group of a model."""
        return Key(model, self.data, self.method, self.training)


def mean(values: np.ndarray) -> float:
    """Return the mean, NaN without values."""
    return float(np.mean(values)) if len(values) else math.nan


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """One quantity of the r seeds of a group, as shown on the page.

    units: values that a permutation test may exchange between groups, one entry per seed;
      empty if unknown. statistic: maps units to the tested number: the mean, and for
      iOcclusion the ratio of mean gaps. The interval is NaN with one seed.
    """

    runs: Float[np.ndarray, "r"]
    seeds: tuple[int, ...]
    low: float
    high: float
    units: Float[np.ndarray, "u ..."]
    statistic: Callable[[np.ndarray], float] = mean
    images: int = 0  # Number of images per seed.
    left_out: int = 0  # Number of seeds without a value; `runs` does not include these.
    # For an index of interference only: the worst case, the index without any preferred class,
    # the class with most errors, all classes, and errors by class (clean, distorted).
    worst: float = math.nan
    by_chance: float = math.nan
    dominant: str = ""
    classes: Sequence[str] = ()
    wrong: Int[np.ndarray, "r 2 k"] | None = None

    @property
    def n(self) -> int:
        """Number of seeds with a value."""
        return len(self.runs)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return mean(self.runs)

    @property
    def std(self) -> float:
        """Standard deviation over seeds (n - 1); NaN with one seed."""
        return float(np.std(self.runs, ddof=1)) if len(self.runs) > 1 else math.nan

    @property
    def tested(self) -> float:
        """The number that tests compare; NaN without units."""
        return float(self.statistic(self.units)) if len(self.units) else math.nan

    @property
    def row(self) -> dict[str, Any]:
        """Columns of a table."""
        names = ("mean", "std", "n", "left_out", "images", "low", "high", "by_chance")
        row = {name: getattr(self, name) for name in (*names, "dominant")}
        row["seeds"] = " ".join(map(str, self.seeds))
        return row | {"values": " ".join(f"{value:.17g}" for value in self.runs)}


def summarise(seeds, values, images=0, *, within=(-math.inf, math.inf)) -> Values:
    """Return values by seed with Student's interval of their mean, clipped to `within`."""
    runs = np.asarray(values, np.float64)
    r, half = len(runs), math.nan
    if r > 1:
        t = float(scipy.special.stdtrit(r - 1, (1 + CONFIDENCE) / 2))
        half = t * float(runs.std(ddof=1)) / math.sqrt(r)
    ends = np.clip([mean(runs) - half, mean(runs) + half], *within).tolist()
    return Values(runs, tuple(seeds), *ends, units=runs, images=int(images))


@functools.lru_cache(maxsize=4096)
def _value(group: Group, quantity: str, method: str) -> Values | None:
    if quantity.startswith("di_"):
        return index(group, *interfering(group, quantity))
    if quantity == "iocclusion":
        return _iocclusion(group)
    definition = QUANTITIES[quantity]
    place = where(group, definition.probe, on=definition.on, **definition.options)
    condition = _NAMES.get(method, method) if definition.probe == "mixing" else ""
    if quantity == "cut_occlusion":
        condition = f"rectangle {HIDDEN}"
    networks = group.networks.items()
    numbers = {
        x: net.number(place, definition.metric, condition) for x, net in networks
    }
    known = {k: x for k, x in numbers.items() if x and x.value is not None}
    if not known:
        return None
    values = np.array([number.value for number in known.values()])
    images = max(number.n for number in known.values())
    if definition.metric.startswith("accuracy"):
        return summarise(known, 100 * values, images, within=(0, 100))
    return summarise(known, values, images)


def _iocclusion(group: Group) -> Values | None:
    """Return iOcclusion with the share `HIDDEN` of the most salient pixels hidden."""
    found, way = gaps(group, "other"), "grad_cam most"
    if found is None or way not in found.curves or np.isnan(found.gap).all():
        return None
    at = np.isclose(found.curves[way].fraction, float(HIDDEN))
    if not at.any():
        return None
    seeds, images = np.array(found.seeds)[found.known].tolist(), found.images[1].max()
    one = summarise(seeds, found.index(way)[at][0], images, within=(0, math.inf))
    about = dict(units=found.units(way)[at][0], statistic=ratio)
    return dataclasses.replace(one, left_out=len(found.seeds) - len(seeds), **about)


def interfering(group: Group, quantity: str) -> tuple[Measurement | None, str]:
    """Return the measure and the condition from which a DI index is computed."""
    definition = QUANTITIES[quantity]
    condition = definition.options.get("fill") or _GRIDS.get(group.key.data, "4x4")
    return where(group, definition.probe, **definition.options), condition


def _decided(
    group: Group, place: Measurement | None, condition: str
) -> tuple[tuple, dict]:
    """Return all classes, and clean and distorted decisions by seed.

    Raises ValueError if the classes were not stored or differ between seeds.
    """
    those = {x: one for x, one in group.networks.items() if place in one.measures}
    kept = {seed: _kept(one, place) for seed, one in those.items()}
    both = {"", condition}
    kept = {x: (by[""], by[condition]) for x, by in kept.items() if both <= by.keys()}
    named = list(dict.fromkeys(one.classes(place) for one in those.values()))
    if kept and not (len(named) == 1 and all(named)):
        folder = next(iter(those.values())).workdir
        raise ValueError(
            f"{folder / 'measures' / '@'.join(place)}.json: must have the classes, the same "
            f"for all seeds of {group.key.words} ({group.key.model}), got {len(named)} lists "
            f"of {', '.join(str(len(one)) for one in named)}; measure them again"
        )
    return named[0] if kept else (), kept


def index(group: Group, place, condition: str, *, variant="share") -> Values | None:
    """Return the index of interference of the seeds with stored decisions, None without any.

    Seeds that decide for one class on nearly all images are left out (`ONE_CLASS`).
    """
    names, kept = _decided(group, place, condition)
    if not kept:
        return None
    images = len(next(iter(kept.values()))[0].prediction)
    most = {x: pd.Series(one.prediction).value_counts() for x, (one, _) in kept.items()}
    known = {x: kept[x] for x in kept if most[x].max() <= ONE_CLASS * images}
    about = dict(images=images, left_out=len(kept) - len(known), classes=names)
    if not known:
        return dataclasses.replace(summarise((), ()), **about)
    both, among = tuple(zip(*known.values(), strict=True)), dict(classes=len(names))
    found = interference.of_runs(*both, **among, variant=variant)
    wrong = [[interference.wrong_by_class(x, **among) for x in those] for those in both]
    about |= {"worst": found.worst, "wrong": np.swapaxes(wrong, 0, 1)}
    about["dominant"] = "" if found.dominant is None else names[found.dominant]
    units = found.runs
    if variant == "share":
        units, chance = found.parts, interference.by_chance(*both, **among)
        about |= {"statistic": product, "by_chance": chance}
    return Values(found.runs, tuple(known), found.low, found.high, units, **about)


def product(parts: Float[np.ndarray, "r 2"]) -> float:
    """Return the index: the mean share of the preferred class times its mean growth."""
    return float(np.prod(parts.mean(axis=0)))
