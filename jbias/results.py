"""One record per number: records on disk, and records as a table.

A workdir holds `evals/<step>.jsonl`, one JSON object a line, one line a number.
"""

import glob
import itertools
import json
import math
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from etils import epath

from jbias import lines
from jbias.store import disk, sums

VALID = "valid"  # The data set that model selection looks at.
TRAIN = "train"  # Training statistics, never an evaluation.
STATUSES = ("ok", "diverged")
_SHARES = ("accuracy", "shape_bias")  # Metrics whose value is count / n.


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
    count: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    n: int | None = None
    status: str = "ok"

    @property
    def key(self) -> tuple:
        """What may occur once in all records together."""
        return tuple(getattr(self, name) for name in KEY)


KEY = ("run", "stage", "seed", "step", "dataset", "condition", "metric")
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
    write_text(path, dumps(records))


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes what `dumps` gave likewise."""
    target = epath.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    disk.write(target, text)


def find(
    workdirs: str | os.PathLike | Sequence[str | os.PathLike],
) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Gives the workdirs with evaluations and those, matched by a glob, without any.

    A run whose settings vary has a workdir of each branch in its own. A folder named
    outright that is no workdir and holds some stands for all that it holds. Refuses any
    other that is named outright without evaluations, and a glob without matches.
    """
    if isinstance(workdirs, str | os.PathLike):
        workdirs = [workdirs]
    full, empty = {}, {}  # By their real path: each workdir counts once.
    for pattern in [os.fspath(disk.local(one, "--runs")) for one in workdirs]:
        literal = os.path.exists(pattern) or not glob.has_magic(pattern)
        if literal and _holds_workdirs(pathlib.Path(pattern)):
            pattern, literal = os.path.join(glob.escape(pattern), "*"), False
        matches = [pattern] if literal else sorted(glob.glob(pattern))
        if not matches or not os.path.exists(matches[0]):
            raise ValueError(f"{pattern}: must match a workdir, got none; check it")
        paths = map(pathlib.Path, matches)
        for path in itertools.chain.from_iterable(map(_branches, paths)):
            has_evals = any((path / "evals").glob("*.jsonl"))
            if literal and not has_evals:
                raise ValueError(
                    f"{path}: must hold evals/*.jsonl, got none; name the workdir of a "
                    "run that was evaluated at least once, or the folder of such workdirs"
                )
            if has_evals or path.is_dir():
                (full if has_evals else empty)[path.resolve()] = path
    return list(full.values()), list(empty.values())


def _holds_workdirs(path: pathlib.Path) -> bool:
    """Whether a folder is none of a run or a network, and holds such."""
    own = any((path / name).exists() for name in ("config.json", "evals", "vary"))
    return not own and any(
        any((inner / "evals").glob("*.jsonl"))
        for child in path.glob("*/")
        for inner in _branches(child)
    )


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
    _refuse_other_shares(frame, paths, sizes)
    for workdir in full:
        sums.check(workdir, lambda name: sums.is_record(name) or sums.is_fact(name))
    return frame


def _parsed(path: pathlib.Path) -> list[Record]:
    return loads(path.read_text(encoding="utf-8", errors="replace"), where=str(path))


def _refuse_repeated(frame: pd.DataFrame, paths, sizes: np.ndarray) -> None:
    keys = keyed(frame, KEY)
    again = np.flatnonzero(pd.Series(keys).duplicated())
    if not len(again):
        return
    first = np.flatnonzero(keys == keys[again[0]])[0]
    raise ValueError(
        f"{_place(again[0], paths, sizes)}: a key must occur once, got the record of "
        f"{_place(first, paths, sizes)} again; leave one out or name the two runs "
        "differently"
    )


def _refuse_other_shares(frame: pd.DataFrame, paths, sizes: np.ndarray) -> None:
    """Refuses a value that is not the count of n beside it."""
    shares = frame[frame["metric"].isin(_SHARES)]
    shares = shares[["metric", "count", "n", "value"]].dropna()
    _, count, n, value = (shares[name] for name in shares)
    # Values may have gone through float32.
    right = (abs(value * n - count) <= 1e-6 * n) & (0 <= count) & (count <= n)
    for row, told in shares[~right.astype(bool)][:1].iterrows():
        raise ValueError(
            "{}: {} must be count / n = {} / {}, got {}; restore the file, or remove it "
            "and start the run's command again".format(_place(row, paths, sizes), *told)
        )


def _place(row: int, paths, sizes: np.ndarray) -> str:
    """File and line of a row."""
    ends = np.cumsum(sizes)
    i = int(np.searchsorted(ends, row, side="right"))
    return f"{paths[i]}:{row - (ends[i] - sizes[i]) + 1}"


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


def _by_step(path: pathlib.Path) -> tuple:
    return (0, int(path.stem), "") if path.stem.isdecimal() else (1, 0, path.stem)


def _plain(value):
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parse(line: str, place: str) -> Record:
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
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
