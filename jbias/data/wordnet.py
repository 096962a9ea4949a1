"""The 1000 classes of ILSVRC-2012 by their WordNet ids, and sets that have 200 of them.

Outputs of published networks are in this order. Labels follow the names of classes,
whatever the order in which a folder has them.
"""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Int

from jbias.data import tables


@functools.cache
def wnids() -> tuple[str, ...]:
    """The 1000 ids, sorted as strings."""
    return tuple(tables.read("imagenet1k")["wnids"])


@functools.cache
def lemmas() -> Mapping[str, str]:
    """An English word for each of the 1000 ids; two are a crane and two a maillot."""
    return MappingProxyType(dict(zip(wnids(), tables.read("imagenet1k")["words"])))


def readable(name: str) -> str:
    """Puts the word before an id, "tench (n01440764)"; other names stay as they are."""
    return f"{lemmas()[name]} ({name})" if name in lemmas() else name


@functools.cache
def subsets() -> Mapping[str, tuple[str, ...]]:
    """The 200 ids each of "imagenet_a" and "imagenet_r", in the same order."""
    table = tables.read("imagenet_subsets")
    named = {name: tuple(ids) for name, ids in table.items() if name != "about"}
    return MappingProxyType(named)


def positions(classes: Sequence[str]) -> Int[np.ndarray, "k"]:
    """Where each class stands among the 1000."""
    place = {wnid: i for i, wnid in enumerate(wnids())}
    return np.array([place[name] for name in classes], np.int32)
