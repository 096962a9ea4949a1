"""Which attributes hurt a recipe: drops by kind of shift, tested and ranked."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from jbias.data import shifts
from jbias.report import shift_drops, shift_read
from jbias.stats import multiple_testing

BUG, NONE, UNKNOWN = "bug", "none found", "no level but the control"
TAU = 5.0  # Points that a drop must exceed the control's by.


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One level of a curve."""

    cell: shift_read.Cell
    drop: shift_drops.Estimate  # Points.
    percent: shift_drops.Estimate


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """One kind of shift of a candidate, from the least to the most extreme level run."""

    kind: str
    points: tuple[Point, ...]
    control: Point | None
    over: shift_drops.Estimate  # Drop at the extreme less that at the control, points.
    normalised: shift_drops.Estimate  # The same of drops in per cent.
    area: shift_drops.Estimate  # Mean drop over the levels' shares, points.
    p: float
    holm: float = math.nan

    @property
    def extreme(self) -> Point:
        return self.points[-1]

    @property
    def tested(self) -> bool:
        """Whether there is a level that shifts anything."""
        return self.extreme is not self.control

    def holds(self, alpha: float) -> bool:
        """Whether the drop is surely larger than tau, of which p is."""
        return self.tested and self.holm < alpha


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A recipe and an attribute, with what each kind of shift does."""

    recipe: shift_read.Recipe
    attribute: str
    curves: Mapping[str, Curve]
    tau: float
    alpha: float

    @property
    def worst(self) -> Curve | None:
        """The kind with the largest normalised drop; of those that pass, if any does."""
        tested = [curve for curve in self.curves.values() if curve.tested]
        passed = [curve for curve in tested if curve.holds(self.alpha)]
        return max(passed or tested, key=lambda one: one.normalised.value, default=None)

    @property
    def verdict(self) -> str:
        if self.worst is None:
            return UNKNOWN
        return BUG if self.worst.holds(self.alpha) else NONE


def of(
    cells: Sequence[shift_read.Cell],
    draws: shift_drops.Draws,
    *,
    tau: float = TAU,
    alpha: float = 0.05,
) -> list[Candidate]:
    """Gives the candidates, bugs first, then by normalised drop.

    A bug: for some kind the drop at the most extreme level less that at the control is
    surely above tau points: p of its being tau at most, adjusted after Holm over all
    candidates and kinds, is below alpha.
    """
    groups: dict[tuple, list[shift_read.Cell]] = {}
    for cell in cells:
        if cell.kind:
            groups.setdefault(cell.candidate, []).append(cell)
    found = {
        key: {
            kind: _curve(kind, those, draws, tau)
            for kind in shifts.KINDS
            if (those := [cell for cell in group if cell.kind == kind])
        }
        for key, group in groups.items()
    }
    _adjust(found)
    candidates = [Candidate(*key, curves, tau, alpha) for key, curves in found.items()]
    return sorted(candidates, key=_rank)


def _rank(one: Candidate) -> tuple:
    worst = one.worst
    drop = -worst.normalised.value if worst else math.inf
    return one.verdict != BUG, drop, one.recipe, one.attribute


def _ends(cells: Sequence[shift_read.Cell]):
    """Gives the most extreme level of one kind, and the control if there is one."""
    ordered = sorted(cells, key=lambda cell: cell.share)
    control = ordered[0] if ordered[0].share == shift_read.CONTROL else None
    return ordered[-1], control


def _curve(kind: str, cells, draws: shift_drops.Draws, tau: float) -> Curve:
    ordered = sorted(cells, key=lambda cell: cell.share)
    drawn = [draws.of(cell) for cell in ordered]
    points = tuple(
        Point(
            cell,
            shift_drops.estimate(*one.points),
            shift_drops.estimate(*one.percent),
        )
        for cell, one in zip(ordered, drawn, strict=True)
    )
    extreme, control = _ends(ordered)
    over, normalised = (
        shift_drops.estimate(*_less(last, first if control else None))
        for last, first in (
            (drawn[-1].points, drawn[0].points),
            (drawn[-1].percent, drawn[0].percent),
        )
    )
    heights = [one.points for one in drawn]
    shares = [cell.share for cell in ordered]
    area = shift_drops.area(shares, [value for value, _ in heights])
    areas = shift_drops.area(shares, np.stack([many for _, many in heights]))
    return Curve(
        kind=kind,
        points=points,
        control=points[0] if control else None,
        over=over,
        normalised=normalised,
        area=shift_drops.estimate(float(area), areas),
        p=shift_drops.larger(extreme, control, tau)
        if extreme is not control
        else math.nan,
    )


def _less(last, first):
    return last if first is None else (last[0] - first[0], last[1] - first[1])


def _adjust(found: dict[tuple, dict[str, Curve]]) -> None:
    """Sets Holm's p of all that is tested."""
    places = [
        (key, kind)
        for key, curves in found.items()
        for kind, curve in curves.items()
        if not math.isnan(curve.p)
    ]
    adjusted = multiple_testing.adjust(
        [found[key][kind].p for key, kind in places], "holm"
    )
    for (key, kind), holm in zip(places, adjusted, strict=True):
        found[key][kind] = dataclasses.replace(found[key][kind], holm=float(holm))
