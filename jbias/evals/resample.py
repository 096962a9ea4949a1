"""Bootstrap over images of how often a network is right under several conditions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.evals import decisions

AT_ONCE = 1 << 22  # Drawn numbers held at a time.


def correct(
    by_condition: Mapping[str, decisions.Decisions],
) -> Bool[np.ndarray, "conditions n"]:
    """Which images are decided as labelled, a row a condition.

    ValueError where conditions were shown different numbers of images, or none.
    """
    rows = [one.prediction == one.columns["label"] for one in by_condition.values()]
    sizes = sorted({len(row) for row in rows})
    if len(sizes) != 1 or not sizes[0]:
        raise ValueError(
            "decisions: all conditions must be of the same images, at least one, got"
            f" {sizes} images"
        )
    return np.stack(rows)


def counts(
    marks: Bool[np.ndarray, "rows n"], *, draws: int, seed: int
) -> Int[np.ndarray, "draws rows"]:
    """Draws n of the n images with replacement, and counts each row's marks.

    The images of one draw are the same for all rows. Images with the same marks are
    drawn together, as one class of a multinomial: the same distribution for less.
    """
    patterns, sizes = np.unique(marks, axis=1, return_counts=True)
    n, rng = marks.shape[1], np.random.default_rng(seed)
    weights = patterns.T.astype(np.float64)  # Sums of counts stay exact.
    step = max(1, AT_ONCE // len(sizes))
    return np.concatenate(
        [
            rng.multinomial(n, sizes / n, min(step, draws - first)) @ weights
            for first in range(0, draws, step)
        ]
    ).astype(np.int64)


def interval(
    metric: str, drawn: Float[np.ndarray, "draws"], n: int, condition: str = ""
) -> list[decisions.Number]:
    """Percentiles 2.5 and 97.5 of what was drawn, as `metric`_lower and _upper.

    Draws without a value (NaN) are left out; their share is told as `metric`_undefined.
    """
    held = drawn[np.isfinite(drawn)]
    ends = np.quantile(held, (0.025, 0.975)) if len(held) else (None, None)
    missing = len(drawn) - len(held)
    return [
        number(f"{metric}_lower", ends[0], n, condition),
        number(f"{metric}_upper", ends[1], n, condition),
        decisions.Number(
            f"{metric}_undefined", missing / len(drawn), missing, len(drawn), condition
        ),
    ]


def number(metric: str, value: Any, n: int, condition: str = "") -> decisions.Number:
    """A measured value that is no share; None where it is undefined."""
    known = value is not None and np.isfinite(value)
    return decisions.Number(metric, float(value) if known else None, None, n, condition)
