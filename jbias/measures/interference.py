"""Data interference (DI) index: how far errors on distorted images concentrate in one class.

A distortion that looks like some class to a network interferes with the measurement: the
loss of accuracy is due to that class, and not only to the removed information. The index
compares the wrong decisions on clean and on distorted images, by decided class.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, DI.py.
Deviations: in the reference code a class is counted at most once per batch, due to an indexed
addition; here each wrong decision is counted. In the reference code the index of a run without
any increase is undefined; here it is 0.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from jbias import errors
from jbias.measures import accuracy, decisions

VARIANTS = ("share", "count")
FEWEST = 5  # With fewer runs no range is given.
Runs = Sequence[decisions.Decisions]  # By run of one method, on the same set.
Counts = Int[np.ndarray, "r k"]  # Wrong decisions by run and decided class.
Growth = Float[np.ndarray, "r k"]  # Result of `increase`; see there for its unit.


@dataclasses.dataclass(frozen=True, eq=False)
class Interference:
    """The index of r runs of one method, in percent.

    std is NaN for a single run; low and high are NaN for fewer than `FEWEST` runs.
    """

    runs: Float[np.ndarray, "r"]  # The index of each run.
    mean: float
    std: float  # Standard deviation over runs, with divisor r - 1.
    low: float  # The range of the mean in bootstrap samples of runs.
    high: float
    worst: float  # The mean if every run had the increase of the worst run.
    dominant: int | None  # The class c*; None if no class has an increase.
    increase: Float[np.ndarray, "r k"]  # i_r[c].

    @property
    def parts(self) -> Float[np.ndarray, "r 2"]:
        """Return the columns i_r[c*] / sum_c i_r[c] and i_r[c*], the factors of each run's index.

        Methods with different dominant classes can be compared by these factors. All factors are 0
        if no class has an increase.
        """
        if self.dominant is None:
            return np.zeros((len(self.increase), 2))
        growth, total = self.increase[:, self.dominant], self.increase.sum(axis=1)
        share = np.divide(growth, total, out=np.zeros_like(growth), where=total > 0)
        return np.stack([share, growth], axis=1)


def wrong_by_class(decided: decisions.Decisions, classes: int) -> Int[np.ndarray, "k"]:
    """Return the number of wrong decisions for each decided class.

    classes: the number k of classes. Images without a correct class (-1) are left out. ValueError
    if any decision, also about such an image, is outside of 0 ... classes - 1.
    """
    prediction = np.asarray(decided.prediction)
    if len(prediction) and not 0 <= prediction.min() <= prediction.max() < classes:
        raise ValueError(
            f"interference: decisions must be in 0 ... {classes - 1}, got "
            f"{prediction.min()} ... {prediction.max()}; say how many classes there are"
        )
    is_wrong = (np.asarray(decided.columns["label"]) >= 0) & ~decided.right
    return np.bincount(prediction[is_wrong], minlength=classes)


def increase(
    clean: Counts, distorted: Counts, images: int, *, variant: str = "share"
) -> Growth:
    """Return the increase i of the wrong decisions for each class; 0 if they decrease.

    clean, distorted: numbers W0 and W1 of wrong decisions by run and decided class. images:
    the number of images. ValueError for an unknown variant, or different shapes.

    Variant "share", as in the released code: i = K max(q1 - q0, 0), with q = W / sum W, or 0
    without wrong decisions, and K classes; if errors move from all classes equally to a single
    class, i is K - 1 for this class. Variant "count", as in the text of the paper, in percent of
    the images: i = 100 max(W1 - W0, 0) / images.
    """
    errors.check_choice("interference", variant, VARIANTS, name="variant")
    clean, distorted = np.asarray(clean), np.asarray(distorted)
    shapes = clean.shape, distorted.shape
    must = "be by run and class, clean and distorted alike"
    errors.check(
        len({*shapes}) == 1 and clean.ndim == 2,
        "interference",
        must,
        shapes,
        name="counts",
    )
    if variant == "count":
        return 100 * np.maximum(distorted - clean, 0) / max(images, 1)
    grown = _shares(distorted) - _shares(clean)
    return clean.shape[1] * np.maximum(grown, 0)


def _shares(counts: Counts) -> Float[np.ndarray, "*r k"]:
    """Return counts divided by their sum over classes; 0 if the sum is 0."""
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def index(
    increase: Growth, *, variant: str = "share", draws: int = 2000, seed: int = 0
) -> Interference:
    """Return the index of each run r, DI_r = w i_r[c*] / sum_c i_r[c], and its mean and range.

    c* = argmax_c mean_r i_r[c] is the dominant class. increase: the result i of the function
    `increase` with the same variant. w is mean_r i_r[c*] for "share", i_r[c*] for "count", and
    max_r i_r[c*] for the worst case of both. The index of a run without any increase is 0; if
    classes are tied, c* is the lowest.

    For `FEWEST` runs or more, low and high are percentiles of the mean in `draws` bootstrap
    samples of runs, each with its own c* and w. This is a range of 95 %, and not a confidence
    interval: in simulations with 5 runs, the true index is in 65 to 85 of 100 such ranges. If no
    class is preferred, the true index is in none of these ranges, because the index is above 0 by
    chance (see `by_chance`).
    """
    i = np.asarray(increase, np.float64)
    r = len(i)
    (values,), (worst,), (dominant,) = _index(i, np.ones((1, r)), variant)
    low = high = math.nan
    if r >= FEWEST:
        random = np.random.default_rng(seed)
        counts = random.multinomial(r, np.full(r, 1 / r), size=draws)
        drawn = (_index(i, counts, variant)[0] * counts).sum(axis=1) / r
        low, high = np.quantile(drawn, accuracy.INTERVAL_QUANTILES).tolist()
    return Interference(
        runs=values,
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if r > 1 else math.nan,
        low=low,
        high=high,
        worst=float(worst.mean()),
        dominant=int(dominant) if i.any() else None,
        increase=i,
    )


def _index(
    i: Growth, counts: Int[np.ndarray, "b r"], variant: str
) -> tuple[Float[np.ndarray, "b r"], Float[np.ndarray, "b r"], Int[np.ndarray, "b"]]:
    """Return (index of each run, its worst case, dominant class c*) in b samples of runs.

    i: the result of `increase`. counts: the number of times that each run is in each sample.
    variant: see `increase`.
    """
    mean = counts @ i / counts.sum(axis=1, keepdims=True)
    dominant = mean.argmax(axis=1)
    growth = i[:, dominant].T  # (b, r)
    total = i.sum(axis=1)
    share = np.divide(growth, total, out=np.zeros_like(growth), where=total > 0)
    weight = growth
    if variant == "share":
        weight = mean[np.arange(len(mean)), dominant][:, None]
    return share * weight, share * growth.max(axis=1, keepdims=True), dominant


def of_runs(
    clean: Runs,
    distorted: Runs,
    *,
    classes: int,
    variant: str = "share",
    **options: int,
) -> Interference:
    """Return the index of runs of one method, from their decisions on clean and distorted images.

    clean, distorted: one entry per run, in the same order. classes: the number of classes.
    variant: "share" or "count", see `increase`. options: draws and seed, see `index`. Images
    without a correct class are left out. ValueError without runs, for different numbers of runs or
    images, for labels that differ, for a decision outside of the classes, and for an unknown
    variant. With "share" the values of runs have a weight in common, so they are not independent.

        paths = [f"measured/{name}/decisions/test/grid_shuffle.parquet" for name in names]
        runs = [decision_files.read_conditions(path) for path in paths]
        of_runs([run[""] for run in runs], [run["4x4"] for run in runs], classes=10)
    """
    images = int((np.asarray(clean[0].columns["label"]) >= 0).sum()) if clean else 0
    clean_counts, distorted_counts = _counts(clean, distorted, classes)
    growth = increase(clean_counts, distorted_counts, images, variant=variant)
    return index(growth, variant=variant, **options)


def by_chance(clean: Runs, distorted: Runs, *, classes: int) -> float:
    """Return the mean index ("share") of runs that is expected if distortion favours no class.

    Arguments and errors: see `of_runs`.

    The mean is over 200 random permutations with a fixed seed: each run's wrong decisions on
    clean and distorted images are pooled and split at random into two parts of the same sizes as
    before. Decisions are drawn independently, although many are about the same image, so the
    result tends to be too large.
    """
    clean_counts, distorted_counts = _counts(clean, distorted, classes)
    pooled = clean_counts + distorted_counts
    random = np.random.default_rng(0)
    dealt_clean = np.stack(
        [
            random.multivariate_hypergeometric(counts, size, size=200)
            for counts, size in zip(pooled, clean_counts.sum(axis=1), strict=True)
        ],
        axis=1,
    )
    dealt_distorted = pooled - dealt_clean
    growth = np.maximum(_shares(dealt_distorted) - _shares(dealt_clean), 0)  # (b, r, k)
    mean = classes * growth.mean(axis=1)
    dominant = mean.argmax(axis=1)[:, None, None]
    of_dominant = np.take_along_axis(growth, dominant, axis=2)
    total = growth.sum(axis=2)
    share = of_dominant[..., 0] / np.where(total > 0, total, 1)
    return float((share.mean(axis=1) * mean.max(axis=1)).mean())


def _counts(clean: Runs, distorted: Runs, classes: int) -> list[Counts]:
    """Return [wrong decisions on clean images, on distorted images], by run and class.

    classes: the number of classes. ValueError unless `clean` and `distorted` have equally many runs
    and images and the same labels, and for a decision outside of 0 ... classes - 1. The order of
    the runs is not checked.
    """
    runs = (*clean, *distorted)
    sizes = {len(run.prediction) for run in runs}
    if not clean or len(clean) != len(distorted) or len(sizes) != 1:
        raise ValueError(
            "interference: clean and distorted must be of the same runs and images, got "
            f"{len(clean)} and {len(distorted)} runs of {sorted(sizes)} images"
        )
    first_label = np.asarray(runs[0].columns["label"])
    for number, run in enumerate(runs):
        is_different = np.asarray(run.columns["label"]) != first_label
        if is_different.any():
            raise ValueError(
                "interference: clean and distorted must be of the same images, got "
                f"{int(is_different.sum())} other labels in run {number % len(clean)}; "
                "measure the runs on the same set"
            )
    return np.split(np.stack([wrong_by_class(run, classes) for run in runs]), 2)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, classes: int
) -> Iterator[decisions.Number]:
    """Return the accuracy of each condition, and the di_index, in percent, of distorted images.

    by_condition: decisions on unchanged images ("", which has no di_index) and on distorted
    images. classes: the number of classes. The variant is "share"; for a single network,
    DI = i[c*]^2 / sum_c i[c] in both variants. ValueError as `of_runs` raises.
    """
    for name, decided in by_condition.items():
        yield decisions.mean("accuracy", decided.right, name)
        if name:
            result = of_runs([by_condition[""]], [decided], classes=classes)
            n = len(decided.prediction)
            yield decisions.Number("di_index", result.mean, None, n, name)
