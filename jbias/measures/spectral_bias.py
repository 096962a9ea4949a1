"""Metrics of spectral bias: accuracy on low or high frequencies, relative to unchanged images.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, section 3.
Reference code: https://github.com/paulgavrikov/biases_vs_generalization. The text says
that four cut-offs are averaged; the published table averages five ("table" here).
"""

import numpy as np
from jaxtyping import Float

from jbias.measures import accuracy, decisions

CUTOFFS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
CONVENTIONS = {"": (0.1, 0.2, 0.3, 0.4, 0.5), "_text": (0.1, 0.2, 0.3, 0.4)}
CLEAN = "unfiltered"


def radius(cutoff: float, side: int, *, high: bool) -> int:
    """Return half the side of a filter's box, in pixels of the spectrum, rounded down.

    A low-pass filter keeps the frequencies in the box, a high-pass filter (`high`) removes
    them. cutoff: the share of each axis's frequencies that the filter keeps, in [0, 1]. side:
    image side in pixels.
    """
    return int((1 - cutoff if high else cutoff) * (side // 2))


def condition_name(cutoff: float, *, high: bool) -> str:
    """Return the name of a filter's condition, such as "low 0.3" or "high 0.5"."""
    return f"{'high' if high else 'low'} {cutoff:g}"


def bias(
    accuracies: Float[np.ndarray, "... cutoffs"], clean: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return the mean of `accuracies` over cut-offs, divided by `clean`; NaN if clean is 0.

    accuracies: on filtered images, by cut-off. clean: on unchanged images.
    """
    return decisions.ratio(np.mean(accuracies, axis=-1), clean)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, draws: int = 1000, seed: int = 0
) -> decisions.Numbers:
    """Return accuracies and their ratios to the clean accuracy by condition, and the biases.

    accuracy: by condition. accuracy_ratio: by condition, except CLEAN, the accuracy divided by the
    accuracy under CLEAN. low_freq_bias and high_freq_bias: the mean ratio over cut-offs 0.1 to 0.5,
    as in the published table; with the ending _text, over 0.1 to 0.4. spectral_ratio:
    high_freq_bias / (low_freq_bias + high_freq_bias). Biases whose cut-offs are not all measured
    are left out. Each bias and spectral_ratio is followed by the ends of its 95 % bootstrap
    interval over images and the share of undefined samples, as _lower, _upper and _undefined.
    Ratios and biases are None if the accuracy under CLEAN is 0. by_condition: decisions under CLEAN
    and the conditions of `condition_name`. draws: bootstrap samples.
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
