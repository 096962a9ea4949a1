"""Table 2 of the paper on tests under chosen shifts: trained on one value, tested on all.

The paper's Drop% is the mean of the relative drops over all columns, that of the trained
value, 0, among them: (m - 1) / m of the drop of the mean over the m - 1 others. Both are shown.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias.report import shift_cells, shift_drops, shift_printed, shift_read, tables

Cells = Sequence[shift_read.Cell]
_FEW = 1_300  # Training images up to which the paper's rows of 1,000 are the like.


def table(cells: Cells, printed: shift_printed.Printed) -> tables.Table:
    """Gives the table: a row a model, trained value and size, a column a tested value."""
    values = list(dict.fromkeys(name for cell in cells for name in values_of(cell)))
    order = sorted(cells, key=lambda one: _place(one, values))
    rows, data, own, told = [], [], set(), set()
    for cell in order:
        found = accuracies(cell)
        own.add((len(rows), 4 + values.index(cell.single)))
        shown = [
            shift_cells.spread(found[name]) if name in found else "–" for name in values
        ]
        words = shift_cells.trained(cell), cell.recipe.network, cell.single
        shown.append(shift_cells.spread(cell.outside))
        drops = ["–" if math.isnan(x) else shift_cells.two(x) for x in drops_of(cell)]
        rows.append((*words, _sized(cell), *shown, *drops))
        data += _full(cell, found)
        theirs = _theirs(cell, values, printed)
        if theirs and (words[1:], _size(cell)) not in told:
            told.add((words[1:], _size(cell)))
            own.add((len(rows), 4 + values.index(cell.single)))
            rows.append((*words, f"paper, {_size(cell)}", *theirs))
    return tables.Table(
        name="table2_single_values",
        caption="Table 2. Trained on one value of the attribute, tested on each: accuracy in %, "
        "that on the held-out images of the trained value in bold. Drop %: 100 (ID - OOD) / ID, "
        "OOD the mean over the other values (where these were tested together, accuracy on all "
        "their images). Paper's drop: as it was printed, the mean of the "
        "relative drops over all columns, the trained value's 0 among them, so of m values "
        "(m - 1) / m of the drop. n is of seeds; ± one standard deviation over them. The paper "
        f"has sizes {shift_printed.FEW} (a thousand images) and {shift_printed.FULL}.",
        head=(
            *("Trained on", "model", "value", "numbers"),
            *values,
            *("OOD", "drop %", "paper's drop %"),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        strong=frozenset(own),
        texts=4,
    )


def values_of(cell: shift_read.Cell) -> list[str]:
    """Gives the tested values of a cell, in the order of its data if that is told."""
    known = [cell.single, *cell.others]
    return [name for name in _told(cell) if name in known] or sorted(known)


def _told(cell: shift_read.Cell) -> list[str]:
    """Gives all values of a cell's attribute as provenance has them, [] if it has not."""
    known = {cell.single, *cell.others}
    for run in cell.runs:
        for told in (run.provenance.get("data") or {}).values():
            told = (told.get("values") or {}) if isinstance(told, Mapping) else {}
            for names in (told.get("attribute"), told.get(cell.attribute)):
                if names and known <= set(names):
                    return list(names)
    return []


def accuracies(cell: shift_read.Cell) -> dict[str, np.ndarray]:
    """Gives accuracies of seeds by tested value."""
    return {cell.single: cell.inside, **cell.others}


def drops_of(cell: shift_read.Cell) -> tuple[float, float]:
    """Gives the drop in %, and as the paper prints it; NaN if it is not known of how many."""
    drop = float(shift_drops.percent(cell.inside.mean(), cell.outside.mean()))
    values = len(cell.others) + 1 if cell.others else len(_told(cell))
    return drop, paper_compat(drop, values) if values else math.nan


def paper_compat(drop: float, values: int) -> float:
    """The mean of relative drops over all values, of which the trained one has none."""
    return drop * (values - 1) / values


def _size(cell: shift_read.Cell) -> str:
    few = 0 < cell.images <= _FEW
    return shift_printed.FEW if few else shift_printed.FULL


def _sized(cell: shift_read.Cell) -> str:
    images = f", {cell.images:,} images" if cell.images else ""
    return f"{shift_cells.seeds([cell])}{images}"


def _place(cell: shift_read.Cell, values: Sequence[str]) -> tuple:
    words = shift_cells.trained(cell), cell.recipe.network, cell.images
    return *words, values.index(cell.single)


def _theirs(cell, values: Sequence[str], printed) -> list[str]:
    """Shows the paper's row of the same model, colour and size, [] if there is none."""
    if shift_printed.data_of(cell) != "ColoredMNIST":
        return []
    model = shift_printed.MODELS.get(cell.recipe.model, "")
    key = model, shift_printed.colour_of(cell.single), _size(cell)
    if key not in printed.drops2:
        return []
    found = [printed.table2.get((*key, shift_printed.colour_of(x))) for x in values]
    if None in found:
        return []
    own = found[values.index(cell.single)]
    others = [x for x, name in zip(found, values, strict=True) if name != cell.single]
    drop = float(shift_drops.percent(own, np.mean(others)))
    numbers = (*found, float(np.mean(others)), drop, printed.drops2[key])
    return [*map(shift_cells.two, numbers)]


def _full(cell: shift_read.Cell, found: Mapping[str, np.ndarray]) -> Iterator[dict]:
    drop, compat = drops_of(cell)
    for name, values in found.items():
        yield {
            "trained": shift_cells.trained(cell),
            "model": cell.recipe.network,
            "value": cell.single,
            "images": cell.images,
            "tested": name,
            "accuracy": 100 * float(values.mean()),
            "seeds": len(values),
            "drop_percent": drop,
            "drop_paper_compat": compat,
        }
