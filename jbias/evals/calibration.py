"""Does a network know how sure it may be?

Counted over images that have a right class among the decisions, by the probability of
the decided class, `confidence`, and that of the right one, `likelihood`. Both are among
the classes that are decided among. Where several of the network's classes answer for
one, they are what the rule makes of theirs, in shares of one (`predict.run_probe`): under
sum_prob the probability that the network gives to the group, of what it gives to all;
under another rule that rule's share, and what is measured is how far this can be trusted.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jbias.evals import decisions, probe

BINS = 15  # As Guo et al. have it.


class Reliability(NamedTuple):
    """Images in bins of confidence; means are NaN where a bin has none."""

    edges: Float[np.ndarray, "m+1"]
    count: Float[np.ndarray, "m"]
    confidence: Float[np.ndarray, "m"]  # Mean.
    accuracy: Float[np.ndarray, "m"]

    @property
    def error(self) -> float:
        """Expected calibration error: sum_m count_m / n |accuracy_m - confidence_m|."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(self.count * gaps) / self.count.sum())


def make(*, bins: int = BINS) -> probe.Probe:
    """Shows the images as they are; compares how sure the network is with how right."""
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"calibration: bins must be 1 or more, got {bins!r}")
    return probe.Probe({"": ()}, probe.identity, lambda by: numbers(by, bins=bins))


def numbers(
    by_rule: Mapping[str, decisions.Decisions], *, bins: int = BINS
) -> list[decisions.Number]:
    """What each rule's decisions tell; smaller is better in all.

    ece: expected calibration error over bins of equal width (Naeini et al. 2015, Guo et
      al. 2017, https://arxiv.org/abs/1706.04599); ece_mass: over bins of as equal a
      number of images as can be (Nguyen and O'Connor 2015).
    nll: mean of -log likelihood, in nats. A likelihood below the smallest normal
      float32, as an underflow leaves it, counts as that: 87.3.
    brier_top: mean of (confidence - right)^2, the Brier score of the decided class.
    """
    metrics, found = ("ece", "ece_mass", "nll", "brier_top"), []
    for rule, decided in by_rule.items():
        confidence, likelihood, right = _confidences(decided)
        values = dict.fromkeys(metrics)
        if n := len(right):
            values = {
                "ece": reliability(confidence, right, bins=bins).error,
                "ece_mass": reliability(
                    confidence, right, bins=bins, equal="mass"
                ).error,
                "nll": decisions.cross_entropy(likelihood),
                "brier_top": float(np.square(confidence - right).mean()),
            }
        for metric, value in values.items():
            found.append(decisions.Number(metric, value, None, n, rule))
    return found


def reliability(
    confidence: Float[np.ndarray, "n"],
    right: Bool[np.ndarray, "n"],
    *,
    bins: int = BINS,
    equal: str = "width",
) -> Reliability:
    """Sorts images into bins of confidence, of equal "width" or "mass".

    Of equal width they are ((m-1)/M, m/M], the first with 0, as Guo et al. have them; of
    equal mass those of np.array_split over the sorted images, ties in their order.
    """
    if equal not in ("width", "mass"):
        raise ValueError(f"calibration: equal must be 'width' or 'mass', got {equal!r}")
    confidence = np.asarray(confidence, np.float64)
    order = np.argsort(confidence, kind="stable")
    confidence, right = confidence[order], np.asarray(right, np.float64)[order]
    if equal == "width":
        edges = np.linspace(0, 1, bins + 1)
        ends = np.searchsorted(confidence, edges[1:-1], side="right")
        parts = np.split(np.arange(len(right)), ends)
    else:
        parts = np.array_split(np.arange(len(right)), bins)
        inner = [confidence[part[0]] if len(part) else 1.0 for part in parts[1:]]
        edges = np.array([0.0, *inner, 1.0])
    count = np.array([len(part) for part in parts], np.float64)

    def means(x):
        return np.array([x[part].mean() if len(part) else np.nan for part in parts])

    return Reliability(edges, count, means(confidence), means(right))


def of_decisions(
    decided: decisions.Decisions, *, bins: int = BINS, equal: str = "width"
) -> Reliability:
    """The bins of a network's decisions on one set."""
    confidence, _, right = _confidences(decided)
    return reliability(confidence, right, bins=bins, equal=equal)


def _confidences(
    decided: decisions.Decisions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence, likelihood and whether it is right, where there is a right class."""
    columns = decided.columns
    missing = [name for name in ("confidence", "likelihood") if name not in columns]
    if missing:
        raise ValueError(
            f"calibration: decisions must have a column {missing[0]}, got"
            f" {', '.join(columns)}; measure the checkpoint again"
        )
    kept = columns["label"] >= 0
    confidence = np.asarray(columns["confidence"], np.float64)[kept]
    likelihood = np.asarray(columns["likelihood"], np.float64)[kept]
    return confidence, likelihood, (decided.prediction == columns["label"])[kept]
