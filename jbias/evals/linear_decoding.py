"""Which layer holds what: how well shape and texture can be decoded at each site.

Source: linear decoders as in Hermann and Lampinen, NeurIPS 2020,
https://arxiv.org/abs/2006.12433, and Hermann, Chen and Kornblith, NeurIPS 2020,
https://arxiv.org/abs/1911.09071. Deviations: features are pooled and projected to a bounded
number of columns, and every image is decided about once, by a decoder that was fitted
without its fold.

The decoder is multinomial logistic regression, by scikit-learn. The loss is the mean of
-log softmax(x W + b)[y] and strength / 2 times the squares of W; b is free. It is convex,
so any method that minimises it gives the same: C is 1 / (n strength).

Dimensions, how many neurons of a layer follow shape and how many texture: Islam, Kowal,
Esser, Jia, Ommer, Derpanis and Bruce, ICLR 2021, https://arxiv.org/abs/2101.11604, as
https://github.com/islamamirul/shape_texture_neuron computes them, after Esser, Rombach and
Ommer, CVPR 2020. Deviations: all pairs of a set count instead of a sample, and results are
shares instead of whole neurons.
"""

import copy
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl
from flax import linen as nn
from jaxtyping import Float, Int, UInt8

from jbias.data import tables
from jbias.evals import decisions, features, probe

STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4)
Labels = Int[np.ndarray, "n"]
Rows = Float[np.ndarray, "n d"]


class CrossValidated(NamedTuple):
    """Decisions by weights that were fitted without the example."""

    decided: Labels
    fits: int
    unfinished: int  # Fits that were stopped on the way.


def fit_logistic(
    x: Rows, y: Labels, *, strength: float, start=None, tolerance=1e-4, steps=500
) -> Any:
    """Minimises the loss by L-BFGS over all examples, from an earlier fit or from 0.

    Returns scikit-learn's model. It ends where no entry of the gradient exceeds the
    tolerance, or after so many steps, `n_iter_`: for a small strength and classes that
    can be told apart, with an answer on the way.
    """
    from sklearn import exceptions, linear_model

    # Of two classes it has one row of weights, the difference of ours.
    c = (2 if y.max() == 1 else 1) / (len(x) * strength)
    model = copy.copy(start) or linear_model.LogisticRegression(warm_start=True)
    model.set_params(C=c, tol=tolerance, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        return model.fit(x, y)


def cross_validate(
    x: Rows, y: Labels, fold: Labels, *, strengths=STRENGTHS, steps: int = 500
) -> CrossValidated:
    """Decides about each example by weights that were fitted without its fold.

    For every fold, weights of each strength are fitted without it and the next one; the
    strength that is right most often on the next (the largest of equals) is then fitted
    to all but the fold itself. A single strength needs no choice. fold: of at least
    three, counted from 0. steps: at most, of each fit.
    """
    if not y.any():  # One class needs no weights.
        return CrossValidated(y, 0, 0)
    decided, models, count = np.full(len(y), -1), [], int(fold.max()) + 1
    for test in range(count):
        outer, valid = fold != test, fold == (test + 1) % count
        inner, model, best = outer & ~valid, None, (-1, strengths[0], None)
        for strength in sorted(strengths, reverse=True) if len(strengths) > 1 else ():
            options = dict(strength=strength, start=model, steps=steps)
            model = fit_logistic(x[inner], y[inner], **options)
            models.append(model)
            right = int((model.predict(x[valid]) == y[valid]).sum())
            best = max(best, (right, strength, model), key=lambda one: one[0])
        options = dict(strength=best[1], start=best[2], steps=steps)
        models.append(fit_logistic(x[outer], y[outer], **options))
        decided[~outer] = models[-1].predict(x[~outer])
    unfinished = sum(int(one.n_iter_.max()) >= steps for one in models)
    return CrossValidated(decided, len(models), unfinished)


def deal_folds(
    y: Labels, group: Labels, *, most: int, seed: int, what: str, names=()
) -> Labels:
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
        had = f"{name} has {len(members[rarest])}"
        raise ValueError(f"a {what} needs three pictures of its own; {had}")
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


def dimension_shares(x: Rows, shape: Labels, texture: Labels) -> DimensionShares:
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


def shared_correlation(x: Rows, same: Labels, other: Labels) -> float:
    """The correlation of images that agree in one thing and differ in the other.

    Summed over the pairs of a group, products of deviations are the square of their
    sum, less the same of the pairs that agree in both, an image with itself among them.
    """
    group, cell = (
        np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1)
        for rows in (np.stack([same]), np.stack([same, other]))
    )
    partners = np.bincount(group)[group] - np.bincount(cell)[cell]
    if not (pairs := partners.sum()):
        return np.nan
    x = np.asarray(x, float)
    d = x - partners @ x / pairs
    variance = float(partners @ (d**2).sum(1)) / pairs
    if not variance > 0:
        return np.nan
    shared = []
    for which in (group, cell):
        sums = np.zeros((which.max() + 1, d.shape[1]))
        np.add.at(sums, which, d)
        shared.append(float((sums**2).sum()))
    return float((shared[0] - shared[1]) / pairs / variance)


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
) -> decisions.Numbers:
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
    import sklearn.linear_model  # noqa: F401  Before its threads are limited.

    must = f"the set must have the columns 'label' and {texture!r}"
    probe.check({"label", texture} <= {*columns}, "decoding", must, [*columns])
    probe.check(folds >= 3, "decoding", "folds must be at least 3", folds)
    above = strengths and min(strengths) > 0
    probe.check(above, "decoding", "strengths must be above 0", strengths)
    known = np.flatnonzero((columns["label"] >= 0) & (columns[texture] >= 0))
    if not len(known):
        raise ValueError("decoding: no image has a shape and a texture that are known")
    chosen = np.sort(np.random.default_rng(seed).permutation(known)[:most])
    columns = {name: np.asarray(column)[chosen] for name, column in columns.items()}
    of = columns, folds, seed, classes
    factors = [_factor("shape", "label", *of), _factor("texture", texture, *of)]
    options = dict(sites=sites, pool=pool, columns=width, batch=batch, seed=seed)
    found, told = features.read(net, variables, images[chosen], **options), []
    # Products are small: threads that wait for one another made this twenty times slower.
    with threadpoolctl.threadpool_limits(1):
        for site, rows in found.items():
            x = normalize_features(rows)
            for factor in factors:
                told += _decoded(factor, x, strengths, site)
            shares = dimension_shares(rows, *(factor.shared for factor in factors))
            for name, value in shares._asdict().items():
                metric = name if "correlation" in name else f"{name}_dimensions"
                told.append(decisions.quantity(metric, value, len(rows), site))
    for one in factors:
        of = f"{one.name}_decoding_chance", one.commonest, len(one.y)
        told.append(decisions.share(*of))
    return told


class _Factor(NamedTuple):
    """What is decoded, of each image."""

    name: str
    y: Labels
    shuffled: Labels  # Such labels, of nothing.
    fold: Labels
    shared: Labels  # What two images of a pair have in common.

    @property
    def commonest(self) -> int:
        return int(np.bincount(self.y).max())


def _factor(name, column, columns, folds, seed, classes) -> _Factor:
    known, y = np.unique(columns[column], return_inverse=True)
    classes = classes if column in ("label", "texture") else ()
    given = dict(enumerate(map(tables.readable, classes)))
    named = [given.get(c, f"class {c} (from 0)") for c in known]
    group = columns.get(f"{name}_exemplar", np.arange(len(y)))
    fold = deal_folds(y, group, most=folds, seed=seed, what=name, names=named)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shared = columns.get(f"{name}_exemplar", y)
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


def _decoded(factor: _Factor, x, strengths, site) -> decisions.Numbers:
    name, n = f"{factor.name}_decoding", len(factor.y)
    chance, told, unfinished = factor.commonest / n, [], []
    # Nothing can be learnt of shuffled labels, by whatever penalty.
    middle = sorted(strengths)[len(strengths) // 2 :][:1]
    trials = ("", factor.y, strengths), ("_shuffled", factor.shuffled, middle)
    for ending, labels, chosen in trials:
        held = cross_validate(x, labels, factor.fold, strengths=chosen)
        told.append(decisions.mean(f"{name}{ending}", held.decided == labels, site))
        if held.unfinished:
            of = f"{name}_unfinished{ending}", held.unfinished, held.fits
            unfinished.append(decisions.share(*of, site))
    above = (told[0].value - chance) / (1 - chance) if chance < 1 else None
    metric = f"{factor.name}_decodability"
    return [*told, decisions.quantity(metric, above, n, site), *unfinished]


def _shuffled(y, group, fold, rng) -> Labels:
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
