"""From a table of scores that others made to a study."""

import math
import pathlib
from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbias.report import csv_rows, gather, trained
from jbias.report import options as options_lib
from jbias.report import study as study_lib
from jbias.stats import score_table

NEEDED = score_table.NEEDED
OPTIONAL = ("run", "trained_on")
_YES = ("1", "yes", "true")
_NO = ("", "0", "no", "false")
# Scores that are this much smaller on every data set are fractions among percentages.
_FRACTION = 20


def from_scores(path: str, options: options_lib.Options) -> study_lib.Study:
    """Reads a CSV or Parquet file: algorithm, dataset, score; run and trained_on, if any.

    `trained_on` (yes or no) tells that an algorithm trained on a data set's kind. Raises
    ValueError by file and line for what is no score and for a cell that occurs twice; by
    name for missing cells, unless `options.drop` says what to leave out, for constant
    columns and for fractions among percentages.
    """
    frame, ignored = _read(path)
    known = list(dict.fromkeys(frame["dataset"]))
    gather.check_names("--datasets", options.datasets, known)
    named = list(dict.fromkeys(frame["algorithm"]))
    gather.check_names("--algorithms", options.algorithms, named)
    datasets = list(options.datasets) or known
    algorithms = list(options.algorithms) or named
    wanted = frame["dataset"].isin(datasets) & frame["algorithm"].isin(algorithms)
    frame, notes = _complete(frame[wanted].reset_index(drop=True), path, options.drop)
    _check_constant(frame, path)
    _check_scale(frame, path)
    if ignored:
        notes.append(f"Columns of {path} that were not used: {', '.join(ignored)}.")
    algorithms = [name for name in algorithms if name in set(frame["algorithm"])]
    datasets = [name for name in datasets if name in set(frame["dataset"])]
    seen = frame.loc[frame["trained_on"], ["algorithm", "dataset"]]
    pairs = frozenset(seen.itertuples(index=False, name=None))
    if options.trained_on:
        told = trained.read(options.trained_on, named, known)
        pairs |= {(a, d) for a, d in told if a in algorithms and d in datasets}
    if options.strict and not pairs:
        raise ValueError(
            f"--strict: {path} must tell which algorithm trained on which data set, and "
            "does not; add a column trained_on or give --trained-on=FILE"
        )
    values = frame.rename(columns={"score": "value", "run": "seed"})
    return study_lib.Study(
        source=path,
        metric="score",
        larger_is_better=options.larger_is_better,
        selection="given",
        rule="scores as they stand in the file; how models were selected is not known here",
        algorithms=tuple(algorithms),
        datasets=tuple(datasets),
        values=values.drop(columns="trained_on").assign(count=pd.NA, n=pd.NA),
        trained=pairs,
        notes=tuple(notes),
    )


def _complete(
    frame: pd.DataFrame, path: str, drop: str
) -> tuple[pd.DataFrame, list[str]]:
    """Refuses missing cells, or leaves out what `drop` says and tells what."""
    before = _names(frame)
    if drop:
        frame = score_table.drop_incomplete(frame, drop=drop)
    if min(len(set(frame[name])) for name in ("algorithm", "dataset")) < 1:
        raise ValueError(
            f"{path}: --drop={drop} leaves nothing over; fill the missing cells"
        )
    told = score_table.missing_cells(frame)
    if told:
        more = f" and {len(told) - 5} more" if len(told) > 5 else ""
        raise ValueError(
            f"{path}: every run of an algorithm needs a score on every data set, got none "
            f"for {'; '.join(told[:5])}{more}; add them, or leave out what lacks them: "
            "--drop=datasets, --drop=algorithms or --drop=runs"
        )
    after = set(_names(frame))
    gone = [name for name in before if name not in after]
    if not gone:
        return frame.reset_index(drop=True), []
    note = f"Left out for missing cells (--drop={drop}): {', '.join(gone)}."
    return frame.reset_index(drop=True), [note]


def _names(frame: pd.DataFrame) -> list[str]:
    runs = frame["algorithm"] + " run " + frame["run"]
    return list(dict.fromkeys([*frame["algorithm"], *frame["dataset"], *runs]))


def _check_constant(frame: pd.DataFrame, path: str) -> None:
    """Refuses an algorithm or a data set that has one and the same score everywhere."""
    for name, flag, other in [
        ("algorithm", "--algorithms", "dataset"),
        ("dataset", "--datasets", "algorithm"),
    ]:
        groups = frame.groupby(name, sort=False)
        alike = (groups["score"].nunique() == 1) & (groups[other].nunique() > 2)
        if alike.any():
            first = alike.index[alike][0]
            raise ValueError(
                f"{path}: the scores of {name} {first!r} are all {groups['score'].first()[first]:g}, "
                f"a constant column, which tells nothing; correct them or choose others "
                f"with {flag}={','.join(alike.index[~alike]) or '...'}"
            )


def _check_scale(frame: pd.DataFrame, path: str) -> None:
    """Refuses runs in fractions among runs in percent."""
    named = frame.pivot(index="dataset", columns=["algorithm", "run"], values="score")
    table = named.to_numpy()
    if table.min() < 0 or table.max() > 100 or table.max() <= 1.5:
        return
    small = (table <= 1).all(axis=0)
    if not small.any() or small.all():
        return
    usual = np.median(table[:, ~small], axis=1)
    apart = (table[:, small] * _FRACTION < usual[:, None]).all(axis=0)
    if apart.any():
        first, run = named.columns[np.flatnonzero(small)[np.flatnonzero(apart)[0]]]
        who = f"{first} run {run}" if run else first
        raise ValueError(
            f"{path}: fractions must not stand among percentages: the scores of {who} are "
            f"all at most 1, others reach {table.max():g}; give all in one unit"
        )


def _read(path: str) -> tuple[pd.DataFrame, list[str]]:
    """Gives algorithm, dataset, run, score, trained_on; and the columns not used."""
    is_csv = pathlib.Path(path).suffix != ".parquet"
    head, lines = csv_rows.read(path) if is_csv else _parquet(path)
    head = [name.lower() for name in head]
    _check_head(head, f"{path}:1" if is_csv else path)
    rows, places = [], {}
    for place, fields in lines:
        row = dict(zip(head, fields.values(), strict=True))
        key = (row["algorithm"], row["dataset"], row.get("run", ""))
        first = places.setdefault(key, place)
        if first != place:
            raise ValueError(
                f"{place}: a score must occur once, got that of {first} again; remove one "
                "of the two or tell them apart in a column `run`"
            )
        rows.append((*key, _score(row, place), _trained(row, place)))
    if not rows:
        raise ValueError(f"{path}: must hold scores, got a header alone; add rows")
    columns = ["algorithm", "dataset", "run", "score", "trained_on"]
    return pd.DataFrame(rows, columns=columns), _ignored(head)


def _parquet(path: str) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """Does as csv_rows.read; what is missing is empty."""
    try:
        table = pd.read_parquet(path)
    except ValueError as error:
        raise ValueError(f"{path}: must be a Parquet file, got {error}") from None
    head = [str(name) for name in table.columns]
    words = [
        ["" if lacks else str(x).strip() for x, lacks in zip(column, column.isna())]
        for _, column in table.items()
    ]
    rows = zip(*words, strict=True)
    return head, (
        (f"{path}: row {i}", dict(enumerate(row))) for i, row in enumerate(rows)
    )


def _ignored(head: list[str]) -> list[str]:
    return [name for name in head if name not in (*NEEDED, *OPTIONAL)]


def _check_head(head: list[str], place: str) -> None:
    missing = [name for name in NEEDED if name not in head]
    if missing or len(set(head)) < len(head):
        raise ValueError(
            f"{place}: the first line must name the columns {', '.join(NEEDED)} once each "
            f"(and run, if there are several), got {', '.join(head) or 'nothing'}"
            f"{score_table.suggest_renames(head)}"
        )


def _score(row: dict[str, str], place: str) -> float:
    for name in ("algorithm", "dataset"):
        if not row[name]:
            raise ValueError(f"{place}: {name} must not be empty; name it")
    try:
        score = float(row["score"])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(
            f"{place}: score must be a finite number, got {row['score']!r} for algorithm "
            f"{row['algorithm']!r} on data set {row['dataset']!r}; correct or remove it"
        )
    return score


def _trained(row: dict[str, str], place: str) -> bool:
    told = row.get("trained_on", "").lower()
    if told not in (*_YES, *_NO):
        raise ValueError(f"{place}: trained_on must be yes or no, got {told!r}")
    return told in _YES
