"""Columns of records: small while workdirs are read, then joined one after another.

Of a workdir's table words become codes of one byte where they are few, and other columns
stay where they are. Joined columns are the only copy of all records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa


class Words(NamedTuple):
    """A column of words: of each row the place of its word in `known`."""

    codes: np.ndarray  # The smallest unsigned integers.
    known: list[str]


class Integers(NamedTuple):
    """A column of integers, some of which may be missing."""

    values: np.ndarray
    is_missing: np.ndarray


Column = Words | Integers | np.ndarray


def shrink(table: pa.Table, nullable: Sequence[str]) -> dict[str, Column]:
    """Return the columns of a table by their names; as a float null is NaN.

    nullable: columns of integers of which some may be missing.
    """
    return {
        name: _shrink(table.column(name), is_nullable=name in nullable)
        for name in table.column_names
    }


def _shrink(column: pa.ChunkedArray, *, is_nullable: bool) -> Column:
    if pa.types.is_dictionary(column.type):
        coded = column.unify_dictionaries().combine_chunks()
        known = coded.dictionary.to_pylist()
        smallest = np.min_scalar_type(len(known))
        return Words(coded.indices.to_numpy().astype(smallest), known)
    if not is_nullable:
        return column.to_numpy()
    is_missing = column.is_null().to_numpy()
    values = column.fill_null(1) if column.null_count else column
    return Integers(values.to_numpy(), is_missing)


def join(
    tables: Sequence[dict[str, Column]],
) -> dict[str, np.ndarray | pd.Categorical | pd.arrays.IntegerArray]:
    """Return the rows of all tables as columns; empties the tables.

    Words become categories in the order of the alphabet.
    """
    # One column after another, so that the memory of its pieces is free for the next.
    return {name: _join([table.pop(name) for table in tables]) for name in [*tables[0]]}


def _join(
    pieces: Sequence[Column],
) -> np.ndarray | pd.Categorical | pd.arrays.IntegerArray:
    first = pieces[0]
    if isinstance(first, Words):
        return _join_words(pieces)
    if isinstance(first, Integers):
        values = np.concatenate([piece.values for piece in pieces])
        is_missing = np.concatenate([piece.is_missing for piece in pieces])
        return pd.arrays.IntegerArray(values, is_missing)
    return np.concatenate(pieces)


def _join_words(pieces: Sequence[Words]) -> pd.Categorical:
    known = sorted(set().union(*(piece.known for piece in pieces)))
    places = {word: place for place, word in enumerate(known)}
    ends = np.cumsum([len(piece.codes) for piece in pieces])
    codes = np.empty(ends[-1], np.min_scalar_type(-len(known) - 1))
    for piece, end in zip(pieces, ends, strict=True):
        wanted = np.array([places[word] for word in piece.known], codes.dtype)
        codes[end - len(piece.codes) : end] = wanted[piece.codes]
    return pd.Categorical.from_codes(codes, pd.Index(known, dtype="str"))
