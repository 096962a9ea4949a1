"""Ranks of the class of an image's only cue among all classes of a network (REFINED-BIAS).

Source: Kim et al. 2026, https://arxiv.org/abs/2603.10834; reference code:
https://github.com/PumjunKim/REFINED-BIAS at 8655b6b, eval_refined_bias.py. Deviations: see
jbias/measures/cue_conflict.py, whose ranks are used.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jbias.measures import cue_conflict, decisions

# The column of ranks, and the column of the classes that are ranked.
RANKED: Mapping[str, str] = {"rank_label": "label"}
_CUES = ("shape", "texture")  # In the order of the numbers in the column "cue".


def measure(decided: decisions.Decisions) -> decisions.Numbers:
    """Return the mean reciprocal ranks of shape and of texture, and their balance.

    mrr_shape, mrr_texture: the mean of 1 / rank of the label over the images that show this cue,
    and, with the condition "class=<class id>", over the images of one class. The rank is that of
    the best member of the label among all classes of the network, 1 for the first; an image
    without a rank (its logits are NaN, or the network lacks the class) counts as 0.
    mrr_relative: mrr_shape / (mrr_shape + mrr_texture), if images show both cues.

    The list is empty without a column "rank_label", as for networks that give names of classes
    only. ValueError without a column "cue".
    """
    cue = decided.column("cue_rank", "cue", "measure it on the set refined_bias")
    if "rank_label" not in decided.columns:
        return []
    ranks = np.asarray(decided.columns["rank_label"])
    reciprocal = np.divide(1.0, ranks, out=np.zeros(len(ranks)), where=ranks > 0)
    label = np.asarray(decided.columns["label"])
    means = {
        name: reciprocal[cue == number].mean()
        for number, name in enumerate(_CUES)
        if (cue == number).any()
    }
    numbers = [
        decisions.quantity(f"mrr_{name}", mean, int((cue == _CUES.index(name)).sum()))
        for name, mean in means.items()
    ]
    if len(means) == len(_CUES):
        relative = decisions.ratio(means["shape"], sum(means.values()))
        numbers.append(decisions.quantity("mrr_relative", relative, len(ranks)))
    for name in means:
        rows = cue == _CUES.index(name)
        numbers += _by_class(f"mrr_{name}", reciprocal[rows], label[rows])
    return numbers


def _by_class(
    metric: str, reciprocal: np.ndarray, label: np.ndarray
) -> Iterator[decisions.Number]:
    """Yield the mean of `reciprocal` over the images of each class (label)."""
    for class_id in np.unique(label[label >= 0]):
        values = reciprocal[label == class_id]
        condition = f"class={class_id}"
        yield decisions.quantity(metric, values.mean(), len(values), condition)


def ranked_columns(measures: Sequence[str]) -> dict[str, str]:
    """Return the columns of ranks that measures need, with the columns that are ranked.

    measures: names in evals.MEASURES. The result is {} or such as {"rank_label": "label"}.
    """
    ranked: dict[str, str] = {}
    if "shape_bias" in measures:
        ranked.update(cue_conflict.RANKED)
    if "cue_rank" in measures:
        ranked.update(RANKED)
    return ranked
