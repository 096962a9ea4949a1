"""Cells of text in columns, for a terminal."""

from collections.abc import Iterable, Sequence


def aligned(rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows as lines; a row's last cell may be of any length, and rows may be short."""
    text = [[str(cell) for cell in row] for row in rows]
    widths: dict[int, int] = {}
    for row in text:
        for i, cell in enumerate(row[:-1]):
            widths[i] = max(widths.get(i, 0), len(cell))
    return [
        "  ".join(cell.ljust(widths.get(i, 0)) for i, cell in enumerate(row)).rstrip()
        for row in text
    ]
