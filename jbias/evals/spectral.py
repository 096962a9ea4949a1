"""Spectral bias: how much of its accuracy a network keeps on low or high frequencies.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, section 3.
Reference code: https://github.com/paulgavrikov/biases_vs_generalization. The text says
that four cut-offs are averaged; the published table averages five ("table" here).
"""

import numpy as np
from jaxtyping import Float

from jbias.evals import accuracy, decisions

CUTOFFS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
CONVENTIONS = {"": (0.1, 0.2, 0.3, 0.4, 0.5), "_text": (0.1, 0.2, 0.3, 0.4)}
CLEAN = "unfiltered"


def radius(cutoff: float, side: int, *, high: bool) -> int:
    """Half the side of the box in pixels of the spectrum, int() of floats in Python.

    The box is what a low-pass filter keeps and what a high-pass filter takes away.
    """
    return int((1 - cutoff if high else cutoff) * (side // 2))


def condition_name(cutoff: float, *, high: bool) -> str:
    """A condition's name, such as "low 0.3"."""
    return f"{'high' if high else 'low'} {cutoff:g}"


def bias(
    accuracies: Float[np.ndarray, "... cutoffs"], clean: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """The mean over cut-offs of filtered by clean accuracy; NaN where clean is 0."""
    return decisions.ratio(np.mean(accuracies, axis=-1), clean)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, draws: int = 1000, seed: int = 0
) -> decisions.Numbers:
    """Accuracy and its ratio to the clean one by condition, and the biases.

    low_freq_bias and high_freq_bias: the mean ratio over cut-offs 0.1 to 0.5, as the
    published table has it; with _text at the end, over 0.1 to 0.4. spectral_ratio:
    high / (low + high), of the table's. Each is told where its cut-offs are measured;
    with _lower and _upper, 95 % intervals of a bootstrap over images.
    """
    row = {condition: i for i, condition in enumerate(by_condition)}
    counts, drawn, n = accuracy.resample(by_condition, draws=draws, seed=seed)
    told = []
    for condition, i in row.items():
        told.append(decisions.share("accuracy", counts[i], n, condition))
        if condition != CLEAN:
            ratio = bias(counts[[i]], counts[row[CLEAN]])
            told.append(decisions.quantity("accuracy_ratio", ratio, n, condition))
    values = {}
    for direction in ("low", "high"):
        for ending, points in CONVENTIONS.items():
            names = [condition_name(c, high=direction == "high") for c in points]
            if all(one in row for one in names):
                which = [row[one] for one in names]
                values[f"{direction}_freq_bias{ending}"] = [
                    bias(of[..., which], of[..., row[CLEAN]]) for of in (counts, drawn)
                ]
    if {"low_freq_bias", "high_freq_bias"} <= set(values):
        pairs = zip(values["low_freq_bias"], values["high_freq_bias"])
        values["spectral_ratio"] = [decisions.ratio(b, a + b) for a, b in pairs]
    for metric, (value, resampled) in values.items():
        told.append(decisions.quantity(metric, value, n))
        told.extend(accuracy.bootstrap_interval(metric, resampled, n, value=value))
    return told
