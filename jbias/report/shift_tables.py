"""Tables 1 to 3 of the paper on tests under chosen shifts: its layout, ours beside theirs."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from jbias.data import shifts
from jbias.report import (
    shift_cells,
    shift_drops,
    shift_printed,
    shift_read,
    shift_singles,
    tables,
)

Cells = Sequence[shift_read.Cell]
_HEADS = {"inside": "ID", "outside": "OOD", "drop": "Drop %"}
_CLUSTER = re.compile(r"D\d+")


def of(
    cells: Cells, printed: shift_printed.Printed, draws: shift_drops.Draws
) -> Iterator[tables.Table]:
    """Gives the tables that something here is of."""
    single = [cell for cell in cells if cell.single]
    clusters = [cell for cell in single if _CLUSTER.fullmatch(cell.single)]
    colours = [cell for cell in single if not _CLUSTER.fullmatch(cell.single)]
    kinds = [cell for cell in cells if cell.kind]
    if any(cell.share > shift_read.CONTROL for cell in kinds):
        yield _table1(kinds, printed, draws)
    if colours:
        yield shift_singles.table(colours, printed)
    if clusters:
        yield _table3(clusters, printed, draws)


def _table1(cells: Cells, printed, draws) -> tables.Table:
    parts: dict[str, dict[str, dict[str, shift_read.Cell]]] = {}
    for cell in sorted(cells, key=lambda one: one.share):
        if cell.share > shift_read.CONTROL:  # The last of a kind is the most extreme.
            models = parts.setdefault(shift_cells.trained(cell), {})
            models.setdefault(cell.recipe.model, {})[cell.kind] = cell
    rows, data = [], []
    for part, models in parts.items():
        first = next(iter(next(iter(models.values())).values()))
        theirs = shift_printed.data_of(first.recipe.data)
        names = {m: n for (d, m, _), n in printed.table1.items() if d == theirs}
        for model in sorted(models):
            of_kinds = models[model]
            rows.append(
                (
                    part,
                    model,
                    shift_cells.seeds(of_kinds.values()),
                    *_ours(of_kinds, draws),
                )
            )
            data += _full(part, model, of_kinds.values(), draws)
            known = shift_printed.MODELS.get(model, "")
            if known in names:
                rows.append(
                    (
                        part,
                        f"{model}: {known}",
                        "paper",
                        *_theirs(printed, theirs, [known]),
                    )
                )
        rows += _averages(part, models, theirs, printed, draws)
        rest = [n for n in names if n not in map(shift_printed.MODELS.get, models)]
        for name in rest:
            if name != shift_printed.AVERAGE:
                rows.append((part, name, "paper", *_theirs(printed, theirs, [name])))
    head = [f"{kind} {word}" for kind in shifts.KINDS for word in _HEADS.values()]
    return tables.Table(
        name="table1_kinds",
        caption="Table 1. Accuracy in % in and out of distribution, and the drop, at the most "
        "extreme level that was run of each kind (named where it is not the last). Averages "
        f"are over models, and their drops those of averages. {shift_cells.MEANS}",
        head=("Trained on", "model", "numbers", *head),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        texts=3,
    )


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


def _averages(part: str, models, theirs: str, printed, draws) -> Iterator[tuple]:
    """Gives the rows of averages: of ours, of the paper, and of the paper's like ours."""
    if len(models) > 1:
        cells = [cell for of_kinds in models.values() for cell in of_kinds.values()]
        shown = []
        for kind in shifts.KINDS:
            those = [of_kinds[kind] for of_kinds in models.values() if kind in of_kinds]
            if len(those) < len(models):
                shown += ["–"] * 3
                continue
            drop = average(those, draws)
            shown += [
                shift_cells.two(100 * drop.inside),
                shift_cells.two(100 * drop.outside),
            ]
            shown.append(shift_cells.sure(shift_drops.estimate(*drop.percent)))
        yield part, shift_printed.AVERAGE, shift_cells.seeds(cells), *shown
        same = list(dict.fromkeys(map(shift_printed.MODELS.get, sorted(models))))
        there = {model for data, model, _ in printed.table1 if data == theirs}
        if 1 < len(same) and set(same) <= there and len(same) < len(there) - 1:
            row = _theirs(printed, theirs, same)
            yield part, f"{shift_printed.AVERAGE} of these models", "paper", *row
    if (theirs, shift_printed.AVERAGE, shifts.KINDS[0]) in printed.table1:
        row = _theirs(printed, theirs, [shift_printed.AVERAGE])
        yield part, shift_printed.AVERAGE, "paper", *row


def average(cells: Cells, draws: shift_drops.Draws) -> shift_drops.Drawn:
    """Averages accuracies over cells; a drop of it is one of averages."""
    drawn = [draws.of(cell) for cell in cells]
    names = ("inside", "outside", "insides", "outsides")
    means = [np.mean([getattr(one, name) for one in drawn], axis=0) for name in names]
    return shift_drops.Drawn(float(means[0]), float(means[1]), *means[2:])


def _full(part: str, model: str, cells, draws) -> Iterator[dict]:
    for cell in cells:
        drawn = draws.of(cell)
        drop = shift_drops.estimate(*drawn.percent)
        yield {
            "trained": part,
            "model": model,
            "kind": cell.kind,
            "level": cell.level,
            "seeds": len(cell.seeds),
            "id": 100 * drawn.inside,
            "ood": 100 * drawn.outside,
            "drop_percent": drop.value,
            "low": drop.low,
            "high": drop.high,
        }


def _table3(cells: Cells, printed, draws) -> tables.Table:
    rows, data = [], []
    order = sorted(
        cells,
        key=lambda one: (shift_cells.trained(one), one.recipe.model, _number(one)),
    )
    groups: dict[tuple, list[shift_read.Cell]] = {}
    for cell in order:
        groups.setdefault((shift_cells.trained(cell), cell.recipe.model), []).append(
            cell
        )
    for (part, model), those in groups.items():
        known = shift_printed.MODELS.get(model, "")
        known = "SqueezeNet" if known.startswith("SqueezeNet") else known
        for cell in those:
            drop = shift_cells.sure(shift_drops.estimate(*draws.of(cell).percent))
            shown = (
                shift_cells.spread(cell.inside),
                shift_cells.spread(cell.outside),
                drop,
            )
            rows.append((part, model, cell.single, shift_cells.seeds([cell]), *shown))
            data += _full(part, model, [cell], draws)
            pair = printed.table3.get((cell.single, known))
            if pair is not None and shift_printed.data_of(cell.recipe.data) == "CelebA":
                rows.append(
                    (
                        part,
                        f"{model}: {known}",
                        cell.single,
                        "paper",
                        *map(shift_cells.two, pair),
                    )
                )
        drawn = average(those, draws)
        drop = shift_cells.sure(shift_drops.estimate(*drawn.percent))
        shown = (
            shift_cells.two(100 * drawn.inside),
            shift_cells.two(100 * drawn.outside),
            drop,
        )
        rows.append((part, model, "mean", shift_cells.seeds(those), *shown))
    return tables.Table(
        name="table3_clusters",
        caption="Table 3. Trained on one cluster: accuracy in % on its held-out part, and "
        "the mean over the other clusters. D1 is made of the largest cluster of each class. The paper "
        f"prints no drops here; theirs are computed from its numbers. {shift_cells.MEANS}",
        head=("Trained on", "model", "cluster", "numbers", *_HEADS.values()),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        texts=4,
    )


def _number(cell: shift_read.Cell) -> int:
    return int(cell.single[1:])
