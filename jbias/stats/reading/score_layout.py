"""Conversion of any table of scores to a tidy one: the roles of columns and axes.

Long tables name the algorithm, the data set and the score of each row. Wide tables have a row
per algorithm and a column per data set, or a row per data set and a column per algorithm. Such
tables may also have a column of seeds or a second header line. Columns and axes are recognised by
names (`column_names`). If names leave several readings, this module does not guess: it raises
UnclearError with the readings and the choice (`score_columns.Choices`) that selects one.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from jbias.stats.reading import (
    column_names,
    score_cells,
    score_columns,
    score_grid,
    score_headers,
    score_margins,
    score_rows,
)

_CORNER = re.compile(r"\s*(?:/|\\|\||→|↓|vs\.?|\bby\b|x|×)\s*")
# Known names needed to tell algorithms from data sets; a single one may be chance.
_MIN_KNOWN = 2
_STATISTICS = frozenset(("count", "std", "min", "max", "25%", "50%", "75%", "median"))
WIDE = ("algorithms", "datasets")
BRACKETS = ("deviation", "ignore")


class _Heads(NamedTuple):
    """The header of the columns of scores, by index of the column."""

    names: dict[
        int, tuple[str, str]
    ]  # Name of an algorithm or data set, and run or "".
    have_runs: bool  # The header names runs.
    spreads: dict[int, int]  # Column of the spread, for columns that have one.


@dataclasses.dataclass(frozen=True)
class Reading:
    """A tidy table, and a description of the original table as it was read.

    tidy: frame with the columns algorithm, dataset, run, score (NaN if missing) and place (the
    cell's name in messages), and deviation and trained_on if the table has them.
    description: three lines for the user: names, runs, and values.
    is_summary: whether scores are means with a spread over runs that the table does not have.
    unused: names of columns and rows that were not used.
    unfinished: description of the rows left out because their runs did not finish, or "".
    """

    tidy: pd.DataFrame
    description: tuple[str, ...]
    is_summary: bool
    unused: tuple[str, ...]
    unfinished: str = ""


def arrange(
    grid: score_grid.Grid, choices: score_columns.Choices | None = None
) -> Reading:
    """Return the tidy scores of a table, with a description of the table.

    choices: the user's choices between several readings; None for no choice.
    Raise UnclearError if the table has more than one reading, and ValueError, which names the cell,
    if the table has no reading.
    """
    header = score_headers.simplify(grid, choices or score_columns.Choices())
    table = _Table(
        header.grid,
        header.choices,
        unused=header.unused,
        errors=header.errors,
        kind=header.kind,
    )
    return table.read()


class _Table(score_columns.Columns):
    """A reader of one table of scores; `read` changes its columns and rows.

    In all methods, columns and rows are indices. labels: columns that name the rows.
    values: columns of scores.
    """

    def read(self) -> Reading:
        """Return the reading of a long or wide table.

        Rows of unfinished runs, and of metrics other than the chosen one, are removed first. A
        table with columns of algorithms and of data sets is long, unless the user chose the meaning
        of rows.
        """
        self.leave_out_unfinished()
        self._choose_metric()
        algorithms = self._columns_of_role("algorithm", self.columns_of("algorithm"))
        datasets = self._columns_of_role("dataset", self.columns_of("dataset"))
        if datasets and not algorithms:
            algorithms = self._algorithms_called_runs()
        if algorithms and datasets and not self.choices.rows:
            return self._read_long(algorithms, datasets)
        return self._read_wide(algorithms, datasets)

    def _choose_metric(self) -> None:
        """Keep the rows of one metric, if a column names the metric of each row.

        The column of metrics is a column of text with a name such as metric, measure or variable.
        Raise UnclearError for several metrics, unless the user chose one.
        """
        for j in self.columns_of("text"):
            if column_names.word_of(self.names[j]) not in score_columns.METRIC_COLUMNS:
                continue
            metrics = [*self.labels_of([j])]
            chosen = self.choices.columns.get("score", "")
            if chosen not in metrics and len(metrics) > 1:
                raise self.unclear(
                    f"column {self.names[j]!r} has several metrics, "
                    f"{score_rows.listed(metrics)}",
                    *(("columns", f"score={name}") for name in metrics[:3]),
                )
            rows_of_metric = [
                i
                for i, row in enumerate(self.grid.cells)
                if score_grid.label(row[j]) == chosen or len(metrics) == 1
            ]
            self.keep_rows(rows_of_metric)

    def _algorithms_called_runs(self) -> list[int]:
        """Return [index of the column of runs] if its labels are names of algorithms; else [].

        The labels are names of algorithms if there are several, not all numbered runs such as "seed
        3", if there is a column of scores, and if the user chose no column of runs. The role of the
        column is then changed to "algorithm". The result is also [] for several such columns.
        """
        named = [
            j
            for j in self.columns_of("run")
            if not all(map(column_names.run_of, self.labels_of([j])))
            and "run" not in self.choices.columns
        ]
        if (
            len(named) != 1
            or len(self.labels_of(named)) < 2
            or not self.columns_of("score")
        ):
            return []
        self.roles[named[0]] = "algorithm"
        return named

    def _columns_of_role(self, role: str, columns: list[int]) -> list[int]:
        """Return the columns to use for a role; `columns`: all columns that have the role.

        Fewer than two columns, and columns that the user chose, are returned unchanged. Columns
        with the same text in all rows are left out; if all columns have such text, the first is
        used. If several columns remain, the one with the name of the role is used. Raise
        UnclearError if no remaining column, or more than one, has this name.
        """
        if len(columns) < 2 or role in self.choices.columns:
            return columns
        varied = [j for j in columns if len(self.labels_of([j])) > 1]
        if len(varied) < 2:
            used = varied or columns[:1]
            self.leave_out([j for j in columns if j not in used])
            return used
        plain = [j for j in varied if column_names.word_of(self.names[j]) == role]
        if len(plain) == 1:
            self.leave_out([j for j in columns if j not in plain])
            return plain
        names = [self.names[j] for j in varied]
        raise self.unclear(
            f"{' and '.join(map(repr, names))} may each name the {role}s",
            *(("columns", f"{role}={name}") for name in names),
            ("columns", f"{role}={'+'.join(names)}"),
        )

    def _read_long(self, algorithms: list[int], datasets: list[int]) -> Reading:
        """Return the reading of a long table; blank rows are left out.

        algorithms, datasets: columns of their names. Raise UnclearError or ValueError as
        `_scores_of_long` does, and ValueError for a score that occurs twice.
        """
        scores = self._scores_of_long()
        if len(scores) > 1:  # Columns are runs.
            return self._read_runs_in_columns(algorithms, datasets, scores)
        named = self.spreads
        deviations = [j for j in self.columns_of("deviation") if self.is_numeric(j)]
        deviations.sort(key=lambda j: column_names.is_standard_error(self.names[j]))
        deviations = deviations[:1]
        deviations = [named[j] for j in scores if j in named] or deviations
        other_columns = [
            *self.columns_of("text"),
            *self.columns_of("number"),
            *self.columns_of("bookkeeping"),
        ]
        self.leave_out([j for j in other_columns if j not in deviations])
        rows = []
        names = self.row_labels(algorithms), self.row_labels(datasets)
        runs = self.columns_of("run")
        for i in range(len(self.grid.cells)):
            if all(score_grid.is_blank(x) for x in self.grid.cells[i]):
                continue
            row = self.row(
                i,
                scores[0],
                algorithm=names[0][i],
                dataset=names[1][i],
                run=self.run_of_row(i, runs),
                spread_column=deviations[0] if deviations else None,
            )
            rows.append(dataclasses.replace(row, place=self.grid.places[i]))
        runs_from = self._runs_from(runs)
        if self.choices.columns.get("run") == score_columns.ORDER:
            rows = score_rows.number_runs(rows)
            runs_from = "the order of rows"
        self._check_once(rows, has_runs=bool(runs))
        if self.kind:
            rows = score_rows.without_absent_runs(rows)
        return self._reading(rows, self.kind or "long table", runs_from)

    def _scores_of_long(self) -> list[int]:
        """Return the column of scores of a long table, in a list, or the columns of its runs.

        Set `spreads`. A single column of numbers without a role is the score. Without numbers, the
        only column with the name of a metric is returned. Raise UnclearError if several columns
        may be the score, and ValueError if none may.
        """
        scores = self.columns_of("score")
        self.spreads = self.spreads_of([*scores, *self.columns_of("number")])
        spreads = set(self.spreads.values())
        numbers = [j for j in self.columns_of("number") if j not in spreads]
        scores = [j for j in scores if j not in spreads]
        plain = [j for j in scores if column_names.word_of(self.names[j]) == "score"]
        chosen_score = self.choices.columns.get("score", "")
        is_chosen = bool(chosen_score) and not self.is_level(chosen_score)
        if is_chosen or len(scores) == 1 or len(plain) == 1:
            chosen = (
                plain
                if len(plain) == 1 and "score" not in self.choices.columns
                else scores
            )
            self.leave_out([j for j in scores if j not in chosen])
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
            return unreadable  # Its cells raise errors, with their places.
        if not scores:
            raise ValueError(
                f"{self.where}a column must hold the scores, got no numbers in "
                f"{', '.join(self.names)}; name it score, or give "
                f"{score_columns.flag('columns', self.grid.source)}score=NAME"
            )
        names = [self.names[j] for j in scores]
        names = sorted(names, key=column_names.is_of_training)
        raise self.unclear(
            f"{score_rows.listed(names)} may each be the score",
            *(("columns", f"score={name}") for name in names[:3]),
        )

    def _read_runs_in_columns(
        self, algorithms: list[int], datasets: list[int], columns: list[int]
    ) -> Reading:
        """Return the reading of a long table with the scores of each run in a column.

        Blank and missing cells are left out. algorithms, datasets: columns of names. columns: one
        per run, whose name is the name of the run. Raise ValueError for a score that occurs twice.
        """
        labels = (self.row_labels(algorithms), self.row_labels(datasets))
        rows = []
        for i in range(len(self.grid.cells)):
            for j in columns:
                if score_grid.is_blank(self.grid.cells[i][j]) or self.is_missing(i, j):
                    continue
                rows.append(
                    self.row(
                        i,
                        j,
                        algorithm=labels[0][i],
                        dataset=labels[1][i],
                        run=self.names[j].strip(),
                    )
                )
        self.leave_out(
            [
                *self.columns_of("text"),
                *self.columns_of("bookkeeping"),
                *self.columns_of("run"),
            ]
        )
        self._check_once(rows, has_runs=True)
        return self._reading(rows, "long table", "columns of runs")

    def _read_wide(self, algorithms: list[int], datasets: list[int]) -> Reading:
        """Return the reading of a wide table, without blank rows and runs without any score.

        algorithms, datasets: columns of their names, [] for names in the header.
        Raise UnclearError if rows may be algorithms or data sets, and ValueError without columns
        of scores.
        """
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
        self._drop_headings(labels)
        self._refuse_statistics(
            self.row_labels(labels), [head for head, _ in heads.values()]
        )
        row_names = self.row_labels(labels)
        runs = [j for j in self.columns_of("run") if j not in labels]
        row_runs = self._runs_of_rows(row_names, runs, runs_in_header)
        has_runs = bool(runs) or runs_in_header or any(row_runs)
        rows = []
        for i, row_name in enumerate(row_names):
            if all(score_grid.is_blank(x) for x in self.grid.cells[i]):
                continue
            for j, (head, run) in heads.items():
                rows.append(
                    self.row(
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
        """Raise ValueError if three or more names on one axis are statistics, such as std and max.

        The result of pandas' describe() has such names.
        axes: names of the rows, and of the columns.
        """
        for names in axes:
            words = {name.lower().strip() for name in names}
            if len(words & _STATISTICS) >= 3:
                shown = ", ".join(sorted(words & _STATISTICS))
                raise ValueError(
                    f"{self.where}must hold scores of data sets, got statistics ({shown}); give "
                    "the scores that they are of"
                )

    def _drop_headings(self, labels: list[int]) -> None:
        """Remove rows that are headings: a name, and blanks in all other columns.

        Descriptions of these rows are added to `unused`. Raise ValueError if other rows have equal
        names, because the headings may distinguish them, and no column has runs.
        """
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
        if len(set(below)) < len(below) and not self.columns_of("run"):
            raise ValueError(
                f"{self.grid.places[headings[0]]}: rows of the same name are under several "
                f"headings ({score_rows.listed(names)}); give one part of the table, "
                "or write the heading into each name"
            )
        self.unused.extend(f"the row {name!r}, which has no scores" for name in names)
        self.keep_rows(other_rows)

    def _label_columns(self, algorithms: list[int], datasets: list[int]) -> list[int]:
        """Return the columns that name the rows of a wide table; [] if its rows are runs.

        algorithms, datasets: columns of these roles, which name the rows if there are any; with
        columns of both roles, `choices.rows` decides. Otherwise the rows are named by the only
        column of text, by the only column of runs if its labels are not all numbered runs, or by an
        index. Columns of names that are not used are left out. Raise UnclearError if several
        columns may name the rows, and ValueError if none does.
        """
        if algorithms and datasets:  # `rows` was chosen.
            labels = algorithms if self.choices.rows == "algorithms" else datasets
            self.leave_out([j for j in (*algorithms, *datasets) if j not in labels])
            return labels
        if algorithms or datasets:
            labels = algorithms or datasets
            self.leave_out(self.columns_of("text"))
            return labels
        texts = self.columns_of("text")
        texts = [j for j in texts if len(self.labels_of([j])) > 1] or texts
        named_runs = [j for j in self.columns_of("run") if not self.is_numeric(j)]
        run_labels = self.labels_of(named_runs)
        if (
            not texts
            and len(named_runs) == 1
            and not all(map(column_names.run_of, run_labels))
        ):
            return named_runs  # Names of algorithms under "run".
        if not texts and self.columns_of("run"):
            return []  # Rows are runs on a single data set.
        if not texts:
            index = [
                j
                for j in self.columns_of("number")
                if column_names.INDEX.fullmatch(self.names[j].lower())
                or not self.names[j]
            ]
            if len(index) == 1 and len(self.columns_of("number")) > 2:
                return index
            raise ValueError(
                f"{self.where}a column must name the algorithms or the data sets, got "
                f"{score_rows.listed(self.names)}; name it algorithm, or give "
                f"{score_columns.flag('columns', self.grid.source)}algorithm=NAME"
            )
        if len(texts) > 1:
            names = [self.names[j] or "(no name)" for j in texts]
            raise self.unclear(
                f"{score_rows.listed(names)} may each name the algorithms or the data sets",
                ("columns", f"algorithm={names[0]}"),
                ("columns", f"algorithm={names[0]},dataset={names[1]}"),
            )
        self._find_unnamed_runs()
        return texts

    def _split_run_names(self, labels: list[int]) -> None:
        """Split labels such as ERM_seed0 into name and run, with a new column of runs.

        Nothing changes if a label does not end in a run, or if no name repeats. Nothing changes
        either if a column has runs, the user chose the column of algorithms, or several columns
        name the rows.
        """
        if (
            self.columns_of("run")
            or self.choices.columns.get("algorithm")
            or len(labels) > 1
        ):
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

    def _find_unnamed_runs(self) -> None:
        """Give an unnamed column of repeated whole numbers the role of runs, if no column has it.

        A column with the name of an index, such as "unnamed: 0", is treated as unnamed. Only the
        first such column gets the role.
        """
        if self.columns_of("run"):
            return
        for j in self.columns_of("number"):
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
        """Return the indices of the columns of scores in a wide table, in ascending order.

        These are the columns that the user chose as score, if there are any, else all columns of
        numbers. Other columns of numbers are left out (`leave_out`), and so are columns without a
        name if all their cells are whole numbers. UnclearError for a column without a name that has
        other cells. labels: indices of the columns that name the rows.
        """
        values = [
            j
            for j in (*self.columns_of("number"), *self.columns_of("score"))
            if j not in labels
        ]
        unnamed = [
            j
            for j in values
            if not self.names[j] or column_names.INDEX.fullmatch(self.names[j].lower())
        ]
        for j in unnamed:  # A column of counted rows, as to_csv writes it.
            texts = [score_grid.label(x) for x in self.column(self.grid.cells, j)]
            if not all(column_names.WHOLE.fullmatch(text) for text in texts):
                neighbour = self.names[j - 1] or "(no name)"
                raise score_rows.UnclearError(
                    f"{self.where}column {j + 1} has no name, and may hold scores or the "
                    f"deviations of {neighbour!r}; name it, as in {neighbour} std"
                )
        self.leave_out(unnamed)
        values = [j for j in values if j not in unnamed]
        self.leave_out([j for j in self.columns_of("bookkeeping") if j not in labels])
        if "score" in self.choices.columns and not self.is_level(
            self.choices.columns["score"]
        ):
            chosen = self.columns_of("score")
            self.leave_out([j for j in values if j not in chosen])
            values = chosen
        return sorted(values)

    def _heads(self, values: list[int]) -> _Heads:
        """Return the names, runs and spreads of the columns of scores, from the header.

        Columns of training scores, and of deviations that belong to no other column, are left
        out. Raise UnclearError if columns may be metrics or data sets, or runs or data sets.
        """
        tops = {j: self.grid.columns[j] for j in values}
        if any(len(names) > 1 and names[-1] for names in tops.values()):
            return self._heads_of_two_lines(values)
        spreads = self.spreads_of(values)
        for j in self.columns_of("spread"):
            spreads[j - 1] = j
            for row, cells in zip(self.parsed, self.grid.cells, strict=True):
                digits = re.sub(r"^(?:±|\+/-|\+-|\$?\\pm)", "", str(cells[j]).strip())
                row[j] = score_cells.parse(digits, self.commas)
        deviations = set(spreads.values())
        alone = [j for j in self.columns_of("deviation") if j not in deviations]
        self.leave_out(alone)
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
            raise self.unclear(
                f"{score_rows.listed(names)} may be metrics of one data set, or data sets",
                ("columns", f"score={names[0]}"),
                ("rows", "algorithms"),
            )
        is_set = (
            self.choices.columns.get("dataset") == score_columns.HEADER
            or self.choices.rows
        )
        is_set = is_set or column_names.meaning(self.grid.levels[0]) in (
            "dataset",
            "algorithm",
        )
        if (
            len(values) > 1
            and all(column_names.run_of(self.names[j]) for j in values)
            and not is_set
        ):
            return _Heads(self._heads_that_count(values), have_runs=True, spreads={})
        names = _without_metric([self.names[j] for j in values])
        return _Heads(
            {j: (name, "") for j, name in zip(values, names, strict=True)},
            have_runs=False,
            spreads=spreads,
        )

    def _without_training(self, values: list[int]) -> list[int]:
        """Return the columns without training and validation scores, if two or more remain.

        Otherwise, and if the user chose rows=datasets, return all columns. The columns that are
        left out are added to `unused`.
        """
        training = [j for j in values if column_names.is_of_training(self.names[j])]
        tested = [j for j in values if j not in training]
        if not training or len(tested) < 2 or self.choices.rows == "datasets":
            return values
        self.leave_out(training)
        return tested

    def _without_summaries_of_runs(self, values: list[int]) -> list[int]:
        """Return the columns called seed 1, seed 2 and so on, without columns of their means.

        Return all columns if fewer than two have such names, or all have. With the choice
        run=header, bare numbers are such names, too. Raise UnclearError for other columns that are
        neither runs nor statistics.
        """
        runs = [j for j in values if column_names.is_run_name(self.names[j])]
        if self.choices.columns.get("run") == score_columns.HEADER:
            runs = [j for j in values if column_names.run_of(self.names[j])]
        if len(runs) < 2 or len(runs) == len(values):
            return values
        summaries = [j for j in values if j not in runs]
        if all(_is_summary(self.names[j]) for j in summaries):
            self.leave_out(summaries)
            return runs
        raise score_rows.UnclearError(
            f"{self.where}columns {score_rows.listed([self.names[j] for j in runs])} are runs, and "
            f"{score_rows.listed([self.names[j] for j in summaries])} are not; leave these out: "
            f"{score_columns.flag('columns', self.grid.source)}ignore={self.names[summaries[0]]}"
        )

    def _heads_that_count(self, values: list[int]) -> dict[int, tuple[str, str]]:
        """Return, by column, (data set, run) of columns called seed0, seed1 and so on.

        The data set is the title of the grid, and the run is the name of the column. Raise
        UnclearError for bare numbers, which may be runs or data sets, unless the header line has
        a name or the user chose run=header.
        """
        names = [self.names[j] for j in values]
        is_said = (
            bool(self.grid.levels[0])
            or self.choices.columns.get("run") == score_columns.HEADER
        )
        if all(column_names.WHOLE.fullmatch(name) for name in names) and not is_said:
            raise self.unclear(
                f"columns {score_rows.listed(names)} may be runs of one data set, or data sets",
                ("columns", "run=header"),
                ("columns", "dataset=header"),
            )
        return {j: (self.grid.title, self.names[j]) for j in values}

    def _heads_of_two_lines(self, values: list[int]) -> _Heads:
        """Return the names, runs and spreads of the columns of scores, from two header lines.

        The upper line has data sets and the lower one runs or metrics, or the upper line has runs,
        or the upper line groups the data sets of the lower line. If lower names repeat, the names
        of both lines are joined by a space. Raise UnclearError for several metrics, unless the user
        chose one.
        """
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
            return _Heads(
                {j: (top, low) for j, top, low in zip(values, tops, lows, strict=True)},
                have_runs=True,
                spreads={},
            )
        spreads = {
            j: k
            for j, top, word in zip(values, tops, words)
            for k, top_of_spread, low in zip(values, tops, words)
            if top == top_of_spread
            and low in column_names.NAMES["deviation"]
            and word not in column_names.NAMES["deviation"]
        }
        columns = [j for j in values if j not in spreads.values()]
        texts = {j: (top, low) for j, top, low in zip(values, tops, lows)}
        chosen = self.choices.columns.get("score", "").strip().lower()
        metrics = list(dict.fromkeys(texts[j][1] for j in columns))
        if all(column_names.is_metric(x) for x in metrics):
            if len(metrics) > 1 and not chosen:
                raise self.unclear(
                    f"the second header line has several metrics, {score_rows.listed(metrics)}",
                    *(("columns", f"score={name}") for name in metrics[:3]),
                )
            if chosen:
                columns = [j for j in columns if texts[j][1].strip().lower() == chosen]
            return _Heads(
                {j: (texts[j][0], "") for j in columns},
                have_runs=False,
                spreads=spreads,
            )
        lower = []
        for j in columns:
            top, low = texts[j]
            is_mean = j in spreads and column_names.is_average(low)
            lower.append(top if is_mean else low or top)
        if len(set(lower)) == len(lower):  # The upper line only groups data sets.
            return _Heads(
                {j: (name, "") for j, name in zip(columns, lower)},
                have_runs=False,
                spreads=spreads,
            )
        return _Heads(
            {j: (" ".join(filter(None, texts[j])), "") for j in columns},
            have_runs=False,
            spreads=spreads,
        )

    def _read_rows_of_runs(self) -> Reading:
        """Return the reading of a table of one data set: rows are runs, columns algorithms.

        The data set has the title of the grid. Runs without any score are left out. Raise
        UnclearError if columns may be data sets, or if two header lines may be algorithms and data
        sets.
        """
        values = self._value_columns([])
        heads, _, _ = self._heads(values)
        names = [head for head, _ in heads.values()]
        self._refuse_product(values)
        is_said = self.choices.columns.get("algorithm") == score_columns.HEADER
        is_said = is_said or self.choices.rows == "datasets"
        is_known = column_names.count_known(names, "algorithms") >= _MIN_KNOWN
        if not is_said and (
            not is_known or column_names.count_known(names, "datasets")
        ):
            raise self.unclear(
                f"columns {score_rows.listed(names)} may be algorithms on one data set, or "
                "data sets of one algorithm; no column names the other",
                ("columns", "algorithm=header"),
            )
        runs = self.columns_of("run")
        rows = [
            self.row(
                i,
                j,
                algorithm=head,
                dataset=self.grid.title,
                run=self.run_of_row(i, runs),
            )
            for i in range(len(self.grid.cells))
            for j, (head, _) in heads.items()
        ]
        rows = score_rows.without_absent_runs(rows)
        self._check_once(rows, has_runs=True)
        kind = "table of one data set with the algorithms in columns"
        return self._reading(rows, kind, self._runs_from(runs))

    def _refuse_product(self, values: list[int]) -> None:
        """Raise UnclearError if each name in the upper header line has the same lower names.

        No error is raised for a single header line, upper name or lower name.
        """
        if len(self.grid.levels) < 2:
            return
        tops = [self.grid.columns[j][0] for j in values]
        lows = [self.grid.columns[j][-1] for j in values]
        if _repeats(tops, lows) and len(set(lows)) > 1:
            raise score_rows.UnclearError(
                f"{self.where}the header lines ({score_rows.listed([*dict.fromkeys(tops)])}) and "
                f"({score_rows.listed([*dict.fromkeys(lows)])}) may be algorithms and data "
                "sets, or data sets and algorithms; name each in the first cell of its line, "
                "such as method and dataset"
            )

    def _read_one_set(self, labels: list[int], column: int) -> Reading:
        """Return the reading of a table with one column of scores, of an unnamed data set.

        The data set has the title of the grid. Blank rows are left out.
        Raise UnclearError if rows may be data sets, and ValueError if rows certainly are data sets.
        """
        if (
            column_names.meaning(self.names[labels[0]]) == "dataset"
            or self.choices.rows == "datasets"
        ):
            raise ValueError(
                f"{self.where}a column must name the algorithms, got "
                f"{score_rows.listed(self.names)}; "
                f"add one, or give {score_columns.flag('columns', self.grid.source)}algorithm=NAME"
            )
        row_names = self.row_labels(labels)
        is_clear = column_names.meaning(self.names[labels[0]]) == "algorithm"
        is_clear = (
            is_clear or "algorithm" in self.roles or self.choices.rows == "algorithms"
        )
        if not is_clear and not column_names.count_known(row_names, "algorithms"):
            name = self.names[labels[0]] or "(no name)"
            raise self.unclear(
                f"{name!r} may name algorithms on one data set, or data sets of one algorithm",
                ("columns", f"algorithm={name}"),
                ("rows", "algorithms"),
            )
        runs = [j for j in self.columns_of("run") if j not in labels]
        row_runs = self._runs_of_rows(row_names, runs, runs_in_header=False)
        rows = [
            self.row(
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

    def _rows_are_algorithms(
        self,
        labels: list[int],
        algorithms: list[int],
        datasets: list[int],
        heads: Mapping[int, tuple[str, str]],
    ) -> bool:
        """Return True if rows are algorithms, not data sets; raise UnclearError if unknown.

        The user's choices decide, else names of columns and header lines, else the list of common
        names. algorithms, datasets: columns of these roles. heads: `names` of `_Heads`.
        """
        if self.choices.rows:
            return self.choices.rows == "algorithms"
        for role in ("algorithm", "dataset"):
            if self.choices.columns.get(role) == score_columns.HEADER:
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
        row_names = [*self.labels_of(labels)]
        head_names = [head for head, _ in heads.values()]
        readings = {
            True: column_names.count_known(row_names, "algorithms")
            + column_names.count_known(head_names, "datasets"),
            False: column_names.count_known(row_names, "datasets")
            + column_names.count_known(head_names, "algorithms"),
        }
        if max(readings.values()) >= _MIN_KNOWN and not min(readings.values()):
            return readings[True] > readings[False]
        raise self.unclear(
            f"rows ({score_rows.listed(row_names)}) may be algorithms and columns "
            f"({score_rows.listed(head_names)}) "
            "data sets, or the other way round",
            ("rows", "algorithms"),
            ("rows", "datasets"),
        )

    def _runs_of_rows(
        self, row_names: list[str], runs: list[int], runs_in_header: bool
    ) -> list[str]:
        """Return the run of each row: its text in the columns of runs, or a number, or "".

        row_names: label of each row. runs: columns of runs. Without them, rows of the same
        name are numbered from 0; "" if names do not repeat or the header names the runs. Raise
        UnclearError as `_check_repeats` does.
        """
        if runs:
            return [self.run_of_row(i, runs) for i in range(len(self.grid.cells))]
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
        """Raise UnclearError if it is unclear whether rows of the same name are runs.

        The meaning is unclear if an unused column has several texts, or if another name has a
        single row. With the user's choice run=order, such rows are runs, and no error is raised.
        counts: number of rows of each name.
        """
        is_said = self.choices.columns.get("run") == score_columns.ORDER
        columns = {name or "(no name)": j for j, name in enumerate(self.names)}
        varied = [
            name
            for name in self.unused
            if name in columns and len(self.labels_of([columns[name]])) > 1
        ]
        name, number = counts.most_common(1)[0]
        flag = score_columns.flag("columns", self.grid.source)
        if varied and not is_said:
            raise score_rows.UnclearError(
                f"{self.where}{number} rows are called {name!r}, and {varied[0]!r} tells them "
                f"apart; say whether it is the run, {flag}run={varied[0]}, or part of the name, "
                f"{flag}algorithm=NAME+{varied[0]}; or {flag}run={score_columns.ORDER} "
                "if rows are runs in order"
            )
        if min(counts.values()) == 1 and not is_said:
            raise score_rows.UnclearError(
                f"{self.where}{number} rows are called {name!r}, others have one row; remove "
                "what is twice, or say that rows are runs, in order: "
                f"{flag}run={score_columns.ORDER}"
            )

    def _check_once(self, rows: list[score_rows.Row], *, has_runs: bool) -> None:
        """Raise ValueError for two scores of the same algorithm, data set and run.

        has_runs: whether runs have names; if not, the message suggests how to name them.
        """
        places: dict = {}
        for row in rows:
            key = (row.algorithm, row.dataset, row.run)
            if places.setdefault(key, row.place) != row.place:
                remedy = "remove one of the two"
                if not has_runs:
                    flag = score_columns.flag("columns", self.grid.source)
                    remedy += (
                        " or tell them apart in a column `run`; if rows of one cell are its "
                        f"runs, in order: {flag}run={score_columns.ORDER}"
                    )
                    if self.unused:
                        remedy += f"; if {self.unused[0]!r} is the run: {flag}run={self.unused[0]}"
                raise ValueError(
                    f"{row.place}: a score must occur once, got that of {places[key]} again "
                    f"({row.algorithm} on {row.dataset}); {remedy}"
                )

    def _runs_from(self, runs: list[int]) -> str:
        """Return the columns of runs in words, such as "column 'seed'"; "" for no column."""
        return f"column {self.shown(runs)!r}" if runs else ""

    def _reading(
        self, rows: list[score_rows.Row], kind: str, runs_from: str
    ) -> Reading:
        """Return the reading of these scores, without margins (averages or sums of other scores).

        A metric that all names of data sets share is removed from them (`_without_metric`).
        kind: kind of the table, in words. runs_from: origin of the names of runs, in words, or
        "". Raise ValueError if there are no rows.
        """
        if not rows:
            raise ValueError(f"{self.where}must hold scores, got none; add rows")
        rows, margins = score_margins.leave_out(
            rows, choices=self.choices, source=self.grid.source
        )
        self.unused.extend(margins)
        datasets = [*dict.fromkeys(row.dataset for row in rows)]
        short_names = dict(zip(datasets, _without_metric(datasets), strict=True))
        rows = [
            dataclasses.replace(row, dataset=short_names[row.dataset]) for row in rows
        ]
        is_percent = score_rows.has_percent_signs(rows)
        tidy = score_rows.to_frame(rows)
        values = score_rows.describe_values(
            tidy, is_percent=is_percent, decimal=self.commas.decimal, unused=self.unused
        )
        values += score_rows.describe_old_names(tidy, self.old_names)
        if self.unfinished:
            values += f"; left out: {self.unfinished}; {self.keep_unfinished}"
        return Reading(
            tidy=tidy,
            description=(
                score_rows.describe_shape(tidy, kind),
                score_rows.describe_runs(tidy, runs_from, errors=self.errors),
                values,
            ),
            is_summary=score_rows.is_summary(rows),
            unused=tuple(self.unused),
            unfinished=self.unfinished,
        )


def _without_metric(names: list[str]) -> list[str]:
    """Return names such as test_acc/photo without the metric, if all have the same metric.

    The metric is the text before the last "/". Other names, and a single name, are unchanged.
    """
    splits = [name.rpartition("/") for name in names]
    metrics = {metric for metric, _, _ in splits}
    if len(names) > 1 and len(metrics) == 1 and column_names.is_metric(metrics.pop()):
        return [name for _, _, name in splits]
    return names


def _is_summary(name: str) -> bool:
    """Return True if a column's name denotes a statistic over runs, without other words.

    Statistics are means, medians, deviations, errors, confidence intervals, counts, minima and
    maxima; percentiles such as 25% are not recognised.
    """
    word = column_names.word_of(name)
    return (
        column_names.is_average(name)
        or word in column_names.NAMES["deviation"]
        or word in _STATISTICS
    )


def _repeats(tops: Sequence[str], lows: Sequence[str]) -> bool:
    """Return True if there are several upper names, each with the same lower names.

    tops, lows: upper and lower name of each column.
    """
    by_top: dict[str, list[str]] = {}
    for top, low in zip(tops, lows, strict=True):
        by_top.setdefault(top, []).append(low)
    return len(by_top) > 1 and len({tuple(x) for x in by_top.values()}) == 1
