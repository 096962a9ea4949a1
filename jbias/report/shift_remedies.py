"""How much of a drop a remedy closes: recipes beside the plain one, under the same shift."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from jbias.data import shifts
from jbias.report import shift_drops, shift_read, tables

REFERENCE = "erm"


@dataclasses.dataclass(frozen=True, eq=False)
class Remedy:
    """One recipe beside the plain one, at the same level of the same shift.

    Of the plain recipe itself `closed`, `id_cost` and `gain` are NaN.
    """

    cell: shift_read.Cell
    plain: shift_read.Cell
    drop: shift_drops.Estimate  # Points.
    closed: shift_drops.Estimate  # 1 - drop / the plain recipe's; NaN if it has none.
    id_cost: shift_drops.Estimate  # Accuracy in distribution that is lost, points.
    gain: shift_drops.Estimate  # Accuracy out of distribution that is won, points.
    paired: bool  # Whether both have the same seeds.

    @property
    def is_plain(self) -> bool:
        return self.cell is self.plain


def of(
    cells: Sequence[shift_read.Cell],
    draws: shift_drops.Draws,
    *,
    reference: str = REFERENCE,
) -> list[Remedy]:
    """Gives the plain recipe and those beside it, at the most extreme level they share.

    Seeds are drawn in pairs where both have the same. What is closed is not known where
    the plain recipe's drop is not surely above 0. Raises ValueError for a reference that no recipe has as its algorithm.
    """
    known = sorted({cell.recipe.algorithm for cell in cells})
    if reference not in known:
        if reference == REFERENCE:
            return []
        raise ValueError(
            f"--reference: must be an algorithm of the runs, got {reference!r}: "
            f"{', '.join(known)}"
        )
    found = []
    for plain, others in _sets(cells, reference):
        found.append(_beside(plain, plain, draws))
        found += [_beside(other, plain, draws) for other in others]
    return found


def caveats(
    cells: Sequence[shift_read.Cell], found: Sequence[Remedy], reference: str
) -> Iterator[str]:
    """Says which algorithms were trained and have no plain recipe beside them."""
    beside = {id(one.cell) for one in found}
    alone = {
        cell.recipe.algorithm
        for cell in cells
        if id(cell) not in beside and cell.recipe.algorithm != reference
    } - {one.cell.recipe.algorithm for one in found}
    if alone:
        yield (
            f"What {tables.join(sorted(alone))} would close is not known: there is no run of "
            f"{reference} with the same model, data, images, attribute and level. Train it, or "
            "name another by --reference."
        )


def _sets(cells, reference: str) -> Iterator[tuple]:
    """Gives a plain cell and its remedies for each shift, of each kind the last level."""
    shifted = [cell for cell in cells if cell.single or cell.share > shift_read.CONTROL]
    groups: dict[tuple, dict[str, list[shift_read.Cell]]] = {}
    for cell in shifted:
        kind = cell.kind or cell.level
        key = (cell.recipe.model, cell.recipe.data, cell.attribute, kind, cell.images)
        key += tuple(sorted(cell.options.items()))
        groups.setdefault(key, {}).setdefault(cell.level, []).append(cell)
    for levels in groups.values():
        for level in sorted(levels, key=_extremity, reverse=True):
            plain = [x for x in levels[level] if x.recipe.algorithm == reference]
            if plain and len(levels[level]) > 1:
                first = min(plain, key=_plainness)
                yield first, [one for one in levels[level] if one is not first]
                break


def _extremity(level: str) -> float:
    return shifts.LEVELS[level].share if level in shifts.LEVELS else math.inf


def _plainness(cell: shift_read.Cell) -> tuple:
    """Of several plain recipes the one with the fewest inputs."""
    inputs = cell.settings.get("inputs", "[]")
    return len(inputs), cell.recipe


def _beside(
    cell: shift_read.Cell, plain: shift_read.Cell, draws: shift_drops.Draws
) -> Remedy:
    nothing = shift_drops.Estimate(math.nan, math.nan, math.nan)
    mine, theirs = draws.of(cell), draws.of(plain)
    drop, base = mine.points, theirs.points
    same = cell is plain
    closed = id_cost = gain = nothing
    if not same:
        pairs = ((theirs.inside, mine.inside), (theirs.insides, mine.insides))
        id_cost = shift_drops.estimate(*(100 * (a - b) for a, b in pairs))
        pairs = ((mine.outside, theirs.outside), (mine.outsides, theirs.outsides))
        gain = shift_drops.estimate(*(100 * (a - b) for a, b in pairs))
        if shift_drops.estimate(*base).low > 0:
            # Where a draw of the plain drop is not above 0, nothing can be closed.
            whole = np.where(base[1] > 0, base[1], math.nan)
            share = np.nan_to_num(1 - drop[1] / whole, nan=-math.inf)
            closed = shift_drops.estimate(1 - drop[0] / base[0], share)
    return Remedy(
        cell=cell,
        plain=plain,
        drop=shift_drops.estimate(*drop),
        closed=closed,
        id_cost=id_cost,
        gain=gain,
        paired=cell.seeds == plain.seeds,
    )
