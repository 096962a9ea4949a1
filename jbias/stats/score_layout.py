"""From any table of scores to a tidy one: which column says what, and which way round it lies.

Long tables name the algorithm, the data set and the score of each row; wide ones have a row
an algorithm and a column a data set, or the other way round, perhaps with a column of seeds
or a second header line. Columns and axes are known by their names (`column_names.meaning`). Where
names decide nothing, neither does this module: it refuses, with both readings and the
choice that decides (`Choices`).
"""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.stats import column_names, score_cells, score_grid, score_rows

_CORNER = re.compile(r"\s*(?:/|\\|\||→|↓|vs\.?|\bby\b|x|×)\s*")
# So many common names tell algorithms from data sets; a single one may be chance.
_ENOUGH_KNOWN = 2
# What a number begins with, also one that is written wrongly.
_BEGINS = re.compile(r"[+-]?[.,]?[0-9][0-9.,_eE+-]*\s*([^\w.,-]|$)")
WIDE = ("algorithms", "datasets")
HEADER = "header"  # In the place of a column: the header line holds the role.
ORDER = "order"  # In the place of a column of runs: rows of one cell, in order.
_STATISTICS = frozenset(("count", "std", "min", "max", "25%", "50%", "75%", "median"))
_METRIC_COLUMNS = ("metric", "measure", "metric_name", "variable", "quantity")
BRACKETS = ("deviation", "ignore")


@dataclasses.dataclass(frozen=True)
class Choices:
    """Choices of the user, where a table has several readings.

    columns: the name of the column of each role (`ROLES`), e.g. {"algorithm": "method"};
    several that make a role together are joined by "+". rows: what the rows of a wide table
    are, "algorithms" or "datasets". decimal: the decimal sign, "." or ",". brackets: what a
    number in brackets after a score is, "deviation", or "ignore" for ranks and the like.
    """

    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: str = ""
    decimal: str = ""
    brackets: str = ""


@dataclasses.dataclass(frozen=True)
class Reading:
    """A tidy table, and what was understood.

    tidy: the columns algorithm, dataset, run, score (NaN where missing), place, and where
    the table has them deviation and trained_on. description: three lines for the user.
    is_summary: cells are means with their spread over runs that are not known.
    """

    tidy: pd.DataFrame
    description: tuple[str, ...]
    is_summary: bool
    unused: tuple[str, ...]


def arrange(grid: score_grid.Grid, choices: Choices = Choices()) -> Reading:
    """Return the scores of a table, tidy, with what was understood of it.

    Raises UnclearError where it has more than one reading, and ValueError, with the place
    of the cell, where it has none.
    """
    return _Table(grid, choices).read()


class _Table:
    """One table on its way to a reading."""

    def __init__(self, grid: score_grid.Grid, choices: Choices) -> None:
        self.grid = grid
        self.choices = choices
        self.where = f"{grid.source}: " if grid.source else "scores: "
        self.names = [" ".join(filter(None, names)) for names in grid.columns]
        self._check_header()
        texts = (x for row in grid.cells for x in row if isinstance(x, str))
        try:
            self.commas = score_cells.decide_decimal(texts, choices.decimal)
        except ValueError as error:
            raise score_rows.UnclearError(
                self.where + _as_flags(str(error), grid.source)
            ) from None
        self.parsed = [[self._parse(x) for x in row] for row in grid.cells]
        self.roles = self._roles()
        self.unused = [
            f"{self.names[j]} (no scores)"
            for j in self._of("empty")
            if not all(score_grid.is_blank(row[j]) for row in grid.cells)
        ]
        self.spreads: dict[int, int] = {}  # The column of the spread of each of scores.

    # What columns are.

    def _check_header(self) -> None:
        doubled = [k for k, n in collections.Counter(self.names).items() if n > 1 and k]
        if doubled:
            raise ValueError(
                f"{self.where}every column must be named once, got {doubled[0]!r} twice; "
                "rename one, or give runs a column `run`"
            )
        if not self.grid.cells:
            raise ValueError(
                f"{self.where}must hold scores, got a header alone; add rows"
            )

    def _parse(self, value: Any) -> score_cells.Cell | None:
        if value is None or value is pd.NA:
            return score_cells.Cell(math.nan)
        if isinstance(value, str):
            return score_cells.parse(value, self.commas)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return score_cells.Cell(float(value))

    def _is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers, perhaps with missing cells among them."""
        cells = [row[column] for row in self.parsed]
        if any(cell is None for cell in cells):
            return False
        return any(not math.isnan(cell.value) for cell in cells)

    def _is_empty(self, column: int) -> bool:
        """Return whether all cells of a column are blank, or say that there is no score."""
        return all(self._is_missing(i, column) for i in range(len(self.parsed)))

    def _mostly_numeric(self, column: int) -> bool:
        """Return whether most of a column's cells that are filled are numbers."""
        is_number = [
            row[column] is not None
            for row, cells in zip(self.parsed, self.grid.cells, strict=True)
            if not score_grid.is_blank(cells[column])
        ]
        return 2 * sum(is_number) > len(is_number)

    def _looks_numeric(self, column: int) -> bool:
        """Return whether most cells of a column begin as numbers, readable or not.

        Values that are neither text nor numbers, such as dates, name nothing either.
        """
        cells = [
            x
            for x in self._column(self.grid.cells, column)
            if not score_grid.is_blank(x)
        ]
        begun = [
            x
            for x in cells
            if not isinstance(x, str) or _BEGINS.match(score_grid.label(x))
        ]
        return 2 * len(begun) > len(cells)

    @staticmethod
    def _column(rows: list[list[Any]], column: int) -> list[Any]:
        return [row[column] for row in rows]

    def _roles(self) -> list[str]:
        """Return the role of each column: those of `ROLES`, "number", "text" or "empty"."""
        chosen = self._chosen()
        roles = []
        for j, name in enumerate(self.names):
            if j in chosen:
                roles.append(chosen[j])
                continue
            has_one_line = not any(self.grid.columns[j][1:])
            role = column_names.meaning(name) if has_one_line else ""
            if role in self.choices.columns and role != "deviation":
                role = ""  # Another column was chosen.
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
        """Return whether a column counts, or is a difference: no scores of a data set."""
        name = self.names[column]
        if column_names.is_difference(name) or column_names.is_setting(name):
            return True
        word = column_names.word_of(name)
        counts = word == "n" or word.endswith("id")
        return column_names.is_bookkeeping(name) and not (
            counts and self._is_fractional(column)
        )

    def _is_spread_before(self, column: int) -> bool:
        """Return whether a column without a name has ±0.3 and the like for that before it."""
        texts = [
            str(x).strip()
            for x in self._column(self.grid.cells, column)
            if not score_grid.is_blank(x)
        ]
        if column == 0 or self.names[column] or not texts:
            return False
        return all(re.match(r"(?:±|\+/-|\+-|\$?\\pm)", text) for text in texts)

    def _is_fractional(self, column: int) -> bool:
        """Return whether a column holds numbers that are not whole, which name nothing."""
        return self._is_numeric(column) and any(
            not float(row[column].value).is_integer()
            for row in self.parsed
            if not math.isnan(row[column].value)
        )

    def _chosen(self) -> dict[int, str]:
        """Return the role of each column that the user named."""
        known = {}
        for j, name in enumerate(self.names):
            known.setdefault(name.strip().lower(), j)
        chosen = {}
        for role, text in self.choices.columns.items():
            if text in (HEADER, ORDER) or role == "score" and self._is_level(text):
                continue
            column_texts = [text] if text.strip().lower() in known else text.split("+")
            for name in column_texts:
                if name.strip().lower() not in known:
                    shown = ", ".join(filter(None, self.names))
                    raise ValueError(
                        f"{self.where}{_flag('columns', self.grid.source)}{role}={text} must name "
                        f"a column, got {name.strip()!r}; there are {shown}"
                    )
                chosen[known[name.strip().lower()]] = role
        return chosen

    def _is_level(self, text: str) -> bool:
        """Return whether a text is a metric in the second header line, or in a column."""
        in_header = any(
            len(names) > 1 and names[-1].strip().lower() == text.strip().lower()
            for names in self.grid.columns
        )
        in_column = any(
            column_names.word_of(name) in _METRIC_COLUMNS
            and text in (score_grid.label(row[j]) for row in self.grid.cells)
            for j, name in enumerate(self.names)
        )
        return in_header or in_column

    def _of(self, role: str) -> list[int]:
        return [j for j, known in enumerate(self.roles) if known == role]

    def _shown(self, columns: Sequence[int]) -> str:
        return ", ".join(self.names[j] or "(no name)" for j in columns)

    # From columns to a reading.

    def read(self) -> Reading:
        self._choose_metric()
        algorithms = self._columns_of_role("algorithm", self._of("algorithm"))
        datasets = self._columns_of_role("dataset", self._of("dataset"))
        if datasets and not algorithms:
            algorithms = self._algorithms_called_runs()
        if algorithms and datasets and not self.choices.rows:
            return self._read_long(algorithms, datasets)
        return self._read_wide(algorithms, datasets)

    def _choose_metric(self) -> None:
        """Keep the rows of one metric where a column names the metric of each row."""
        for j in self._of("text"):
            if column_names.word_of(self.names[j]) not in _METRIC_COLUMNS:
                continue
            metrics = [*self._labels_of([j])]
            chosen = self.choices.columns.get("score", "")
            if chosen not in metrics and len(metrics) > 1:
                raise self._unclear(
                    f"column {self.names[j]!r} has several metrics, {score_rows.listed(metrics)}",
                    *(("columns", f"score={name}") for name in metrics[:3]),
                )
            rows_of_metric = [
                i
                for i, row in enumerate(self.grid.cells)
                if score_grid.label(row[j]) == chosen or len(metrics) == 1
            ]
            self.grid = dataclasses.replace(
                self.grid,
                cells=[self.grid.cells[i] for i in rows_of_metric],
                places=[self.grid.places[i] for i in rows_of_metric],
            )
            self.parsed = [self.parsed[i] for i in rows_of_metric]

    def _algorithms_called_runs(self) -> list[int]:
        """Return the column of runs that holds names rather than numbers, where one does."""
        named = [
            j
            for j in self._of("run")
            if not all(map(column_names.run_of, self._labels_of([j])))
            and "run" not in self.choices.columns
        ]
        if len(named) != 1 or len(self._labels_of(named)) < 2 or not self._of("score"):
            return []
        self.roles[named[0]] = "algorithm"
        return named

    def _columns_of_role(self, role: str, columns: list[int]) -> list[int]:
        """Return the columns that make a role; refuse several of which none was chosen."""
        if len(columns) < 2 or role in self.choices.columns:
            return columns
        varied = [j for j in columns if len(self._labels_of([j])) > 1]
        if len(varied) < 2:
            left = varied or columns[:1]
            self._leave_out([j for j in columns if j not in left])
            return left
        plain = [j for j in varied if column_names.word_of(self.names[j]) == role]
        if len(plain) == 1:
            self._leave_out([j for j in columns if j not in plain])
            return plain
        names = [self.names[j] for j in varied]
        raise self._unclear(
            f"{' and '.join(map(repr, names))} may each name the {role}s",
            *(("columns", f"{role}={name}") for name in names),
            ("columns", f"{role}={'+'.join(names)}"),
        )

    def _leave_out(self, columns: Sequence[int]) -> None:
        for j in columns:
            self.unused.append(self.names[j] or "(no name)")
            self.roles[j] = "unused"

    def _labels_of(self, columns: Sequence[int]) -> dict[str, None]:
        return dict.fromkeys(
            " ".join(score_grid.label(row[j]) for j in columns)
            for row in self.grid.cells
        )

    def _unclear(self, fact: str, *choices: tuple[str, str]) -> score_rows.UnclearError:
        flags = [
            f"{_flag(name, self.grid.source)}{self._with_choices(name, value)}"
            for name, value in choices
        ]
        to_whom = "" if self.grid.source else " to jbias.read_scores"
        return score_rows.UnclearError(
            f"{self.where}{fact}; say which{to_whom}: {' or '.join(flags)}"
        )

    def _with_choices(self, name: str, value: str) -> str:
        """Return a suggested choice of columns beside those that the user gave already."""
        if name != "columns":
            return value
        roles = {pair.partition("=")[0] for pair in value.split(",")}
        choices = [
            f"{k}={v}" for k, v in self.choices.columns.items() if k not in roles
        ]
        return ",".join([*choices, value])

    def _read_long(self, algorithms: list[int], datasets: list[int]) -> Reading:
        scores = self._scores_of_long()
        if len(scores) > 1:  # Columns are runs.
            return self._read_runs_in_columns(algorithms, datasets, scores)
        named = self.spreads
        deviations = [j for j in self._of("deviation") if self._is_numeric(j)][:1]
        deviations = [named[j] for j in scores if j in named] or deviations
        self._leave_out(
            [*self._of("text"), *self._of("number"), *self._of("bookkeeping")]
        )
        rows = []
        names = self._filled(algorithms), self._filled(datasets)
        runs = self._of("run")
        for i in range(len(self.grid.cells)):
            if all(score_grid.is_blank(x) for x in self.grid.cells[i]):
                continue
            row = self._row(
                i,
                scores[0],
                algorithm=names[0][i],
                dataset=names[1][i],
                run=self._run_of_row(i, runs),
                spread_column=deviations[0] if deviations else None,
            )
            rows.append(dataclasses.replace(row, place=self.grid.places[i]))
        runs_from = self._runs_from(runs)
        if self.choices.columns.get("run") == ORDER:
            rows = score_rows.number_runs(rows)
            runs_from = "the order of rows"
        self._check_once(rows, has_runs=bool(runs))
        return self._reading(rows, "long table", runs_from)

    def _trained(self, i: int) -> bool | None:
        columns = self._of("trained_on")
        if not columns:
            return None
        word = score_grid.label(self.grid.cells[i][columns[0]]).lower()
        if word not in ("1", "yes", "true", "", "0", "no", "false"):
            raise ValueError(
                f"{self.grid.places[i]}: trained_on must be yes or no, got {word!r}"
            )
        return word in ("1", "yes", "true")

    def _scores_of_long(self) -> list[int]:
        """Return the column of scores, or those of runs."""
        scores = self._of("score")
        self.spreads = self._spreads([*scores, *self._of("number")])
        spreads = set(self.spreads.values())
        numbers = [j for j in self._of("number") if j not in spreads]
        scores = [j for j in scores if j not in spreads]
        plain = [j for j in scores if column_names.word_of(self.names[j]) == "score"]
        chosen_score = self.choices.columns.get("score", "")
        is_chosen = bool(chosen_score) and not self._is_level(chosen_score)
        if is_chosen or len(scores) == 1 or len(plain) == 1:
            chosen = (
                plain
                if len(plain) == 1 and "score" not in self.choices.columns
                else scores
            )
            self._leave_out([j for j in scores if j not in chosen])
            return chosen
        if not scores:
            if len(numbers) > 1 and all(
                column_names.run_of(self.names[j]) for j in numbers
            ):
                return numbers
            if len(numbers) == 1:
                self.roles[numbers[0]] = "score"
                return numbers
            scores = numbers
        unreadable = [
            j for j, name in enumerate(self.names) if column_names.is_metric(name)
        ]
        if not scores and len(unreadable) == 1:
            return unreadable  # Its cells are refused, each by its place.
        if not scores:
            raise ValueError(
                f"{self.where}a column must hold the scores, got no numbers in "
                f"{', '.join(self.names)}; name it score, or give "
                f"{_flag('columns', self.grid.source)}score=NAME"
            )
        names = [self.names[j] for j in scores]
        names = sorted(names, key=column_names.is_of_training)
        raise self._unclear(
            f"{score_rows.listed(names)} may each be the score",
            *(("columns", f"score={name}") for name in names[:3]),
        )

    def _read_runs_in_columns(self, algorithms, datasets, columns) -> Reading:
        labels = (self._filled(algorithms), self._filled(datasets))
        rows = []
        for i in range(len(self.grid.cells)):
            for j in columns:
                if score_grid.is_blank(self.grid.cells[i][j]) or self._is_missing(i, j):
                    continue
                rows.append(
                    self._row(
                        i,
                        j,
                        algorithm=labels[0][i],
                        dataset=labels[1][i],
                        run=self.names[j].strip(),
                    )
                )
        self._leave_out([*self._of("text"), *self._of("bookkeeping"), *self._of("run")])
        self._check_once(rows, has_runs=True)
        return self._reading(rows, "long table", "columns of runs")

    def _is_missing(self, i: int, j: int) -> bool:
        """Return whether a cell is blank, or says that there is no score."""
        cell = self.parsed[i][j]
        return cell is not None and math.isnan(cell.value)

    def _read_wide(self, algorithms: list[int], datasets: list[int]) -> Reading:
        labels = self._label_columns(algorithms, datasets)
        if not labels:
            return self._read_rows_of_runs()
        self._split_run_names(labels)
        values = self._value_columns(labels)
        heads, runs_in_header, spreads = self._heads(values)
        if (
            len(values) == 1
            and column_names.is_metric(self.names[values[0]])
            and not spreads
        ):
            return self._read_one_set(labels, values[0])
        if not heads:
            raise ValueError(f"{self.where}must have columns of scores, got none")
        is_rows_algorithms = self._rows_are_algorithms(
            labels, algorithms, datasets, heads
        )
        self._drop_headings(labels, [*heads])
        self._refuse_statistics(
            self._filled(labels), [head for head, _ in heads.values()]
        )
        row_names = self._filled(labels)
        runs = [j for j in self._of("run") if j not in labels]
        row_runs = self._runs_of_rows(row_names, runs, runs_in_header)
        has_runs = bool(runs) or runs_in_header or any(row_runs)
        rows = []
        for i, row_name in enumerate(row_names):
            if all(score_grid.is_blank(x) for x in self.grid.cells[i]):
                continue
            for j, (head, run) in heads.items():
                rows.append(
                    self._row(
                        i,
                        j,
                        algorithm=row_name if is_rows_algorithms else head,
                        dataset=head if is_rows_algorithms else row_name,
                        run=run or row_runs[i],
                        spread_column=spreads.get(j),
                    )
                )
        rows = score_rows.without_absent_runs(rows) if has_runs else rows
        self._check_once(rows, has_runs=has_runs)
        where = "rows" if is_rows_algorithms else "columns"
        kind = f"wide table with the algorithms in {where}"
        source = self._runs_from(runs) if runs else ""
        if runs_in_header:
            has_two_lines = len(self.grid.levels) > 1
            source = "the second header line" if has_two_lines else "the header line"
        elif has_runs and not runs:
            source = "rows of the same name, in order"
        return self._reading(rows, kind, source)

    def _refuse_statistics(self, *axes: Sequence[str]) -> None:
        """Refuse a table of statistics, such as pandas' describe() gives."""
        for names in axes:
            words = {name.lower().strip() for name in names}
            if len(words & _STATISTICS) >= 3:
                shown = ", ".join(sorted(words & _STATISTICS))
                raise ValueError(
                    f"{self.where}must hold scores of data sets, got statistics ({shown}); give "
                    "the scores that they are of"
                )

    def _drop_headings(self, labels: list[int], values: list[int]) -> None:
        """Leave out rows that are headings over others: a name, and blanks in all columns."""
        headings = []
        for i, row in enumerate(self.grid.cells):
            is_named = any(not score_grid.is_blank(row[j]) for j in labels)
            if is_named and all(
                score_grid.is_blank(x) for j, x in enumerate(row) if j not in labels
            ):
                headings.append(i)
        if not headings:
            return
        names = [
            " ".join(score_grid.label(self.grid.cells[i][j]) for j in labels)
            for i in headings
        ]
        other_rows = [i for i in range(len(self.grid.cells)) if i not in set(headings)]
        below = [
            " ".join(score_grid.label(self.grid.cells[i][j]) for j in labels)
            for i in other_rows
        ]
        if len(set(below)) < len(below) and not self._of("run"):
            raise ValueError(
                f"{self.grid.places[headings[0]]}: rows of the same name stand under several "
                f"headings ({score_rows.listed(names)}); give one part of the table, or write the heading "
                "into each name"
            )
        self.unused.extend(f"the row {name!r}, which has no scores" for name in names)
        self.grid = dataclasses.replace(
            self.grid,
            cells=[self.grid.cells[i] for i in other_rows],
            places=[self.grid.places[i] for i in other_rows],
        )
        self.parsed = [self.parsed[i] for i in other_rows]

    def _label_columns(self, algorithms: list[int], datasets: list[int]) -> list[int]:
        """Return the columns that name the rows of a wide table."""
        if algorithms and datasets:  # `rows` was chosen.
            labels = algorithms if self.choices.rows == "algorithms" else datasets
            self._leave_out([j for j in (*algorithms, *datasets) if j not in labels])
            return labels
        if algorithms or datasets:
            labels = algorithms or datasets
            self._leave_out(self._of("text"))
            return labels
        texts = self._of("text")
        texts = [j for j in texts if len(self._labels_of([j])) > 1] or texts
        named_runs = [j for j in self._of("run") if not self._is_numeric(j)]
        run_labels = self._labels_of(named_runs)
        if (
            not texts
            and len(named_runs) == 1
            and not all(map(column_names.run_of, run_labels))
        ):
            return named_runs  # Names of algorithms under "run".
        if not texts and self._of("run"):
            return []  # Rows are runs of one data set.
        if not texts:
            index = [
                j
                for j in self._of("number")
                if column_names.INDEX.fullmatch(self.names[j].lower())
                or not self.names[j]
            ]
            if len(index) == 1 and len(self._of("number")) > 2:
                return index
            raise ValueError(
                f"{self.where}a column must name the algorithms or the data sets, got "
                f"{score_rows.listed(self.names)}; name it algorithm, or give "
                f"{_flag('columns', self.grid.source)}algorithm=NAME"
            )
        if len(texts) > 1:
            names = [self.names[j] or "(no name)" for j in texts]
            raise self._unclear(
                f"{score_rows.listed(names)} may each name the algorithms or the data sets",
                ("columns", f"algorithm={names[0]}"),
                ("columns", f"algorithm={names[0]},dataset={names[1]}"),
            )
        self._find_unnamed_runs(texts)
        return texts

    def _split_run_names(self, labels: list[int]) -> None:
        """Split labels that all end in their run, as ERM_seed0 does, into name and run."""
        if self._of("run") or self.choices.columns.get("algorithm") or len(labels) > 1:
            return
        texts = [score_grid.label(row[labels[0]]) for row in self.grid.cells]
        matches = [column_names.RUN_NAME.fullmatch(text) for text in texts]
        if not all(matches) or len({match[1] for match in matches}) == len(matches):
            return
        for row, match in zip(self.grid.cells, matches, strict=True):
            row[labels[0]] = match[1]
            row.append(match[2])
        for parsed, match in zip(self.parsed, matches, strict=True):
            parsed.append(score_cells.parse(match[2], self.commas))
        self.names.append(f"end of {self.names[labels[0]] or 'the name'}")
        self.roles.append("run")

    def _find_unnamed_runs(self, labels: list[int]) -> None:
        """Give the role of runs to whole numbers without a name beside repeated labels."""
        if self._of("run"):
            return
        for j in self._of("number"):
            if self.names[j] and not column_names.INDEX.fullmatch(
                self.names[j].lower()
            ):
                continue
            numbers = [score_grid.label(row[j]) for row in self.grid.cells]
            is_whole = all(column_names.WHOLE.fullmatch(x) for x in numbers)
            if is_whole and len(set(numbers)) < len(numbers):
                self.roles[j] = "run"
                return

    def _value_columns(self, labels: list[int]) -> list[int]:
        values = [
            j for j in (*self._of("number"), *self._of("score")) if j not in labels
        ]
        unnamed = [
            j
            for j in values
            if not self.names[j] or column_names.INDEX.fullmatch(self.names[j].lower())
        ]
        for j in unnamed:  # A column of counted rows, as to_csv writes it.
            texts = [score_grid.label(x) for x in self._column(self.grid.cells, j)]
            if not all(column_names.WHOLE.fullmatch(text) for text in texts):
                neighbour = self.names[j - 1] or "(no name)"
                raise score_rows.UnclearError(
                    f"{self.where}column {j + 1} has no name, and may hold scores or the "
                    f"deviations of {neighbour!r}; name it, as in {neighbour} std"
                )
        self._leave_out(unnamed)
        values = [j for j in values if j not in unnamed]
        self._leave_out([j for j in self._of("bookkeeping") if j not in labels])
        if "score" in self.choices.columns and not self._is_level(
            self.choices.columns["score"]
        ):
            chosen = self._of("score")
            self._leave_out([j for j in values if j not in chosen])
            values = chosen
        return sorted(values)

    def _heads(self, values: list[int]):
        """Return (name, run) of each column of scores, whether runs are in it, and spreads."""
        tops = {j: self.grid.columns[j] for j in values}
        if any(len(names) > 1 and names[-1] for names in tops.values()):
            return self._heads_of_two_lines(values)
        spreads = self._spreads(values)
        for j in self._of("spread"):
            spreads[j - 1] = j
            for row, cells in zip(self.parsed, self.grid.cells, strict=True):
                digits = re.sub(r"^(?:±|\+/-|\+-|\$?\\pm)", "", str(cells[j]).strip())
                row[j] = score_cells.parse(digits, self.commas)
        deviations = set(spreads.values())
        alone = [j for j in self._of("deviation") if j not in deviations]
        self._leave_out(alone)
        values = [j for j in values if j not in deviations]
        values = self._without_training(values)
        values = self._without_summaries_of_runs(values)
        metrics = [
            j
            for j in values
            if column_names.is_metric(self.names[j])
            and not column_names.is_average(self.names[j])
        ]
        if len(metrics) > 1 and not self.choices.rows:
            names = [self.names[j] for j in metrics]
            raise self._unclear(
                f"{score_rows.listed(names)} may be metrics of one data set, or data sets",
                ("columns", f"score={names[0]}"),
                ("rows", "algorithms"),
            )
        is_set = self.choices.columns.get("dataset") == HEADER or self.choices.rows
        is_set = is_set or column_names.meaning(self.grid.levels[0]) in (
            "dataset",
            "algorithm",
        )
        if (
            len(values) > 1
            and all(column_names.run_of(self.names[j]) for j in values)
            and not is_set
        ):
            return self._heads_that_count(values), True, {}
        names = _without_metric([self.names[j] for j in values])
        return (
            {j: (name, "") for j, name in zip(values, names, strict=True)},
            False,
            spreads,
        )

    def _without_training(self, values: list[int]) -> list[int]:
        """Leave out columns of training and validation, where others are of test sets."""
        training = [j for j in values if column_names.is_of_training(self.names[j])]
        tested = [j for j in values if j not in training]
        if not training or len(tested) < 2 or self.choices.rows == "datasets":
            return values
        self._leave_out(training)
        return tested

    def _without_summaries_of_runs(self, values: list[int]) -> list[int]:
        """Leave out a mean beside columns that are called seed 1, seed 2 and so on."""
        runs = [j for j in values if column_names.is_run_name(self.names[j])]
        if self.choices.columns.get("run") == HEADER:
            runs = [j for j in values if column_names.run_of(self.names[j])]
        if len(runs) < 2 or len(runs) == len(values):
            return values
        summaries = [j for j in values if j not in runs]
        if all(_is_summary(self.names[j]) for j in summaries):
            self._leave_out(summaries)
            return runs
        raise score_rows.UnclearError(
            f"{self.where}columns {score_rows.listed([self.names[j] for j in runs])} are runs, and "
            f"{score_rows.listed([self.names[j] for j in summaries])} are not; leave these out: "
            f"{_flag('columns', self.grid.source)}ignore={self.names[summaries[0]]}"
        )

    def _heads_that_count(self, values: list[int]) -> dict[int, tuple[str, str]]:
        """Return the heads of columns called seed0, seed1, ..., which are runs."""
        names = [self.names[j] for j in values]
        is_said = bool(self.grid.levels[0]) or self.choices.columns.get("run") == HEADER
        if all(column_names.WHOLE.fullmatch(name) for name in names) and not is_said:
            raise self._unclear(
                f"columns {score_rows.listed(names)} may be runs of one data set, or data sets",
                ("columns", "run=header"),
                ("columns", "dataset=header"),
            )
        return {j: (self.grid.title, self.names[j]) for j in values}

    def _spreads(self, values: list[int]) -> dict[int, int]:
        """Return the column of the spread of each column that has one: photo, photo_std."""
        known = {column_names.word_of(self.names[j]): j for j in values}
        spreads = {}
        candidates = [*values, *self._of("deviation")]
        for j in candidates:
            word = column_names.word_of(self.names[j])
            for ending in column_names.NAMES["deviation"]:
                for base in (
                    word.removesuffix(f"_{ending}"),
                    word.removeprefix(f"{ending}_"),
                ):
                    if base == word:
                        continue
                    for name in (base, f"{base}_mean", f"mean_{base}"):
                        if name in known and known[name] != j:
                            spreads.setdefault(known[name], j)
        return spreads

    def _heads_of_two_lines(self, values: list[int]):
        tops = [self.grid.columns[j][0] for j in values]
        lows = [self.grid.columns[j][-1] for j in values]
        levels = [
            column_names.meaning(x) for x in (self.grid.levels[0], self.grid.levels[-1])
        ]
        if levels[0] == "run" or (
            all(map(column_names.run_of, tops))
            and not all(map(column_names.run_of, lows))
        ):
            tops, lows, levels = lows, tops, levels[::-1]
        words = [column_names.word_of(x) for x in lows]
        is_run = levels[1] == "run" or all(map(column_names.run_of, lows))
        if (
            is_run
            and levels[1] != "run"
            and all(map(column_names.WHOLE.fullmatch, lows))
            and not _repeats(tops, lows)
        ):
            is_run = False
        if is_run:
            return (
                {j: (top, low) for j, top, low in zip(values, tops, lows, strict=True)},
                True,
                {},
            )
        spreads = {
            j: k
            for j, top, word in zip(values, tops, words)
            for k, top_of_spread, low in zip(values, tops, words)
            if top == top_of_spread
            and low in column_names.NAMES["deviation"]
            and word not in column_names.NAMES["deviation"]
        }
        score_columns = [j for j in values if j not in spreads.values()]
        texts = {j: (top, low) for j, top, low in zip(values, tops, lows)}
        chosen = self.choices.columns.get("score", "").strip().lower()
        metrics = list(dict.fromkeys(texts[j][1] for j in score_columns))
        if all(column_names.is_metric(x) for x in metrics):
            if len(metrics) > 1 and not chosen:
                raise self._unclear(
                    f"the second header line has several metrics, {score_rows.listed(metrics)}",
                    *(("columns", f"score={name}") for name in metrics[:3]),
                )
            if chosen:
                score_columns = [
                    j for j in score_columns if texts[j][1].strip().lower() == chosen
                ]
            return {j: (texts[j][0], "") for j in score_columns}, False, spreads
        lower = [texts[j][1] or texts[j][0] for j in score_columns]
        if len(set(lower)) == len(lower):  # The upper line only groups them.
            return (
                {j: (name, "") for j, name in zip(score_columns, lower)},
                False,
                spreads,
            )
        return (
            {j: (" ".join(filter(None, texts[j])), "") for j in score_columns},
            False,
            spreads,
        )

    def _read_rows_of_runs(self) -> Reading:
        """Return the scores of a table of one data set: a row a run, a column an algorithm."""
        values = self._value_columns([])
        heads, _, _ = self._heads(values)
        names = [head for head, _ in heads.values()]
        is_said = self.choices.columns.get("algorithm") == HEADER
        is_said = is_said or self.choices.rows == "datasets"
        is_known = column_names.count_known(names, "algorithms") >= _ENOUGH_KNOWN
        if not is_said and (
            not is_known or column_names.count_known(names, "datasets")
        ):
            raise self._unclear(
                f"columns {score_rows.listed(names)} may be algorithms on one data set, or data sets "
                "of one algorithm; no column names the other",
                ("columns", "algorithm=header"),
            )
        runs = self._of("run")
        rows = [
            self._row(
                i,
                j,
                algorithm=head,
                dataset=self.grid.title,
                run=self._run_of_row(i, runs),
            )
            for i in range(len(self.grid.cells))
            for j, (head, _) in heads.items()
        ]
        rows = score_rows.without_absent_runs(rows)
        self._check_once(rows, has_runs=True)
        kind = "table of one data set with the algorithms in columns"
        return self._reading(rows, kind, self._runs_from(runs))

    def _read_one_set(self, labels: list[int], column: int) -> Reading:
        """Return the scores of a table of one data set that it does not name."""
        if (
            column_names.meaning(self.names[labels[0]]) == "dataset"
            or self.choices.rows == "datasets"
        ):
            raise ValueError(
                f"{self.where}a column must name the algorithms, got {score_rows.listed(self.names)}; "
                f"add one, or give {_flag('columns', self.grid.source)}algorithm=NAME"
            )
        row_names = self._filled(labels)
        is_clear = column_names.meaning(self.names[labels[0]]) == "algorithm"
        is_clear = (
            is_clear or "algorithm" in self.roles or self.choices.rows == "algorithms"
        )
        if not is_clear and not column_names.count_known(row_names, "algorithms"):
            name = self.names[labels[0]] or "(no name)"
            raise self._unclear(
                f"{name!r} may name algorithms on one data set, or data sets of one algorithm",
                ("columns", f"algorithm={name}"),
                ("rows", "algorithms"),
            )
        runs = [j for j in self._of("run") if j not in labels]
        row_runs = self._runs_of_rows(row_names, runs, runs_in_header=False)
        rows = [
            self._row(
                i,
                column,
                algorithm=row_name,
                dataset=self.grid.title,
                run=row_runs[i],
            )
            for i, row_name in enumerate(row_names)
            if not all(score_grid.is_blank(x) for x in self.grid.cells[i])
        ]
        self._check_once(rows, has_runs=any(row_runs))
        source = self._runs_from(runs) or (
            "rows of the same name, in order" if any(row_runs) else ""
        )
        return self._reading(rows, "table of one data set", source)

    def _rows_are_algorithms(self, labels, algorithms, datasets, heads) -> bool:
        """Return whether rows are algorithms and columns data sets; refuse a doubt."""
        if self.choices.rows:
            return self.choices.rows == "algorithms"
        for role in ("algorithm", "dataset"):
            if self.choices.columns.get(role) == HEADER:
                return role == "dataset"
        corner = [
            column_names.meaning(x) for x in _CORNER.split(self.names[labels[0]]) if x
        ]
        if len(corner) == 2 and set(corner) == {"algorithm", "dataset"}:
            return corner[0] == "algorithm"
        of_header = [column_names.meaning(level) for level in self.grid.levels]
        if "dataset" in of_header or "algorithm" in of_header:
            return "dataset" in of_header
        if algorithms or datasets:
            return bool(algorithms)
        row_names = [*self._labels_of(labels)]
        head_names = [head for head, _ in heads.values()]
        readings = {
            True: column_names.count_known(row_names, "algorithms")
            + column_names.count_known(head_names, "datasets"),
            False: column_names.count_known(row_names, "datasets")
            + column_names.count_known(head_names, "algorithms"),
        }
        if max(readings.values()) >= _ENOUGH_KNOWN and not min(readings.values()):
            return readings[True] > readings[False]
        raise self._unclear(
            f"rows ({score_rows.listed(row_names)}) may be algorithms and columns ({score_rows.listed(head_names)}) "
            "data sets, or the other way round",
            ("rows", "algorithms"),
            ("rows", "datasets"),
        )

    def _runs_of_rows(self, row_names, runs, runs_in_header: bool) -> list[str]:
        """Return the run of each row: of its columns, or its number among rows of its name."""
        if runs:
            return [self._run_of_row(i, runs) for i in range(len(self.grid.cells))]
        if runs_in_header or len(set(row_names)) == len(row_names):
            return [""] * len(row_names)
        counts: collections.Counter = collections.Counter()
        numbers = []
        for name in row_names:
            numbers.append(str(counts[name]))
            counts[name] += 1
        self._check_repeats(counts)
        return numbers

    def _check_repeats(self, counts: collections.Counter) -> None:
        """Refuse rows of one name that are not clearly its runs."""
        is_said = self.choices.columns.get("run") == ORDER
        columns = {name or "(no name)": j for j, name in enumerate(self.names)}
        varied = [
            name
            for name in self.unused
            if name in columns and len(self._labels_of([columns[name]])) > 1
        ]
        name, number = counts.most_common(1)[0]
        flag = _flag("columns", self.grid.source)
        if varied and not is_said:
            raise score_rows.UnclearError(
                f"{self.where}{number} rows are called {name!r}, and {varied[0]!r} tells them "
                f"apart; say whether it is the run, {flag}run={varied[0]}, or part of the name, "
                f"{flag}algorithm=NAME+{varied[0]}; or {flag}run={ORDER} if rows are runs in order"
            )
        if min(counts.values()) == 1 and not is_said:
            raise score_rows.UnclearError(
                f"{self.where}{number} rows are called {name!r}, others have one row; remove "
                f"what is twice, or say that rows are runs, in order: {flag}run={ORDER}"
            )

    def _filled(self, columns: list[int]) -> list[str]:
        """Return the labels of rows; a blank one repeats that above, as in merged cells."""
        labels = []
        may_repeat = any(
            j not in columns
            for j in (*self._of("run"), *self._of("dataset"), *self._of("algorithm"))
        )
        for row in self.grid.cells:
            names = [score_grid.label(row[j]) for j in columns]
            is_blank = all(not part for part in names) and not all(
                score_grid.is_blank(x) for x in row
            )
            if is_blank and may_repeat and labels:
                labels.append(labels[-1])
            else:
                labels.append(" ".join(filter(None, names)))
        return labels

    def _run_of_row(self, i: int, columns: Sequence[int]) -> str:
        """Return the run that a row's columns name, joined by "/" where they are several."""
        return "/".join(score_grid.label(self.grid.cells[i][j]) for j in columns)

    def _row(
        self,
        i: int,
        j: int,
        *,
        algorithm: str,
        dataset: str,
        run: str,
        spread_column: int | None = None,
    ) -> score_rows.Row:
        """Return the score in row i and column j, whose spread may have a column of its own."""
        cell = self._cell(i, j, algorithm, dataset)
        if spread_column is not None:
            spread = self.parsed[i][spread_column]
            value = spread.value if spread else math.nan
            cell = dataclasses.replace(cell, spread=value, is_summary=True)
        return score_rows.Row(
            algorithm=self._named(algorithm, i, "algorithm"),
            dataset=self._named(dataset, i, "dataset"),
            run=run,
            cell=cell,
            place=f"{self.grid.places[i]}, column {self.names[j]!r}",
            trained_on=self._trained(i),
        )

    def _named(self, name: str, i: int, role: str) -> str:
        if not name or name.lower() in ("nan", "none", "nat", "<na>"):
            raise ValueError(
                f"{self.grid.places[i]}: {role} must not be empty; name it in every row"
            )
        return name

    def _cell(self, i: int, j: int, algorithm: str, dataset: str) -> score_cells.Cell:
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
                f"{self.grid.places[i]}: the brackets in {score_grid.label(self.grid.cells[i][j])!r} may be a "
                "deviation, or a rank and the like; say which: "
                f"{_flag('brackets', source)}deviation or {_flag('brackets', source)}ignore"
            )
        if self.choices.brackets == "ignore":
            return dataclasses.replace(cell, spread=math.nan, is_summary=False)
        return cell

    def _check_once(self, rows: list[score_rows.Row], *, has_runs: bool) -> None:
        places: dict = {}
        for row in rows:
            key = (row.algorithm, row.dataset, row.run)
            if places.setdefault(key, row.place) != row.place:
                remedy = "remove one of the two"
                if not has_runs:
                    flag = _flag("columns", self.grid.source)
                    remedy += (
                        " or tell them apart in a column `run`; if rows of one cell are its "
                        f"runs, in order: {flag}run={ORDER}"
                    )
                    if self.unused:
                        remedy += f"; if {self.unused[0]!r} is the run: {flag}run={self.unused[0]}"
                raise ValueError(
                    f"{row.place}: a score must occur once, got that of {places[key]} again "
                    f"({row.algorithm} on {row.dataset}); {remedy}"
                )

    def _runs_from(self, runs: list[int]) -> str:
        return f"column {self._shown(runs)!r}" if runs else ""

    # What was understood.

    def _reading(
        self, rows: list[score_rows.Row], kind: str, runs_from: str
    ) -> Reading:
        """Return the reading of a kind of table; runs_from: where runs are named, or ""."""
        if not rows:
            raise ValueError(f"{self.where}must hold scores, got none; add rows")
        has_signs = score_rows.has_percent_signs(rows)
        tidy = score_rows.to_frame(rows)
        unit = score_rows.describe_unit(
            tidy, has_signs=has_signs, decimal=self.commas.decimal, unused=self.unused
        )
        return Reading(
            tidy=tidy,
            description=(
                score_rows.describe_shape(tidy, kind),
                score_rows.describe_runs(tidy, runs_from),
                unit,
            ),
            is_summary=score_rows.is_summary(rows),
            unused=tuple(self.unused),
        )


def _flag(name: str, source: str) -> str:
    """Return how the user gives a choice: a flag for a file, else an argument."""
    return f"--{name}=" if source else f"{name}="


def _as_flags(text: str, source: str) -> str:
    return re.sub(r"\bdecimal=", "--decimal=", text) if source else text


def _without_metric(names: list[str]) -> list[str]:
    """Return names such as test_acc/photo without the metric before "/" that all have."""
    splits = [name.rpartition("/") for name in names]
    metrics = {metric for metric, _, _ in splits}
    if len(names) > 1 and len(metrics) == 1 and column_names.is_metric(metrics.pop()):
        return [name for _, _, name in splits]
    return names


def _is_summary(name: str) -> bool:
    """Return whether a column's name is that of a statistic over runs."""
    word = column_names.word_of(name)
    return (
        column_names.is_average(name)
        or word in column_names.NAMES["deviation"]
        or word in _STATISTICS
    )


def _shown_cell(value: Any) -> str:
    """Return how a message shows a cell that is no score, with its kind where that helps."""
    if isinstance(value, bool):
        return f"the truth value {value} (bool)"
    if hasattr(value, "isoformat"):
        return f"the date {value.isoformat()}, as spreadsheets make of numbers"
    return repr(score_grid.label(value))


def _repeats(tops: Sequence[str], lows: Sequence[str]) -> bool:
    """Return whether each upper name has the same lower names."""
    by_top: dict[str, list[str]] = {}
    for top, low in zip(tops, lows, strict=True):
        by_top.setdefault(top, []).append(low)
    return len(by_top) > 1 and len({tuple(x) for x in by_top.values()}) == 1
