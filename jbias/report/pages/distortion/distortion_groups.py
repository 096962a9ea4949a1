"""Reader of the networks of the data-distortion study, and functions that compute quantities.

Networks are in groups. A group is one model trained with one method on one data set, with a network
for each seed. An index of interference is computed from several networks together
(`jbias.measures.interference`), so its values by seed are not independent. iOcclusion divides by
the gap between training and test accuracy. With few images, the gap may be due to chance, and
iOcclusion may be arbitrarily large. So iOcclusion is given only for seeds with a gap of more than
`ERRORS` standard errors from 0. The page counts and names the other seeds.
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

from jbias.measures import decisions, interference, iocclusion
from jbias.report import network_records, tables, workdirs

# Titles of data sets by name.
DATA = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion_mnist": "FashionMNIST",
    "tiny_imagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
    "mnist": "MNIST",
}
STACKED = "MNIST-CIFAR"  # A digit over a photograph.
# Titles of methods by name.
METHODS = {
    "basic": "basic",
    "mixup": "MixUp",
    "fmix": "FMix",
    "cutmix": "CutMix",
    "rm": "RM",
}
# Methods by input transform, for runs without a variant.
_METHOD_BY_TRANSFORM = {
    "mixup": "mixup",
    "fmix": "fmix",
    "cutmix": "cutmix",
    "random_masks": "rm",
}
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
# Data sets that the name "test" never selects.
_NO_TESTS = {
    "train",
    "valid",
    "other",
    "edge",
    "silhouette",
    "cue-conflict",
    "stacked_cifar",
    "stacked_mnist",
}
# Fillings of hidden pixels, in words.
FILLS = {
    "black": "black",
    "mean": "the mean colour of the data set",
    "other": "images of another data set",
}
# Default options of probes.
_DEFAULTS = {
    "cut_occlusion": {
        "area": "beta",
        "placement": "unrestricted",
        "fills": tuple(FILLS),
    },
    "occlusion": {"fill": "black", "site": "stage3", "quantise": False},
}
# Options that select conditions; other options define the conditions.
_SELECTING_OPTIONS = ("fills", "fractions", "grids", "masks", "orders")
HIDDEN = "0.3"  # Share of hidden pixels in tables; curves have other shares, too.
ERRORS = 2.0
RULE = (
    f"iOcclusion covers seeds whose gap is more than {ERRORS:g} standard errors from 0; the "
    "squared standard error is the sum of p (1 - p) / n for training and test accuracy. Since "
    "seeds with a small gap are left out, iOcclusion is biased downwards if these are many."
)
RULE_ENTRY = {"rule": RULE, "errors": ERRORS}  # Entry of results.json.
CONFIDENCE = 0.95
# Networks that decide for one class on a larger share of images have no DI index.
ONE_CLASS = 0.9
Measurement = network_records.Measurement
MeasuredNetwork = network_records.MeasuredNetwork


class GroupKey(NamedTuple):
    """Key of a group of networks: model, data set, method and training as texts on the page.

    training: left-out classes or data, or `PLAIN`.
    """

    model: str
    data: str
    method: str
    training: str = PLAIN

    @property
    def words(self) -> str:
        """Method, data set and training as text, such as "MixUp on CIFAR-10, without cat"."""
        return ", ".join(filter(None, (f"{self.method} on {self.data}", self.training)))


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkGroup:
    """Networks that differ only in their seeds, by increasing seed."""

    key: GroupKey
    networks: Mapping[int, MeasuredNetwork]

    def measures_of(self, probe: str) -> list[tuple[MeasuredNetwork, Measurement]]:
        """Return (network, measurement) for each measurement of a probe, in network order."""
        return [
            (network, measurement)
            for network in self.networks.values()
            for measurement in network.measurements_of(probe)
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class DistortionStudy:
    """All groups of a study, with access to their quantities."""

    groups: Mapping[GroupKey, NetworkGroup]

    def names(self, field: str) -> list[str]:
        """Return the distinct values of a field of `GroupKey`, in the order of the groups.

        field: "model", "data" or "method".
        """
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
    def measures(self) -> list[tuple[GroupKey, MeasuredNetwork, Measurement]]:
        """Triples (key of the group, network, measurement), one for every measurement."""
        return [
            (key, network, measurement)
            for key, group in self.groups.items()
            for network in group.networks.values()
            for measurement in network.measures
        ]

    def match(self, wanted: GroupKey) -> GroupKey:
        """Return the key of the first group that `wanted` describes; `wanted` if no group matches.

        If `wanted` has the training "without ", any left-out class matches. All other fields must
        be equal.
        """
        if wanted.training == WITHOUT:
            for key in self.groups:
                if key.training.startswith(WITHOUT) and key[:3] == wanted[:3]:
                    return key
        return wanted

    def value(self, quantity: str, key: GroupKey) -> "QuantityValues | None":
        """Return the values by seed of a quantity of a group; None if not measured.

        quantity: key of `QUANTITIES`. key: key of the group. The affinity of an augmentation is
        read from the group with basic training, since it is measured on networks trained without
        the augmentation. Raises ValueError as `find_measurement` does.
        """
        key = self.match(key)
        measured = key._replace(method="basic") if quantity == "affinity" else key
        group = self.groups.get(measured)
        return group and _value(group, quantity, key.method)


def read(patterns: Sequence[str]) -> tuple[DistortionStudy, list[str]]:
    """Return (study, notes): the measured networks in workdirs by group, and notes on them.

    patterns: workdirs (paths or globs). Raises ValueError as `network_records.read` does, and if a
    seed of a group was measured twice.
    """
    notes: list[str] = []
    networks_by_key: dict[GroupKey, dict[int, MeasuredNetwork]] = {}
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
        key: NetworkGroup(key, networks_by_key[key])
        for key in sorted(networks_by_key, key=_order)
    }
    return DistortionStudy(groups), [
        *notes,
        *itertools.chain(*map(_notes, groups.values())),
    ]


def seed(network: MeasuredNetwork) -> int:
    """Return the seed that a network was trained with."""
    return int(network.records["seed"].iloc[0])


def key_of(network: MeasuredNetwork) -> GroupKey:
    """Return the key of a network's group, computed from the variant of its training run.

    Variants of configs/distortion.py, such as "mixup-with-fashion_mnist", are parsed; the variant
    of another config is a method. Without a variant, the method is the algorithm. For ERM, the
    method is the mixing input transform, or "basic" without such a transform.
    """
    first = network.records.iloc[0]
    data = str(first["train_data"])
    variant = str(first["variant"])
    config = network.config.get("config", {})
    if not variant and first["algorithm"] == "erm":
        transforms = [x.get("name") for x in config.get("inputs", ()) if x]
        mixing = [x for x in transforms if x in _METHOD_BY_TRANSFORM]
        variant = _METHOD_BY_TRANSFORM[mixing[0]] if mixing else "basic"
    method = variant or str(first["algorithm"])
    training = []
    variant_match = _VARIANT.fullmatch(variant)
    if variant_match:
        method = METHODS[variant_match["method"]]
        mixed_data = variant_match["other"]
        if mixed_data:
            is_same = mixed_data in ("same", data)
            title = "itself" if is_same else DATA.get(mixed_data, mixed_data)
            training.append(f"{OTHER}{title}")
        dropped_classes = config.get("train", {}).get("drop", "")
        if dropped_classes:
            training.append(WITHOUT + " and ".join(dropped_classes.split("+")))
        if variant_match["kept"]:
            training.append(PART + variant_match["kept"])
        training += filter(None, re.split(r"[-+]", variant_match["more"]))
    name = STACKED if data.startswith("stacked") else DATA.get(data, data)
    return GroupKey(str(first["model"]), name, method, ", ".join(training))


def _order(key: GroupKey) -> tuple:
    """Return a sort key of groups: by model, data set, training, then method.

    Known data sets and methods come first, in the paper's order, then other names alphabetically.
    """

    def rank(name: str, known: Iterable[str]) -> tuple[int, str]:
        return [*known, name].index(name), name

    data = rank(key.data, (*DATA.values(), STACKED))
    return key.model, data, key.training, rank(key.method, METHODS.values())


def _notes(group: NetworkGroup) -> Iterator[str]:
    """Yield notes on networks measured on images of another training set, and on unequal settings.

    Only the settings of `_FREE_SETTINGS` and the folders of data may differ between seeds without
    a note.
    """
    for network in group.networks.values():
        settings = network.measures.values()
        descriptions = {
            x["otherwise"] for x in settings if x.get("otherwise") is not None
        }
        for description in sorted(descriptions):
            yield (
                f"{network.name}: measured on training images other than its own: "
                f"{description}."
            )
    networks = group.networks.values()
    configs = [
        workdirs.flatten(network.config.get("config", {})) for network in networks
    ]
    differing = []
    for key in workdirs.differing(configs):
        path = key.split(".")
        if path[0] not in _FREE_SETTINGS and path[-1] != "root":
            differing.append(key)
    if differing:
        yield (
            f"{group.key.words} ({group.key.model}): its seeds differ in "
            f"{tables.join(differing)}, but are pooled."
        )


def find_measurement(
    group: NetworkGroup, probe: str, *, dataset: str = "test", **options: Any
) -> Measurement | None:
    """Return the measurement of a probe with these options; None if nothing matches.

    dataset: name of the data set. If "test" was not measured, "test" selects the first measured
    data set that is not in `_NO_TESTS`, such as training data and cue conflicts. options: options
    of the probe that must have these values; fill may also be one of several fills. Raises
    ValueError if several measurements match, or if options differ between networks.
    """
    candidates: dict[Measurement, dict[str, MeasuredNetwork]] = {}
    for network, measurement in group.measures_of(probe):
        measured_options = _options(network, measurement)
        if options.get("fill") in measured_options.get("fills", ()):
            measured_options["fill"] = options["fill"]
        if options.items() <= measured_options.items():
            by_kind = candidates.setdefault(measurement, {})
            by_kind[kind(network, measurement)] = network
    matches = [x for x in candidates if x.dataset == dataset]
    if not matches and dataset == "test":
        test_sets = [x for x in candidates if x.dataset not in _NO_TESTS]
        matches = [x for x in test_sets if x.dataset == test_sets[0].dataset]
    networks = [network for x in matches for network in candidates[x].values()]
    if len(networks) > 1:
        names = ", ".join("@".join(measurement) for measurement in matches)
        raise ValueError(
            f"{networks[-1].workdir}: must have one measure of {probe}, with the same options "
            f"for all seeds of {group.key.words}, got {names} ({len(networks)} kinds); name "
            "workdirs of one kind"
        )
    return matches[0] if matches else None


def _options(network: MeasuredNetwork, measurement: Measurement) -> dict[str, Any]:
    """Return the options of a measurement, including options with the probe's default value."""
    measure = network.measures[measurement]["measure"]
    return _DEFAULTS.get(measure["probe"], {}) | measure.get("options", {})


def kind(network: MeasuredNetwork, measurement: Measurement) -> str:
    """Return the options of a measurement without those in `_SELECTING_OPTIONS`, as JSON text.

    The left-out options only select which conditions are measured. If the texts of two networks of
    a group are equal, their conditions of the same name are the same.
    """
    defining = {
        name: value
        for name, value in _options(network, measurement).items()
        if name not in _SELECTING_OPTIONS
    }
    return json.dumps(defining, sort_keys=True)


_read_decisions = functools.lru_cache(maxsize=16)(MeasuredNetwork.read_decisions)


@dataclasses.dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps between training and test accuracy of r seeds, with f fractions of pixels hidden.

    If training images were not measured, their number is 0 and their accuracies are NaN.
    """

    seeds: tuple[int, ...]
    images: Int[np.ndarray, "2 r"]  # Number of training and of test images.
    curves: Mapping[str, iocclusion.Curve]  # By masking, such as "grad_cam most".
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
        """Mask of the seeds with a gap large enough for iOcclusion."""
        return np.abs(self.gap) > ERRORS * self.error

    def index(self, masking: str) -> Float[np.ndarray, "f k"]:
        """Return iOcclusion as in the paper: a row per hidden fraction, a column per seed.

        Only seeds of the mask `known` are included. masking: key of `curves`, such as
        "grad_cam most".
        """
        return self.curves[masking].iocclusion[:, self.known]

    def units(self, masking: str) -> Float[np.ndarray, "f u 2"]:
        """Return (gap with, gap without hidden pixels) of each seed, divided by the mean gap.

        Shape: fractions, seeds, 2. `ratio` takes these units. The array has no seeds (u = 0) if the
        mean gap is less than `ERRORS` mean standard errors from 0. All seeds are tested on the same
        images, so more seeds do not reduce the standard error. masking: key of `curves`, such as
        "grad_cam most".
        """
        curve = self.curves[masking]
        mean = self.gap.mean()
        gap_when_hidden = curve.train - curve.test
        if not abs(mean) > ERRORS * self.error.mean():
            return np.empty((len(gap_when_hidden), 0, 2))
        gap = np.broadcast_to(self.gap, gap_when_hidden.shape)
        return np.stack([gap_when_hidden, gap], -1) / mean

    def of_means(self, masking: str) -> list[float]:
        """Return the ratio of mean gaps over all seeds, by hidden fraction; NaN if unknown.

        masking: key of `curves`, such as "grad_cam most".
        """
        return [
            ratio(units) if len(units) else math.nan for units in self.units(masking)
        ]


def ratio(units: Float[np.ndarray, "u 2"]) -> float:
    """Return iOcclusion computed from mean gaps: a ratio of means over seeds.

    units: (gap with, gap without hidden pixels) of each seed.
    """
    gap_when_hidden, gap = units.mean(axis=0)
    return float(iocclusion.index(gap, 0, gap_when_hidden, 0))


def gaps(group: NetworkGroup, fill: str) -> Gaps | None:
    """Return the gaps between training and test accuracy; None without accuracies on test images.

    Only seeds with accuracies on training and on test images are included. If there is no such
    seed, all seeds with accuracies on test images are included. Conditions that a seed lacks are
    left out. fill: name of the filling of hidden pixels, an option of the probe. Raises ValueError
    as `find_measurement` does.
    """
    train_set = find_measurement(group, "occlusion", dataset="train", fill=fill)
    test_set = find_measurement(group, "occlusion", dataset="test", fill=fill)
    train, test = _accuracies(group, train_set), _accuracies(group, test_set)
    if test.empty:
        return None
    shared_seeds = [seed for seed in test if seed in train]
    seeds = shared_seeds or list(test)
    test = test[seeds].dropna()
    train = train[seeds].dropna() if shared_seeds else test * math.nan
    # Accuracies of the seeds by condition.
    train_by_condition = train.T.to_dict("list")
    test_by_condition = test.T.to_dict("list")
    images = [
        [_num_images(group.networks[seed], measurement) for seed in seeds]
        for measurement in (train_set, test_set)
    ]
    return Gaps(
        tuple(seeds),
        images=np.array(images),
        curves=iocclusion.curves(train_by_condition, test_by_condition),
        clean=np.array([train_by_condition[""], test_by_condition[""]]),
    )


def _num_images(network: MeasuredNetwork, measurement: Measurement | None) -> int:
    """Return the number of images of the clean accuracy; 0 if not measured."""
    number = network.number(measurement, "accuracy")
    return number.n if number else 0


def _accuracies(group: NetworkGroup, measurement: Measurement | None) -> pd.DataFrame:
    """Return a frame of accuracies from 0 to 1: rows are conditions, columns are seeds.

    The row "" is the clean accuracy; seeds without it have no column. measurement: None for a frame
    without columns.
    """
    accuracies = {}
    for seed, network in group.networks.items():
        clean = network.number(measurement, "accuracy")
        if clean and clean.value is not None:
            accuracies[seed] = {
                number.condition: number.value
                for number in network.numbers[measurement]
                if number.metric == "accuracy"
            }
    return pd.DataFrame(accuracies, dtype=float)


def hiding(groups: Iterable[NetworkGroup]) -> pd.DataFrame:
    """Return accuracies, gaps and iOcclusion per group, filling, masking and hidden fraction.

    Columns: the fields of `GroupKey`, fill, masking, and the columns of `_gap_columns`.
    Accuracies, gaps and hidden fractions are fractions. Groups without accuracies on test images
    are left out. If no group remains, the frame has no rows and only some of the columns. Raises
    ValueError as `find_measurement` does.
    """
    columns = [*GroupKey._fields, "fill", "masking", "hidden", "n", "train", "known"]
    frames = [pd.DataFrame(columns=columns)]
    for group in groups:
        fills = [
            _options(network, measurement)["fill"]
            for network, measurement in group.measures_of("occlusion")
        ]
        for fill in dict.fromkeys(fills):
            group_gaps = gaps(group, fill)
            for masking in group_gaps.curves if group_gaps else ():
                labels = {**group.key._asdict(), "fill": fill, "masking": masking}
                columns = labels | _gap_columns(group_gaps, masking)
                frames.append(pd.DataFrame(columns))
    return pd.concat(frames[len(frames) > 1 :], ignore_index=True)


def _gap_columns(gaps: Gaps, masking: str) -> dict[str, Any]:
    """Return the columns of a frame with one row per hidden fraction, by name.

    Columns: hidden, n (seeds), train_images and test_images (smallest numbers of a seed), train and
    test (accuracies), gap and gap_error (without hidden pixels, mean over seeds), iocclusion,
    of_means, and known (number of seeds with iOcclusion). train, test and iocclusion also have
    <name>_std. masking: key of `gaps.curves`.
    """
    curve = gaps.curves[masking]
    train_images, test_images = gaps.images.min(axis=1)
    return {
        "hidden": curve.fraction,
        "n": len(gaps.seeds),
        "train_images": train_images,
        "test_images": test_images,
        **_over_seeds("train", curve.train),
        **_over_seeds("test", curve.test),
        "gap": gaps.gap.mean(),
        "gap_error": gaps.error.mean(),
        "known": gaps.known.sum(),
        **_over_seeds("iocclusion", gaps.index(masking)),
        "of_means": gaps.of_means(masking),
    }


def _over_seeds(name: str, values: Float[np.ndarray, "f r"]) -> dict[str, pd.Series]:
    """Return the columns `name` and `name`_std: mean and standard deviation over r seeds."""
    frame = pd.DataFrame(values)
    return {name: frame.mean(axis=1), f"{name}_std": frame.std(axis=1)}


def without_iocclusion(hiding: pd.DataFrame) -> str:
    """Return a phrase with the number of seeds, per group, whose gap is too small for iOcclusion.

    "" if there is no such seed. Groups without accuracies on training images are not counted.
    hiding: result of the function `hiding`.
    """
    rows = hiding[hiding["train"].notna() & (hiding["known"] < hiding["n"])]
    phrases = []
    sizes = set()
    for row in rows.drop_duplicates([*GroupKey._fields]).itertuples():
        name = ", ".join(filter(None, (row.method, row.training)))
        phrases.append(f"{row.n - row.known} of {row.n} seeds of {name}")
        sizes.add(f"{row.train_images:,} training and {row.test_images:,} test images")
    images_text = tables.join(sorted(sizes))
    return (
        f"{tables.join(phrases)} have a gap too small to measure with {images_text}"
        if phrases
        else ""
    )


class Quantity(NamedTuple):
    """Definition of a quantity of a group: its title, and the measurement that contains it.

    options: options of the probe that select the measurement.
    """

    title: str
    probe: str
    metric: str = "accuracy"
    dataset: str = "test"
    options: Mapping[str, Any] = types.MappingProxyType({})


QUANTITIES = {
    "di_grid": Quantity("DI index, grid shuffle", "grid_shuffle"),
    "di_black": Quantity(
        "DI index, CutOcclusion black",
        "cut_occlusion",
        options={"area": "beta", "placement": "unrestricted", "fill": "black"},
    ),
    "di_other": Quantity(
        "DI index, 30 % other images",
        "cut_occlusion",
        options={"area": float(HIDDEN), "placement": "restricted", "fill": "other"},
    ),
    "di_anywhere": Quantity(
        "DI index, other images",
        "cut_occlusion",
        options={"area": "beta", "placement": "unrestricted", "fill": "other"},
    ),
    "cut_occlusion": Quantity("CutOcclusion", "occlusion", options={"fill": "other"}),
    "iocclusion": Quantity("iOcclusion", "occlusion", options={"fill": "other"}),
    "affinity": Quantity("Affinity", "mixing", metric="affinity"),
    "diversity": Quantity("Diversity", "mixing", metric="diversity", dataset="train"),
    "mix_diversity": Quantity(
        "MixDiversity", "mixing", metric="mix_diversity", dataset="train"
    ),
    "gst_shape": Quantity(
        "GST, shape", "shape_bias", metric="accuracy_shape", dataset="cue-conflict"
    ),
    "gst_texture": Quantity(
        "GST, texture", "shape_bias", metric="accuracy_texture", dataset="cue-conflict"
    ),
    "accuracy": Quantity("Accuracy", "plain"),
    "cifar": Quantity("By CIFAR label", "plain", dataset="stacked_cifar"),
    "mnist": Quantity("By MNIST label", "plain", dataset="stacked_mnist"),
}
_GRIDS = {"FashionMNIST": "2x2", "MNIST": "2x2", "ImageNet": "8x8"}  # As published.
_NAMES = {title: name for name, title in METHODS.items()}


class NumberKey(NamedTuple):
    """Key of a measured or published number: a key of `QUANTITIES`, and `GroupKey` without the model."""

    quantity: str
    data: str
    method: str
    training: str = PLAIN

    def key(self, model: str) -> GroupKey:
        """Return the key of the group of networks of a model."""
        return GroupKey(model, self.data, self.method, self.training)


def mean(values: np.ndarray) -> float:
    """Return the mean of an array; NaN if it is empty."""
    return float(np.mean(values)) if len(values) else math.nan


@dataclasses.dataclass(frozen=True, eq=False)
class QuantityValues:
    """Values of one quantity for the r seeds of a group, as shown on the page.

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
        """The number that tests compare, `statistic(units)`; NaN without units."""
        return float(self.statistic(self.units)) if len(self.units) else math.nan

    @property
    def row(self) -> dict[str, Any]:
        """The row of a table that shows the quantity, by name of the column.

        Keys: mean, std, n, left_out, images, low, high, by_chance, dominant, and the texts seeds
        and values (`runs`), joined by spaces.
        """
        names = ("mean", "std", "n", "left_out", "images", "low", "high", "by_chance")
        row = {name: getattr(self, name) for name in (*names, "dominant")}
        row["seeds"] = " ".join(map(str, self.seeds))
        return row | {"values": " ".join(f"{value:.17g}" for value in self.runs)}


def summarise(
    seeds: Iterable[int],
    values: Sequence[float] | np.ndarray,
    images: int = 0,
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> QuantityValues:
    """Return values by seed, with Student's 95 % interval of their mean, clipped to `within`.

    The interval is NaN for fewer than 2 seeds. seeds, values: one value per seed, without NaN.
    images: number of images per seed.
    """
    runs = np.asarray(values, np.float64)
    r = len(runs)
    half = math.nan
    if r > 1:
        t = float(scipy.special.stdtrit(r - 1, (1 + CONFIDENCE) / 2))
        half = t * float(runs.std(ddof=1)) / math.sqrt(r)
    smallest, largest = within
    ends = np.clip([mean(runs) - half, mean(runs) + half], smallest, largest)
    low, high = ends.tolist()
    return QuantityValues(
        runs, tuple(seeds), low=low, high=high, units=runs, images=int(images)
    )


@functools.lru_cache(maxsize=4096)
def _value(group: NetworkGroup, quantity: str, method: str) -> QuantityValues | None:
    """Return the values of one of `QUANTITIES` of a group; None if not measured.

    Accuracies and DI indices are in %; other quantities are unchanged. Seeds without a value are
    left out. method: title of the augmentation that the probe "mixing" applies; other quantities
    ignore `method`.
    """
    if quantity.startswith("di_"):
        measurement, condition = interference_condition(group, quantity)
        return index(group, measurement, condition)
    if quantity == "iocclusion":
        return _iocclusion(group)
    definition = QUANTITIES[quantity]
    measurement = find_measurement(
        group, definition.probe, dataset=definition.dataset, **definition.options
    )
    condition = _NAMES.get(method, method) if definition.probe == "mixing" else ""
    if quantity == "cut_occlusion":
        condition = f"rectangle {HIDDEN}"
    numbers = {}
    for seed, network in group.networks.items():
        number = network.number(measurement, definition.metric, condition)
        if number and number.value is not None:
            numbers[seed] = number
    if not numbers:
        return None
    values = np.array([number.value for number in numbers.values()])
    images = max(number.n for number in numbers.values())
    if definition.metric.startswith("accuracy"):
        return summarise(numbers, 100 * values, images, within=(0, 100))
    return summarise(numbers, values, images)


def _iocclusion(group: NetworkGroup) -> QuantityValues | None:
    """Return iOcclusion with the share `HIDDEN` of the most salient pixels hidden, a fraction.

    Pixels are hidden by images of another data set. Seeds with a small gap are left out. None if
    this share was not measured, or if training images were not measured.
    """
    group_gaps = gaps(group, "other")
    masking = "grad_cam most"
    if (
        group_gaps is None
        or masking not in group_gaps.curves
        or np.isnan(group_gaps.gap).all()
    ):
        return None
    is_hidden = np.isclose(group_gaps.curves[masking].fraction, float(HIDDEN))
    if not is_hidden.any():
        return None
    seeds = np.array(group_gaps.seeds)[group_gaps.known].tolist()
    values = group_gaps.index(masking)[is_hidden][0]
    images = group_gaps.images[1].max()
    return dataclasses.replace(
        summarise(seeds, values, images, within=(0, math.inf)),
        left_out=len(group_gaps.seeds) - len(seeds),
        units=group_gaps.units(masking)[is_hidden][0],
        statistic=ratio,
    )


def interference_condition(
    group: NetworkGroup, quantity: str
) -> tuple[Measurement | None, str]:
    """Return (measurement, condition) of a DI index; (None, condition) if not measured.

    quantity: key of `QUANTITIES` that starts with "di_". Raises ValueError as `find_measurement`
    does.
    """
    definition = QUANTITIES[quantity]
    condition = definition.options.get("fill") or _GRIDS.get(group.key.data, "4x4")
    measurement = find_measurement(group, definition.probe, **definition.options)
    return measurement, condition


class GroupDecisions(NamedTuple):
    """Stored decisions of the seeds of a group, on clean and on distorted images."""

    classes: tuple[str, ...]
    clean: dict[int, decisions.Decisions]  # By seed.
    distorted: dict[int, decisions.Decisions]  # By seed, the same as for `clean`.


def _group_decisions(
    group: NetworkGroup, measurement: Measurement | None, condition: str
) -> GroupDecisions:
    """Return the decisions of all seeds with stored decisions on clean and on distorted images.

    condition: condition of the distorted images; the condition of clean images is "". All fields
    are empty if there is no such seed. Raises ValueError if the classes were not stored or differ
    between seeds.
    """
    networks = {
        seed: network
        for seed, network in group.networks.items()
        if measurement in network.measures
    }
    clean, distorted = {}, {}
    for seed, network in networks.items():
        by_condition = _read_decisions(network, measurement)
        if "" in by_condition and condition in by_condition:
            clean[seed] = by_condition[""]
            distorted[seed] = by_condition[condition]
    if not clean:
        return GroupDecisions((), clean, distorted)
    class_lists = [network.classes(measurement) for network in networks.values()]
    distinct = list(dict.fromkeys(class_lists))
    if len(distinct) > 1 or not distinct[0]:
        folder = next(iter(networks.values())).workdir
        lengths = ", ".join(str(len(classes)) for classes in distinct)
        raise ValueError(
            f"{folder / 'measures' / '@'.join(measurement)}.json: must have the classes, the "
            f"same for all seeds of {group.key.words} ({group.key.model}), got "
            f"{len(distinct)} lists of {lengths}; measure them again"
        )
    return GroupDecisions(distinct[0], clean, distorted)


def index(
    group: NetworkGroup,
    measurement: Measurement | None,
    condition: str,
    *,
    variant: str = "share",
) -> QuantityValues | None:
    """Return the DI index, in %, of the seeds with stored decisions; None without such seeds.

    Seeds that decide for one class on nearly all clean images are left out (`ONE_CLASS`); the
    result has no values if all seeds are left out. measurement, condition: measurement and
    condition of the distorted images, as returned by `interference_condition`. variant: "share"
    (growth of a class's share of the errors) or "count" (growth of a class's number of errors per
    image). For "share", the result also has `by_chance`, and `units` to which `product` applies.
    """
    classes, clean, distorted = _group_decisions(group, measurement, condition)
    if not clean:
        return None
    images = len(next(iter(clean.values())).prediction)
    seeds = [
        seed
        for seed, seed_decisions in clean.items()
        if _largest_class(seed_decisions) <= ONE_CLASS * images
    ]
    num_left_out = len(clean) - len(seeds)
    if not seeds:
        return dataclasses.replace(
            summarise((), ()), images=images, left_out=num_left_out, classes=classes
        )
    clean_runs = tuple(clean[seed] for seed in seeds)
    distorted_runs = tuple(distorted[seed] for seed in seeds)
    k = len(classes)
    result = interference.of_runs(
        clean_runs, distorted_runs, classes=k, variant=variant
    )
    wrong = [
        [interference.wrong_by_class(run, classes=k) for run in runs]
        for runs in (clean_runs, distorted_runs)
    ]
    values = QuantityValues(
        result.runs,
        tuple(seeds),
        low=result.low,
        high=result.high,
        units=result.runs,
        images=images,
        left_out=num_left_out,
        worst=result.worst,
        dominant="" if result.dominant is None else classes[result.dominant],
        classes=classes,
        wrong=np.swapaxes(wrong, 0, 1),
    )
    if variant != "share":
        return values
    return dataclasses.replace(
        values,
        units=result.parts,
        statistic=product,
        by_chance=interference.by_chance(clean_runs, distorted_runs, classes=k),
    )


def _largest_class(seed_decisions: decisions.Decisions) -> int:
    """Return the number of decisions for the most frequent class."""
    return pd.Series(seed_decisions.prediction).value_counts().max()


def product(units: Float[np.ndarray, "r 2"]) -> float:
    """Return the DI index: the mean share of the preferred class times its mean growth.

    units: (share, growth) of each seed.
    """
    return float(np.prod(units.mean(axis=0)))
