"""Reliance on each cue, counted on images with every combination of cues.

Only images count on which the four cues stand for four different classes, so that a decision
follows one cue at most. The shares are of all such images and sum to 1.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jbias.data.embedded import cues
from jbias.measures import decisions

Ids = Int[np.ndarray, "n"]


class Reliance(NamedTuple):
    """Shares of decisions for the class of each cue, and for none; None without images.

    images: number of images whose four cues are of different classes.
    """

    shape: float | None
    texture: float | None
    colour: float | None
    size: float | None
    neither: float | None
    images: int


def reliance(prediction: Ids, shown: cues.Cues) -> Reliance:
    """Return the shares of decisions for each cue.

    prediction: the decided class of each image. shown: the cues of each image.
    """
    classes = shown.classes
    stacked = np.sort(np.stack([*classes.values()]), axis=0)
    differ = (stacked[1:] != stacked[:-1]).all(0)
    if not differ.any():
        return Reliance(None, None, None, None, None, images=0)
    shares = {
        name: float((prediction == of_cue)[differ].mean())
        for name, of_cue in classes.items()
    }
    neither = max(0.0, 1.0 - sum(shares.values()))
    return Reliance(**shares, neither=neither, images=int(differ.sum()))


def of_decisions(decided: decisions.Decisions) -> Reliance:
    """Return the reliance of decisions about the split "factorial" of the set "cues"."""
    columns: Mapping[str, Ids] = decided.columns
    shown = cues.Cues(
        shape=np.asarray(columns["shape"]),
        texture=np.asarray(columns["texture"]),
        colour=np.asarray(columns["colour"]),
        size=np.asarray(columns["size"]),
    )
    return reliance(np.asarray(decided.prediction), shown)
