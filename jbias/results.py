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
import sys
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias import lines

VALID = "valid"  # The data set that model selection looks at.
TRAIN = "train"  # Training statistics, never an evaluation.
STATUSES = ("ok", "diverged")
EPOCH_ATOL = 1e-6  # Epochs that differ by less are the same.


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
_KINDS = {  # How lines.py tells them.
    **dict.fromkeys(Record._fields, "words"),
    **dict.fromkeys(("stage", "seed", "step"), "whole"),
    **dict.fromkeys(("count", "n"), "whole or none"),
    **dict.fromkeys(("epoch", "value"), "number"),
}


def dumps(records: Iterable[Record]) -> str:
    """Gives records as JSON lines; refuses a key that occurs twice."""
    seen: set[tuple] = set()
    told = []
    for record in records:
        if record.key in seen:
            named = dict(zip(KEY, record.key, strict=True))
            raise ValueError(f"results: a key must occur once, got {named} twice")
        seen.add(record.key)
        fields = {k: _plain(v) for k, v in record._asdict().items()}
        if problem := _problem(fields):
            raise ValueError(f"results: {problem}; correct the record {record.key}")
        told.append(json.dumps(fields, allow_nan=False))
    return "".join(line + "\n" for line in told)


def loads(text: str, *, where: str = "records") -> list[Record]:
    """Reads what `dumps` gave; a damaged line is refused as `where:line`."""
    if not text.strip():
        raise ValueError(f"{where}:1: must hold a record, got nothing; remove it")
    return [
        _parse(line, f"{where}:{i}")
        for i, line in enumerate(text.splitlines(), start=1)
    ]


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

    Columns are the fields of `Record` and `workdir`; words are categories in the order of
    the alphabet. Raises ValueError naming file and line for a damaged line and for a key
    that occurred before.
    """
    full, _ = find(workdirs)
    if not full:
        raise ValueError(f"{workdirs}: must match evals/*.jsonl in workdirs, got none")
    files = [
        (str(workdir), path)
        for workdir in full
        for path in sorted((workdir / "evals").glob("*.jsonl"), key=_by_step)
    ]
    paths = [path for _, path in files]
    columns, sizes = lines.read(paths, _KINDS, fits=_fits, exact=_parsed)
    folders = pd.Categorical([workdir for workdir, _ in files])
    frame = pd.DataFrame({**columns, "workdir": folders.repeat(sizes)})
    _refuse_repeated(frame, paths, sizes)
    return frame


def _parsed(path: pathlib.Path) -> list[Record]:
    return loads(path.read_text(encoding="utf-8", errors="replace"), where=str(path))


def _refuse_repeated(frame: pd.DataFrame, paths, sizes: np.ndarray) -> None:
    keys = keyed(frame, KEY)
    again = np.flatnonzero(pd.Series(keys).duplicated())
    if not len(again):
        return
    ends = np.cumsum(sizes)
    places = []
    for row in (again[0], np.flatnonzero(keys == keys[again[0]])[0]):
        i = int(np.searchsorted(ends, row, side="right"))
        places.append(f"{paths[i]}:{row - (ends[i] - sizes[i]) + 1}")
    raise ValueError(
        f"{places[0]}: a key must occur once, got the record of {places[1]} again; leave "
        "one out or name the two runs differently"
    )


def keyed(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Numbers the rows: two have the same number if they are equal in all of `names`."""
    keys, span = np.zeros(len(frame), np.int64), 1
    for name in names:
        column = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes, size = column.cat.codes.to_numpy(), len(column.cat.categories)
        else:
            codes, known = pd.factorize(column, use_na_sentinel=False)
            size = len(known)
        if span * size >= 2**62:  # Number anew what occurs, or numbers run over.
            keys, known = pd.factorize(keys)
            span = len(known)
        keys, span = keys * size + codes, span * max(size, 1)
    return keys


def diverged(frame: pd.DataFrame) -> pd.DataFrame:
    """Names the seeds that diverged: algorithm, variant, run, seed, first bad step."""
    bad = _in_words(frame[frame["status"] == "diverged"])
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
    looked &= (candidates["condition"] == "") & candidates["value"].notna()
    units = pd.Series(keyed(candidates, UNIT))
    best = candidates["value"][looked].groupby(units[looked]).idxmax()
    missing = candidates[~units.isin(best.index)]
    if len(missing):
        run, stage, seed = missing[UNIT].sort_values(UNIT).iloc[0]
        raise ValueError(
            f"{rule}: every seed needs accuracy on {dataset!r}, got none for run "
            f"{run!r}, seed {seed}, stage {stage}; evaluate on it or select last_n"
        )
    moments = pd.Series(keyed(candidates, [*UNIT, "step"]))
    return _selected(candidates[moments.isin(moments[best])])


def last_n(frame: pd.DataFrame, n: int) -> pd.DataFrame:
    """Averages, per run, seed and data set, the last n evaluations; `count` is empty."""
    if n < 1:
        raise ValueError(f"last_n: n must be at least 1, got {n}")
    candidates = evaluations(frame)
    cells, _ = pd.factorize(keyed(candidates, CELL))
    later = candidates.groupby(cells).cumcount(ascending=False).to_numpy()
    last = candidates[later == 0]
    sizes = np.bincount(cells)[cells[later == 0]]
    if len(sizes) and sizes.min() < n:
        short = last[sizes == sizes.min()].sort_values(CELL).iloc[0]
        raise ValueError(
            f"last_n: every seed needs {n} evaluations, got {sizes.min()} of data set "
            f"{short['dataset']!r} for run {short['run']!r}, seed {short['seed']}; choose "
            "a smaller n"
        )
    # An evaluation without a value leaves the mean without one.
    tail = candidates["value"][later < n].groupby(cells[later < n])
    means = tail.mean(skipna=False)[cells[later == 0]].to_numpy()
    nothing = pd.array([pd.NA] * len(last), dtype="Int64")
    return _selected(last.assign(value=means, count=nothing))


def oracle(
    frame: pd.DataFrame, *, metric: str = "accuracy", larger_is_better: bool = True
) -> pd.DataFrame:
    """Selects the best evaluation of every data set by looking at that data set.

    What is compared is `metric`: the data set's own number, or where it has none the mean
    over all its conditions. The other numbers of a data set come from the same evaluation;
    a data set without `metric` has none. No model is chosen so in earnest: it bounds what
    selection could reach.
    """
    candidates = evaluations(frame)
    sets, known = pd.factorize(keyed(candidates, [*UNIT, "dataset"]))
    moments = keyed(candidates, ["step"]) * len(known) + sets
    looked = (candidates["metric"] == metric).to_numpy()
    own = looked & (candidates["condition"] == "").to_numpy()
    whole = np.zeros(len(known), bool)
    whole[sets[own]] = True
    parts = candidates[looked & ~whole[sets]]
    scores = pd.concat(
        [
            pd.Series(candidates["value"].to_numpy()[own], moments[own]),
            _over_conditions(parts["value"], moments[parts.index], len(known)),
        ]
    ).dropna()
    by_set = scores.groupby(scores.index.to_numpy() % max(len(known), 1))
    best = by_set.idxmax() if larger_is_better else by_set.idxmin()
    chosen = np.full(len(known), -1, np.int64)
    chosen[best.index] = best
    return _selected(candidates[chosen[sets] == moments])


def _over_conditions(values: pd.Series, moments: np.ndarray, sets: int) -> pd.Series:
    """Gives means at each moment, where it has as many conditions as any of its set."""
    groups = values.groupby(moments, sort=False)
    sizes = groups.size()
    most = sizes.groupby(sizes.index.to_numpy() % max(sets, 1)).transform("max")
    return groups.mean(skipna=False)[sizes == most]


def at_epoch(frame: pd.DataFrame, epoch: float) -> pd.DataFrame:
    """Selects the evaluations at one epoch of the last stage, which every seed has."""
    candidates = evaluations(frame)
    here = np.isclose(candidates["epoch"], epoch, rtol=0, atol=EPOCH_ATOL)
    units = keyed(candidates, UNIT)
    missing = candidates[~np.isin(units, units[here])]
    if len(missing):
        short = missing.sort_values(UNIT, kind="stable").iloc[0]
        mine = candidates[units == units[short.name]]
        known = ", ".join(f"{e:g}" for e in sorted(mine["epoch"].unique()))
        raise ValueError(
            f"at_epoch: every seed needs an evaluation at epoch {epoch:g}, got none for "
            f"run {short['run']!r}, seed {short['seed']}; choose one that all seeds have, "
            f"it has {known}"
        )
    return _selected(candidates[here])


def evaluations(frame: pd.DataFrame) -> pd.DataFrame:
    """Gives the evaluations of the last stage of every run, without diverged seeds.

    Every selection starts here; what it gave it gives back at once.
    """
    keep = (frame["dataset"] != TRAIN).to_numpy()
    bad = (frame["status"] == "diverged").to_numpy()
    if bad.any():
        seeds = pd.Series(keyed(frame, ["run", "seed"]))
        keep = keep & ~seeds.isin(seeds[bad]).to_numpy()
    stages, steps = frame["stage"].to_numpy(), frame["step"].to_numpy()
    if len(frame) and stages.min() < stages.max():
        runs = keyed(frame, ["run"])[keep]
        last = pd.Series(stages[keep]).groupby(runs).transform("max")
        keep = keep.copy()
        keep[keep] = stages[keep] == last.to_numpy()
    in_order = not (steps[1:] < steps[:-1]).any()
    if keep.all() and in_order:
        return frame.reset_index(drop=True)
    rows = np.flatnonzero(keep)
    if not in_order:
        rows = rows[np.argsort(steps[rows], kind="stable")]
    return frame.take(rows).reset_index(drop=True)


def _selected(frame: pd.DataFrame) -> pd.DataFrame:
    order = ["algorithm", "variant", *CELL]
    return _in_words(frame[SELECTED].sort_values(order).reset_index(drop=True))


def _in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """Makes categories plain text: few rows need none."""
    told = frame.dtypes[frame.dtypes == "category"].index
    return frame.astype(dict.fromkeys(told, "str"))


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
        if not _fits(name, value) and name == "status" and isinstance(value, str):
            return f"status must be one of {STATUSES}, got {value!r}"
        if not _fits(name, value):
            large = _typed(name, value)
            kind = "finite in 64 bits" if large else _TYPES[name][0].__name__
            return f"{name} must be {kind}, got {value!r}"
    return None


def _fits(name: str, value) -> bool:
    if name == "status":
        return value in STATUSES
    return _typed(name, value) and not _too_large(name, value)


def _typed(name: str, value) -> bool:
    return not isinstance(value, bool) and isinstance(value, _TYPES[name])


def _too_large(name: str, value) -> bool:
    """Whether a number of the right type is more than a column of the table holds."""
    if not isinstance(value, int | float):
        return False
    if _KINDS[name] == "number":
        return not abs(value) <= sys.float_info.max
    return not -(2**63) <= value < 2**63
