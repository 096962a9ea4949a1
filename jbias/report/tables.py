"""Class for the tables of a report, and functions that build, format and write tables.

Tables are written as LaTeX, Markdown, CSV and Parquet; page.html.j2 writes them as HTML.
"""

import dataclasses
import functools
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from jbias.report import latex
from jbias.runtime import messages

# Heads of columns by key. Other keys are their own heads, with spaces for underscores.
HEADS = {
    "id": "ID",
    "ood": "OOD",
    "ece": "ECE",
    "nll": "NLL",
    "iqm": "IQM",
    "energy_kwh": "kWh",
    "kg_co2e": "kg CO2e",
    "iocclusion": "iOcclusion",
    "nemenyi": "Nemenyi",
    "max_t": "max-T",
    "conover_holm": "Conover, Holm",
    "wilcoxon_holm": "Wilcoxon, Holm",
    "dunn": "Bonferroni-Dunn",
    "hedges_g": "Hedges' g",
    "rank_biserial": "rank-biserial r",
    "mixed_p": "p",
    "better_run": "P(run)",
    "better_on_other_sets": "P(sets)",
}
WIDE = 9  # Columns; wider tables are set in smaller type.
FITS = 150  # Characters per line that a page of 1,280 pixels shows without scrolling.
TALL = 25  # Rows; longer tables scroll under a fixed head.
_MARKS = {letter: f"\\{letter}" for letter in r"\`*_[]<>#|~$&"}
_MARKDOWN = str.maketrans(_MARKS | dict.fromkeys("\n\r\t", " "))


class Column(NamedTuple):
    """A column of a table: its head and the function that formats its cells.

    show: function of the value, and of the row's values of `argument_keys` such as the ends of an
    interval; returns text.
    """

    head: str
    show: Callable[..., str]
    argument_keys: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A table: the cells as text, and the unrounded numbers for CSV and Parquet.

    `bold` has the cells (row, column) in bold, `under` the underlined cells; `shade` maps cells
    to a background depth from 0 to 1 (the text of the cell has the same information). The first
    column names the rows. The caption explains the marks. `page_columns` are extra last columns,
    by head, that only the page shows. `in_results`: whether results.json of the page that compares
    algorithms has `data`, under the table's name.
    """

    name: str  # Of its files.
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: pd.DataFrame
    bold: frozenset[tuple[int, int]] = frozenset()
    under: frozenset[tuple[int, int]] = frozenset()
    shade: Mapping[tuple[int, int], float] = dataclasses.field(default_factory=dict)
    texts: int = 1  # Number of leading columns with words.
    word_columns: frozenset[int] = frozenset()  # Further columns with words.
    corner: str = ""  # Head of the first column where the page shows columns as rows.
    page_columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    in_results: bool = False

    def __post_init__(self):
        assert all(len(row) == len(self.head) for row in self.rows), self.name
        assert all(0 <= depth <= 1 for depth in self.shade.values()), self.name

    @functools.cached_property
    def letters(self) -> list[int]:
        """Number of characters of the widest cell of each column, without the head."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.head)
        return [max(map(len, column), default=0) for column in columns]

    def marks(self, i: int, j: int) -> list[str]:
        """Return the style classes of the cell in row i and column j: "best", "under", "shade".

        "best" is the class of bold cells. [] for a cell without marks.
        """
        marks = {"best": self.bold, "under": self.under, "shade": self.shade}
        return [name for name, cells in marks.items() if (i, j) in cells]

    def has_words(self, j: int) -> bool:
        """Return True if column j has words, which are aligned left and sorted as words."""
        return j < self.texts or j in self.word_columns

    @property
    def title(self) -> str:
        """The name in words, for screen readers."""
        return self.name.replace("_", " ").capitalize()

    @property
    def on_page(self) -> "Table":
        """The table for the page, with `page_columns` as last columns.

        Transposed if the table is too wide, `corner` is set, and the transposed table is narrower.
        """
        table = self._with_page_columns()
        if not table.corner or table.print_width <= FITS:
            return table
        transposed = table._transposed()
        return transposed if transposed.print_width < table.print_width else table

    def _with_page_columns(self) -> "Table":
        """Return the table with `page_columns` as its last columns."""
        if not self.page_columns:
            return self
        cells = zip(self.rows, *self.page_columns.values(), strict=True)
        return dataclasses.replace(
            self,
            head=(*self.head, *self.page_columns),
            rows=tuple((*row, *page_cells) for row, *page_cells in cells),
            page_columns={},
        )

    def _transposed(self) -> "Table":
        """Return the table with rows and columns exchanged, and `corner` as first head."""
        names, *other_columns = zip(*self.rows, strict=True)
        transpose = lambda cells: {(j - 1, i + 1) for i, j in cells if j}
        rows = [
            (head, *column)
            for head, column in zip(self.head[1:], other_columns, strict=True)
        ]
        return dataclasses.replace(
            self,
            head=(self.corner, *names),
            rows=tuple(rows),
            bold=frozenset(transpose(self.bold)),
            under=frozenset(transpose(self.under)),
            shade={(j - 1, i + 1): x for (i, j), x in self.shade.items() if j},
            texts=1,
            word_columns=frozenset(),
            corner="",
        )

    @property
    def is_wide(self) -> bool:
        """True if the table is set in smaller type."""
        return len(self.head) > WIDE

    @property
    def is_tall(self) -> bool:
        """True if the table scrolls under a fixed head."""
        return len(self.rows) > TALL

    @property
    def print_width(self) -> int:
        """Width of the table on a printed page, in characters; heads break at spaces."""
        unbroken = [max(map(len, text.split()), default=0) for text in self.head]
        letters = zip(unbroken, self.letters, strict=True)
        return sum(max(head, min(cell, 40)) + 2 for head, cell in letters)

    @property
    def name_width(self) -> int:
        """Number of characters of the widest cell of the first column, including the head."""
        return max([len(self.head[0]), *self.letters[:1]])


def columns(
    specification: str, *, ends: tuple[str, str] = ("_low", "_high"), **heads: str
) -> dict[str, Column]:
    """Return columns by key from a specification: words "key:form", separated by spaces.

    The form is missing for words, "d" for an integer, "%" for a share in per cent, "p" for a
    p-value, "g" for `{:g}`, ".2" for two digits and "+.2" for two digits with a sign. A form
    followed by [] also shows the interval, whose ends are in the fields key + ends[0] and
    key + ends[1]. heads: heads by key, which replace the heads of `HEADS`. The head of other keys
    is the key with spaces for underscores.
    """
    columns_by_key: dict[str, Column] = {}
    for word in specification.split():
        key, _, form = word.partition(":")
        kind = form.removesuffix("[]")
        show = _FORMS.get(kind) or digits(int(kind[-1]), plus=kind[0] == "+")
        head = (HEADS | heads).get(key, key.replace("_", " "))
        if form.endswith("[]"):
            low, high = ends
            end_keys = (f"{key}{low}", f"{key}{high}")
            columns_by_key[key] = Column(head, interval(show), end_keys)
        else:
            columns_by_key[key] = Column(head, show)
    return columns_by_key


def from_rows(
    name: str,
    caption: str,
    rows: Sequence[Mapping] | pd.DataFrame,
    columns: Mapping[str, Column | tuple[str, Callable[..., str]]],
    *,
    bold: Callable[[Mapping], Collection[str]] = lambda row: (),
    most: int | None = None,
    **fields: Any,
) -> Table | None:
    """Return a table of rows given as mappings; None if there are no rows.

    rows: values by key of the column. columns: shown columns by key, as returned by `columns`; a
    pair (head, function that formats a value) is enough. A missing value is shown as a dash; a
    column without any value, or with a key that no row has, is left out. The first letter of the
    first head becomes a capital. bold: function from a row to its keys in bold. most:
    maximal number of rows on the page; None for all. CSV and Parquet have all rows, and all keys
    except keys with a leading underscore or without any value. fields: fields of `Table` that
    replace those computed from the rows, such as `data`.
    """
    frame = pd.DataFrame(rows)
    if frame.empty:
        return None
    frame = frame.dropna(axis=1, how="all")
    shown = {key: Column(*columns[key]) for key in columns if key in frame}
    known = frame[:most].astype(object).where(frame.notna(), None).to_dict("records")
    num_hidden = len(frame) - len(known)
    if num_hidden:
        caption += f" {num_hidden:,} more rows are in the CSV file."
    bold_keys = [bold(row) for row in frame[:most].to_dict("records")]
    head = [column.head for column in shown.values()]
    are_words = [
        all(isinstance(row[key], str | None) for row in known) for key in shown
    ]

    def format_cell(row: Mapping, key: str) -> str:
        """Return the text of a cell; row: values by key."""
        value, column = row[key], shown[key]
        if value is None:
            return "–"
        return column.show(value, *map(row.get, column.argument_keys))

    cells = [[format_cell(row, key) for key in shown] for row in known]
    cells_in_bold = [
        (i, j)
        for i, keys in enumerate(bold_keys)
        for j, key in enumerate(shown)
        if key in keys
    ]
    table = Table(
        name=name,
        caption=caption,
        head=(head[0][:1].upper() + head[0][1:], *head[1:]),
        rows=tuple(map(tuple, cells)),
        data=frame[[key for key in frame if str(key)[:1] != "_"]],
        bold=frozenset(cells_in_bold),
        texts=[*are_words, False].index(False),
    )
    return dataclasses.replace(table, **fields)


def files(table: Table) -> Iterator[tuple[str, str | bytes]]:
    """Yield (file name, content) for the CSV, Parquet, LaTeX and Markdown file of a table."""
    yield f"{table.name}.csv", to_csv(table.data)
    yield f"{table.name}.parquet", to_parquet(table.data)
    yield f"{table.name}.tex", latex.table(table)
    yield f"{table.name}.md", to_markdown(table)


def to_markdown(table: Table) -> str:
    """Return the table as a Markdown pipe table under its caption.

    Bold cells are in **, underlined cells in <u>; columns of numbers are aligned right.
    """
    rows = []
    for i, row in enumerate(table.rows):
        cells = []
        for j, text in enumerate(row):
            cell = _marked_down(text)
            cell = f"<u>{cell}</u>" if cell and (i, j) in table.under else cell
            cells.append(f"**{cell}**" if cell and (i, j) in table.bold else cell)
        rows.append(cells)
    head = [_marked_down(text) for text in table.head]
    rule = [":--" if table.has_words(j) else "--:" for j in range(len(table.head))]
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))
    return f"{_marked_down(table.caption)}\n\n{lines}"


def _marked_down(text: object) -> str:
    """Return text escaped for Markdown, without control characters of terminals."""
    return messages.printable(str(text).translate(_MARKDOWN))


def to_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV with unrounded numbers and one header line."""
    return frame.to_csv(index=False, lineterminator="\n")


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Return a frame as the bytes of a Parquet file with unrounded, typed numbers.

    A repeated column name gets a number at its end; columns of mixed types become text.
    """
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


def distinct_keys(names: Sequence[str], reserved: Sequence[str]) -> list[str]:
    """Return names for use as column keys, with " (name)" added to names in `reserved`."""
    return [f"{name} (name)" if name in reserved else name for name in names]


def digits(count: int, *, plus: bool = False) -> Callable[[float], str]:
    """Return a function that formats a number with `count` digits after the point.

    Thousands are separated by commas. Absolute values of at least 1,000 get no digits after the
    point; None and NaN are a dash, infinity is "∞". plus: True to show a plus sign.
    """

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
    """Return the integer part of a number as text, with commas between thousands."""
    return f"{int(value):,}"


def percent(value: float) -> str:
    """Return a fraction as per cent with one digit, without the sign %."""
    return digits(1)(100 * value)


def interval(form: Callable[[float], str]) -> Callable[..., str]:
    """Return a function (value, low, high) -> "value [low, high]".

    form: function that formats each number. The interval is left out if both ends are None or NaN,
    or the value is NaN; a single missing end is a dash.
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
    """Return a p-value as text: "< 1e-9", two digits below 0.001, else three; NaN is a dash."""
    if math.isnan(p):
        return "–"
    if p < 1e-9:
        return "< 1e-9"
    return f"{p:.1e}".replace("e-0", "e-") if p < 0.001 else f"{p:.3f}"


# Functions that format a value, by form in the specification of `columns`.
_FORMS = {"": str, "d": whole, "%": percent, "p": p_text, "g": "{:g}".format}


def count(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1, such as "2 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(counts: Iterable[int], to: str = " to ") -> str:
    """Return "smallest to largest" of the counts, or a single number if all are equal.

    "0" for no counts. to: text between the two numbers.
    """
    counts = list(counts)
    ends = min(counts, default=0), max(counts, default=0)
    return to.join(dict.fromkeys(f"{count:,}" for count in ends))


def few(names: Sequence[str], most: int = 4) -> str:
    """Return the first `most` names as text: "a, b", or "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def join(words: Sequence[str]) -> str:
    """Return words joined as "a, b and c"; "" for no words."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
