"""Measurement of how the accuracy of trained networks depends on an attribute, by kind of shift.

Shifts are defined in jbias.data.shifts. The accuracy under a shift is not measured on a sampled
set: it is the sum of the shift's table times the accuracies of the cells, where a cell is a class
with a value. The networks do not change with the level, so the accuracies in and out of
distribution are linear in the level, and the drop (the first minus the second) is 0 at the control.

The tables of a shift need two groups of classes, and the values in a circular order. If the table
that a model was trained with is unknown, `choose_arrangement` chooses the groups and the order
with the largest drop. They are chosen on one half of the images of each cell and applied to the
other half, and vice versa. The drop is the mean over both halves; it is not biased by the choice,
which uses other images.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, stats

from jbias import errors
from jbias.data import shifts
from jbias.measures import accuracy
from jbias.stats import two_sample

Column = Int[np.ndarray, "n"]  # By image: classes, or values of an attribute.
Marks = Bool[
    np.ndarray, "s n"
]  # By network and image: whether the decision is correct.
Cells = Float[np.ndarray, "k m"]  # By class (row) and value (column).
ClassesAndValues = tuple[Int[np.ndarray, "k"], Int[np.ndarray, "m"]]  # Ascending.


def share_variance(
    num_correct: Float[np.ndarray, "*c"], n: Int[np.ndarray, "*c"]
) -> Float[np.ndarray, "*c"]:
    """Return the smoothed variance p (1 - p) / n of a share, p = (num_correct + 1) / (n + 2).

    num_correct, n: counts, arrays of equal shape. For n = 0 the result is 1/4.
    """
    p = (num_correct + 1) / (n + 2)
    return p * (1 - p) / np.maximum(n, 1)


def testable_cells(
    table: Cells, least: int, names: tuple[Sequence[str], Sequence[str]] | None = None
) -> tuple[ClassesAndValues, str]:
    """Return ((classes, values), note), such that every cell has at least `least` images.

    table: the number of images by class and value. names: (names of classes, names of values),
    for the note; None: indices. Classes and values without images are left out. Then the class or
    value with the largest share of cells with too few images is removed, repeatedly; if a class
    and a value are tied, the value. With fewer than two classes or values left, classes and values
    are both empty, and the note begins "cannot be tested". Else the note is "", or it names up to
    six of the removed classes and values, with the counts of their cells.
    """
    remaining = [np.flatnonzero(table.sum(axis)) for axis in (1, 0)]
    removed = []
    axis_names = names or [[*map(str, range(size))] for size in table.shape]
    while all(map(len, remaining)):
        is_short = table[np.ix_(remaining[0], remaining[1])] < least
        if not is_short.any():
            break
        shares = is_short.mean(1), is_short.mean(0)
        axis = int(shares[1].max() >= shares[0].max())
        worst = int(shares[axis].argmax())
        removed.append(
            _describe_removed(
                table,
                remaining,
                axis,
                number=remaining[axis][worst],
                least=least,
                axis_names=axis_names,
            )
        )
        remaining[axis] = np.delete(remaining[axis], worst)
    if min(map(len, remaining)) < 2:
        lacking = "classes" if len(remaining[0]) < 2 else "values"
        more = f" ({'; '.join(removed[:3])})" if removed else ""
        note = (
            f"cannot be tested: fewer than two {lacking} have {least} images in every "
            f"cell{more}"
        )
        return (np.zeros(0, int),) * 2, note
    if not removed:
        return tuple(remaining), ""
    note = "left out: " + "; ".join(removed[:6])
    if len(removed) > 6:
        note += f"; {len(removed) - 6} more"
    return tuple(remaining), note


def _describe_removed(
    table: Cells,
    remaining: list[Int[np.ndarray, "x"]],
    axis: int,
    *,
    number: int,
    least: int,
    axis_names: Sequence[Sequence[str]],
) -> str:
    """Return a phrase on a removed class (axis 0) or value (axis 1) and its cells with few images.

    remaining: classes and values that are not removed. number: index of the removed class or
    value. Other arguments: see `testable_cells`.
    """
    counts, other_names = table.take(number, axis), axis_names[1 - axis]
    lacking = [
        f"{counts[k]} of {other_names[k]}"
        for k in remaining[1 - axis]
        if counts[k] < least
    ]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    name = f"{('class', 'value')[axis]} {axis_names[axis][number]}"
    return f"{name} has {', '.join(lacking[:3])}{more}, {least} of each are needed"


def split_halves(
    label: Column,
    value: Column,
    used: ClassesAndValues,
    rng: np.random.Generator,
) -> Column:
    """Return the half, 0 or 1, to which each image is assigned at random within its cell.

    used: (classes, values); the result is -1 for images of other classes or values. In a cell
    with an odd number of images, a random half gets one more image.
    """
    half = np.full(len(label), -1, np.int64)
    for k, a in itertools.product(*used):
        members = np.flatnonzero((label == k) & (value == a))
        side = (np.arange(len(members)) + rng.integers(2)) % 2
        half[rng.permutation(members)] = side
    return half


_NUM_STARTS = 12  # Random groups that the search starts from.
_MAX_STARTS = 150  # Up to this number of ways to make groups, all are tried: 8 classes.
_MAX_ROUNDS = 50


class Arrangement(NamedTuple):
    """Groups of classes (0, 1, or -1 for neither), and the circular order of values."""

    kind: str  # One of data.shifts.KINDS.
    groups: Int[np.ndarray, "k"]
    order: Int[np.ndarray, "m"]  # Values in circular order.

    def tables(self, share: float) -> tuple[Cells, Cells]:
        """Return P(value | class) as (training, testing); rows are classes, columns values.

        share: the strength of the shift, of data.shifts.LEVELS, from 1/2 to 1 (extreme).
        """
        place = np.argsort(self.order)
        train, test = shifts.tables(self.kind, share, self.groups, len(self.order))
        return train[:, place], test[:, place]

    def contrast(self) -> Cells:
        """Return the weight of each cell's accuracy in the drop at the extreme level."""
        train, test = self.tables(1.0)
        return (train - test) / len(self.groups)


def choose_arrangement(kind: str, accuracy: Cells) -> Arrangement:
    """Return the arrangement with the largest drop at the extreme level of a kind of shift.

    kind: one of data.shifts.KINDS. accuracy: by class and value; ValueError unless finite.
    From several starts, the order is optimised for fixed groups and the groups for a fixed
    order (assignment problems), in turn. For up to eight classes all groups are tried, so that
    the result is optimal; for more classes it may not be.
    """
    is_finite = np.isfinite(accuracy).all()
    must = "be finite"
    errors.check(is_finite, "arrangement", must, accuracy.tolist(), name="accuracies")
    best, largest_drop = None, -np.inf
    for groups in _starts(kind, accuracy):
        arrangement, drop = _optimise(kind, accuracy, groups)
        if drop > largest_drop + 1e-12:
            best, largest_drop = arrangement, drop
    return best


def _starts(kind: str, accuracy: Cells) -> Iterator[Int[np.ndarray, "k"]]:
    """Yield groups of classes (0, 1 or -1, as in `Arrangement`) to start the search from.

    The first groups are from shifts.half_groups; the kind "marginal", which does not depend on
    groups, has no other groups. Otherwise, if there are at most _MAX_STARTS possible
    groups, all of them follow, else _NUM_STARTS random groups, which are the same in each call.
    """
    k = len(accuracy)
    yield shifts.half_groups(k)
    if kind == "marginal":
        return  # A marginal shift is the same for all classes.
    if math.comb(k, k // 2) * math.comb(k - k // 2, k % 2) <= _MAX_STARTS:
        yield from _all_groups(k)
        return
    for score in np.random.default_rng(0).normal(size=(_NUM_STARTS, k)):
        # The highest scores have the first places.
        yield shifts.half_groups(k)[np.argsort(np.argsort(-score, kind="stable"))]


def _all_groups(k: int) -> Iterator[Int[np.ndarray, "k"]]:
    """Yield the group (0 or 1) of each of k classes, for all ways to make two equal groups.

    If k is odd, one class is in neither group and has -1. Both numberings of the two groups are
    yielded.
    """
    for left_out in range(k) if k % 2 else (None,):
        grouped = [number for number in range(k) if number != left_out]
        for first_group in itertools.combinations(grouped, k // 2):
            groups = np.ones(k, np.int32)
            groups[list(first_group)] = 0
            if left_out is not None:
                groups[left_out] = -1
            yield groups


def _optimise(
    kind: str, accuracy: Cells, groups: Int[np.ndarray, "k"]
) -> tuple[Arrangement, float]:
    """Return (locally optimal arrangement, its drop), by improving order and groups in turn.

    groups: the groups of classes to start from. Other arguments: see `choose_arrangement`.
    """
    k, m = accuracy.shape
    train, test = shifts.tables(kind, 1.0, np.array([0, 1, -1]), m)
    rows = (train - test) / k  # Of group 0, of group 1, of neither.
    largest_drop, order, slots = -np.inf, np.arange(m), shifts.half_groups(k)
    for _ in range(_MAX_ROUNDS):
        gain = accuracy.T @ rows[groups]  # Of a value (row) at a place.
        _, place = optimize.linear_sum_assignment(gain, maximize=True)
        order = np.argsort(place)
        if kind != "marginal":
            gain = accuracy[:, order] @ rows.T
            _, place = optimize.linear_sum_assignment(gain[:, slots], maximize=True)
            groups = slots[place]
        drop = float((rows[groups] * accuracy[:, order]).sum())
        if drop <= largest_drop + 1e-12:
            break
        largest_drop = drop
    return Arrangement(kind, groups, order), drop


DRAWS = 2000
MIN_CELL_SIZE = 2  # One image to choose an arrangement, and one to apply it to.


class Point(NamedTuple):
    """Accuracies at one level of a shift, their difference, and its interval."""

    level: str  # A key of data.shifts.LEVELS.
    share: float  # Strength of the shift at that level, from 1/2 to 1.
    within: float  # Accuracy on the training distribution.
    outside: float  # Accuracy on the shifted distribution.
    drop: float  # Minus the drop of the reference networks, if any.
    low: float  # Bootstrap interval of 95 % of the drop.
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class ShiftDrop:
    """The drop of accuracy under shifts of one kind; cross-fitted except for `chosen`."""

    kind: str  # One of data.shifts.KINDS.
    curve: tuple[Point, ...]  # From the control to the extreme.
    error: float  # Standard error of the drop, used by `pvalue`.
    pvalue: float  # One-sided, of the hypothesis that the drop is not above 0.
    chosen: (
        Arrangement  # Chosen on all images; for reports and re-use, not for the drop.
    )
    tried: tuple[Arrangement, Arrangement]  # Chosen on each half.
    by_network: tuple[float, ...]  # The drop of each network alone.

    @property
    def extreme(self) -> Point:
        """Return the point at the extreme level."""
        return self.curve[-1]

    @property
    def drop(self) -> float:
        """Return the drop at the extreme level minus the drop at the control."""
        return self.extreme.drop - self.curve[0].drop

    @property
    def own_drop(self) -> float:
        """Return the networks' drop at the extreme level; the reference drop is not subtracted."""
        return self.extreme.within - self.extreme.outside

    @property
    def relative(self) -> float:
        """Return the drop divided by the accuracy in distribution; 0 if that accuracy is 0."""
        within = self.extreme.within
        return self.drop / within if within > 0 else 0.0

    @property
    def area(self) -> float:
        """Return the mean drop over shares from 1/2 to 1, by trapezoids."""
        share, drop = np.array([(point.share, point.drop) for point in self.curve]).T
        return float(np.trapezoid(drop, share) / (share[-1] - share[0]))


@dataclasses.dataclass(frozen=True, eq=False)
class Reliance:
    """The drops of one attribute by kind of shift; `kinds` is empty for an untestable attribute."""

    kinds: Mapping[str, ShiftDrop]  # By kind.
    classes: Int[np.ndarray, "k"]  # Ids of the tested classes.
    values: Int[np.ndarray, "m"]  # Tested values.
    count: Cells  # Number of images by cell.
    accuracy: Cells  # On all images, mean over networks.
    half: Column  # The half of each image, 0 or 1; -1 if it is left out.
    missing: str = ""  # Note on classes and values that were left out, with counts.


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
    """Return the drop of s networks under each kind of shift, with intervals of 95 %.

    correct: by network and image, whether the decision is correct. label, value: by image, the
    class and the value of the attribute; images with a negative (unknown) class or value are left
    out. against: `correct` of reference networks; drops, errors and intervals are then differences
    to the values of the reference networks under the same tables, while accuracies remain the
    networks' own. names: (names of classes, names of values), for messages. kinds: some of
    data.shifts.KINDS. draws: bootstrap samples. Classes and values with too few images are left
    out, as `testable_cells` does; if fewer than two classes or two values remain, the result has no
    kinds. ValueError for arguments whose shapes do not match, and for fewer than 100 draws.

    Intervals are percentiles over samples of images within cells and halves and, for s > 1,
    of networks (jbias.stats.two_sample); arrangements are not chosen again. The one-sided p-value
    holds for these networks alone. For it, the drop divided by its standard error is treated as a
    standard normal variable. The error is the mean of the standard errors on both halves, the
    largest possible error of the mean of two dependent values. `share_variance` is the variance
    of cells, so that a few images that are all classified correctly do not have a variance of 0.
    """
    correct = np.atleast_2d(np.asarray(correct, bool))
    against = correct[:0] if against is None else np.atleast_2d(against).astype(bool)
    label, value = np.asarray(label), np.asarray(value)
    shapes, n = (correct.shape, label.shape, value.shape), correct.shape[-1]
    has_same_images = against.ndim == 2 and against.shape[-1] == n
    must = "be (networks, images) of the same images"
    errors.check(
        has_same_images,
        "reliance",
        must,
        (against.shape, correct.shape),
        name="against",
    )
    has_columns = correct.ndim == 2 and shapes[1:] == ((n,), (n,))
    must = "be (networks, images), label and value one an image"
    errors.check(has_columns, "reliance", must, shapes, name="correct")
    errors.check(draws >= 100, "reliance", "be 100 or more", draws, name="draws")
    table = accuracy.count_cells(label, value)
    used, missing = testable_cells(table, MIN_CELL_SIZE, names)
    rng, cells = np.random.default_rng(seed), np.ix_(*used)
    half, count = split_halves(label, value, used, rng), table[cells]
    num_correct = accuracy.sum_cells(correct.mean(0), label, value, table.shape)[cells]
    by_kind = {}
    if count.size:

        def summarise(is_used: Bool[np.ndarray, "n"]) -> _CellSummary:
            """Return the accuracies by cell of the images where `is_used`."""
            return _CellSummary.from_answers(
                correct, against, label, value, is_used=is_used, used=used
            )

        halves = [summarise(half == h) for h in (0, 1)]
        everything = summarise(half >= 0)
        drawn = _resample(correct, against, halves, rng, draws)
        by_kind = {
            kind: _measure_kind(kind, everything, halves, drawn) for kind in kinds
        }
    classes, values = used
    return Reliance(
        kinds=by_kind,
        classes=classes,
        values=values,
        count=count,
        accuracy=num_correct / count,
        half=half,
        missing=missing,
    )


class _CellSummary(NamedTuple):
    """Accuracies on a subset of the images, such as one half, by cell."""

    members: list[Int[np.ndarray, "i"]]  # Indices of each cell's images, row by row.
    accuracy: Cells
    by_network: Float[np.ndarray, "s k m"]  # Accuracy minus the reference's.
    variance: Cells  # Smoothed variance of the mean of `by_network`.

    @classmethod
    def from_answers(
        cls,
        correct: Marks,
        against: Marks,
        label: Column,
        value: Column,
        *,
        is_used: Bool[np.ndarray, "n"],
        used: ClassesAndValues,
    ) -> "_CellSummary":
        """Return the summary of the images where `is_used`, over the cells of `used`.

        Other arguments: see `measure`; `against` has no rows if there is no reference.
        """
        cells = ((label == k) & (value == a) for k, a in itertools.product(*used))
        members = [np.flatnonzero(is_used & cell) for cell in cells]
        n, shape = np.array([*map(len, members)]), [*map(len, used)]
        by_network = np.stack([correct[:, images].mean(1) for images in members], 1)
        mean = by_network.mean(0)
        variance = share_variance(mean * n, n)
        if len(against):  # As if errors were independent; common errors vary less.
            reference = np.array([against[:, images].mean() for images in members])
            by_network = by_network - reference
            variance = variance + share_variance(reference * n, n)
        return cls(
            members=members,
            accuracy=mean.reshape(shape),
            by_network=by_network.reshape(len(correct), *shape),
            variance=variance.reshape(shape),
        )

    @property
    def advantage(self) -> Cells:
        """Return the networks' mean accuracy minus the reference networks' mean, if any."""
        return self.by_network.mean(0)


def _measure_kind(
    kind: str,
    everything: _CellSummary,
    halves: Sequence[_CellSummary],
    drawn: Sequence[Float[np.ndarray, "draws k m"]],
) -> ShiftDrop:
    """Return the drop under a kind of shift, with cross-fitted arrangements.

    An arrangement is chosen on each half of the images and applied to the other half.
    everything, halves: summaries of all images and of both halves. drawn: result of
    `_resample`.
    """
    tried = tuple(choose_arrangement(kind, half.advantage) for half in halves)
    # (arrangement, the half that it is applied to, bootstrap samples of that half)
    trials = [(tried[0], halves[1], drawn[1]), (tried[1], halves[0], drawn[0])]
    curve = []
    for name, level in shifts.LEVELS.items():
        if level.kind != kind:
            continue
        within, outside, drop, drawn_drop = 0.0, 0.0, 0.0, 0.0
        for arrangement, half, sample in trials:
            train, test = (
                table / len(table) for table in arrangement.tables(level.share)
            )
            within += (train * half.accuracy).sum() / 2
            outside += (test * half.accuracy).sum() / 2
            drop += ((train - test) * half.advantage).sum() / 2
            drawn_drop = drawn_drop + ((train - test) * sample).sum((-2, -1)) / 2
        low, high = np.percentile(drawn_drop, (2.5, 97.5))
        curve.append(
            Point(
                level=name,
                share=level.share,
                within=float(within),
                outside=float(outside),
                drop=float(drop),
                low=float(low),
                high=float(high),
            )
        )
    variances = [
        (arrangement.contrast() ** 2 * half.variance).sum()
        for arrangement, half, _ in trials
    ]
    error = np.sqrt(variances).mean()
    by_network = (
        sum(
            (arrangement.contrast() * half.by_network).sum((-2, -1))
            for arrangement, half, _ in trials
        )
        / 2
    )
    return ShiftDrop(
        kind=kind,
        curve=tuple(curve),
        error=float(error),
        pvalue=float(stats.norm.sf((curve[-1].drop - curve[0].drop) / error)),
        chosen=choose_arrangement(kind, everything.advantage),
        tried=tried,
        by_network=tuple(by_network.tolist()),
    )


def _resample(
    correct: Marks,
    against: Marks,
    halves: Sequence[_CellSummary],
    rng: np.random.Generator,
    draws: int,
) -> list[Float[np.ndarray, "draws k m"]]:
    """Return, for each half, bootstrap samples of `_CellSummary.advantage`.

    Both networks and images are drawn. correct, against: see `measure`; `against` has no rows
    if there is no reference. halves: the summaries of both halves.
    """
    weights = two_sample.t_weights(len(correct), draws, rng)
    if len(against):
        reference = two_sample.t_weights(len(against), draws, rng)
        weights = np.concatenate([weights, -reference], axis=1)
    answers, samples = np.concatenate([correct, against]), []
    for half in halves:
        sample = np.empty((draws, len(half.members)))
        for cell, members in enumerate(half.members):
            of_cell = answers[:, members]
            # Images with the same answers of all networks are one outcome. One image that
            # all networks answer rightly and one that none does are added, so that even a
            # few equal images vary.
            smoothed = np.hstack([of_cell, np.repeat([[True, False]], len(of_cell), 0)])
            outcomes, counts = np.unique(smoothed, axis=1, return_counts=True)
            n, share = len(members), counts / (len(members) + 2)
            deviation = rng.multinomial(n, share, draws) / n - share
            accuracies = of_cell.mean(1) + deviation @ outcomes.T
            sample[:, cell] = (accuracies * weights).sum(1)
        samples.append(sample.reshape(draws, *half.accuracy.shape))
    return samples
