"""Which layer holds what: how well shape and texture can be read off each site.

Source: linear decoders as in Hermann and Lampinen, NeurIPS 2020,
https://arxiv.org/abs/2006.12433, and Hermann, Chen and Kornblith, NeurIPS 2020,
https://arxiv.org/abs/1911.09071; dimensions as in Islam et al., ICLR 2021,
https://arxiv.org/abs/2101.11604. Deviations: features are pooled and projected to a
bounded number of columns, and every image is decided about once, by a decoder that was
fitted without its fold.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import linen as nn
from jaxtyping import Float, Int, UInt8

from jbias.evals import decisions, dimensionality, features, logistic

FACTORS = ("shape", "texture")


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
) -> list[decisions.Number]:
    """Decoding accuracy and dimensions of shape and texture; conditions are sites.

    columns: "label", the shape's class, and the one named by `texture`; where there are
    "shape_exemplar" and "texture_exemplar", images of one exemplar of what is decoded
    are in one fold, and pairs for the dimensions share the exemplar. Images with an
    unknown class (negative) are left out. most: of more images so many are drawn. folds: at most. pool, width: see features.read. seed: of
    that draw, the folds, the projection and the shuffled labels.

    For shape, and likewise for texture: shape_decoding, right of all images;
    shape_decoding_shuffled, the same with labels shuffled among the exemplars of a fold;
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
    rng = np.random.default_rng(seed)
    known = np.flatnonzero((columns["label"] >= 0) & (columns[texture] >= 0))
    chosen = np.sort(rng.permutation(known)[:most])
    columns = {name: np.asarray(column)[chosen] for name, column in columns.items()}
    targets = {
        "shape": np.unique(columns["label"], return_inverse=True)[1],
        "texture": np.unique(columns[texture], return_inverse=True)[1],
    }
    exemplars = {
        factor: columns.get(f"{factor}_exemplar", np.arange(len(chosen)))
        for factor in FACTORS
    }
    split = {
        factor: logistic.folds(
            targets[factor], exemplars[factor], most=folds, seed=seed, what=factor
        )
        for factor in FACTORS
    }
    shuffled = {
        factor: _shuffled(targets[factor], exemplars[factor], split[factor], rng)
        for factor in FACTORS
    }
    found = features.read(
        net,
        variables,
        np.asarray(images)[chosen],
        sites=sites,
        pool=pool,
        columns=width,
        batch=batch,
        seed=seed,
    )
    shared = [columns.get(f"{factor}_exemplar", targets[factor]) for factor in FACTORS]
    told = []
    for site, rows in found.items():
        x = whole(rows)
        for factor in FACTORS:
            told += _decoded(
                factor,
                x,
                targets[factor],
                shuffled[factor],
                split[factor],
                strengths,
                site,
            )
        told += _dimensions(dimensionality.shares(rows, *shared), len(rows), site)
    return told + [
        decisions.Number(f"{factor}_decoding_chance", *_commonest(targets[factor]))
        for factor in FACTORS
    ]


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


def _decoded(factor, x, y, shuffled, fold, strengths, site) -> list[decisions.Number]:
    chance, _, n = _commonest(y)
    told = []
    for ending, labels in (("", y), ("_shuffled", shuffled)):
        decided = logistic.held_out(x, labels, fold, strengths=strengths)
        right = int((decided == labels).sum())
        told.append(
            decisions.Number(f"{factor}_decoding{ending}", right / n, right, n, site)
        )
    above = (told[0].value - chance) / (1 - chance) if chance < 1 else None
    return [
        *told,
        decisions.Number(f"{factor}_decodability", above, None, n, site),
    ]


def _dimensions(shares, n, site) -> list[decisions.Number]:
    values = {
        "shape_dimensions": shares.shape,
        "texture_dimensions": shares.texture,
        "residual_dimensions": shares.residual,
        "shape_correlation": shares.shape_correlation,
        "texture_correlation": shares.texture_correlation,
    }
    return [
        decisions.Number(name, value if np.isfinite(value) else None, None, n, site)
        for name, value in values.items()
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
