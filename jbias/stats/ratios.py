"""Scores that are ratios of sums over images: intervals, and comparisons on the same images.

The score of observer j is v_j = sum_i numerator[j, i] / sum_i denominator[j, i]. For shape bias,
the numerator is 1 for a decision for the shape, and the denominator is 1 for a decision for the
shape or the texture. For accuracy, the denominator is 1 on every image.

Images are the sampling units: all decisions about an image are drawn together. Intervals and tests
count four extra images, on which every observer has the denominator 1, two with the numerator 1
and two with 0. Otherwise, an observer with three decisions, all for the shape, would have a shape
bias of 1 with standard error 0. For a single proportion the result is the interval of Agresti and
Coull. With hundreds of decisions, the extra images change nothing that is visible. Values,
differences and counts never include extra images.

Stimuli often share pictures: Geirhos' 1,200 cue conflicts combine 160 shapes with 48 textures. Tests
over images say what holds for further combinations like these; `clusters` of `compare_ratios` counts
the pictures as drawn, too.

The result of an observer, or of a pair, depends only on the images that these observers have, in
their order: neither other observers nor images of other observers change it (except for p-values
that are adjusted for the number of pairs).

Sources: Efron and Tibshirani 1993, chapters 8 and 13 (bootstrap); Cochran 1977, section 6.4
(linearised variance of a ratio); Agresti and Coull 1998,
https://doi.org/10.1080/00031305.1998.10480550, and Agresti and Caffo 2000,
https://doi.org/10.1080/00031305.2000.10474560 (extra observations); Cameron, Gelbach and Miller 2011,
https://doi.org/10.1198/jbes.2010.07136 (clusters in two ways).
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.stats import multiple_testing

# Numerators of the extra images; their denominators are 1.
EXTRA_NUMERATORS = np.array([1.0, 1.0, 0.0, 0.0])
_MIN_DRAWS = 100
_CHUNK = 2**21  # Weights in memory at the same time: 16 MiB.


@dataclasses.dataclass(frozen=True, eq=False)
class RatiosResult:
    """Scores of k observers with bootstrap intervals over images; NaN without a decision."""

    value: Float[np.ndarray, "k"]
    lower: Float[np.ndarray, "k"]
    upper: Float[np.ndarray, "k"]
    count: Float[
        np.ndarray, "k"
    ]  # Sum of the numerator, such as decisions for the shape.
    n: Float[
        np.ndarray, "k"
    ]  # Sum of the denominator, such as decisions for either cue.
    confidence: float  # A fraction, such as 0.95.


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRatios:
    """Comparisons of p pairs of observers on the images that both have.

    Pairs are in the order (0, 1), (0, 2), ..., (1, 2), ...; `bootstrap_intervals.pair_matrix`
    makes matrices (k, k) from the fields. All numbers but `num_images` are NaN for a pair in which
    an observer has no decision on the common images (denominator 0).
    """

    first: Int[np.ndarray, "p"]  # Index of an observer.
    second: Int[np.ndarray, "p"]
    difference: Float[np.ndarray, "p"]  # Score of the first less that of the second.
    lower: Float[np.ndarray, "p"]  # Interval of the difference of this pair alone.
    upper: Float[np.ndarray, "p"]
    standard_error: Float[np.ndarray, "p"]
    pvalue: Float[np.ndarray, "p"]  # Of equal scores; not adjusted.
    adjusted: Float[np.ndarray, "p"]  # For all pairs that are not NaN.
    num_images: Int[np.ndarray, "p"]  # Images that both observers have.
    adjustment: str  # A method of `multiple_testing`.
    confidence: float  # A fraction, such as 0.95.

    @property
    def verdict(self) -> Int[np.ndarray, "p"]:
        """1 where the first is larger, -1 where the second is larger, 0 where p is too large.

        A pair differs if its p-value, not adjusted, is at most 1 - confidence. The verdict does
        not depend on other observers.
        """
        return self._verdict(self.pvalue)

    @property
    def adjusted_verdict(self) -> Int[np.ndarray, "p"]:
        """As `verdict`, by the adjusted p-value, which depends on the number of pairs."""
        return self._verdict(self.adjusted)

    def _verdict(self, pvalue: Float[np.ndarray, "p"]) -> Int[np.ndarray, "p"]:
        """Return the sign of the difference where p is at most 1 - confidence, else 0."""
        is_different = pvalue <= 1 - self.confidence  # False for NaN.
        sign = np.sign(np.where(is_different, self.difference, 0))
        return sign.astype(np.int64)


def bootstrap_ratios(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    *,
    has_row: npt.ArrayLike | None = None,
    draws: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> RatiosResult:
    """Return the score of each observer with its percentile interval over redrawn images.

    numerator, denominator: (k, n), k observers and n images; 0 <= numerator <= denominator.
    has_row: (k, n), False where an observer has no row for the image; both are 0 there. The images
    of an observer are redrawn without those that it lacks. None: every observer has all images.
    draws: number of bootstrap draws. seed: seed of the draws, which also depend on the number of
    images. confidence: level of the intervals, such as 0.95.
    The draws include the four extra images of this module, so an interval has a positive length
    even if all decisions are for the same cue; draws without any decision are left out. Intervals
    of an observer without a decision (denominator 0) are NaN, as its value.
    Raise ValueError for other shapes and values, fewer than 100 draws, and a confidence outside
    (0, 1).
    """
    numerator, denominator = read(numerator, denominator)
    has_row = _read_rows(has_row, numerator, denominator)
    errors.check_at_least("draws", draws, _MIN_DRAWS)
    errors.check_share("confidence", confidence)
    value = ratio(numerator.sum(axis=1), denominator.sum(axis=1))
    lower, upper = np.full_like(value, np.nan), np.full_like(value, np.nan)
    masks, group = np.unique(has_row, axis=0, return_inverse=True)
    for i, mask in enumerate(masks):
        members = np.flatnonzero((group.ravel() == i) & ~np.isnan(value))
        if not len(members):
            continue
        rows = np.ix_(members, mask)
        drawn = draw_ratios(numerator[rows], denominator[rows], draws=draws, seed=seed)
        ends = np.nanquantile(
            drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0
        )
        lower[members], upper[members] = ends
    return RatiosResult(
        value=value,
        # With few decisions and a low confidence, the extra images could move them past the value.
        lower=np.minimum(lower, value),
        upper=np.maximum(upper, value),
        count=numerator.sum(axis=1),
        n=denominator.sum(axis=1),
        confidence=confidence,
    )


def compare_ratios(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    has_row: npt.ArrayLike | None = None,
    *,
    adjust: str = "holm",
    confidence: float = 0.95,
    clusters: Sequence[npt.ArrayLike] = (),
) -> ComparedRatios:
    """Return the differences of the scores of all pairs of observers, with tests.

    Over the images that both observers have, and four extra images, the linearised difference of
    scores a and b has the influence values d_i = r_ai - r_bi with r_ji = (numerator[j, i] -
    w_j denominator[j, i]) / sum_i denominator[j, i], w_j the score with extra images. The standard
    error is sqrt(sum_i d_i^2), that of a paired bootstrap over images. z = (w_a - w_b) / standard
    error, and p = 2 (1 - Phi(|z|)), without a smallest possible value. For accuracies z is
    (b - c) / sqrt(b + c - (b - c)^2 / (n + 4)), b and c the numbers of images that only one observer
    decides correctly: McNemar's test for large n. The interval is w_a - w_b plus and minus
    standard errors. Observers with equal influence values have p = 1.

    With clusters, images of one cluster are drawn together: the squared standard error is the sum
    of d_i d_j over all ordered pairs of images that share a cluster in any way, times G / (G - 1)
    with the smallest number of clusters G; p and the interval are those of Student's t with G - 1
    degrees of freedom (G over all images). A pair whose common images are one cluster is NaN. If
    that sum is smaller than for clusters in one way only, the largest of
    these is taken.

    numerator, denominator, has_row: see `bootstrap_ratios`. adjust: a method of
    `multiple_testing`, for all pairs. confidence: level of the intervals and of the verdicts.
    clusters: for each way, the number or name of the cluster of each of the n images.
    Raise ValueError for other shapes and values, an unknown method, a confidence outside (0, 1),
    more than two ways, and fewer than two clusters of all images.
    """
    numerator, denominator = read(numerator, denominator)
    has_row = _read_rows(has_row, numerator, denominator)
    multiple_testing.check_method(adjust)
    errors.check_share("confidence", confidence)
    cluster_ids = _read_clusters(clusters, num_images=numerator.shape[1])
    pairs = list(itertools.combinations(range(len(numerator)), 2))
    statistics = np.full((len(pairs), 3), np.nan)
    num_images = np.zeros(len(pairs), np.int64)
    for p, pair in enumerate(pairs):
        common = has_row[pair[0]] & has_row[pair[1]]
        num_images[p] = common.sum()
        rows = np.ix_(pair, common)
        statistics[p] = _compare(
            numerator[rows], denominator[rows], [ids[common] for ids in cluster_ids]
        )
    difference, centre, standard_error = statistics.T
    z = np.divide(
        centre,
        standard_error,
        out=np.where(np.isnan(centre + standard_error), np.nan, 0.0),
        where=standard_error > 0,
    )
    distribution = scipy.stats.norm()
    if cluster_ids:
        smallest = min(len(np.unique(ids)) for ids in cluster_ids)
        distribution = scipy.stats.t(smallest - 1)
    pvalue = 2 * distribution.sf(np.abs(z))
    adjusted = np.full_like(pvalue, np.nan)
    is_compared = ~np.isnan(pvalue)
    adjusted[is_compared] = multiple_testing.adjust(pvalue[is_compared], adjust)
    half_width = distribution.ppf((1 + confidence) / 2) * standard_error
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    return ComparedRatios(
        first=first,
        second=second,
        difference=difference,
        lower=centre - half_width,
        upper=centre + half_width,
        standard_error=standard_error,
        pvalue=pvalue,
        adjusted=adjusted,
        num_images=num_images,
        adjustment=adjust,
        confidence=confidence,
    )


def _compare(
    numerator: Float[np.ndarray, "2 n"],
    denominator: Float[np.ndarray, "2 n"],
    clusters: Sequence[Int[np.ndarray, "n"]],
) -> tuple[float, float, float]:
    """Return (difference, the same with extra images, standard error) of two observers."""
    value = ratio(numerator.sum(axis=1), denominator.sum(axis=1))
    if np.isnan(value).any():
        return math.nan, math.nan, math.nan
    extended, influence = influence_values(numerator, denominator)
    variance = _variance(influence[0] - influence[1], clusters)
    standard_error = math.sqrt(variance)
    return value[0] - value[1], extended[0] - extended[1], standard_error


def _variance(
    influence: Float[np.ndarray, "n+4"], clusters: Sequence[Int[np.ndarray, "n"]]
) -> float:
    """Return the variance of a sum of influence values; see `compare_ratios`.

    Each of the four extra images is a cluster of its own.
    """
    extra = influence[-len(EXTRA_NUMERATORS) :]
    values = influence[: -len(EXTRA_NUMERATORS)]
    if not clusters:
        return float(np.sum(influence**2))
    one_way = [_sum_of_squares(values, ids) for ids in clusters]
    variance = one_way[0]
    if len(clusters) == 2:
        first, second = clusters
        combination = first * (second.max(initial=0) + 1) + second
        variance = sum(one_way) - _sum_of_squares(values, combination)
    smallest = min(len(np.unique(ids)) for ids in clusters)
    if smallest < 2:
        return math.nan
    corrected = max([variance, *one_way]) * smallest / (smallest - 1)
    return float(corrected + np.sum(extra**2))


def _sum_of_squares(values: Float[np.ndarray, "n"], ids: Int[np.ndarray, "n"]) -> float:
    """Return the sum over clusters of the squared sum of values."""
    return float(np.sum(np.bincount(ids, weights=values) ** 2))


def _read_clusters(
    clusters: Sequence[npt.ArrayLike], *, num_images: int
) -> list[Int[np.ndarray, "n"]]:
    """Return cluster numbers from 0 for each way; ValueError as `compare_ratios`."""
    errors.check(
        len(clusters) <= 2, "clusters", "be of at most two ways", len(clusters)
    )
    cluster_ids = []
    for i, labels in enumerate(clusters):
        names = np.asarray(labels)
        errors.check(
            names.shape == (num_images,),
            f"clusters[{i}]",
            f"have one entry for each of {num_images} images",
            errors.Words(f"shape {names.shape}"),
        )
        distinct, ids = np.unique(names, return_inverse=True)
        errors.check(
            len(distinct) > 1,
            f"clusters[{i}]",
            "have at least two clusters",
            len(distinct),
        )
        cluster_ids.append(ids)
    return cluster_ids


def influence_values(
    numerator: Float[np.ndarray, "k n"], denominator: Float[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k n+4"]]:
    """Return the scores with extra images, and the influence value of each image on each score.

    The influence values of an observer have sum 0; see `compare_ratios`.
    """
    numerator, denominator = with_extra_images(numerator, denominator)
    total = denominator.sum(axis=1)
    value = numerator.sum(axis=1) / total
    return value, (numerator - value[:, None] * denominator) / total[:, None]


def with_extra_images(
    numerator: Float[np.ndarray, "k n"], denominator: Float[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "k n+4"], Float[np.ndarray, "k n+4"]]:
    """Return numerator and denominator with the four extra images of this module at the end."""
    shape = (len(numerator), len(EXTRA_NUMERATORS))
    extra = np.broadcast_to(EXTRA_NUMERATORS, shape)
    return np.hstack([numerator, extra]), np.hstack([denominator, np.ones(shape)])


def ratio(
    numerator: Float[np.ndarray, "..."], denominator: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return numerator / denominator, NaN where the denominator is 0."""
    nan = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=nan, where=denominator > 0)


def weight_chunks(
    num_images: int, *, draws: int, seed: int
) -> Iterator[Float[np.ndarray, "b n"]]:
    """Yield the number of times that each of n images occurs in each draw, some draws at a time.

    A draw is n images with replacement. The weights depend on nothing but the arguments.
    """
    rng = np.random.default_rng(seed)
    size = max(1, _CHUNK // num_images)
    for start in range(0, draws, size):
        rows = min(size, draws - start)
        drawn = rng.integers(num_images, size=(rows, num_images))
        drawn += num_images * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * num_images)
        yield counts.reshape(rows, num_images).astype(np.float64)


def read(
    numerator: npt.ArrayLike, denominator: npt.ArrayLike
) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "k n"]]:
    """Return both as float64; ValueError unless (k, n) with 0 <= numerator <= denominator."""
    numerator = np.asarray(numerator, dtype=np.float64)
    denominator = np.asarray(denominator, dtype=np.float64)
    errors.check(
        numerator.ndim == 2 and numerator.shape == denominator.shape,
        "numerator",
        "have the shape of denominator, observers by images",
        errors.Words(f"shapes {numerator.shape} and {denominator.shape}"),
    )
    is_valid = (numerator >= 0) & (numerator <= denominator) & np.isfinite(denominator)
    wrong = np.argwhere(~is_valid)
    if len(wrong):
        j, i = wrong[0]
        errors.refuse(
            "numerator",
            "be from 0 to the denominator, and both finite",
            errors.Words(
                f"{numerator[j, i]:g} of {denominator[j, i]:g} for observer {j}, image {i}"
            ),
        )
    return numerator, denominator


def _read_rows(
    has_row: npt.ArrayLike | None,
    numerator: Float[np.ndarray, "k n"],
    denominator: Float[np.ndarray, "k n"],
) -> Bool[np.ndarray, "k n"]:
    """Return `has_row` as an array; ValueError unless the denominator is 0 where it is False."""
    if has_row is None:
        return np.ones(numerator.shape, bool)
    has_row = np.asarray(has_row)
    errors.check(
        has_row.shape == numerator.shape and has_row.dtype == bool,
        "has_row",
        f"be True or False for each of {numerator.shape} observers and images",
        errors.Words(f"{has_row.dtype} of shape {has_row.shape}"),
    )
    wrong = np.argwhere(~has_row & (denominator != 0))
    errors.check(
        not len(wrong),
        "denominator",
        "be 0 where has_row is False",
        errors.Words("another value for observer {}, image {}".format(*wrong[0]))
        if len(wrong)
        else None,
    )
    return has_row


def draw_ratios(
    numerator: Float[np.ndarray, "k n"],
    denominator: Float[np.ndarray, "k n"],
    *,
    draws: int,
    seed: int,
) -> Float[np.ndarray, "b k"]:
    """Return the scores, with extra images, in each draw of images; NaN without a decision."""
    sums = np.vstack(with_extra_images(numerator, denominator)).T
    drawn = [
        weights @ sums for weights in weight_chunks(len(sums), draws=draws, seed=seed)
    ]
    return ratio(*np.split(np.vstack(drawn), 2, axis=1))
