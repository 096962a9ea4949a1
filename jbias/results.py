"""One record per number: records on disk, records as a table, and selection of models.

A workdir holds `evals/<step>.jsonl`, one JSON object a line, one line a number. Selection
rules are pure functions of the table of all records; they differ only in which evaluation
of a seed they report, and every table names its rule.
"""

import glob
import itertools
import json
import math
import os
import pathlib
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

VALID = "valid"  # The data set that model selection looks at.
TRAIN = "train"  # Training statistics, never an evaluation.
STATUSES = ("ok", "diverged")


class Record(NamedTuple):
    """One number that one seed of one run gave at one step.

    `value` is a fraction for accuracy (count / n) and shape bias; None or a number that is
    not finite is stored as null. `stage` counts from 0, `epoch` is the position in it.
    """

    run: str
    algorithm: str
    variant: str
    model: str
    train_data: str
    stage: int
    seed: int
    step: int
    epoch: float
    dataset: str
    condition: str
    metric: str
    value: float | None
    count: int | None = None
    n: int | None = None
    status: str = "ok"

    @property
    def key(self) -> tuple:
        """What may occur once in all records together."""
        return tuple(getattr(self, name) for name in KEY)


KEY = ("run", "stage", "seed", "step", "dataset", "condition", "metric")
UNIT = ["run", "stage", "seed"]  # What a selection rule selects for.
CELL = [*UNIT, "dataset", "condition", "metric"]
SELECTED = [
    *("algorithm", "variant", "run", "seed", "stage", "dataset", "condition"),
    *("metric", "value", "count", "n", "epoch", "workdir"),
]
_TYPES: dict[str, tuple] = {
    **{name: (str,) for name in Record._fields},
    **{name: (int,) for name in ("stage", "seed", "step")},
    **{name: (int, type(None)) for name in ("count", "n")},
    "epoch": (int, float),
    "value": (int, float, type(None)),
}


def dumps(records: Iterable[Record]) -> str:
    """Gives records as JSON lines; refuses a key that occurs twice."""
    seen: set[tuple] = set()
    lines = []
    for record in records:
        if record.key in seen:
            named = dict(zip(KEY, record.key, strict=True))
            raise ValueError(f"results: a key must occur once, got {named} twice")
        seen.add(record.key)
        fields = {k: _plain(v) for k, v in record._asdict().items()}
        if problem := _problem(fields):
            raise ValueError(f"results: {problem}; correct the record {record.key}")
        lines.append(json.dumps(fields, allow_nan=False))
    return "".join(line + "\n" for line in lines)


def loads(text: str, *, where: str = "records") -> list[Record]:
    """Reads what `dumps` gave; a damaged line is refused as `where:line`."""
    if not text.strip():
        raise ValueError(f"{where}:1: must hold a record, got nothing; remove it")
    lines = enumerate(text.splitlines(), start=1)
    return [_parse(line, f"{where}:{i}") for i, line in lines]


def write(path: str | os.PathLike, records: Iterable[Record]) -> None:
    """Writes JSON lines beside `path`, then renames: readers see all of it or nothing."""
    path = pathlib.Path(path)
    text = dumps(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def find(
    workdirs: str | os.PathLike | Sequence[str | os.PathLike],
) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Gives the workdirs with evaluations and those, matched by a glob, without any.

    A run whose settings vary has a workdir of each branch in its own. Refuses a workdir
    named outright without evaluations and a glob without matches.
    """
    if isinstance(workdirs, str | os.PathLike):
        workdirs = [workdirs]
    full, empty = {}, {}  # By their real path: each workdir counts once.
    for pattern in map(os.fspath, workdirs):
        literal = os.path.exists(pattern) or not glob.has_magic(pattern)
        matches = [pattern] if literal else sorted(glob.glob(pattern))
        if not matches or not os.path.exists(matches[0]):
            raise ValueError(f"{pattern}: must match a workdir, got none; check it")
        paths = map(pathlib.Path, matches)
        for path in itertools.chain.from_iterable(map(_branches, paths)):
            has_evals = any((path / "evals").glob("*.jsonl"))
            if literal and not has_evals:
                raise ValueError(
                    f"{path}: must hold evals/*.jsonl, got none; name the workdir of a "
                    "run that was evaluated at least once"
                )
            if has_evals or path.is_dir():
                (full if has_evals else empty)[path.resolve()] = path
    return list(full.values()), list(empty.values())


def _branches(workdir: pathlib.Path) -> list[pathlib.Path]:
    return sorted((workdir / "vary").glob("*/")) or [workdir]


def read(workdirs: str | os.PathLike | Sequence[str | os.PathLike]) -> pd.DataFrame:
    """Reads the records of all workdirs (paths or globs) as a table, one row each.

    Columns are the fields of `Record` and `workdir`. Raises ValueError naming file and line
    for a damaged line and for a key that occurred before.
    """
    full, _ = find(workdirs)
    if not full:
        raise ValueError(f"{workdirs}: must match evals/*.jsonl in workdirs, got none")
    rows, places = [], {}
    for workdir in full:
        for path in sorted((workdir / "evals").glob("*.jsonl"), key=_by_step):
            text = path.read_text(encoding="utf-8", errors="replace")
            for i, record in enumerate(loads(text, where=str(path)), start=1):
                place = f"{path}:{i}"
                first = places.setdefault(record.key, place)
                if first != place:
                    raise ValueError(
                        f"{place}: a key must occur once, got the record of {first} "
                        "again; leave one out or name the two runs differently"
                    )
                rows.append((*record, str(workdir)))
    return _table(rows)


def diverged(frame: pd.DataFrame) -> pd.DataFrame:
    """Names the seeds that diverged: algorithm, variant, run, seed, first bad step."""
    bad = frame[frame["status"] == "diverged"]
    told = bad["value"].where(bad["metric"] == "diverged").fillna(bad["step"])
    by = ["algorithm", "variant", "run", "seed"]
    bad = bad.assign(step=told.astype("int64"))
    return bad.groupby(by, as_index=False)["step"].min()


def best_validation(frame: pd.DataFrame) -> pd.DataFrame:
    """Selects, per run and seed, the evaluation with the first maximum on `valid`.

    What is compared is the accuracy on the data set "valid" in the last stage.
    """
    return best_on(frame, VALID, rule="best_validation")


def best_on(
    frame: pd.DataFrame, dataset: str, *, rule: str = "best_on"
) -> pd.DataFrame:
    """Selects, per run and seed, the evaluation with the first maximum on a data set.

    For another than `valid`, that data set is no longer a test.
    """
    candidates = evaluations(frame)
    looked = (candidates["dataset"] == dataset) & (candidates["metric"] == "accuracy")
    looked = candidates[looked & (candidates["condition"] == "")]
    looked = looked.dropna(subset="value")
    best = looked.loc[looked.groupby(UNIT)["value"].idxmax(), [*UNIT, "step"]]
    missing = set(_keys(candidates, UNIT)) - set(_keys(best, UNIT))
    if missing:
        run, stage, seed = min(missing)
        raise ValueError(
            f"{rule}: every seed needs accuracy on {dataset!r}, got none for run "
            f"{run!r}, seed {seed}, stage {stage}; evaluate on it or select last_n"
        )
    return _selected(candidates.merge(best, on=[*UNIT, "step"]))


def last_n(frame: pd.DataFrame, n: int) -> pd.DataFrame:
    """Averages, per run, seed and data set, the last n evaluations; `count` is empty."""
    if n < 1:
        raise ValueError(f"last_n: n must be at least 1, got {n}")
    candidates = evaluations(frame)
    sizes = candidates.groupby(CELL).size()
    if len(sizes) and sizes.min() < n:
        run, _, seed, dataset, *_ = sizes.idxmin()
        raise ValueError(
            f"last_n: every seed needs {n} evaluations, got {sizes.min()} of data set "
            f"{dataset!r} for run {run!r}, seed {seed}; choose a smaller n"
        )
    tail = candidates.groupby(CELL).tail(n)
    last = tail.groupby(CELL).tail(1).set_index(CELL)
    # An evaluation without a value leaves the mean without one.
    means = tail.groupby(CELL)["value"].agg(lambda values: values.mean(skipna=False))
    return _selected(last.assign(value=means, count=pd.NA).reset_index())


def oracle(frame: pd.DataFrame, *, larger_is_better: bool = True) -> pd.DataFrame:
    """Selects the best evaluation of every data set by looking at that data set.

    No model is chosen so in earnest: it bounds what selection could reach.
    """
    candidates = evaluations(frame).dropna(subset="value")
    groups = candidates.groupby(CELL)["value"]
    best = groups.idxmax() if larger_is_better else groups.idxmin()
    return _selected(candidates.loc[best])


def at_epoch(frame: pd.DataFrame, epoch: float) -> pd.DataFrame:
    """Selects the evaluations at one epoch of the last stage."""
    candidates = evaluations(frame)
    here = candidates[np.isclose(candidates["epoch"], epoch, rtol=0, atol=1e-6)]
    if here.empty and not candidates.empty:
        known = ", ".join(f"{e:g}" for e in sorted(candidates["epoch"].unique()))
        raise ValueError(f"at_epoch: must be an evaluated epoch, got {epoch}: {known}")
    return _selected(here)


def evaluations(frame: pd.DataFrame) -> pd.DataFrame:
    """Gives the evaluations of the last stage of every run, without diverged seeds.

    Every selection starts here.
    """
    seed = ["run", "seed"]
    bad = set(_keys(frame[frame["status"] == "diverged"], seed))
    keep = [key not in bad for key in _keys(frame, seed)]
    frame = frame[np.array(keep, bool) & (frame["dataset"] != TRAIN).to_numpy()]
    last = frame.groupby("run")["stage"].transform("max")
    frame = frame[frame["stage"] == last]
    return frame.sort_values("step", kind="stable", ignore_index=True)


def _keys(frame: pd.DataFrame, names: list[str]) -> list[tuple]:
    return list(frame[names].itertuples(index=False, name=None))


def _selected(frame: pd.DataFrame) -> pd.DataFrame:
    order = ["algorithm", "variant", *CELL]
    return frame.sort_values(order)[SELECTED].reset_index(drop=True)


def _table(rows: list[tuple]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=[*Record._fields, "workdir"])
    types = {"stage": "int64", "seed": "int64", "step": "int64", "epoch": "float64"}
    return frame.astype(types | {"value": "float64", "count": "Int64", "n": "Int64"})


def _by_step(path: pathlib.Path) -> tuple:
    return (0, int(path.stem), "") if path.stem.isdigit() else (1, 0, path.stem)


def _plain(value):
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parse(line: str, place: str) -> Record:
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(
            f"{place}: must be one JSON record, got a damaged line ({error}); "
            "restore the file or remove it and resume the run"
        ) from None
    if problem := _problem(fields):
        raise ValueError(f"{place}: {problem}; is it of another version?")
    return Record(**fields)


def _refuse_constant(name: str):
    raise ValueError(f"{name} is no JSON")


def _problem(fields) -> str | None:
    """Says what is wrong with a decoded record, None if nothing is."""
    if not isinstance(fields, dict):
        return f"must be a JSON object, got {type(fields).__name__}"
    if set(fields) != set(Record._fields):
        differing = sorted(set(fields) ^ set(Record._fields))
        return f"must have the fields of a record, got others: {', '.join(differing)}"
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, _TYPES[name]):
            return f"{name} must be {_TYPES[name][0].__name__}, got {value!r}"
    if fields["status"] not in STATUSES:
        return f"status must be one of {STATUSES}, got {fields['status']!r}"
    return None
