"""Which layer holds what: how well shape and texture can be decoded at each site.

Source: linear decoders as in Hermann and Lampinen, NeurIPS 2020,
https://arxiv.org/abs/2006.12433, and Hermann, Chen and Kornblith, NeurIPS 2020,
https://arxiv.org/abs/1911.09071. Deviations: features are pooled and projected to a bounded
number of columns, and every image is decided about once, by a decoder that was fitted
without its fold.

The decoder is multinomial logistic regression. The loss is the mean of
-log softmax(x W + b)[y] and strength / 2 times the squares of W; b is free. It is convex,
so any method that minimises it gives the same: scikit-learn's C is 1 / (n strength).

Dimensions, how many neurons of a layer follow shape and how many texture: Islam, Kowal,
Esser, Jia, Ommer, Derpanis and Bruce, ICLR 2021, https://arxiv.org/abs/2101.11604, as
https://github.com/islamamirul/shape_texture_neuron computes them, after Esser, Rombach and
Ommer, CVPR 2020. Deviations: all pairs of a set count instead of a sample, and results are
shares instead of whole neurons.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl
from flax import linen as nn
from jaxtyping import Float, Int, UInt8
from scipy import optimize, special

from jbias.data import tables
from jbias.evals import decisions, features

STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4)


class LogisticWeights(NamedTuple):
    """Logits are x @ matrix + bias."""

    matrix: Float[np.ndarray, "d k"]
    bias: Float[np.ndarray, "k"]
    ended: bool = True  # Where the gradient is small, not on the way.


class CrossValidated(NamedTuple):
    """Decisions by weights that were fitted without the example."""

    decided: Int[np.ndarray, "n"]
    fits: int
    unfinished: int  # Fits that were stopped on the way.


def fit_logistic(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, "n"],
    classes: int,
    *,
    strength: float,
    start: LogisticWeights | None = None,
    tolerance: float = 1e-4,
    steps: int = 500,
) -> LogisticWeights:
    """Minimises the loss by L-BFGS over all examples, from `start` or from 0.

    Sums are of the type of x. It ends where no entry of the gradient exceeds the
    tolerance, or after so many steps: for a small strength and classes that can be told
    apart, with an answer on the way.
    """
    n, d = x.shape
    right = np.zeros((n, classes), x.dtype)
    right[np.arange(n), y] = 1

    def loss(flat):
        w = flat.reshape(d + 1, classes).astype(x.dtype)
        logits = x @ w[:-1] + w[-1]
        peak = special.logsumexp(logits, axis=1, keepdims=True)
        off = np.exp(logits - peak) - right
        value = (peak[:, 0] - (logits * right).sum(1)).mean()
        value += strength / 2 * (w[:-1] ** 2).sum()
        slope = np.empty_like(w)
        slope[:-1] = x.T @ off / n + strength * w[:-1]
        slope[-1] = off.mean(0)
        return float(value), slope.reshape(-1).astype(float)

    first = np.zeros((d + 1, classes)) if start is None else np.vstack(start[:2])
    found = optimize.minimize(
        loss,
        first.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        options=dict(gtol=tolerance, ftol=0, maxiter=steps, maxfun=2 * steps),
    )
    w = found.x.reshape(d + 1, classes).astype(x.dtype)
    return LogisticWeights(w[:-1], w[-1], bool(found.success))


def predict_classes(
    weights: LogisticWeights, x: Float[np.ndarray, "n d"]
) -> Int[np.ndarray, "n"]:
    """The classes with the largest logits."""
    return (x @ weights.matrix + weights.bias).argmax(1)


def cross_validate(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, "n"],
    fold: Int[np.ndarray, "n"],
    *,
    strengths: Sequence[float] = STRENGTHS,
    steps: int = 500,
) -> CrossValidated:
    """Decides about each example by weights that were fitted without its fold.

    For every fold, weights of each strength are fitted without it and the next one; the
    strength that is right most often on the next (the largest of equals) is then fitted
    to all but the fold itself. A single strength needs no choice. fold: of at least
    three, counted from 0. steps: at most, of each fit.
    """
    classes, count = int(y.max()) + 1, int(fold.max()) + 1
    decided, ended = np.full(len(y), -1), []
    for test in range(count):
        outer, valid = fold != test, fold == (test + 1) % count
        inner, weights, best = outer & ~valid, None, (-1, strengths[0], None)
        for strength in sorted(strengths, reverse=True) if len(strengths) > 1 else ():
            weights = fit_logistic(
                *(x[inner], y[inner], classes),
                strength=strength,
                start=weights,
                steps=steps,
            )
            ended.append(weights.ended)
            right = int((predict_classes(weights, x[valid]) == y[valid]).sum())
            if right > best[0]:
                best = right, strength, weights
        _, strength, start = best
        final = fit_logistic(
            x[outer], y[outer], classes, strength=strength, start=start, steps=steps
        )
        ended.append(final.ended)
        decided[~outer] = predict_classes(final, x[~outer])
    return CrossValidated(decided, len(ended), ended.count(False))


def deal_folds(
    y: Int[np.ndarray, "n"],
    group: Int[np.ndarray, "n"],
    *,
    most: int,
    seed: int,
    what: str,
    names: Sequence[str] = (),
) -> Int[np.ndarray, "n"]:
    """Deals groups into folds at random: no group is in two, every class in all.

    As many folds as the rarest class has groups, at most `most`. ValueError where that
    is less than three, or a group has several classes. names: of the classes.
    """
    rng = np.random.default_rng(seed)
    members = {c: np.unique(group[y == c]) for c in np.unique(y)}
    if sum(map(len, members.values())) != len(np.unique(group)):
        raise ValueError(f"each {what} exemplar must be of one {what}")
    rarest = min(members, key=lambda c: len(members[c]))
    count = min(most, len(members[rarest]))
    if count < 3:
        name = names[rarest] if names else f"class {rarest} (from 0)"
        raise ValueError(
            f"a {what} needs three pictures of its own; {name} has"
            f" {len(members[rarest])}"
        )
    where = {}
    for pictures in members.values():
        first = rng.integers(count)
        for i, name in enumerate(rng.permutation(pictures)):
            where[name] = (first + i) % count
    return np.array([where[name] for name in group])


class DimensionShares(NamedTuple):
    """Shares of neurons, which add to 1, and the correlations they are made of."""

    shape: float
    texture: float
    residual: float
    shape_correlation: float
    texture_correlation: float


def dimension_shares(
    x: Float[np.ndarray, "n d"],
    shape: Int[np.ndarray, "n"],
    texture: Int[np.ndarray, "n"],
) -> DimensionShares:
    """exp(r) / (exp(r_shape) + exp(r_texture) + e) for either, e / ... for the rest.

    r_shape: over all pairs of images with one shape and two textures, the covariance of
    a neuron's two activations, summed over neurons, by the sum of their variances;
    r_texture the other way round. What no other image shares has correlation 1.
    NaN where there is no such pair, or nothing varies.
    """
    r_shape = shared_correlation(x, shape, texture)
    r_texture = shared_correlation(x, texture, shape)
    parts = np.exp([r_shape, r_texture, 1.0])
    return DimensionShares(*(parts / parts.sum()).tolist(), r_shape, r_texture)


def shared_correlation(
    x: Float[np.ndarray, "n d"], same: Int[np.ndarray, "n"], other: Int[np.ndarray, "n"]
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
    strengths: Sequence[float] = STRENGTHS,
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
        _factor(name, column, columns, folds, seed, classes)
        for name, column in (("shape", "label"), ("texture", texture))
    ]
    options = dict(sites=sites, pool=pool, columns=width, batch=batch, seed=seed)
    found = features.read(net, variables, images[chosen], **options)
    told = []
    # Products are small: threads that wait for one another made this twenty times slower.
    with threadpoolctl.threadpool_limits(1):
        for site, rows in found.items():
            x = normalize_features(rows)
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


def _factor(name, column, columns, folds, seed, classes) -> _Factor:
    known, y = np.unique(columns[column], return_inverse=True)
    y, exemplar = y.reshape(-1), columns.get(f"{name}_exemplar")
    classes = classes if column in ("label", "texture") else ()
    named = [
        tables.readable(classes[c]) if c < len(classes) else f"class {c} (from 0)"
        for c in known
    ]
    group = np.arange(len(y)) if exemplar is None else exemplar
    fold = deal_folds(y, group, most=folds, seed=seed, what=name, names=named)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shared = y if exemplar is None else exemplar
    return _Factor(name, y, _shuffled(y, group, fold, rng), fold, shared)


def normalize_features(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
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
        held = cross_validate(x, labels, factor.fold, strengths=chosen)
        right = (held.decided == labels).sum()
        told.append(decisions.share(f"{name}_decoding{ending}", right, n, site))
        if held.unfinished:
            metric = f"{name}_decoding_unfinished{ending}"
            counts = held.unfinished, held.fits
            unfinished.append(decisions.share(metric, *counts, site))
    above = (told[0].value - chance) / (1 - chance) if chance < 1 else None
    told.append(decisions.Number(f"{name}_decodability", above, None, n, site))
    return told + unfinished


def _dimensions(rows, shape, texture, site) -> list[decisions.Number]:
    found = dimension_shares(rows, shape, texture)._asdict()
    return [
        decisions.quantity(
            name if "correlation" in name else f"{name}_dimensions",
            *(value, len(rows), site),
        )
        for name, value in found.items()
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
