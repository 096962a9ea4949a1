"""Images on either side of a shift: their weights in its sets, and pairs that flip."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.evals import reliance

_MORE = 16  # Wrong images of a class that are looked at beyond as many as are wanted.


class Pair(NamedTuple):
    """Two images of one class: right where the attribute agrees, wrong where not."""

    agrees: int
    disagrees: int
    shared: int  # How many other attributes are the same in both.


def weights(
    found: reliance.Reliance,
    kind: str,
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """What each image weighs in the sets of the extreme level, in and out of distribution.

    Both sum to 1, and the sums over right images are the accuracies of the level: each
    half of the images has the arrangement that was chosen on the other.
    """
    both = np.zeros((2, len(label)))
    row, column = _places(found, label, value)
    for one, h in zip(found.kinds[kind].tried, (1, 0), strict=True):
        mine = found.half == h
        k, a = row[mine], column[mine]
        count = np.zeros(found.count.shape)
        np.add.at(count, (k, a), 1)
        for side, table in zip(both, one.tables(1.0), strict=True):
            side[mine] = (table / len(table) / count)[k, a] / 2
    return both[0], both[1]


def of(
    found: reliance.Reliance,
    kind: str,
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
) -> Int[np.ndarray, "n"]:
    """1 where the value agrees with the class, by all images; -1 where not; 0 neither."""
    row, column = _places(found, label, value)
    contrast = found.kinds[kind].chosen.contrast()
    sign = np.sign(np.where(np.abs(contrast) < 1e-12, 0, contrast)).astype(int)
    return np.where(found.half >= 0, sign[row, column], 0)


def _places(found, label, value) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each image; 0 where it has no part."""
    mine = found.half >= 0
    return (
        np.searchsorted(known, np.where(mine, column, known[0]))
        for known, column in ((found.classes, label), (found.values, value))
    )


def pairs(
    right: Bool[np.ndarray, "n"],
    likelihood: Float[np.ndarray, "n"],
    side: Int[np.ndarray, "n"],
    label: Int[np.ndarray, "n"],
    others: Int[np.ndarray, "c n"],
    count: int,
    *,
    first: Int[np.ndarray, "b n"] | None = None,
) -> list[Pair]:
    """Chooses pairs that flip, the classes in turn; each image is in one pair at most.

    Beside each wrong image stands the right one that shares most of `first`, then most of
    the `others`, then the likeliest. Pairs that share most of `first`, attributes that
    flip answers as well, come before others; of those alike the one whose wrong image
    gives its right class the smallest probability.
    """
    if first is None:
        first = np.zeros((0, len(label)), int)
    by_class = []
    for k in np.unique(label[side != 0]):
        wrong = np.flatnonzero((side < 0) & ~right & (label == k))
        free = np.flatnonzero((side > 0) & right & (label == k))
        found = []
        for image in wrong[np.argsort(likelihood[wrong], kind="stable")][
            : count + _MORE
        ]:
            if not len(free):
                break
            held, shared = (
                (columns[:, free] == columns[:, [image]]).sum(0)
                for columns in (first, others)
            )
            best = np.lexsort((-likelihood[free], -shared, -held))[0]
            pair = Pair(int(free[best]), int(image), int(shared[best]))
            found.append((-int(held[best]), likelihood[image], pair))
            free = np.delete(free, best)
        by_class.append(sorted(found))
    by_class.sort(key=lambda found: found[0][:2] if found else (1, 0))
    turns = max(map(len, by_class), default=0)
    dealt = [found[i][2] for i in range(turns) for found in by_class if i < len(found)]
    return dealt[:count]
