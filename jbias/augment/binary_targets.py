"""Makes of each class a yes-or-no question of its own.

Source: Beyer et al., "Are we done with ImageNet?", 2020,
https://arxiv.org/abs/2006.07159; with a threshold in Wightman, Touvron and Jegou,
"ResNet strikes back", 2021, https://arxiv.org/abs/2110.00476.
Deviation: the loss is the mean over classes (`jbias.algos.base.objective`), as in timm;
Beyer et al. take the sum.
"""

from collections.abc import Callable

from jbias.augment import options


def make(*, threshold: float | None = None) -> Callable:
    """Trains with the binary cross-entropy of each class.

    With a threshold, targets above it become 1 and the others 0, so that after mixing
    both classes are a yes.
    """
    options.within("binary_targets", "threshold", threshold, 0, 1)

    def apply(batch, key):
        del key
        target = batch["target"]
        if threshold is not None:
            target = (target > threshold).astype(target.dtype)
        return {**batch, "target": target, "binary": True}

    return apply
