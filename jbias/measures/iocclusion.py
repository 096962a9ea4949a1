"""iOcclusion index: the share of the generalisation gap that remains with parts of images hidden.

Occlusion removes information from training images and from test images in the same way; if the
remaining information still separates training from test images, the gap remains. The index
compares gaps and not accuracies, because a hidden part may also change accuracy by looking like
some class.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968, section 5.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, occlusion.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jbias import errors

SMALLEST = 1e-6  # Gaps below this count as none.

Share = float | Float[np.ndarray, "r"]  # Accuracy in [0, 1], of one run or several.


class Curve(NamedTuple):
    """Accuracies and index by hidden fraction, for one kind of mask."""

    fraction: Float[np.ndarray, "f"]  # Hidden share of the pixels, ascending from 0.
    train: Float[np.ndarray, "f *r"]  # Accuracy on training images.
    test: Float[np.ndarray, "f *r"]  # Accuracy on test images.
    iocclusion: Float[np.ndarray, "f *r"]  # Result of `index`.


def index(
    train: Share, test: Share, hidden_train: Share, hidden_test: Share
) -> Float[np.ndarray, "*r"]:
    """Return the iOcclusion index |(A(train^i) - A(test^i)) / (A(train) - A(test))|.

    A: accuracy in [0, 1]. train^i: the training images, without augmentation, each with a fraction
    i of its pixels hidden. hidden_train, hidden_test: A(train^i) and A(test^i). Arrays have one
    entry per run. NaN without a gap, that is for |A(train) - A(test)| < 1e-6.
    """
    gap = np.asarray(train, np.float64) - test
    hidden_gap = np.asarray(hidden_train, np.float64) - hidden_test
    has_gap = np.abs(gap) >= SMALLEST
    return np.where(has_gap, np.abs(hidden_gap / np.where(has_gap, gap, 1)), np.nan)


def curves(train: Mapping[str, Share], test: Mapping[str, Share]) -> dict[str, Curve]:
    """Return the curve of each kind of mask, such as "rectangle", by its name.

    train, test: accuracies in [0, 1], of one or several runs, by condition: "" for unchanged
    images, and "rectangle 0.3", "grad_cam most 0.3", ..., the mask and the hidden fraction of
    pixels. Conditions that are not in both mappings are ignored. ValueError if "" is missing.
    """
    for name, by_condition in (("training", train), ("test", test)):
        must = "be measured as it is, too"
        errors.check(
            "" in by_condition,
            "iocclusion",
            must,
            [*by_condition],
            name=f"the {name} set",
        )
    points_of_mask = {}
    for condition in train:
        mask, _, fraction = condition.rpartition(" ")
        if mask and condition in test:
            points_of_mask.setdefault(mask, []).append((float(fraction), condition))
    return {
        mask: _make_curve(train, test, sorted(points))
        for mask, points in points_of_mask.items()
    }


def _make_curve(
    train: Mapping[str, Share],
    test: Mapping[str, Share],
    points: list[tuple[float, str]],
) -> Curve:
    """Return the curve through the unchanged images and `points`.

    train, test: see `curves`. points: (hidden fraction, condition), ascending.
    """
    names = ["", *(condition for _, condition in points)]
    train_accuracy = np.array([train[name] for name in names], np.float64)
    test_accuracy = np.array([test[name] for name in names], np.float64)
    return Curve(
        fraction=np.array([0.0, *(fraction for fraction, _ in points)]),
        train=train_accuracy,
        test=test_accuracy,
        iocclusion=index(
            train_accuracy[0], test_accuracy[0], train_accuracy, test_accuracy
        ),
    )
