"""Changes of labels: smoothing, and a yes-or-no question per class.

smooth_labels: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016,
https://arxiv.org/abs/1512.00567.
binary_targets: Beyer et al., "Are we done with ImageNet?", 2020,
https://arxiv.org/abs/2006.07159; with a threshold in Wightman, Touvron and Jegou, "ResNet
strikes back", 2021, https://arxiv.org/abs/2110.00476. Deviation: the loss is the mean over
classes (`jbias.algos.base.objective`), as in timm; Beyer et al. take the sum.
"""

from collections.abc import Callable

from jbias.augment import options


def smooth_labels(*, smoothing: float = 0.1) -> Callable:
    """target' = (1 - e) target + e / k for k classes, e the smoothing."""
    options.check_range("smooth_labels", "smoothing", smoothing, 0, 1)

    def apply(batch, key):
        if options.is_statically(smoothing, 0):
            return batch
        target = batch["target"]
        smooth = (1 - smoothing) * target + smoothing / target.shape[-1]
        return {**batch, "target": smooth}

    return apply


def binary_targets(*, threshold: float | None = None) -> Callable:
    """Trains with the binary cross-entropy of each class.

    With a threshold, targets above it become 1 and the others 0, so that after mixing
    both classes are a yes.
    """
    options.check_range("binary_targets", "threshold", threshold, 0, 1)

    def apply(batch, key):
        target = batch["target"]
        if threshold is not None:
            target = (target > threshold).astype(target.dtype)
        return {**batch, "target": target, "binary": True}

    return apply
