"""Records, one a number: written as JSON lines, read back as a table.

A workdir holds `evals/<step>.jsonl`, one JSON object a line, one line a number.

Reading is fast because records repeat themselves: the same run, data set and step in line
after line. Lines are cut at their commas, and each distinct text of a field is decoded
once by `json`. That every text decodes to exactly its own field proves that the cuts were
right; a block of files that fails this is read line by line.
"""

import concurrent.futures
import glob
import itertools
import json
import math
import os
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from etils import epath
from pyarrow import csv

from jbias.runs import checksums
from jbias.runtime import files

VALID = "valid"  # The data set that model selection looks at.
TRAIN = "train"  # Training statistics, never an evaluation.
STATUSES = ("ok", "diverged")
_SHARES = ("accuracy", "shape_bias")  # Metrics whose value is count / n.


_Path = TypeVar("_Path", pathlib.Path, epath.Path)


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
_KINDS = {  # Of columns.
    **dict.fromkeys(Record._fields, "words"),
    **dict.fromkeys(("stage", "seed", "step"), "whole"),
    **dict.fromkeys(("count", "n"), "whole or none"),
    **dict.fromkeys(("epoch", "value"), "number"),
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
    files.write(target, text)


def find_workdirs(
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
    for pattern in [os.fspath(files.local_copy(one, "--runs")) for one in workdirs]:
        literal = os.path.exists(pattern) or not glob.has_magic(pattern)
        if literal and _holds_workdirs(pathlib.Path(pattern)):
            pattern, literal = os.path.join(glob.escape(pattern), "*"), False
        matches = [pattern] if literal else sorted(glob.glob(pattern))
        if not matches or not os.path.exists(matches[0]):
            raise ValueError(f"{pattern}: must match a workdir, got none; check it")
        paths = map(pathlib.Path, matches)
        for path in itertools.chain.from_iterable(map(branch_folders, paths)):
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
        for inner in branch_folders(child)
    )


def branch_folders(workdir: _Path) -> list[_Path]:
    """Where the records of a run are: its branches' folders, if its settings vary."""
    return sorted((workdir / "vary").glob("*/")) or [workdir]


def read(workdirs: str | os.PathLike | Sequence[str | os.PathLike]) -> pd.DataFrame:
    """Reads the records of all workdirs (paths or globs) as a table, one row each.

    Columns are the fields of `Record` and `workdir`; words are categories in the order of
    the alphabet. Raises ValueError naming file and line for a damaged line and for a key
    that occurred before.
    """
    full, _ = find_workdirs(workdirs)
    if not full:
        raise ValueError(f"{workdirs}: must match evals/*.jsonl in workdirs, got none")
    files = [
        (str(workdir), path)
        for workdir in full
        for path in sorted((workdir / "evals").glob("*.jsonl"), key=_by_step)
    ]
    paths = [path for _, path in files]
    columns, sizes = _read_columns(paths)
    folders = pd.Categorical([workdir for workdir, _ in files])
    frame = pd.DataFrame({**columns, "workdir": folders.repeat(sizes)})
    _refuse_repeated(frame, paths, sizes)
    _refuse_other_shares(frame, paths, sizes)
    for workdir in full:
        checksums.check(
            workdir, lambda name: checksums.is_record(name) or checksums.is_fact(name)
        )
    return frame


def _refuse_repeated(frame: pd.DataFrame, paths, sizes: np.ndarray) -> None:
    keys = number_rows(frame, KEY)
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
    for row, share in shares[~right.astype(bool)][:1].iterrows():
        raise ValueError(
            "{}: {} must be count / n = {} / {}, got {}; restore the file, or remove it "
            "and start the run's command again".format(
                _place(row, paths, sizes), *share
            )
        )


def _place(row: int, paths, sizes: np.ndarray) -> str:
    """File and line of a row."""
    ends = np.cumsum(sizes)
    i = int(np.searchsorted(ends, row, side="right"))
    return f"{paths[i]}:{row - (ends[i] - sizes[i]) + 1}"


def number_rows(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
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
    return _typed(name, value) and _storable(name, value)


def _typed(name: str, value) -> bool:
    return not isinstance(value, bool) and isinstance(value, _TYPES[name])


def _storable(name: str, value) -> bool:
    """Whether what is of the right type is no larger than a column of the table holds."""
    if not isinstance(value, int | float):
        return True
    if _KINDS[name] == "number":
        return abs(value) <= sys.float_info.max
    return -(2**63) <= value < 2**63


BLOCK_BYTES = 2**24  # Files are read together up to this size.
WORKERS = 8  # More wait for each other.

# Of some rows: the values that differ, and which of them each row has.
_Coded = Mapping[str, tuple[list, np.ndarray]]


def _read_columns(
    paths: Sequence[pathlib.Path],
) -> tuple[dict[str, Any], np.ndarray]:
    """Reads files of records as columns, and counts the lines of each file.

    By the column's kind: "words" are a categorical, its categories in the order of the
    alphabet; "whole", "whole or none" and "number", where None is NaN, are numbers.
    """
    ends = np.cumsum([path.stat().st_size for path in paths]) // BLOCK_BYTES
    blocks = np.split(np.array(paths, object), np.flatnonzero(np.diff(ends)) + 1)
    workers = min(WORKERS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(_load, blocks))
    columns = {}
    for name, kind in _KINDS.items():
        columns[name] = _column(kind, [coded[name] for coded, _ in parts])
    return columns, np.array([size for _, sizes in parts for size in sizes], np.int64)


def _load(block: Sequence[pathlib.Path]) -> tuple[_Coded, list[int]]:
    texts = [path.read_bytes() for path in block]
    sizes = [text.count(b"\n") + (not text.endswith(b"\n")) for text in texts]
    if coded := _cut(texts, sum(sizes)):
        return coded, sizes
    del texts
    # The last word on what cannot be read fast; ValueError for what is no record.
    exact = [
        loads(path.read_text(encoding="utf-8", errors="replace"), where=str(path))
        for path in block
    ]
    columns = zip(*itertools.chain.from_iterable(exact), strict=True)
    coded = {}
    for name, values in zip(_KINDS, columns, strict=True):
        known = {value: i for i, value in enumerate(dict.fromkeys(values))}
        coded[name] = list(known), np.array([known[value] for value in values])
    return coded, [len(records) for records in exact]


def _cut(texts: Sequence[bytes], rows: int) -> _Coded | None:
    """Gives the fields of all lines, None unless every line is a record beyond doubt."""
    data = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
    if not data.isascii() or not all(texts):
        return None
    try:
        names = list(json.loads(data[: data.index(b"\n")]))
        if sorted(names) != sorted(_KINDS):
            return None
        table = _table(data, names)
        if table.num_rows != rows:
            return None
        coded = {}
        for i, name in enumerate(names):
            column = table.column(i).combine_chunks()
            # The first text of a line has its brace already, and the last one too.
            braces = "" if i == 0 else "{", "" if i == len(names) - 1 else "}"
            values = _decoded(column.dictionary.to_pylist(), name, *braces)
            if not all(_fits(name, value) for value in values):
                return None
            coded[name] = values, column.indices.to_numpy()
    except (TypeError, ValueError, RecursionError):  # pa.ArrowInvalid is a ValueError.
        return None
    return coded


def _table(data: bytes, names: Sequence[str]) -> pa.Table:
    texts = pa.dictionary(pa.int32(), pa.string())
    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            use_threads=False, column_names=names, block_size=2**19
        ),
        parse_options=csv.ParseOptions(
            quote_char=False, double_quote=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, texts), check_utf8=False
        ),
    ).unify_dictionaries()


def _decoded(texts: list[str], name: str, opening: str, closing: str) -> list:
    """Decodes `"name": value`; no text has a comma, so none can stand for several."""
    joined = f"{closing},{opening}".join(texts)
    whole = f"[{opening}{joined}{closing}]"
    fields = json.loads(whole, parse_constant=_refuse_constant)
    if len(fields) != len(texts) or any(list(field) != [name] for field in fields):
        raise ValueError(name)
    return [field[name] for field in fields]


def _column(kind: str, parts: Sequence[tuple[list, np.ndarray]]):
    if kind == "words":
        words = sorted({word for known, _ in parts for word in known})
        place = {word: i for i, word in enumerate(words)}
        small = np.min_scalar_type(-len(words))
        codes = [
            np.array([place[w] for w in known], small)[own] for known, own in parts
        ]
        return pd.Categorical.from_codes(
            np.concatenate(codes), pd.Index(words, dtype="str"), validate=False
        )
    if kind == "number":
        return np.concatenate([np.array(known, float)[own] for known, own in parts])
    numbers = [np.array([v or 0 for v in known], np.int64)[own] for known, own in parts]
    if kind == "whole":
        return np.concatenate(numbers)
    empty = [np.array([v is None for v in known])[own] for known, own in parts]
    return pd.arrays.IntegerArray(np.concatenate(numbers), np.concatenate(empty))
