"""Adjusted p-values, which control the error rate of a family of tests at the level alpha.

In formulas, p_(1) <= ... <= p_(m). Sources: Holm 1979; Hochberg 1988,
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

from jbias import errors
from jbias.stats import score_table


def adjust(
    pvalues: Sequence[float] | Float[np.ndarray, "m"], method: str
) -> Float[np.ndarray, "m"]:
    """Return adjusted p-values, in the order of `pvalues`.

    method: a key of `METHODS`. Without p-values, the result is empty.
    The family-wise error rate is controlled by bonferroni and holm always, by hochberg and
    hommel under independence and positive dependence, and by shaffer for all k (k-1)/2 pairs of
    k algorithms. The false discovery rate is controlled by bh under independence and positive
    dependence, and by "by" always. "none" leaves p unchanged.
    Raise ValueError for an unknown method, for p that are masked, NaN or outside [0, 1], and for
    shaffer with a number of p-values that is not k (k-1)/2 for any k.
    """
    if np.ma.isMaskedArray(pvalues):  # Masked means missing, which is refused as NaN.
        pvalues = np.ma.filled(pvalues.astype(np.float64), np.nan)
    pvalues = np.asarray(pvalues, dtype=np.float64)
    check_method(method)
    are_valid = pvalues.ndim == 1 and bool(((pvalues >= 0) & (pvalues <= 1)).all())
    errors.check(
        are_valid,
        "pvalues",
        "be a row of numbers from 0 to 1",
        pvalues.tolist()
        if pvalues.ndim == 1
        else errors.Words(f"shape {pvalues.shape}"),
    )
    if not len(pvalues):
        return pvalues
    order = np.argsort(pvalues, kind="stable")
    adjusted = np.empty_like(pvalues)
    adjusted[order] = np.minimum(METHODS[method](pvalues[order]), 1)
    return adjusted


def check_method(method: str) -> str:
    """Return the method of adjustment; raise ValueError if it is not a key of `METHODS`."""
    score_table.find_name(method, tuple(METHODS), "adjust")
    return method


@functools.cache
def possible_true_pairs(k: int) -> tuple[int, ...]:
    """Return the possible numbers of true null hypotheses among the pairs of k algorithms.

    The numbers are in ascending order. Equality is transitive, so k algorithms fall into groups of
    equal algorithms: S(k) is the union over j of j (j-1)/2 + S(k-j).
    """
    if k < 2:
        return (0,)
    counts = set()
    for size in range(1, k + 1):
        within = size * (size - 1) // 2
        counts |= {within + others for others in possible_true_pairs(k - size)}
    return tuple(sorted(counts))


def _step_down(factors: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the adjusted p-values max over j <= i of factor_j p_(j), for sorted p."""
    return np.maximum.accumulate(factors * p)


def _num_remaining(p: np.ndarray) -> np.ndarray:
    """Return m, m - 1, ..., 1: the number of hypotheses that remain at each step."""
    return len(p) - np.arange(len(p))


def _hommel(p: np.ndarray) -> np.ndarray:
    """Return the p-values adjusted by Hommel's method, for sorted p.

    Hommel's method is the closure of Simes' test (Wright 1992).
    """
    m = len(p)
    adjusted = np.full(m, float(np.min(m * p / np.arange(1, m + 1))))
    for size in range(m - 1, 1, -1):
        first, last = p[: m - size + 1], p[m - size + 1 :]
        bound = np.min(size * last / np.arange(2, size + 1))
        at_size = np.minimum(size * first, bound)
        padding = np.full(size - 1, at_size[-1])
        adjusted = np.maximum(adjusted, np.concatenate([at_size, padding]))
    return np.maximum(adjusted, p)


def _shaffer(p: np.ndarray) -> np.ndarray:
    """Return the p-values adjusted by Shaffer's static method, for sorted p of all pairs.

    The factor of p_(i) is the largest number of true hypotheses that is possible
    (`possible_true_pairs`) and at most m - i + 1.
    """
    m = len(p)
    k = (1 + math.isqrt(1 + 8 * m)) // 2
    if k * (k - 1) // 2 != m:
        raise ValueError(
            f"adjust: shaffer needs all pairs, 1, 3, 6, 10 ..., got {m} p-values; take holm"
        )
    possible = np.array(possible_true_pairs(k))
    place = np.searchsorted(possible, _num_remaining(p), side="right") - 1
    return _step_down(possible[place], p)


METHODS: Mapping[str, Callable] = {
    "bonferroni": lambda p: len(p) * p,
    "holm": lambda p: _step_down(_num_remaining(p), p),
    # min over j >= i of (m - j + 1) p_(j).
    "hochberg": lambda p: np.minimum.accumulate((_num_remaining(p) * p)[::-1])[::-1],
    "hommel": _hommel,
    "shaffer": _shaffer,
    "bh": scipy.stats.false_discovery_control,
    "by": functools.partial(scipy.stats.false_discovery_control, method="by"),
    "none": lambda p: p,
}
