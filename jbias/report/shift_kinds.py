"""Table 1 of the paper on tests under chosen shifts: models, and what each kind costs."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias.data import shifts
from jbias.report import (
    shift_cells,
    shift_drops,
    shift_printed,
    shift_read,
    tables,
)

Cells = Sequence[shift_read.Cell]
Part = Mapping[str, Mapping[str, shift_read.Cell]]  # By network, by kind.


def table(
    cells: Cells, printed: shift_printed.Printed, draws: shift_drops.Draws
) -> tables.Table:
    """Gives the table; of each kind the most extreme level."""
    parts: dict[str, dict[str, dict[str, shift_read.Cell]]] = {}
    for cell in sorted(cells, key=lambda one: one.share):
        models = parts.setdefault(shift_cells.trained(cell), {})
        models.setdefault(cell.recipe.network, {})[cell.kind] = cell
    rows, data = [], []
    for part in sorted(parts):
        rows += [(part, *row) for row in _part(parts[part], printed, draws)]
        for of_kinds in parts[part].values():
            for cell in of_kinds.values():
                data.append(shift_cells.full(cell, draws))
    words = shift_cells.HEADS.values()
    return tables.Table(
        name="table1_kinds",
        caption="Table 1. Accuracy in % in and out of distribution, and the drop, at the most "
        "extreme level that was run of each kind (named where it is not the last). Averages "
        f"are over models, and their drops those of averages. {shift_cells.MEANS}",
        head=(
            *("Trained on", "model", "numbers"),
            *(f"{kind} {word}" for kind in shifts.KINDS for word in words),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        texts=3,
    )


def _part(part: Part, printed, draws) -> Iterator[tuple]:
    """Gives the rows of one data set: ours, theirs below, averages, and their others."""
    first = next(iter(next(iter(part.values())).values()))
    theirs = shift_printed.data_of(first)
    names = list(dict.fromkeys(m for d, m, _ in printed.table1 if d == theirs))
    shown = {}
    for network in sorted(part):
        of_kinds = part[network]
        model = next(iter(of_kinds.values())).recipe.model
        known = shift_printed.MODELS.get(model, "")
        yield network, shift_cells.seeds(of_kinds.values()), *_ours(of_kinds, draws)
        if known in names and known not in shown:
            yield f"{model}: {known}", "paper", *_theirs(printed, theirs, [known])
        shown[known] = model
    yield from _averages(part, list(shown), theirs, printed, draws)
    for name in names:
        if name not in (*shown, shift_printed.AVERAGE):
            yield name, "paper", *_theirs(printed, theirs, [name])


def _ours(of_kinds, draws) -> list[str]:
    found = []
    for kind in shifts.KINDS:
        cell = of_kinds.get(kind)
        if cell is None:
            found += ["–"] * 3
            continue
        drop = shift_cells.sure(shift_drops.estimate(*draws.of(cell).percent))
        ending = f" ({cell.level})" if cell.share < 1 else ""
        found += [
            shift_cells.spread(cell.inside),
            shift_cells.spread(cell.outside),
            drop + ending,
        ]
    return found


def _theirs(printed, data: str, models: Sequence[str]) -> list[str]:
    """Shows printed numbers; of several models their averages and the drops of these."""
    found = []
    for kind in shifts.KINDS:
        those = [printed.table1.get((data, model, kind)) for model in models]
        if None in those or not those:
            found += ["–"] * 3
            continue
        inside, outside = (
            float(np.mean(x)) for x in list(zip(*those, strict=True))[:2]
        )
        drop = (
            those[0].drop if len(those) == 1 else shift_drops.percent(inside, outside)
        )
        found += [
            shift_cells.two(inside),
            shift_cells.two(outside),
            shift_cells.two(float(drop)),
        ]
    return found


def _averages(
    part: Part, same: Sequence[str], theirs: str, printed, draws
) -> Iterator[tuple]:
    """Gives the rows of averages: of ours, of the paper, and of the paper's like ours."""
    if len(part) > 1:
        cells = [cell for of_kinds in part.values() for cell in of_kinds.values()]
        shown = []
        for kind in shifts.KINDS:
            those = [of_kinds[kind] for of_kinds in part.values() if kind in of_kinds]
            if len(those) < len(part):
                shown += ["–"] * 3
                continue
            drop = shift_cells.average(those, draws)
            shown += [
                shift_cells.two(100 * drop.inside),
                shift_cells.two(100 * drop.outside),
            ]
            shown.append(shift_cells.sure(shift_drops.estimate(*drop.percent)))
        yield shift_printed.AVERAGE, shift_cells.seeds(cells), *shown
        there = {model for data, model, _ in printed.table1 if data == theirs}
        if 1 < len(same) and set(same) <= there and len(same) < len(there) - 1:
            row = _theirs(printed, theirs, same)
            yield f"{shift_printed.AVERAGE} of these models", "paper", *row
    if (theirs, shift_printed.AVERAGE, shifts.KINDS[0]) in printed.table1:
        row = _theirs(printed, theirs, [shift_printed.AVERAGE])
        yield shift_printed.AVERAGE, "paper", *row
