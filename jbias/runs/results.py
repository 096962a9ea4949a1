"""Records, one a number: written as JSON lines, read back as a table.

A workdir holds `evals/<step>.jsonl`, one JSON object a line, one line a number. A run that
is done has its records, where they are many, in one Parquet file as well (`compacted`).

Many files are read together, by Arrow; those that it does not take for records beyond doubt
are read line by line.
"""

import concurrent.futures
import contextlib
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
from pyarrow import compute
from pyarrow import json as json_reader

from jbias.runs import checksums, compacted
from jbias.runs import columns as columns_lib
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
# By field the type of its column, and of its values.
_KINDS: dict[str, tuple[str, tuple]] = {
    **dict.fromkeys(Record._fields, ("category", (str,))),
    **dict.fromkeys(("stage", "seed", "step"), ("int64", (int,))),
    **dict.fromkeys(("count", "n"), ("Int64", (int, type(None)))),
    "epoch": ("float64", (int, float)),
    "value": ("float64", (int, float, type(None))),
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
    return [_parse(x, f"{where}:{i}") for i, x in enumerate(text.splitlines(), start=1)]


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
        for path in (x for one in matches for x in branch_folders(pathlib.Path(one))):
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


def read(
    workdirs: str | os.PathLike | Sequence[str | os.PathLike], *, compacts: bool = False
) -> pd.DataFrame:
    """Return the records of all workdirs (paths or globs) as a table, one row each.

    Columns are the fields of `Record` and `workdir`; words are categories in the order of
    the alphabet. Raises ValueError naming file and line for a damaged line and for a key
    that occurred before.

    compacts: whether to write the records of each run that is done to one Parquet file,
      where they are many, so that the next reading is faster.
    """
    full, _ = find_workdirs(workdirs)
    if not full:
        raise ValueError(f"{workdirs}: must match evals/*.jsonl in workdirs, got none")
    by_folder = {workdir: _record_files(workdir) for workdir in full}
    columns, sizes = _read_columns(by_folder, compacts=compacts)
    paths = [path for paths in by_folder.values() for path in paths]
    folders = [str(folder) for folder, paths in by_folder.items() for _ in paths]
    columns["workdir"] = pd.Categorical(folders).repeat(sizes)
    frame = pd.DataFrame(columns, copy=False)
    del columns
    _refuse_repeated(frame, paths, sizes)
    _refuse_other_shares(frame, paths, sizes)
    for workdir in full:
        checksums.check(workdir, checksums.is_needed)
    return frame


def compact(workdir: str | os.PathLike) -> None:
    """Write the records of a run that is done to one Parquet file, where they are many.

    Each branch gets a file of its own. OSError where a file cannot be written, ValueError
    for a line that is no record.
    """
    for folder in branch_folders(pathlib.Path(workdir)):
        paths = _record_files(folder)
        if _are_many(paths):
            compacted.write(folder, paths, _load_files(paths))


def _record_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted((folder / "evals").glob("*.jsonl"), key=_by_step)


def _refuse_repeated(frame: pd.DataFrame, paths, sizes: np.ndarray) -> None:
    if not _has_repeated(frame, KEY):
        return
    keys = number_rows(frame, KEY)
    again = np.flatnonzero(pd.Series(keys).duplicated())[0]
    first = np.flatnonzero(keys == keys[again])[0]
    raise ValueError(
        f"{_place(again, paths, sizes)}: a key must occur once, got the record of "
        f"{_place(first, paths, sizes)} again; leave one of the two folders out (two "
        "versions of a file of your own need two file names)"
    )


def _refuse_other_shares(frame: pd.DataFrame, paths, sizes: np.ndarray) -> None:
    """Refuses a value that is not the count of n beside it."""
    shares = frame[["metric", "count", "n", "value"]]
    shares = shares[shares["metric"].isin(_SHARES)].dropna()
    _, count, n, value = (shares[name] for name in shares)
    # Values may have gone through float32.
    right = (abs(value * n - count) <= 1e-6 * n) & (0 <= count) & (count <= n)
    for row, (metric, *of, got) in shares[~right.astype(bool)][:1].iterrows():
        raise ValueError(
            f"{_place(row, paths, sizes)}: {metric} must be count / n = {of[0]} / {of[1]}, "
            f"got {got}; restore the file, or remove it and start the run's command again"
        )


def _place(row: int, paths, sizes: np.ndarray) -> str:
    """File and line of a row."""
    ends = np.cumsum(sizes)
    i = int(np.searchsorted(ends, row, side="right"))
    return f"{paths[i]}:{row - (ends[i] - sizes[i]) + 1}"


def number_rows(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Number the rows from 0 on without gaps; rows equal in all `names` have one number."""
    return _without_gaps(*_number_with_gaps(frame, names))[0]


def first_rows(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return the places of the rows that no row before equals in all `names`, in order."""
    keys = number_rows(frame, names)
    first = np.empty(keys.max(initial=-1) + 1, np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]  # The last that is set stays.
    return np.sort(first)


def _has_repeated(frame: pd.DataFrame, names: Sequence[str]) -> bool:
    """Return whether two rows are equal in all `names`."""
    keys, span = _number_with_gaps(frame, names)
    if _is_sparse(keys, span):
        return _without_gaps(keys, span)[1] < len(keys)
    return np.count_nonzero(_occurring(keys, span)) < len(keys)


def _number_with_gaps(
    frame: pd.DataFrame, names: Sequence[str]
) -> tuple[np.ndarray, int]:
    """Return a number for each row, equal for rows equal in all `names`, and a bound of them."""
    keys, span = np.zeros(len(frame), np.int64), 1
    for name in names:
        codes, size = _codes(frame[name])
        if size == 1:
            continue
        if span * size >= 2**62:  # Numbers would run over.
            keys, span = _without_gaps(keys, span)
        keys *= size
        keys += codes
        span *= max(size, 1)
    return keys, span


def _codes(column: pd.Series) -> tuple[np.ndarray, int]:
    """Return a number for each row, equal for equal values, and a bound of these numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), len(column.cat.categories)
    if column.dtype == np.int64 and len(column):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if low == high:
            return np.zeros(1, np.int64), 1
        if high - low < len(values):  # Faster than a hash of each.
            return _without_gaps(values - low, high - low + 1)
    codes, known = pd.factorize(column, use_na_sentinel=False)
    return codes, len(known)


def _is_sparse(keys: np.ndarray, span: int) -> bool:
    """Return whether a table of all numbers would be larger than what it numbers."""
    return span > 8 * len(keys)


def _occurring(keys: np.ndarray, span: int) -> np.ndarray:
    occurs = np.zeros(span, bool)
    occurs[keys] = True
    return occurs


def _without_gaps(keys: np.ndarray, span: int) -> tuple[np.ndarray, int]:
    """Number anew what occurs of the numbers below `span`, in its order, and count it."""
    if _is_sparse(keys, span):
        keys, known = pd.factorize(keys)
        return keys, len(known)
    occurs = _occurring(keys, span)
    count = np.count_nonzero(occurs)
    if count == span:
        return keys, span
    places = np.cumsum(occurs, dtype=np.min_scalar_type(count))
    places -= 1
    return places[keys].astype(np.int64), count


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
    if differing := sorted(set(fields) ^ set(Record._fields)):
        return f"must have the fields of a record, got others: {', '.join(differing)}"
    for name, value in fields.items():
        if must := _lacking(name, value):
            return f"{name} must be {must}, got {value!r}"
    return None


def _lacking(name: str, value) -> str:
    """What a field must be and is not: of its type, known, no larger than its column."""
    dtype, types = _KINDS[name]
    if isinstance(value, bool) or not isinstance(value, types):
        return types[0].__name__
    if name == "status" and value not in STATUSES:
        return f"one of {STATUSES}"
    fits = not isinstance(value, int | float) or -(2**63) <= value < 2**63
    if dtype == "float64" and value is not None:
        fits = abs(value) <= sys.float_info.max
    return "" if fits else "finite in 64 bits"


BLOCK_BYTES = 2**24  # Files are read together up to this size.
WORKERS = 8  # More wait for each other.

_ARROW = {"category": pa.string(), "float64": pa.float64()}
_SCHEMA = pa.schema(
    [(name, _ARROW.get(k, pa.int64())) for name, (k, _) in _KINDS.items()]
)
_NULLABLE = {name for name, (_, types) in _KINDS.items() if type(None) in types}
# Of the tables that `_load` returns.
_LOADED_SCHEMA = pa.schema(
    [
        (x.name, pa.dictionary(pa.int32(), x.type) if x.type == pa.string() else x.type)
        for x in _SCHEMA
    ]
)

# Records of fewer bytes are read from their JSON lines as fast.
_MANY_BYTES = 2**18


def _are_many(paths: Iterable[pathlib.Path]) -> bool:
    return sum(path.stat().st_size for path in paths) >= _MANY_BYTES


def _read_columns(
    by_folder: Mapping[pathlib.Path, Sequence[pathlib.Path]], *, compacts: bool
) -> tuple[dict[str, Any], np.ndarray]:
    """Return the records of workdirs' files as columns, and the lines of each file.

    Categories are in the order of the alphabet; as a number None is NaN.
    """
    workers = min(WORKERS, os.cpu_count() or 1)
    nullable = [name for name, (dtype, _) in _KINDS.items() if dtype == "Int64"]
    # Threads of folders wait for those of blocks, so each kind has a pool of its own.
    with (
        concurrent.futures.ThreadPoolExecutor(workers) as folders,
        concurrent.futures.ThreadPoolExecutor(workers) as blocks,
    ):

        def load(folder: pathlib.Path, paths: Sequence[pathlib.Path]):
            records = _load_folder(folder, paths, blocks, compacts=compacts)
            return columns_lib.shrink(records.table, nullable), records.sizes

        loaded = [*folders.map(load, by_folder, by_folder.values())]
    sizes = np.concatenate([sizes for _, sizes in loaded])
    columns = columns_lib.join([columns for columns, _ in loaded])
    pa.default_memory_pool().release_unused()
    return columns, sizes


def _load_folder(
    folder: pathlib.Path,
    paths: Sequence[pathlib.Path],
    pool: concurrent.futures.Executor,
    *,
    compacts: bool,
) -> compacted.Records:
    """Return the records of a workdir, from its Parquet file where that is up to date."""
    records = compacted.read(folder, paths)
    # Another version's records may have other columns.
    if records is not None and records.table.schema.equals(_LOADED_SCHEMA):
        return records
    records = _load_files(paths, pool)
    if compacts and _are_many(paths) and (folder / "done").exists():
        with contextlib.suppress(OSError):  # Somebody else's folder.
            compacted.write(folder, paths, records)
    return records


def _load_files(
    paths: Sequence[pathlib.Path], pool: concurrent.futures.Executor | None = None
) -> compacted.Records:
    """Return the records of some files, read in blocks of `BLOCK_BYTES`.

    pool: reads the blocks side by side, so that one large run takes all cores.
    """
    ends = np.cumsum([path.stat().st_size for path in paths]) // BLOCK_BYTES
    blocks = np.split(np.array(paths, object), np.flatnonzero(np.diff(ends)) + 1)
    tables, sizes = zip(*(pool.map if pool else map)(_load, blocks), strict=True)
    return compacted.Records(pa.concat_tables(tables), [*itertools.chain(*sizes)])


def _load(block: Sequence[pathlib.Path]) -> tuple[pa.Table, list[int]]:
    """The records of some files, words as dictionaries, and how many lines each has."""
    texts = [path.read_bytes() for path in block]
    sizes = [text.count(b"\n") + (not text.endswith(b"\n")) for text in texts]
    if (table := _parse_fast(texts, sum(sizes))) is None:
        # The last word on what cannot be read fast; ValueError for what is no record.
        decoded = [text.decode("utf-8", "replace") for text in texts]
        exact = [loads(x, where=str(path)) for x, path in zip(decoded, block)]
        sizes, records = [*map(len, exact)], itertools.chain.from_iterable(exact)
        # Whole numbers of many digits as well.
        floats = (one._replace(epoch=float(one.epoch)) for one in records)
        floats = (x._replace(value=x.value and float(x.value)) for x in floats)
        table = pa.Table.from_pylist([x._asdict() for x in floats], _SCHEMA)
    words = [(i, one) for i, one in enumerate(_SCHEMA) if one.type == pa.string()]
    for i, one in words:
        table = table.set_column(i, one.name, table.column(i).dictionary_encode())
    return table, sizes


def _parse_fast(texts: Sequence[bytes], rows: int) -> pa.Table | None:
    """Reads all lines by Arrow; None unless every line is a record beyond doubt."""
    data = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
    single = data[:1] == b"{" and data.count(b"}\n{") == rows - 1  # One a line.
    if not (data.isascii() and all(texts) and single):
        return None
    form = json_reader.ParseOptions(_SCHEMA, unexpected_field_behavior="error")
    how = json_reader.ReadOptions(use_threads=False, block_size=2**22)
    try:
        table = json_reader.read_json(pa.BufferReader(data), how, form)
    except pa.ArrowInvalid:
        return None
    numbers = [table.column(name) for name in ("epoch", "value")]
    fits = all(compute.all(compute.is_finite(x)).as_py() is not False for x in numbers)
    fits &= {*table.column("status").unique().to_pylist()} <= {*STATUSES}
    nulls = {name for name in _KINDS if table.column(name).null_count}
    # Arrow takes an entry that is not there for null.
    whole = all(data.count(b'"%s":' % name.encode()) == rows for name in nulls)
    whole &= nulls <= _NULLABLE
    return table if fits and whole and table.num_rows == rows else None
