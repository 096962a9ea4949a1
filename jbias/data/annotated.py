"""Columns of names from a file beside a set: the option `columns` of every data set.

A CSV file has a line for each image of the whole split: its number `image`, from 0, and
columns of names, such as the clusters that `python -m jbias.prepare clusters` finds. A
file of the same name with .json at its end holds the split's fingerprint: numbers of
other images would mean nothing.
"""

import csv
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jbias.data import cells, listing, sources, spec, subset

IMAGE = "image"
TOLD = ("class", "file")  # Columns for readers: the set has these itself.


def write(
    path: str,
    whole: spec.Source,
    columns: Mapping[str, Sequence[str]],
    **about: Any,
) -> None:
    """Writes such a file, of a whole split; "" is no name. `about` goes beside it.

    columns: by name, a name for each image.
    """
    told = {"class": [whole.classes[k] for k in whole.columns["label"]]}
    if isinstance(whole, sources.EncodedSource):
        told["file"] = list(whole.files)
    table = {IMAGE: range(len(whole)), **told, **columns}
    values = {name: cells.numbered(column)[0] for name, column in columns.items()}
    beside = {"fingerprint": whole.fingerprint, "images": len(whole), "values": values}
    beside |= about
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(f"{path}.json.part", "w", encoding="utf-8") as file:
        json.dump(beside, file, indent=1)
        file.write("\n")
    with open(f"{path}.part", "w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(table)
        lines.writerows(zip(*table.values(), strict=True))
    os.replace(f"{path}.json.part", f"{path}.json")
    os.replace(f"{path}.part", path)


def add(source: spec.Source, split: str, path: str, whole: spec.Source) -> spec.Source:
    """Adds the columns of a file to a split or a part of it; `whole` is all of it.

    Values are numbered alike in every part; where a cell is empty it is "(none)". Raises
    ValueError for a file of other images, or that does not fit.
    """
    where = f"data.{source.name}"
    path = os.path.expanduser(path)
    table, out = _table(where, path, whole)
    places = np.arange(len(whole))
    if source is not whole:
        places = subset.places(source, split, whole, "columns")
    found, values = {}, {}
    for name, column in table.items():
        if name in source.columns or name in source.arrays or cells.is_taken(name):
            raise ValueError(
                f"{where}: columns must bring names of their own, {path!r} has {name!r},"
                " which the set has; rename it"
            )
        known, numbers = cells.numbered(column)
        found[name], values[name] = numbers[places], known
        if cells.NONE in known and not (found[name] == len(known) - 1).any():
            values[name] = known[:-1]
    note = f"{'+'.join(found)} from {os.path.basename(path)}"
    note += f" (no attributes: {', '.join(out)})" if out else ""
    return dataclasses.replace(
        source,
        columns={**source.columns, **found},
        values={**source.values, **values},
        fingerprint=listing.digest_with(source.fingerprint, found, values),
        note="; ".join(filter(None, (source.note, note))),
    )


def _table(
    where: str, path: str, whole: spec.Source
) -> tuple[dict[str, list[str]], list[str]]:
    """Names by column for every image, in order, and which columns are no attributes."""
    header, lines = cells.read(path)
    told = str(_beside(where, path)["fingerprint"])
    if told != whole.fingerprint:
        raise ValueError(
            f"{where}: columns must be of these images, got {path!r} of a split with"
            f" fingerprint {told[:12]} for {whole.fingerprint[:12]}; make it anew for"
            " this set"
        )
    if IMAGE not in header:
        raise ValueError(f"{path}: the header must have {IMAGE}, got {header}")
    order = {}
    for number, (line, row) in enumerate(lines):
        image = row[IMAGE]
        if not image.isdecimal() or int(image) >= len(whole) or int(image) in order:
            raise ValueError(
                f"{path}:{line}: {IMAGE} must be each number from 0 to"
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
        if name not in (IMAGE, *TOLD):
            column = [lines[order[i]][1][name] for i in range(len(whole))]
            why = cells.unfit(column)
            found |= {} if why else {name: column}
            out += [f"{name} ({why})"] if why else []
    if not found:
        raise ValueError(f"{path}: must have a column of names, got {header}")
    return found, out


def values(path: str) -> dict[str, tuple[str, ...]]:
    """The names in each column, as `write` told them; none where nothing is told."""
    try:
        told = _beside("columns", os.path.expanduser(path)).get("values", {})
    except ValueError:
        return {}
    return {name: tuple(names) for name, names in told.items()}


def _beside(where: str, path: str) -> dict[str, Any]:
    """What stands beside a file: at least the fingerprint that it is for."""
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            told = json.load(file)
        return {**told, "fingerprint": told["fingerprint"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"{where}: columns must come with {path + '.json'!r}, which says of what"
            f" images: {reason}; jbias.data.annotated.write makes both"
        ) from error
