"""How many neurons of a layer follow shape, and how many texture.

Source: Islam, Kowal, Esser, Jia, Ommer, Derpanis and Bruce, ICLR 2021,
https://arxiv.org/abs/2101.11604, as https://github.com/islamamirul/shape_texture_neuron
computes it, after Esser, Rombach and Ommer, CVPR 2020. Deviations: all pairs of a set
count instead of some drawn ones, and shares are told instead of whole neurons.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Shares(NamedTuple):
    """Shares of neurons, which add to 1, and the correlations they are made of."""

    shape: float
    texture: float
    residual: float
    shape_correlation: float
    texture_correlation: float


def shares(
    x: Float[np.ndarray, "n d"],
    shape: Int[np.ndarray, "n"],
    texture: Int[np.ndarray, "n"],
) -> Shares:
    """exp(r) / (exp(r_shape) + exp(r_texture) + e) for either, e / ... for the rest.

    r_shape: over all pairs of images with one shape and two textures, the covariance of
    a neuron's two activations, summed over neurons, by the sum of their variances;
    r_texture the other way round. What no other image shares has correlation 1.
    NaN where there is no such pair, or nothing varies.
    """
    r_shape = correlation(x, shape, texture)
    r_texture = correlation(x, texture, shape)
    parts = np.exp([r_shape, r_texture, 1.0])
    return Shares(*(parts / parts.sum()).tolist(), r_shape, r_texture)


def correlation(
    x: Float[np.ndarray, "n d"],
    same: Int[np.ndarray, "n"],
    other: Int[np.ndarray, "n"],
) -> float:
    """The correlation of images that agree in one thing and differ in the other.

    Summed over the pairs of a group, products of deviations are the square of their
    sum, less the same of the pairs that agree in both, an image with itself among them.
    """
    _, group = np.unique(same, return_inverse=True)
    _, cell = np.unique(np.stack([same, other]), axis=1, return_inverse=True)
    group, cell = group.reshape(-1), cell.reshape(-1)
    partners = np.bincount(group)[group] - np.bincount(cell)[cell]
    pairs = partners.sum()
    if not pairs:
        return np.nan
    x = np.asarray(x, float)
    d = x - partners @ x / pairs
    variance = float(partners @ (d**2).sum(1)) / pairs
    if not variance > 0:
        return np.nan
    shared = _squares(d, group) - _squares(d, cell)
    return float(shared / pairs / variance)


def _squares(d, group) -> float:
    sums = np.zeros((group.max() + 1, d.shape[1]))
    np.add.at(sums, group, d)
    return float((sums**2).sum())
