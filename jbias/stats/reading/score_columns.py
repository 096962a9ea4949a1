"""The columns of a table of scores: the role of each column, and the parsed cells."""

import collections
import dataclasses
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.stats.reading import (
    column_names,
    run_states,
    score_cells,
    score_grid,
    score_names,
    score_rows,
)

# The start of a number, also of one that cannot be parsed.
_NUMBER_START = re.compile(r"[+-]?[.,]?[0-9][0-9.,_eE+-]*\s*([^\w.,-]|$)")
HEADER = "header"  # Instead of a column's name: the header line has this role.
ORDER = "order"  # Instead of a column of runs: rows of one cell are runs, in order.
METRIC_COLUMNS = ("metric", "measure", "metric_name", "variable", "quantity")


@dataclasses.dataclass(frozen=True)
class Choices:
    """Choices of the user, where a table has several readings.

    An option of "" is decided from the table.
    columns: the name of the column of each role (`column_names.ROLES`), such as
    {"algorithm": "method"}; several columns of one role are joined by "+".
    rows: meaning of the rows of a wide table, "algorithms" or "datasets".
    decimal: the decimal sign, "." or ",".
    brackets: "deviation" if a number in brackets after a score is a deviation; "ignore" if it
    is a rank or the like.
    margins: "ignore" or "keep" rows and columns called All, Average and the like.
    """

    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: str = ""
    decimal: str = ""
    brackets: str = ""
    margins: str = ""


class Columns:
    """A table of scores with the role of each of its columns.

    Columns are identified by their index. `roles` has for each column one of
    `column_names.ROLES`, or "number", "text", "bookkeeping" (numbers that are not scores),
    "spread" (of the column before), "empty" or "unused". Choices of the user override the
    meaning of names.

    grid: the unparsed table. choices: the user's choices. unused: first entries of the list of
    columns that are not used. errors: names of columns of standard errors. kind: name of the
    kind of table for its description; "": chosen when the table is read.
    Raise ValueError for a table without rows, for two columns of the same name, and for a
    chosen column that does not exist; UnclearError if commas in numbers are ambiguous.
    """

    def __init__(
        self,
        grid: score_grid.Grid,
        choices: Choices,
        *,
        unused: Sequence[str] = (),
        errors: Sequence[str] = (),
        kind: str = "",
    ) -> None:
        written = grid.columns
        self.old_names: dict[str, str] = {}  # Of names that lost marks of footnotes.
        if grid.source:  # Names in a frame are keys of the user's code: keep them.
            grid, self.old_names = score_names.without_notes(grid)
        self.grid = grid
        self.choices = choices
        self.where = f"{grid.source}: " if grid.source else "scores: "
        self.names = [" ".join(filter(None, names)) for names in grid.columns]
        self._written_names = [" ".join(filter(None, names)) for names in written]
        check_names(self.names, self.where)
        if not grid.cells:
            raise ValueError(
                f"{self.where}must hold scores, got a header alone; add rows"
            )
        texts = (x for row in grid.cells for x in row if isinstance(x, str))
        try:
            self.commas = score_cells.decide_decimal(texts, choices.decimal)
        except ValueError as error:
            raise score_rows.UnclearError(
                self.where + _as_flags(str(error), grid.source)
            ) from None
        self.parsed = [[self._parse(x) for x in row] for row in grid.cells]
        self.roles = self._find_roles()
        self.kind = kind
        self.errors = list(errors)  # Names of columns of standard errors, not used.
        self.unused = [*unused]
        self.unused += [
            f"{self.names[j]} (no scores)"
            for j in self.columns_of("empty")
            if not all(score_grid.is_blank(row[j]) for row in grid.cells)
        ]
        self.spreads: dict[int, int] = {}  # Column of the spread, by column of scores.
        self.unfinished = ""  # Number of rows of unfinished runs, in words.
        self.keep_unfinished = ""  # The choice that keeps these rows, in words.

    def _parse(self, value: Any) -> score_cells.Cell | None:
        """Return the parsed cell of a value; None if it is neither a finite number nor missing.

        A missing score has the value NaN. A bool is not a number.
        """
        if value is None or value is pd.NA:
            return score_cells.Cell(math.nan)
        if isinstance(value, str):
            return score_cells.parse(value, self.commas)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        is_finite = math.isnan(value) or abs(value) <= sys.float_info.max
        return score_cells.Cell(float(value)) if is_finite else None

    def is_numeric(self, column: int) -> bool:
        """Return True if a column has only numbers and missing cells, and at least one number."""
        cells = [row[column] for row in self.parsed]
        if any(cell is None for cell in cells):
            return False
        return any(not math.isnan(cell.value) for cell in cells)

    def _is_empty(self, column: int) -> bool:
        """Return True if all cells of a column are blank or marked as missing."""
        return all(self.is_missing(i, column) for i in range(len(self.parsed)))

    def _mostly_numeric(self, column: int) -> bool:
        """Return True if more than half of a column's filled cells are numbers.

        Cells that are marked as missing, such as "-", are treated as numbers.
        """
        is_number = [
            row[column] is not None
            for row, cells in zip(self.parsed, self.grid.cells, strict=True)
            if not score_grid.is_blank(cells[column])
        ]
        return 2 * sum(is_number) > len(is_number)

    def _looks_numeric(self, column: int) -> bool:
        """Return True if more than half of a column's filled cells begin like numbers.

        Dates and other values that are not text are treated as numbers, because such values are not
        names.
        """
        cells = [
            x
            for x in self.column(self.grid.cells, column)
            if not score_grid.is_blank(x)
        ]
        like_numbers = [
            x
            for x in cells
            if not isinstance(x, str) or _NUMBER_START.match(score_grid.label(x))
        ]
        return 2 * len(like_numbers) > len(cells)

    @staticmethod
    def column(rows: list[list[Any]], column: int) -> list[Any]:
        """Return the cells of one column of a list of rows."""
        return [row[column] for row in rows]

    def _find_roles(self) -> list[str]:
        """Return the role of each column; the docstring of the class lists the roles.

        The user's choice has priority, then the column's name (if its header has one line and its
        cells fit the role), then its cells.
        """
        chosen = self._chosen()
        roles = []
        for j, name in enumerate(self.names):
            if j in chosen:
                roles.append(chosen[j])
                continue
            has_one_line = not any(self.grid.columns[j][1:])
            role = column_names.meaning(name) if has_one_line else ""
            if role in self.choices.columns and role != "deviation":
                role = ""  # The user chose another column.
            if self._is_empty(j) and role not in ("algorithm", "dataset"):
                roles.append("empty")
            elif role == "score" and not self._mostly_numeric(j):
                roles.append("text")
            elif role == "run" and self._is_fractional(j):
                roles.append("number")
            elif role in ("algorithm", "dataset") and self._is_fractional(j):
                roles.append("number")  # A column of scores under that name.
            elif role:
                roles.append(role)
            elif self._is_spread_before(j):
                roles.append("spread")
            elif self.names[j] and self._is_bookkeeping(j):
                roles.append("bookkeeping")
            elif self._mostly_numeric(j) or self._looks_numeric(j):
                roles.append("number")
            else:
                roles.append("text")
        return roles

    def _is_bookkeeping(self, column: int) -> bool:
        """Return True if a column's name denotes a count, setting, id or difference.

        False for a column named n, or with a name that ends in id, whose numbers are not all whole.
        """
        name = self.names[column]
        if column_names.is_difference(name) or column_names.is_setting(name):
            return True
        word = column_names.word_of(name)
        counts = word == "n" or word.endswith("id")
        return column_names.is_bookkeeping(name) and not (
            counts and self._is_fractional(column)
        )

    def _is_spread_before(self, column: int) -> bool:
        """Return True if a column without a name has spreads (±0.3) of the column before.

        All filled cells, at least one, must begin with ±, +/-, +- or LaTeX's pm. False for
        column 0.
        """
        texts = [
            str(x).strip()
            for x in self.column(self.grid.cells, column)
            if not score_grid.is_blank(x)
        ]
        if column == 0 or self.names[column] or not texts:
            return False
        return all(re.match(r"(?:±|\+/-|\+-|\$?\\pm)", text) for text in texts)

    def _is_fractional(self, column: int) -> bool:
        """Return True if a column has only numbers, of which at least one is not whole."""
        return self.is_numeric(column) and any(
            not float(row[column].value).is_integer()
            for row in self.parsed
            if not math.isnan(row[column].value)
        )

    def _chosen(self) -> dict[int, str]:
        """Return the role that the user chose, by index of the column.

        Choices of header lines, of row order and of metrics in rows or headers are left out.
        Raise ValueError for a name that no column has.
        """
        known = {}
        for names in (self.names, self._written_names):
            for j, name in enumerate(names):
                known.setdefault(name.strip().lower(), j)
        chosen = {}
        for role, text in self.choices.columns.items():
            if text in (HEADER, ORDER) or role == "score" and self.is_level(text):
                continue
            column_texts = [text] if text.strip().lower() in known else text.split("+")
            for name in column_texts:
                if name.strip().lower() not in known:
                    shown = ", ".join(filter(None, self.names))
                    raise ValueError(
                        f"{self.where}{flag('columns', self.grid.source)}{role}={text} must name "
                        f"a column, got {name.strip()!r}; there are {shown}"
                    )
                chosen[known[name.strip().lower()]] = role
        return chosen

    def is_level(self, text: str) -> bool:
        """Return True if a text is a name in the last header line, or in a column of metrics.

        The last header line is used only if there are several. Upper case is ignored in header
        lines, but not in cells.
        """
        in_header = any(
            len(names) > 1 and names[-1].strip().lower() == text.strip().lower()
            for names in self.grid.columns
        )
        in_column = any(
            column_names.word_of(name) in METRIC_COLUMNS
            and text in (score_grid.label(row[j]) for row in self.grid.cells)
            for j, name in enumerate(self.names)
        )
        return in_header or in_column

    def columns_of(self, role: str) -> list[int]:
        """Return the indices of the columns that have a role, in order."""
        return [j for j, column_role in enumerate(self.roles) if column_role == role]

    def shown(self, columns: Sequence[int]) -> str:
        """Return the names of columns, joined by commas, for a message."""
        return ", ".join(self.names[j] or "(no name)" for j in columns)

    def leave_out(self, columns: Sequence[int]) -> None:
        """Give columns the role "unused", and add their names to `unused`."""
        for j in columns:
            self.unused.append(self.names[j] or "(no name)")
            self.roles[j] = "unused"

    def labels_of(self, columns: Sequence[int]) -> dict[str, None]:
        """Return the distinct labels of rows as the keys of a dict, in order.

        The label of a row is the text in these columns, joined by spaces.
        """
        return dict.fromkeys(
            " ".join(score_grid.label(row[j]) for j in columns)
            for row in self.grid.cells
        )

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Remove all rows except those with these indices."""
        self.grid = dataclasses.replace(
            self.grid,
            cells=[self.grid.cells[i] for i in rows],
            places=[self.grid.places[i] for i in rows],
        )
        self.parsed = [self.parsed[i] for i in rows]

    def leave_out_unfinished(self) -> None:
        """Remove the rows of runs that did not finish, and describe them in `unfinished`.

        `keep_unfinished` then names the choice that keeps the rows: ignore=COLUMN with the
        column of states. Nothing changes if the table has no such rows, or if the user chose a role
        for the column of states. Raise ValueError if no run finished.
        """
        unfinished = run_states.find_unfinished(self.names, self.grid.cells)
        if unfinished is None or self.roles[unfinished.column] != "text":
            return
        number, name = len(self.grid.cells), self.names[unfinished.column]
        states = ", ".join(f"{n} {state}" for state, n in unfinished.states.items())
        self.unfinished = (
            f"{len(unfinished.rows)} of {number} rows, of runs that did not finish "
            f"(column {name!r}: {states})"
        )
        ignored = self.choices.columns.get("ignore")
        value = f"ignore={ignored}+{name}" if ignored else f"ignore={name}"
        flags = flag("columns", self.grid.source) + with_choices(
            self.choices, "columns", value
        )
        self.keep_unfinished = f"{flags} keeps them"
        if len(unfinished.rows) == number:
            raise ValueError(
                f"{self.where}must hold scores of runs that finished, got none: "
                f"{self.unfinished}; add some, or {self.keep_unfinished}"
            )
        self.keep_rows([i for i in range(number) if i not in unfinished.rows])
        self.roles[unfinished.column] = "unused"

    def unclear(
        self, fact: str, *suggested: tuple[str, str]
    ) -> score_rows.UnclearError:
        """Return the error for several readings of this table.

        fact, suggested: see the function `unclear`.
        """
        return unclear(self.grid.source, self.choices, fact, *suggested)

    def trained_on(self, i: int) -> bool | None:
        """Return the entry of row i in the column trained_on; None without such a column.

        yes, true and 1 are True; no, false, 0 and a blank cell are False, in any case of letters.
        Raise ValueError for other values.
        """
        columns = self.columns_of("trained_on")
        if not columns:
            return None
        word = score_grid.label(self.grid.cells[i][columns[0]]).lower()
        if word not in ("1", "yes", "true", "", "0", "no", "false"):
            raise ValueError(
                f"{self.grid.places[i]}: trained_on must be yes or no, got {word!r}"
            )
        return word in ("1", "yes", "true")

    def add_error(self, column: int) -> None:
        """Add the name of a column to `errors`, the columns of standard errors."""
        if self.names[column] not in self.errors:
            self.errors.append(self.names[column])

    def is_missing(self, i: int, j: int) -> bool:
        """Return True if the cell in row i and column j is blank or marked as missing."""
        cell = self.parsed[i][j]
        return cell is not None and math.isnan(cell.value)

    def spreads_of(self, values: list[int]) -> dict[int, int]:
        """Return the index of the column of spreads, by index of the column of scores.

        Columns are matched by names such as photo and photo_std. A name such as photo_sd is matched
        only if the column's numbers are small compared with the scores. Columns of scores without
        spreads are left out.
        values: indices of columns of numbers, which may be scores or spreads. Columns with the
        role deviation may be spreads, too.
        """
        known = {}
        for j in reversed(values):
            word = column_names.word_of(self.names[j])
            known[word.partition(",")[0]] = j
            known[word] = j
        spreads: dict[int, int] = {}
        candidates = [*values, *self.columns_of("deviation")]
        candidates.sort(key=lambda j: column_names.is_standard_error(self.names[j]))
        for j in candidates:
            word = column_names.word_of(self.names[j])
            word = word.partition(",")[0]  # Of acc_stderr,none.
            for ending in column_names.NAMES["deviation"]:
                for base in (
                    word.removesuffix(f"_{ending}"),
                    word.removeprefix(f"{ending}_") if ending != "se" else word,
                ):
                    if base == word:
                        continue
                    for name in (base, f"{base}_mean", f"mean_{base}"):
                        if name not in known or known[name] == j:
                            continue
                        if ending not in ("sd", "se") or self._is_small(j, known[name]):
                            spreads.setdefault(known[name], j)
        return spreads

    def _is_small(self, column: int, scores: int) -> bool:
        """Return True if a column's numbers are in [0, |score| / 2] in every row with both numbers.

        scores: index of the column of scores.
        """
        pairs = [(row[column], row[scores]) for row in self.parsed]
        return all(
            0 <= spread.value <= abs(score.value) / 2
            for spread, score in pairs
            if spread and score and not math.isnan(spread.value + score.value)
        )

    def row_labels(self, columns: list[int]) -> list[str]:
        """Return the label of each row: its text in these columns, joined by spaces.

        A row without text in these columns gets the label of the row above, as in merged cells, if
        the row has other filled cells, and another column names algorithms, data sets or runs.
        Otherwise its label is "". Raise ValueError for a row after the first in which the first of
        these columns is blank and another is not.
        """
        labels = []
        may_repeat = any(
            j not in columns
            for j in (
                *self.columns_of("run"),
                *self.columns_of("dataset"),
                *self.columns_of("algorithm"),
            )
        )
        for row, place in zip(self.grid.cells, self.grid.places, strict=True):
            names = [score_grid.label(row[j]) for j in columns]
            if labels and not names[0] and any(names):
                raise ValueError(
                    f"{place}: {self.names[columns[0]]!r} must not be empty beside "
                    f"{' '.join(filter(None, names))!r}; name it in every row"
                )
            is_blank = all(not name for name in names) and not all(
                score_grid.is_blank(x) for x in row
            )
            if is_blank and may_repeat and labels:
                labels.append(labels[-1])
            else:
                labels.append(" ".join(filter(None, names)))
        return labels

    def run_of_row(self, i: int, columns: Sequence[int]) -> str:
        """Return the name of the run of row i: its text in these columns, joined by "/"."""
        return "/".join(score_grid.label(self.grid.cells[i][j]) for j in columns)

    def row(
        self,
        i: int,
        j: int,
        *,
        algorithm: str,
        dataset: str,
        run: str,
        spread_column: int | None = None,
    ) -> score_rows.Row:
        """Return the score in row i and column j, with its spread from its cell or column.

        algorithm, dataset, run: names for the result. spread_column: index of the column of
        spreads; None: a spread, if any, is in the cell itself. Standard errors are not used.
        Raise ValueError for an empty name and for a cell that is not a number, and UnclearError as
        `_cell` does. A column whose standard errors are not used is added to `errors`.
        """
        cell = self._cell(i, j, algorithm, dataset)
        if cell.is_summary and column_names.is_standard_error(self.names[j]):
            cell = dataclasses.replace(cell, spread=math.nan, is_summary=False)
            self.add_error(j)
        if spread_column is not None and column_names.is_standard_error(
            self.names[spread_column]
        ):
            self.add_error(spread_column)
        elif spread_column is not None:
            spread = self.parsed[i][spread_column]
            value = spread.value if spread else math.nan
            cell = dataclasses.replace(cell, spread=value, is_summary=True)
        return score_rows.Row(
            algorithm=self._named(algorithm, i, "algorithm"),
            dataset=self._named(dataset, i, "dataset"),
            run=run,
            cell=cell,
            place=f"{self.grid.places[i]}, column {self.names[j]!r}",
            trained_on=self.trained_on(i),
        )

    def _named(self, name: str, i: int, role: str) -> str:
        """Return a name from row i unchanged; raise ValueError if it is empty.

        The texts nan, none, nat and <na> also count as empty. role: "algorithm" or "dataset", for
        the message.
        """
        if not name or name.lower() in ("nan", "none", "nat", "<na>"):
            raise ValueError(
                f"{self.grid.places[i]}: {role} must not be empty; name it in every row"
            )
        return name

    def _cell(self, i: int, j: int, algorithm: str, dataset: str) -> score_cells.Cell:
        """Return the parsed cell in row i and column j, without a spread that is to be ignored.

        algorithm, dataset: names for the message. Raise ValueError for a cell that is not a
        number, and UnclearError for brackets that may be a deviation or a rank.
        """
        cell = self.parsed[i][j]
        if cell is None:
            raise ValueError(
                f"{self.grid.places[i]}: score must be a finite number, got "
                f"{_shown_cell(self.grid.cells[i][j])} for algorithm {algorithm!r} on data set "
                f"{dataset!r}; correct or remove it"
            )
        if cell.is_unclear and not self.choices.brackets:
            source = self.grid.source
            raise score_rows.UnclearError(
                f"{self.grid.places[i]}: the brackets in "
                f"{score_grid.label(self.grid.cells[i][j])!r} may be a deviation, or a rank "
                "and the like; say which: "
                f"{flag('brackets', source)}deviation or {flag('brackets', source)}ignore"
            )
        if self.choices.brackets == "ignore":
            return dataclasses.replace(cell, spread=math.nan, is_summary=False)
        return cell


def check_names(names: Sequence[str], error_prefix: str) -> None:
    """Raise ValueError for two columns of the same name; columns without a name are allowed.

    error_prefix: start of the message, such as "table.csv: ".
    """
    doubled = [k for k, n in collections.Counter(names).items() if n > 1 and k]
    if doubled:
        raise ValueError(
            f"{error_prefix}every column must be named once, got {doubled[0]!r} twice; "
            "rename one, or give runs a column `run`"
        )


def unclear(
    source: str, choices: Choices, fact: str, *suggested: tuple[str, str]
) -> score_rows.UnclearError:
    """Return the error for a table with several readings.

    source: path of the table, "" for data in memory. choices: the user's choices so far.
    fact: the readings, in words, for the message. suggested: (name, value) of the choices
    that each select one reading, such as ("rows", "algorithms").
    """
    flags = [
        f"{flag(name, source)}{with_choices(choices, name, value)}"
        for name, value in suggested
    ]
    to_whom = "" if source else " to jbias.read_scores"
    return score_rows.UnclearError(
        f"{source or 'scores'}: {fact}; say which{to_whom}: {' or '.join(flags)}"
    )


def with_choices(choices: Choices, name: str, value: str) -> str:
    """Return the suggested value of a choice, such as "score=acc" for name "columns".

    The value for "columns" begins with the columns that the user already gave in `choices`,
    except those whose role `value` sets. For other names, `value` is returned. value: the
    suggestion without the user's columns.
    """
    if name != "columns":
        return value
    roles = {pair.partition("=")[0] for pair in value.split(",")}
    given_columns = [
        f"{role}={column}"
        for role, column in choices.columns.items()
        if role not in roles
    ]
    return ",".join([*given_columns, value])


def flag(name: str, source: str) -> str:
    """Return the start of a choice as the user writes it: "--rows=" or "rows=".

    The first form is a flag, for a table with a path in `source`; the second is a Python
    argument, if `source` is "".
    """
    return f"--{name}=" if source else f"{name}="


def _as_flags(text: str, source: str) -> str:
    """Return a message with decimal= as a flag if `source`, the table's path, is not ""."""
    return re.sub(r"\bdecimal=", "--decimal=", text) if source else text


def _shown_cell(value: Any) -> str:
    """Return the text of an invalid cell for a message, and the type of a date or bool."""
    if isinstance(value, bool):
        return f"the truth value {value} (bool)"
    if hasattr(value, "isoformat"):
        return f"the date {value.isoformat()}, as spreadsheets make of numbers"
    return repr(score_grid.label(value))
