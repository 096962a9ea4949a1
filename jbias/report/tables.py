"""One table in every form: LaTeX, Markdown, CSV and Parquet; page.html.j2 has HTML."""

import dataclasses
import functools
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from jbias.report import latex
from jbias.runtime import messages

# A head, how a cell is shown, and keys of what is shown with it, such as an interval.
Column = tuple[Any, ...]
# What columns are called, in every report, that are not called as their keys.
HEADS = {"id": "ID", "ood": "OOD", "ece": "ECE", "nll": "NLL", "iqm": "IQM"}
HEADS |= {"energy_kwh": "kWh", "kg_co2e": "kg CO2e", "iocclusion": "iOcclusion"}
HEADS |= {"nemenyi": "Nemenyi", "max_t": "max-T", "conover_holm": "Conover, Holm"}
HEADS |= {"wilcoxon_holm": "Wilcoxon, Holm", "dunn": "Bonferroni-Dunn"}
HEADS |= {"hedges_g": "Hedges' g", "rank_biserial": "rank-biserial r", "mixed_p": "p"}
HEADS |= {"better_run": "P(run)", "better_on_other_sets": "P(sets)"}
WIDE = 9  # Columns; more are set smaller.
FITS = 150  # Letters side by side that a page of 1,280 pixels shows without scrolling.
TALL = 25  # Rows; more scroll under their head.
_MARKS = {letter: f"\\{letter}" for letter in r"\`*_[]<>#|~$&"}
_MARKDOWN = str.maketrans(_MARKS | dict.fromkeys("\n\r\t", " "))


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Cells as they are shown, and the same numbers in full for CSV and Parquet.

    `bold` names cells (row, column) to set in bold, `under` those to underline; `shade`
    gives cells a depth from 0 to 1 (whatever it stands for, the cell also says in words).
    The first column names the rows. The caption says what marks mean. `page_columns` are
    last columns, by their heads, that the page shows and files leave out.
    """

    name: str  # Of its files.
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: pd.DataFrame
    bold: frozenset[tuple[int, int]] = frozenset()
    under: frozenset[tuple[int, int]] = frozenset()
    shade: Mapping[tuple[int, int], float] = dataclasses.field(default_factory=dict)
    texts: int = 1  # How many leading columns hold words, not numbers.
    corner: str = ""  # Head of the first column where the page shows columns as rows.
    page_columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        assert all(len(row) == len(self.head) for row in self.rows), self.name
        assert all(0 <= depth <= 1 for depth in self.shade.values()), self.name

    @functools.cached_property
    def letters(self) -> list[int]:
        """Gives the letters of the widest cell of each column, without its head."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.head)
        return [max(map(len, column), default=0) for column in columns]

    def marks(self, i: int, j: int) -> list[str]:
        """Gives how a cell is marked, as classes of the page's style."""
        marks = {"best": self.bold, "under": self.under, "shade": self.shade}
        return [name for name, cells in marks.items() if (i, j) in cells]

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @property
    def on_page(self) -> "Table":
        """Return the table as the page shows it: turned, if it is too wide and may be."""
        whole = self._with_page_columns()
        if not whole.corner or whole.print_width <= FITS:
            return whole
        turned = whole._turned()
        return turned if turned.print_width < whole.print_width else whole

    def _with_page_columns(self) -> "Table":
        if not self.page_columns:
            return self
        cells = zip(self.rows, *self.page_columns.values(), strict=True)
        return dataclasses.replace(
            self,
            head=(*self.head, *self.page_columns),
            rows=tuple((*row, *more) for row, *more in cells),
            page_columns={},
        )

    def _turned(self) -> "Table":
        names, *columns = zip(*self.rows, strict=True)
        places = lambda cells: {(j - 1, i + 1) for i, j in cells if j}
        return dataclasses.replace(
            self,
            head=(self.corner, *names),
            rows=tuple(zip(self.head[1:], *zip(*columns, strict=True), strict=True)),
            bold=frozenset(places(self.bold)),
            under=frozenset(places(self.under)),
            shade={(j - 1, i + 1): x for (i, j), x in self.shade.items() if j},
            texts=1,
            corner="",
        )

    @property
    def is_wide(self) -> bool:
        return len(self.head) > WIDE

    @property
    def is_tall(self) -> bool:
        return len(self.rows) > TALL

    @property
    def print_width(self) -> int:
        """Letters that must fit into the width of a printed page, which cannot scroll."""
        unbroken = [max(map(len, text.split()), default=0) for text in self.head]
        letters = zip(unbroken, self.letters, strict=True)
        return sum(max(head, min(cell, 40)) + 2 for head, cell in letters)

    @property
    def name_width(self) -> int:
        """Letters of the widest name of a row."""
        return max([len(self.head[0]), *self.letters[:1]])


def columns(
    keys: str, *, ends: tuple[str, str] = ("_low", "_high"), **heads: str
) -> dict[str, Column]:
    """Gives columns by key, each written as key:form.

    Forms: none for words, d a whole number, % a share in per cent, p a p-value, g as it is,
    .2 so many digits and +.2 these with a sign. With [] behind it its interval is shown, too,
    of the keys with these ends. heads: what columns are called if not as `HEADS` or their
    keys say.
    """
    found = {}
    for word in keys.split():
        key, _, form = word.partition(":")
        kind = form.removesuffix("[]")
        show = _FORMS.get(kind) or digits(int(kind[-1]), plus=kind[0] == "+")
        found[key] = (HEADS | heads).get(key, key.replace("_", " ")), show
        if form != kind:
            both = (f"{key}{end}" for end in ends)
            found[key] = found[key][0], interval(show), *both
    return found


def from_rows(
    name: str,
    caption: str,
    rows: Sequence[Mapping] | pd.DataFrame,
    columns: Mapping[str, Column],
    *,
    bold: Callable[[Mapping], Collection[str]] = lambda row: (),
    most: int | None = None,
    **more: Any,
) -> Table | None:
    """Makes a table of mappings; None of none, and without columns that all rows lack.

    columns: by key of the rows, the head, how a value is shown, and the keys of what is shown
    with it; what is not known is a dash. bold: the keys of a row to set in bold. most: rows
    that the page shows. CSV and Parquet have all rows, and all keys but those with a leading
    underscore, which are for the page alone.
    more: fields of the table that are to be other than these rows say, such as `data`.
    """
    frame = pd.DataFrame(rows)
    if frame.empty:
        return None
    frame = frame.dropna(axis=1, how="all")
    shown = {key: columns[key] for key in columns if key in frame}
    known = frame[:most].astype(object).where(frame.notna(), None).to_dict("records")
    if rest := len(frame) - len(known):
        caption += f" {rest:,} more rows are in the CSV file."
    marked = [bold(row) for row in frame[:most].to_dict("records")]
    head = [head for head, *_ in shown.values()]
    words = [all(isinstance(row[key], str | None) for row in known) for key in shown]

    def cell(row: Mapping, key: str, form: Callable[..., str], *others: str) -> str:
        value = row[key]
        return "–" if value is None else form(value, *map(row.get, others))

    cells = [[cell(row, key, *of) for key, (_, *of) in shown.items()] for row in known]
    cells_in_bold = [
        (i, j) for i, of in enumerate(marked) for j, x in enumerate(shown) if x in of
    ]
    table = Table(
        *(name, caption, (head[0][:1].upper() + head[0][1:], *head[1:])),
        rows=tuple(map(tuple, cells)),
        data=frame[[key for key in frame if str(key)[:1] != "_"]],
        bold=frozenset(cells_in_bold),
        texts=[*words, False].index(False),
    )
    return dataclasses.replace(table, **more)


def files(table: Table) -> Iterator[tuple[str, str | bytes]]:
    """Gives the files of a table with their names."""
    yield f"{table.name}.csv", to_csv(table.data)
    yield f"{table.name}.parquet", to_parquet(table.data)
    yield f"{table.name}.tex", latex.table(table)
    yield f"{table.name}.md", to_markdown(table)


def to_markdown(table: Table) -> str:
    """Gives a pipe table under its caption."""
    rows = []
    for i, row in enumerate(table.rows):
        cells = []
        for j, text in enumerate(row):
            cell = _marked_down(text)
            cell = f"<u>{cell}</u>" if cell and (i, j) in table.under else cell
            cells.append(f"**{cell}**" if cell and (i, j) in table.bold else cell)
        rows.append(cells)
    head = [_marked_down(text) for text in table.head]
    rule = [":--" if j < table.texts else "--:" for j in range(len(table.head))]
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))
    return f"{_marked_down(table.caption)}\n\n{lines}"


def _marked_down(text: object) -> str:
    """Text as Markdown shows it, without what a terminal would obey."""
    return messages.printable(str(text).translate(_MARKDOWN))


def to_csv(frame: pd.DataFrame) -> str:
    """Gives the numbers in full, one header line."""
    return frame.to_csv(index=False, lineterminator="\n")


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Gives the numbers in full, with their types."""
    names: list[str] = []
    for name in map(str, frame.columns):
        names.append(f"{name}.{names.count(name)}" if name in names else name)
    data = frame.set_axis(names, axis=1)
    words = list(data.columns[data.dtypes == object])
    data[words] = data[words].convert_dtypes()
    mixed = [name for name, kind in data.dtypes.items() if kind == object]
    out = io.BytesIO()
    data = data.astype(dict.fromkeys(mixed, "string"))
    parquet.write_table(pa.Table.from_pandas(data, preserve_index=False), out)
    return out.getvalue()


def apart(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Gives names of columns that differ from those that a table has itself."""
    return [f"{name} (name)" if name in taken else name for name in names]


def digits(count: int, *, plus: bool = False) -> Callable[[float], str]:
    """Gives a function that shows so many digits, none of what is in thousands."""

    def shown(value: float | None) -> str:
        if value is None or math.isnan(value):
            return "–"
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        places = 0 if abs(value) >= 1_000 else count
        value = round(float(value), places) + 0.0  # Never minus zero.
        return f"{value:{'+' * (plus and value > 0)},.{places}f}".replace("-", "−")

    return shown


def whole(value: float) -> str:
    return f"{int(value):,}"


def percent(value: float) -> str:
    return digits(1)(100 * value)


def interval(form: Callable[[float], str]) -> Callable[..., str]:
    """Gives a function that shows a number with its interval, alone where it has none.

    An undefined number, NaN, has none.
    """

    def shown(value: float, low: float | None, high: float | None) -> str:
        known = [end is not None and not math.isnan(end) for end in (low, high)]
        if not any(known) or math.isnan(value):
            return form(value)
        first, last = (form(x) if k else "–" for x, k in zip((low, high), known))
        return f"{form(value)} [{first}, {last}]"

    return shown


with_ends = interval(percent)  # A share in per cent with its interval.


def p_text(p: float) -> str:
    """Shows a p-value with what its size lets one say; a dash for none."""
    if math.isnan(p):
        return "–"
    if p < 1e-9:
        return "< 1e-9"
    return f"{p:.1e}".replace("e-0", "e-") if p < 0.001 else f"{p:.3f}"


_FORMS = {"": str, "d": whole, "%": percent, "p": p_text, "g": "{:g}".format}


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which has an s unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(counts: Iterable[int], to: str = " to ") -> str:
    """Shows counts that are alike as one, others as the least and the largest."""
    counts = list(counts)
    ends = min(counts, default=0), max(counts, default=0)
    return to.join(dict.fromkeys(f"{count:,}" for count in ends))


def few(names: Sequence[str], most: int = 4) -> str:
    """Names the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def join(words: Sequence[str]) -> str:
    """Joins as `a, b and c`."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
