"""The package's JSON tables: class names, WordNet ids, published settings."""

import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Int


def read(name: str) -> Any:
    """Return the content of jbias/data/tables/<name>.json."""
    path = resources.files("jbias.data") / "tables" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def class_names(name: str) -> tuple[str, ...]:
    """Return the class names of a data set, in the order of labels.

    name: a key of class_names.json: "cifar10", "cifar100" (fine classes), "pacs", ...
    """
    return tuple(read("class_names")[name])


@functools.cache
def wnids() -> tuple[str, ...]:
    """Return the WordNet ids of the 1000 classes of ILSVRC-2012, sorted as strings.

    Outputs of published networks are in this order.
    """
    return tuple(read("imagenet1k")["wnids"])


@functools.cache
def lemmas() -> dict[str, str]:
    """Return {WordNet id: English word} of the 1000 classes of ILSVRC-2012.

    Two ids have the word "crane" and two "maillot".
    """
    return dict(zip(wnids(), read("imagenet1k")["words"]))


def readable(name: str) -> str:
    """Return a WordNet id with its word, "tench (n01440764)"; return other names unchanged."""
    return f"{lemmas()[name]} ({name})" if name in lemmas() else name


def subset(name: str) -> tuple[str, ...]:
    """Return the 200 WordNet ids of a data set, sorted; name: "imagenet_a" or "imagenet_r"."""
    return tuple(read("imagenet_subsets")[name])


@functools.cache
def cue_conflicts() -> tuple[str, ...]:
    """Return the names of the 1,280 images of Geirhos' cue-conflict set, sorted as strings.

    The name "airplane1-bicycle2" has the shape of airplane1 and the texture of bicycle2. 1,200
    images have a conflict; 80 have a shape and a texture of one class.
    """
    textures = read("cue_conflict")["textures"]
    return tuple(
        f"{shape}-{texture}"
        for shape, names in textures.items()
        for texture in names.split()
    )


def positions(classes: Sequence[str]) -> Int[np.ndarray, "k"]:
    """Return the index of each WordNet id in `wnids`; KeyError for an unknown id."""
    index = {wnid: i for i, wnid in enumerate(wnids())}
    return np.array([index[name] for name in classes], np.int32)
