"""Edges or texture: how much accuracy is left on diffused images and on shuffled cells.

Source: Heinert, Gottwald, Mütze and Rottmann 2025, https://arxiv.org/abs/2503.12453. No code
of theirs for classification is known: the formulas are those of a co-author's for
segmentation, https://github.com/felixstillger/synth2real-nir-segmentation at e3c21eb, with
accuracy in the place of mean IoU. `edge_diffusion` makes the stimuli.
"""

import numpy as np
from jaxtyping import Float

from jbias.evals import accuracy, decisions

DIFFUSED, SHUFFLED = "diffused", "cells"
Share = Float[np.ndarray, "*n"]


def robustness(original: Share, diffused: Share, shuffled: Share) -> Share:
    """R_cd = (Q_S + Q_T) / (2 Q_O), of accuracies; 1 where nothing is lost, NaN of Q_O = 0."""
    return decisions.ratio(np.add(diffused, shuffled), 2 * np.asarray(original))


def shape_part(diffused: Share, shuffled: Share) -> Share:
    """S_cd = (Q_S / s) / (Q_S / s + Q_T / t), of several networks' accuracies.

    s and t are the means of Q_S and Q_T over the networks, so that a value is one among these
    alone: 1/2 of a network that keeps as much of either as they do in the mean. In [0, 1];
    NaN where both are 0, or s or t is.
    """
    shape, texture = (decisions.ratio(x, np.mean(x)) for x in (diffused, shuffled))
    return decisions.ratio(shape, shape + texture)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, draws: int = 1000, seed: int = 0
) -> decisions.Numbers:
    """Accuracy by condition, and cue_robustness, R_cd, with its bootstrap over images.

    cue_robustness_lower and cue_robustness_upper are the middle 95 % of `draws`. Of one
    network there is no S_cd: `shape_part` takes several.
    """
    counts, drawn, n = accuracy.resample(by_condition, draws=draws, seed=seed)
    named = zip(by_condition, counts, strict=True)
    told = [decisions.share("accuracy", count, n, name) for name, count in named]
    value, resampled = (robustness(*np.moveaxis(x, -1, 0)) for x in (counts, drawn))
    told.append(decisions.quantity("cue_robustness", value, n))
    ends = accuracy.bootstrap_interval("cue_robustness", resampled, n, value=value)
    return [*told, *ends]
