"""Columns of records of many workdirs, joined with little memory.

The words of a workdir's table become codes, of one byte if there are few different words;
other columns are not copied. Joined columns are the only copy of all records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa


class Words(NamedTuple):
    """A column of words: for each row, the index of its word in `vocabulary`."""

    codes: np.ndarray  # Of the smallest unsigned integer type that fits.
    vocabulary: list[str]


class Integers(NamedTuple):
    """A column of integers with a mask of missing values."""

    values: np.ndarray
    is_missing: np.ndarray


Column = Words | Integers | np.ndarray


def shrink(table: pa.Table, nullable: Sequence[str]) -> dict[str, Column]:
    """Return the columns of a table by name, in forms that need little memory.

    Dictionary-encoded text becomes Words, the columns `nullable` become Integers, and other
    columns numpy arrays, where null becomes NaN in a column of floats. nullable: names of
    the columns of integers that may have missing values.
    """
    return {
        name: _shrink(table.column(name), is_nullable=name in nullable)
        for name in table.column_names
    }


def _shrink(column: pa.ChunkedArray, *, is_nullable: bool) -> Column:
    """Return a column in a form that needs little memory.

    The form is Words if the column is dictionary-encoded, else Integers if `is_nullable`, else a
    numpy array.
    """
    if pa.types.is_dictionary(column.type):
        coded = column.unify_dictionaries().combine_chunks()
        vocabulary = coded.dictionary.to_pylist()
        smallest = np.min_scalar_type(len(vocabulary))
        return Words(coded.indices.to_numpy().astype(smallest), vocabulary)
    if not is_nullable:
        return column.to_numpy()
    is_missing = column.is_null().to_numpy()
    values = column.fill_null(1) if column.null_count else column
    return Integers(values.to_numpy(), is_missing)


def join(
    tables: Sequence[dict[str, Column]],
) -> dict[str, np.ndarray | pd.Categorical | pd.arrays.IntegerArray]:
    """Return the concatenated columns of several tables by name.

    tables: as `shrink` returns them, at least one; the tables are emptied to free memory. Words
    become a Categorical with categories in alphabetical order, Integers an IntegerArray, and
    arrays stay arrays.
    """
    # Column by column: the memory of the joined columns is free for the next column.
    return {name: _join([table.pop(name) for table in tables]) for name in [*tables[0]]}


def _join(
    columns: Sequence[Column],
) -> np.ndarray | pd.Categorical | pd.arrays.IntegerArray:
    """Return the concatenation of at least one column; see `join` for the types."""
    first = columns[0]
    if isinstance(first, Words):
        return _join_words(columns)
    if isinstance(first, Integers):
        values = np.concatenate([column.values for column in columns])
        is_missing = np.concatenate([column.is_missing for column in columns])
        return pd.arrays.IntegerArray(values, is_missing)
    return np.concatenate(columns)


def _join_words(columns: Sequence[Words]) -> pd.Categorical:
    """Return the words of one or more columns, with categories in alphabetical order."""
    vocabulary = sorted(set().union(*(column.vocabulary for column in columns)))
    new_codes = {word: code for code, word in enumerate(vocabulary)}
    ends = np.cumsum([len(column.codes) for column in columns])
    codes = np.empty(ends[-1], np.min_scalar_type(-len(vocabulary) - 1))
    for column, end in zip(columns, ends, strict=True):
        recoded = np.array([new_codes[word] for word in column.vocabulary], codes.dtype)
        codes[end - len(column.codes) : end] = recoded[column.codes]
    return pd.Categorical.from_codes(codes, pd.Index(vocabulary, dtype="str"))
