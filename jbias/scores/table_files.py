r"""Readers of files of scores: CSV and similar text, Markdown, LaTeX, JSON, Excel, Parquet.

The readers return a grid of unparsed cells, which `jbias.stats.reading.score_layout` interprets.
Excel and Parquet are read by pandas, CSV by Python's csv, with the line of each row.
"""

import csv
import io
import math
import os
import pathlib
import re
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from jbias import errors
from jbias.scores import json_records
from jbias.stats.reading import column_names, score_cells, score_grid, score_rows
from jbias.untrusted import opening

DELIMITERS = (",", ";", "\t", "|")
_EXCEL = (".xlsx", ".xlsm", ".xls", ".ods")
_LARGEST_UNPACKED = 2**28  # Bytes of an Excel file, which is a zip.
_RULES = re.compile(
    r"\\(?:toprule|midrule|bottomrule|hline|thickhline|Hline|hdashline|hhline\{[^}]*\}"
    r"|Xhline\s*\{[^}]*\}|cdashline\s*\{[^}]*\}|morecmidrules|cmidrule(?:\([^)]*\))?\{[^}]*\}"
    r"|cline\{[^}]*\}|addlinespace(?:\[[^]]*\])?|specialrule(?:\{[^}]*\}){3}|noalign\{[^}]*\}"
    r"|rowcolor(?:\[[^]]*\])?\{[^}]*\}|endhead|endfirsthead"
    r"|endfoot|endlastfoot|arrayrulecolor\{[^}]*\})"
    r"(?:\[[^]]*\])?"
)
_TABULAR = re.compile(
    r"\\begin\{(tabular\*?|tabularx|longtable|tabu|array|tblr)\}(.*?)\\end\{\1\}",
    re.DOTALL,
)

_MULTIROW = re.compile(r"\\multirow\s*(?:\[[^]]*\])?\s*\{\s*(-?\d{1,4})\s*\}")

Row = tuple[str, list[Any]]  # The place in the file, for messages, and the cells.


def read(path: str | os.PathLike, *, sheet: str = "") -> score_grid.Grid:
    """Return the unparsed cells of a file of scores, under the names of its columns.

    The format follows from the file's ending, else from its content; other text is read as
    CSV. sheet: name of the sheet in an Excel file; in LaTeX, Markdown and text with columns
    separated by spaces, the number of the table, from 1; "" if there is only one. For other
    files, `sheet` is ignored. Raise ValueError, with the place in the file, for a file that is
    missing, is damaged or has no table, and UnclearError if there are several tables and
    `sheet` is "".
    """
    path = os.fspath(path)
    title = pathlib.Path(path).stem
    ending = pathlib.Path(path).suffix.lower()
    head = _first_bytes(path)
    if ending in (".parquet", ".pq") or head.startswith(b"PAR1"):
        return score_grid.of_frame(_parquet(path), source=path, title=title)
    if ending in _EXCEL or head.startswith(b"PK\x03\x04"):
        return _grid(_excel(path, sheet), path, title)
    text = _text(path, head)
    if ending in (".json", ".jsonl", ".ndjson"):
        return json_records.read(text, path, title=title)
    if ending in (".tex", ".latex") or _TABULAR.search(text):
        return _grid(_plain(_choose(_latex(text, path), sheet, path)), path, title)
    if ending in (".md", ".markdown") or _is_markdown(text):
        return _grid(_plain(_choose(_markdown(text, path), sheet, path)), path, title)
    return _grid(_delimited(text, path, sheet), path, title)


def _first_bytes(path: str) -> bytes:
    """Return the first four bytes of a file; raise ValueError for a missing file or a folder."""
    try:
        with opening.open_binary(path) as file:
            return file.read(4)
    except (FileNotFoundError, IsADirectoryError) as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise ValueError(
            f"{path}: {reason}; check the path of the file of scores"
        ) from None


def _text(path: str, head: bytes) -> str:
    """Return the text of a file in UTF-8 or UTF-16; raise ValueError for other bytes.

    head: the first bytes of the file, which show whether it is UTF-16.
    """
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        with opening.open_binary(path) as file:
            raw = file.read()
        try:
            return raw.decode("utf-16")
        except UnicodeDecodeError:
            raise ValueError(
                f"{path}: must be text in UTF-8 or UTF-16; save it so"
            ) from None
    try:
        with opening.open_text(path, newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be text in UTF-8, got other bytes at {error.start}; save it as "
            "CSV in UTF-8"
        ) from None


# CSV and similar text.


def _delimited(text: str, path: str, sheet: str) -> list[Row]:
    """Return the rows of a text whose fields are separated by a delimiter or by spaces.

    Blank lines, lines that begin with "#", and an empty last column are left out. The
    first row is the header. path: name of the file in messages. sheet: number of the table,
    from 1, if fields are separated by spaces; "" if there is only one.
    Raise ValueError for an empty text and for lines with different numbers of fields; with
    spaces, raise as `_choose` does.
    """
    lines = io.StringIO(text, newline=None).read().split("\n")
    lines = ["" if line.startswith("#") else line for line in lines]  # Comments.
    text = "\n".join(lines)
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise ValueError(
            f"{path}:1: the first line must name the columns, got an empty file; add a line "
            "such as algorithm,dataset,score"
        )
    delimiter = _delimiter(filled)
    if delimiter == "":
        return _choose(_spaced(lines, path), sheet, path)
    rows = [*_csv_rows(text, path, delimiter)]
    width = len(rows[0][1])
    # Trailing delimiters of every line make an empty last column.
    if width > 1 and all(len(row) == width and not row[-1] for _, row in rows):
        return [(place, row[:-1]) for place, row in rows]
    for place, row in rows:
        if len(row) != width:
            raise ValueError(
                f"{place}: must have {width} fields as the first line, got {len(row)}; "
                "complete or remove the line, or put texts with commas into quotes"
            )
    return rows


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter in `DELIMITERS` that gives all lines the same number of fields.

    The number must be above 1. If several delimiters meet this condition, return the most
    frequent of them in the first line; if no delimiter does, the most frequent of all delimiters
    in that line. "", for columns separated by spaces, if the first line has no comma and no line
    has another delimiter. lines: the lines that are not blank.
    """
    has_sign = any(sign in line for sign in DELIMITERS[1:] for line in lines)
    if not has_sign and "," not in lines[0] and not all("," in line for line in lines):
        return ""
    fitting = []
    for sign in DELIMITERS:
        try:
            widths = {len(row) for row in csv.reader(lines, delimiter=sign)}
        except csv.Error:
            continue
        if len(widths) == 1 and widths.pop() > 1:
            fitting.append(sign)
    return max(fitting or DELIMITERS, key=lines[0].count)


def _spaced(lines: Sequence[str], path: str) -> list[list[Row]]:
    """Return the tables of a text whose columns are separated by spaces, each as a list of rows.

    A table is a block of at least two lines. A line with another number of fields, such as a
    title, ends the table. If the header lacks the name of the first column, as R writes it, "" is
    added. If a line has two spaces in a row between two fields, fields are separated by two spaces
    or more, or a tab; else see `_words`. path: name of the file, for the "path:line" of each
    row.
    """
    is_aligned = any(re.search(r"\S\s{2,}\S", line) for line in lines)
    tables: list[list[Row]] = []
    rows: list[Row] = []
    for number, line in enumerate([*lines, ""], start=1):
        fields = re.split(r"\s{2,}|\t", line.strip()) if is_aligned else _words(line)
        is_row = len(fields) > 1 and (
            not rows or abs(len(fields) - len(rows[-1][1])) <= 1
        )
        if is_row and (len(rows) < 2 or len(fields) == len(rows[-1][1])):
            rows.append((f"{path}:{number}", fields))
            continue
        tables.append(rows)
        rows = [(f"{path}:{number}", fields)] if len(fields) > 1 else []
    tables = [table for table in tables if len(table) > 1]
    for table in tables:
        place, header = table[0]
        if len(header) == len(table[1][1]) - 1:
            table[0] = (place, ["", *header])
    return tables


def _words(line: str) -> list[str]:
    """Return the fields of a line that are separated by spaces; quoted text is one field."""
    try:
        return shlex.split(line)
    except ValueError:  # A quote without its end.
        return line.split()


def _csv_rows(text: str, path: str, delimiter: str) -> Iterator[Row]:
    """Yield the rows of a CSV text, without blank rows and rules such as ---.

    Spaces around cells are removed. path: name of the file in messages. Raise ValueError for a
    quote without its end.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            is_rule = all(re.fullmatch("-{3,}|={3,}", cell) for cell in cells)
            if not any(cells) or is_rule:
                continue
            yield f"{path}:{reader.line_num}", cells
    except csv.Error as error:
        raise ValueError(
            f"{path}:{reader.line_num}: must be a CSV file, got a row that cannot be read "
            f"({error}); close the quote that is open there"
        ) from None


# Markdown.

_DASHES = re.compile(r"\s*\|?(?:\s*:?-{1,}:?\s*\|)+\s*(?::?-*:?)?\s*")


def _is_markdown(text: str) -> bool:
    """Return True if a text has the rule of a Markdown table, such as |---|---|."""
    return any("|" in line and _DASHES.fullmatch(line) for line in text.splitlines())


def _markdown(text: str, path: str) -> list[list[Row]]:
    """Return the tables of a Markdown text, each as a list of rows with the header first.

    A table is a block of lines that contain "|"; rules such as |---|---| are left out. path:
    name of the file, for the "path:line" of each row.
    """
    tables: list[list[Row]] = []
    rows: list[Row] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if "|" not in line:
            if rows:
                tables.append(rows)
            rows = []
            continue
        if _DASHES.fullmatch(line):
            continue
        cells = re.split(r"(?<!\\)\|", line.strip())
        if line.strip().startswith("|"):
            cells = cells[1:]
        if line.strip().endswith("|"):
            cells = cells[:-1]
        rows.append(
            (f"{path}:{number}", [x.replace("\\|", "|").strip() for x in cells])
        )
    return [*tables, rows] if rows else tables


# LaTeX.


def _latex(text: str, path: str) -> list[list[Row]]:
    """Return the tables of a LaTeX text, each as a list of rows.

    A text without any tabular or similar environment is one table. path: name of the file, for
    the "path:line" of each row.
    """
    tables = []
    for match in _TABULAR.finditer(_without_comments(text)):
        first_line = text[: match.start()].count("\n") + 1
        body = _skip_arguments(match[2])
        tables.append(
            _latex_rows(body, path, first_line + match[2][: -len(body)].count("\n"))
        )
    if not tables:
        tables.append(_latex_rows(_without_comments(text), path, 1))
    return tables


def _without_comments(text: str) -> str:
    """Return a LaTeX text without comments; the number of lines does not change."""
    return re.sub(r"(?<!\\)%.*", "", text)


def _skip_arguments(body: str) -> str:
    """Return the body of a tabular without its arguments, such as [t]{l|cc@{}}."""
    body = body.lstrip()
    while body[:1] in ("{", "["):
        close = {"{": "}", "[": "]"}[body[0]]
        depth = 0
        for i, letter in enumerate(body):
            depth += (letter == body[0]) - (letter == close)
            if not depth:
                break
        body = body[i + 1 :].lstrip(" ")
    return body


def _latex_rows(body: str, path: str, line: int) -> list[Row]:
    """Return the rows of the body of a tabular, with the text of merged cells in each row.

    Blank rows are left out. path, line: name of the file and number of the body's first line,
    for the "path:line" of each row.
    """
    rows: list[Row] = []
    spans: list[_Span] = []
    for part in re.split(r"\\\\(?:\[[^]]*\])?|\\tabularnewline\b|\\cr\b", body):
        filled = len(part) - len(part.lstrip())
        place = f"{path}:{line + part[:filled].count(chr(10))}"
        line += part.count("\n")
        part = _RULES.sub("", part)
        cells: list[str] = []
        for cell in re.split(r"(?<!\\)&", part):
            count = _MULTIROW.match(cell.strip())
            if count:
                spans.append(_Span(len(rows), len(cells), int(count[1])))
            cells.extend(_spanned(cell.strip()))
        if any(cell for cell in cells):
            rows.append((place, cells))
    _fill_spans([cells for _, cells in rows], spans)
    return rows


class _Span(NamedTuple):
    """A cell that is merged over several rows."""

    row: int  # Index of the row that has the text.
    column: int
    count: int  # Number of rows, from `row` down, or up if negative.


def _fill_spans(rows: Sequence[list[Any]], spans: Sequence[_Span]) -> None:
    """Copy the text of merged cells to the blank cells that they cover.

    rows: cells of each row, changed in place. Only text is copied, and only between rows that
    have numbers.
    """

    def has_numbers(i: int) -> bool:
        """Return True if row i exists and has a number."""
        return 0 <= i < len(rows) and any(map(_is_value, rows[i]))

    for span in spans:
        if not has_numbers(span.row):
            continue
        text = rows[span.row][span.column]
        step = 1 if span.count > 0 else -1
        if score_grid.is_blank(text) or _is_value(text):
            continue
        for i in range(span.row + step, span.row + span.count, step):
            is_inside = has_numbers(i) and span.column < len(rows[i])
            if is_inside and score_grid.is_blank(rows[i][span.column]):
                rows[i][span.column] = text


def _spanned(cell: str) -> list[str]:
    """Return the texts of the cells that a LaTeX cell covers.

    A \\multicolumn gives its text and then empty texts, a \\multirow only its text. Another cell
    is returned unchanged, in a list.
    """
    match = re.fullmatch(
        r"\\multicolumn\s*\{(\d+)\}\s*\{(?:[^{}]|\{[^{}]*\})*\}\s*\{(.*)\}",
        cell,
        re.DOTALL,
    )
    if match:
        return [*_spanned(match[2].strip()), *[""] * (min(int(match[1]), 1000) - 1)]
    match = re.fullmatch(
        r"\\multirow\s*(?:\[[^]]*\])?\s*\{[^{}]*\}\s*(?:\[[^]]*\])?\s*(?:\{[^{}]*\}|\*)\s*\{(.*)\}",
        cell,
        re.DOTALL,
    )
    return [match[1].strip()] if match else [cell]


# Excel and Parquet.


def _excel(path: str, sheet: str) -> list[Row]:
    """Return the rows of an Excel file that have a filled cell.

    Columns without a filled cell are left out; blank cells are None or "". sheet: name of the
    sheet; "" if only one sheet has numbers, or if the sheets with numbers are runs (`_are_runs`),
    which are then joined. Raise UnclearError if `sheet` is "" and several sheets that are not runs
    have numbers. Raise ValueError for an unknown sheet or a sheet without numbers, for a file that
    is not an Excel file, and if the package that reads Excel is not installed.
    """
    try:
        _check_unpacked(path)
        sheets = pd.read_excel(path, sheet_name=None, header=None, dtype=object)
        spans = _merged_cells(path)
        sheets = {
            name: _with_merged_names(frame, spans.get(name, ()))
            for name, frame in sheets.items()
        }
    except ImportError as error:
        raise ValueError(
            f"{path}: reading Excel needs a package that is not installed ({error}); save the "
            "sheet as CSV, or install openpyxl"
        ) from None
    except Exception as error:  # noqa: BLE001 - of many libraries
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path}: must be an Excel file, got {reason or type(error).__name__}; save it again, "
            "or as CSV"
        ) from None
    sheets = {name: frame for name, frame in sheets.items() if _has_numbers(frame)}
    if not sheets:
        raise ValueError(
            f"{path}: must hold scores, got sheets without numbers; add rows"
        )
    if sheet:
        errors.check_choice(path, sheet, sheets, name="--sheet")
    if not sheet and _are_runs(sheets):
        sheets = {"runs": _join_runs(sheets)}
    if not sheet and len(sheets) > 1:
        names = " or ".join(f"--sheet={name}" for name in [*sheets][:4])
        raise score_rows.UnclearError(
            f"{path}: has {len(sheets)} sheets; say which: {names}"
        )
    name, frame = next((n, f) for n, f in sheets.items() if not sheet or n == sheet)
    filled = frame.columns[frame.notna().any()]
    return [
        (f"{path}:{name}, row {number + 1}", [_plain_excel(x) for x in row])
        for number, row in enumerate(frame[filled].itertuples(index=False))
        if any(_plain_excel(x) not in (None, "") for x in row)
    ]


def _merged_cells(path: str) -> dict[str, list[_Span]]:
    """Return, by sheet, the cells that are merged over several rows; {} for .xls and .ods files."""
    if not zipfile.is_zipfile(path) or pathlib.Path(path).suffix.lower() == ".ods":
        return {}
    import openpyxl

    book = openpyxl.load_workbook(path)
    return {
        sheet.title: [
            _Span(area.min_row - 1, area.min_col - 1, area.max_row - area.min_row + 1)
            for area in sheet.merged_cells.ranges
            if area.max_row > area.min_row
        ]
        for sheet in book.worksheets
    }


def _with_merged_names(frame: pd.DataFrame, spans: Sequence[_Span]) -> pd.DataFrame:
    """Return a sheet with the text of each merged cell in all rows that the cell covers."""
    if not spans:
        return frame
    rows = [[_plain_excel(x) for x in row] for row in frame.itertuples(index=False)]
    _fill_spans(rows, [x for x in spans if x.column < frame.shape[1]])
    return pd.DataFrame(rows, columns=frame.columns, dtype=object)


def _are_runs(sheets: dict[str, pd.DataFrame]) -> bool:
    """Return True if there are several sheets, named like runs (seed0, ...), with equal headers."""
    heads = {tuple(map(str, frame.iloc[0])) for frame in sheets.values()}
    return (
        len(sheets) > 1
        and len(heads) == 1
        and all(map(column_names.is_run_name, sheets))
    )


def _join_runs(sheets: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the sheets joined into one, with a last column "run" of their names.

    Row 0 of each sheet is its header; the result has the header of the first sheet.
    """
    frames = []
    for number, (name, frame) in enumerate(sheets.items()):
        frame_of_run = frame.assign(run=name)
        frame_of_run.iloc[0, -1] = "run"
        frames.append(frame_of_run if number == 0 else frame_of_run.iloc[1:])
    return pd.concat(frames, ignore_index=True)


def _has_numbers(frame: pd.DataFrame) -> bool:
    """Return True if at least two rows of a sheet have a number."""
    return (
        sum(any(_is_value(x) for x in row) for row in frame.itertuples(index=False)) > 1
    )


def _is_value(cell: Any) -> bool:
    """Return True if a cell is a number, a date or a text that begins like a number."""
    plain = _plain_excel(cell)
    return plain is not None and (not isinstance(plain, str) or _starts_number(plain))


def _plain_excel(value: Any) -> Any:
    """Return a cell of Excel as text or a Python number, None for NaN; other values unchanged."""
    plain = score_grid.plain_value(value)
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _check_unpacked(path: str) -> None:
    """Raise ValueError for a zip file of more than 256 MiB when unpacked; pass other files."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > _LARGEST_UNPACKED:
        raise ValueError(f"{size} bytes when unpacked, more than {_LARGEST_UNPACKED}")


def _parquet(path: str) -> pd.DataFrame:
    """Return the frame in a Parquet file; raise ValueError if the file is damaged."""
    try:
        return pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{path}: must be a whole Parquet file, got {error}; write it again"
        ) from None


# From rows of cells to a grid.


def _plain(rows: list[Row]) -> list[Row]:
    """Return rows of Markdown or LaTeX without markup, such as bold type, in their cells.

    Names keep their citations and footnote marks, which may distinguish two names.
    """

    def plain(cell: str) -> str:
        """Return a cell without markup."""
        is_name = not score_cells.is_score(cell)
        return score_cells.plain_text(cell, keep_notes=is_name)

    return [(place, [plain(cell) for cell in cells]) for place, cells in rows]


def _choose(tables: list[list[Row]], sheet: str, path: str) -> list[Row]:
    """Return the table of number `sheet`, from 1, or the only table if `sheet` is "".

    path: name of the file in messages. Tables of a single row are not counted. Raise ValueError
    if there is no such table, and UnclearError if there are several and `sheet` is "".
    """
    tables = [table for table in tables if len(table) > 1]
    if not tables:
        raise ValueError(f"{path}: must hold a table of scores, got none; add one")
    if sheet:
        if not sheet.isdecimal() or not 1 <= int(sheet) <= len(tables):
            raise ValueError(
                f"{path}: --sheet must be from 1 to {len(tables)}, got {sheet!r}"
            )
        return tables[int(sheet) - 1]
    if len(tables) > 1:
        names = " or ".join(
            f"--sheet={number + 1}" for number in range(min(len(tables), 4))
        )
        raise score_rows.UnclearError(
            f"{path}: has {len(tables)} tables; say which: {names}"
        )
    return tables[0]


def _grid(rows: list[Row], path: str, title: str) -> score_grid.Grid:
    """Return the grid of rows that begin with one to four header lines.

    Short rows are filled up with ""; titles above the table and footnotes below it are left
    out. If one header line is followed by a line with only the name of the index, its first cell is
    the name of the grid's level. path: name of the table in messages. title: name of the data set
    if the table names none. Raise ValueError if the first header line has a decimal number.
    """
    width = max(len(row) for _, row in rows)
    rows = [(place, [*row, *[""] * (width - len(row))]) for place, row in rows]
    rows = _without_titles(rows, width)
    names = [score_grid.label(x) for x in rows[0][1]]
    _check_named(names, rows, path)
    if len(rows) > 1 and _spans(names) and _is_header(rows[1][1]):
        if _is_third_header(rows):
            is_fourth = len(rows) > 5 and _is_third_header(rows[1:])
            return _several_lines(rows, path, title, count=4 if is_fourth else 3)
        return _two_lines(rows, path, title)
    level = ""
    if len(rows) > 2 and _names_index(names, rows[1][1]):
        level, names[0] = names[0], score_grid.label(rows[1][1][0])
        rows = [rows[0], *rows[2:]]
    columns = tuple((name,) for name in names)
    cells = [row for _, row in rows[1:]]
    places = [place for place, _ in rows[1:]]
    return score_grid.Grid(columns, (level,), cells, places, path, title)


def _names_index(names: Sequence[str], second: Sequence[Any]) -> bool:
    """Return True if the second line has only the name of the index, as pandas writes it.

    names: the header, whose first cell is then the name of the columns axis. The names of the
    columns axis and of the index must be known names of columns, such as "dataset".
    """
    texts = [score_grid.label(x) for x in second]
    roles = column_names.meaning(names[0]), column_names.meaning(texts[0])
    return "" not in roles and not any(texts[1:]) and len(texts) > 1


def _without_titles(rows: list[Row], width: int) -> list[Row]:
    """Return the rows without titles above a table and footnotes below it; at least two remain.

    Titles and footnotes have text in their first cell only; a footnote's text has a space.
    width: number of columns.
    """

    def is_title(row: Row) -> bool:
        """Return True if a row has text in its first cell only."""
        filled = [score_grid.label(x) != "" for x in row[1]]
        return width > 1 and filled[0] and not any(filled[1:])

    while len(rows) > 2 and is_title(rows[0]):
        rows = rows[1:]
    while (
        len(rows) > 2 and is_title(rows[-1]) and " " in score_grid.label(rows[-1][1][0])
    ):
        rows = rows[:-1]
    return rows


def _check_named(names: list[str], rows: list[Row], path: str) -> None:
    """Raise ValueError if the first line, `names`, has a decimal number.

    rows: all rows, for the place in the message.
    """
    numbers = [x for x in names if re.fullmatch(r"[+-]?[0-9]*[.,][0-9]+\s*%?", x)]
    if numbers:
        raise ValueError(
            f"{rows[0][0]}: the first line must name the columns, got the number "
            f"{numbers[0]}; add a line such as algorithm,dataset,score"
        )


def _spans(names: Sequence[str]) -> bool:
    """Return True if a header line has, after its first cell, a repeated name or a blank.

    Such a line has names for groups of columns. False if all cells after the first are blank.
    """
    filled = [name for name in names[1:] if name]
    return bool(filled) and (len(set(filled)) < len(filled) or "" in names[1:])


def _is_header(cells: Sequence[Any]) -> bool:
    """Return True if a line names columns: no number after the first cell has decimals, ± or %.

    False if all cells after the first are blank.
    """
    texts = [score_grid.label(x) for x in cells[1:]]
    if not any(texts):
        return False
    return not any(
        re.search(r"(?:^|[0-9])[.,][0-9]|±|%", text)
        for text in texts
        if _starts_number(text)
    )


def _starts_number(text: str) -> bool:
    """Return True if a text begins like a number, after markup is removed."""
    return bool(re.match(r"[+-]?[.,]?[0-9]", score_cells.plain_text(text)))


def _is_line_of_names(
    tops: Sequence[str], lows: Sequence[str], body: Sequence[Row], count: int
) -> bool:
    """Return True if the first row of the body has only names of index levels.

    pandas writes such a line after two header lines, `tops` and `lows`. False for an empty body
    and for a heading of the rows below it. count: number of columns that name rows.
    """
    if not body:
        return False
    texts = [score_grid.label(x) for x in body[0][1]]
    is_named = bool(tops[0] and lows[0]) or column_names.meaning(texts[0]) != ""
    return is_named and not any(texts[count:])


def _is_third_header(rows: Sequence[Row]) -> bool:
    """Return True if the third line is a header line, as pandas writes for three levels.

    There must be five lines or more, and the second line must have names for groups of columns
    (`_spans`). After the first cell, more than half of the third line is filled, with names. The
    fourth line has a first cell, and after it fewer than half of the cells are filled.
    """
    if len(rows) < 5 or not _spans([score_grid.label(x) for x in rows[1][1]]):
        return False
    texts = [score_grid.label(x) for x in rows[2][1]]
    after = [score_grid.label(x) for x in rows[3][1]]
    filled = sum(1 for text in texts if text)
    is_names = _is_header(rows[2][1]) and filled > len(texts) / 2
    has_line_of_names = bool(after[0]) and sum(1 for x in after if x) < len(after) / 2
    return is_names and has_line_of_names


def _several_lines(
    rows: list[Row], path: str, title: str, *, count: int
) -> score_grid.Grid:
    """Return the grid of a table that pandas wrote with three or four header lines.

    count: number of header lines; a line with the names of the index levels follows them. The
    cells of the header lines above the last name of an index level are the names of the grid's
    levels. A blank in a header line, except the last, takes the name on its left. path: name of
    the table in messages. title: name of the data set if the table names none.
    """
    lines = [[score_grid.label(x) for x in row] for _, row in rows[:count]]
    index = [score_grid.label(x) for x in rows[count][1]]
    num_labels = max(j for j, name in enumerate(index) if name) + 1
    levels = tuple(line[num_labels - 1] for line in lines)
    for line in lines[:-1]:
        for j in range(num_labels + 1, len(line)):
            line[j] = line[j] or line[j - 1]
    names = [(name,) + ("",) * (count - 1) for name in index[:num_labels]]
    names += [*zip(*(line[num_labels:] for line in lines), strict=True)]
    body = rows[count + 1 :]
    cells = [row for _, row in body]
    return score_grid.Grid(
        tuple(names), levels, cells, [p for p, _ in body], path, title
    )


def _is_numbered(body: Sequence[Row]) -> bool:
    """Return True if the first column has the numbers 0, 1, 2 and so on."""
    numbers = [score_grid.label(row[0]) for _, row in body]
    return numbers == [str(number) for number in range(len(numbers))]


def _two_lines(rows: list[Row], path: str, title: str) -> score_grid.Grid:
    """Return the grid of rows that begin with two header lines.

    A column's name is a pair of its cells in the two lines; a blank in the first takes the name
    on its left. The name of a column that names rows is a pair of its only name and "". If a
    third line has only names of the index, as pandas writes it, the columns that name rows get
    their names from that line. In this case, and if the first column has run names or the row
    numbers of pandas, the first cells of the two lines are the names of the grid's levels.
    path: name of the table in messages. title: name of the data set if the table names none.
    """
    tops = [score_grid.label(x) for x in rows[0][1]]
    lows = [score_grid.label(x) for x in rows[1][1]]
    body = rows[2:]
    is_label = [
        column_names.meaning(top) != "" and not low for top, low in zip(tops, lows)
    ]
    first = next(
        (j for j in range(1, len(tops)) if tops[j] and not is_label[j]), len(tops)
    )
    count = max(1, sum(1 for j in range(first) if not tops[j] or is_label[j] or j == 0))
    levels = ("", "")
    labels = [(low or top) for top, low in zip(tops[:count], lows[:count])]
    if _is_line_of_names(tops, lows, body, count):
        # pandas writes the names of header lines first, then a line of those of the index.
        levels = (tops[0], lows[0])
        labels = [score_grid.label(x) for x in body[0][1][:count]]
        body = body[1:]
    elif tops[0] and lows[0] and column_names.meaning(lows[0]) == "run":
        levels, labels[0] = (tops[0], lows[0]), ""
    elif count > 1 and any(labels[1:]) and _is_numbered(body):
        levels, labels[0] = (tops[0], lows[0]), ""  # Rows that pandas numbered.
    for j in range(count + 1, len(tops)):
        tops[j] = tops[j] or tops[j - 1]  # A name over several columns.
    names = [(name, "") for name in labels]
    names += [*zip(tops[count:], lows[count:], strict=True)]
    cells = [row for _, row in body]
    return score_grid.Grid(
        tuple(names), levels, cells, [p for p, _ in body], path, title
    )
