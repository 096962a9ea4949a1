"""Comparisons of many pairs of methods at once, with the results of `sequential.compare`.

`sequential.compare` searches the interval after each look of one comparison. Here only the latest
interval is searched, of all comparisons together, so a thousand comparisons take a tenth of a
second.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float

from jbias import errors
from jbias.stats import sequential

# Bisections of an interval in [0, 1]: the error of an end is below 1e-10.
_BISECTIONS = 34


@dataclasses.dataclass(frozen=True, eq=False)
class BatchResult:
    """Comparisons of k pairs of methods, each after the same number of pairs of scores.

    decision: "a", "b", "equivalent" or None, see `sequential.SequentialResult`. stopped_at: number
    of looks after which the comparison was decided; NaN if it is not decided. difference, lower,
    upper: the latest estimate of the difference a - b, and the ends of its confidence sequence, in
    the unit of the scores. evalue: the latest e-value against "the difference is 0". missing:
    logarithm of the factor by which an e-value would have to be larger for a decision; 0 if the
    comparison is decided.
    """

    decision: tuple[sequential.Decision | None, ...]
    stopped_at: Float[np.ndarray, "k"]
    difference: Float[np.ndarray, "k"]
    lower: Float[np.ndarray, "k"]
    upper: Float[np.ndarray, "k"]
    evalue: Float[np.ndarray, "k"]
    missing: Float[np.ndarray, "k"]


def compare_batch(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    points: float | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> BatchResult:
    """Return k comparisons of mean scores, each as `sequential.compare` makes it at level alpha.

    a, b: scores of shape (k, n), in order of arrival; a[i, j] and b[i, j] are of the same seed.
    n must be at least 1. alpha, points, bounds: see `sequential.compare`. alpha is the level of each
    comparison.
    Raise ValueError for scores that are NaN or outside of `bounds`, for other shapes, for alpha
    outside of (0, 1) and for points that `sequential.compare` refuses.
    """
    errors.check_share("alpha", alpha)
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    is_matrix = first.ndim == 2 and first.shape == second.shape and first.shape[1] > 0
    errors.check(
        is_matrix,
        "a and b",
        "have one shape (comparisons, pairs)",
        (first.shape, second.shape),
    )
    low, high = map(float, bounds)
    for name, scores in (("a", first), ("b", second)):
        is_valid = (scores >= low) & (scores <= high)  # False for NaN.
        errors.check(bool(is_valid.all()), name, f"be from {low:g} to {high:g}", scores)
    margin = sequential.margin_of_range(points, quantity="mean", bounds=bounds)
    unit = high - low
    values = (1 + (first - second) / unit) / 2
    logs = sequential.log_evalues(values, 0.5)
    means = _running_means(values)
    differs = logs >= -math.log(alpha)
    is_equivalent = np.zeros_like(differs)
    missing = -math.log(alpha) - logs.max(axis=1)
    if margin:
        is_equivalent, missing_equivalence = _equivalence(values, margin, alpha)
        missing = np.minimum(missing, missing_equivalence)
    is_decided = differs | is_equivalent
    looks = np.argmax(is_decided, axis=1)
    rows = np.arange(len(values))
    sides = np.where(means[rows, looks] > 0.5, "a", "b")
    names = np.where(is_equivalent[rows, looks], "equivalent", sides)
    has_decision = is_decided.any(axis=1)
    return BatchResult(
        decision=tuple(
            str(name) if decided else None for name, decided in zip(names, has_decision)
        ),
        stopped_at=np.where(has_decision, looks + 1, np.nan),
        difference=unit * (2 * means[:, -1] - 1),
        lower=unit * (2 * _lower_end(values, alpha) - 1),
        upper=unit * (1 - 2 * _lower_end(1 - values, alpha)),
        evalue=np.exp(np.minimum(logs[:, -1], sequential.MOST_LOG_EVALUE)),
        missing=np.maximum(missing, 0),
    )


def _equivalence(
    values: Float[np.ndarray, "k n"], margin: float, alpha: float
) -> tuple[Bool[np.ndarray, "k n"], Float[np.ndarray, "k"]]:
    """Return (is the difference shown to be smaller than the margin at a look, what is missing).

    A look shows equivalence if it and the looks before excluded both ends of the margin. The second
    array is the logarithm of the factor that is missing to the e-value against the farther end.
    margin: a share of the range of scores.
    """
    means = _running_means(values)
    low, high = (1 - margin) / 2, (1 + margin) / 2
    logs = (
        np.where(means > low, sequential.log_evalues(values, low), -np.inf),
        np.where(means < high, sequential.log_evalues(values, high), -np.inf),
    )
    largest = np.minimum(*(np.maximum.accumulate(array, axis=1) for array in logs))
    threshold = -math.log(alpha)
    return largest >= threshold, threshold - largest[:, -1]


def _lower_end(
    values: Float[np.ndarray, "k n"], alpha: float
) -> Float[np.ndarray, "k"]:
    """Return the lower ends of the latest intervals for the means of values in [0, 1].

    The interval after a look ends at the largest m below the mean so far whose e-value reaches
    1 / alpha; the latest interval starts at the largest of these ends. All smaller m are excluded
    at the same look, so the end is found by bisection.
    """
    means = _running_means(values)
    low, high = np.zeros(len(values)), means.max(axis=1)
    for _ in range(_BISECTIONS):
        middle = np.clip((low + high) / 2, 1e-12, 1 - 1e-12)[:, None]
        logs = sequential.log_evalues(values, middle)
        is_excluded = ((logs >= -math.log(alpha)) & (means > middle)).any(axis=1)
        low = np.where(is_excluded, middle[:, 0], low)
        high = np.where(is_excluded, high, middle[:, 0])
    return low


def _running_means(values: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k n"]:
    """Return the mean of the first 1 to n values of each row."""
    return np.cumsum(values, axis=1) / np.arange(1, values.shape[1] + 1)
