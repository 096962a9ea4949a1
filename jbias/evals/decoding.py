"""Which layer holds what: how well shape and texture can be read off each site.

Source: linear decoders as in Hermann and Lampinen, NeurIPS 2020,
https://arxiv.org/abs/2006.12433, and Hermann, Chen and Kornblith, NeurIPS 2020,
https://arxiv.org/abs/1911.09071; dimensions as in Islam et al., ICLR 2021,
https://arxiv.org/abs/2101.11604. Deviations: features are pooled and projected to a
bounded number of columns, and every image is decided about once, by a decoder that was
fitted without its fold.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl
from flax import linen as nn
from jaxtyping import Float, Int, UInt8

from jbias.data import wordnet
from jbias.evals import decisions, dimensionality, features, logistic


def measure(
    net: nn.Module,
    variables: Mapping[str, Any],
    images: UInt8[np.ndarray, "n h w 3"],
    columns: Mapping[str, Int[np.ndarray, "n"]],
    *,
    texture: str = "texture",
    sites: Sequence[str] | None = None,
    most: int = 2000,
    folds: int = 5,
    strengths: Sequence[float] = logistic.STRENGTHS,
    pool: int = 2,
    width: int = 512,
    batch: int = 128,
    seed: int = 0,
    classes: Sequence[str] = (),
) -> list[decisions.Number]:
    """Decoding accuracy and dimensions of shape and texture; conditions are sites.

    images: an array, or what is indexed as one and reads those that are asked for.
    columns: "label", the shape's class, and the one named by `texture`; where there are
    "shape_exemplar" and "texture_exemplar", images of one exemplar of what is decoded
    are in one fold, and pairs for the dimensions share the exemplar. Images with an
    unknown class (negative) are left out. most: of more images so many are drawn.
    folds: at most. strengths: of the penalty, from which one is chosen. pool, width: see
    features.read. seed: of that draw, the folds, the projection and the shuffled labels.
    classes: names of those of "label" and "texture", for what is refused.

    For shape, and likewise for texture: shape_decoding, right of all images;
    shape_decoding_shuffled, the same with labels shuffled among the exemplars of a fold,
    by the middle one of the strengths;
    shape_decodability, (accuracy - chance) / (1 - chance), with chance the share of the
    commonest class, which is shape_decoding_chance (once); shape_dimensions, a share of
    the neurons, and shape_correlation. residual_dimensions: the rest.
    ValueError where a column is missing, or images are too few for three folds.
    """
    for name in ("label", texture):
        if name not in columns:
            raise ValueError(
                f"decoding: the set must have the columns 'label' and {texture!r}, got"
                f" {', '.join(columns)}"
            )
    if folds < 3:
        raise ValueError(f"decoding: folds must be at least 3, got {folds}")
    if not strengths or min(strengths) <= 0:
        raise ValueError(f"decoding: strengths must be above 0, got {strengths}")
    known = np.flatnonzero((columns["label"] >= 0) & (columns[texture] >= 0))
    if not len(known):
        raise ValueError("decoding: no image has a shape and a texture that are known")
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(known)[:most])
    columns = {name: np.asarray(column)[chosen] for name, column in columns.items()}
    factors = [
        _factor(
            name,
            columns[column],
            columns.get(f"{name}_exemplar"),
            folds,
            seed,
            classes if column in ("label", "texture") else (),
        )
        for name, column in (("shape", "label"), ("texture", texture))
    ]
    found = features.read(
        net,
        variables,
        images[chosen],
        sites=sites,
        pool=pool,
        columns=width,
        batch=batch,
        seed=seed,
    )
    told = []
    # Products are small: threads that wait for one another made this twenty times slower.
    with threadpoolctl.threadpool_limits(1):
        for site, rows in found.items():
            x = whole(rows)
            for factor in factors:
                told += _decoded(factor, x, strengths, site)
            told += _dimensions(rows, *(factor.shared for factor in factors), site)
    return told + [
        decisions.Number(f"{factor.name}_decoding_chance", *_commonest(factor.y))
        for factor in factors
    ]


class _Factor(NamedTuple):
    """What is decoded, of each image."""

    name: str
    y: Int[np.ndarray, "n"]
    shuffled: Int[np.ndarray, "n"]  # Such labels, of nothing.
    fold: Int[np.ndarray, "n"]
    shared: Int[np.ndarray, "n"]  # What two images of a pair have in common.


def _factor(name, labels, exemplar, folds, seed, classes) -> _Factor:
    known, y = np.unique(labels, return_inverse=True)
    y = y.reshape(-1)
    named = [
        wordnet.readable(classes[c]) if c < len(classes) else f"class {c} (from 0)"
        for c in known
    ]
    group = np.arange(len(y)) if exemplar is None else exemplar
    fold = logistic.folds(y, group, most=folds, seed=seed, what=name, names=named)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shared = y if exemplar is None else exemplar
    return _Factor(name, y, _shuffled(y, group, fold, rng), fold, shared)


def whole(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
    """Rows turned about their mean into no more columns than there are rows, float32.

    Their mean square is 1, so that strengths mean the same everywhere. Neither changes
    what a decoder of any one strength can do: its penalty knows lengths, not axes.
    """
    x = np.asarray(x, float)
    x = x - x.mean(0)
    if x.shape[1] > len(x):
        left, sizes, _ = np.linalg.svd(x, full_matrices=False)
        x = left * sizes
    length = np.sqrt((x**2).sum(1).mean())
    return (x / length if length > 0 else x).astype(np.float32)


def _decoded(factor: _Factor, x, strengths, site) -> list[decisions.Number]:
    name, (chance, _, n) = factor.name, _commonest(factor.y)
    told, unfinished = [], []
    # Nothing can be learnt of shuffled labels, by whatever penalty.
    middle = sorted(strengths)[len(strengths) // 2 :][:1]
    for ending, labels, chosen in (
        ("", factor.y, strengths),
        ("_shuffled", factor.shuffled, middle),
    ):
        held = logistic.held_out(x, labels, factor.fold, strengths=chosen)
        right = int((held.decided == labels).sum())
        told.append(
            decisions.Number(f"{name}_decoding{ending}", right / n, right, n, site)
        )
        if held.unfinished:
            metric, share = (
                f"{name}_decoding_unfinished{ending}",
                held.unfinished / held.fits,
            )
            counts = held.unfinished, held.fits
            unfinished.append(decisions.Number(metric, share, *counts, site))
    above = (told[0].value - chance) / (1 - chance) if chance < 1 else None
    told.append(decisions.Number(f"{name}_decodability", above, None, n, site))
    return told + unfinished


def _dimensions(rows, shape, texture, site) -> list[decisions.Number]:
    shares = dimensionality.shares(rows, shape, texture)
    named = {
        "shape_dimensions": shares.shape,
        "texture_dimensions": shares.texture,
        "residual_dimensions": shares.residual,
        "shape_correlation": shares.shape_correlation,
        "texture_correlation": shares.texture_correlation,
    }
    return [
        decisions.Number(
            name, value if np.isfinite(value) else None, None, len(rows), site
        )
        for name, value in named.items()
    ]


def _commonest(y) -> tuple[float, int, int]:
    count = int(np.bincount(y).max())
    return count / len(y), count, len(y)


def _shuffled(y, group, fold, rng) -> Int[np.ndarray, "n"]:
    """Labels dealt out anew among the groups of each fold; a group keeps to one.

    Between folds, a label that is in one would be rarer in the others, and decoders
    would avoid it: less than chance, where nothing is known.
    """
    found = np.empty_like(y)
    for one in np.unique(fold):
        here = fold == one
        _, first, which = np.unique(group[here], return_index=True, return_inverse=True)
        found[here] = rng.permutation(y[here][first])[which.reshape(-1)]
    return found
