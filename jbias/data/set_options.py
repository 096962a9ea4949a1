"""The options of every data set, other than `shift`, as functions from source to source.

`columns` adds attributes of images from a CSV file. The file has a line for each image of the
whole split: the image's index in column `image`, and columns of names, such as the clusters of
`jbias prepare clusters`. The sidecar <file>.json has the split's fingerprint, so that the
indices are never used for a different split. The functions that read a CSV file and number its
names also serve users' own data sets (attributed.py) and `shift` (shifts.py).

`keep`, `drop`, `portion` and `skip` select images. `skip` takes a list of damaged images from
`jbias prepare check`: a JSON file with an entry per split. An entry has the split's fingerprint
and, for the key of each damaged image in the store, the reason why the image does not decode.
Keys are used because names may repeat in shards, and indices differ in a part of a split. The
list is valid only for unchanged files: a data set that has changed has another fingerprint and
is refused. `measures` replaces the names of the source's measures.
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

from jbias import errors, numerals
from jbias.data import base, sources
from jbias.data.base import Column, Names, Source
from jbias.data.forms import listing
from jbias.runtime import files, messages
from jbias.untrusted import opening

IMAGE_COLUMN = "image"
READER_COLUMNS = ("class", "file")  # For human readers; the source has them already.


def write_columns(
    path: str, whole: Source, columns: Mapping[str, Names], **notes: Any
) -> None:
    """Write a CSV file for the option `columns`, and its sidecar <path>.json.

    whole: the source of a whole split. columns: {column: the name of its value for each image,
    "" for none}; the columns "image" (the index), "class" and, for encoded images, "file" are
    added. notes: further entries of the sidecar.
    """
    classes = [whole.classes[k] for k in whole.columns["label"]]
    table = {IMAGE_COLUMN: range(len(whole)), "class": classes}
    if isinstance(whole, sources.EncodedSource):
        table["file"] = whole.files
    table |= columns
    import pandas as pd  # Slow to import, and reading a data set does not need it.

    values = {name: number_values(column)[0] for name, column in columns.items()}
    sidecar = {
        "fingerprint": whole.fingerprint,
        "images": len(whole),
        "values": values,
        **notes,
    }
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    files.write(f"{path}.json", json.dumps(sidecar, indent=1) + "\n")
    files.write(path, pd.DataFrame(table).to_csv(index=False, lineterminator="\r\n"))


def add_columns(source: Source, path: str, *, split: str, whole: Source) -> Source:
    """Return a source with the columns of the file at `path`, the option `columns`.

    source: a split or a part of it, named `split`. whole: the whole split. Values have the same
    indices in every part; the value of an empty cell is "(none)", which is not among the source's
    `values` if no image of the part has it. Columns that `why_unfit` refuses are left out, with a
    note. ValueError for a file that is for different images, has a different form, or has the name
    of a column that the source has or of an entry of batches (`is_reserved`).
    """
    where, path = f"data.{source.name}", os.path.expanduser(path)
    table, unfit = _table(where, path, whole)
    positions = positions_in(source, split, whole, option="columns")
    columns, values = {}, {}
    for name, cells in table.items():
        if name in source.columns or name in source.arrays or is_reserved(name):
            must = f"columns must bring names of their own, {path!r} has {name!r}"
            raise ValueError(f"{where}: {must}, which the set has; rename it")
        value_names, numbers = number_values(cells)
        columns[name], values[name] = numbers[positions], value_names
        if (
            NO_VALUE in value_names
            and not (columns[name] == len(value_names) - 1).any()
        ):
            values[name] = value_names[:-1]
    note = f"{'+'.join(columns)} from {os.path.basename(path)}"
    note += f" (no attributes: {', '.join(unfit)})" if unfit else ""
    return sources.add(source, columns, values, note=note)


def _table(
    where: str, path: str, whole: Source
) -> tuple[dict[str, list[str]], list[str]]:
    """Return (columns that can be attributes, refused columns) of a table with a line per image.

    The first is {column: cells}, a text for each image in the order of `whole`. The second is a
    list of "<column> (<reason>)", with the reasons of `why_unfit`. The columns "image", "class" and
    "file" are in neither.

    whole: the whole split. ValueError for a file that is for different images or has a different
    form, and if all columns are refused. where: start of error messages.
    """
    header, lines = read_csv(path)
    fingerprint, n = str(_sidecar(where, path)["fingerprint"]), len(whole)
    if fingerprint != whole.fingerprint:
        must = f"{where}: columns must be of these images, got {path!r} of a split with"
        remedy = f"for {whole.fingerprint[:12]}; make it again for this set"
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
    missing = next((i for i in range(n) if i not in rows), None)
    if missing is not None:
        must = f"must have a line for each of {n:,} images"
        raise ValueError(f"{path}: {must}, image {missing} has none")
    columns = [name for name in header if name not in (IMAGE_COLUMN, *READER_COLUMNS)]
    table = {name: [rows[i][name] for i in range(n)] for name in columns}
    reasons = {name: why_unfit(cells) for name, cells in table.items()}
    fit = {name: cells for name, cells in table.items() if not reasons[name]}
    if not fit:
        raise ValueError(f"{path}: must have a column of names, got {header}")
    return fit, [f"{name} ({reason})" for name, reason in reasons.items() if reason]


def read_values(path: str) -> dict[str, tuple[str, ...]]:
    """Return {column: names of its values} from the sidecar <path>.json.

    {} if the sidecar is missing, cannot be read or has no such names.
    """
    values = {}
    with contextlib.suppress(ValueError):
        stored = _sidecar("columns", os.path.expanduser(path)).get("values")
        values = stored if isinstance(stored, dict) else {}
    return {name: tuple(names) for name, names in values.items()}


def _sidecar(where: str, path: str) -> dict[str, Any]:
    """Return the content of the sidecar <path>.json, with at least the split's "fingerprint".

    ValueError if the sidecar is missing, cannot be read or has no fingerprint. where: start of
    error messages.
    """
    must = f"{where}: columns must come with {path + '.json'!r}, which identifies the"
    remedy = "; jbias.data.set_options.write_columns makes both"
    with base.explain_errors(
        f"{must} images: ",
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        remedy=remedy,
        reason=base.describe_error,
    ):
        with opening.open_text(f"{path}.json") as file:
            notes = json.load(file)
        return {**notes, "fingerprint": notes["fingerprint"]}


MAX_VALUES = 64  # Columns with more values are attributes only if the user names them.
NO_VALUE = "(none)"  # The value of an image whose cell is empty.
# Entries of a training batch, which no column may replace.
_RESERVED = (
    "image",
    "label",
    "target",
    "texture",
    "index",
    "weight",
    "weight_sum",
    "views",
    "consistency",
    "binary",
    "other",
    "once",
    "renders",
)


CSV_ERRORS = (OSError, UnicodeDecodeError, csv.Error)


def csv_lines(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict]]]:
    """Return the column names of a CSV file, and (line number, {column: raw cell}) of each line.

    Names are trimmed, cells are not. Missing cells are "". Cells beyond the header are a list
    under the key "". Raises the errors in CSV_ERRORS.
    """
    with opening.open_text(path, newline="") as file:
        reader = csv.DictReader(file, restkey="", restval="", skipinitialspace=True)
        header = tuple(name.strip() for name in reader.fieldnames or ())
        reader.fieldnames = header
        return header, [(reader.line_num, row) for row in reader]


def read_csv(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """Return the column names of a CSV file, and (line number, {column: cell}) of each line.

    Names and cells are trimmed, and columns without a name are left out. ValueError for a file
    that is not CSV in UTF-8, a repeated name in the header, and a line with non-empty cells
    beyond the header.
    """
    with base.explain_errors(f"{path}: must be a CSV file in UTF-8: ", *CSV_ERRORS):
        header, rows = csv_lines(path)
    if len(set(header)) < len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        must = "columns must have different names"
        raise ValueError(f"{path}:1: {must}, got {repeated!r}")
    lines = []
    for number, row in rows:
        surplus = row.pop("", ())  # A string for a column without a name, as of pandas.
        if isinstance(surplus, list) and any(cell.strip() for cell in surplus):
            must = f"a line must have as many cells as the header, {len(header)}"
            got = f"got {len(header) + len(surplus)}; quote commas"
            raise ValueError(f"{path}:{number}: {must}, {got}")
        lines.append((number, {name: cell.strip() for name, cell in row.items()}))
    return tuple(filter(None, header)), lines


def number_values(cells: Names) -> tuple[tuple[str, ...], Column]:
    """Return the sorted distinct values of a column, and the index of each cell's value.

    Empty cells have the value NO_VALUE, which is last and only listed if a cell has this value.
    """
    names = sorted(set(cells) - {"", NO_VALUE})
    names += [NO_VALUE] if {"", NO_VALUE} & set(cells) else []
    number = {name: i for i, name in enumerate(names)} | {"": len(names) - 1}
    return tuple(names), np.array([number[cell] for cell in cells], np.int32)


def is_reserved(name: str) -> bool:
    """Return True if `name` is an entry of training batches, so that no column may have it."""
    return name in _RESERVED or name.startswith("accepted_")


def why_unfit(cells: Names) -> str:
    """Return the reason, in words, why a column is not used as an attribute by default, or "".

    The reason is that no cell is filled, that all cells are numbers and some are not integers,
    or that there are more than MAX_VALUES distinct values.
    """
    count = len({*cells} - {""})
    if not count:
        return "empty"
    if _is_measured(cells):
        return "numbers that are not whole"
    return f"{count:,} values" if count > MAX_VALUES else ""


def _is_measured(cells: Names) -> bool:
    """Return True if all filled cells are numbers, and some of them are not integers."""
    try:
        numbers = [numerals.real(cell) for cell in cells if cell]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def combine(where: str, table: Mapping[str, Names], columns: Names) -> list[str]:
    """Return the cells of several columns joined for each image, such as "black smile".

    table: {column: cells}. columns: the columns to join. An image with an empty cell gets "".
    ValueError if two different combinations would get the same name.
    where: start of error messages.
    """
    rows = list(zip(*(table[name] for name in columns), strict=True))
    names = {row: " ".join(row) if all(row) else "" for row in rows}
    joined = [name for name in names.values() if name]
    if len(joined) > len({*joined}):
        must = f"{where}: values of {'+'.join(columns)} must differ when written"
        raise ValueError(f"{must} one after the other; rename some")
    return [names[row] for row in rows]


_BOOLEANS = {"False": 0, "True": 1, "false": 0, "true": 1}


def keep(source: Source, path: str, *, split: str, whole: Source) -> Source:
    """Return a source of the images that a file selects, the option `keep`.

    source: a split or a part of it, named `split`. whole: the whole split. path: an .npy file, or
    text with a number per line. The file has a mask, one 0 or 1 (or False or True) for each image
    of the whole split, or it has the indices of the images to keep. Order and classes do not
    change.

    Raises ValueError if the file does not fit the split, or if no image would be left.
    """
    where = f"data.{source.name}"
    mask = _mask(where, path, len(whole))
    index = np.flatnonzero(mask[positions_in(source, split, whole, option="keep")])
    if not len(index):
        got = f"{path!r} names none of the {len(source):,} of {split!r}"
        raise ValueError(f"{where}: keep must leave an image, {got}")
    digest = hashlib.sha256(np.packbits(mask)).hexdigest()
    note = f"{len(index):,} of {len(source):,} images, by {os.path.basename(path)}"
    return sources.take(source, index, digest=f"keeps {digest}", note=note)


def drop(source: Source, text: str) -> Source:
    """Return a source without the classes of a text, "truck+ship", the option `drop`.

    The remaining classes are renumbered from 0 in their order. Images whose "label" or
    "texture" is a dropped class are left out; in "accepted_0", ... (all correct classes of an
    image) dropped classes become -1. ValueError for unknown names, or if fewer than two classes
    are left.
    """
    where, k = f"data.{source.name}", len(source.classes)
    names = base.match_spelling(text.split("+"), source.classes)
    for name in names:
        errors.check_known(where, name, source.classes, "drop", must="name classes")
    is_kept = ~np.isin(source.classes, names)
    classes = tuple(np.compress(is_kept, source.classes).tolist())
    if len(classes) < 2:
        must = f"{where}: drop must leave two classes or more"
        raise ValueError(f"{must}, got {len(names)} of {k} to leave out")
    # New id of each class; the entry for -1, no class, is the last.
    new_ids = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    new_ids = np.append(new_ids, -1).astype(np.int32)
    cues = [source.columns[c] for c in ("label", "texture") if c in source.columns]
    index = np.flatnonzero((new_ids[np.stack(cues)] >= 0).all(0))
    dropped = ", ".join(sorted(names))
    source = sources.take(
        source, index, digest=f"drops {dropped}", note=f"without {dropped}"
    )
    columns = {
        name: new_ids[column] if base.holds_classes(name) else column
        for name, column in source.columns.items()
    }
    return dataclasses.replace(source, classes=classes, columns=columns)


def portion(source: Source, text: str) -> Source:
    """Return a source with a random part of the images of every pair of class and attribute.

    Without a column "attribute", the part is taken of every class. text: the part, such as
    "[:80%]". The same text always selects the same images; "[:80%]" and "[80%:]" are disjoint
    and together the whole source. If a pair has two images or more, each side of a cut has at
    least one image of the pair. ValueError for text of a different form, or if no image is
    left.
    """
    where = f"data.{source.name}: portion"
    if not text.startswith("["):
        raise ValueError(f'{where}: must read "[:80%]" or "[80%:]", got {text!r}')
    parsed_split = listing.parse_split(where, f"images{text}")
    names = [name for name in ("label", "attribute") if name in source.columns]
    classes_and_values = np.stack([source.columns[name] for name in names])
    order = np.random.default_rng(0).permutation(len(source))
    shuffled = classes_and_values[:, order]
    group = np.unique(shuffled, axis=1, return_inverse=True)[1].ravel()
    selected = [np.zeros(0, np.int64)]
    for number in range(group.max(initial=-1) + 1):
        selected.append(listing.cut(order[group == number], parsed_split))
    index = np.sort(np.concatenate(selected))
    if not len(index):
        raise ValueError(f"{where}: must leave an image, {text!r} leaves none")
    note = f"{len(index):,} of {len(source):,} images, the portion {text}"
    return sources.take(source, index, digest=f"portion {text}", note=note)


def replace_measures(source: Source, names: Names) -> Source:
    """Return a source with the measures of these names, the option `measures`."""
    return dataclasses.replace(source, measures=tuple(names))


def _mask(where: str, path: str, n: int) -> Bool[np.ndarray, "n"]:
    """Return a mask of the images to keep, from a file with a mask or with indices of images.

    path: see `keep`. n: number of images of the whole split; n values of 0 and 1 are a mask.
    ValueError if the file has no mask and no indices, an index without an image, or an index
    twice.
    where: start of error messages.
    """
    path = os.path.expanduser(path)
    start = f"{where}: keep must be .npy or text with a mask or whole numbers: "
    with base.explain_errors(start):
        if path.endswith(".npy"):
            opening.require_regular(path)
            values = np.lib.format.open_memmap(path, mode="r")
        else:
            with opening.open_text(path) as file:
                words = file.read().split()
            numbers = [_BOOLEANS.get(word) for word in words]
            for i, word in enumerate(words):
                if numbers[i] is None:
                    numbers[i] = numerals.whole(word)
            values = np.array(numbers, np.int64)
    is_list = values.ndim == 1 and values.dtype.kind in "biu" and len(values)
    if is_list and len(values) == n and np.isin(values, (0, 1)).all():
        return values.astype(bool)
    if not is_list or values.dtype == bool or not 0 <= values.min() <= values.max() < n:
        must = f"keep must be a mask of the {n:,} images or numbers from 0 to {n - 1:,}"
        raise ValueError(
            f"{where}: {must}, got {messages.describe_array(values)} in {path!r}"
        )
    counts = np.bincount(values.astype(np.int64), minlength=n)
    if counts.max() > 1:
        must = f"{where}: keep must name an image once"
        raise ValueError(f"{must}, {path!r} repeats some")
    return counts > 0


def positions_in(source: Source, split: str, whole: Source, option: str) -> Column:
    """Return the index in `whole` of each image of `source`, a part of `whole`.

    split: name of the part, "train[:90%]". whole: the whole split. option: name of the option
    that needs the index, for messages. ValueError if `source` is in memory and its images are
    not the images of `split`.
    """
    if source is whole:
        return np.arange(len(whole))
    if isinstance(source, sources.EncodedSource):
        position = {key: i for i, key in enumerate(_keys(whole))}
        return np.array([position[key] for key in _keys(source)])
    where = f"data.{source.name}"
    parsed_split = listing.parse_split(where, split)
    index = listing.split_indices(
        where,
        listing.number_names(len(whole)),
        labels=whole.columns["label"],
        classes=whole.classes,
        split=parsed_split,
    )
    if not np.array_equal(whole.images[index], source.images):
        must = f"{where}: {option} must come with a whole split here, got {split!r}"
        raise ValueError(
            f"{must}; name the images of {parsed_split.base!r} in two files"
        )
    return index


MADE_BY = "jbias.prepare check"


def damaged_entry(source: Source, wrong: Mapping[int, str]) -> dict[str, Any]:
    """Return a whole split's entry in a list for the option `skip`.

    "fingerprint": of the source. "images": number of images of the split. "damaged": {the image's
    key in source.store: the reason}.
    source: the whole split. wrong: {index of a damaged image: the reason}.
    """
    damaged = {source.store.key(i): reason for i, reason in sorted(wrong.items())}
    return {
        "fingerprint": source.fingerprint,
        "images": len(source),
        "damaged": damaged,
    }


def write_damaged(path: str, splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a list of damaged images, for `skip`, to the JSON file `path`.

    splits: {split: its `damaged_entry`}.
    """
    content = {"made_by": MADE_BY, "splits": splits}
    path = os.path.expanduser(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    files.write(path, json.dumps(content, indent=1) + "\n")


def skip(source: Source, path: str, *, split: str, whole: Source) -> Source:
    """Return a source without the damaged images listed in a file, the option `skip`.

    source: a split or a part of it, named `split`; returned unchanged if none of its images is
    damaged. whole: the whole split. path: a list that
    `jbias prepare check --list` wrote. The result's note has the number of images left out and
    the path of the list, and the fingerprint changes. ValueError for a list that is for
    different files.
    """
    where, split_name = f"data.{source.name}", split.partition("[")[0]
    damaged = _damaged_keys(where, split_name, path=path, whole=whole)
    keys = _keys(source)
    index = np.flatnonzero([key not in damaged for key in keys])
    if len(index) == len(keys):
        return source
    digest = hashlib.sha256("\n".join(sorted(damaged)).encode()).hexdigest()
    note = (
        f"{len(keys) - len(index):,} damaged images of {len(keys):,} left out, by the"
    )
    note += f" list {os.path.basename(path)} ({digest[:12]})"
    return sources.take(source, index, digest=f"without {digest}", note=note)


def _keys(source: Source) -> list[str]:
    """Return the key of each image in its store; [] for a source in memory."""
    if not isinstance(source, sources.EncodedSource):
        return []
    return [source.store.key(i) for i in range(len(source))]


def _damaged_keys(where: str, split: str, *, path: str, whole: Source) -> set[str]:
    """Return the keys, in the store of `whole`, of a split's damaged images.

    path: the list. whole: the whole split. ValueError for a file that is no list, for a list
    without this split, and for a list that is for different files. where: start of error
    messages.
    """
    expected = f"{path}: skip must be a list that `jbias prepare check --list`"
    with base.explain_errors(
        f"{expected} wrote, got ",
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        reason=base.describe_error,
    ):
        with opening.open_text(os.path.expanduser(path)) as file:
            content = json.load(file)
        if content["made_by"] != MADE_BY:
            raise ValueError(f"made by {content['made_by']!r}")
        splits = {
            name: (entry["fingerprint"], entry["damaged"].keys())
            for name, entry in content["splits"].items()
        }
    must, command = f"{where}: skip must be a list", "jbias prepare check"
    if split not in splits:
        must = f"{must} that has split {split!r}"
        got = f"got {path!r} with {', '.join(splits) or 'none'}"
        raise ValueError(f"{must}, {got}; check it: {command}")
    fingerprint, damaged = splits[split]
    unknown = sorted(damaged - {*_keys(whole)})
    which = f"of {len(damaged):,} in {path!r} do not exist"
    remedy = f"check them again: {command}"
    errors.refuse_some(
        unknown, f"{must} of this set's images", which=which, remedy=remedy
    )
    if fingerprint != whole.fingerprint:
        marks = f"fingerprint {fingerprint[:12]} for {whole.fingerprint[:12]}"
        got = f"got {path!r} with {marks}"
        raise ValueError(f"{must} of the files as they are, {got}; {remedy}")
    return damaged
