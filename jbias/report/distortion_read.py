"""Networks of the data-distortion study, by what they were trained with and on.

A group is what a row or a column of the paper stands for: one model, trained with one method
on one data set, in one way. Its networks are its seeds.
"""

import itertools
import re
import types
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jbias.report import measured_read, tables, workdirs

DATA = types.MappingProxyType(
    {
        "cifar10": "CIFAR-10",
        "cifar100": "CIFAR-100",
        "fashion_mnist": "FashionMNIST",
        "tiny_imagenet": "Tiny ImageNet",
        "imagenet": "ImageNet",
        "mnist": "MNIST",
    }
)
STACKED = "MNIST-CIFAR"  # A digit over a photograph.
METHODS = types.MappingProxyType(
    {
        "basic": "basic",
        "mixup": "MixUp",
        "fmix": "FMix",
        "cutmix": "CutMix",
        "rm": "RM",
    }
)
# What mixes images where no variant says so.
_MIXING = {name: name for name in ("mixup", "fmix", "cutmix")} | {"random_masks": "rm"}
# What configs/distortion.py calls how it trains.
_VARIANT = re.compile(
    r"(?P<method>basic|mixup|fmix|cutmix|rm)(-with-(?P<other>[^-+]+))?"
    # Classes are joined by +, as is what else is another variant: the setting has them.
    r"(-without-.+?(?=-kept-|-released|$))?(-kept-(?P<kept>.+?))?"
    r"(?P<more>(-released)?(\+.*)?)"
)
# How a network was trained, beside its method, in words before what it is about.
PLAIN, OTHER, WITHOUT, PART = "", "mixed with ", "without ", "part "
# Titles of `Key.cells`.
HEADS = types.MappingProxyType(
    {
        "model": ("Model", str),
        "data": ("data", str),
        "method": ("method", str),
        "training": ("training", str),
    }
)
# Settings in which runs of one group may differ.
_NO_IDENTITY = ("run", "seeds", "save_every", "eval_every", "tests", "valid")


class Key(NamedTuple):
    """What a group is of; words as the page has them."""

    model: str
    data: str
    method: str
    training: str = PLAIN

    @property
    def cells(self) -> dict[str, str | None]:
        """What a row is of; nothing stands for training on the set as it is."""
        return {**self._asdict(), "training": self.training or None}

    @property
    def words(self) -> str:
        ending = f", {self.training}" if self.training else ""
        return f"{self.method} on {self.data}{ending}"


class Group(NamedTuple):
    """Networks that differ by their seeds, in the order of these."""

    key: Key
    networks: tuple[measured_read.Network, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed(one) for one in self.networks)


def read(patterns: Sequence[str]) -> tuple[list[Group], list[str]]:
    """Reads workdirs of measured networks; gives groups, and what to know of them.

    Raises ValueError as `measured_read.read` does, and where a seed of a group was
    measured twice.
    """
    notes: list[str] = []
    found: dict[Key, list[measured_read.Network]] = {}
    for one in measured_read.read(patterns, notes):
        found.setdefault(key_of(one), []).append(one)
    groups = []
    for key in sorted(found, key=_place):
        networks = sorted(found[key], key=lambda one: (seed(one), str(one.workdir)))
        for a, b in itertools.pairwise(networks):
            if seed(a) == seed(b):
                raise ValueError(
                    f"{b.workdir}: must be another seed than {a.workdir}, both are seed "
                    f"{seed(a)} of {key.words} ({key.model}); name the workdirs of one"
                )
        groups.append(Group(key, tuple(networks)))
    notes += [line for group in groups for line in _elsewhere(group)]
    return groups, notes + [line for group in groups for line in _mixed(group)]


def seed(one: measured_read.Network) -> int:
    return int(one.records["seed"].iloc[0])


def key_of(one: measured_read.Network) -> Key:
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
    stacked = data.startswith("stacked")
    match = _VARIANT.fullmatch(variant)
    method, training = variant or str(first["algorithm"]), PLAIN
    if match:
        dropped = config.get("train", {}).get("drop", "")
        method, training = METHODS[match["method"]], _training(match, data, dropped)
    return Key(
        model=str(first["model"]),
        data=STACKED if stacked else DATA.get(data, data),
        method=method,
        training=training,
    )


def _training(match: re.Match, data: str, dropped: str) -> str:
    """Says how training differs from that on the data set as it is."""
    parts = []
    if other := match["other"]:
        same = other in ("same", data)
        parts.append(OTHER + ("itself" if same else DATA.get(other, other)))
    if dropped:
        parts.append(WITHOUT + " and ".join(dropped.split("+")))
    if match["kept"]:
        parts.append(PART + match["kept"])
    return ", ".join([*parts, *filter(None, re.split(r"[-+]", match["more"]))])


def _place(key: Key) -> tuple:
    def rank(name: str, names: list[str]) -> tuple[int, str]:
        return (names.index(name) if name in names else len(names)), name

    data = rank(key.data, [*DATA.values(), STACKED])
    return key.model, data, key.training, rank(key.method, [*METHODS.values()])


def _elsewhere(group: Group) -> Iterator[str]:
    """Says whose iOcclusion and diversity are not of the images of their training."""
    for one in group.networks:
        said = {told.get("otherwise") for told in one.measures.values()} - {None}
        for words in sorted(said):
            yield f"{one.name}: measured on training images that are not its own: {words}."


def _mixed(group: Group) -> Iterator[str]:
    """Says which settings the networks of a group do not share."""
    flat = [
        {
            name: value
            for name, value in workdirs.flatten(one.config.get("config", {})).items()
            if name.split(".")[0] not in _NO_IDENTITY and name.split(".")[-1] != "root"
        }
        for one in group.networks
    ]
    keys = workdirs.differing(flat)
    if keys:
        yield (
            f"{group.key.words} ({group.key.model}): its seeds differ in "
            f"{tables.join(keys)}, and are pooled all the same."
        )
