"""The plan of a comparison of methods with a reference: batches of seeds, looks, the next action.

A pair is the same seed of a method and of the reference. The order of the pairs is fixed when the
comparison starts: the seeds of the reference in ascending order, then the numbers after them. A
look uses the longest run of pairs from the first one on in which all seeds have ended. So a seed
that is late holds back later seeds and is never skipped, and the order in which runs end has no
influence on a decision. A pair with a diverged seed, or with a seed of which the metric is
undefined, has no score; it is left out for this reason alone, and counted.

The functions are pure: they read no files and train nothing.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jbias import errors
from jbias.stats import sequential

# From this number of pairs on, a comparison ends if it will hardly be decided.
FORECAST_PAIRS = 10
# The comparison ends if a smaller share of simulated continuations is decided within the limit.
LEAST_CHANCE = 0.02
_MOST_FORECAST = 500  # Further pairs that a forecast considers, at least.

# With fewer pairs, no forecast is made.
_LEAST_FORECAST = 4
# A comparison ends if so many pairs have ended, and none of them has a score.
DIVERGED_PAIRS = 4

# Score of each ended seed; None: the seed diverged, or its metric is undefined.
SeedScores = Mapping[int, float | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that must not change after the first score is seen.

    metric, dataset: the compared number, such as "shape_bias" on "cue_conflict". selection: the
    rule that selects the evaluation of a seed, as for `seed_scores.read`. alpha: probability of
    any false decision in any comparison. points, quantity, bounds: see `sequential.compare`.
    """

    metric: str
    dataset: str
    selection: str = "best_validation"
    alpha: float = 0.05
    points: float | None = None
    quantity: str = "mean"
    bounds: tuple[float, float] = (0.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Settings that may change at any time.

    max_seeds: largest number of seeds of a method. max_hours: device hours of all batches after
    which no further batch starts. batch_seeds: seeds of a batch, by method; batches of the
    reference have the seeds that the methods need.
    """

    max_seeds: int = 30
    max_hours: float = math.inf
    batch_seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Batch(NamedTuple):
    """Seeds of a method or of the reference that are trained in one run."""

    method: str
    seeds: tuple[int, ...]

    @property
    def folder(self) -> str:
        """Name of the run's workdir in the workdir of the comparison."""
        return f"{self.method}-seeds-{self.seeds[0]}-{self.seeds[-1]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The plan of a comparison, and the scores that were seen.

    methods: names of the methods. reference: name of the reference. first_seeds: the seeds of the
    reference at the start, ascending; the first pairs. are_trained: True if runs outside of the
    comparison have trained these seeds of the reference. batches: in the order in which they were
    planned. scores: by method and seed, see `SeedScores`.
    """

    settings: Settings
    methods: tuple[str, ...]
    reference: str
    first_seeds: tuple[int, ...]
    are_trained: bool
    batches: tuple[Batch, ...] = ()
    scores: Mapping[str, SeedScores] = dataclasses.field(default_factory=dict)

    @property
    def level(self) -> float:
        """The level alpha / k of each of the k comparisons."""
        return self.settings.alpha / len(self.methods)

    def pair_seeds(self, count: int) -> tuple[int, ...]:
        """Return the seeds of the first `count` pairs."""
        later = itertools.count(self.first_seeds[-1] + 1)
        return tuple(itertools.islice(itertools.chain(self.first_seeds, later), count))

    def planned(self, method: str) -> int:
        """Return how many seeds of a method, or of the reference, are planned or were trained."""
        is_trained = method == self.reference and self.are_trained
        count = len(self.first_seeds) if is_trained else 0
        return count + sum(
            len(batch.seeds) for batch in self.batches if batch.method == method
        )

    def unfinished(self) -> tuple[Batch, ...]:
        """Return the planned batches with seeds that have no score yet."""
        return tuple(
            batch
            for batch in self.batches
            if not {*batch.seeds} <= self.scores.get(batch.method, {}).keys()
        )

    def with_batches(self, batches: Sequence[Batch]) -> "Comparison":
        """Return the comparison with these batches added to the plan, unless they are in it."""
        added = [batch for batch in batches if batch not in self.batches]
        return dataclasses.replace(self, batches=(*self.batches, *added))

    def with_scores(self, scores: Mapping[str, SeedScores]) -> "Comparison":
        """Return the comparison with these scores added to the scores that were seen.

        scores: by name of a method or of the reference, and by seed. Seeds that no pair of a
        planned batch needs are left out, but all scores of trained first seeds are in it, so that
        their runs cannot be exchanged later. A score that was seen stays; ValueError if it is
        given with another value.
        """
        num_pairs = max(map(self.planned, self.methods))
        if self.are_trained:
            num_pairs = max(num_pairs, len(self.first_seeds))
        seeds = self.pair_seeds(num_pairs)
        merged = {}
        for name in (*self.methods, self.reference):
            old, new = self.scores.get(name, {}), scores.get(name, {})
            for seed in old.keys() & new.keys():
                if old[seed] != new[seed]:
                    raise ValueError(
                        f"{name}: the score of seed {seed} was {_text(old[seed])} at an earlier "
                        f"look, and is now {_text(new[seed])}; restore its run, or start again "
                        "in another --workdir"
                    )
            merged[name] = {
                seed: {**new, **old}[seed]
                for seed in seeds
                if seed in old or seed in new
            }
        return dataclasses.replace(self, scores=merged)


def _text(score: float | None) -> str:
    """Return a score as text; None is "diverged"."""
    return "diverged" if score is None else repr(score)


@dataclasses.dataclass(frozen=True)
class Look:
    """The state of one comparison.

    num_seeds: number of pairs of seeds from the first pair on that have ended. num_diverged: pairs
    among them that are left out, because a seed diverged or has no score. scores, reference_scores: of the other
    pairs, in order. result: the comparison of these scores; "a" is the method, "b" the reference.
    """

    method: str
    num_seeds: int
    num_diverged: int
    scores: tuple[float, ...]
    reference_scores: tuple[float, ...]
    result: sequential.SequentialResult


def look(comparison: Comparison) -> dict[str, Look]:
    """Return the state of each method's comparison with the reference, by method.

    Each comparison has the level alpha / k. ValueError for a score outside of the bounds.
    """
    return {method: _look(comparison, method) for method in comparison.methods}


def _look(comparison: Comparison, method: str) -> Look:
    """Return the state of one method's comparison."""
    scores = comparison.scores.get(method, {})
    reference_scores = comparison.scores.get(comparison.reference, {})
    ended = itertools.takewhile(
        lambda seed: seed in scores and seed in reference_scores,
        comparison.pair_seeds(comparison.planned(method)),
    )
    pairs = []
    for seed in ended:
        _check_bounds(comparison, method, seed)
        _check_bounds(comparison, comparison.reference, seed)
        pairs.append((scores[seed], reference_scores[seed]))
    complete = [(a, b) for a, b in pairs if a is not None and b is not None]
    a = tuple(score for score, _ in complete)
    b = tuple(score for _, score in complete)
    result = sequential.compare(
        a,
        b,
        alpha=comparison.level,
        points=comparison.settings.points,
        quantity=comparison.settings.quantity,
        bounds=comparison.settings.bounds,
    )
    return Look(
        method=method,
        num_seeds=len(pairs),
        num_diverged=len(pairs) - len(complete),
        scores=a,
        reference_scores=b,
        result=result,
    )


def _check_bounds(comparison: Comparison, name: str, seed: int) -> None:
    """Raise ValueError if the score of a seed is outside of the bounds."""
    score, (low, high) = comparison.scores[name][seed], comparison.settings.bounds
    if score is not None and low < high and not low <= score <= high:
        raise ValueError(
            f"{name}: {comparison.settings.metric} of seed {seed} is {score:g}, outside of "
            f"--bounds={low:g},{high:g}, so these bounds were wrong and the comparison is void; a "
            "new comparison needs wider --bounds, other seeds and another --workdir"
        )


class Outlook(NamedTuple):
    """A forecast of an open comparison.

    chance: share of simulated continuations that are decided within the limit of seeds. pairs:
    further pairs after which 80 % of the continuations are decided; inf if more than 500.
    """

    chance: float
    pairs: float


def outlook(
    comparison: Comparison, method_look: Look, limits: Limits
) -> Outlook | None:
    """Return a forecast of an open comparison; None with fewer than 4 pairs.

    With fewer than `FORECAST_PAIRS` pairs the forecast is rough.
    """
    if len(method_look.scores) < _LEAST_FORECAST:
        return None
    left = limits.max_seeds - method_look.num_seeds
    settings = comparison.settings
    forecast = sequential.forecast(
        method_look.scores,
        method_look.reference_scores,
        alpha=comparison.level,
        points=settings.points,
        quantity=settings.quantity,
        bounds=settings.bounds,
        most=max(left, _MOST_FORECAST),
    )
    chance = float(forecast.chance[left - 1]) if left > 0 else 0.0
    return Outlook(chance=chance, pairs=forecast.pairs)


class Train(NamedTuple):
    """Train these batches, then look again. Planned batches that have not ended come first."""

    batches: tuple[Batch, ...]


class Decided(NamedTuple):
    """All comparisons are decided."""


class End(NamedTuple):
    """The reason why an open comparison gets no further seeds.

    reason: "seeds": the limit of seeds is reached; "hours": the limit of device hours is reached;
    "chance": the comparison will hardly be decided within the limit of seeds; "diverged": all
    pairs so far are left out. outlook: a forecast, None with fewer than 4 pairs.
    """

    reason: str
    outlook: Outlook | None


class Undecided(NamedTuple):
    """No comparison gets further seeds, and some are open: the reasons by method."""

    ends: Mapping[str, End]


Action = Train | Decided | Undecided


def next_action(
    comparison: Comparison, limits: Limits, *, hours: float = 0.0
) -> Action:
    """Return what to do next.

    hours: device hours that all batches have used so far. Planned batches that have not ended are
    trained first, even beyond limits.max_seeds. Then each open comparison gets its next batch, and
    the reference the seeds that it lacks for these pairs.
    ValueError if limits.max_seeds is too small for any decision.
    """
    check_limits(comparison, limits)
    looks = look(comparison)
    open_looks = {
        method: method_look
        for method, method_look in looks.items()
        if method_look.result.decision is None
    }
    if not open_looks:
        return Decided()
    if hours >= limits.max_hours:
        return Undecided(
            {
                method: End("hours", outlook(comparison, method_look, limits))
                for method, method_look in open_looks.items()
            }
        )
    unfinished = [
        batch
        for batch in comparison.unfinished()
        if batch.method in open_looks or batch.method == comparison.reference
    ]
    if unfinished:
        return Train(tuple(unfinished))
    _check_reference(comparison)
    ends = {
        method: _end(comparison, method_look, limits)
        for method, method_look in open_looks.items()
    }
    batches = list(
        _next_batches(
            comparison, [method for method, end in ends.items() if not end], limits
        )
    )
    if batches:
        return Train(tuple(batches))
    return Undecided(ends)


def check_limits(comparison: Comparison, limits: Limits) -> None:
    """Raise ValueError if limits.max_seeds is too small for any decision, or max_hours not above 0."""
    errors.check(
        limits.max_hours > 0, "--max-hours", "be positive", limits.max_hours
    )  # False for NaN, too.
    least = sequential.least_pairs(comparison.level)
    errors.check(
        limits.max_seeds >= least,
        "--max-seeds",
        f"be at least {least}, because fewer seeds cannot decide a comparison at the level "
        f"{comparison.level:.3g}",
        limits.max_seeds,
    )


def least_equivalent_pairs(comparison: Comparison) -> int | None:
    """Return the number of pairs below which equivalence cannot be shown; None without points."""
    settings = comparison.settings
    if settings.points is None:
        return None
    return sequential.least_pairs(
        comparison.level,
        settings.points,
        quantity=settings.quantity,
        bounds=settings.bounds,
    )


def points_of_unit(settings: Settings) -> float:
    """Return the number of percentage points in the unit of the differences.

    It is 100 for scores from 0 to 1 and for shares of wins, and 1 for scores with other bounds.
    """
    is_share = settings.quantity == "wins" or settings.bounds[1] <= 1
    return 100.0 if is_share else 1.0


def _check_reference(comparison: Comparison) -> None:
    """Raise ValueError if the reference lacks the score of a seed that a planned pair needs."""
    num_pairs = min(
        max(map(comparison.planned, comparison.methods)),
        comparison.planned(comparison.reference),
    )
    scores = comparison.scores.get(comparison.reference, {})
    for seed in comparison.pair_seeds(num_pairs):
        if seed not in scores:
            raise ValueError(
                f"{comparison.reference}: seed {seed} of the reference has no score; finish or "
                "restore its run"
            )


def _end(comparison: Comparison, method_look: Look, limits: Limits) -> End | None:
    """Return the reason to end an open comparison whose batches have ended; None to go on."""
    if comparison.planned(method_look.method) >= limits.max_seeds:
        return End("seeds", outlook(comparison, method_look, limits))
    if method_look.num_seeds >= DIVERGED_PAIRS and not method_look.scores:
        return End("diverged", None)
    if len(method_look.scores) < FORECAST_PAIRS:
        return None
    forecast = outlook(comparison, method_look, limits)
    if forecast.chance < LEAST_CHANCE:
        return End("chance", forecast)
    return None


def _next_batches(
    comparison: Comparison, methods: Sequence[str], limits: Limits
) -> Iterator[Batch]:
    """Yield the next batch of each of the methods, then the batch that the reference lacks.

    A batch has consecutive pairs, and never pairs beyond limits.max_seeds.
    """
    num_pairs = 0
    for method in methods:
        start = comparison.planned(method)
        size = max(1, limits.batch_seeds.get(method, 1))
        stop = min(start + size, limits.max_seeds)
        num_pairs = max(num_pairs, stop)
        yield Batch(method, comparison.pair_seeds(stop)[start:])
    start = comparison.planned(comparison.reference)
    if start < num_pairs:
        yield Batch(comparison.reference, comparison.pair_seeds(num_pairs)[start:])
