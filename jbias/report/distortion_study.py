"""Networks of the data-distortion study: groups of seeds, and what is known of each.

A group is one model, trained with one method on one data set, in one way; its networks are
its seeds. An index of interference is of several networks together
(`jbias.evals.interference`), so its values by seed are not independent. iOcclusion divides
by the gap between training and test accuracy; where few images were shown that gap may be
chance alone, and the index as large as one likes. So it is given only of seeds whose gap is
further from 0 than `ERRORS` of its standard errors; the others are counted and named.
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
# What mixes images where no variant says so.
_MIXING = dict(mixup="mixup", fmix="fmix", cutmix="cutmix", random_masks="rm")
# What configs/distortion.py calls how it trains.
_VARIANT = re.compile(
    r"(?P<method>basic|mixup|fmix|cutmix|rm)(-with-(?P<other>[^-+]+))?"
    # Classes are joined by +, as is what else is another variant: the setting has them.
    r"(-without-.+?(?=-kept-|-released|$))?(-kept-(?P<kept>.+?))?"
    r"(?P<more>(-released)?(\+.*)?)"
)
# How a network was trained, beside its method, in words before what it is about.
PLAIN, OTHER, WITHOUT, PART = "", "mixed with ", "without ", "part "
# Settings in which runs of one group may differ.
_NO_IDENTITY = ("run", "seeds", "save_every", "eval_every", "tests", "valid")
# Sets that are never what is meant by "test".
_NO_TESTS = {"train", "valid", "other", "edge", "silhouette", "cue-conflict"}
_NO_TESTS |= {"stacked_cifar", "stacked_mnist"}
FILLS = {"black": "black", "mean": "the mean colour of the data set"}
FILLS |= {"other": "images of another data set"}
# What a probe does where the suite says nothing.
_ANYWHERE = dict(area="beta", placement="unrestricted")
_DEFAULTS = {"cut_occlusion": _ANYWHERE | dict(fills=tuple(FILLS))}
_DEFAULTS["occlusion"] = dict(fill="black", site="stage3", quantise=False)
# Options that say which conditions there are; others say what a condition is.
_WHICH = ("fills", "fractions", "grids", "masks", "orders")
HIDDEN = "0.3"  # Of the pixels, in tables; curves have other shares, too.
ERRORS = 2.0
RULE = (
    f"iOcclusion is of seeds whose gap is more than {ERRORS:g} of its standard errors from 0, "
    "sqrt(p (1 - p) / n) of training and test accuracy, squared and added. As seeds with a "
    "large gap are kept, it is rather too small where many are left out."
)
RULED = dict(rule=RULE, errors=ERRORS)
CONFIDENCE = 0.95
# Whoever decides more than this for one class has no index: it cannot grow.
ONE_CLASS = 0.9
Place = network_records.Place
Network = network_records.Network


class Key(NamedTuple):
    """What a group is of; words as the page has them."""

    model: str
    data: str
    method: str
    training: str = PLAIN

    @property
    def words(self) -> str:
        return ", ".join(filter(None, (f"{self.method} on {self.data}", self.training)))


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Networks that differ by their seeds, in the order of these."""

    key: Key
    networks: Mapping[int, Network]

    def of(self, probe: str) -> list[tuple[Network, Place]]:
        """The measures that a probe made, by network."""
        return [(one, x) for one in self.networks.values() for x in one.of(probe)]


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """All groups, and what is known of them."""

    groups: Mapping[Key, Group]

    def names(self, field: str) -> list[str]:
        """The models, data sets or methods of groups, each once."""
        return list(dict.fromkeys(getattr(key, field) for key in self.groups))

    @property
    def networks(self) -> list[Network]:
        groups = self.groups.values()
        return [one for group in groups for one in group.networks.values()]

    @property
    def measures(self) -> list[tuple[Key, Network, Place]]:
        """Every measure of every network."""
        each = ((k, x) for k, of in self.groups.items() for x in of.networks.values())
        return [(key, one, place) for key, one in each for place in one.measures]

    def match(self, like: Key) -> Key:
        """Gives the group that is meant; "without " is without any class."""
        if like.training == WITHOUT:
            for key in self.groups:
                if key.training.startswith(WITHOUT) and key[:3] == like[:3]:
                    return key
        return like

    def value(self, quantity: str, key: Key) -> "Values | None":
        """Gives one of `QUANTITIES` of a group, None where it was not measured.

        The affinity of an augmentation is of networks that were trained without it.
        """
        key = self.match(key)
        whose = key._replace(method="basic") if quantity == "affinity" else key
        group = self.groups.get(whose)
        return group and _value(group, quantity, key.method)


def read(patterns: Sequence[str]) -> tuple[Study, list[str]]:
    """Reads workdirs of measured networks; gives groups, and what to know of them.

    Raises ValueError as `network_records.read` does, and where a seed of a group was
    measured twice.
    """
    notes: list[str] = []
    found: dict[Key, dict[int, Network]] = {}
    networks = network_records.read(patterns, notes)
    for one in sorted(networks, key=lambda x: (seed(x), str(x.workdir))):
        key = key_of(one)
        first = found.setdefault(key, {}).setdefault(seed(one), one)
        if first is not one:
            raise ValueError(
                f"{one.workdir}: must be another seed than {first.workdir}, both are seed "
                f"{seed(one)} of {key.words} ({key.model}); name the workdirs of one"
            )
    groups = {key: Group(key, found[key]) for key in sorted(found, key=_order)}
    return Study(groups), [*notes, *itertools.chain(*map(_notes, groups.values()))]


def seed(one: Network) -> int:
    return int(one.records["seed"].iloc[0])


def key_of(one: Network) -> Key:
    """Says which group a network is in, by the variant that it was trained as.

    "mixup-with-fashion_mnist" and the like, as configs/distortion.py names them; what
    another config calls a variant is a method.
    """
    first = one.records.iloc[0]
    data, variant = str(first["train_data"]), str(first["variant"])
    config = one.config.get("config", {})
    if not variant and first["algorithm"] == "erm":
        names = [part.get("name") for part in config.get("inputs", ()) if part]
        variant = next((_MIXING[name] for name in names if name in _MIXING), "basic")
    method, training = variant or str(first["algorithm"]), []
    if match := _VARIANT.fullmatch(variant):
        method = METHODS[match["method"]]
        if other := match["other"]:
            same = other in ("same", data)
            training.append(OTHER + ("itself" if same else DATA.get(other, other)))
        if dropped := config.get("train", {}).get("drop", ""):
            training.append(WITHOUT + " and ".join(dropped.split("+")))
        if match["kept"]:
            training.append(PART + match["kept"])
        training += filter(None, re.split(r"[-+]", match["more"]))
    name = STACKED if data.startswith("stacked") else DATA.get(data, data)
    return Key(str(first["model"]), name, method, ", ".join(training))


def _order(key: Key) -> tuple:
    def rank(name: str, known: Iterable[str]) -> tuple[int, str]:
        return [*known, name].index(name), name

    data = rank(key.data, (*DATA.values(), STACKED))
    return key.model, data, key.training, rank(key.method, METHODS.values())


def _notes(group: Group) -> Iterator[str]:
    """Says what was measured on other images than a network's own, and pooled unlike."""
    for one in group.networks.values():
        said = {made.get("otherwise") for made in one.measures.values()} - {None}
        for words in sorted(said):
            yield f"{one.name}: measured on training images that are not its own: {words}."
    nets = group.networks.values()
    settings = [workdirs.flatten(one.config.get("config", {})) for one in nets]
    keys = (key.split(".") for key in workdirs.differing(settings))
    keys = [x for x in keys if x[0] not in _NO_IDENTITY and x[-1] != "root"]
    if keys:
        yield (
            f"{group.key.words} ({group.key.model}): its seeds differ in "
            f"{tables.join(map('.'.join, keys))}, and are pooled all the same."
        )


def where(group: Group, probe: str, *, on: str = "test", **wanted) -> Place | None:
    """Gives the measure of a probe with such options on a set, and the set.

    on: "test" is any set that is neither of training nor validation, and no cue conflict.
    ValueError where several measures fit, or the networks' differ in their options.
    """
    found: dict[Place, dict[str, Network]] = {}
    for one, place in group.of(probe):
        options = _options(one, place)
        if wanted.get("fill") in options.get("fills", ()):
            options["fill"] = wanted["fill"]
        if wanted.items() <= options.items():
            found.setdefault(place, {})[kind(one, place)] = one
    sets = [place for place in found if place[1] == on]
    if not sets and on == "test":
        sets = [place for place in found if place[1] not in _NO_TESTS]
        sets = [place for place in sets if place[1] == sets[0][1]]
    kinds = [one for place in sets for one in found[place].values()]
    if len(kinds) > 1:
        raise ValueError(
            f"{kinds[-1].workdir}: must have one measure of {probe} for this, with the same "
            f"options for all seeds of {group.key.words}, got "
            f"{', '.join(map('@'.join, sets))} ({len(kinds)} kinds); name workdirs of one"
        )
    return sets[0] if sets else None


def _options(one: Network, place: Place) -> dict[str, Any]:
    measure = one.measures[place]["measure"]
    return _DEFAULTS.get(measure["probe"], {}) | measure.get("options", {})


def kind(one: Network, place: Place) -> str:
    """Says what a condition of a measure is, as JSON: seeds must have the same."""
    options = _options(one, place).items()
    return json.dumps(dict(x for x in options if x[0] not in _WHICH), sort_keys=True)


_kept = functools.lru_cache(maxsize=16)(Network.decided)


@dataclasses.dataclass(frozen=True, eq=False)
class Gaps:
    """What hiding parts leaves of the gaps of r seeds, by way, at f fractions.

    All of training images is NaN where none were shown.
    """

    seeds: tuple[int, ...]
    images: Int[np.ndarray, "2 r"]  # Training and test images that were shown.
    curves: Mapping[str, iocclusion.Curve]
    clean: Float[np.ndarray, "2 r"]  # Accuracy with nothing hidden.

    @property
    def gap(self) -> Float[np.ndarray, "r"]:
        return self.clean[0] - self.clean[1]

    @property
    def error(self) -> Float[np.ndarray, "r"]:
        """The standard error of each gap, that of a difference of two shares."""
        variance = self.clean * (1 - self.clean) / np.maximum(self.images, 1)
        return np.sqrt(variance.sum(axis=0))

    @property
    def known(self) -> Bool[np.ndarray, "r"]:
        """Of which seeds the index is given."""
        return np.abs(self.gap) > ERRORS * self.error

    def index(self, way: str) -> Float[np.ndarray, "f k"]:
        """iOcclusion, as the paper has it, of each seed that is known."""
        return self.curves[way].iocclusion[:, self.known]

    def units(self, way: str) -> Float[np.ndarray, "f u 2"]:
        """By seed its gap with parts hidden and without, by the mean gap; `ratio` is of them.

        None where the mean gap is not known by the mean of the seeds' errors: they are
        shown the same images, so more seeds make it no surer.
        """
        curve, mean = self.curves[way], self.gap.mean()
        left = curve.train - curve.test
        if not abs(mean) > ERRORS * self.error.mean():
            return np.empty((len(left), 0, 2))
        return np.stack([left, np.broadcast_to(self.gap, left.shape)], -1) / mean

    def of_means(self, way: str) -> list[float]:
        """The ratio of mean gaps of all seeds, by fraction; NaN where it is not known."""
        return [ratio(of) if len(of) else math.nan for of in self.units(way)]


def ratio(units: Float[np.ndarray, "u 2"]) -> float:
    """iOcclusion of mean gaps."""
    left, gap = units.mean(axis=0)
    return float(iocclusion.index(gap, 0, left, 0))


def gaps(group: Group, fill: str) -> Gaps | None:
    """Gives what is known where such a filling hides; None without test images."""
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


def _accuracies(group: Group, place: Place | None) -> pd.DataFrame:
    """Gives accuracy in [0, 1] by condition and seed, of those that have the plain one."""
    found = {}
    for seed, one in group.networks.items():
        plain = one.number(place, "accuracy")
        if plain and plain.value is not None:
            those = (x for x in one.numbers[place] if x.metric == "accuracy")
            found[seed] = {x.condition: x.value for x in those}
    return pd.DataFrame(found, dtype=float)


def hiding(groups: Iterable[Group]) -> pd.DataFrame:
    """Gives what is known of groups by what hides, where, and how much of each image."""
    frames = [pd.DataFrame(columns=[*Key._fields, "fill", "hidden"])]
    for group in groups:
        for fill in dict.fromkeys(_options(*x)["fill"] for x in group.of("occlusion")):
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
    frame = pd.DataFrame(values)
    return {name: frame.mean(axis=1), f"{name}_std": frame.std(axis=1)}


def left_out(hiding: pd.DataFrame) -> str:
    """Says of which groups that `hiding` gives seeds have no iOcclusion, "" if of none."""
    rows = hiding[hiding["train"].notna() & (hiding["told"] < hiding["n"])]
    whose, sizes = [], set()
    for row in rows.drop_duplicates([*Key._fields]).itertuples():
        name = ", ".join(filter(None, (row.method, row.training)))
        whose.append(f"{row.n - row.told} of {row.n} seeds of {name}")
        sizes.add(f"{row.train_images:,} training and {row.test_images:,} test images")
    of = tables.join(sorted(sizes))
    return f"{tables.join(whose)} have no gap that {of} can tell" if whose else ""


class Quantity(NamedTuple):
    """What is known of a group as one number: of a measure with such options."""

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


class Cell(NamedTuple):
    """What a number is of, whichever network it was."""

    quantity: str
    data: str
    method: str
    training: str = PLAIN

    def key(self, model: str) -> Key:
        return Key(model, self.data, self.method, self.training)


def mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else math.nan


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """One quantity of the r seeds of a group, as shown. With one seed there is no spread.

    units: what a test may exchange between groups, an entry a seed, and `statistic` of
      some of them the number that is tested: the mean, but of iOcclusion the ratio of
      mean gaps. No units where it is not known.
    """

    runs: Float[np.ndarray, "r"]
    seeds: tuple[int, ...]
    low: float
    high: float
    units: Float[np.ndarray, "u ..."]
    statistic: Callable[[np.ndarray], float] = mean
    images: int = 0  # That each was shown, of one set.
    left_out: int = 0  # Seeds of which it is not known; they are not in `runs`.
    # Of an index of interference: the worst case, the index if no class were preferred, the
    # class that errors gather in, all classes, and errors by them, clean and distorted.
    worst: float = math.nan
    by_chance: float = math.nan
    dominant: str = ""
    classes: Sequence[str] = ()
    wrong: Int[np.ndarray, "r 2 k"] | None = None

    @property
    def n(self) -> int:
        return len(self.runs)

    @property
    def mean(self) -> float:
        return mean(self.runs)

    @property
    def std(self) -> float:
        return float(np.std(self.runs, ddof=1)) if len(self.runs) > 1 else math.nan

    @property
    def tested(self) -> float:
        return float(self.statistic(self.units)) if len(self.units) else math.nan

    @property
    def row(self) -> dict[str, Any]:
        """What a table has of it."""
        names = ("mean", "std", "n", "left_out", "images", "low", "high", "by_chance")
        row = {name: getattr(self, name) for name in (*names, "dominant")}
        row["seeds"] = " ".join(map(str, self.seeds))
        return row | {"values": " ".join(f"{value:.17g}" for value in self.runs)}


def summarise(seeds, values, images=0, *, within=(-math.inf, math.inf)) -> Values:
    """Gives values by seed with Student's interval of their mean, cut where none can be."""
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
    one = QUANTITIES[quantity]
    place = where(group, one.probe, on=one.on, **one.options)
    condition = _NAMES.get(method, method) if one.probe == "mixing" else ""
    if quantity == "cut_occlusion":
        condition = f"rectangle {HIDDEN}"
    networks = group.networks.items()
    numbers = {x: net.number(place, one.metric, condition) for x, net in networks}
    known = {k: x for k, x in numbers.items() if x and x.value is not None}
    if not known:
        return None
    values = np.array([number.value for number in known.values()])
    images = max(number.n for number in known.values())
    if one.metric.startswith("accuracy"):
        return summarise(known, 100 * values, images, within=(0, 100))
    return summarise(known, values, images)


def _iocclusion(group: Group) -> Values | None:
    """Gives iOcclusion where `HIDDEN` of the most salient pixels are hidden."""
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


def interfering(group: Group, quantity: str) -> tuple[Place | None, str]:
    """Gives the measure and the condition that a DI index is of."""
    one = QUANTITIES[quantity]
    condition = one.options.get("fill") or _GRIDS.get(group.key.data, "4x4")
    return where(group, one.probe, **one.options), condition


def _decided(group: Group, place: Place | None, condition: str) -> tuple[tuple, dict]:
    """Gives classes, also those none decided for, and by seed decisions before and after.

    ValueError where the classes were not kept, or are not those of all.
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
    """Gives the index of interference of the seeds whose decisions were kept.

    Seeds that decide nearly all images for one class are left out (`ONE_CLASS`).
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
    """The index of seeds whose errors gather in a class, by its part and its growth."""
    return float(np.prod(parts.mean(axis=0)))
