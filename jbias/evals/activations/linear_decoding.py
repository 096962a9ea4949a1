"""Linear decoding of shape and texture from the activations at each site of a network.

Source: linear decoders as in Hermann and Lampinen, NeurIPS 2020,
https://arxiv.org/abs/2006.12433, and Hermann, Chen and Kornblith, NeurIPS 2020,
https://arxiv.org/abs/1911.09071. Deviations: features are pooled and projected to a bounded
number of columns, and every image is classified once, by a decoder that was fitted
without its fold.

The decoder is multinomial logistic regression, by scikit-learn. The loss is the mean of
-log softmax(x W + b)[y] plus strength / 2 times the sum of squares of W; b is not penalised.
The loss is convex, so the result does not depend on the method of minimisation. In scikit-learn,
C is 1 / (n strength).

Dimensions, the shares of neurons of a layer that follow shape and texture: Islam, Kowal,
Esser, Jia, Ommer, Derpanis and Bruce, ICLR 2021, https://arxiv.org/abs/2101.11604, as
https://github.com/islamamirul/shape_texture_neuron computes them, after Esser, Rombach and
Ommer, CVPR 2020. Deviations: all pairs of a set are used instead of a sample, and results are
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

from jbias import errors
from jbias.data import tables
from jbias.evals.activations import features
from jbias.measures import decisions

STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4)
Labels = Int[np.ndarray, "n"]
Rows = Float[np.ndarray, "n d"]


class CrossValidated(NamedTuple):
    """Cross-validated decisions: each example is decided by weights fitted without the example."""

    decided: Labels  # By example, the decided class.
    fits: int  # Number of fits.
    unfinished: int  # Number of fits that reached the maximum number of steps.


def fit_logistic(
    x: Rows,
    y: Labels,
    *,
    strength: float,
    start: Any = None,
    tolerance: float = 1e-4,
    steps: int = 500,
) -> Any:
    """Return a fitted sklearn LogisticRegression, which minimises the loss by L-BFGS.

    x, y: features and classes of the examples; classes are numbered from 0, at least two.
    strength: strength of the penalty; see the module. start: an earlier fit to begin with, which
    does not change; None: begin at 0. The fit ends when no entry of the gradient exceeds
    `tolerance`, or after `steps` steps (`n_iter_`). The latter happens for a small strength and
    separable classes; the model is then not fully converged.
    """
    from sklearn import exceptions, linear_model

    # For two classes scikit-learn has one row of weights, the difference of our two.
    c = (2 if y.max() == 1 else 1) / (len(x) * strength)
    model = copy.copy(start) or linear_model.LogisticRegression(warm_start=True)
    model.set_params(C=c, tol=tolerance, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        return model.fit(x, y)


def cross_validate(
    x: Rows,
    y: Labels,
    fold: Labels,
    *,
    strengths: Sequence[float] = STRENGTHS,
    steps: int = 500,
) -> CrossValidated:
    """Return decisions about each example by weights that were fitted without its fold.

    x, y: features and classes of the examples; classes are numbered from 0. strengths:
    candidate strengths of the penalty. For every test fold, weights of each strength are fitted
    without the test fold and the next fold. The strength with the most correct decisions on the
    next fold (if tied, the largest) is then fitted to all examples outside of the test fold. A
    single strength needs no choice. fold: by example, the number of its fold; at least three
    folds, counted from 0.
    steps: the maximum number of steps of each fit. If all classes are 0, they are returned as
    the decisions, without a fit.
    """
    if not y.any():  # A single class needs no weights.
        return CrossValidated(y, 0, 0)
    decided, models, count = np.full(len(y), -1), [], int(fold.max()) + 1
    for test in range(count):
        outer, valid = fold != test, fold == (test + 1) % count
        inner, model = outer & ~valid, None
        most_correct, best_strength, best_model = -1, strengths[0], None
        for strength in sorted(strengths, reverse=True) if len(strengths) > 1 else ():
            model = fit_logistic(
                x[inner], y[inner], strength=strength, start=model, steps=steps
            )
            models.append(model)
            num_correct = int((model.predict(x[valid]) == y[valid]).sum())
            if num_correct > most_correct:
                most_correct, best_strength, best_model = num_correct, strength, model
        final_model = fit_logistic(
            x[outer], y[outer], strength=best_strength, start=best_model, steps=steps
        )
        models.append(final_model)
        decided[~outer] = final_model.predict(x[~outer])
    unfinished = sum(int(model.n_iter_.max()) >= steps for model in models)
    return CrossValidated(decided, len(models), unfinished)


def deal_folds(
    y: Labels,
    group: Labels,
    *,
    max_folds: int,
    seed: int,
    factor: str,
    names: Sequence[str] = (),
) -> Labels:
    """Return a random fold of each example, counted from 0; each group is in one fold only.

    y, group: class and group of each example. Each class is in all folds. There are as many
    folds as the rarest class has groups, at most `max_folds`. factor ("shape" or "texture")
    and names (names of the classes) are for messages. ValueError for fewer than three folds,
    or for a group with several classes.
    """
    rng = np.random.default_rng(seed)
    groups_of_class = {c: np.unique(group[y == c]) for c in np.unique(y)}
    if sum(map(len, groups_of_class.values())) != len(np.unique(group)):
        raise ValueError(f"each {factor} exemplar must be of one {factor}")
    rarest = min(groups_of_class, key=lambda c: len(groups_of_class[c]))
    count = min(max_folds, len(groups_of_class[rarest]))
    if count < 3:
        name = names[rarest] if names else f"class {rarest} (from 0)"
        raise ValueError(
            f"a {factor} needs three pictures of its own; {name} has "
            f"{len(groups_of_class[rarest])}"
        )
    fold_of_group = {}
    for groups in groups_of_class.values():
        first = rng.integers(count)
        for i, name in enumerate(rng.permutation(groups)):
            fold_of_group[name] = (first + i) % count
    return np.array([fold_of_group[name] for name in group])


class DimensionShares(NamedTuple):
    """Shares of neurons, which sum to 1, and the correlations that they are computed from."""

    shape: float
    texture: float
    residual: float
    shape_correlation: float
    texture_correlation: float


def dimension_shares(x: Rows, shape: Labels, texture: Labels) -> DimensionShares:
    """Return the shares of neurons that follow shape, texture and neither.

    x: activations, one row per image. shape, texture: the class of each cue by image. With Z
    = exp(r_shape) + exp(r_texture) + e: exp(r_shape) / Z, exp(r_texture) / Z, e / Z. r_shape:
    over all pairs of images with the same shape and different textures, the covariance of a
    neuron's two activations, summed over neurons, divided by the sum of their variances;
    r_texture: the same over pairs with the same texture and different shapes. The residual has
    correlation 1. A correlation is NaN without such a pair, or without variance; then all shares
    are NaN.
    """
    r_shape = shared_correlation(x, shape, texture)
    r_texture = shared_correlation(x, texture, shape)
    weights = np.exp([r_shape, r_texture, 1.0])
    shares = (weights / weights.sum()).tolist()
    return DimensionShares(
        shape=shares[0],
        texture=shares[1],
        residual=shares[2],
        shape_correlation=r_shape,
        texture_correlation=r_texture,
    )


def shared_correlation(x: Rows, shared_label: Labels, other_label: Labels) -> float:
    """Return the correlation of activations over pairs of images with one label in common.

    Pairs have equal shared_label and different other_label. x: activations, one row per
    image. NaN without such a pair, or without variance. Pairs are not listed one by one: the sum
    of products of deviations is the square of the sum of deviations of all images with one
    shared_label, minus the same for images that agree in both labels.
    """
    group, cell = (
        np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1)
        for rows in (np.stack([shared_label]), np.stack([shared_label, other_label]))
    )
    num_partners = np.bincount(group)[group] - np.bincount(cell)[cell]
    num_pairs = num_partners.sum()
    if not num_pairs:
        return np.nan
    x = np.asarray(x, float)
    deviation = x - num_partners @ x / num_pairs
    variance = float(num_partners @ (deviation**2).sum(1)) / num_pairs
    if not variance > 0:
        return np.nan
    squares = []
    for index in (group, cell):
        sums = np.zeros((index.max() + 1, deviation.shape[1]))
        np.add.at(sums, index, deviation)
        squares.append(float((sums**2).sum()))
    return float((squares[0] - squares[1]) / num_pairs / variance)


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
    """Return decoding accuracies and dimensions of shape and texture, with sites as conditions.

    images: an array, or a loader.LazyImages, which reads images when it is indexed.
    columns: "label", the shape's class, and the column named by `texture`. If there are
    "shape_exemplar" and "texture_exemplar", images with the same exemplar of the decoded
    factor are in the same fold, and pairs for the dimensions share the exemplar. Images with
    an unknown class (negative) are left out. sites: names from models.taps.sites; None: all.
    most: the maximum number of images; if there are more, a random subset is used. folds: the
    maximum number of folds. strengths: candidate strengths of the penalty. pool, batch: see
    features.read; width: its `columns`. seed: random seed of the subset, the folds, the
    projection and the shuffled labels. classes: names of the classes of "label" and "texture",
    for messages.

    Metrics, for shape and in the same way for texture: shape_decoding, the share of images
    decoded correctly; shape_decoding_shuffled, the same with labels shuffled among the
    exemplars of a fold, with the middle strength; shape_decodability,
    (accuracy - chance) / (1 - chance), where chance is the share of the commonest class,
    which is shape_decoding_chance (once, with the condition ""); shape_decoding_unfinished and
    shape_decoding_unfinished_shuffled, the share of fits that reached the maximum number of
    steps, if any did; shape_dimensions, a share of the neurons, and shape_correlation.
    residual_dimensions: the remaining share. Shares and accuracies are in [0, 1]. ValueError
    if a column is missing, `folds` is below 3, a strength is not above 0, there is no image with
    two known classes, or as `deal_folds` and `features.read` raise.
    """
    import sklearn.linear_model  # noqa: F401  Import it before its threads are limited.

    must = f"have the columns 'label' and {texture!r}"
    errors.check(
        {"label", texture} <= {*columns}, "decoding", must, [*columns], name="the set"
    )
    errors.check(folds >= 3, "decoding", "be at least 3", folds, name="folds")
    is_positive = strengths and min(strengths) > 0
    errors.check(is_positive, "decoding", "be above 0", strengths, name="strengths")
    known = np.flatnonzero((columns["label"] >= 0) & (columns[texture] >= 0))
    if not len(known):
        raise ValueError("decoding: no image has a shape and a texture that are known")
    index = np.sort(np.random.default_rng(seed).permutation(known)[:most])
    columns = {name: np.asarray(column)[index] for name, column in columns.items()}
    factors = [
        _make_factor(name, column, columns, max_folds=folds, seed=seed, classes=classes)
        for name, column in (("shape", "label"), ("texture", texture))
    ]
    shape_factor, texture_factor = factors
    features_by_site = features.read(
        net,
        variables,
        images[index],
        sites=sites,
        pool=pool,
        columns=width,
        batch=batch,
        seed=seed,
    )
    numbers = []
    # Products are small: threads that wait for one another made this twenty times slower.
    with threadpoolctl.threadpool_limits(1):
        for site, rows in features_by_site.items():
            x = normalize_features(rows)
            for factor in factors:
                numbers += _decoding_numbers(factor, x, strengths, site)
            shares = dimension_shares(rows, shape_factor.shared, texture_factor.shared)
            for name, value in shares._asdict().items():
                metric = name if "correlation" in name else f"{name}_dimensions"
                numbers.append(decisions.quantity(metric, value, len(rows), site))
    for factor in factors:
        metric = f"{factor.name}_decoding_chance"
        numbers.append(
            decisions.share(metric, factor.largest_class_size, len(factor.y))
        )
    return numbers


class _Factor(NamedTuple):
    """The labels of shape or of texture to decode, and the folds for cross-validation."""

    name: str  # "shape" or "texture".
    y: Labels  # Class of each image, numbered from 0.
    shuffled: Labels  # Labels without information about the image.
    fold: Labels
    shared: Labels  # Equal for images that are pairs in `dimension_shares`.

    @property
    def largest_class_size(self) -> int:
        """Return the number of images of the commonest class."""
        return int(np.bincount(self.y).max())


def _make_factor(
    name: str,
    column: str,
    columns: Mapping[str, Labels],
    *,
    max_folds: int,
    seed: int,
    classes: Sequence[str],
) -> _Factor:
    """Return the factor `name`, "shape" or "texture", with random folds.

    columns: the images' columns by name; `column` is the name of the column with the factor's
    classes. max_folds: the maximum number of folds. classes: see `measure`. ValueError: see
    `deal_folds`.
    """
    class_ids, y = np.unique(columns[column], return_inverse=True)
    classes = classes if column in ("label", "texture") else ()
    name_of_id = dict(enumerate(map(tables.readable, classes)))
    names = [name_of_id.get(c, f"class {c} (from 0)") for c in class_ids]
    group = columns.get(f"{name}_exemplar", np.arange(len(y)))
    fold = deal_folds(
        y, group, max_folds=max_folds, seed=seed, factor=name, names=names
    )
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return _Factor(
        name=name,
        y=y,
        shuffled=_shuffle_labels(y, group, fold, rng),
        fold=fold,
        shared=columns.get(f"{name}_exemplar", y),
    )


def normalize_features(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
    """Return features in float32, centred and scaled to a mean square length of 1.

    The scale makes strengths comparable between sites. If there are more columns than rows, the
    features are rotated into n columns, which does not change decoders, because the penalty does
    not depend on rotations. Constant features are only centred.
    """
    x = np.asarray(x, float)
    x = x - x.mean(0)
    if x.shape[1] > len(x):
        left, sizes, _ = np.linalg.svd(x, full_matrices=False)
        x = left * sizes
    length = np.sqrt((x**2).sum(1).mean())
    return (x / length if length > 0 else x).astype(np.float32)


def _decoding_numbers(
    factor: _Factor, x: Rows, strengths: Sequence[float], site: str
) -> decisions.Numbers:
    """Return the numbers of a factor at a site, which `measure` describes.

    In order: the decoding accuracy for the labels, the decoding accuracy for shuffled labels, the
    decodability (None if all labels are equal), and the shares of unfinished fits, if there are
    any. x: result of `normalize_features`. strengths: penalties to choose from; shuffled labels use
    only the middle one.
    """
    name, n = f"{factor.name}_decoding", len(factor.y)
    chance, numbers, unfinished = factor.largest_class_size / n, [], []
    # Shuffled labels cannot be learnt with any penalty: one strength is enough.
    middle = sorted(strengths)[len(strengths) // 2 :][:1]
    trials = ("", factor.y, strengths), ("_shuffled", factor.shuffled, middle)
    for ending, labels, trial_strengths in trials:
        result = cross_validate(x, labels, factor.fold, strengths=trial_strengths)
        numbers.append(
            decisions.mean(f"{name}{ending}", result.decided == labels, site)
        )
        if result.unfinished:
            metric = f"{name}_unfinished{ending}"
            unfinished.append(
                decisions.share(metric, result.unfinished, result.fits, site)
            )
    accuracy = numbers[0].value
    decodability = (accuracy - chance) / (1 - chance) if chance < 1 else None
    metric = f"{factor.name}_decodability"
    return [*numbers, decisions.quantity(metric, decodability, n, site), *unfinished]


def _shuffle_labels(
    y: Labels, group: Labels, fold: Labels, rng: np.random.Generator
) -> Labels:
    """Return labels that are permuted at random among the groups of each fold.

    All images of a group get the same label. Permuting between folds would make a label
    of the test fold rarer in the other folds, so that decoders avoid it: accuracies would
    be below chance.
    """
    shuffled = np.empty_like(y)
    for fold_number in np.unique(fold):
        is_in_fold = fold == fold_number
        _, first, group_number = np.unique(
            group[is_in_fold], return_index=True, return_inverse=True
        )
        group_labels = rng.permutation(y[is_in_fold][first])
        shuffled[is_in_fold] = group_labels[group_number.reshape(-1)]
    return shuffled
