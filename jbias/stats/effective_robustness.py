"""Effective robustness: out-of-distribution accuracy above the fit to in-distribution accuracy.

Source: Taori et al., NeurIPS 2020, https://arxiv.org/abs/2007.00644; reference code:
https://github.com/modestyachts/imagenet-testbed at 0170eec. Probit: Miller et al., ICML 2021,
https://arxiv.org/abs/2107.04649. Several in-distribution sets: Shi et al., NeurIPS 2023,
https://arxiv.org/abs/2302.01381, whose code is not released.
Deviation: an accuracy of 0 or 100 %, whose logit or probit is infinite, is replaced by
(count + 1/2) / (n + 1). On ImageNet-A, where ResNet-50 has an accuracy of 0, the reference
instead fits two lines: one for the models below ResNet-50 in the original accuracy, one for those
above.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.special
from jaxtyping import Bool, Float

from jbias import errors
from jbias.stats import score_table
from jbias.stats.correlation import Values, as_columns

_SCALES = {
    "logit": (scipy.special.logit, scipy.special.expit),
    "probit": (scipy.special.ndtri, scipy.special.ndtr),
}


@dataclasses.dataclass(frozen=True, eq=False)
class EffectiveRobustnessResult:
    """The effective robustness of n models, and the line that is fitted to the accuracies."""

    robustness: Float[np.ndarray, "n"]  # Percentage points, -100 to 100.
    # Ends of the interval: uncertainty of the fit only; NaN if no resample gives a line.
    low: Float[np.ndarray, "n"]
    high: Float[np.ndarray, "n"]
    predicted: Float[np.ndarray, "n"]  # Accuracy according to the fit, in per cent.
    residual: Float[np.ndarray, "n"]  # On the logit or probit scale.
    extrapolated: Bool[np.ndarray, "n"]  # Outside the range of the fitted models.
    corrected: Bool[np.ndarray, "n"]  # Has an accuracy of 0 or 100 %.
    slope: Float[np.ndarray, "d"]  # One per in-distribution set.
    intercept: float
    r_squared: float  # Of the fit; NaN if the fitted models have equal ood_accuracy.
    n_fit: int  # Models that are fitted.
    level: float  # Of the intervals.
    resamples: int
    singular: int  # Resamples that determine no line, left out of the interval.


def effective_robustness(
    id_accuracy: Values | Float[np.ndarray, "n d"],
    ood_accuracy: Values,
    *,
    standard: Sequence[bool] | Bool[np.ndarray, "n"] | None = None,
    id_images: int | None = None,
    ood_images: int | None = None,
    scale: Literal["logit", "probit"] = "logit",
    level: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> EffectiveRobustnessResult:
    """Return out-of-distribution accuracy less the prediction from in-distribution accuracy.

    robustness = y - 100 L^-1(sum_j slope_j L(x_j) + intercept), L the logit or probit of a share,
    x = id_accuracy and y = ood_accuracy in per cent, over the same classes. The line is fitted by
    least squares of L(y). The interval is from the (1 - level) / 2 to the (1 + level) / 2
    quantile over lines through resampled models; images are not resampled.

    id_accuracy: n models, or n models by d sets if models were trained on several sets.
    standard: True for models to fit; None: all.
    id_images, ood_images: numbers of images of the sets, needed if an accuracy is 0 or 100.
    scale: the transformation L. level: confidence of the interval, a fraction.
    resamples: number of bootstrap draws.
    Raise ValueError for fewer than 3 models, an unknown scale, and accuracies that are not
    finite or not in per cent (also if no accuracy is above 1, as the accuracies are then shares).
    Raise ValueError also for an accuracy of 0 or 100 without a number of images, a `standard` that
    is not one bool per model, fewer than d + 2 standard models, and standard models that determine
    no line.
    """
    score_table.find_name(scale, tuple(_SCALES), "scale")
    errors.check_share("level", level)
    errors.check_at_least("resamples", resamples)
    forward, inverse = _SCALES[scale]
    columns = np.atleast_1d(np.asarray(id_accuracy))
    columns = columns.reshape(len(columns), -1).T
    named = {f"id_accuracy {j}": column for j, column in enumerate(columns)}
    *columns, y = as_columns(**named, ood_accuracy=ood_accuracy)
    x = np.stack(
        [_as_share("id", column, images=id_images) for column in columns], axis=1
    )
    is_fitted = _check_standard(standard, x)
    design = np.column_stack([forward(x), np.ones(len(x))])
    target = forward(_as_share("ood", y, images=ood_images))
    line = np.linalg.lstsq(design[is_fitted], target[is_fitted])[0]
    predicted, residual = 100 * inverse(design @ line), target - design @ line
    # Lines through resampled models; resamples that determine no line are dropped.
    standard_design, m = design[is_fitted], int(is_fitted.sum())
    rows = np.random.default_rng(seed).integers(m, size=(resamples, m))
    rows = rows[np.linalg.matrix_rank(standard_design[rows]) == design.shape[1]]
    lines = np.linalg.pinv(standard_design[rows]) @ target[is_fitted][rows][..., None]
    lines = lines[..., 0]
    band = np.full((2, len(x)), math.nan)
    if len(lines):
        quantiles = [(1 + level) / 2, (1 - level) / 2]
        band = np.quantile(100 * inverse(lines @ design.T), quantiles, axis=0)
    least, most = x[is_fitted].min(axis=0), x[is_fitted].max(axis=0)
    total_squares = ((target[is_fitted] - target[is_fitted].mean()) ** 2).sum()
    residual_squares = (residual[is_fitted] ** 2).sum()
    return EffectiveRobustnessResult(
        robustness=y - predicted,
        low=y - band[0],
        high=y - band[1],
        predicted=predicted,
        residual=residual,
        extrapolated=((x < least) | (x > most)).any(axis=1),
        corrected=(np.stack([*columns, y]) % 100 == 0).any(axis=0),
        slope=line[:-1],
        intercept=float(line[-1]),
        r_squared=(
            float(1 - residual_squares / total_squares) if total_squares else math.nan
        ),
        n_fit=m,
        level=level,
        resamples=resamples,
        singular=resamples - len(lines),
    )


def _as_share(
    id_or_ood: Literal["id", "ood"],
    accuracy: Float[np.ndarray, "n"],
    *,
    images: int | None,
) -> Float[np.ndarray, "n"]:
    """Return accuracies in per cent as shares in (0, 1); 0 and 1 are moved by half an image.

    id_or_ood: name of the accuracy in messages. images: number of images, needed for 0 and 1.
    Raise ValueError for accuracies outside 0 to 100, if `images` is needed but None, and if no
    accuracy is above 1, as the accuracies are then shares ("ood" with `images` is not checked for
    this).
    """
    name = f"{id_or_ood}_accuracy"
    is_invalid = (accuracy < 0) | (accuracy > 100)
    if is_invalid.any():
        got = accuracy[is_invalid][0]
        raise ValueError(f"{name}: must be per cent, 0 to 100, got {got:g}; correct it")
    look_like_shares = accuracy.max() <= 1 and (id_or_ood == "id" or images is None)
    errors.check(
        not look_like_shares,
        name,
        "be per cent",
        errors.Words("none above 1"),
        "multiply shares by 100",
    )
    is_extreme = accuracy % 100 == 0
    if not is_extreme.any():
        return accuracy / 100
    errors.check(
        images is not None,
        name,
        "lie between 0 and 100 to have a finite logit",
        errors.Words(f"{accuracy[is_extreme][0]:g}"),
        f"name the number of images as {id_or_ood}_images, and half an image is added",
    )
    errors.check_at_least(f"{id_or_ood}_images", images)
    share = accuracy / 100
    return np.where(is_extreme, (share * images + 0.5) / (images + 1), share)


def _check_standard(
    standard: Sequence[bool] | Bool[np.ndarray, "n"] | None,
    x: Float[np.ndarray, "n d"],
) -> Bool[np.ndarray, "n"]:
    """Return an array that is True for models to fit; raise ValueError if they determine no line.

    standard: as given by the caller; None: all. x: in-distribution accuracies as shares.
    """
    n, d = x.shape
    is_fitted = np.ones(n, bool) if standard is None else np.asarray(standard)
    errors.check(
        is_fitted.dtype == bool and is_fitted.shape == (n,),
        "standard",
        f"be true or false for each of {n} models",
        errors.Words(f"{is_fitted.dtype} of shape {is_fitted.shape}"),
    )
    errors.check(
        is_fitted.sum() > d + 1,
        "standard",
        f"mark at least {d + 2} models to fit {d + 1} numbers",
        is_fitted.sum(),
        "mark more",
    )
    rank = np.linalg.matrix_rank(x[is_fitted] - x[is_fitted].mean(axis=0))
    errors.check(
        rank >= d,
        "standard",
        "mark models whose id_accuracy differs, in each set in its own way",
        errors.Words("some that determine no line"),
        "mark others",
    )
    return is_fitted
