"""How the accuracy of trained networks depends on an attribute, by kind of shift.

Shifts are those of jbias.data.shifts, as infinite sets: the accuracy on one is the sum of
its table times the accuracies of the cells, where a cell is a class with a value. The
networks do not change with the level, so both accuracies are linear in it, and the drop (in
distribution minus out of it) is 0 at the control.

The tables of a shift need two groups of classes, and the values in a circle. For a model
without its training table both are unknown: `choose_arrangement` picks those with the
largest drop. They are chosen on one half of the images of each cell and tried on the other,
and the other way round: the drop is the mean of both trials, which choosing does not bias.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, stats

from jbias.data import shifts
from jbias.evals import accuracy
from jbias.stats import two_sample


def share_variance(
    right: Float[np.ndarray, "*shape"], n: Int[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Variance of a share right / n: p (1 - p) / n with p = (right + 1) / (n + 2)."""
    p = (right + 1) / (n + 2)
    return p * (1 - p) / np.maximum(n, 1)


def testable_cells(
    table: Int[np.ndarray, "k m"],
    least: int,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
) -> tuple[tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]], str]:
    """Classes and values of which every cell has `least` images, and what that leaves out.

    Where cells lack images, the value or class with the largest share of such cells is
    left out, again and again; of equal ones a value. Fewer than two of either: none. The
    words name what is left out, with counts.
    """
    rows, columns = np.flatnonzero(table.sum(1)), np.flatnonzero(table.sum(0))
    lost = []
    called = names or [[*map(str, range(size))] for size in table.shape]
    while rows.size and columns.size:
        short = table[np.ix_(rows, columns)] < least
        if not short.any():
            break
        by_row, by_column = short.mean(1), short.mean(0)
        axis = int(by_column.max() >= by_row.max())
        worst = int((by_row, by_column)[axis].argmax())
        lost.append(_lost(table, rows, columns, axis, worst, least, called))
        if axis:
            columns = np.delete(columns, worst)
        else:
            rows = np.delete(rows, worst)
    if len(rows) < 2 or len(columns) < 2:
        what = "classes" if len(rows) < 2 else "values"
        more = f" ({'; '.join(lost[:3])})" if lost else ""
        none = np.zeros(0, int)
        return (none, none), (
            f"cannot be tested: fewer than two {what} have {least} images in every"
            f" cell{more}"
        )
    said = "; ".join(lost[:6]) + (f"; {len(lost) - 6} more" if len(lost) > 6 else "")
    return (rows, columns), f"left out: {said}" if lost else ""


def _lost(table, rows, columns, axis, worst, least, called) -> str:
    """Names the class or value that is left out, and which of its cells lack images."""
    if axis:
        line, others = table[rows, columns[worst]], [called[0][k] for k in rows]
        what = f"value {called[1][columns[worst]]}"
    else:
        line, others = table[rows[worst], columns], [called[1][a] for a in columns]
        what = f"class {called[0][rows[worst]]}"
    lacking = [
        f"{n} of {other}" for n, other in zip(line.tolist(), others) if n < least
    ]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    return f"{what} has {', '.join(lacking[:3])}{more}, {least} of each are needed"


def split_halves(
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
    kept: tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]],
    rng: np.random.Generator,
) -> Int[np.ndarray, "n"]:
    """Deals the images of each cell to 0 and 1 by chance, evenly; -1 outside of `kept`.

    Of an odd number, either half gets the one more by chance.
    """
    half = np.full(len(label), -1, np.int64)
    for k in kept[0]:
        for a in kept[1]:
            members = np.flatnonzero((label == k) & (value == a))
            side = (np.arange(len(members)) + rng.integers(2)) % 2
            half[rng.permutation(members)] = side
    return half


_STARTS = 12  # Random groups that the search begins with.
_MAX_STARTS = 150  # Ways to make groups that are all begun with: up to eight classes.
_ROUNDS = 50


class Arrangement(NamedTuple):
    """Groups of classes, 0, 1 or -1 for neither, and the values in their circle."""

    kind: str
    groups: Int[np.ndarray, "k"]
    order: Int[np.ndarray, "m"]  # Values by their place.

    def tables(
        self, share: float
    ) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
        """P(value | class) to train on and to test on; columns are values."""
        place = np.argsort(self.order)
        both = shifts.tables(self.kind, share, self.groups, len(self.order))
        return both[0][:, place], both[1][:, place]

    def contrast(self) -> Float[np.ndarray, "k m"]:
        """What cells weigh in the drop at the extreme: it is the sum of these times them."""
        train, test = self.tables(1.0)
        return (train - test) / len(self.groups)


def choose_arrangement(kind: str, accuracy: Float[np.ndarray, "k m"]) -> Arrangement:
    """The arrangement with the largest drop at the extreme level of such a shift.

    accuracy: of each class and value. Groups and order are improved in turn, each to the
    best for the other (assignment problems), from several starts. Of up to eight classes
    all groups are tried, so that none is better; of more that is not certain.
    """
    if not np.isfinite(accuracy).all():
        raise ValueError(
            "arrangement: accuracies must be finite, got a class and value without any"
        )
    best, most = None, -np.inf
    for groups in _starts(kind, accuracy):
        found, drop = _climbed(kind, accuracy, groups)
        if drop > most + 1e-12:
            best, most = found, drop
    return best


def _starts(kind: str, accuracy: Float[np.ndarray, "k m"]) -> Iterator[np.ndarray]:
    """Groups to begin with: all if they are few, else some."""
    k = len(accuracy)
    yield shifts.half_groups(k)
    if kind == "marginal":
        return  # There classes are all alike.
    if math.comb(k, k // 2) * math.comb(k - k // 2, k % 2) <= _MAX_STARTS:
        yield from _all_groups(k)
        return
    for score in np.random.default_rng(0).normal(size=(_STARTS, k)):
        groups = np.empty(k, np.int32)
        groups[np.argsort(-score, kind="stable")] = shifts.half_groups(k)
        yield groups


def _all_groups(k: int) -> Iterator[Int[np.ndarray, "k"]]:
    """All ways to make two groups of k classes, one is left where k is odd."""
    for left in range(k) if k % 2 else (None,):
        others = [one for one in range(k) if one != left]
        for first in itertools.combinations(others, k // 2):
            groups = np.ones(k, np.int32)
            groups[list(first)] = 0
            groups[[] if left is None else left] = -1
            yield groups


def _climbed(
    kind: str, accuracy: Float[np.ndarray, "k m"], groups: Int[np.ndarray, "k"]
) -> tuple[Arrangement, float]:
    """Improves values and groups in turn until neither gets better."""
    k, m = accuracy.shape
    few = shifts.tables(kind, 1.0, np.array([0, 1, -1]), m)
    rows = (few[0] - few[1]) / k  # Of group 0, of group 1, of neither.
    most, order, slots = -np.inf, np.arange(m), shifts.half_groups(k)
    for _ in range(_ROUNDS):
        gain = accuracy.T @ rows[groups]  # Of a value (row) at a place.
        _, place = optimize.linear_sum_assignment(gain, maximize=True)
        order = np.argsort(place)
        if kind != "marginal":
            gain = accuracy[:, order] @ rows.T
            _, place = optimize.linear_sum_assignment(gain[:, slots], maximize=True)
            groups = slots[place]
        drop = float((rows[groups] * accuracy[:, order]).sum())
        if drop <= most + 1e-12:
            break
        most = drop
    return Arrangement(kind, groups, order), drop


DRAWS = 2000
LEAST = 2  # Images of a cell: one to choose by, and one to try.


class Point(NamedTuple):
    """One level of a shift: accuracies, their difference, and its interval."""

    level: str
    share: float
    within: float  # On the training distribution.
    outside: float  # On the shifted one.
    drop: float  # Less that of the reference, where there is one.
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """The drop under shifts of one kind, cross-fitted but where it says otherwise."""

    kind: str
    curve: tuple[Point, ...]  # From the control to the extreme.
    error: float  # Standard error of the drop that `pvalue` is of.
    pvalue: float  # That the drop is not above 0.
    chosen: Arrangement  # On all images; for words, pictures and re-use.
    tried: tuple[Arrangement, Arrangement]  # On each half.
    each: tuple[float, ...]  # The drop of each network alone.

    @property
    def extreme(self) -> Point:
        return self.curve[-1]

    @property
    def drop(self) -> float:
        """At the extreme level minus at the control."""
        return self.extreme.drop - self.curve[0].drop

    @property
    def own_drop(self) -> float:
        """The drop at the extreme level whatever the reference's is."""
        return self.extreme.within - self.extreme.outside

    @property
    def relative(self) -> float:
        """The drop as a share of the accuracy in distribution; 0 where that is 0."""
        within = self.extreme.within
        return self.drop / within if within > 0 else 0.0

    @property
    def area(self) -> float:
        """Mean drop over shares from 1/2 to 1, by trapezoids."""
        share, drop = np.array([(one.share, one.drop) for one in self.curve]).T
        return float(np.trapezoid(drop, share) / (share[-1] - share[0]))


@dataclasses.dataclass(frozen=True, eq=False)
class Reliance:
    """What is known of one attribute; without `kinds` it cannot be tested: see `missing`."""

    kinds: Mapping[str, Kind]
    classes: Int[np.ndarray, "k"]  # Those that take part, in the set's numbers.
    values: Int[np.ndarray, "m"]
    count: Int[np.ndarray, "k m"]  # Images of these.
    accuracy: Float[np.ndarray, "k m"]  # On all images, mean over networks.
    half: Int[np.ndarray, "n"]  # Which half an image is of; -1 where it has no part.
    missing: str = ""  # What was left out, or what lacks, with counts.


def measure(
    correct: Bool[np.ndarray, "s n"],
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
    *,
    against: Bool[np.ndarray, "r n"] | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    kinds: Sequence[str] = shifts.KINDS,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> Reliance:
    """Gives the drop of s networks together under shifts of each kind, with intervals.

    correct: whether each network is right about each image. against: the same of networks
    of reference: drops, errors and intervals are then of the difference to these under the
    same tables, which leaves out what is hard for them as well; accuracies are not. names:
    of classes and values, for words. Intervals are percentiles of draws of images within
    cells and halves and, of s > 1 networks, of networks (jbias.stats.two_sample); arrangements
    stay. The p-value is one-sided, of a normal variable, for these networks: the drop over
    the mean of both trials' standard errors. Trials of one set of images depend on each other, and no dependence
    makes the error of their mean larger. Variances of cells are p (1 - p) / n with
    p = (right + 1) / (n + 2), so that few images that are all right are not certain.
    ValueError, one line, where the arguments do not fit.
    """
    correct = np.atleast_2d(np.asarray(correct, bool))
    against = correct[:0] if against is None else np.atleast_2d(against).astype(bool)
    label, value = np.asarray(label), np.asarray(value)
    _check(correct, against, label, value, draws)
    share = correct.mean(0)
    table = accuracy.count_cells(label, value)
    kept, missing = testable_cells(table, LEAST, names)
    rng = np.random.default_rng(seed)
    half = split_halves(label, value, kept, rng)
    count = table[np.ix_(*kept)]
    with np.errstate(invalid="ignore"):
        mean = (
            accuracy.sum_cells(share, label, value, table.shape)[np.ix_(*kept)] / count
        )
    told = dict(classes=kept[0], values=kept[1], count=count, accuracy=mean)
    if not count.size:
        return Reliance(kinds={}, half=half, missing=missing, **told)
    both = correct, against
    halves = [_Half.from_answers(*both, label, value, half == h, kept) for h in (0, 1)]
    everything = _Half.from_answers(*both, label, value, half >= 0, kept)
    drawn = _resampled(*both, halves, rng, draws)
    found = {kind: _kind(kind, everything, halves, drawn, confidence) for kind in kinds}
    return Reliance(MappingProxyType(found), half=half, missing=missing, **told)


class _Half(NamedTuple):
    """Half of the images, by cell."""

    members: list[Int[np.ndarray, "i"]]  # Numbers of each cell's images, row by row.
    accuracy: Float[np.ndarray, "k m"]
    each: Float[np.ndarray, "s k m"]  # Of each network, less that of the reference.
    variance: Float[np.ndarray, "k m"]  # Of the mean of these, smoothed.

    @classmethod
    def from_answers(cls, correct, against, label, value, mine, kept) -> "_Half":
        members = [
            np.flatnonzero(mine & (label == k) & (value == a))
            for k in kept[0]
            for a in kept[1]
        ]
        n, shape = np.array([len(one) for one in members]), [len(one) for one in kept]
        each = np.stack([correct[:, one].mean(1) for one in members], 1)
        mean = each.mean(0)
        variance = share_variance(mean * n, n)
        if len(against):  # As if both erred apart; alike, they vary less.
            other = np.array([against[:, one].mean() for one in members])
            each, variance = each - other, variance + share_variance(other * n, n)
        each = each.reshape(len(correct), *shape)
        return cls(members, mean.reshape(shape), each, variance.reshape(shape))

    @property
    def beyond(self) -> Float[np.ndarray, "k m"]:
        return self.each.mean(0)


def _kind(kind, everything, halves, drawn, confidence) -> Kind:
    """Chooses on each half and tries on the other."""
    tried = tuple(choose_arrangement(kind, half.beyond) for half in halves)
    pairs = [(tried[0], 1), (tried[1], 0)]  # What is tried, and on which half.
    errors, curve = [], []
    for one, h in pairs:
        weight = one.contrast()
        errors.append(np.sqrt((weight**2 * halves[h].variance).sum()))
    ends = 50 - 50 * confidence, 50 + 50 * confidence
    for name, level in shifts.LEVELS.items():
        if level.kind != kind:
            continue
        within, outside, drop, spread = 0.0, 0.0, 0.0, 0.0
        for one, h in pairs:
            train, test = (table / len(table) for table in one.tables(level.share))
            within += (train * halves[h].accuracy).sum() / 2
            outside += (test * halves[h].accuracy).sum() / 2
            drop += ((train - test) * halves[h].beyond).sum() / 2
            spread = spread + ((train - test) * drawn[h]).sum((-2, -1)) / 2
        low, high = np.percentile(spread, ends)
        found = (within, outside, drop, low, high)
        curve.append(Point(name, level.share, *map(float, found)))
    error = float(np.mean(errors))
    pvalue = float(stats.norm.sf((curve[-1].drop - curve[0].drop) / error))
    chosen = choose_arrangement(kind, everything.beyond)
    each = sum((one.contrast() * halves[h].each).sum((-2, -1)) for one, h in pairs) / 2
    given = chosen, tried, tuple(each.tolist())
    return Kind(kind, tuple(curve), error, pvalue, *given)


def _resampled(
    correct: Bool[np.ndarray, "s n"],
    against: Bool[np.ndarray, "r n"],
    halves: Sequence[_Half],
    rng: np.random.Generator,
    draws: int,
) -> list[Float[np.ndarray, "b k m"]]:
    """Cells' accuracies in each half, with networks and images drawn anew."""
    networks = two_sample.t_weights(len(correct), draws, rng)
    if len(against):
        reference = two_sample.t_weights(len(against), draws, rng)
        networks = np.concatenate([networks, -reference], axis=1)
    answers, found = np.concatenate([correct, against]), []
    for half in halves:
        drawn = np.empty((draws, len(half.members)))
        for cell, members in enumerate(half.members):
            seen = answers[:, members]
            # Images that all networks answer alike are one outcome; one more image that
            # all are right about, and one that none is, so that few can differ, too.
            ends = np.repeat([[True, False]], len(seen), 0)
            kinds, often = np.unique(
                np.hstack([seen, ends]), axis=1, return_counts=True
            )
            n, share = len(members), often / (len(members) + 2)
            images = rng.multinomial(n, share, draws) / n - share
            drawn[:, cell] = ((seen.mean(1) + images @ kinds.T) * networks).sum(1)
        found.append(drawn.reshape(draws, *half.accuracy.shape))
    return found


def _check(correct, against, label, value, draws) -> None:
    n = correct.shape[-1]
    if against.ndim != 2 or against.shape[-1] != n:
        raise ValueError(
            "reliance: against must be (networks, images) of the same images, got"
            f" {against.shape} for {correct.shape}"
        )
    if correct.ndim != 2 or label.shape != (n,) or value.shape != (n,):
        raise ValueError(
            "reliance: correct must be (networks, images), label and value one an image,"
            f" got {correct.shape}, {label.shape} and {value.shape}"
        )
    if draws < 100:
        raise ValueError(f"reliance: draws must be 100 or more, got {draws}")
