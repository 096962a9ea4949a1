"""p-values of a family of tests, adjusted for their number.

Sources: Holm 1979, https://www.jstor.org/stable/4615733; Benjamini and Hochberg 1995,
https://doi.org/10.1111/j.2517-6161.1995.tb02031.x.
"""

import types
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float


def adjust(
    pvalues: Sequence[float] | Float[np.ndarray, "m"], method: str
) -> Float[np.ndarray, "m"]:
    """Gives adjusted p-values, in the order of the given ones.

    With p_(1) <= ... <= p_(m), "holm" is max_{j<=i} (m-j+1) p_(j), which bounds the chance
    of any false claim; "bh" is min_{j>=i} m p_(j) / j, which bounds the expected share of
    false ones among the claims where tests are independent or positively dependent. Both
    end at 1. Raises ValueError for what is no p-value and for an unknown method.
    """
    if method not in _METHODS:
        known = ", ".join(_METHODS)
        raise ValueError(f"method: must be one of {known}, got {method!r}")
    values = np.asarray(pvalues, np.float64)
    if values.ndim != 1 or not np.all((values >= 0) & (values <= 1)):
        raise ValueError("pvalues: must be a list of numbers between 0 and 1")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(_METHODS[method](values[order]), 1)
    return adjusted


def _holm(ascending: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(np.arange(len(ascending), 0, -1) * ascending)


def _bh(ascending: np.ndarray) -> np.ndarray:
    m = len(ascending)
    scaled = m / np.arange(1, m + 1) * ascending
    return np.minimum.accumulate(scaled[::-1])[::-1]


_METHODS: Mapping[str, Callable] = types.MappingProxyType({"holm": _holm, "bh": _bh})
