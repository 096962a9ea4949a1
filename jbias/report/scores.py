"""From a table of scores that others made to a study."""

import csv
import math
import pathlib

import pandas as pd

from jbias.report import gather
from jbias.report import options as options_lib
from jbias.report import study as study_lib

NEEDED = ("algorithm", "dataset", "score")


def from_scores(path: str, options: options_lib.Options) -> study_lib.Study:
    """Reads a CSV file with the columns algorithm, dataset, score and, if any, run.

    Raises ValueError by file and line for what is no score, for a cell that occurs twice
    and for missing cells: no test can be made over those.
    """
    values, ignored = _read(path)
    known = list(dict.fromkeys(values["dataset"]))
    gather.check_datasets(options.datasets, known)
    datasets = list(options.datasets) or known
    algorithms = list(dict.fromkeys(values["algorithm"]))
    values = values[values["dataset"].isin(datasets)].reset_index(drop=True)
    have = set(values[["algorithm", "dataset"]].itertuples(index=False, name=None))
    missing = [(a, d) for d in datasets for a in algorithms if (a, d) not in have]
    if missing:
        algorithm, dataset = missing[0]
        bad = {d for _, d in missing}
        rest = ",".join(d for d in datasets if d not in bad) or "..."
        more = f" and {len(missing) - 1} more missing" if len(missing) > 1 else ""
        raise ValueError(
            f"{path}: every algorithm needs a score on every data set, got none of "
            f"algorithm {algorithm!r} on data set {dataset!r}{more}; add the scores or "
            f"choose complete data sets with --datasets={rest}"
        )
    notes = []
    if ignored:
        notes.append(f"Columns of {path} that were not used: {', '.join(ignored)}.")
    return study_lib.Study(
        source=path,
        metric="score",
        larger_is_better=options.larger_is_better,
        selection="given",
        rule="scores as they stand in the file; how models were selected is not known here",
        algorithms=tuple(algorithms),
        datasets=tuple(datasets),
        values=values,
        notes=tuple(notes),
    )


def _read(path: str) -> tuple[pd.DataFrame, list[str]]:
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    reader = csv.reader(text.splitlines())
    head = [name.strip() for name in next(reader, [])]
    missing = [name for name in NEEDED if name not in head]
    if missing or len(set(head)) < len(head):
        raise ValueError(
            f"{path}:1: the first line must name the columns {', '.join(NEEDED)} once each "
            f"(and run, if there are several), got {', '.join(head) or 'nothing'}"
        )
    rows, places = [], {}
    for line in reader:
        place = f"{path}:{reader.line_num}"
        if not any(field.strip() for field in line):
            continue
        if len(line) != len(head):
            raise ValueError(
                f"{place}: must have {len(head)} fields as line 1, got {len(line)}; "
                "complete or remove the line"
            )
        row = {k: v.strip() for k, v in zip(head, line, strict=True)}
        key = (row["algorithm"], row["dataset"], row.get("run", ""))
        first = places.setdefault(key, place)
        if first != place:
            raise ValueError(
                f"{place}: a score must occur once, got that of {first} again; remove one "
                "of the two or tell them apart in a column `run`"
            )
        rows.append((*key, _score(row, place)))
    if not rows:
        raise ValueError(f"{path}: must hold scores, got a header alone; add rows")
    frame = pd.DataFrame(rows, columns=["algorithm", "dataset", "seed", "value"])
    ignored = [name for name in head if name not in (*NEEDED, "run")]
    return frame.assign(count=pd.NA, n=pd.NA), ignored


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
