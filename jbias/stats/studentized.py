"""The range of k standard normals: the studentised range with infinite degrees of freedom.

P(Q > q) = k int phi(z) [Phi(z)^(k-1) - (Phi(z) - Phi(z - q))^(k-1)] dz, z the largest of
the k. Gauss-Legendre on [-8, 8 + q/2]: phi is below 1e-14 outside, and small tails, which
lie around q/2, keep their digits. Source: Tukey 1953; Copenhaver and Holland 1988,
https://doi.org/10.1080/00949658808811082.
"""

import math

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_BLOCK = 4096  # Values of q at a time: some 6 MiB.


def sf(q: Float[np.ndarray, "*q"] | float, k: int) -> Float[np.ndarray, "*q"]:
    """Gives P(Q > q) for the range Q of k standard normals; 1 where q <= 0."""
    q = np.asarray(q, dtype=np.float64)
    different, places = np.unique(q, return_inverse=True)
    blocks = [
        _upper(different[start : start + _BLOCK], k)
        for start in range(0, len(different), _BLOCK)
    ]
    return np.concatenate(blocks)[places].reshape(q.shape)


def isf(alpha: float, k: int) -> float:
    """Gives the q with P(Q > q) = alpha, 0 < alpha < 1."""
    # Some pair is as far apart: no pair is with more than this chance (Bonferroni).
    normal = scipy.special.ndtri(alpha / (k * (k - 1)))
    most = -math.sqrt(2) * float(normal) + 1
    return scipy.optimize.brentq(
        lambda q: float(sf(q, k)) - alpha, 0, max(most, 1), xtol=1e-13, rtol=1e-14
    )


def _upper(q: np.ndarray, k: int) -> np.ndarray:
    q = np.clip(q, 0, 80)[:, None]  # Beyond 80 the chance is below the least float.
    half = (16 + q / 2) / 2
    z = -8 + half * (1 + _NODES)
    below = scipy.special.ndtr(z)
    # Of the others, none lies below z - q: (1 - share)^(k-1), and its complement.
    share = scipy.special.ndtr(z - q) / below
    with np.errstate(divide="ignore"):
        missed = -np.expm1((k - 1) * np.log1p(-share))
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    value = k * np.sum(half * _WEIGHTS * density * below ** (k - 1) * missed, axis=1)
    return np.where(q[:, 0] > 0, np.clip(value, 0, 1), 1.0)
