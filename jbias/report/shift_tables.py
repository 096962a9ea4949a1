"""Tables 1 to 3 of the paper on tests under chosen shifts: its layout, ours beside theirs."""

import re
from collections.abc import Iterator, Sequence

from jbias.report import (
    shift_clusters,
    shift_drops,
    shift_kinds,
    shift_printed,
    shift_read,
    shift_singles,
    tables,
)

_CLUSTER = re.compile(r"D\d+")


def of(
    cells: Sequence[shift_read.Cell],
    printed: shift_printed.Printed,
    draws: shift_drops.Draws,
) -> Iterator[tables.Table]:
    """Gives the tables that something here is of."""
    single = [cell for cell in cells if cell.single]
    clusters = [cell for cell in single if _CLUSTER.fullmatch(cell.single)]
    colours = [cell for cell in single if not _CLUSTER.fullmatch(cell.single)]
    shifted = [cell for cell in cells if cell.share > shift_read.CONTROL]
    if shifted:
        yield shift_kinds.table(shifted, printed, draws)
    if colours:
        yield shift_singles.table(colours, printed)
    if clusters:
        yield shift_clusters.table(clusters, printed, draws)
