"""Attributes of images from CSV files: the option `columns` that every data set has.

A CSV file has a line for each image of the whole split: its number `image`, from 0, and
columns of names, such as the clusters that `python -m jbias.prepare clusters` finds. A file
of the same name that ends in .json holds the split's fingerprint, because numbers of other
images would mean nothing. The functions that read a CSV file and number its names also serve
users' own sets (attributed.py) and `shift` (shift_option.py).
"""

import csv
import dataclasses
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from jbias.data import base, listing, sources, subset
from jbias.runtime import files

IMAGE_COLUMN = "image"
READER_COLUMNS = ("class", "file")  # Columns for readers: the set has these itself.


def write(
    path: str,
    whole: base.Source,
    columns: Mapping[str, Sequence[str]],
    **about: Any,
) -> None:
    """Writes such a file, of a whole split; "" is no name. `about` goes beside it.

    columns: by name, a name for each image.
    """
    table = {IMAGE_COLUMN: range(len(whole))}
    table["class"] = [whole.classes[k] for k in whole.columns["label"]]
    if isinstance(whole, sources.EncodedSource):
        table["file"] = whole.files
    table |= columns
    values = {name: number_values(column)[0] for name, column in columns.items()}
    beside = {"fingerprint": whole.fingerprint, "images": len(whole), "values": values}
    beside |= about
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    files.write(f"{path}.json", json.dumps(beside, indent=1) + "\n")
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(table)
    lines.writerows(zip(*table.values(), strict=True))
    files.write(path, text.getvalue())


def add(source: base.Source, split: str, path: str, whole: base.Source) -> base.Source:
    """Adds the columns of a file to a split or a part of it; `whole` is all of it.

    Values are numbered alike in every part; where a cell is empty it is "(none)". Raises
    ValueError for a file of other images, or that does not fit.
    """
    where = f"data.{source.name}"
    path = os.path.expanduser(path)
    table, out = _table(where, path, whole)
    places = np.arange(len(whole))
    if source is not whole:
        places = subset.positions_in(source, split, whole, "columns")
    found, values = {}, {}
    for name, column in table.items():
        if name in source.columns or name in source.arrays or is_reserved(name):
            raise ValueError(
                f"{where}: columns must bring names of their own, {path!r} has {name!r},"
                " which the set has; rename it"
            )
        known, numbers = number_values(column)
        found[name], values[name] = numbers[places], known
        if NO_VALUE in known and not (found[name] == len(known) - 1).any():
            values[name] = known[:-1]
    note = f"{'+'.join(found)} from {os.path.basename(path)}"
    note += f" (no attributes: {', '.join(out)})" if out else ""
    return dataclasses.replace(
        source,
        columns={**source.columns, **found},
        values={**source.values, **values},
        fingerprint=listing.digest_columns(source.fingerprint, found, values),
        note="; ".join(filter(None, (source.note, note))),
    )


def _table(
    where: str, path: str, whole: base.Source
) -> tuple[dict[str, list[str]], list[str]]:
    """Names by column for every image, in order, and which columns are no attributes."""
    header, lines = read_csv(path)
    fingerprint = str(_sidecar(where, path)["fingerprint"])
    if fingerprint != whole.fingerprint:
        raise ValueError(
            f"{where}: columns must be of these images, got {path!r} of a split with"
            f" fingerprint {fingerprint[:12]} for {whole.fingerprint[:12]}; make it anew for"
            " this set"
        )
    if IMAGE_COLUMN not in header:
        raise ValueError(f"{path}: the header must have {IMAGE_COLUMN}, got {header}")
    order = {}
    for number, (line, row) in enumerate(lines):
        image = row[IMAGE_COLUMN]
        if not image.isdecimal() or int(image) >= len(whole) or int(image) in order:
            raise ValueError(
                f"{path}:{line}: {IMAGE_COLUMN} must be each number from 0 to"
                f" {len(whole) - 1:,} once, got {image!r}"
            )
        order[int(image)] = number
    if len(order) < len(whole):
        lost = next(i for i in range(len(whole)) if i not in order)
        raise ValueError(
            f"{path}: must have a line for each of {len(whole):,} images, image {lost}"
            " has none"
        )
    found, out = {}, []
    for name in header:
        if name not in (IMAGE_COLUMN, *READER_COLUMNS):
            column = [lines[order[i]][1][name] for i in range(len(whole))]
            why = why_unfit(column)
            found |= {} if why else {name: column}
            out += [f"{name} ({why})"] if why else []
    if not found:
        raise ValueError(f"{path}: must have a column of names, got {header}")
    return found, out


def read_values(path: str) -> dict[str, tuple[str, ...]]:
    """The names in each column, as `write` noted them beside a file; {} without notes."""
    try:
        values = _sidecar("columns", os.path.expanduser(path)).get("values", {})
    except ValueError:
        return {}
    return {name: tuple(names) for name, names in values.items()}


def _sidecar(where: str, path: str) -> dict[str, Any]:
    """Reads the notes beside a file: at least the fingerprint of the split it is for."""
    with base.explained(
        f"{where}: columns must come with {path + '.json'!r}, which says of what images: ",
        *(OSError, ValueError, KeyError, TypeError, RecursionError),
        remedy="; jbias.data.annotations.write makes both",
        reason=base.kind_and_text,
    ):
        with open(f"{path}.json", encoding="utf-8") as file:
            notes = json.load(file)
        return {**notes, "fingerprint": notes["fingerprint"]}


MAX_VALUES = 64  # More values are too many for an attribute, unless it is asked for.
NO_VALUE = "(none)"  # What an image with an empty cell has.
# What a batch calls by these names is another thing.
_RESERVED = (
    *("image", "label", "target", "texture", "index", "weight", "weight_sum"),
    *("views", "consistency", "binary", "other", "once", "renders"),
)


CSV_ERRORS = (OSError, UnicodeDecodeError, csv.Error)


def csv_lines(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict]]]:
    """The header, trimmed, and by line number the cells; those beyond it are under ""."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, restkey="", restval="", skipinitialspace=True)
        header = tuple(name.strip() for name in reader.fieldnames or ())
        reader.fieldnames = header
        return header, [(reader.line_num, row) for row in reader]


def read_csv(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The header of a CSV file, and by line number the cells of each line, trimmed.

    Raises ValueError, one line, for what is no CSV in UTF-8, a name twice in the header
    and a line with more cells than the header.
    """
    with base.explained(f"{path}: must be a CSV file in UTF-8: ", *CSV_ERRORS):
        header, rows = csv_lines(path)
    if len(set(header)) < len(header):
        again = next(name for name in header if header.count(name) > 1)
        raise ValueError(f"{path}:1: columns must have different names, got {again!r}")
    found = []
    for number, row in rows:
        more = row.pop("", ())  # A column without a name, such as pandas' index.
        if isinstance(more, list) and any(cell.strip() for cell in more):
            raise ValueError(
                f"{path}:{number}: a line must have as many cells as the header,"
                f" {len(header)}, got {len(header) + len(more)}; quote commas"
            )
        found.append((number, {name: cell.strip() for name, cell in row.items()}))
    return tuple(filter(None, header)), found


def number_values(names: Sequence[str]) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """Different names, sorted, and the number of each cell's; empty ones are the last."""
    known = sorted(set(names) - {"", NO_VALUE})
    known += [NO_VALUE] if {"", NO_VALUE} & set(names) else []
    number = {name: i for i, name in enumerate(known)} | {"": len(known) - 1}
    return tuple(known), np.array([number[name] for name in names], np.int32)


def is_reserved(name: str) -> bool:
    """Tells whether a column must not have this name, because a batch has it."""
    return name in _RESERVED or name.startswith("accepted_")


def why_unfit(names: Sequence[str]) -> str:
    """Why a column is no attribute by itself, or "": empty, measured, too many values."""
    count = len({*names} - {""})
    if not count:
        return "empty"
    if _is_measured(names):
        return "numbers that are not whole"
    return f"{count:,} values" if count > MAX_VALUES else ""


def _is_measured(names: Sequence[str]) -> bool:
    try:
        numbers = [float(name) for name in names if name]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def combine(
    where: str, table: Mapping[str, Sequence[str]], asked: Sequence[str]
) -> list[str]:
    """Cells of several columns as one name each, "black smile"; empty where one is."""
    rows = list(zip(*(table[name] for name in asked), strict=True))
    if len({" ".join(row) for row in rows if all(row)}) < len(
        {r for r in rows if all(r)}
    ):
        raise ValueError(
            f"{where}: values of {'+'.join(asked)} must differ when written one after the"
            " other; rename some"
        )
    return [" ".join(row) if all(row) else "" for row in rows]
