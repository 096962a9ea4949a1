"""Does a network know how sure it may be?

Counted over images that have a right class among the decisions, by the probability of
the decided class, `confidence`, and that of the right one, `likelihood`. Both are among
the classes that are decided among. Where several of the network's classes answer for
one, they are what the rule makes of theirs, in shares of one (`inference.run_probe`): under
sum_prob the probability that the network gives to the group, of what it gives to all;
under another rule that rule's share, and what is measured is how far this can be trusted.
"""

import functools
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
    whole = isinstance(bins, int) and bins > 0
    probe.check(whole, "calibration", "bins must be 1 or more", bins)
    counted = functools.partial(numbers, bins=bins)
    return probe.Probe({"": ()}, probe.identity, counted, graded=True)


@decisions.per_condition
def numbers(decided: decisions.Decisions, *, bins: int = BINS) -> decisions.Numbers:
    """What each rule's decisions tell; smaller is better in all.

    ece: expected calibration error over bins of equal width (Naeini et al. 2015, Guo et
      al. 2017, https://arxiv.org/abs/1706.04599); ece_mass: over bins of as equal a
      number of images as can be (Nguyen and O'Connor 2015).
    nll: mean of -log likelihood, in nats. A likelihood below the smallest normal
      float32, as an underflow leaves it, counts as that: 87.3.
    brier_top: mean of (confidence - right)^2, the Brier score of the decided class.
    """
    confidence, likelihood, right = _confidences(decided)
    values = dict.fromkeys(("ece", "ece_mass", "nll", "brier_top"))
    if n := len(right):
        for metric, equal in (("ece", "width"), ("ece_mass", "mass")):
            sorted_in = reliability(confidence, right, bins=bins, equal=equal)
            values[metric] = sorted_in.error
        values["nll"] = decisions.cross_entropy(likelihood)
        values["brier_top"] = float(np.square(confidence - right).mean())
    return [decisions.Number(metric, x, None, n) for metric, x in values.items()]


def reliability(
    confidence: np.ndarray, right: Bool[np.ndarray, "n"], *, bins=BINS, equal="width"
) -> Reliability:
    """Sorts images into bins of confidence, of equal "width" or "mass".

    Of equal width they are ((m-1)/M, m/M], the first with 0, as Guo et al. have them; of
    equal mass those of np.array_split over the sorted images, ties in their order.
    """
    known, must = equal in ("width", "mass"), "equal must be 'width' or 'mass'"
    probe.check(known, "calibration", must, equal)
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


def of_decisions(decided: decisions.Decisions, *, bins: int = BINS) -> Reliability:
    """The bins of a network's decisions on one set."""
    confidence, _, right = _confidences(decided)
    return reliability(confidence, right, bins=bins)


def _confidences(
    decided: decisions.Decisions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence, likelihood and whether it is right, where there is a right class."""
    kept = decided.columns["label"] >= 0
    of = {"where": "calibration", "remedy": "measure the checkpoint again"}
    columns = (decided.column(name=x, **of) for x in ("confidence", "likelihood"))
    return *(x[kept].astype(np.float64) for x in columns), decided.right[kept]
