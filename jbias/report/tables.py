"""One table in every form: HTML, LaTeX, Markdown, CSV and Parquet."""

import dataclasses
import functools
import html
import io
from collections.abc import Mapping, Sequence

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from jbias.report import latex
from jbias.runtime import messages

WIDE = 9  # Columns; more are set smaller.
TALL = 25  # Rows; more scroll under their head.
_MARKDOWN = str.maketrans(
    {letter: f"\\{letter}" for letter in r"\`*_[]<>#|~$&"}
    | dict.fromkeys("\n\r\t", " ")
)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Cells as they are shown, and the same numbers in full for CSV and Parquet.

    `strong` names cells (row, column) to emphasise, `under` those to underline; `shade`
    gives cells a depth from 0 to 1 (whatever it stands for, the cell also says in words).
    The first column names the rows. The caption says what marks mean.
    """

    name: str  # Of its files.
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: pd.DataFrame
    strong: frozenset[tuple[int, int]] = frozenset()
    under: frozenset[tuple[int, int]] = frozenset()
    shade: Mapping[tuple[int, int], float] = dataclasses.field(default_factory=dict)
    texts: int = 1  # How many leading columns hold words, not numbers.

    def __post_init__(self):
        assert all(len(row) == len(self.head) for row in self.rows), self.name
        assert all(0 <= depth <= 1 for depth in self.shade.values()), self.name

    @functools.cached_property
    def letters(self) -> list[int]:
        """Gives the letters of the widest cell of each column, without its head."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.head)
        return [max(map(len, column), default=0) for column in columns]


def to_html(table: Table) -> str:
    """Gives a figure element with a box that scrolls; everything in it is escaped."""
    words = [
        ' data-words=""' if j < table.texts else "" for j in range(len(table.head))
    ]
    head = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>'
        for kind, text in zip(words, table.head, strict=True)
    )
    body = []
    for i, (name, *row) in enumerate(table.rows):
        marks = _marks(table, i, 0)
        cells = [f'<th scope="row"{words[0]}{marks}>{escape(name)}</th>']
        for j, text in enumerate(row, start=1):
            cells.append(f"<td{words[j]}{_marks(table, i, j)}>{escape(text)}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    wide = ' class="wide"' if len(table.head) > WIDE else ""
    tall = " tall" if len(table.rows) > TALL else ""
    label = escape(table.name.replace("_", " ").capitalize())
    # For print, which cannot scroll: letters that must fit into the width of a page.
    unbroken = [max(map(len, text.split()), default=0) for text in table.head]
    letters = zip(unbroken, table.letters, strict=True)
    width = sum(max(head, min(cell, 40)) + 2 for head, cell in letters)
    names = max([len(table.head[0]), *table.letters[:1]])
    return (
        f'<figure class="table"><div class="scroll{tall}" tabindex="0" role="region" '
        f'aria-label="Table: {label}" style="--letters:{width};--name:{names}ch"><table{wide}><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f"<figcaption>{escape(table.caption)}</figcaption></figure>"
    )


def _marks(table: Table, i: int, j: int) -> str:
    names = [
        name
        for name, cells in (("best", table.strong), ("under", table.under))
        if (i, j) in cells
    ]
    depth = table.shade.get((i, j))
    style = ""
    if depth is not None:
        names.append("shade")
        style = f' style="--depth:{depth:.3g}"'
    return f' class="{" ".join(names)}"{style}' if names else ""


def to_latex(table: Table) -> str:
    """Gives booktabs tables; the first lines say what packages they need."""
    return latex.table(table)


def to_markdown(table: Table) -> str:
    """Gives a pipe table under its caption."""
    rows = []
    for i, row in enumerate(table.rows):
        cells = []
        for j, text in enumerate(row):
            cell = _marked_down(text)
            cell = f"<u>{cell}</u>" if cell and (i, j) in table.under else cell
            cells.append(f"**{cell}**" if cell and (i, j) in table.strong else cell)
        rows.append(cells)
    head = [_marked_down(text) for text in table.head]
    rule = [":--" if j < table.texts else "--:" for j in range(len(table.head))]
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))
    return f"{_marked_down(table.caption)}\n\n{lines}"


def _marked_down(text: object) -> str:
    """Text as Markdown shows it, without what a terminal would obey."""
    return messages.printable(str(text).translate(_MARKDOWN))


def to_csv(table: Table) -> str:
    """Gives the numbers in full, one header line."""
    return table.data.to_csv(index=False, lineterminator="\n")


def to_parquet(table: Table) -> bytes:
    """Gives the numbers in full, with their types."""
    data = table.data.set_axis([str(name) for name in table.data.columns], axis=1)
    data = data.convert_dtypes()
    mixed = [name for name, kind in data.dtypes.items() if kind == object]
    out = io.BytesIO()
    data = data.astype(dict.fromkeys(mixed, "string"))
    parquet.write_table(pa.Table.from_pandas(data, preserve_index=False), out)
    return out.getvalue()


def apart(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Gives names of columns that differ from those that a table has itself."""
    return [f"{name} (name)" if name in taken else name for name in names]


def escape(text: str) -> str:
    return html.escape(str(text), quote=True)


def p_text(p: float) -> str:
    """Shows a p-value with what its size lets one say."""
    if p < 1e-9:
        return "< 1e-9"
    return f"{p:.1e}".replace("e-0", "e-") if p < 0.001 else f"{p:.3f}"


def join(words: Sequence[str]) -> str:
    """Joins as `a, b and c`."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
