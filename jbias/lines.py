"""JSON lines of flat records as columns, fast: what is alike is decoded once.

A file of records repeats itself: the same run, data set and step in line after line. So
lines are cut at their commas, and of each field the texts that differ are decoded by
`json`, each once. That every text holds exactly its own field is the proof that the cuts
were right. A block of files that does not pass is read line by line instead.
"""

import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

BLOCK_BYTES = 2**24  # Files are read together up to this size.
WORKERS = 8  # More wait for each other.

Fits = Callable[[str, Any], bool]
# Of some rows: the values that differ, and which of them each row has.
_Coded = Mapping[str, tuple[list, np.ndarray]]


def read(
    paths: Sequence[pathlib.Path],
    kinds: Mapping[str, str],
    *,
    fits: Fits,
    exact: Callable[[pathlib.Path], Sequence[tuple]],
) -> tuple[dict[str, Any], np.ndarray]:
    """Reads files of records with the same fields as columns, and the lines of each file.

    `kinds` says of every field whether it is "words" (a categorical, its categories in the
    order of the alphabet), "whole", "whole or none" or "number" (None is NaN). `fits`
    tells whether a field may have a value. `exact` reads one file, in the order of
    `kinds`, and raises ValueError for what is no record: the last word on every file that
    cannot be read fast.
    """
    load = functools.partial(_load, kinds=kinds, fits=fits, exact=exact)
    workers = min(WORKERS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(load, _blocks(paths)))
    columns = {}
    for name, kind in kinds.items():
        columns[name] = _column(kind, [coded[name] for coded, _ in parts])
    return columns, np.array([size for _, sizes in parts for size in sizes], np.int64)


def _blocks(paths: Sequence[pathlib.Path]) -> Iterator[list[pathlib.Path]]:
    block, size = [], 0
    for path in paths:
        block.append(path)
        size += path.stat().st_size
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _load(block, *, kinds, fits, exact) -> tuple[_Coded, list[int]]:
    texts = [path.read_bytes() for path in block]
    sizes = [text.count(b"\n") + (not text.endswith(b"\n")) for text in texts]
    if coded := _cut(texts, sum(sizes), kinds, fits):
        return coded, sizes
    del texts
    files = [exact(path) for path in block]
    columns = zip(*itertools.chain.from_iterable(files), strict=True)
    coded = {}
    for name, values in zip(kinds, columns, strict=True):
        known = {value: i for i, value in enumerate(dict.fromkeys(values))}
        coded[name] = list(known), np.array([known[value] for value in values])
    return coded, [len(file) for file in files]


def _cut(texts: Sequence[bytes], rows: int, kinds, fits: Fits) -> _Coded | None:
    """Gives the fields of all lines, None unless every line is a record beyond doubt."""
    data = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
    if not data.isascii() or not all(texts):
        return None
    try:
        names = list(json.loads(data[: data.index(b"\n")]))
        if sorted(names) != sorted(kinds):
            return None
        table = _table(data, names)
        if table.num_rows != rows:
            return None
        coded = {}
        for i, name in enumerate(names):
            column = table.column(i).combine_chunks()
            values = _decoded(
                column.dictionary.to_pylist(),
                name,
                opening="" if i == 0 else "{",
                closing="" if i == len(names) - 1 else "}",
            )
            if not all(fits(name, value) for value in values):
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


def _decoded(texts: list[str], name: str, *, opening: str, closing: str) -> list:
    """Decodes `"name": value`; no text has a comma, so none can stand for several."""
    joined = f"{closing},{opening}".join(texts)
    told = f"[{opening}{joined}{closing}]"
    fields = json.loads(told, parse_constant=_refuse)
    if len(fields) != len(texts) or any(list(field) != [name] for field in fields):
        raise ValueError(name)
    return [field[name] for field in fields]


def _refuse(name: str):
    raise ValueError(name)


def _column(kind: str, parts: Sequence[tuple[list, np.ndarray]]):
    if kind == "words":
        words = sorted({word for known, _ in parts for word in known})
        place = {word: i for i, word in enumerate(words)}
        small = np.min_scalar_type(-len(words))
        codes = [
            np.array([place[word] for word in known], small)[own]
            for known, own in parts
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
