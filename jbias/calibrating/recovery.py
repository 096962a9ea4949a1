"""Statistics on how well a measure recovers the dial, from arrays with an entry per network.

`values` are of a measure, `dials` the known reliance on shape against texture, from 0 to 1, and
`families` the kinds of networks. Nothing here knows of files or flags.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import stats

from jbias.calibrating import curves
from jbias.measures import decisions
from jbias.stats import correlation

_LEAST_CLUSTERS = 5  # For a bootstrap interval.


class Interval(NamedTuple):
    """A number with the ends of its 95 % interval; NaN for an undefined number or end."""

    value: float
    lower: float
    upper: float


class Share(NamedTuple):
    """A share `count` of `n`, with the ends of its 95 % Wilson interval; NaN if n is 0."""

    value: float
    lower: float
    upper: float
    n: int


def share(count: int, n: int) -> Share:
    """Return a share with its Wilson interval."""
    lower, upper = decisions.wilson_interval(count, n)
    return Share(count / n if n else math.nan, lower, upper, n)


def rho(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Return Spearman's rank correlation; NaN for fewer than 3 networks or a constant array."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(_rank_correlations(x[None], y[None])[0])


def rho_interval(
    values: Float[np.ndarray, "n"],
    dials: Float[np.ndarray, "n"],
    *,
    families: Shaped[np.ndarray, "n"],
    clusters: Shaped[np.ndarray, "n"],
    draws: int,
    seed: int,
) -> Interval:
    """Return Spearman's rho of values and dials, with a 95 % bootstrap interval over clusters.

    clusters: networks of one cluster share trained weights or settings, so they are drawn
    together; see `cluster_weights`. The interval is between the 2.5 % and the 97.5 % quantile of
    rho over draws; draws in which values or dials are constant are left out. The ends are NaN for
    fewer than 5 clusters, whose draws hardly differ.
    """
    estimate = rho(values, dials)
    if math.isnan(estimate) or _num_clusters(families, clusters) < _LEAST_CLUSTERS:
        return Interval(estimate, math.nan, math.nan)
    weights = cluster_weights(families, clusters, draws=draws, seed=seed)
    drawn = weighted_rho(values, dials, weights)
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return Interval(estimate, math.nan, math.nan)
    lower, upper = np.quantile(finite, [0.025, 0.975]).tolist()
    return Interval(estimate, lower, upper)


def mean_interval(
    differences: Float[np.ndarray, "n"],
    *,
    families: Shaped[np.ndarray, "n"],
    clusters: Shaped[np.ndarray, "n"],
    draws: int,
    seed: int,
) -> Interval:
    """Return the mean of a number per network, with a 95 % bootstrap interval over clusters.

    clusters: see `cluster_weights`. NaN without networks; the ends are NaN for fewer than 5
    clusters.
    """
    if not len(differences):
        return Interval(math.nan, math.nan, math.nan)
    if _num_clusters(families, clusters) < _LEAST_CLUSTERS:
        return Interval(float(np.mean(differences)), math.nan, math.nan)
    weights = cluster_weights(families, clusters, draws=draws, seed=seed)
    means = weights @ differences / weights.sum(axis=1)
    lower, upper = np.quantile(means, [0.025, 0.975]).tolist()
    return Interval(float(np.mean(differences)), lower, upper)


def _num_clusters(
    families: Shaped[np.ndarray, "n"], clusters: Shaped[np.ndarray, "n"]
) -> int:
    """Return the number of different pairs of family and cluster."""
    return len({*zip(families.tolist(), clusters.tolist(), strict=True)})


def cluster_weights(
    families: Shaped[np.ndarray, "n"],
    clusters: Shaped[np.ndarray, "n"],
    *,
    draws: int,
    seed: int,
) -> Int[np.ndarray, "b n"]:
    """Return how often each network is drawn, a row per bootstrap draw.

    Clusters are drawn with replacement within each family, as many as the family has; all
    networks of a cluster are drawn as often as the cluster. A cluster has networks of one family
    only, or counts as one cluster in each of its families.
    """
    rng = np.random.default_rng(seed)
    weights = np.zeros((draws, len(families)), int)
    for family in np.unique(families):
        (members,) = np.nonzero(families == family)
        names, cluster_of = np.unique(clusters[members], return_inverse=True)
        share = np.full(len(names), 1 / len(names))
        counts = rng.multinomial(len(names), share, size=draws)
        weights[:, members] = counts[:, cluster_of]
    return weights


def weighted_rho(
    x: Float[np.ndarray, "n"],
    y: Float[np.ndarray, "n"],
    weights: Int[np.ndarray, "b n"],
) -> Float[np.ndarray, "b"]:
    """Return Spearman's rho of x and y with each network repeated as often as its weight.

    A row of weights for each result; NaN where x or y is constant.
    """
    ranks = [_weighted_ranks(values, weights) for values in (x, y)]
    total = weights.sum(axis=1, keepdims=True)
    centred = [
        rank - (weights * rank).sum(axis=1, keepdims=True) / total for rank in ranks
    ]
    first, second = centred
    covariance = (weights * first * second).sum(axis=1)
    variances = [(weights * rank**2).sum(axis=1) for rank in centred]
    product = np.sqrt(variances[0] * variances[1])
    is_defined = product > 1e-9 * total[:, 0]
    quotient = np.divide(
        covariance, product, out=np.full(len(product), math.nan), where=is_defined
    )
    return np.clip(quotient, -1, 1)


def _weighted_ranks(
    values: Float[np.ndarray, "n"], weights: Int[np.ndarray, "b n"]
) -> Float[np.ndarray, "b n"]:
    """Return mean ranks of values, with each value repeated as often as its weight."""
    is_below = values[:, None] < values  # Of (other, network).
    is_equal = values[:, None] == values
    return weights @ is_below + (weights @ is_equal + 1) / 2


def partial_rho(
    x: Float[np.ndarray, "n"],
    y: Float[np.ndarray, "n"],
    control: Float[np.ndarray, "n"],
) -> float:
    """Return the partial Spearman correlation of x and y given a control.

    (r_xy - r_xz r_yz) / sqrt((1 - r_xz^2) (1 - r_yz^2)); r_xy if the control is constant; NaN
    if it explains the ranks of x or y completely.
    """
    r_xy, r_xz, r_yz = rho(x, y), rho(x, control), rho(y, control)
    if len(control) and np.ptp(control) == 0:
        return r_xy
    unexplained = (1 - r_xz**2) * (1 - r_yz**2)
    if math.isnan(unexplained) or unexplained < 1e-12:
        return math.nan
    return (r_xy - r_xz * r_yz) / math.sqrt(unexplained)


def held_out_knots(
    values: Float[np.ndarray, "n"],
    dials: Float[np.ndarray, "n"],
    groups: Shaped[np.ndarray, "n"],
    *,
    direction: int,
) -> dict[str, curves.Knots | None]:
    """Return for each group of networks the curve that was fitted to all other groups.

    direction: see `fit`. None if there is one group only.
    """
    fitted = {}
    for group in np.unique(groups):
        is_other = groups != group
        fitted[str(group)] = (
            fit(values[is_other], dials[is_other], direction=direction)
            if is_other.any()
            else None
        )
    return fitted


def fit(
    values: Float[np.ndarray, "n"], dials: Float[np.ndarray, "n"], *, direction: int
) -> curves.Knots:
    """Return the monotone curve of a measure; see `curves.fit`.

    direction: 1 or -1; 0, for a measure of which nothing is expected: the sign of rho.
    """
    if direction == 0:
        direction = -1 if rho(values, dials) < 0 else 1
    return curves.fit(values, dials, direction=direction)


def read_dials(
    knots: Sequence[curves.Knots | None], values: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    """Return the dial that each network's curve reads from its value; NaN without a curve."""
    dials = [
        math.nan if curve is None else float(curve.read(value))
        for curve, value in zip(knots, values, strict=True)
    ]
    return np.array(dials)


def guessing_error(
    dials: Float[np.ndarray, "n"], groups: Shaped[np.ndarray, "n"]
) -> float:
    """Return the mean absolute error of a guess: the mean dial of the other groups.

    A measure that says nothing has about this error. NaN with one group.
    """
    guesses = [
        np.mean(dials[groups != group]) if (groups != group).any() else math.nan
        for group in groups
    ]
    return mean_error(np.array(guesses), dials)


def mean_error(read: Float[np.ndarray, "n"], dials: Float[np.ndarray, "n"]) -> float:
    """Return the mean absolute difference of read dials and dials; NaN without networks."""
    return float(np.mean(np.abs(read - dials))) if len(dials) else math.nan


def coverage(
    lower: Float[np.ndarray, "n"],
    upper: Float[np.ndarray, "n"],
    dials: Float[np.ndarray, "n"],
) -> Share:
    """Return the share of intervals that contain the dial; networks without one are left out."""
    has_interval = np.isfinite(lower) & np.isfinite(upper)
    slack = 1e-12  # A dial of 0.3 is not lost by rounding.
    covered = (lower - slack <= dials) & (dials <= upper + slack) & has_interval
    return share(int(covered.sum()), int(has_interval.sum()))


class Bin(NamedTuple):
    """The networks of one range of accuracy: accuracy above chance, from 0 (chance) to 1."""

    low: float
    high: float
    networks: int
    error: float
    rho: float


def accuracy_bins(
    accuracy: Float[np.ndarray, "n"],
    read: Float[np.ndarray, "n"],
    dials: Float[np.ndarray, "n"],
    *,
    edges: Sequence[float],
) -> list[Bin]:
    """Return error and rho of the networks in each range of accuracy.

    accuracy: above chance, see `above_chance`. edges: ends of the ranges, increasing; a network at
    an inner edge belongs to the upper range. Networks beyond the edges are left out.
    """
    bins = []
    for low, high in itertools.pairwise(edges):
        is_last = high == edges[-1]
        inside = (accuracy >= low) & (
            (accuracy < high) | (is_last & (accuracy <= high))
        )
        bins.append(
            Bin(
                low=low,
                high=high,
                networks=int(inside.sum()),
                error=mean_error(read[inside], dials[inside]),
                rho=rho(read[inside], dials[inside]),
            )
        )
    return bins


def accuracy_range(
    bins: Sequence[Bin], *, most_error: float, least_networks: int
) -> tuple[float, float] | None:
    """Return the range of accuracy in which the error is within a bound; None if there is none.

    The result spans the highest ranges, down to the last one before an error of more than
    `most_error`, or fewer networks than `least_networks`, with which a range is not tested. Above
    the first tested range, ranges without enough networks are passed over.
    """
    span = None
    for entry in reversed(bins):
        is_tested = entry.networks >= least_networks
        if not is_tested and span is None:
            continue
        if not is_tested or not entry.error <= most_error:
            break
        span = entry.low, span[1] if span else entry.high
    return span


def above_chance(
    accuracy: Float[np.ndarray, "n"], chance: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    """Return (accuracy - chance) / (1 - chance): 0 at chance, 1 if all is correct."""
    return (accuracy - chance) / (1 - chance)


def smallest_size(sizes: Sequence[int], is_within: Sequence[bool]) -> int | None:
    """Return the smallest number of images from which all numbers are within a bound.

    sizes: increasing numbers of images. is_within: for each, whether its error is within the bound.
    None if the largest is not.
    """
    smallest = None
    for size, within in zip(reversed(sizes), reversed(is_within), strict=True):
        if not within:
            break
        smallest = size
    return smallest


def _rank_correlations(
    x: Float[np.ndarray, "b n"], y: Float[np.ndarray, "b n"]
) -> Float[np.ndarray, "b"]:
    """Return Spearman's correlation of each row; NaN where a row is constant."""
    ranks = [correlation.standardize(stats.rankdata(rows, axis=1).T) for rows in (x, y)]
    return np.clip((ranks[0] * ranks[1]).sum(axis=0), -1, 1)
