"""k-means of rows, and clusters of equal size."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize

_STEPS = 300
_EXACT = 2000  # Rows up to which equal clusters are dealt out by the exact method.


class Clusters(NamedTuple):
    """Which cluster each row is in, and their centres."""

    number: Int[np.ndarray, "n"]
    centres: Float[np.ndarray, "k d"]
    inertia: float  # Sum of squared distances to the centres.

    @property
    def sizes(self) -> Int[np.ndarray, "k"]:
        return np.bincount(self.number, minlength=len(self.centres))


def fit(
    rows: Float[np.ndarray, "n d"],
    k: int,
    *,
    restarts: int = 10,
    seed: Sequence[int] = (0,),
) -> Clusters:
    """k-means: the clusters of least inertia of so many starts, the largest first.

    Source: Lloyd 1982, started as Arthur and Vassilvitskii, k-means++, SODA 2007: the
    first centre is any row, each further one a row drawn by its squared distance to the
    nearest.
    In float64. Of clusters of one size the one with the first row comes first. A start
    is a function of seed and its number: more of them never make it worse.
    """
    rows = np.asarray(rows, np.float64)
    if not 1 <= k <= len(rows) or restarts < 1:
        raise ValueError(
            f"kmeans: k must be from 1 to the {len(rows)} rows, and restarts 1 or more,"
            f" got {k} and {restarts}"
        )
    best = None
    for start in range(restarts):
        rng = np.random.default_rng([*seed, start])
        found = lloyd(rows, plus_plus(rows, k, rng))
        if best is None or found.inertia < best.inertia:
            best = found
    return _by_size(best)


def plus_plus(
    rows: Float[np.ndarray, "n d"], k: int, rng: np.random.Generator
) -> Float[np.ndarray, "k d"]:
    """Draws the centres to start from."""
    chosen = [int(rng.integers(len(rows)))]
    nearest = squared(rows, rows[chosen])[:, 0]
    while len(chosen) < k:
        total = nearest.sum()
        even = np.full(len(rows), 1 / len(rows))  # All rows are centres already.
        share = nearest / total if total > 0 else even
        chosen.append(int(rng.choice(len(rows), p=share)))
        nearest = np.minimum(nearest, squared(rows, rows[chosen[-1:]])[:, 0])
    return rows[chosen]


def lloyd(
    rows: Float[np.ndarray, "n d"], centres: Float[np.ndarray, "k d"]
) -> Clusters:
    """Moves centres until no row changes its cluster, or 300 times.

    A cluster that is left without rows takes the row that is farthest from its centre.
    """
    number = np.full(len(rows), -1)
    for _ in range(_STEPS):
        apart = squared(rows, centres)
        now = apart.argmin(1)
        least = apart[np.arange(len(rows)), now]
        for empty in np.setdiff1d(np.arange(len(centres)), now):
            alone = np.bincount(now, minlength=len(centres))[now] == 1
            farthest = int(np.where(alone, -1, least).argmax())
            now[farthest], least[farthest] = empty, 0
        if (now == number).all():
            break
        number = now
        centres = means(rows, number, len(centres))
    return Clusters(number, centres, _inertia(rows, number, centres))


def balanced(rows: Float[np.ndarray, "n d"], found: Clusters) -> Clusters:
    """The same centres with clusters whose sizes differ by one at most.

    Of up to 2,000 rows the assignment with the least sum of squared distances; of more,
    rows take the nearest centre that has room, those first that lose most by their
    second nearest. Larger clusters of before have the place more; order stays.
    """
    rows = np.asarray(rows, np.float64)
    n, k = len(rows), len(found.centres)
    room = np.full(k, n // k) + (np.arange(k) < n % k)
    apart = squared(rows, found.centres)
    if n <= _EXACT:
        place = np.repeat(np.arange(k), room)
        _, column = optimize.linear_sum_assignment(apart[:, place])
        number = place[column]
    else:
        number = np.full(n, -1)
        near = np.sort(apart, 1)[:, :2]
        first = np.argsort(near[:, 0] - near[:, -1], kind="stable")
        for row in first:
            number[row] = np.where(room > 0, apart[row], np.inf).argmin()
            room[number[row]] -= 1
    return Clusters(number, found.centres, _inertia(rows, number, found.centres))


def squared(
    rows: Float[np.ndarray, "n d"], centres: Float[np.ndarray, "k d"]
) -> Float[np.ndarray, "n k"]:
    """Squared distances of every row to every centre, |x|^2 - 2 x.c + |c|^2."""
    lengths = np.einsum("nd,nd->n", rows, rows)[:, None] + (centres**2).sum(1)
    return np.maximum(lengths - 2 * rows @ centres.T, 0)


def means(
    rows: Float[np.ndarray, "n d"], number: Int[np.ndarray, "n"], k: int
) -> Float[np.ndarray, "k d"]:
    """The mean of each cluster; every one has a row."""
    member = (number == np.arange(k)[:, None]).astype(np.float64)
    return member @ rows / member.sum(1, keepdims=True)


def _inertia(rows, number, centres) -> float:
    return float(((rows - centres[number]) ** 2).sum())


def _by_size(found: Clusters) -> Clusters:
    sizes = found.sizes
    first = [int(np.flatnonzero(found.number == i)[0]) for i in range(len(sizes))]
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], first[i]))
    rank = np.argsort(order)
    return Clusters(
        rank[found.number].astype(np.int32), found.centres[order], found.inertia
    )
