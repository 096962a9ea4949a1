"""How much of what a network generalises stays when part of each image is hidden?

Occlusion takes information from training images and from test images alike; a network for
which the rest still tells the two apart keeps its gap. So the index compares gaps and not
accuracies, which a hidden part may also change by looking like some class.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968, section 5.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, occlusion.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jbias.evals import probe

SMALLEST = 1e-6  # Of a gap; below it there is none.

Share = float | Float[np.ndarray, "r"]


class Curve(NamedTuple):
    """What becomes of one way to hide parts; the first point is nothing hidden."""

    fraction: Float[np.ndarray, "f"]  # Of the pixels; rising, from 0.
    train: Float[np.ndarray, "f *r"]  # Accuracy on training images.
    test: Float[np.ndarray, "f *r"]
    iocclusion: Float[np.ndarray, "f *r"]


def index(
    train: Share, test: Share, hidden_train: Share, hidden_test: Share
) -> np.ndarray:
    """|(A(train^i) - A(test^i)) / (A(train) - A(test))|, of accuracies in [0, 1].

    train^i: the training images, as they are without augmentation, each with a part i of
    its pixels hidden. Runs are entries of arrays. NaN where there is no gap to compare
    with, |A(train) - A(test)| < 1e-6.
    """
    gap = np.asarray(train, np.float64) - test
    hidden = np.asarray(hidden_train, np.float64) - hidden_test
    there = np.abs(gap) >= SMALLEST
    return np.where(there, np.abs(hidden / np.where(there, gap, 1)), np.nan)


def curves(train: Mapping[str, Share], test: Mapping[str, Share]) -> dict[str, Curve]:
    """The curve of each way to hide parts, of accuracies by condition.

    Conditions are "" and "rectangle 0.3", "grad_cam most 0.3", ...: the way, and the
    fraction of pixels. Values are accuracies, or those of several runs. Only what both
    sets have is told. ValueError where "" is missing.
    """
    for name, by in (("training", train), ("test", test)):
        must = f"the {name} set must be measured as it is, too"
        probe.check("" in by, "iocclusion", must, [*by])
    ways = {}
    for condition in train:
        way, _, fraction = condition.rpartition(" ")
        if way and condition in test:
            ways.setdefault(way, []).append((float(fraction), condition))
    return {way: _curve(train, test, sorted(points)) for way, points in ways.items()}


def _curve(train: Mapping, test: Mapping, points: list[tuple[float, str]]) -> Curve:
    names = ["", *(condition for _, condition in points)]
    each = [[by[name] for name in names] for by in (train, test)]
    on_train, on_test = np.array(each, np.float64)
    fraction = np.array([0.0, *(fraction for fraction, _ in points)])
    relative = index(on_train[0], on_test[0], on_train, on_test)
    return Curve(fraction, on_train, on_test, relative)
