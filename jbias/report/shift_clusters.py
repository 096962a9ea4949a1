"""Table 3 of the paper on tests under chosen shifts: trained on one cluster of images."""

from collections.abc import Iterator, Sequence

import pandas as pd

from jbias.report import (
    shift_cells,
    shift_drops,
    shift_printed,
    shift_read,
    tables,
)

Cells = Sequence[shift_read.Cell]
_DATA = "CelebA"  # The paper's clusters are of it.


def table(
    cells: Cells, printed: shift_printed.Printed, draws: shift_drops.Draws
) -> tables.Table:
    """Gives the table: a row a cluster, D1 first, and their means."""
    groups: dict[tuple[str, str], list[shift_read.Cell]] = {}
    for cell in sorted(cells, key=_place):
        key = shift_cells.trained(cell), cell.recipe.network
        groups.setdefault(key, []).append(cell)
    return tables.Table(
        name="table3_clusters",
        caption="Table 3. Trained on one cluster: accuracy in % on its held-out part, and "
        "the mean over the other clusters (where these were tested together, accuracy on all "
        "their images). D1 is made of the largest cluster of each class. The paper prints no "
        f"drops here; theirs are computed from its numbers. {shift_cells.MEANS}",
        head=("Trained on", "model", "cluster", "numbers", *shift_cells.HEADS.values()),
        rows=tuple(
            (part, *row)
            for (part, network), those in groups.items()
            for row in _rows(network, those, printed, draws)
        ),
        data=pd.DataFrame(
            [shift_cells.full(one, draws) for those in groups.values() for one in those]
        ),
        texts=4,
    )


def _rows(network: str, cells: Cells, printed, draws) -> Iterator[tuple]:
    known = shift_printed.MODELS.get(cells[0].recipe.model, "")
    # The paper does not say here which of its two it is.
    known = "SqueezeNet" if known.startswith("SqueezeNet") else known
    for cell in cells:
        drop = shift_drops.estimate(*draws.of(cell).percent)
        shown = (shift_cells.spread(x) for x in (cell.inside, cell.outside))
        words = network, cell.single, shift_cells.seeds([cell])
        yield *words, *shown, shift_cells.sure(drop)
        pair = printed.table3.get((cell.single, known))
        if pair is not None and shift_printed.named(cell) == _DATA:
            numbers = map(shift_cells.two, pair)
            yield f"{network}: {known}", cell.single, "paper", *numbers
    mean = shift_cells.average(cells, draws)
    shown = (shift_cells.two(100 * x) for x in (mean.inside, mean.outside))
    drop = shift_drops.estimate(*mean.percent)
    yield network, "mean", shift_cells.seeds(cells), *shown, shift_cells.sure(drop)


def _place(cell: shift_read.Cell) -> tuple:
    return shift_cells.trained(cell), cell.recipe.network, int(cell.single[1:])
