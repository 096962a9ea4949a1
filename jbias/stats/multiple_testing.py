"""p-values of a family of tests, adjusted: p <= alpha then keeps the family's error rate.

p_(1) <= ... <= p_(m) below. Sources: Holm 1979; Hochberg 1988,
https://doi.org/10.1093/biomet/75.4.800; Hommel 1988, https://doi.org/10.1093/biomet/75.2.383;
Shaffer 1986; Garcia and Herrera 2008, https://jmlr.org/papers/v9/garcia08a.html; Benjamini
and Hochberg 1995; Benjamini and Yekutieli 2001.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import score_table


def adjust(
    pvalues: Sequence[float] | Float[np.ndarray, "m"], method: str
) -> Float[np.ndarray, "m"]:
    """Gives adjusted p-values, in the order given; `METHODS` has the methods.

    The family-wise error is kept by bonferroni and holm always, by hochberg and hommel
    under independence and positive dependence, by shaffer for all k (k-1)/2 pairs of k
    algorithms; the false discovery rate by bh under independence and positive dependence,
    by by always. none leaves p as it is.
    Raises ValueError for another method, for p outside of [0, 1] and if shaffer is given
    a number of p-values that k algorithms do not have as pairs.
    """
    if np.ma.isMaskedArray(pvalues):  # Masked is missing, which is refused as NaN.
        pvalues = np.ma.filled(pvalues.astype(np.float64), np.nan)
    pvalues = np.asarray(pvalues, dtype=np.float64)
    check_method(method)
    shares = pvalues.ndim == 1 and bool(((pvalues >= 0) & (pvalues <= 1)).all())
    told = pvalues.tolist() if pvalues.ndim == 1 else f"shape {pvalues.shape}"
    score_table.check(shares, "pvalues", "be a row of numbers from 0 to 1", told)
    if not len(pvalues):
        return pvalues
    order = np.argsort(pvalues, kind="stable")
    adjusted = np.empty_like(pvalues)
    adjusted[order] = np.minimum(METHODS[method](pvalues[order]), 1)
    return adjusted


def check_method(method: str) -> str:
    """Gives the method back; refuses one that is not there."""
    score_table.find_name(method, tuple(METHODS), "adjust")
    return method


@functools.cache
def possible_true_pairs(k: int) -> tuple[int, ...]:
    """Gives how many of the pairs of k algorithms may be alike at once, ascending.

    Being alike is transitive, so k algorithms fall into groups: S(k) is the union over j
    of j (j-1)/2 + S(k-j).
    """
    if k < 2:
        return (0,)
    rests = ((j, rest) for j in range(1, k + 1) for rest in possible_true_pairs(k - j))
    return tuple(sorted({j * (j - 1) // 2 + rest for j, rest in rests}))


def _down(factors: np.ndarray, p: np.ndarray) -> np.ndarray:
    """max over j <= i of factor_j p_(j)."""
    return np.maximum.accumulate(factors * p)


def _remaining(p: np.ndarray) -> np.ndarray:
    return len(p) - np.arange(len(p))


def _hommel(p: np.ndarray) -> np.ndarray:
    """The closure of Simes' test, as Wright 1992 computes it."""
    m = len(p)
    found = np.full(m, float(np.min(m * p / np.arange(1, m + 1))))
    for size in range(m - 1, 1, -1):
        first, last = p[: m - size + 1], p[m - size + 1 :]
        bound = np.min(size * last / np.arange(2, size + 1))
        now = np.minimum(size * first, bound)
        found = np.maximum(found, np.concatenate([now, np.full(size - 1, now[-1])]))
    return np.maximum(found, p)


def _shaffer(p: np.ndarray) -> np.ndarray:
    """Static: after i - 1 rejections, as many pairs may be alike as S(k) allows."""
    m = len(p)
    k = (1 + math.isqrt(1 + 8 * m)) // 2
    if k * (k - 1) // 2 != m:
        raise ValueError(
            f"adjust: shaffer needs all pairs, 1, 3, 6, 10 ..., got {m} p-values; take holm"
        )
    possible = np.array(possible_true_pairs(k))
    left = np.searchsorted(possible, _remaining(p), side="right") - 1
    return _down(possible[left], p)


METHODS: Mapping[str, Callable] = {
    "bonferroni": lambda p: len(p) * p,
    "holm": lambda p: _down(_remaining(p), p),
    # min over j >= i of (m - j + 1) p_(j).
    "hochberg": lambda p: np.minimum.accumulate((_remaining(p) * p)[::-1])[::-1],
    "hommel": _hommel,
    "shaffer": _shaffer,
    "bh": scipy.stats.false_discovery_control,
    "by": functools.partial(scipy.stats.false_discovery_control, method="by"),
    "none": lambda p: p,
}
