"""Which of two stacked images a network answers, by the class of the other one."""

import numpy as np

from jbias.evals import decisions


def halves(decided: decisions.Decisions) -> list[decisions.Number]:
    """How often answers follow the other half where the two are of different classes.

    "label" is the class of the half that is asked for, "texture" that of the other.
    "follows_label" and "follows_other" are shares of answers among all images with a
    conflict; "follows_other" also by the class of the other half ("other 3"), so that
    with digits as the other half it tells which digits win. Nothing where no two halves
    conflict, as in training.
    """
    label, other = (np.asarray(decided.columns[c]) for c in ("label", "texture"))
    answer = np.asarray(decided.prediction)
    known = (label >= 0) & (other >= 0) & (label != other)
    if not known.any():
        return []

    def number(metric, hit, among, condition=""):
        count, n = int((hit & among).sum()), int(among.sum())
        return decisions.Number(metric, count / n, count, n, condition)

    found = [
        number("follows_label", answer == label, known),
        number("follows_other", answer == other, known),
    ]
    for k in np.unique(other[known]).tolist():
        hit, among = answer == other, known & (other == k)
        found.append(number("follows_other", hit, among, f"other {k}"))
    return found
