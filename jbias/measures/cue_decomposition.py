"""Metrics of cue decomposition: accuracy on images with edges only, and with texture only.

Source: Heinert, Gottwald, Mütze and Rottmann 2025, https://arxiv.org/abs/2503.12453. Their
code for classification is not public: the formulas are from a co-author's code for segmentation,
https://github.com/felixstillger/synth2real-nir-segmentation at e3c21eb, with accuracy instead of
mean IoU. `edge_diffusion` makes the stimuli.
"""

import numpy as np
from jaxtyping import Float

from jbias.measures import accuracy, decisions

DIFFUSED, SHUFFLED = "diffused", "cells"
Share = Float[np.ndarray, "*n"]  # Accuracy in [0, 1], by network.


def robustness(original: Share, diffused: Share, shuffled: Share) -> Share:
    """Return the cue robustness R_cd = (Q_S + Q_T) / (2 Q_O); 1 without a loss, NaN if Q_O is 0.

    original, diffused, shuffled: the accuracies Q_O, Q_S and Q_T, of networks or samples.
    """
    return decisions.ratio(np.add(diffused, shuffled), 2 * np.asarray(original))


def shape_part(diffused: Share, shuffled: Share) -> Share:
    """Return the shape part S_cd = (Q_S / s) / (Q_S / s + Q_T / t) of each network, in [0, 1].

    diffused, shuffled: the accuracies Q_S and Q_T; s and t are their means over the networks,
    so that values are comparable among these networks only: 1/2 for a network with average
    Q_S and Q_T. NaN if both accuracies are 0, or if s or t is 0.
    """
    shape, texture = (decisions.ratio(x, np.mean(x)) for x in (diffused, shuffled))
    return decisions.ratio(shape, shape + texture)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, draws: int = 1000, seed: int = 0
) -> decisions.Numbers:
    """Return the accuracy of each condition, and cue_robustness, the result of `robustness`.

    by_condition: decisions on unchanged, diffused and shuffled images, in this order.
    cue_robustness_lower and cue_robustness_upper: a bootstrap interval of 95 % over images,
    with `draws` samples; cue_robustness_undefined: the share of samples without a value.
    ValueError unless all conditions have the same number of images, at least one. S_cd needs
    several networks: see `shape_part`.
    """
    counts, drawn, n = accuracy.resample(by_condition, draws=draws, seed=seed)
    accuracies = [
        decisions.share("accuracy", count, n, name)
        for name, count in zip(by_condition, counts, strict=True)
    ]
    value, drawn_values = (
        robustness(x[..., 0], x[..., 1], x[..., 2]) for x in (counts, drawn)
    )
    return [
        *accuracies,
        decisions.quantity("cue_robustness", value, n),
        *accuracy.bootstrap_interval("cue_robustness", drawn_values, n, value=value),
    ]
