"""Effective robustness: accuracy out of distribution beyond what that in distribution predicts.

Source: Taori et al., NeurIPS 2020, https://arxiv.org/abs/2007.00644; reference code:
https://github.com/modestyachts/imagenet-testbed at 0170eec. Probit: Miller et al., ICML 2021,
https://arxiv.org/abs/2107.04649. Several sets in distribution: Shi et al., NeurIPS 2023,
https://arxiv.org/abs/2302.01381, whose code is not released.
Deviation: an accuracy of 0 or 100 %, infinite on either scale, becomes (count + 1/2) / (n + 1);
the reference fits a line of its own below and above such models on ImageNet-A.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.special
from jaxtyping import Bool, Float

from jbias.stats import score_table
from jbias.stats.correlation import Values, as_columns

_SCALES = {
    "logit": (scipy.special.logit, scipy.special.expit),
    "probit": (scipy.special.ndtri, scipy.special.ndtr),
}


@dataclasses.dataclass(frozen=True, eq=False)
class EffectiveRobustnessResult:
    """A line of accuracy on accuracy, and how far above it each of n models lies."""

    robustness: Float[np.ndarray, "n"]  # Percentage points, -100 to 100.
    low: Float[np.ndarray, "n"]  # Ends of its interval, the line's uncertainty alone.
    high: Float[np.ndarray, "n"]
    predicted: Float[np.ndarray, "n"]  # Accuracy on the line, in per cent.
    residual: Float[np.ndarray, "n"]  # On the scale; those of fitted models sum to 0.
    extrapolated: Bool[np.ndarray, "n"]  # Beyond the fitted models' accuracies.
    corrected: Bool[np.ndarray, "n"]  # Has an accuracy of 0 or 100 %.
    slope: Float[np.ndarray, "d"]  # One for each set in distribution.
    intercept: float
    r_squared: float
    n_fit: int
    level: float
    resamples: int
    singular: int  # Resamples that give no line, left out of the interval.


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
    """Gives accuracy minus what a line through standard models predicts from that in distribution.

    robustness = y - 100 L^-1(sum_j slope_j L(x_j) + intercept), L the logit or probit of a share,
    x and y accuracies in per cent, the line by least squares of L(y) over the models that
    `standard` marks (all without it). x and y must be of the same classes. Several columns of x
    are sets that models were trained on. The interval is from the (1 - level) / 2 to the
    (1 + level) / 2 quantile over lines through models drawn again; images are not drawn.
    id_images, ood_images: of the sets, needed where an accuracy is 0 or 100. Raises ValueError
    for what is no accuracy in per cent, shares, fewer than 3 standard models or no line.
    """
    score_table.find_name(scale, tuple(_SCALES), "scale")
    score_table.check_share("level", level)
    score_table.check_count("resamples", resamples)
    forward, inverse = _SCALES[scale]
    columns = np.atleast_1d(np.asarray(id_accuracy))
    columns = columns.reshape(len(columns), -1).T
    named = {f"id_accuracy {j}": column for j, column in enumerate(columns)}
    *columns, y = as_columns(**named, ood_accuracy=ood_accuracy)
    x = np.stack([_as_share("id", one, id_images) for one in columns], axis=1)
    fitted = _check_standard(standard, x)
    design = np.column_stack([forward(x), np.ones(len(x))])
    target = forward(_as_share("ood", y, ood_images))
    line = np.linalg.lstsq(design[fitted], target[fitted])[0]
    predicted, residual = 100 * inverse(design @ line), target - design @ line
    # Lines through models drawn again, of the draws that determine one.
    standards, m = design[fitted], int(fitted.sum())
    rows = np.random.default_rng(seed).integers(m, size=(resamples, m))
    rows = rows[np.linalg.matrix_rank(standards[rows]) == design.shape[1]]
    lines = np.linalg.pinv(standards[rows]) @ target[fitted][rows][..., None]
    lines = lines[..., 0]
    band = np.full((2, len(x)), math.nan)
    if len(lines):
        ends = [(1 + level) / 2, (1 - level) / 2]
        band = np.quantile(100 * inverse(lines @ design.T), ends, axis=0)
    least, most = x[fitted].min(axis=0), x[fitted].max(axis=0)
    spread = ((target[fitted] - target[fitted].mean()) ** 2).sum()
    left = (residual[fitted] ** 2).sum()
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
        r_squared=float(1 - left / spread) if spread else math.nan,
        n_fit=int(fitted.sum()),
        level=level,
        resamples=resamples,
        singular=resamples - len(lines),
    )


def _as_share(
    which: str, accuracy: Float[np.ndarray, "n"], images: int | None
) -> Float[np.ndarray, "n"]:
    """Gives per cent as shares inside (0, 1), half an image off the ends."""
    name = f"{which}_accuracy"
    wrong = (accuracy < 0) | (accuracy > 100)
    if wrong.any():
        got = accuracy[wrong][0]
        raise ValueError(f"{name}: must be per cent, 0 to 100, got {got:g}; correct it")
    shares = accuracy.max() <= 1 and (which == "id" or images is None)
    told = "none above 1; multiply shares by 100"
    score_table.check(not shares, name, "be per cent", told)
    ends = accuracy % 100 == 0
    if not ends.any():
        return accuracy / 100
    must, known = "lie between 0 and 100 to have a finite logit", images is not None
    told = f"{accuracy[ends][0]:g}; name the number of images as {which}_images"
    score_table.check(known, name, must, f"{told}, and half an image is added")
    score_table.check_count(f"{which}_images", images)
    share = accuracy / 100
    return np.where(ends, (share * images + 0.5) / (images + 1), share)


def _check_standard(standard, x: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, "n"]:
    """Gives which models the line is fitted to; refuses those that determine none."""
    n, d = x.shape
    fitted = np.ones(n, bool) if standard is None else np.asarray(standard)
    sound, told = fitted.dtype == bool, f"{fitted.dtype} of shape {fitted.shape}"
    must = f"be true or false for each of {n} models"
    score_table.check(sound and fitted.shape == (n,), "standard", must, told)
    must = f"mark at least {d + 2} models to fit {d + 1} numbers"
    told = f"{fitted.sum()}; mark more"
    score_table.check(fitted.sum() > d + 1, "standard", must, told)
    rank = np.linalg.matrix_rank(x[fitted] - x[fitted].mean(axis=0))
    must = "mark models whose id_accuracy differs, in each set in its own way"
    told = "some that determine no line; mark others"
    score_table.check(rank >= d, "standard", must, told)
    return fitted
