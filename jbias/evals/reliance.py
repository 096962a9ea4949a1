"""How the accuracy of given networks depends on an attribute, by kind of shift.

Shifts are those of jbias.data.shifts, as sets without end: the accuracy on one is the sum
of its table times the accuracies of the cells, a class with a value each. A network that
is given does not change with the level, so both accuracies are linear in it, and the drop
(in distribution minus out of it) is 0 at the control.

Which classes and values are set against each other is chosen on one half of the images of
each cell and tried on the other, and the other way round: the drop is the mean of both
trials, which choosing does not bias.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from jbias.data import shifts
from jbias.evals import arrangement, cells
from jbias.stats import few

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
    chosen: arrangement.Arrangement  # On all images; for words, pictures and re-use.
    tried: tuple[arrangement.Arrangement, arrangement.Arrangement]  # On each half.
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
    cells and halves and, of s > 1 networks, of networks (jbias.stats.few); arrangements
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
    table = cells.count(label, value)
    kept, missing = cells.kept(table, LEAST, names)
    rng = np.random.default_rng(seed)
    half = cells.halves(label, value, kept, rng)
    count = table[np.ix_(*kept)]
    with np.errstate(invalid="ignore"):
        mean = cells.sums(share, label, value, table.shape)[np.ix_(*kept)] / count
    told = dict(classes=kept[0], values=kept[1], count=count, accuracy=mean)
    if not count.size:
        return Reliance(kinds={}, half=half, missing=missing, **told)
    both = correct, against
    halves = [_Half.from_answers(*both, label, value, half == h, kept) for h in (0, 1)]
    everything = _Half.from_answers(*both, label, value, half >= 0, kept)
    drawn = _drawn(*both, halves, rng, draws)
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
        variance = cells.variance(mean * n, n)
        if len(against):  # As if both erred apart; alike, they vary less.
            other = np.array([against[:, one].mean() for one in members])
            each, variance = each - other, variance + cells.variance(other * n, n)
        each = each.reshape(len(correct), *shape)
        return cls(members, mean.reshape(shape), each, variance.reshape(shape))

    @property
    def beyond(self) -> Float[np.ndarray, "k m"]:
        return self.each.mean(0)


def _kind(kind, everything, halves, drawn, confidence) -> Kind:
    """Chooses on each half and tries on the other."""
    tried = tuple(arrangement.choose(kind, half.beyond) for half in halves)
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
    chosen = arrangement.choose(kind, everything.beyond)
    each = sum((one.contrast() * halves[h].each).sum((-2, -1)) for one, h in pairs) / 2
    given = chosen, tried, tuple(each.tolist())
    return Kind(kind, tuple(curve), error, pvalue, *given)


def _drawn(
    correct: Bool[np.ndarray, "s n"],
    against: Bool[np.ndarray, "r n"],
    halves: Sequence[_Half],
    rng: np.random.Generator,
    draws: int,
) -> list[Float[np.ndarray, "b k m"]]:
    """Cells' accuracies in each half, with networks and images drawn anew."""
    networks = few.weights(len(correct), draws, rng)
    if len(against):
        reference = few.weights(len(against), draws, rng)
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
