"""Does an attribute still hurt where another one is held fixed?

Attributes that go together in the images share a drop. Within each class the accuracies
of the cells (value of one, value of the other) are fitted by a sum of two effects, by
least squares over images; the drop is then that of the first one's effects.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from jbias.evals import cells, reliance


class Within(NamedTuple):
    """A drop that remains at the extreme, the other attribute held fixed."""

    drop: float
    low: float
    high: float
    error: float


def drop(
    correct: Bool[np.ndarray, "s n"],
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
    other: Int[np.ndarray, "n"],
    found: reliance.Reliance,
    kind: str,
    *,
    against: Bool[np.ndarray, "r n"] | None = None,
    confidence: float = 0.95,
) -> Within | None:
    """The drop of a kind of shift of `value`, adjusted for `other`; None: not to be told.

    correct, against: as `attribute_reliance.measure` had them for `found`, whose arrangements are
    taken, each on the half of the images that it was not chosen on, whose images with another
    value of `other` than any (negative) are left out. In each class k, with n_bt images
    of the cell with values b and t, b_b + c_t is fitted to the cell means; the drop is
    the sum over k and b of the shift's weights times b_b. None where some weight needs
    images that are not there, as where both attributes always go together. The interval
    is normal, of image sampling alone.
    """
    shares = [correct.mean(0)] + ([against.mean(0)] if against is not None else [])
    trials = []
    for one, h in zip(found.kinds[kind].tried, (1, 0), strict=True):
        mine = (found.half == h) & (other >= 0)
        sums = [0.0, 0.0]
        for row, k in zip(one.contrast(), found.classes, strict=True):
            here = mine & (label == k)
            of = [share[here] for share in shares]
            part = _of_class(row, of, value[here], other[here], found.values)
            if part is None:
                return None
            sums = [total + more for total, more in zip(sums, part, strict=True)]
        trials.append(sums)
    mean = float(np.mean([total for total, _ in trials]))
    error = float(np.sqrt(sum(var for _, var in trials)) / 2)
    reach = stats.norm.ppf((1 + confidence) / 2) * error
    return Within(mean, mean - reach, mean + reach, error)


def _of_class(row, shares, value, other, values) -> tuple[float, float] | None:
    """Weighted effects of one class, and their variance."""
    if not np.any(row):
        return 0.0, 0.0
    shape = int(value.max(initial=-1)) + 1, int(other.max(initial=-1)) + 1
    if shape[0] <= values.max():
        return None
    n = cells.count(value, other)[values]
    weight = _weights(row, n)
    if weight is None:
        return None
    used, found, variance = n > 0, 0.0, 0.0
    for sign, share in zip((1, -1), shares):  # The reference's is taken off.
        right = cells.sums(share, value, other, shape)[values]
        mean = np.divide(right, n, out=np.zeros(n.shape), where=used)
        found += sign * float((weight * mean).sum())
        variance += float((weight**2 * cells.variance(right, n))[used].sum())
    return found, variance


def _weights(
    row: Float[np.ndarray, "m"], n: Int[np.ndarray, "m t"]
) -> Float[np.ndarray, "m t"] | None:
    """What each cell's mean weighs in sum_b row_b b_b of the fit; None: no such."""
    m, t = n.shape
    design = np.zeros((m, t, m + t))
    design[np.arange(m), :, np.arange(m)] = 1
    design[:, np.arange(t), m + np.arange(t)] = 1
    design = design.reshape(m * t, m + t)
    wanted = np.concatenate([row, np.zeros(t)])
    normal = design.T @ (n.reshape(-1, 1) * design)
    effects = np.linalg.pinv(normal, rcond=1e-10, hermitian=True) @ wanted
    if not np.allclose(normal @ effects, wanted, atol=1e-8):
        return None
    return (n.ravel() * (design @ effects)).reshape(m, t)
