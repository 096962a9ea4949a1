"""A run's records in one Parquet file, which is read five times as fast as its JSON lines.

The JSON lines in evals/ are the log of a run and take precedence. An index has the checksum
(size and CRC-32) of the Parquet file and of all files of lines; the Parquet file is read
only where all of these have the same content as when it was written. Both may be deleted.
"""

import contextlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from jbias.runs import checksums
from jbias.runtime import files

NAME, INDEX = "records.parquet", "records.json"


class Records(NamedTuple):
    """Records as a table, words as dictionaries, and the number of records of each file."""

    table: pa.Table
    sizes: list[int]


def read(folder: pathlib.Path, paths: Sequence[pathlib.Path]) -> Records | None:
    """Return the records of a workdir's Parquet file; None where it is not up to date.

    paths: the files of JSON lines, in the order of the records.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        index = json.loads((folder / INDEX).read_text("utf-8"))
        content = (folder / NAME).read_bytes()
        known = [checksums.checksum(content), *_names_and_sums(paths)]
        if known == [index["sum"], *([x["name"], x["sum"]] for x in index["files"])]:
            table = parquet.read_table(pa.BufferReader(content), use_threads=False)
            sizes = [x["records"] for x in index["files"]]
            if sum(sizes) == len(table):
                return Records(table, sizes)
    return None  # The JSON lines have the records.


def write(
    folder: pathlib.Path, paths: Sequence[pathlib.Path], records: Records
) -> None:
    """Write the records of a workdir's files to its Parquet file, and the index.

    paths: the files of JSON lines, in the order of the records; they must not change
      meanwhile. OSError where a file cannot be written.
    """
    sink = pa.BufferOutputStream()
    table = records.table.unify_dictionaries()
    parquet.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    sources = zip(_names_and_sums(paths), records.sizes, strict=True)
    index = {
        "sum": checksums.checksum(content),
        "files": [{"name": x, "sum": y, "records": size} for (x, y), size in sources],
    }
    files.write(folder / NAME, content, lasting=False)
    files.write(folder / INDEX, json.dumps(index), lasting=False)


def _names_and_sums(paths: Sequence[pathlib.Path]) -> list[list[Any]]:
    buffer = memoryview(bytearray(2**20))
    return [[path.name, checksums.checksum_of_file(path, buffer)] for path in paths]
