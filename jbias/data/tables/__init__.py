"""Tables that lie in the package as JSON: class names, WordNet ids, published settings."""

import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Int


def read(name: str) -> Any:
    """Reads jbias/data/tables/<name>.json."""
    path = resources.files("jbias.data") / "tables" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def data_sets() -> dict[str, dict[str, Any]]:
    """What is said of each data set, by the keys that the file tells about."""
    return {name: row for name, row in read("data_sets").items() if name != "about"}


def cite(name: str) -> str:
    """Whom to cite for a set, or for one form of it, "colored_mnist/shifts"."""
    return data_sets()[name]["cite"]


@functools.cache
def class_names(name: str) -> tuple[str, ...]:
    """The classes of "cifar10", "cifar100" (fine), "office_home", "pacs" ..., by label."""
    return tuple(read("class_names")[name])


@functools.cache
def wnids() -> tuple[str, ...]:
    """The 1000 classes of ILSVRC-2012 by WordNet id, sorted as strings.

    Outputs of published networks are in this order. Labels follow the names of classes,
    whatever the order in which a folder has them.
    """
    return tuple(read("imagenet1k")["wnids"])


@functools.cache
def lemmas() -> dict[str, str]:
    """An English word for each of the 1000 ids; two are a crane and two a maillot."""
    return dict(zip(wnids(), read("imagenet1k")["words"]))


def readable(name: str) -> str:
    """Puts the word before an id, "tench (n01440764)"; other names stay as they are."""
    return f"{lemmas()[name]} ({name})" if name in lemmas() else name


def subset(name: str) -> tuple[str, ...]:
    """The 200 ids of "imagenet_a" or "imagenet_r", in the same order."""
    return tuple(read("imagenet_subsets")[name])


def positions(classes: Sequence[str]) -> Int[np.ndarray, "k"]:
    """Where each class stands among the 1000."""
    place = {wnid: i for i, wnid in enumerate(wnids())}
    return np.array([place[name] for name in classes], np.int32)
