"""Comparisons that stay valid if the scores are looked at after every seed.

A look is one pair of scores: a new seed of method a and a new seed of method b. A test with a fixed
level, such as a t-test, makes more and more false claims if it is repeated after every look. The
functions here may be called after every look, and the study may stop at any time for any reason:
the probability of any false claim at any look is at most alpha.

The only assumption is that the pairs are independent draws from one distribution of scores within
known bounds. No shape is assumed: scores may have two humps or be skewed. Scores that are left out
after they were seen, seeds that are chosen by their scores, and a metric that is chosen after the
scores were seen are outside of the guarantee.

How it works: for a mean m of values x in [0, 1], a gambler who starts with the capital 1 bets the
fraction c of the capital on "x is above m", and after each value has

    K+ = product of (1 + c (x - m) / m),    K- = product of (1 - c (x - m) / (1 - m))

for the bets "above" and "below". If the mean is m, no bet gains on average. So the average of both
capitals over several fractions c exceeds 1 / alpha at any time with probability at most alpha
(Ville's inequality). The average is an e-value against "the mean is m", and the m with an average
below 1 / alpha are a confidence sequence: intervals that contain the mean at all looks at once with
probability 1 - alpha.

Sources: Waudby-Smith and Ramdas 2023, Estimating means of bounded random variables by betting,
https://arxiv.org/abs/2010.09686 (constant bets: "diversified Kelly"; their package confseq);
Ramdas, Gruenwald, Vovk and Shafer 2023, Game-theoretic statistics and safe anytime-valid inference,
https://arxiv.org/abs/2210.01948; Wang and Ramdas 2022, False discovery rate control with e-values,
https://arxiv.org/abs/2009.02824.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.optimize
from jaxtyping import Bool, Float

from jbias import errors

# Fractions of the capital that are bet, with equal weights. Large fractions decide large
# differences early, small fractions decide small differences with large spreads.
FRACTIONS = (0.25, 0.55, 0.85, 0.98)
QUANTITIES = ("mean", "wins")
Decision = Literal["a", "b", "equivalent"]


@dataclasses.dataclass(frozen=True, eq=False)
class ConfidenceSequence:
    """An interval after each look; axis t is the number of looks minus 1.

    lower, upper: ends of the intervals that are valid at all looks together; each interval is
    inside of the interval before. If the assumptions are wrong, or in a share of at most alpha of
    studies, lower can exceed upper. estimate: mean of all values so far.
    """

    lower: Float[np.ndarray, "t"]
    upper: Float[np.ndarray, "t"]
    estimate: Float[np.ndarray, "t"]
    alpha: float


@dataclasses.dataclass(frozen=True, eq=False)
class SequentialResult:
    """A comparison of two methods after each pair of scores; axis t is the look.

    decision: "a" or "b": the method with the larger scores; "equivalent": the difference is smaller
    than `points`; None: not decided. A decision is final: it is made at the first look that allows
    it, and later pairs do not change it.
    stopped_at: number of looks after which the comparison was decided; None if it is not decided.
    difference: confidence sequence of the difference a - b, in the unit of the scores; for the
    quantity "wins", the share of pairs that a wins minus the share that b wins.
    evalues: e-values against "the difference is 0"; an e-value is at most 1 on average at any
    stopping time if there is no difference.
    """

    decision: Decision | None
    stopped_at: int | None
    difference: ConfidenceSequence
    evalues: Float[np.ndarray, "t"]
    alpha: float
    points: float | None
    quantity: str

    @property
    def looks(self) -> int:
        """Number of pairs."""
        return len(self.evalues)

    def __repr__(self) -> str:
        if not self.looks:
            return "SequentialResult: no pairs of scores yet"
        low, high = self.difference.lower[-1], self.difference.upper[-1]
        if self.decision is None:
            verdict = f"undecided after {self.looks} pairs"
        else:
            verdict = f"{self.decision!r} after {self.stopped_at} of {self.looks} pairs"
        return (
            f"SequentialResult: {verdict}; difference {self.difference.estimate[-1]:.4g} "
            f"[{low:.4g}, {high:.4g}], e-value {self.evalues[-1]:.3g}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ControlledResult:
    """Comparisons of several methods with a control.

    comparisons: for each method, the comparison at the level alpha / k for k methods, with the
    method as "a" and the control as "b". So the probability of any false decision in any
    comparison at any look is at most alpha, whatever the dependence of the methods.
    discoveries: the methods whose difference from the control e-BH accepts at the latest look. At
    most a share alpha of the discoveries is false on average, if the scores of the control were
    not known in advance when the looks were planned. A discovery need not be a decision.
    """

    comparisons: Mapping[str, SequentialResult]
    discoveries: tuple[str, ...]
    alpha: float


@dataclasses.dataclass(frozen=True, eq=False)
class ForecastResult:
    """Numbers of further pairs that would probably decide a comparison.

    pairs: further pairs after which a share `target` of simulated continuations is decided; inf if
    more than `most` are needed. chance: share of continuations that are decided after each number
    of further pairs, from 1 to `most`.
    """

    pairs: float
    chance: Float[np.ndarray, "n"]
    target: float


def compare(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    points: float | None = None,
    quantity: str = "mean",
    bounds: tuple[float, float] = (0.0, 1.0),
) -> SequentialResult:
    """Return what is known about a - b after each pair of scores, valid at all looks together.

    a, b: scores of two methods in order of arrival, a[i] and b[i] of the same seed. If one array is
    longer, its last scores have no partner yet and are not used.
    alpha: probability of any false decision at any look.
    points: the methods are equivalent if the difference is smaller than so many percentage points
    of the range of `bounds`: with scores from 0 to 1, points=5 means 0.05. None: equivalence is
    not tested. If a difference from 0 and equivalence are both shown at the same look, the
    decision is "equivalent".
    quantity: "mean": the difference of the mean scores. "wins": the share of pairs in which a is
    larger minus the share in which b is larger; few pairs decide it if scores hardly vary, but it
    says nothing about the size of the difference.
    bounds: smallest and largest possible score, fixed before the first score is seen. A narrower
    range needs fewer pairs.

    Method: x = (1 + (a - b) / range) / 2 is in [0, 1], and its mean is 1/2 if the means are equal;
    see the module for the bets. At least 7 pairs are needed for a decision at alpha = 0.05, even if
    all differences are as large as possible.
    Raise ValueError for scores that are NaN or outside of `bounds`, for arrays that are not 1-D, for
    alpha outside of (0, 1), points outside of (0, 100) and an unknown quantity.
    """
    values = _values(a, b, quantity=quantity, bounds=bounds)
    errors.check_share("alpha", alpha)
    margin = _margin(points)
    low, high = map(float, bounds)
    unit = high - low if quantity == "mean" else 1.0
    inner = confidence_sequence(values, alpha=alpha)
    difference = ConfidenceSequence(
        lower=unit * (2 * inner.lower - 1),
        upper=unit * (2 * inner.upper - 1),
        estimate=unit * (2 * inner.estimate - 1),
        alpha=alpha,
    )
    decision, stopped_at = _decide(difference, unit * margin)
    return SequentialResult(
        decision=decision,
        stopped_at=stopped_at,
        difference=difference,
        evalues=np.exp(log_evalues(values, 0.5)),
        alpha=alpha,
        points=points,
        quantity=quantity,
    )


def compare_with_control(
    methods: Mapping[str, npt.ArrayLike],
    control: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    points: float | None = None,
    quantity: str = "mean",
    bounds: tuple[float, float] = (0.0, 1.0),
) -> ControlledResult:
    """Return the comparisons of several methods with a control, valid at all looks together.

    methods: scores of each method by name, in order of arrival; the numbers of scores may differ.
    control: scores of the control; pair i of every comparison uses control[i].
    The number of methods must be fixed before the first look, because each comparison has the level
    alpha / k. Other arguments and errors: see `compare`. ValueError without methods.
    """
    errors.check_at_least("methods", len(methods))
    errors.check_share("alpha", alpha)
    comparisons = {
        name: compare(
            scores,
            control,
            alpha=alpha / len(methods),
            points=points,
            quantity=quantity,
            bounds=bounds,
        )
        for name, scores in methods.items()
    }
    latest = [
        result.evalues[-1] if result.looks else 1.0 for result in comparisons.values()
    ]
    is_discovery = e_bh(latest, alpha=alpha)
    return ControlledResult(
        comparisons=comparisons,
        discoveries=tuple(
            name for name, accepted in zip(comparisons, is_discovery) if accepted
        ),
        alpha=alpha,
    )


def e_bh(evalues: npt.ArrayLike, *, alpha: float = 0.05) -> Bool[np.ndarray, "k"]:
    """Return which null hypotheses the e-BH procedure rejects, in the order of `evalues`.

    With k e-values, the j largest are rejected for the largest j with e_(j) >= k / (alpha j). At
    most a share alpha of the rejections is false on average, whatever the dependence (Wang and
    Ramdas 2022, https://arxiv.org/abs/2009.02824, section 4).
    ValueError for negative or missing e-values.
    """
    values = np.asarray(evalues, np.float64)
    errors.check(
        values.ndim == 1 and bool((values >= 0).all()),
        "evalues",
        "be 0 or more",
        evalues,
    )
    errors.check_share("alpha", alpha)
    order = np.argsort(-values, kind="stable")
    ranks = np.arange(1, len(values) + 1)
    is_large = values[order] >= len(values) / (alpha * ranks)
    rejected = np.zeros(len(values), bool)
    rejected[order[: int(ranks[is_large].max(initial=0))]] = True
    return rejected


def confidence_sequence(
    values: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> ConfidenceSequence:
    """Return intervals for the mean of bounded values, valid at all looks together.

    values: independent draws within `bounds`, in order of arrival.
    The capital of the module's bets is a convex function of m that is at most 1 at the mean of the
    values so far, so the m with a capital below 1 / alpha are an interval around this mean.
    Raise ValueError for values that are NaN or outside of `bounds`, and for alpha outside of (0, 1).
    """
    errors.check_share("alpha", alpha)
    scaled = _scaled("values", values, bounds)
    low, high = map(float, bounds)
    lower, upper = np.zeros(len(scaled)), np.ones(len(scaled))
    means = np.cumsum(scaled) / np.arange(1, len(scaled) + 1)
    threshold = -math.log(alpha)
    bottom, top = 0.0, 1.0
    for i, mean in enumerate(means):
        prefix = scaled[: i + 1]
        bottom = _end_of_interval(prefix, bottom, mean, threshold)
        top = 1 - _end_of_interval(1 - prefix, 1 - top, 1 - mean, threshold)
        lower[i], upper[i] = bottom, top
    unit = high - low
    return ConfidenceSequence(
        lower=low + unit * lower,
        upper=low + unit * upper,
        estimate=low + unit * means,
        alpha=alpha,
    )


def log_evalues(
    values: Float[np.ndarray, "*batch n"],
    mean: float | Float[np.ndarray, "*batch 1"],
    fractions: tuple[float, ...] = FRACTIONS,
) -> Float[np.ndarray, "*batch n"]:
    """Return the logarithm of the e-value against "the mean is `mean`" after each value.

    values: numbers in [0, 1], in order of arrival along the last axis. mean: in (0, 1); an array
    has a mean for each sequence of values. fractions: the fractions c of the module's bets.
    """
    assert np.all((0 < mean) & (mean < 1)), mean
    ups, downs = _log_capitals(values, mean, fractions, cumulate=np.cumsum)
    return np.logaddexp.reduce([*ups, *downs]) - math.log(2 * len(fractions))


def forecast(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    points: float | None = None,
    quantity: str = "mean",
    bounds: tuple[float, float] = (0.0, 1.0),
    target: float = 0.8,
    most: int = 500,
    draws: int = 400,
    seed: int = 0,
) -> ForecastResult:
    """Return the number of further pairs that would probably decide an open comparison.

    a, b, alpha, points, quantity, bounds: as for `compare`. target: share of simulated
    continuations that must be decided. most: largest number of further pairs that is considered.
    draws: number of simulated continuations.

    Each continuation draws weights of the observed pairs (Bayesian bootstrap), then further pairs
    with these weights, and continues the bets. The forecast is rough with fewer than 10 pairs, and
    a value that was never seen is never forecast. It has no part in any decision.
    Raise ValueError as `compare`, and for fewer than 2 pairs.
    """
    values = _values(a, b, quantity=quantity, bounds=bounds)
    errors.check_at_least("pairs", len(values), 2)
    errors.check_share("alpha", alpha)
    errors.check_share("target", target)
    margin = _margin(points)
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(len(values)), draws)
    # Inverse transform: one row of uniform numbers per continuation.
    ends = np.cumsum(weights, axis=1)
    uniform = rng.random((draws, most))
    index = [np.searchsorted(ends[i], uniform[i]) for i in range(draws)]
    new_values = values[np.minimum(index, len(values) - 1)]
    paths = np.concatenate([np.tile(values, (draws, 1)), new_values], axis=1)
    is_decided = _exceeds(paths, 0.5, alpha)
    if points is not None:
        # Equivalent: both ends of the margin are outside of the confidence sequence.
        is_above = _exceeds(paths, (1 - margin) / 2, alpha, side="above")
        is_below = _exceeds(paths, (1 + margin) / 2, alpha, side="below")
        is_decided |= is_above & is_below
    chance = is_decided[:, len(values) :].mean(axis=0)
    enough = np.flatnonzero(chance >= target)
    pairs = float(enough[0] + 1) if len(enough) else math.inf
    return ForecastResult(pairs=pairs, chance=chance, target=target)


def least_pairs(alpha: float = 0.05) -> int:
    """Return the number of pairs below which no scores can lead to a decision.

    It is the number of looks that reject equal means if every pair has the largest difference.
    """
    errors.check_share("alpha", alpha)
    best = log_evalues(np.ones(10_000), 0.5)
    return int(np.argmax(best >= -math.log(alpha))) + 1


def _exceeds(
    paths: Float[np.ndarray, "draws n"], mean: float, alpha: float, side: str = ""
) -> Bool[np.ndarray, "draws n"]:
    """Return True from the first look on at which `mean` is outside of the confidence sequence.

    side: "above" or "below": only if the mean of the values is on this side of `mean`.
    """
    is_outside = log_evalues(paths, mean) >= -math.log(alpha)
    if side:
        means = np.cumsum(paths, axis=1) / np.arange(1, paths.shape[1] + 1)
        is_outside &= means > mean if side == "above" else means < mean
    return np.logical_or.accumulate(is_outside, axis=1)


def _end_of_interval(
    values: Float[np.ndarray, "n"], bound: float, mean: float, threshold: float
) -> float:
    """Return the largest m >= bound below `mean` whose log e-value reaches the threshold.

    Return `bound` if it does not reach the threshold itself, and if it is not below the mean.
    mean: of the values. threshold: log(1 / alpha).
    """
    least = max(bound, 1e-12)
    if least >= mean:
        return bound

    def excess(m: float) -> float:
        ups, downs = _log_capitals(values, m, FRACTIONS, cumulate=np.sum)
        log_mean = np.logaddexp.reduce([*ups, *downs]) - math.log(2 * len(FRACTIONS))
        return log_mean - threshold

    if excess(least) <= 0:
        return bound
    # At the mean, no capital is above 1, so there is a root.
    return float(scipy.optimize.brentq(excess, least, min(mean, 1 - 1e-12), xtol=1e-13))


def _log_capitals(values, mean, fractions, *, cumulate):
    """Return two lists of arrays: log capitals of the bets "above" and "below", per fraction.

    cumulate: np.cumsum for the capital after each value, np.sum for the last one; the last axis of
    `values` is the order of arrival.
    """
    above = (values - mean) / mean
    below = (mean - values) / (1 - mean)
    ups = [cumulate(np.log1p(c * above), axis=-1) for c in fractions]
    downs = [cumulate(np.log1p(c * below), axis=-1) for c in fractions]
    return ups, downs


def _decide(
    difference: ConfidenceSequence, margin: float
) -> tuple[Decision | None, int | None]:
    """Return the first decision that the confidence sequence allows, and the number of its look.

    margin: largest difference that counts as equivalent, in the unit of the scores; 0: none does.
    """
    for i, (low, high) in enumerate(zip(difference.lower, difference.upper)):
        if -margin < low and high < margin:
            return "equivalent", i + 1
        if low > 0:
            return "a", i + 1
        if high < 0:
            return "b", i + 1
    return None, None


def _values(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    quantity: str,
    bounds: tuple[float, float],
) -> Float[np.ndarray, "n"]:
    """Return one number in [0, 1] per pair, with the mean 1/2 if the methods do not differ."""
    errors.check_known("quantity", quantity, QUANTITIES)
    first, second = _scaled("a", a, bounds), _scaled("b", b, bounds)
    count = min(len(first), len(second))
    differences = first[:count] - second[:count]
    if quantity == "wins":
        differences = np.sign(differences)
    return (1 + differences) / 2


def _scaled(
    name: str, scores: npt.ArrayLike, bounds: tuple[float, float]
) -> Float[np.ndarray, "n"]:
    """Return scores with `bounds` mapped to 0 and 1; ValueError for scores outside of `bounds`."""
    low, high = map(float, bounds)
    errors.check(
        math.isfinite(low) and math.isfinite(high) and low < high,
        "bounds",
        "be two numbers, the smaller one first",
        bounds,
    )
    array = np.asarray(scores, np.float64)
    errors.check(array.ndim == 1, name, "be 1-D, one score per seed", array.shape)
    is_valid = (array >= low) & (array <= high)  # False for NaN.
    if not is_valid.all():
        first = int(np.argmin(is_valid))
        raise ValueError(
            f"{name}[{first}] must be from {low:g} to {high:g}, got {array[first]:g}; leave out "
            "seeds without a score, divide scores in % by 100, or set other bounds before the "
            "first look"
        )
    return (array - low) / (high - low)


def _margin(points: float | None) -> float:
    """Return percentage points as a share of the range of scores; 0 for None."""
    if points is None:
        return 0.0
    errors.check(0 < points < 100, "points", "be between 0 and 100", points)
    return points / 100
