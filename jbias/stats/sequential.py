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

Sources: Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting,
https://arxiv.org/abs/2010.09686 (constant bets: "diversified Kelly"; their package confseq);
Ramdas, Gruenwald, Vovk and Shafer 2023, Game-theoretic statistics and safe anytime-valid inference,
https://arxiv.org/abs/2210.01948; Wang and Ramdas 2022, False discovery rate control with e-values,
https://arxiv.org/abs/2009.02824.
"""

import dataclasses
import math
import numbers
from collections.abc import Hashable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.optimize
from jaxtyping import Bool, Float

from jbias import errors

# Fractions of the capital that are bet, with equal weights. Large fractions decide large
# differences early, small fractions decide small differences with large spreads.
FRACTIONS = (0.25, 0.55, 0.85, 0.98)
QUANTITIES = ("mean", "wins")
Decision = Literal["a", "b", "equivalent"]
# Scores of one method: an array, or scores by seed.
Scores = npt.ArrayLike | Mapping[Hashable, float]
# Logarithms of e-values above this number are shown as this number, which is 1e304.
MOST_LOG_EVALUE = 700.0
# Scores are tied if they differ by less than this share of the range, or of the scores.
_ROUNDING = 1e-9


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
    stopping time if there is no difference. None is above 1e304.
    unpaired_a, unpaired_b: the seeds of each method that were not used because the other method
    has no score for them; for arrays, the positions of the last scores of the longer one.
    """

    decision: Decision | None
    stopped_at: int | None
    difference: ConfidenceSequence
    evalues: Float[np.ndarray, "t"]
    alpha: float
    points: float | None
    quantity: str
    unpaired_a: tuple[Hashable, ...] = ()
    unpaired_b: tuple[Hashable, ...] = ()

    @property
    def looks(self) -> int:
        """Number of pairs."""
        return len(self.evalues)

    def __repr__(self) -> str:
        waiting = _waiting("a", self.unpaired_a, self.looks) + _waiting(
            "b", self.unpaired_b, self.looks
        )
        if not self.looks:
            return f"SequentialResult: no pairs of scores yet{waiting}"
        low, high = self.difference.lower[-1], self.difference.upper[-1]
        if self.decision is None:
            verdict = f"undecided after {self.looks} pairs"
        else:
            verdict = f"{self.decision!r} after {self.stopped_at} of {self.looks} pairs"
        return (
            f"SequentialResult: {verdict}; difference {self.difference.estimate[-1]:.4g} "
            f"[{low:.4g}, {high:.4g}], e-value {self.evalues[-1]:.3g}{waiting}"
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

    def __repr__(self) -> str:
        target = f"{100 * self.target:.3g} %"
        if math.isinf(self.pairs):
            most = len(self.chance)
            return (
                f"ForecastResult: more than {most} further pairs for a chance of {target}; after "
                f"{most}: {100 * self.chance[-1]:.3g} %"
            )
        return f"ForecastResult: about {self.pairs:.0f} further pairs for a chance of {target}"


def compare(
    a: Scores,
    b: Scores,
    *,
    alpha: float = 0.05,
    points: float | None = None,
    quantity: str = "mean",
    bounds: tuple[float, float] = (0.0, 1.0),
) -> SequentialResult:
    """Return what is known about a - b after each pair of scores, valid at all looks together.

    a, b: scores of two methods, paired in one of two ways. Arrays: in order of arrival, a[i] and
    b[i] of the same seed. Scores by seed (both a mapping or a pandas Series, whose index has the
    seeds): equal seeds are pairs; numbers are in ascending order, so later seeds must have larger
    numbers; other names of seeds are in the order of a. Scores without a partner are not used, and
    the result names them.
    alpha: probability of any false decision at any look.
    points: the methods are equivalent if the difference is smaller than so many percentage points
    of a score: points=5 means 0.05 if the upper end of `bounds` is at most 1, and 5 if it is above 1
    (scores in %); for "wins", points=5 means 5 % of the pairs. None: equivalence is not tested. If a
    difference from 0 and equivalence are both shown at the same look, the decision is "equivalent".
    quantity: "mean": the difference of the mean scores. "wins": the share of pairs in which a is
    larger minus the share in which b is larger; few pairs decide it if scores hardly vary, but it
    says nothing about the size of the difference. Scores that are equal up to rounding are a tie.
    bounds: smallest and largest possible score, fixed before the first score is seen. A narrower
    range needs fewer pairs. "wins" has no bounds: any finite scores are compared.

    Method: x = (1 + (a - b) / range) / 2 is in [0, 1], and its mean is 1/2 if the means are equal;
    see the module for the bets. At least 7 pairs are needed for a decision at alpha = 0.05, even if
    all differences are as large as possible.
    Raise ValueError for scores that are text, NaN or outside of `bounds`, for arrays that are not
    1-D, for seeds that occur twice, for scores by seed of one method only and without common seeds,
    for alpha outside of (0, 1), points that are not above 0 and below the largest possible
    difference, and an unknown quantity.
    """
    pairs = _pair(a, b)
    values = _values(pairs, quantity=quantity, bounds=bounds)
    errors.check_share("alpha", alpha)
    margin = margin_of_range(points, quantity=quantity, bounds=bounds)
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
        evalues=np.exp(np.minimum(log_evalues(values, 0.5), MOST_LOG_EVALUE)),
        alpha=alpha,
        points=points,
        quantity=quantity,
        unpaired_a=pairs.unpaired_a,
        unpaired_b=pairs.unpaired_b,
    )


def compare_with_control(
    methods: Mapping[str, Scores],
    control: Scores,
    *,
    alpha: float = 0.05,
    points: float | None = None,
    quantity: str = "mean",
    bounds: tuple[float, float] = (0.0, 1.0),
) -> ControlledResult:
    """Return the comparisons of several methods with a control, valid at all looks together.

    methods: scores of each method by name; the numbers of scores may differ. control: scores of the
    control. Each method is paired with the control as `compare` pairs a and b.
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
    a: Scores,
    b: Scores,
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
    values = _values(_pair(a, b), quantity=quantity, bounds=bounds)
    errors.check_at_least("pairs", len(values), 2)
    errors.check_share("alpha", alpha)
    errors.check_share("target", target)
    margin = margin_of_range(points, quantity=quantity, bounds=bounds)
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


def least_pairs(
    alpha: float = 0.05,
    points: float | None = None,
    *,
    quantity: str = "mean",
    bounds: tuple[float, float] = (0.0, 1.0),
) -> int:
    """Return the number of pairs that the clearest scores need for a decision.

    Without points: no scores can lead to a decision before this number of looks, at which equal
    means are rejected if every pair has the largest difference. With points: the number of looks
    that show equivalence if the scores of every pair are equal. Scores that differ need more, but
    for contrived ones whose differences change sides.
    alpha, points, quantity, bounds and errors: see `compare`.
    """
    errors.check_share("alpha", alpha)
    if points is None:
        return looks_of_constant(1.0, 0.5, alpha=alpha)
    margin = margin_of_range(points, quantity=quantity, bounds=bounds)
    return looks_of_constant(0.5, (1 - margin) / 2, alpha=alpha)


def looks_of_constant(value: float, mean: float, *, alpha: float) -> int:
    """Return the number of looks that exclude `mean` from the sequence if all values are `value`.

    value: in [0, 1]. mean: in (0, 1), another number.
    """
    assert 0 < mean < 1 and value != mean, (value, mean)
    # One value, so the logarithm of each capital grows by the same amount at every look.
    ups, downs = _log_capitals(np.array([value]), mean, FRACTIONS, cumulate=np.sum)
    growth = np.array([*ups, *downs])

    def is_excluded(looks: int) -> bool:
        log_mean = np.logaddexp.reduce(looks * growth) - math.log(len(growth))
        return bool(log_mean >= -math.log(alpha))

    # The logarithm of the e-value is a convex function of the looks that starts at 0, so it reaches
    # the threshold once.
    high = 1
    while not is_excluded(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_excluded(middle) else (middle, high)
    return high


def margin_of_range(
    points: float | None, *, quantity: str, bounds: tuple[float, float]
) -> float:
    """Return the margin of equivalence as a share of the largest difference; 0 without points.

    Arguments: see `compare`. ValueError unless the margin is above 0 and below the largest
    difference.
    """
    if points is None:
        return 0.0
    low, high = _checked_bounds(bounds)
    if quantity == "wins":
        size, largest = 1.0, 100.0
    else:
        unit = 1.0 if high <= 1 else 100.0  # Of 100 points.
        size = (high - low) / unit
        largest = 100 * size
    errors.check(
        0 < points < largest, "points", f"be between 0 and {largest:g}", points
    )
    return points / 100 / size


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


class _Pairs(NamedTuple):
    """Scores of the same seeds, in the order of the looks, and the seeds without a partner."""

    a: Float[np.ndarray, "n"]
    b: Float[np.ndarray, "n"]
    unpaired_a: tuple[Hashable, ...]
    unpaired_b: tuple[Hashable, ...]
    # Names of the scores in messages: seeds, or positions.
    seeds: tuple[Hashable, ...]


def _pair(a: Scores, b: Scores) -> _Pairs:
    """Return the pairs of scores, by seed or by position; errors: see `compare`."""
    by_seed = [isinstance(scores, Mapping | pd.Series) for scores in (a, b)]
    if all(by_seed):
        return _pair_by_seed(_scores_by_seed("a", a), _scores_by_seed("b", b))
    for name, scores in (("a", a), ("b", b)):
        errors.check(
            not isinstance(scores, Mapping),
            name,
            "be an array, as the other method, or pass scores by seed for both",
            scores,
        )
    first, second = _numbers("a", a), _numbers("b", b)
    count = min(len(first), len(second))
    return _Pairs(
        a=first[:count],
        b=second[:count],
        unpaired_a=tuple(range(count, len(first))),
        unpaired_b=tuple(range(count, len(second))),
        seeds=tuple(range(count)),
    )


def _pair_by_seed(a: pd.Series, b: pd.Series) -> _Pairs:
    """Return the pairs of equal seeds: numbers in ascending order, other seeds in the order of a."""
    is_number = all(isinstance(x, numbers.Real) for x in (*a.index, *b.index))
    first, second = ([*(sorted(x.index) if is_number else x.index)] for x in (a, b))
    known_a, known_b = set(first), set(second)
    seeds = tuple(seed for seed in first if seed in known_b)
    if known_a and known_b and not seeds:
        raise ValueError(
            "a and b have no seed in common; scores by seed are paired by their keys or index: set "
            'the seeds as index (set_index("seed")), or pass arrays, such as a.to_numpy()'
        )
    return _Pairs(
        a=_numbers("a", a.loc[[*seeds]]),
        b=_numbers("b", b.loc[[*seeds]]),
        unpaired_a=tuple(seed for seed in first if seed not in known_b),
        unpaired_b=tuple(seed for seed in second if seed not in known_a),
        seeds=seeds,
    )


def _scores_by_seed(name: str, scores: Any) -> pd.Series:
    """Return scores as a Series by seed; ValueError for a seed that occurs twice."""
    series = scores if isinstance(scores, pd.Series) else pd.Series(dict(scores))
    twice = series.index[series.index.duplicated()]
    if len(twice):
        raise ValueError(f"{name}: seed {twice[0]} occurs twice; a seed counts once")
    return series


def _numbers(name: str, scores: Any) -> Float[np.ndarray, "n"]:
    """Return scores as float64; ValueError for text and for arrays that are not 1-D."""
    try:
        array = np.asarray(scores)
        is_text = array.dtype.kind in "US" or any(
            isinstance(x, str) for x in (array.flat if array.dtype == object else ())
        )
        array = None if is_text else array.astype(np.float64)
    except (TypeError, ValueError):
        array = None
    errors.check(array is not None, name, "be numbers, one score per seed", scores)
    errors.check(array.ndim == 1, name, "be 1-D, one score per seed", array.shape)
    return array


def _values(
    pairs: _Pairs, *, quantity: str, bounds: tuple[float, float]
) -> Float[np.ndarray, "n"]:
    """Return one number in [0, 1] per pair, with the mean 1/2 if the methods do not differ."""
    errors.check_known("quantity", quantity, QUANTITIES)
    low, high = _checked_bounds(bounds)
    is_wins = quantity == "wins"
    for name, scores in (("a", pairs.a), ("b", pairs.b)):
        _check_scores(
            name,
            scores,
            (-math.inf, math.inf) if is_wins else (low, high),
            seeds=pairs.seeds,
        )
    differences = pairs.a - pairs.b
    if is_wins:
        size = np.maximum(np.maximum(abs(pairs.a), abs(pairs.b)), high - low)
        is_tie = abs(differences) < _ROUNDING * size
        return (1 + np.where(is_tie, 0.0, np.sign(differences))) / 2
    return (1 + ((pairs.a - low) - (pairs.b - low)) / (high - low)) / 2


def _scaled(
    name: str, scores: npt.ArrayLike, bounds: tuple[float, float]
) -> Float[np.ndarray, "n"]:
    """Return scores with `bounds` mapped to 0 and 1; ValueError for scores outside of `bounds`."""
    low, high = _checked_bounds(bounds)
    array = _numbers(name, scores)
    _check_scores(name, array, (low, high), seeds=range(len(array)))
    return (array - low) / (high - low)


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds; ValueError unless they are two finite numbers, the smaller one first."""
    low, high = map(float, bounds)
    errors.check(
        math.isfinite(low) and math.isfinite(high) and low < high,
        "bounds",
        "be two numbers, the smaller one first",
        bounds,
    )
    return low, high


def _check_scores(
    name: str, scores: Float[np.ndarray, "n"], bounds: tuple[float, float], *, seeds
) -> None:
    """Raise ValueError for a score that is not finite or outside of `bounds`.

    seeds: names of the scores in the message, by position.
    """
    low, high = bounds
    is_valid = np.isfinite(scores) & (scores >= low) & (scores <= high)
    if is_valid.all():
        return
    first = int(np.argmin(is_valid))
    where, score = f"{name}[{seeds[first]!r}]", scores[first]
    must = "be finite" if math.isinf(low) else f"be from {low:g} to {high:g}"
    if math.isfinite(score):
        remedy = "divide scores in % by 100, or set other bounds before the first look"
    else:
        remedy = (
            "leave out a seed without a score in both methods, so that the other scores keep "
            "their partners"
        )
    raise ValueError(f"{where} must {must}, got {score:g}; {remedy}")


def _waiting(name: str, seeds: tuple[Hashable, ...], looks: int) -> str:
    """Return words about the scores of a method that have no partner; "" if there are none."""
    if not seeds:
        return ""
    shown = ", ".join(map(str, seeds[:5])) + (", ..." if len(seeds) > 5 else "")
    return f"; {len(seeds)} of {looks + len(seeds)} scores of {name} wait for a partner: {shown}"
