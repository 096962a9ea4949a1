"""Errors of calibration: how well a network's confidences match its accuracy.

The errors are computed from two columns of the decisions, on images that have a correct class among
the decision classes: `confidence`, the probability of the decided class, and `likelihood`, the
probability of the correct class. Both columns are probabilities among the decision classes. If
several network classes belong to one decision class, the probability of the decision class is the
aggregate of these network classes, by the rule of the decisions, divided by the sum over decision
classes (`inference.run_probe`). With the rule sum_prob, this is the network's probability of the
decision class among all decision classes.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jbias import errors
from jbias.measures import counting, decisions

BINS = 15  # As in Guo et al.


class Reliability(NamedTuple):
    """Images in bins of confidence; means of empty bins are NaN."""

    edges: Float[np.ndarray, "m+1"]  # Edges of the m bins, from 0 to 1.
    count: Float[np.ndarray, "m"]  # Number of images.
    confidence: Float[np.ndarray, "m"]  # Mean confidence.
    accuracy: Float[np.ndarray, "m"]  # In [0, 1].

    @property
    def error(self) -> float:
        """Return the expected calibration error, sum_m count_m / n |accuracy_m - confidence_m|."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(self.count * gaps) / self.count.sum())


def make(*, bins: int = BINS) -> counting.Counting:
    """Return a probe that shows unchanged images and measures calibration.

    bins: the number of bins of confidence. Metrics: see `numbers`. ValueError unless bins is
    1 or more.
    """
    is_count = isinstance(bins, int) and bins > 0
    errors.check(is_count, "calibration", "be 1 or more", bins, name="bins")
    return counting.Counting(functools.partial(numbers, bins=bins), graded=True)


@decisions.per_condition
def numbers(decided: decisions.Decisions, *, bins: int = BINS) -> decisions.Numbers:
    """Return four errors of calibration per condition, each better if smaller.

    The first argument is a mapping from condition to decisions (`decisions.per_condition`).
    bins: the number of bins of confidence. Values are None if no image has a correct class.
    ValueError without columns "confidence" and "likelihood".

    ece: expected calibration error over bins of equal width (Naeini et al. 2015, Guo et
      al. 2017, https://arxiv.org/abs/1706.04599); ece_mass: over bins with numbers of
      images as equal as possible (Nguyen and O'Connor 2015).
    nll: mean of -log likelihood, in nats; see decisions.cross_entropy.
    brier_top: mean of (confidence - c)^2, with c = 1 if the decision is correct, else 0: the Brier
      score of the decided class.
    """
    confidence, likelihood, right = _confidences(decided)
    values = dict.fromkeys(("ece", "ece_mass", "nll", "brier_top"))
    n = len(right)
    if n:
        for metric, equal in (("ece", "width"), ("ece_mass", "mass")):
            binned = reliability(confidence, right, bins=bins, equal=equal)
            values[metric] = binned.error
        values["nll"] = decisions.cross_entropy(likelihood)
        values["brier_top"] = float(np.square(confidence - right).mean())
    return [
        decisions.Number(metric, value, None, n) for metric, value in values.items()
    ]


def reliability(
    confidence: Float[np.ndarray, "n"],
    right: Bool[np.ndarray, "n"],
    *,
    bins: int = BINS,
    equal: str = "width",
) -> Reliability:
    """Return count, mean confidence and accuracy of images in bins of confidence.

    confidence, right: by image, the probability of the decided class, and whether the decided class
    is correct. bins: the number of bins. equal: "width" or "mass"; ValueError otherwise. Bins of
    equal width are ((m-1)/M, m/M], as in Guo et al.; the first also contains 0. Bins of equal mass
    are formed by np.array_split over the sorted images, with ties in their order; the edge between
    two bins is the smallest confidence in the upper bin.
    """
    is_known = equal in ("width", "mass")
    errors.check(is_known, "calibration", "be 'width' or 'mass'", equal, name="equal")
    confidence = np.asarray(confidence, np.float64)
    order = np.argsort(confidence, kind="stable")
    confidence, right = confidence[order], np.asarray(right, np.float64)[order]
    if equal == "width":
        edges = np.linspace(0, 1, bins + 1)
        ends = np.searchsorted(confidence, edges[1:-1], side="right")
        rows_by_bin = np.split(np.arange(len(right)), ends)
    else:
        rows_by_bin = np.array_split(np.arange(len(right)), bins)
        inner = [confidence[rows[0]] if len(rows) else 1.0 for rows in rows_by_bin[1:]]
        edges = np.array([0.0, *inner, 1.0])
    count = np.array([len(rows) for rows in rows_by_bin], np.float64)

    def means(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "m"]:
        return np.array(
            [x[rows].mean() if len(rows) else np.nan for rows in rows_by_bin]
        )

    return Reliability(edges, count, means(confidence), means(right))


def of_decisions(decided: decisions.Decisions, *, bins: int = BINS) -> Reliability:
    """Return the result of `reliability` for the decisions on images that have a correct class.

    bins: the number of bins, of equal width. ValueError without columns "confidence" and
    "likelihood".
    """
    confidence, _, right = _confidences(decided)
    return reliability(confidence, right, bins=bins)


def _confidences(
    decided: decisions.Decisions,
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
    """Return (confidence, likelihood, is correct) of the n images with a correct class.

    ValueError without columns "confidence" and "likelihood".
    """
    has_class = decided.columns["label"] >= 0
    remedy = "measure the checkpoint again"
    confidence = decided.column("calibration", "confidence", remedy)
    likelihood = decided.column("calibration", "likelihood", remedy)
    return (
        confidence[has_class].astype(np.float64),
        likelihood[has_class].astype(np.float64),
        decided.right[has_class],
    )
