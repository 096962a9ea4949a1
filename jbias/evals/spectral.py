"""Spectral bias: the share of its accuracy that a network keeps on low or high frequencies.

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
    """Return half the side of the box in pixels of the spectrum, rounded down.

    A low-pass filter keeps the box, and a high-pass filter removes it. side: of the image.
    """
    return int((1 - cutoff if high else cutoff) * (side // 2))


def condition_name(cutoff: float, *, high: bool) -> str:
    """Return a condition's name, such as "low 0.3"."""
    return f"{'high' if high else 'low'} {cutoff:g}"


def bias(
    accuracies: Float[np.ndarray, "... cutoffs"], clean: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return the mean over cut-offs of filtered accuracy by clean accuracy; NaN if clean is 0."""
    return decisions.ratio(np.mean(accuracies, axis=-1), clean)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, draws: int = 1000, seed: int = 0
) -> decisions.Numbers:
    """Return accuracies and their ratios to the clean accuracy by condition, and the biases.

    low_freq_bias and high_freq_bias: the mean ratio over cut-offs 0.1 to 0.5, as in the
    published table; with the ending _text, over 0.1 to 0.4. spectral_ratio: high / (low +
    high) of the former. Biases whose cut-offs are not all measured are left out. With _lower
    and _upper, 95 % intervals of a bootstrap over images.
    """
    row = {condition: i for i, condition in enumerate(by_condition)}
    counts, drawn, n = accuracy.resample(by_condition, draws=draws, seed=seed)
    numbers = []
    for condition, i in row.items():
        numbers.append(decisions.share("accuracy", counts[i], n, condition))
        if condition != CLEAN:
            ratio = bias(counts[[i]], counts[row[CLEAN]])
            numbers.append(decisions.quantity("accuracy_ratio", ratio, n, condition))
    values = {}  # By metric, of the images and of the bootstrap samples.
    for direction in ("low", "high"):
        for ending, cutoffs in CONVENTIONS.items():
            names = [condition_name(c, high=direction == "high") for c in cutoffs]
            if all(name in row for name in names):
                rows = [row[name] for name in names]
                values[f"{direction}_freq_bias{ending}"] = [
                    bias(x[..., rows], x[..., row[CLEAN]]) for x in (counts, drawn)
                ]
    if {"low_freq_bias", "high_freq_bias"} <= set(values):
        pairs = zip(values["low_freq_bias"], values["high_freq_bias"])
        values["spectral_ratio"] = [
            decisions.ratio(high, low + high) for low, high in pairs
        ]
    for metric, (value, drawn_values) in values.items():
        numbers.append(decisions.quantity(metric, value, n))
        numbers += accuracy.bootstrap_interval(metric, drawn_values, n, value=value)
    return numbers
