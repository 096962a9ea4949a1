"""Which classes and which values a shift sets against each other, where nobody says so.

The tables of a shift (jbias.data.shifts) want two groups of classes and the values in a
circle. Of a model that comes without its training table both are unknown: they are chosen
so that the accuracies of some images drop the most, to be tested on others.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize

from jbias.data import shifts

_STARTS = 12  # Random groups that the search begins with.
_FEW = 150  # Ways to make groups that are all begun with: up to eight classes.
_ROUNDS = 50


class Arrangement(NamedTuple):
    """Groups of classes, 0, 1 or -1 for neither, and the values in their circle."""

    kind: str
    groups: Int[np.ndarray, "k"]
    order: Int[np.ndarray, "m"]  # Values by their place.

    def tables(
        self, share: float
    ) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
        """P(value | class) to train on and to test on; columns are values."""
        place = np.argsort(self.order)
        both = shifts.tables(self.kind, share, self.groups, len(self.order))
        return both[0][:, place], both[1][:, place]

    def contrast(self) -> Float[np.ndarray, "k m"]:
        """What cells weigh in the drop at the extreme: it is the sum of these times them."""
        train, test = self.tables(1.0)
        return (train - test) / len(self.groups)


def choose(kind: str, accuracy: Float[np.ndarray, "k m"]) -> Arrangement:
    """The arrangement with the largest drop at the extreme level of such a shift.

    accuracy: of each class and value. Groups and order are improved in turn, each to the
    best for the other (assignment problems), from several starts. Of up to eight classes
    all groups are tried, so that none is better; of more that is not certain.
    """
    if not np.isfinite(accuracy).all():
        raise ValueError(
            "arrangement: accuracies must be finite, got a class and value without any"
        )
    best, most = None, -np.inf
    for groups in _starts(kind, accuracy):
        found, drop = _climbed(kind, accuracy, groups)
        if drop > most + 1e-12:
            best, most = found, drop
    return best


def _starts(kind: str, accuracy: Float[np.ndarray, "k m"]) -> Iterator[np.ndarray]:
    """Groups to begin with: all if they are few, else some."""
    k = len(accuracy)
    yield shifts.half_groups(k)
    if kind == "marginal":
        return  # There classes are all alike.
    if math.comb(k, k // 2) * math.comb(k - k // 2, k % 2) <= _FEW:
        yield from _all(k)
        return
    for score in np.random.default_rng(0).normal(size=(_STARTS, k)):
        groups = np.empty(k, np.int32)
        groups[np.argsort(-score, kind="stable")] = shifts.half_groups(k)
        yield groups


def _all(k: int) -> Iterator[Int[np.ndarray, "k"]]:
    """All ways to make two groups of k classes, one is left where k is odd."""
    for left in range(k) if k % 2 else (None,):
        others = [one for one in range(k) if one != left]
        for first in itertools.combinations(others, k // 2):
            groups = np.ones(k, np.int32)
            groups[list(first)] = 0
            groups[[] if left is None else left] = -1
            yield groups


def _climbed(
    kind: str, accuracy: Float[np.ndarray, "k m"], groups: Int[np.ndarray, "k"]
) -> tuple[Arrangement, float]:
    """Improves values and groups in turn until neither gets better."""
    k, m = accuracy.shape
    few = shifts.tables(kind, 1.0, np.array([0, 1, -1]), m)
    rows = (few[0] - few[1]) / k  # Of group 0, of group 1, of neither.
    most, order, slots = -np.inf, np.arange(m), shifts.half_groups(k)
    for _ in range(_ROUNDS):
        gain = accuracy.T @ rows[groups]  # Of a value (row) at a place.
        _, place = optimize.linear_sum_assignment(gain, maximize=True)
        order = np.argsort(place)
        if kind != "marginal":
            gain = accuracy[:, order] @ rows.T
            _, place = optimize.linear_sum_assignment(gain[:, slots], maximize=True)
            groups = slots[place]
        drop = float((rows[groups] * accuracy[:, order]).sum())
        if drop <= most + 1e-12:
            break
        most = drop
    return Arrangement(kind, groups, order), drop
