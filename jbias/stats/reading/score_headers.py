"""Reader of header lines of score tables that name statistics, metrics, or several roles.

pandas writes such headers: `pivot_table(aggfunc=["mean", "std"])` puts a line of statistics above
the line of data sets, and `pivot(columns=["method", "dataset"])` has a line for each role.
`simplify` removes lines of metrics, and makes long tables of headers that name roles.
"""

import collections
import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from jbias.stats.reading import column_names, score_columns, score_grid, score_rows

_TUPLE = re.compile(r"\(\s*'[^']*'(?:\s*,\s*'[^']*')+\s*\)")
_SHORT = ("sd", "se", "ci", "n", "num", "size")
BY_LEVELS = "table with the roles in its header lines"


@dataclasses.dataclass(frozen=True)
class Header:
    """A grid with a simplified header, and the names of columns that are not used.

    choices: the user's choices that still apply.
    unused: descriptions of columns that are not used.
    errors: names of the columns of standard errors, which are not used.
    kind: description of the table if its header lines name the roles, else "".
    """

    grid: score_grid.Grid
    choices: score_columns.Choices
    unused: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    kind: str = ""


class _Measure(NamedTuple):
    """A column of numbers, with its names in the header, its metric and its statistic."""

    column: int  # Index.
    names: tuple[str, ...]  # In header lines that have neither metrics nor statistics.
    metric: str  # "" without one.
    statistic: str  # "" without one.


def simplify(grid: score_grid.Grid, choices: score_columns.Choices) -> Header:
    """Return the grid with a simplified header, without unused columns, which are described.

    Statistics and metrics are recognised by their names. Unused columns are counts, standard errors
    and metrics that the user did not choose. One header line: columns mean_A and std_A of a data
    set A become A and A_std. Several header lines: lines of metrics and statistics are removed, and
    the others stay; with deviations, a last line "mean" or "std" is added. If the lines name
    algorithms and data sets, the result is a long table with one header line, unless columns name
    these, too, or there are statistics other than mean and std. Raise UnclearError, with the
    possible choices, if the header has several metrics or no mean. Raise ValueError if two columns
    have the same name, and if the user chose header for algorithm and dataset, but the header lines
    name no algorithms and data sets.
    """
    names = [" ".join(filter(None, names)) for names in grid.columns]
    score_columns.check_names(names, error_prefix=f"{grid.source or 'scores'}: ")
    for role in ("algorithm", "dataset"):
        if choices.columns.get(role) != score_columns.HEADER:
            break
    else:
        if not _has_roles(grid.levels):
            raise ValueError(
                f"{grid.source or 'scores'}: algorithm=header and dataset=header need two "
                "header lines with a name each in their first cell, such as method and "
                "dataset; name them, or give one of the two"
            )
    grid = _split_tuples(grid)
    if len(grid.levels) < 2:
        header = _simplify_line(grid, choices)
        return _select_metric_of_line(header)
    header = _simplify_levels(grid, choices)
    if _has_roles(header.grid.levels):
        return _convert_to_long(header)
    return header


# Several header lines.


def _simplify_levels(grid: score_grid.Grid, choices: score_columns.Choices) -> Header:
    """Return the header of a grid with several header lines, without the lines of metrics.

    If it has deviations, its last header line has the statistics "mean" and "std". Other
    statistics, other metrics and margins are not used. The grid is unchanged if no line has
    only metrics and statistics. Raise UnclearError as `simplify` does.
    """
    is_value = [any(names[1:]) for names in grid.columns]
    values = [j for j, has_lower in enumerate(is_value) if has_lower]
    levels = range(len(grid.levels))
    measures = [
        level for level in levels if _names_measures(grid, values=values, level=level)
    ]
    if not measures or measures == [levels[-1]] and not _needs_statistics(grid, values):
        return Header(grid, choices)
    other_levels = [level for level in levels if level not in measures]
    columns = []
    for j in values:
        split = [column_names.split_statistic(grid.columns[j][m]) for m in measures]
        columns.append(
            _Measure(
                column=j,
                names=tuple(grid.columns[j][level] for level in other_levels),
                metric=" ".join(dict.fromkeys(base for base, _ in split if base)),
                statistic=" ".join(word for _, word in split if word),
            )
        )
    if _are_groups(columns):
        return Header(grid, choices)
    margins = [
        j
        for j, names in enumerate(grid.columns)
        if not is_value[j] and column_names.is_margin(names[0])
    ]
    unused = [f"column {grid.columns[j][0]!r}" for j in margins]
    labels = [
        j for j, has_lower in enumerate(is_value) if not has_lower and j not in margins
    ]
    words = {x.statistic for x in columns if x.statistic}
    chosen, choices = _chosen_statistic(words, choices)
    columns, choices, left_out = _select_metric(columns, grid=grid, choices=choices)
    columns, statistics, errors = _select_mean(
        columns, chosen=chosen, grid=grid, choices=choices
    )
    unused += [*left_out, *statistics]
    has_deviations = any(measure.statistic for measure in columns)
    level_names = [grid.levels[level] for level in other_levels]
    if other_levels:
        tails = [(x.statistic or "mean",) if has_deviations else () for x in columns]
        heads = [x.names + tail for x, tail in zip(columns, tails, strict=True)]
        if has_deviations:
            level_names.append("")
    else:
        heads = [(" ".join(filter(None, x[2:])) or "mean",) for x in columns]
        level_names = [""]
    depth = len(level_names)
    label_names = [(grid.columns[j][0],) + ("",) * (depth - 1) for j in labels]
    order = [*labels, *(measure.column for measure in columns)]
    simple = dataclasses.replace(
        grid,
        columns=(*label_names, *heads),
        levels=tuple(level_names),
        cells=[[row[j] for j in order] for row in grid.cells],
    )
    return Header(simple, choices, tuple(unused), tuple(errors))


def _are_groups(columns: Sequence[_Measure]) -> bool:
    """Return True if metrics only group data sets, such as ID accuracy and OOD accuracy.

    There must be several metrics that are the same metric without words such as ID and OOD, no
    statistics, and a name other than the metric that occurs in one column only.
    """
    cores = {column_names.core_of_metric(x.metric) for x in columns}
    metrics = {x.metric for x in columns}
    names = [x.names for x in columns]
    has_statistics = any(x.statistic for x in columns)
    is_once = len(set(names)) == len(names) and all(names)
    return is_once and len(metrics) > 1 and len(cores) == 1 and not has_statistics


def _names_measures(
    grid: score_grid.Grid, *, values: Sequence[int], level: int
) -> bool:
    """Return True if all names of a header line are metrics or statistics, or both.

    values: indices of the columns of numbers. level: index of the header line. False without such
    columns, and for a header line that is named for algorithms, data sets or runs.
    """
    if column_names.meaning(grid.levels[level]) in ("algorithm", "dataset", "run"):
        return False
    return bool(values) and all(
        column_names.is_measure(grid.columns[j][level]) for j in values
    )


def _needs_statistics(grid: score_grid.Grid, values: Sequence[int]) -> bool:
    """Return True if the last header line has statistics that must be removed or renamed.

    True for statistics other than means and deviations, for deviations without the name of a mean,
    and for statistics joined with another name, as in acc_mean. values: indices of columns.
    """
    splits = [column_names.split_statistic(grid.columns[j][-1]) for j in values]
    words = {word for _, word in splits if word}
    kinds = {column_names.statistic(word) for word in words}
    is_joined = any(base and word for base, word in splits)
    return bool(kinds - {"mean", "deviation"}) or is_joined or kinds == {"deviation"}


def _select_metric(
    columns: list[_Measure],
    *,
    grid: score_grid.Grid,
    choices: score_columns.Choices,
) -> tuple[list[_Measure], score_columns.Choices, list[str]]:
    """Return the columns of the chosen metric, the choices that still apply, and unused metrics.

    All columns and choices are returned if the header has a single metric that the user did not
    choose, or if it names only metrics and statistics. Columns without a metric always stay. Raise
    UnclearError for several metrics without a choice.
    """
    metrics = [*dict.fromkeys(x.metric for x in columns if x.metric)]
    chosen = choices.columns.get("score", "")
    matches = [name for name in metrics if name.lower() == chosen.strip().lower()]
    has_sets = any(x.names for x in columns)
    if not matches:
        if len(metrics) > 1 and has_sets:
            raise score_columns.unclear(
                grid.source,
                choices,
                f"the header has several metrics, {score_rows.listed(metrics)}",
                *(("columns", f"score={name}") for name in metrics[:3]),
            )
        return columns, choices, []
    if not has_sets:
        return columns, choices, []
    of_metric = [x for x in columns if x.metric in (matches[0], "")]
    return (
        of_metric,
        _without_score(choices),
        [name for name in metrics if name != matches[0]],
    )


def _chosen_statistic(
    words: Collection[str], choices: score_columns.Choices
) -> tuple[str, score_columns.Choices]:
    """Return the statistic that the user chose as the score, and the other choices.

    words: names of the statistics in the header. "" and all choices if none is chosen.
    """
    chosen = choices.columns.get("score", "")
    if chosen not in words:
        return "", choices
    return chosen, _without_score(choices)


def _without_score(choices: score_columns.Choices) -> score_columns.Choices:
    """Return the choices without the column of the score."""
    columns = {role: name for role, name in choices.columns.items() if role != "score"}
    return dataclasses.replace(choices, columns=columns)


def _score_of(
    words: Sequence[str],
    *,
    chosen: str,
    grid: score_grid.Grid,
    choices: score_columns.Choices,
) -> str:
    """Return the name of the statistic that is the score.

    The result is the chosen name, if any. Else it is the only name if this is a mean or "". Else it
    is the first mean or "" if there is also a deviation, error or count.
    words: names of the statistics, "" for columns without one. chosen: the user's choice or "".
    Raise UnclearError for other statistics, because a mean and a maximum may be two methods.
    """
    kinds = [column_names.statistic(word) for word in words if word]
    means = [
        word for word in words if not word or column_names.statistic(word) == "mean"
    ]
    if chosen or len(words) == 1 and means:
        return chosen or means[0]
    if means and set(kinds) & {"deviation", "error", "count"}:
        return means[0]
    raise score_columns.unclear(
        grid.source,
        choices,
        f"the header has statistics, {score_rows.listed([*filter(None, words)])}, of which "
        f"{'several' if means else 'none is a mean, and any'} may be the score",
        *(("columns", f"score={word}") for word in [*filter(None, words)][:3]),
    )


def _select_mean(
    columns: list[_Measure],
    *,
    chosen: str,
    grid: score_grid.Grid,
    choices: score_columns.Choices,
) -> tuple[list[_Measure], list[str], list[str]]:
    """Return the columns of scores and deviations, unused statistics and standard errors.

    In the returned columns, the statistic is "" for scores (means, unless the user chose another
    statistic) and "std" for deviations. The other
    two lists are names of statistics. chosen: the statistic that the user chose, or "". Deviations
    are used only if the score is a mean, and only the first kind of them. Raise UnclearError as
    `_score_of` does.
    """
    words = [*dict.fromkeys(x.statistic for x in columns)]
    if words == [""]:
        return columns, [], []
    mean = _score_of(words, chosen=chosen, grid=grid, choices=choices)
    kinds = {word: column_names.statistic(word) for word in words if word != mean}
    is_mean = not mean or column_names.statistic(mean) == "mean"
    deviations = [x for x, kind in kinds.items() if kind == "deviation" and is_mean][:1]
    errors = [word for word, kind in kinds.items() if kind == "error"]
    simple = [
        x._replace(statistic="" if x.statistic == mean else "std")
        for x in columns
        if x.statistic in (mean, *deviations)
    ]
    other_words = [word for word in kinds if word not in (*deviations, *errors)]
    return simple, other_words, errors


def _has_roles(levels: Sequence[str]) -> bool:
    """Return True if header lines are named for algorithms and data sets, each exactly once.

    levels: names of the header lines. At most one line may be named for runs.
    """
    roles = [column_names.meaning(level) for level in levels]
    named = [role for role in roles if role in ("algorithm", "dataset", "run")]
    return {"algorithm", "dataset"} <= set(named) and len(set(named)) == len(named)


def _convert_to_long(header: Header) -> Header:
    """Return the header of a table, converted to a long table with a row per score.

    Header lines must name algorithms and data sets. The header is returned unchanged if columns
    also name algorithms or data sets, or if there are statistics other than mean and std. Rows
    without a score are left out.
    """
    grid = header.grid
    is_value = [any(names[1:]) for names in grid.columns]
    labels = [j for j, has_lower in enumerate(is_value) if not has_lower]
    roles = [column_names.meaning(level) for level in grid.levels]
    if any(
        column_names.meaning(grid.columns[j][0]) in ("algorithm", "dataset")
        for j in labels
    ):
        return header
    named = [level for level, role in enumerate(roles) if role]
    statistics = [level for level, role in enumerate(roles) if not role]
    if len(statistics) > 1 or statistics and grid.levels[statistics[0]]:
        return header
    groups: dict[tuple[str, ...], dict[str, int]] = collections.defaultdict(dict)
    for j in (j for j, has_lower in enumerate(is_value) if has_lower):
        key = tuple(grid.columns[j][level] for level in named)
        word = grid.columns[j][statistics[0]] if statistics else "mean"
        groups[key][word] = j
    words = [*dict.fromkeys(word for group in groups.values() for word in group)]
    score_names = ["score" if word == "mean" else word for word in words]
    if "score" not in score_names or not set(words) <= {"mean", "std"}:
        return header
    names = [grid.columns[j][0] for j in labels]
    names += [grid.levels[level] for level in named]
    cells, places = [], []
    for row, place in zip(grid.cells, grid.places, strict=True):
        for key, group in groups.items():
            values = [row[group[w]] if w in group else None for w in words]
            if all(score_grid.is_blank(x) for x in values):
                continue
            cells.append([*(row[j] for j in labels), *key, *values])
            places.append(f"{place}, column {' '.join(key)!r}")
    long = score_grid.Grid(
        columns=tuple((name,) for name in (*names, *score_names)),
        levels=("",),
        cells=cells,
        places=places,
        source=grid.source,
        title=grid.title,
    )
    columns = {
        role: name
        for role, name in header.choices.columns.items()
        if name != score_columns.HEADER
    }
    choices = dataclasses.replace(header.choices, columns=columns)
    return dataclasses.replace(header, grid=long, choices=choices, kind=BY_LEVELS)


# One header line.


def _split_tuples(grid: score_grid.Grid) -> score_grid.Grid:
    """Split names of columns such as ('mean', 'A') into header lines, and return the grid.

    pandas writes such names in Markdown and in headers of one line. At least two names must have
    this form, all with equally many parts; other grids are unchanged. Names of another form
    stay in the first line.
    """
    names = [names[0] for names in grid.columns]
    levels = [re.findall(r"'([^']*)'", x) if _TUPLE.fullmatch(x) else [] for x in names]
    depths = {len(x) for x in levels if x}
    if len(grid.levels) > 1 or len(depths) != 1 or sum(map(bool, levels)) < 2:
        return grid
    depth = depths.pop()
    columns = [
        tuple(split_name) if split_name else (name,) + ("",) * (depth - 1)
        for split_name, name in zip(levels, names, strict=True)
    ]
    return dataclasses.replace(
        grid, columns=tuple(columns), levels=(*grid.levels, *[""] * (depth - 1))
    )


def _select_metric_of_line(header: Header) -> Header:
    """Return a header with the columns of one metric, if it has columns such as acc_A and err_A.

    All metrics must have columns of the same names; other headers are unchanged. Also unchanged are
    headers with a column that the user chose as score, headers with rows=datasets, and headers
    whose metrics are equal without words such as test and val. Columns of training, such as loss_A,
    stay. Raise UnclearError if the user did not choose one of several metrics.
    """
    grid, choices = header.grid, header.choices
    splits = {
        j: column_names.split_metric(names[0])
        for j, names in enumerate(grid.columns)
        if not column_names.is_of_training(names[0])
    }
    splits = {j: split for j, split in splits.items() if split[0]}
    names_by_metric: dict[str, list[str]] = collections.defaultdict(list)
    for metric, name in splits.values():
        names_by_metric[metric].append(name)
    is_product = len({tuple(sorted(x)) for x in names_by_metric.values()}) == 1
    is_several = len({column_names.core_of_metric(x) for x in names_by_metric}) > 1
    if not is_product or not is_several or choices.rows == "datasets":
        return header
    chosen = choices.columns.get("score", "")
    if chosen in (name for names in grid.columns for name in names):
        return header
    if chosen not in names_by_metric:
        raise score_columns.unclear(
            grid.source,
            choices,
            f"the header has several metrics, {score_rows.listed([*names_by_metric])}",
            *(("columns", f"score={name}") for name in [*names_by_metric][:3]),
        )
    used = [
        j for j in range(len(grid.columns)) if j not in splits or splits[j][0] == chosen
    ]
    simple = dataclasses.replace(
        grid,
        columns=tuple(grid.columns[j] for j in used),
        cells=[[row[j] for j in used] for row in grid.cells],
    )
    return dataclasses.replace(
        header,
        grid=simple,
        choices=_without_score(choices),
        unused=(*header.unused, *(name for name in names_by_metric if name != chosen)),
    )


def _has_spread(kinds: Mapping[str, str], *, is_plain: bool) -> bool:
    """Return True if the statistics of a name include a spread or a count.

    kinds: kind of each statistic (see `column_names.statistic`), by its name.
    is_plain: whether another column has the name without a statistic. Short names of statistics are
    then ignored, because Photo-SD may be a data set.
    """
    return any(
        kind in ("deviation", "error", "count")
        for word, kind in kinds.items()
        if not is_plain or word.lower() not in _SHORT
    )


def _simplify_line(grid: score_grid.Grid, choices: score_columns.Choices) -> Header:
    """Rename columns mean_A and std_A to A and A_std, remove count_A, and return the header.

    Columns of other statistics are removed. A data set A is renamed only if two or more columns
    belong to it, such as mean_A and std_A, or A and A_std. Columns that the user chose, and
    columns with a role, are not changed. Raise UnclearError as `_score_of` does.
    """
    chosen = {
        name.strip().lower()
        for text in choices.columns.values()
        for name in (text, *text.split("+"))
    }
    bases: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for j, names in enumerate(grid.columns):
        base, word = column_names.split_statistic(names[0])
        is_set = base and not column_names.is_measure(base)
        if is_set and column_names.meaning(names[0]) == "":
            bases[base][word] = j
    columns, unused, errors, gone = list(grid.columns), [], [], set()
    sets_of_words = collections.Counter(frozenset(group) for group in bases.values())
    words = {word for group in bases.values() for word in group if word}
    if choices.columns.get("score", "") in [names[0] for names in grid.columns]:
        words = set()
    statistic, choices = _chosen_statistic(words, choices)
    for base, group in bases.items():
        kinds = {word: column_names.statistic(word) for word in group}
        means = [word for word, kind in kinds.items() if kind == "mean" or not word]
        names = {grid.columns[j][0].strip().lower() for j in group.values()}
        if len(group) < 2 or names & chosen:
            continue
        if "" not in group and sets_of_words[frozenset(group)] > 1:
            score = _score_of([*group], chosen=statistic, grid=grid, choices=choices)
        elif len(means) == 1 and _has_spread(kinds, is_plain="" in group):
            score = means[0]
        else:
            continue
        columns[group[score]] = (base,)
        for word, j in group.items():
            if kinds[word] == "deviation" and kinds[score] in ("mean", ""):
                columns[j] = (f"{base}_std",)
            elif word != score:
                (errors if kinds[word] == "error" else unused).append(columns[j][0])
                gone.add(j)
    used = [j for j in range(len(columns)) if j not in gone]
    simple = dataclasses.replace(
        grid,
        columns=tuple(columns[j] for j in used),
        cells=[[row[j] for j in used] for row in grid.cells] if gone else grid.cells,
    )
    return Header(simple, choices, tuple(unused), tuple(errors))
