"""What every data set may be asked: the options `columns`, `keep`, `drop`, `portion`, `skip`.

`columns` are attributes of images from CSV files. One has a line for each image of the whole
split: its number `image`, from 0, and columns of names, such as the clusters that `jbias
prepare clusters` finds. A file of the same name that ends in .json holds the split's
fingerprint, because numbers of other images would mean nothing. The functions that read a CSV
file and number its names also serve users' own sets (attributed.py) and `shift` (shifts.py).

`keep`, `drop`, `portion` and `skip` say which images of a set are used. `skip` takes a list
of damaged images, written by `prepare check`: a JSON file of splits, each with the fingerprint
that it had and, by the key of its store, why an image does not decode. Names alone repeat in
WebDataset's shards and in others, and numbers differ in a part of a set. The list is of use
for exactly these files: a set that has changed has another fingerprint, and is refused.
"""

import contextlib
import csv
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from jbias import numerals
from jbias.data import base, sources
from jbias.data.base import Column, Names, Source
from jbias.data.forms import listing
from jbias.runtime import files, messages
from jbias.untrusted import opening

IMAGE_COLUMN = "image"
READER_COLUMNS = ("class", "file")  # Columns for readers: the set has these itself.


def write_columns(
    path: str, whole: Source, columns: Mapping[str, Names], **about: Any
) -> None:
    """Writes such a file, of a whole split; "" is no name. `about` goes beside it.

    columns: by name, a name for each image.
    """
    classes = [whole.classes[k] for k in whole.columns["label"]]
    table = {IMAGE_COLUMN: range(len(whole)), "class": classes}
    if isinstance(whole, sources.EncodedSource):
        table["file"] = whole.files
    table |= columns
    import pandas as pd  # Which reading a set does not wait for.

    values = {name: number_values(column)[0] for name, column in columns.items()}
    beside = {"fingerprint": whole.fingerprint, "images": len(whole), "values": values}
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    files.write(f"{path}.json", json.dumps(beside | about, indent=1) + "\n")
    files.write(path, pd.DataFrame(table).to_csv(index=False, lineterminator="\r\n"))


def add_columns(source: Source, split: str, path: str, whole: Source) -> Source:
    """Adds the columns of a file to a split or a part of it; `whole` is all of it.

    Values are numbered alike in every part; where a cell is empty it is "(none)". Raises
    ValueError for a file of other images, or that does not fit.
    """
    where, path = f"data.{source.name}", os.path.expanduser(path)
    table, out = _table(where, path, whole)
    places = positions_in(source, split, whole, "columns")
    found, values = {}, {}
    for name, column in table.items():
        if name in source.columns or name in source.arrays or is_reserved(name):
            must = f"columns must bring names of their own, {path!r} has {name!r}"
            raise ValueError(f"{where}: {must}, which the set has; rename it")
        known, numbers = number_values(column)
        found[name], values[name] = numbers[places], known
        if NO_VALUE in known and not (found[name] == len(known) - 1).any():
            values[name] = known[:-1]
    note = f"{'+'.join(found)} from {os.path.basename(path)}"
    note += f" (no attributes: {', '.join(out)})" if out else ""
    return sources.add(source, found, values, note)


def _table(where, path, whole) -> tuple[dict[str, list[str]], list[str]]:
    """Names by column for every image, in order, and which columns are no attributes."""
    header, lines = read_csv(path)
    fingerprint, n = str(_sidecar(where, path)["fingerprint"]), len(whole)
    if fingerprint != whole.fingerprint:
        must = f"{where}: columns must be of these images, got {path!r} of a split with"
        remedy = f"for {whole.fingerprint[:12]}; make it anew for this set"
        raise ValueError(f"{must} fingerprint {fingerprint[:12]} {remedy}")
    if IMAGE_COLUMN not in header:
        raise ValueError(f"{path}: the header must have {IMAGE_COLUMN}, got {header}")
    rows = {}
    for line, row in lines:
        image = row[IMAGE_COLUMN]
        if not numerals.is_count(image) or int(image) >= n or int(image) in rows:
            must = f"{IMAGE_COLUMN} must be each number from 0 to {n - 1:,} once"
            raise ValueError(f"{path}:{line}: {must}, got {image!r}")
        rows[int(image)] = row
    lost = next((i for i in range(n) if i not in rows), None)
    if lost is not None:
        must = f"must have a line for each of {n:,} images"
        raise ValueError(f"{path}: {must}, image {lost} has none")
    columns = [one for one in header if one not in (IMAGE_COLUMN, *READER_COLUMNS)]
    table = {name: [rows[i][name] for i in range(n)] for name in columns}
    why = {name: why_unfit(column) for name, column in table.items()}
    found = {name: column for name, column in table.items() if not why[name]}
    if not found:
        raise ValueError(f"{path}: must have a column of names, got {header}")
    return found, [f"{name} ({reason})" for name, reason in why.items() if reason]


def read_values(path: str) -> dict[str, tuple[str, ...]]:
    """The names in each column, as `write` noted them beside a file; {} without notes."""
    values = {}
    with contextlib.suppress(ValueError):
        values = _sidecar("columns", os.path.expanduser(path)).get("values", {})
    return {name: tuple(names) for name, names in values.items()}


def _sidecar(where: str, path: str) -> dict[str, Any]:
    """Reads the notes beside a file: at least the fingerprint of the split it is for."""
    must = f"{where}: columns must come with {path + '.json'!r}, which says of what"
    kinds = OSError, ValueError, KeyError, TypeError, RecursionError
    how = "; jbias.data.set_options.write_columns makes both"
    with base.explained(
        f"{must} images: ", *kinds, remedy=how, reason=base.kind_and_text
    ):
        with opening.text(f"{path}.json") as file:
            notes = json.load(file)
        return {**notes, "fingerprint": notes["fingerprint"]}


MAX_VALUES = 64  # More values are too many for an attribute, unless it is asked for.
NO_VALUE = "(none)"  # What an image with an empty cell has.
# What a batch calls by these names is another thing.
_RESERVED = ("image", "label", "target", "texture", "index", "weight", "weight_sum")
_RESERVED += ("views", "consistency", "binary", "other", "once", "renders")


CSV_ERRORS = (OSError, UnicodeDecodeError, csv.Error)


def csv_lines(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict]]]:
    """The header, trimmed, and by line number the cells; those beyond it are under ""."""
    with opening.text(path, newline="") as file:
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
            must = f"a line must have as many cells as the header, {len(header)}"
            got = f"got {len(header) + len(more)}; quote commas"
            raise ValueError(f"{path}:{number}: {must}, {got}")
        found.append((number, {name: cell.strip() for name, cell in row.items()}))
    return tuple(filter(None, header)), found


def number_values(names: Names) -> tuple[tuple[str, ...], Column]:
    """Different names, sorted, and the number of each cell's; empty ones are the last."""
    known = sorted(set(names) - {"", NO_VALUE})
    known += [NO_VALUE] if {"", NO_VALUE} & set(names) else []
    number = {name: i for i, name in enumerate(known)} | {"": len(known) - 1}
    return tuple(known), np.array([number[name] for name in names], np.int32)


def is_reserved(name: str) -> bool:
    """Tells whether a column must not have this name, because a batch has it."""
    return name in _RESERVED or name.startswith("accepted_")


def why_unfit(names: Names) -> str:
    """Why a column is no attribute by itself, or "": empty, measured, too many values."""
    count = len({*names} - {""})
    if not count:
        return "empty"
    if _is_measured(names):
        return "numbers that are not whole"
    return f"{count:,} values" if count > MAX_VALUES else ""


def _is_measured(names: Names) -> bool:
    try:
        numbers = [numerals.real(name) for name in names if name]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def combine(where: str, table: Mapping[str, Names], asked: Names) -> list[str]:
    """Cells of several columns as one name each, "black smile"; empty where one is."""
    rows = list(zip(*(table[name] for name in asked), strict=True))
    names = {row: " ".join(row) if all(row) else "" for row in rows}
    whole = [name for name in names.values() if name]
    if len(whole) > len({*whole}):
        must = f"{where}: values of {'+'.join(asked)} must differ when written"
        raise ValueError(f"{must} one after the other; rename some")
    return [names[row] for row in rows]


_BOOLEANS = {"False": 0, "True": 1, "false": 0, "true": 1}


def keep(source: Source, split: str, path: str, whole: Source) -> Source:
    """Keeps the images that a file names, by their numbers in the whole split.

    source: the split or a part of it; whole: all of it. The file is .npy, or text with a
    number a line: a mask, one 0 or 1 (or False or True) for each image of the whole, or
    the numbers of those to keep, from 0. Order and classes stay.

    Raises ValueError where the file does not fit, or nothing would be left.
    """
    where = f"data.{source.name}"
    chosen = _mask(where, path, len(whole))
    kept = np.flatnonzero(chosen[positions_in(source, split, whole, "keep")])
    if not len(kept):
        none = f"{path!r} names none of the {len(source):,} of {split!r}"
        raise ValueError(f"{where}: keep must leave an image, {none}")
    digest = hashlib.sha256(np.packbits(chosen)).hexdigest()
    note = f"{len(kept):,} of {len(source):,} images, by {os.path.basename(path)}"
    return sources.take(source, kept, digest=f"keeps {digest}", note=note)


def drop(source: Source, names: Names) -> Source:
    """Leaves classes out; the others are numbered anew from 0, in their order.

    Gone are all images of these classes, by "label" and by "texture"; among several
    right classes ("accepted_0", ...) they are blank. ValueError for unknown names.
    """
    where, k = f"data.{source.name}", len(source.classes)
    names = base.spelled_as(names, source.classes)
    for name in names:
        base.check_known(f"{where}: drop must name classes", name, source.classes)
    stays = ~np.isin(source.classes, names)
    classes = tuple(np.compress(stays, source.classes).tolist())
    if len(classes) < 2:
        must = f"{where}: drop must leave two classes or more"
        raise ValueError(f"{must}, got {len(names)} of {k} to leave out")
    anew = np.append(np.where(stays, np.cumsum(stays) - 1, -1), -1).astype(np.int32)
    shown = [source.columns[c] for c in ("label", "texture") if c in source.columns]
    kept = np.flatnonzero((anew[np.stack(shown)] >= 0).all(0))
    said = ", ".join(sorted(names))
    left = sources.take(source, kept, digest=f"drops {said}", note=f"without {said}")
    held = {k: anew[v] for k, v in left.columns.items() if base.holds_classes(k)}
    return dataclasses.replace(left, classes=classes, columns={**left.columns, **held})


def portion(source: Source, text: str) -> Source:
    """Takes a random part of the images of every class and attribute, such as "[:80%]".

    It is the same part always, and parts that meet in a percentage are disjoint and
    together whole. Where there are two images of a class and attribute, each side of a
    cut has one. ValueError for another form, or where nothing would be left.
    """
    where = f"data.{source.name}: portion"
    if not text.startswith("["):
        raise ValueError(f'{where}: must read "[:80%]" or "[80%:]", got {text!r}')
    part = listing.parse_split(where, f"images{text}")
    names = [name for name in ("label", "attribute") if name in source.columns]
    of = np.stack([source.columns[name] for name in names])
    drawn = np.random.default_rng(0).permutation(len(source))
    groups = np.unique(of[:, drawn], axis=1, return_inverse=True)[1].ravel()
    each = (drawn[groups == group] for group in range(groups.max(initial=-1) + 1))
    taken = (listing.cut(members, part) for members in each)
    index = np.sort(np.concatenate([np.zeros(0, np.int64), *taken]))
    if not len(index):
        raise ValueError(f"{where}: must leave an image, {text!r} leaves none")
    note = f"{len(index):,} of {len(source):,} images, the portion {text}"
    return sources.take(source, index, digest=f"portion {text}", note=note)


def _mask(where: str, path: str, n: int) -> Bool[np.ndarray, "n"]:
    """Reads which of n images stay."""
    path = os.path.expanduser(path)
    what = f"{where}: keep must be .npy or text with a mask or whole numbers: "
    with base.explained(what):
        if path.endswith(".npy"):
            opening.require_regular(path)
            told = np.lib.format.open_memmap(path, mode="r")
        else:
            with opening.text(path) as file:
                words = file.read().split()
            numbers = [_BOOLEANS.get(word) for word in words]
            for i, word in enumerate(words):
                if numbers[i] is None:
                    numbers[i] = numerals.whole(word)
            told = np.array(numbers, np.int64)
    flat = told.ndim == 1 and told.dtype.kind in "biu" and len(told)
    if flat and len(told) == n and np.isin(told, (0, 1)).all():
        return told.astype(bool)
    if not flat or told.dtype == bool or not 0 <= told.min() <= told.max() < n:
        must = f"keep must be a mask of the {n:,} images or numbers from 0 to {n - 1:,}"
        raise ValueError(
            f"{where}: {must}, got {messages.describe_array(told)} in {path!r}"
        )
    times = np.bincount(told.astype(np.int64), minlength=n)
    if times.max() > 1:
        must = f"{where}: keep must name an image once"
        raise ValueError(f"{must}, {path!r} repeats some")
    return times > 0


def positions_in(source: Source, split: str, whole: Source, option: str) -> Column:
    """Where the images of a part are in the whole; `option` needs to know."""
    if source is whole:
        return np.arange(len(whole))
    if isinstance(source, sources.EncodedSource):
        place = {key: i for i, key in enumerate(_keys(whole))}
        return np.array([place[key] for key in _keys(source)])
    where, names = f"data.{source.name}", listing.number_names(len(whole))
    part, labels = listing.parse_split(where, split), whole.columns["label"]
    index = listing.split_indices(where, names, labels, whole.classes, part)
    if not np.array_equal(whole.images[index], source.images):
        must = f"{where}: {option} must come with a whole split here, got {split!r}"
        raise ValueError(f"{must}; name the images of {part.base!r} in two files")
    return index


MADE_BY = "jbias.prepare check"


def damaged_entry(source: Source, wrong: Mapping[int, str]) -> dict[str, Any]:
    """What a list says of a whole split; `wrong` has reasons by number of the image."""
    damaged = {source.store.key(i): why for i, why in sorted(wrong.items())}
    return dict(fingerprint=source.fingerprint, images=len(source), damaged=damaged)


def write_damaged(path: str, splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes a list: {split: entry}."""
    content = {"made_by": MADE_BY, "splits": splits}
    path = os.path.expanduser(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    files.write(path, json.dumps(content, indent=1) + "\n")


def skip(source: Source, split: str, path: str, whole: Source) -> Source:
    """Leaves the images out that the list at `path` names in a split.

    `source` is the split or some of it, `whole` all of it. The note says how many were
    left out and by which list, and the fingerprint changes with them. Raises ValueError
    for a list of other files.
    """
    listed = _damaged_keys(f"data.{source.name}", split, path, whole)
    keys = _keys(source)
    kept = np.flatnonzero([key not in listed for key in keys])
    if len(kept) == len(keys):
        return source
    digest = hashlib.sha256("\n".join(sorted(listed)).encode()).hexdigest()
    note = f"{len(keys) - len(kept):,} damaged images of {len(keys):,} left out, by the"
    note += f" list {os.path.basename(path)} ({digest[:12]})"
    return sources.take(source, kept, digest=f"without {digest}", note=note)


def _keys(source: Source) -> list[str]:
    encoded = isinstance(source, sources.EncodedSource)
    return [source.store.key(i) for i in range(len(source))] if encoded else []


def _damaged_keys(where, split, path, whole) -> set[str]:
    """Keys of the damaged images of one split, if the list is of these files."""
    what = f"{path}: skip must be a list that `jbias prepare check --list`"
    kinds = OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
    with base.explained(f"{what} wrote, got ", *kinds, reason=base.kind_and_text):
        with opening.text(os.path.expanduser(path)) as file:
            held = json.load(file)
        if held["made_by"] != MADE_BY:
            raise ValueError(f"made by {held['made_by']!r}")
        known = held["splits"].items()
        splits = {k: (one["fingerprint"], one["damaged"].keys()) for k, one in known}
    must, remedy = f"{where}: skip must be a list", "jbias prepare check"
    if split not in splits:
        must = f"{must} that has split {split!r}"
        got = f"got {path!r} with {', '.join(splits) or 'none'}"
        raise ValueError(f"{must}, {got}; check it: {remedy}")
    fingerprint, damaged = splits[split]
    strange = sorted(damaged - {*_keys(whole)})
    which = f"of {len(damaged):,} in {path!r} do not exist"
    again = f"check them again: {remedy}"
    base.refuse_some(strange, f"{must} of this set's images", which, again)
    if fingerprint != whole.fingerprint:
        marks = f"fingerprint {fingerprint[:12]} for {whole.fingerprint[:12]}"
        got = f"got {path!r} with {marks}"
        raise ValueError(f"{must} of the files as they are, {got}; {again}")
    return damaged
