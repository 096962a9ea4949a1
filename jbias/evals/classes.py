"""What becomes of each class: its accuracy, and what it is taken for."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from jbias.evals import decisions, probe


def make(*, classes: Sequence[str] = ()) -> probe.Probe:
    """Shows the images as they are; counts the accuracy of each class.

    classes: the names of the decision classes; without them a class is named by its
    number.
    """
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise ValueError(
            f"classes: classes must be a sequence of names, got {classes!r}"
        )
    counted = functools.partial(numbers, classes=tuple(classes))
    return probe.Probe({"": ()}, probe.as_it_is, counted)


def numbers(
    by_rule: Mapping[str, decisions.Decisions], *, classes: Sequence[str] = ()
) -> list[decisions.Number]:
    """class_accuracy of each class that has images, as the condition "class=cat"."""
    found = []
    for rule, decided in by_rule.items():
        label = decided.columns["label"]
        for one in np.unique(label[label >= 0]):
            right = decided.prediction[label == one] == one
            count, n = int(right.sum()), len(right)
            name = f"{rule} class={classes[one] if classes else one}".strip()
            found.append(decisions.Number("class_accuracy", count / n, count, n, name))
    return found


def confusion(
    response: Int[np.ndarray, "n"], label: Int[np.ndarray, "n"], k: int
) -> Float[np.ndarray, "rows k"]:
    """Which per cent of each class (a column) gets which response (a row).

    Columns sum to 100; one of a class without images is NaN. A last row, for none of
    the k, is there where some response is negative; images without a label are left out.
    """
    response, label = np.asarray(response), np.asarray(label)
    unanswered = (response < 0).any()
    kept = label >= 0
    rows = np.where(response < 0, k, response)[kept]
    counts = np.zeros((k + unanswered, k))
    np.add.at(counts, (rows, label[kept]), 1)
    totals = counts.sum(0)
    return 100 * np.divide(
        counts, totals, out=np.full_like(counts, np.nan), where=totals > 0
    )


def entropy(response: Int[np.ndarray, "n"], k: int) -> float:
    """Entropy of the responses in bits, at most log2(k); none of the k adds nothing.

    - sum_c p_c log2 p_c, p_c the share of all responses that are c. A class that has no
    images counts as any other: the bound stays log2(k), and who never answers it has less.
    """
    response = np.asarray(response)
    share = np.bincount(response[response >= 0], minlength=k) / len(response)
    share = share[share > 0]
    return max(0.0, float(-(share * np.log2(share)).sum()))
