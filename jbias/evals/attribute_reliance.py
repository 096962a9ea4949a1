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
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, stats

from jbias.data import shifts
from jbias.evals import accuracy, probe
from jbias.stats import two_sample

Column = Int[np.ndarray, "n"]  # Of images: classes, or values of an attribute.
Marks = Bool[np.ndarray, "s n"]  # Whether each network is right about each image.
Cells = Float[np.ndarray, "k m"]  # A row a class, a column a value.
Kept = tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]]  # Classes, and values.


def share_variance(right: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Variance of a share right / n: p (1 - p) / n with p = (right + 1) / (n + 2)."""
    p = (right + 1) / (n + 2)
    return p * (1 - p) / np.maximum(n, 1)


def testable_cells(
    table: Cells, least: int, names: tuple[Sequence[str], Sequence[str]] | None = None
) -> tuple[Kept, str]:
    """Classes and values of which every cell has `least` images, and what that leaves out.

    Where cells lack images, the value or class with the largest share of such cells is
    left out, again and again; of equal ones a value. Fewer than two of either: none. The
    words name what is left out, with counts.
    """
    kept, lost = [np.flatnonzero(table.sum(axis)) for axis in (1, 0)], []
    called = names or [[*map(str, range(size))] for size in table.shape]
    while all(map(len, kept)):
        short = table[np.ix_(*kept)] < least
        if not short.any():
            break
        shares = short.mean(1), short.mean(0)
        axis = int(shares[1].max() >= shares[0].max())
        worst = int(shares[axis].argmax())
        lost.append(_lost(table, kept, axis, kept[axis][worst], least, called))
        kept[axis] = np.delete(kept[axis], worst)
    if min(map(len, kept)) < 2:
        what = "classes" if len(kept[0]) < 2 else "values"
        more = f" ({'; '.join(lost[:3])})" if lost else ""
        told = f"fewer than two {what} have {least} images in every cell{more}"
        return (np.zeros(0, int),) * 2, f"cannot be tested: {told}"
    said = "; ".join(lost[:6]) + (f"; {len(lost) - 6} more" if len(lost) > 6 else "")
    return tuple(kept), f"left out: {said}" if lost else ""


def _lost(table, kept, axis: int, one: int, least: int, called) -> str:
    """Names the class or value that is left out, and which of its cells lack images."""
    line, others, names = table.take(one, axis), kept[1 - axis], called[1 - axis]
    lacking = [f"{line[k]} of {names[k]}" for k in others if line[k] < least]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    what = f"{('class', 'value')[axis]} {called[axis][one]}"
    return f"{what} has {', '.join(lacking[:3])}{more}, {least} of each are needed"


def split_halves(
    label: Column, value: Column, kept: Kept, rng: np.random.Generator
) -> Column:
    """Deals the images of each cell to 0 and 1 by chance, evenly; -1 outside of `kept`.

    Of an odd number, either half gets the one more by chance.
    """
    half = np.full(len(label), -1, np.int64)
    for k, a in itertools.product(*kept):
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

    def tables(self, share: float) -> tuple[Cells, Cells]:
        """P(value | class) to train on and to test on; columns are values."""
        place = np.argsort(self.order)
        both = shifts.tables(self.kind, share, self.groups, len(self.order))
        return both[0][:, place], both[1][:, place]

    def contrast(self) -> Cells:
        """What cells weigh in the drop at the extreme: it is the sum of these times them."""
        train, test = self.tables(1.0)
        return (train - test) / len(self.groups)


def choose_arrangement(kind: str, accuracy: Cells) -> Arrangement:
    """The arrangement with the largest drop at the extreme level of such a shift.

    accuracy: of each class and value. Groups and order are improved in turn, each to the
    best for the other (assignment problems), from several starts. Of up to eight classes
    all groups are tried, so that none is better; of more that is not certain.
    """
    known = np.isfinite(accuracy).all()
    probe.check(known, "arrangement", "accuracies must be finite", accuracy.tolist())
    best, most = None, -np.inf
    for groups in _starts(kind, accuracy):
        found, drop = _climbed(kind, accuracy, groups)
        if drop > most + 1e-12:
            best, most = found, drop
    return best


def _starts(kind: str, accuracy: Cells) -> Iterator[np.ndarray]:
    """Groups to begin with: all if they are few, else some."""
    k = len(accuracy)
    yield shifts.half_groups(k)
    if kind == "marginal":
        return  # There classes are all alike.
    if math.comb(k, k // 2) * math.comb(k - k // 2, k % 2) <= _MAX_STARTS:
        yield from _all_groups(k)
        return
    for score in np.random.default_rng(0).normal(size=(_STARTS, k)):
        # The highest scores have the first places.
        yield shifts.half_groups(k)[np.argsort(np.argsort(-score, kind="stable"))]


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
    kind: str, accuracy: Cells, groups: Int[np.ndarray, "k"]
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
    count: Cells  # Images of these.
    accuracy: Cells  # On all images, mean over networks.
    half: Column  # Which half an image is of; -1 where it has no part.
    missing: str = ""  # What was left out, or what lacks, with counts.


def measure(
    correct: Marks,
    label: Column,
    value: Column,
    *,
    against: Marks | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    kinds: Sequence[str] = shifts.KINDS,
    draws: int = DRAWS,
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
    shapes, n = (correct.shape, label.shape, value.shape), correct.shape[-1]
    same = against.ndim == 2 and against.shape[-1] == n
    must = "against must be (networks, images) of the same images"
    probe.check(same, "reliance", must, (against.shape, correct.shape))
    fit = correct.ndim == 2 and shapes[1:] == ((n,), (n,))
    must = "correct must be (networks, images), label and value one an image"
    probe.check(fit, "reliance", must, shapes)
    probe.check(draws >= 100, "reliance", "draws must be 100 or more", draws)
    table = accuracy.count_cells(label, value)
    kept, missing = testable_cells(table, LEAST, names)
    rng, cells = np.random.default_rng(seed), np.ix_(*kept)
    half, count = split_halves(label, value, kept, rng), table[cells]
    right = accuracy.sum_cells(correct.mean(0), label, value, table.shape)[cells]
    found = {}
    if count.size:
        of = correct, against, label, value
        halves = [_Half.from_answers(*of, half == h, kept) for h in (0, 1)]
        everything = _Half.from_answers(*of, half >= 0, kept)
        drawn = _resampled(correct, against, halves, rng, draws)
        found = {kind: _kind(kind, everything, halves, drawn) for kind in kinds}
    return Reliance(found, *kept, count, right / count, half, missing)


class _Half(NamedTuple):
    """Half of the images, by cell."""

    members: list[Int[np.ndarray, "i"]]  # Numbers of each cell's images, row by row.
    accuracy: Cells
    each: Float[np.ndarray, "s k m"]  # Of each network, less that of the reference.
    variance: Cells  # Of the mean of these, smoothed.

    @classmethod
    def from_answers(cls, correct, against, label, value, mine, kept) -> "_Half":
        cells = ((label == k) & (value == a) for k, a in itertools.product(*kept))
        members = [np.flatnonzero(mine & cell) for cell in cells]
        n, shape = np.array([*map(len, members)]), [*map(len, kept)]
        each = np.stack([correct[:, one].mean(1) for one in members], 1)
        mean = each.mean(0)
        variance = share_variance(mean * n, n)
        if len(against):  # As if both erred apart; alike, they vary less.
            other = np.array([against[:, one].mean() for one in members])
            each, variance = each - other, variance + share_variance(other * n, n)
        each = each.reshape(len(correct), *shape)
        return cls(members, mean.reshape(shape), each, variance.reshape(shape))

    @property
    def beyond(self) -> Cells:
        return self.each.mean(0)


def _kind(kind: str, everything, halves, drawn) -> Kind:
    """Chooses on each half and tries on the other."""
    tried = tuple(choose_arrangement(kind, half.beyond) for half in halves)
    # What is tried, on which half, and that half with images drawn anew.
    trials = [(tried[0], halves[1], drawn[1]), (tried[1], halves[0], drawn[0])]
    curve = []
    for name, level in shifts.LEVELS.items():
        if level.kind != kind:
            continue
        within, outside, drop, spread = 0.0, 0.0, 0.0, 0.0
        for one, half, anew in trials:
            train, test = (table / len(table) for table in one.tables(level.share))
            within += (train * half.accuracy).sum() / 2
            outside += (test * half.accuracy).sum() / 2
            drop += ((train - test) * half.beyond).sum() / 2
            spread = spread + ((train - test) * anew).sum((-2, -1)) / 2
        found = within, outside, drop, *np.percentile(spread, (2.5, 97.5))
        curve.append(Point(name, level.share, *map(float, found)))
    variances = [(x.contrast() ** 2 * half.variance).sum() for x, half, _ in trials]
    error = np.sqrt(variances).mean()
    pvalue = float(stats.norm.sf((curve[-1].drop - curve[0].drop) / error))
    chosen = choose_arrangement(kind, everything.beyond)
    each = sum((x.contrast() * half.each).sum((-2, -1)) for x, half, _ in trials) / 2
    given = chosen, tried, tuple(each.tolist())
    return Kind(kind, tuple(curve), float(error), pvalue, *given)


def _resampled(
    correct: Marks, against: Marks, halves, rng, draws: int
) -> list[np.ndarray]:
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
            more = np.hstack([seen, np.repeat([[True, False]], len(seen), 0)])
            kinds, often = np.unique(more, axis=1, return_counts=True)
            n, share = len(members), often / (len(members) + 2)
            images = rng.multinomial(n, share, draws) / n - share
            drawn[:, cell] = ((seen.mean(1) + images @ kinds.T) * networks).sum(1)
        found.append(drawn.reshape(draws, *half.accuracy.shape))
    return found
