"""Ties in spite of rounding: differences of scores that should be equal rarely are."""

import numpy as np
from jaxtyping import Float, Int

_DIGITS = 1e-12  # Of float64, less what sums lose.


def near_levels(
    values: Float[np.ndarray, "*m n"], tolerance: float | Float[np.ndarray, "*m 1"]
) -> Int[np.ndarray, "*m n"]:
    """Numbers values along the last axis: neighbours within `tolerance` share a number.

    0 is the lowest, and ranks of these numbers are ranks of the values with their ties.
    Rounding would part neighbours at the edge between two rounded values.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    steps = np.diff(np.take_along_axis(values, order, axis=-1), axis=-1) > tolerance
    levels = np.zeros(values.shape, dtype=np.int64)
    climbed = np.concatenate([levels[..., :1], np.cumsum(steps, axis=-1)], axis=-1)
    np.put_along_axis(levels, order, climbed, axis=-1)
    return levels


def tolerated(tolerance: float | None, scores: Float[np.ndarray, "n k"]) -> float:
    """Gives the tolerance back; refuses one that would blot out what differs.

    None is 2e-7 of what all scores span, the last digits of float32, and never below those
    of the largest score in float64. Images of 50,000 and 50 runs tell more apart than that.
    """
    spread = float(np.ptp(scores))
    if tolerance is None:
        return max(2e-7 * spread, _DIGITS * float(np.abs(scores).max()))
    if not 0 <= tolerance or 0 < spread < 1000 * tolerance:
        raise ValueError(
            "tolerance: must be from 0 to a thousandth of what the scores span, got "
            f"{tolerance} for {spread:.3g}; scale the scores or take a smaller one"
        )
    return tolerance


def rounding(values: Float[np.ndarray, "n k r"]) -> Float[np.ndarray, "n 1"]:
    """Gives how close two means of a data set are that differ by rounding alone.

    Of the data set's largest score, for data sets may have different units where only
    scores of one are compared. NaN counts as none.
    """
    return _DIGITS * np.nanmax(np.abs(values), axis=(1, 2))[:, None]
