"""Top-1 accuracy as integer counts."""

from jbias.evals import decisions


def accuracy(decided: decisions.Decisions) -> list[decisions.Number]:
    """The share of images whose predicted class is their label."""
    n = len(decided.prediction)
    correct = int((decided.prediction == decided.columns["label"]).sum())
    return [decisions.Number("accuracy", correct / n, correct, n)]
