"""Top-1 accuracy as integer counts, by one right class an image or by several."""

import numpy as np

from jbias.evals import decisions


def accuracy(decided: decisions.Decisions) -> list[decisions.Number]:
    """The share of images whose predicted class is their label."""
    n = len(decided.prediction)
    correct = int((decided.prediction == decided.columns["label"]).sum())
    return [decisions.Number("accuracy", correct / n, correct, n)]


def real_accuracy(decided: decisions.Decisions) -> list[decisions.Number]:
    """The share of images whose predicted class is among the right ones, as ReaL has it.

    These are the columns accepted_0, accepted_1, ..., with -1 where an image has fewer.
    An image without any is left out of the count.
    Source: Beyer et al. 2020, https://arxiv.org/abs/2006.07159.
    """
    columns = decided.columns
    names = [name for name in columns if name.startswith("accepted_")]
    if not names:
        raise ValueError(
            "real_accuracy: decisions must have columns accepted_0, accepted_1, ..., got"
            f" {', '.join(columns)}; open the set with its accepted classes"
        )
    accepted = np.stack([columns[name] for name in names])
    correct = int((accepted == decided.prediction).any(0).sum())
    n = int((accepted >= 0).any(0).sum())
    return [decisions.Number("real_accuracy", correct / n if n else None, correct, n)]
