"""Do two decision makers err on the same images?

Source: Geirhos, Meding and Wichmann, NeurIPS 2020, https://arxiv.org/abs/2006.16736.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


@dataclasses.dataclass(frozen=True)
class Consistency:
    """How two decision makers agree on which images are hard."""

    kappa: float  # 1: they err on the same images; 0: as by chance.
    observed: float  # Share of images on which both are right or both wrong.
    expected: float  # That share, were their errors independent.


def error_consistency(
    a_correct: Bool[np.ndarray, "n"], b_correct: Bool[np.ndarray, "n"]
) -> Consistency:
    """Cohen's kappa of being right, of two decision makers on the same images.

    kappa = (observed - expected) / (1 - expected), expected = p_a p_b + (1 - p_a)
    (1 - p_b); 1 where they always agree. ValueError where the lengths differ, or
    there is no image.
    """
    a, b = np.asarray(a_correct), np.asarray(b_correct)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(
            "error_consistency: both must say of the same images whether they were"
            f" answered right, got shapes {a.shape} and {b.shape}"
        )
    both = np.stack([a, b])
    if not np.isin(both, (False, True)).all():
        raise ValueError(
            "error_consistency: both must be true where an answer is right, got"
            f" {a.dtype} and {b.dtype}; compare the answers with the labels first"
        )
    once = np.ones((1, len(a)))
    parts = (float(x[0, 0]) for x in _of(both.astype(bool), ((0, 1),), once))
    return Consistency(*parts)


def _of(
    correct: Bool[np.ndarray, "d n"],
    pairs: Sequence[tuple[int, int]],
    weights: Float[np.ndarray, "w n"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """kappa, observed and expected, each (w, pairs), with images counted so often."""
    one, other = np.transpose(pairs)
    n = weights.sum(1, keepdims=True)
    p = weights @ correct.T / n
    observed = weights @ (correct[one] == correct[other]).T / n
    expected = p[:, one] * p[:, other] + (1 - p[:, one]) * (1 - p[:, other])
    # Both are always right, or both always wrong, only where they always agree.
    always = observed == 1
    chance = np.where(always, 0, expected)
    kappa = np.where(always, 1.0, (observed - chance) / (1 - chance))
    return kappa, observed, expected


def mean(
    correct: Bool[np.ndarray, "d n"],
    pairs: Sequence[tuple[int, int]],
    condition: Sequence[str] | None = None,
    *,
    draws: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Mean kappa of pairs of decision makers, with a bootstrap interval over images.

    kappa is taken in each condition and averaged over conditions, then over pairs.
    Images are drawn within their condition, the same for all decision makers, who stay
    the ones there are. Returns value, low and high, of percentiles.
    """
    random = np.random.default_rng(seed)
    condition = np.asarray(condition or [""] * correct.shape[1])
    kappa = []
    for name in np.unique(condition):
        part = correct[:, condition == name]
        n = part.shape[1]
        drawn = random.multinomial(n, np.full(n, 1 / n), size=draws)
        weights = np.concatenate([np.ones((1, n)), drawn])
        kappa.append(_of(part, pairs, weights)[0].mean(1))
    means = np.mean(kappa, axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means[1:], (tail, 1 - tail))
    return float(means[0]), float(low), float(high)
