"""Stacked MNIST-CIFAR: a digit above a photograph, and each alone tells the class.

The simplicity-bias experiment. Source: Marcu and Prügel-Bennett, ICML 2022,
https://arxiv.org/abs/2110.13968, after Shah et al., "The Pitfalls of Simplicity Bias",
NeurIPS 2020, https://arxiv.org/abs/2006.07710.
"""

import hashlib
from typing import Literal

import numpy as np
from jaxtyping import Int

from jbias.data import base, cifar, listing, loader, mnist, sources, tables

HALVES = ("cifar10", "mnist")


def make(
    split: str,
    *,
    root: str,
    digits: str,
    size: int = 32,
    answer: Literal["cifar10", "mnist"] = "cifar10",
    seed: int = 0,
) -> sources.ArraySource:
    """Puts MNIST's digits, of 28 pixels padded to 32, above the images of CIFAR-10.

    Images are twice as high as wide. root: the folder of CIFAR-10; digits: that of MNIST.
    Digit k is of CIFAR's class k. In "train" both halves are of one class, their partners
    drawn by `seed` (training draws new ones each epoch, by `pair` of a config's second
    set); in "test" they are drawn without regard to classes, so that a tenth agrees.

    answer: the half whose class is the label; that of the other half is the column
    "texture", as the cue beside it.
    """
    where = f"data.stacked {split}"
    if answer not in HALVES:
        raise ValueError(f"{where}: answer must be one of {HALVES}, got {answer!r}")
    below = cifar.SPECS["cifar10"].make(split, root=root, size=size)
    above = mnist.SPECS["mnist"].make(split, root=digits, size=size, pad=2)
    objects, numbers = below.columns["label"], above.columns["label"]
    rng = np.random.default_rng((seed, len(objects), len(numbers)))
    same = listing.parse_split(where, split).base == "train"
    chosen = _paired(rng, objects, numbers) if same else _any(rng, objects, numbers)
    images = [above.images[chosen], loader.decode_all(below, workers=1)]
    classes = {"cifar10": objects, "mnist": numbers[chosen]}
    held = f"{below.fingerprint} under {above.fingerprint}, asked {answer}: "
    return sources.ArraySource(
        images=np.concatenate(images, 1),
        name=f"stacked/{split}",
        classes=below.classes,
        space="names",
        columns={
            "label": classes.pop(answer),
            "texture": classes.popitem()[1].astype(np.int32),
        },
        measures=("accuracy", "halves"),
        preprocessing=f"{below.preprocessing}; above it {above.preprocessing}",
        fingerprint=hashlib.sha256(held.encode() + chosen.tobytes()).hexdigest(),
        cite=tables.cite("stacked"),
        note="; ".join(filter(None, (below.note, above.note))),
    )


def _paired(rng, first, second) -> Int[np.ndarray, "n"]:
    """For each of the first a member of the second of its class, at random."""
    chosen = np.empty(len(first), np.int64)
    for label in np.unique(first):
        (places,) = np.nonzero(first == label)
        (members,) = np.nonzero(second == label)
        chosen[places] = _any(rng, places, members, members)
    return chosen


def _any(rng, first, second, members=None) -> Int[np.ndarray, "n"]:
    """For each of the first a member of the second: none twice, unless they are fewer."""
    order = rng.permutation(len(second) if members is None else members)
    return order[np.arange(len(first)) % len(order)]


SPEC = base.spec("stacked", make, ("train", "test"), aspect=(2, 1))
