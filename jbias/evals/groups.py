"""Accuracy by group, a class with a value of an attribute: the worst, and balanced means.

Worst-group accuracy: Sagawa, Koh, Hashimoto and Liang, ICLR 2020,
https://arxiv.org/abs/1911.08731. There groups without images do not occur; here they have
no part in any number.
"""

import numpy as np

from jbias.evals import cells, decisions

SHOWN = 64  # So many groups are told one by one.


def by_group(
    decided: decisions.Decisions, *, attribute: str = "attribute"
) -> list[decisions.Number]:
    """Accuracies over the groups (class, value) that have images.

    "worst_group_accuracy" is the accuracy of the worst group, the larger of two alike;
    "group_balanced_accuracy" and "class_balanced_accuracy" are means of the accuracies of
    groups and of classes; "group_accuracy" is each group's, as the condition
    "group=<class>/<value>" in numbers, where there are at most 64. Images without a class
    or a value (negative) count for nothing. ValueError without such a column.
    """
    columns = decided.columns
    if attribute not in columns:
        raise ValueError(
            f"groups: decisions must have a column {attribute!r}, got"
            f" {', '.join(columns)}; open the set with its attribute"
        )
    label = np.asarray(columns["label"])
    value = np.asarray(columns[attribute])
    n = cells.count(label, value)
    right = cells.sums(decided.prediction == label, label, value, n.shape)
    right = right.astype(np.int64)
    (row, column), total = np.nonzero(n), int(n.sum())
    if not total:
        return []
    share = right[row, column] / n[row, column]
    worst = np.lexsort((-n[row, column], share))[0]
    classes = n.sum(1) > 0
    by_class = right.sum(1)[classes] / n.sum(1)[classes]
    least = int(right[row, column][worst]), int(n[row, column][worst])
    number = decisions.Number
    found = [
        number("worst_group_accuracy", least[0] / least[1], *least),
        number("group_balanced_accuracy", float(share.mean()), None, total),
        number("class_balanced_accuracy", float(by_class.mean()), None, total),
    ]
    if len(share) <= SHOWN:
        for k, a in zip(row.tolist(), column.tolist(), strict=True):
            counts = int(right[k, a]), int(n[k, a])
            told = counts[0] / counts[1], *counts, f"group={k}/{a}"
            found.append(number("group_accuracy", *told))
    return found
