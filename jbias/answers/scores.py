"""Scores of observers: shares of images, counted for every observer of a panel.

A `Score` has the counts by image, so that intervals, ranks and comparisons can draw images. The
functions of `jbias.stats.ratios` and `jbias.stats.rank_intervals` take its arrays.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Shaped

from jbias.answers import observers, stimulus_names


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Score:
    """A share per observer: images that count as 1, of the images that count at all.

    Columns of the arrays are the images of the score, rows the observers of the panel.
    """

    name: str  # "shape_bias" or "accuracy".
    numerator: Bool[np.ndarray, "k n"]  # True where the observer decides for the shape.
    denominator: Bool[np.ndarray, "k n"]  # True where the decision counts.
    has_row: Bool[np.ndarray, "k n"]  # True where the observer's file has a row.
    # For shape bias, the names of each image's shape picture and texture picture, which images
    # share; () otherwise.
    pictures: tuple[Shaped[np.ndarray, "n"], ...] = ()


def shape_bias(panel: observers.Panel) -> Score | None:
    """Return the shape bias: shape decisions among shape and texture decisions.

    The images of the score are those with a conflict. None for a set without textures.
    """
    if panel.texture is None:
        return None
    is_conflict = panel.is_conflict
    decision = panel.decision[:, is_conflict]
    is_shape = decision == panel.label[is_conflict]
    is_texture = decision == panel.texture[is_conflict]
    names = [
        stimulus_names.pictures(image) for image in np.array(panel.images)[is_conflict]
    ]
    return Score(
        name="shape_bias",
        numerator=is_shape,
        denominator=is_shape | is_texture,
        has_row=panel.has_row[:, is_conflict],
        pictures=tuple(np.array(names).T) if names and all(names) else (),
    )


def accuracy(panel: observers.Panel) -> Score:
    """Return the accuracy: right decisions among all images of the observer's file.

    For cue conflicts, the class of the shape is the right one, also where both cues have the same
    class. No answer is wrong.
    """
    return Score(
        name="accuracy",
        numerator=panel.has_row & (panel.decision == panel.label),
        denominator=panel.has_row,
        has_row=panel.has_row,
    )
