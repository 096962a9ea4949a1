"""Smooths labels: some of each target goes to all classes alike.

Source: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016,
https://arxiv.org/abs/1512.00567.
"""

from collections.abc import Callable

from jbias.augment import options


def make(*, smoothing: float = 0.1) -> Callable:
    """target' = (1 - e) target + e / k for k classes, e the smoothing."""
    options.within("smooth_labels", "smoothing", smoothing, 0, 1)

    def apply(batch, key):
        del key
        if options.surely(smoothing, 0):
            return batch
        target = batch["target"]
        smooth = (1 - smoothing) * target + smoothing / target.shape[-1]
        return {**batch, "target": smooth}

    return apply
