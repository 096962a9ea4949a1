"""Shape bias on images whose shape and texture come from different classes.

Source: Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Int

from jbias.evals import decisions


@dataclasses.dataclass(frozen=True)
class ShapeBias:
    """Shape decisions among those for either cue; 0 is texture, 1 is shape."""

    value: float  # NaN where no decision was for either cue.
    n_shape: int
    n_texture: int


def shape_bias(
    decided: Int[np.ndarray, "n"],
    shape: Int[np.ndarray, "n"],
    texture: Int[np.ndarray, "n"],
) -> ShapeBias:
    """n_shape / (n_shape + n_texture) over the images where the cues conflict.

    n_shape counts decisions for the shape's class, n_texture for the texture's; images
    whose cues agree, whose decision is neither, or one of whose classes is unknown
    (negative: the network cannot answer it) count for nothing. ValueError where the
    lengths differ.
    """
    decided, shape, texture = map(np.asarray, (decided, shape, texture))
    if not decided.shape == shape.shape == texture.shape:
        raise ValueError(
            "shape_bias: decisions, shape and texture must be of one length, got "
            f"{decided.shape}, {shape.shape} and {texture.shape}"
        )
    conflict = (shape != texture) & (shape >= 0) & (texture >= 0)
    n_shape = int((conflict & (decided == shape)).sum())
    n_texture = int((conflict & (decided == texture)).sum())
    either = n_shape + n_texture
    return ShapeBias(n_shape / either if either else math.nan, n_shape, n_texture)


def measure(decided: decisions.Decisions) -> list[decisions.Number]:
    """The shape bias, with shape decisions counted among decisions for either cue."""
    columns = decided.columns
    bias = shape_bias(decided.prediction, columns["label"], columns["texture"])
    either = bias.n_shape + bias.n_texture
    value = bias.value if either else None
    return [decisions.Number("shape_bias", value, bias.n_shape, either)]
