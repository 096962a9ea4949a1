"""Records of a run: functions that write them as JSON lines and read them as a table.

A record (`Record`) is one number of one seed at one step, such as an accuracy on a data set.
A workdir has files `evals/<step>.jsonl` with one JSON object, one record, per line. A finished run
with many records also has the records in one Parquet file (`compacted`).

Arrow reads blocks of files. A block that Arrow cannot read, or that may contain an invalid
record, is read again line by line.
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

from jbias.runs import checksums, compacted, single_networks
from jbias.runs import columns as columns_lib
from jbias.runtime import files

VALID = "valid"  # The data set for model selection.
TRAIN = "train"  # The name of training statistics, which are no evaluation.
STATUSES = ("ok", "diverged")
_SHARES = ("accuracy", "shape_bias")  # Metrics whose value is count / n.


_Path = TypeVar("_Path", pathlib.Path, epath.Path)


class Record(NamedTuple):
    """One number of one seed of a run at one step.

    dataset, condition, metric: the evaluated data set ("train" for statistics of training),
    the condition of a measure or "", and the name of the number. value: a fraction for
    accuracy (count / n) and shape bias; None and numbers that are not finite are stored as
    null. stage: from 0 on. epoch: epochs of training, counted over all stages. status: "ok"
    or "diverged".
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
    def key(self) -> tuple[str | int, ...]:
        """The values of the fields of KEY, which identify the record among all records."""
        return tuple(getattr(self, name) for name in KEY)


KEY = ("run", "stage", "seed", "step", "dataset", "condition", "metric")
# By field: the dtype of its column, and the types of its values.
_KINDS: dict[str, tuple[str, tuple]] = {
    **dict.fromkeys(Record._fields, ("category", (str,))),
    **dict.fromkeys(("stage", "seed", "step"), ("int64", (int,))),
    **dict.fromkeys(("count", "n"), ("Int64", (int, type(None)))),
    "epoch": ("float64", (int, float)),
    "value": ("float64", (int, float, type(None))),
}


def dumps(records: Iterable[Record]) -> str:
    """Return records as JSON lines, a text with one line per record.

    ValueError for two records with the same `Record.key`, and for an invalid field.
    """
    keys: set[tuple] = set()
    lines = []
    for record in records:
        if record.key in keys:
            named = dict(zip(KEY, record.key, strict=True))
            raise ValueError(f"results: a key must occur once, got {named} twice")
        keys.add(record.key)
        fields = {k: _plain(v) for k, v in record._asdict().items()}
        problem = _problem(fields)
        if problem:
            raise ValueError(f"results: {problem}; correct the record {record.key}")
        lines.append(json.dumps(fields, allow_nan=False))
    return "".join(line + "\n" for line in lines)


def loads(text: str, *, where: str = "records") -> list[Record]:
    """Return the records of JSON lines, in order; ValueError for an invalid line or no lines.

    where: name of the text; the error message starts with `where:line`.
    """
    if not text.strip():
        raise ValueError(f"{where}:1: must hold a record, got nothing; remove it")
    return [
        _parse(line, f"{where}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
    ]


def write(path: str | os.PathLike, records: Iterable[Record]) -> None:
    """Write records to a file of JSON lines atomically; create its folder if needed."""
    write_text(path, dumps(records))


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text of `dumps` to a file atomically; create its folder if needed."""
    target = epath.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    files.write(target, text)


def find_workdirs(
    workdirs: str | os.PathLike | Sequence[str | os.PathLike],
) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Return two lists: the workdirs with records, and the workdirs without records.

    workdirs: paths or globs. A folder of workdirs is replaced by its workdirs, and a run with
    branches by the workdirs of its branches.
    ValueError for a glob without matches, and for a path without records.
    """
    if isinstance(workdirs, str | os.PathLike):
        workdirs = [workdirs]
    full, empty = {}, {}  # By real path, so that each workdir counts once.
    patterns = [os.fspath(files.local_copy(workdir, "--runs")) for workdir in workdirs]
    for pattern in patterns:
        is_path = os.path.exists(pattern) or not glob.has_magic(pattern)
        if is_path and _holds_workdirs(pathlib.Path(pattern)):
            pattern, is_path = os.path.join(glob.escape(pattern), "*"), False
        matches = [pattern] if is_path else sorted(glob.glob(pattern))
        if not matches or not os.path.exists(matches[0]):
            is_glob = glob.has_magic(pattern)
            problem = "no folder matches" if is_glob else "no such folder"
            raise ValueError(f"{pattern}: {problem}; check the path of the runs")
        folders = map(branch_folders, map(pathlib.Path, matches))
        for path in itertools.chain.from_iterable(folders):
            has_evals = any((path / "evals").glob("*.jsonl"))
            if is_path and not has_evals:
                raise ValueError(
                    f"{path}: must hold evals/*.jsonl, got none; {_records_remedy(path)}"
                )
            if has_evals or path.is_dir():
                (full if has_evals else empty)[path.resolve()] = path
    return list(full.values()), list(empty.values())


def _records_remedy(path: pathlib.Path) -> str:
    """Return the advice for a folder without records."""
    if single_networks.is_single_network(path):
        return (
            "it is one network without records of training, such as a soup: measure it and the "
            f"runs to compare by `jbias evaluate --checkpoint={path} --checkpoint=RUN "
            "--suite=configs/suites/biases.py`, then run `jbias report measured "
            "--measured='measured/*'`"
        )
    return (
        "name the workdir of a run that was evaluated at least once, or the folder of such "
        "workdirs"
    )


def _holds_workdirs(path: pathlib.Path) -> bool:
    """Return True if a folder is not a workdir itself, but contains workdirs with records."""
    names = ("config.json", "evals", "vary")
    is_workdir = any((path / name).exists() for name in names)
    return not is_workdir and any(
        any((folder / "evals").glob("*.jsonl"))
        for child in path.glob("*/")
        for folder in branch_folders(child)
    )


def branch_folders(workdir: _Path) -> list[_Path]:
    """Return the folders with a run's records: its branches' folders, or else the workdir."""
    return sorted((workdir / "vary").glob("*/")) or [workdir]


def read(
    workdirs: str | os.PathLike | Sequence[str | os.PathLike], *, compacts: bool = False
) -> pd.DataFrame:
    """Return the records of workdirs as a table with one row per record.

    Columns are the fields of `Record` and `workdir`; text columns are categories in
    alphabetical order, `count` and `n` are nullable integers, and a value of null is NaN.
    ValueError, with file and line, for an invalid line, a repeated `Record.key`, and an accuracy
    or shape bias that is not count / n.
    ValueError, too, if there are no records, and for a file that does not match its checksum.

    workdirs: paths or globs, see `find_workdirs`.
    compacts: True to write many records of a finished run to one Parquet file, so that
      the next call is faster.
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
    """Write the records of a finished run to one Parquet file per branch.

    Branches whose files of records have less than 256 KiB are skipped.
    OSError if a file cannot be written; ValueError for an invalid line.
    """
    for folder in branch_folders(pathlib.Path(workdir)):
        paths = _record_files(folder)
        if _are_many(paths):
            compacted.write(folder, paths, _load_files(paths))


def _record_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of records of a workdir, in ascending order of their steps."""
    return sorted((folder / "evals").glob("*.jsonl"), key=_by_step)


def _refuse_repeated(
    frame: pd.DataFrame, paths: Sequence[pathlib.Path], sizes: np.ndarray
) -> None:
    """Raise ValueError if two records have the same `Record.key`.

    paths: the files of the rows, in order. sizes: number of records per file.
    """
    if not _has_repeated(frame, KEY):
        return
    keys = number_rows(frame, KEY)
    repeated = np.flatnonzero(pd.Series(keys).duplicated())[0]
    first = np.flatnonzero(keys == keys[repeated])[0]
    raise ValueError(
        f"{_place(repeated, paths, sizes)}: a key must occur once, got the record of "
        f"{_place(first, paths, sizes)} again; leave one of the two folders out (two "
        "versions of a file of your own need two file names)"
    )


def _refuse_other_shares(
    frame: pd.DataFrame, paths: Sequence[pathlib.Path], sizes: np.ndarray
) -> None:
    """Raise ValueError if the value of an accuracy or shape bias is not count / n, within 1e-6.

    Also raise ValueError if count is not from 0 to n. Records without value, count or n are
    ignored. paths: the files of the rows, in order. sizes: number of records per file.
    """
    shares = frame[["metric", "count", "n", "value"]]
    shares = shares[shares["metric"].isin(_SHARES)].dropna()
    count, n, value = shares["count"], shares["n"], shares["value"]
    # Values may have been rounded to float32.
    is_valid = (abs(value * n - count) <= 1e-6 * n) & (0 <= count) & (count <= n)
    invalid = shares[~is_valid.astype(bool)]
    if len(invalid):
        row, first = invalid.index[0], invalid.iloc[0]
        raise ValueError(
            f"{_place(row, paths, sizes)}: {first['metric']} must be count / n = "
            f"{first['count']} / {first['n']}, got {first['value']}; restore the file, or "
            "remove it and start the run's command again"
        )


def _place(row: int, paths: Sequence[pathlib.Path], sizes: np.ndarray) -> str:
    """Return "file:line" of a row of the table.

    paths: the files of the rows, in order. sizes: number of records per file.
    """
    ends = np.cumsum(sizes)
    i = int(np.searchsorted(ends, row, side="right"))
    return f"{paths[i]}:{row - (ends[i] - sizes[i]) + 1}"


def number_rows(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return an integer per row of a table, equal for rows equal in the columns `names`.

    The integers are 0, 1, ... without gaps.
    """
    keys, bound = _number_with_gaps(frame, names)
    return _without_gaps(keys, bound)[0]


def first_rows(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return the position of the first row of each group of rows equal in the columns `names`.

    The positions are in ascending order.
    """
    keys = number_rows(frame, names)
    first = np.empty(keys.max(initial=-1) + 1, np.int64)
    # Of repeated indices, numpy keeps the last assignment.
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    return np.sort(first)


def _has_repeated(frame: pd.DataFrame, names: Sequence[str]) -> bool:
    """Return True if any two rows are equal in the columns `names`."""
    keys, bound = _number_with_gaps(frame, names)
    if _is_sparse(keys, bound):
        return _without_gaps(keys, bound)[1] < len(keys)
    return np.count_nonzero(_occurs(keys, bound)) < len(keys)


def _number_with_gaps(
    frame: pd.DataFrame, names: Sequence[str]
) -> tuple[np.ndarray, int]:
    """Return an integer per row, equal for rows equal in the columns `names`, and a bound.

    The integers are from 0 to bound - 1; some of these may not occur.
    """
    keys, bound = np.zeros(len(frame), np.int64), 1
    for name in names:
        codes, size = _codes(frame[name])
        if size == 1:
            continue
        if bound * size >= 2**62:  # Avoids an integer overflow.
            keys, bound = _without_gaps(keys, bound)
        keys *= size
        keys += codes
        bound *= max(size, 1)
    return keys, bound


def _codes(column: pd.Series) -> tuple[np.ndarray, int]:
    """Return an integer per row, equal for equal values, and a bound.

    The integers are from 0 to bound - 1. For equal integers in all rows, return one 0 and the
    bound 1.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), len(column.cat.categories)
    if column.dtype == np.int64 and len(column):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if low == high:
            return np.zeros(1, np.int64), 1
        if high - low < len(values):  # Faster than hashing the values.
            return _without_gaps(values - low, high - low + 1)
    codes, values = pd.factorize(column, use_na_sentinel=False)
    return codes, len(values)


def _is_sparse(keys: np.ndarray, bound: int) -> bool:
    """Return True if an array of length `bound` would be much longer than the keys."""
    return bound > 8 * len(keys)


def _occurs(keys: np.ndarray, bound: int) -> np.ndarray:
    """Return a boolean array of length `bound`: True at each integer that is in `keys`."""
    occurs = np.zeros(bound, bool)
    occurs[keys] = True
    return occurs


def _without_gaps(keys: np.ndarray, bound: int) -> tuple[np.ndarray, int]:
    """Return keys renumbered as 0, 1, ... without gaps, and the number of different keys.

    keys: integers from 0 to bound - 1. The new numbers may be in another order.
    """
    if _is_sparse(keys, bound):
        keys, values = pd.factorize(keys)
        return keys, len(values)
    occurs = _occurs(keys, bound)
    count = np.count_nonzero(occurs)
    if count == bound:
        return keys, bound
    new_keys = np.cumsum(occurs, dtype=np.min_scalar_type(count))
    new_keys -= 1
    return new_keys[keys].astype(np.int64), count


def _by_step(path: pathlib.Path) -> tuple[Any, ...]:
    """Return the sort key of a file of records: by step; names that are not steps come last."""
    return (0, int(path.stem), "") if path.stem.isdecimal() else (1, 0, path.stem)


def _plain(value: Any) -> Any:
    """Return a numpy scalar as a Python value; None for a number that is not finite."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parse(line: str, place: str) -> Record:
    """Return the record of a JSON line; ValueError if it is invalid.

    place: start of the error message, such as "evals/100.jsonl:3".
    """
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{place}: must be one JSON record, got a damaged line ({error}); "
            "restore the file or remove it and resume the run"
        ) from None
    problem = _problem(fields)
    if problem:
        raise ValueError(f"{place}: {problem}; is it of another version?")
    return Record(**fields)


def _refuse_constant(name: str):
    raise ValueError(f"{name} is no JSON")


def _problem(fields: Any) -> str | None:
    """Return the reason why a decoded JSON value is not a valid record; None if it is valid."""
    if not isinstance(fields, dict):
        return f"must be a JSON object, got {type(fields).__name__}"
    differing = sorted(set(fields) ^ set(Record._fields))
    if differing:
        return f"must have the fields of a record, got others: {', '.join(differing)}"
    for name, value in fields.items():
        requirement = _violated_requirement(name, value)
        if requirement:
            return f"{name} must be {requirement}, got {value!r}"
    return None


def _violated_requirement(name: str, value: Any) -> str:
    """Return the requirement that a field's value violates, such as "int"; "" if valid.

    name: name of the field of `Record`.
    """
    dtype, types = _KINDS[name]
    if isinstance(value, bool) or not isinstance(value, types):
        return types[0].__name__
    if name == "status" and value not in STATUSES:
        return f"one of {STATUSES}"
    fits = not isinstance(value, int | float) or -(2**63) <= value < 2**63
    if dtype == "float64" and value is not None:
        fits = abs(value) <= sys.float_info.max
    return "" if fits else "finite in 64 bits"


BLOCK_BYTES = 2**24  # Maximum size of the files that are read together.
WORKERS = 8  # More threads are not faster.

_ARROW = {"category": pa.string(), "float64": pa.float64()}
_SCHEMA = pa.schema(
    [(name, _ARROW.get(k, pa.int64())) for name, (k, _) in _KINDS.items()]
)
_NULLABLE = {name for name, (_, types) in _KINDS.items() if type(None) in types}


def _loaded_type(arrow_type: pa.DataType) -> pa.DataType:
    is_string = arrow_type == pa.string()
    return pa.dictionary(pa.int32(), arrow_type) if is_string else arrow_type


# Of the tables that `_load` returns: words are dictionary-encoded.
_LOADED_SCHEMA = pa.schema([(x.name, _loaded_type(x.type)) for x in _SCHEMA])

# Below this size, a Parquet file is not faster than JSON lines.
_MANY_BYTES = 2**18


def _are_many(paths: Iterable[pathlib.Path]) -> bool:
    """Return True if files are so large that a Parquet file of their records saves time."""
    return sum(path.stat().st_size for path in paths) >= _MANY_BYTES


def _read_columns(
    by_folder: Mapping[pathlib.Path, Sequence[pathlib.Path]], *, compacts: bool
) -> tuple[dict[str, Any], np.ndarray]:
    """Return the records of workdirs as columns by name, and the number of lines per file.

    by_folder: for each workdir, its files of records. compacts: see `read`. Categories are
    in alphabetical order; null becomes NaN in columns of floats.
    """
    workers = min(WORKERS, os.cpu_count() or 1)
    nullable = [name for name, (dtype, _) in _KINDS.items() if dtype == "Int64"]
    # Two pools, because threads of folders wait for threads of blocks.
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
    """Return the records of a workdir, from its Parquet file if up to date, else from `paths`.

    paths: the workdir's files of records. pool: threads that read blocks of these files in
    parallel. compacts: True to write the Parquet file if it is not up to date, the run is finished,
    and the files of records have at least 256 KiB; an OSError of this write is ignored. ValueError
    for an invalid record.
    """
    records = compacted.read(folder, paths)
    # Another version of jbias may have written other columns.
    if records is not None and records.table.schema.equals(_LOADED_SCHEMA):
        return records
    records = _load_files(paths, pool)
    if compacts and _are_many(paths) and (folder / "done").exists():
        with contextlib.suppress(OSError):  # The folder may be read-only.
            compacted.write(folder, paths, records)
    return records


def _load_files(
    paths: Sequence[pathlib.Path], pool: concurrent.futures.Executor | None = None
) -> compacted.Records:
    """Return the records of some files, read in blocks of `BLOCK_BYTES`.

    pool: threads that read the blocks in parallel; None: read one block after another.
    """
    ends = np.cumsum([path.stat().st_size for path in paths]) // BLOCK_BYTES
    blocks = np.split(np.array(paths, object), np.flatnonzero(np.diff(ends)) + 1)
    run_all = pool.map if pool else map
    loaded = list(run_all(_load, blocks))
    return compacted.Records(
        pa.concat_tables([table for table, _ in loaded]),
        sizes=list(itertools.chain.from_iterable(sizes for _, sizes in loaded)),
    )


def _load(block: Sequence[pathlib.Path]) -> tuple[pa.Table, list[int]]:
    """Return the records of some files as a table, and the number of records per file.

    Text columns are dictionary-encoded. ValueError, with file and line, for an invalid record.
    """
    texts = [path.read_bytes() for path in block]
    sizes = [text.count(b"\n") + (not text.endswith(b"\n")) for text in texts]
    table = _parse_fast(texts, sum(sizes))
    if table is None:
        table, sizes = _parse_lines(texts, block)
    for i, field in enumerate(_SCHEMA):
        if field.type == pa.string():
            encoded = table.column(i).dictionary_encode()
            table = table.set_column(i, field.name, encoded)
    return table, sizes


def _parse_lines(
    texts: Sequence[bytes], paths: Sequence[pathlib.Path]
) -> tuple[pa.Table, list[int]]:
    """Return the records of files as a table, and the number of records per file.

    texts: contents of the files `paths`; each line is parsed separately. ValueError, with
    file and line, for an invalid record.
    """
    rows, sizes = [], []
    for text, path in zip(texts, paths):
        records = loads(text.decode("utf-8", "replace"), where=str(path))
        sizes.append(len(records))
        for record in records:
            # JSON numbers without a decimal point are read as int.
            value = record.value and float(record.value)
            record = record._replace(epoch=float(record.epoch), value=value)
            rows.append(record._asdict())
    return pa.Table.from_pylist(rows, _SCHEMA), sizes


def _parse_fast(texts: Sequence[bytes], num_rows: int) -> pa.Table | None:
    """Return the records of JSON lines as a table, parsed by Arrow.

    None if any line may be an invalid record, for text that is not ASCII, and for an empty file.
    texts: contents of files. num_rows: the total number of their lines.
    """
    data = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
    has_object_per_line = data[:1] == b"{" and data.count(b"}\n{") == num_rows - 1
    if not (data.isascii() and all(texts) and has_object_per_line):
        return None
    try:
        table = json_reader.read_json(
            pa.BufferReader(data),
            json_reader.ReadOptions(use_threads=False, block_size=2**22),
            json_reader.ParseOptions(_SCHEMA, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    for name in ("epoch", "value"):
        is_finite = compute.is_finite(table.column(name))
        if compute.all(is_finite).as_py() is False:
            return None
    if not set(table.column("status").unique().to_pylist()) <= set(STATUSES):
        return None
    nulls = {name for name in _KINDS if table.column(name).null_count}
    # Arrow reads a missing entry as null.
    is_complete = all(
        data.count(b'"%s":' % name.encode()) == num_rows for name in nulls
    )
    is_valid = is_complete and nulls <= _NULLABLE and table.num_rows == num_rows
    return table if is_valid else None
