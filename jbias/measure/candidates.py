"""Which columns of a set are attributes that may hurt."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jbias.data import cells, spec


class Candidates(NamedTuple):
    """The columns that may hurt, by name."""

    columns: Mapping[str, np.ndarray]
    values: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]


def find(source: spec.Source, wanted: Sequence[str]) -> Candidates:
    """The columns asked for, or all whose values have names, each partition once."""
    possible = [
        name
        for name in source.columns
        if name != "label" and not name.startswith("accepted_")
    ]
    for name in wanted:
        if name not in possible:
            known = spec.did_you_mean(name, possible) if possible else "it has none"
            raise ValueError(
                f"--attributes: must be columns of {source.name}, got {name!r}; {known}"
            )
    names = list(wanted) or [name for name in possible if name in source.values]
    # What is called `attribute` is often a copy of a column with a better name.
    names.sort(key=lambda name: name == "attribute")
    columns, values, notes = {}, {}, []
    for name in names:
        column = np.asarray(source.columns[name])
        twin = next((n for n, c in columns.items() if np.array_equal(c, column)), None)
        if twin:
            notes.append(f"{name} is the same as {twin} in every image.")
            continue
        told = source.values.get(name, ())
        if cells.NONE in told:
            empty = column == told.index(cells.NONE)
            column = np.where(empty, -1, column)
            notes.append(
                f"{empty.sum():,} images without {name} have no part in its tests."
            )
        columns[name] = column
        count = int(column.max(initial=-1)) + 1
        values[name] = tuple(source.values.get(name, map(str, range(count))))
    if not columns:
        raise ValueError(
            f"--data: {source.name} must have a column of attributes, got"
            f" {', '.join(source.columns)}; name columns by --attributes, or give a set"
            " that has some, such as attributed"
        )
    return Candidates(columns, values, tuple(notes))
