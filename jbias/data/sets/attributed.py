"""Users' own images with a class and attributes, such as the background.

Layout: <root>/<split>/<class>/<attribute>/*.jpg, as NICO has it with its contexts, or
<root>/<split>.csv with the columns file, class and any others, a line for each image, with
files relative to <root>. Every other column with few distinct values becomes a column of the
source; it holds the place of each value among the sorted names, which are in the source's
`values`. The column "attribute" is one of them, or a combination of several.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jbias.data import base, set_options, sources
from jbias.data.forms import listing
from jbias.data.sets import folder

FILE, CLASS, ATTRIBUTE = "file", "class", "attribute"


class _Listed(NamedTuple):
    """What folders or a table say of all images of a split."""

    files: listing.Files
    classes: tuple[str, ...]
    columns: Mapping[str, Int[np.ndarray, "n"]]
    values: Mapping[str, tuple[str, ...]]
    note: str = ""


def read(
    request: folder.Request,
    *,
    label: str = CLASS,
    attribute: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists a split, or a part of every class of it such as "train[:90%]".

    label: the column of the table that is the class. attribute: the one, or several such
    as "hair+smile", that the column "attribute" is made of; by itself the one of that
    name, else the first of the further ones. Images without either are left out; where
    a cell of another column is empty, its value is "(none)".
    """
    where, root = request.where, request.root
    table = os.path.join(root, f"{request.part.base}.csv")
    if os.path.isfile(table):
        place, found = root, _table(root, table, label, attribute)
    else:
        place = folder.find_folder(request)
        if (label, attribute) not in ((CLASS, ""), (CLASS, ATTRIBUTE)):
            raise ValueError(
                f"{where}: label and attribute must name columns of {table!r}, got"
                f" {label!r} and {attribute!r} and no such file; leave them out"
            )
        found = _folders(where, place, ignore)
    return folder.build(
        request,
        folder.in_folder(place, found.files, found.classes),
        extra=found.columns,
        values=found.values,
        measures=("accuracy", "groups"),
        note=found.note,
    )


def _folders(where: str, path: str, ignore: Sequence[str]) -> _Listed:
    """What the folders say."""
    classes = listing.class_folders(where, path)
    files = listing.scan(where, path, {name: name for name in classes}, ignore)
    parts = [name.split("/") for name in files.names]
    wrong = [name for name, row in zip(files.names, parts) if len(row) < 3]
    if wrong:
        raise ValueError(
            f"{where}: images must lie in <class>/<attribute>/, got {len(wrong):,}"
            f" directly in a class, first {wrong[0]!r}; move them"
        )
    known, column = set_options.number_values([row[1] for row in parts])
    return _Listed(files, classes, {ATTRIBUTE: column}, {ATTRIBUTE: known})


def _table(root: str, path: str, label: str, attribute: str) -> _Listed:
    """What a CSV file says."""
    header, lines = set_options.read_csv(path)
    further = [name for name in header if name not in (FILE, label)]
    if not {FILE, label} <= {*header} or not further:
        raise ValueError(
            f"{path}: the header must have {FILE}, {label} and an attribute, got"
            f" {', '.join(header) or 'nothing'}"
        )
    _check_files(root, path, lines)
    table = {name: [row[name] for _, row in lines] for name in header}
    asked = _chosen_columns(path, attribute, {name: table[name] for name in further})
    wanted = set_options.combine(path, table, asked)
    kept = [i for i, pair in enumerate(zip(table[label], wanted)) if all(pair)]
    if not kept:
        raise ValueError(
            f"{path}: must have a line with {label} and {'+'.join(asked)}, got"
            f" {len(lines):,} lines"
        )
    names = [table[FILE][i] for i in kept]
    classes, found = set_options.number_values([table[label][i] for i in kept])
    lengths = [os.path.getsize(os.path.join(root, name)) for name in names]
    files = listing.Files(tuple(names), np.array(lengths, np.int64), found)
    order = np.lexsort((np.array(names), found))
    kept = np.array(kept)[order]
    told = {ATTRIBUTE: wanted} | {n: table[n] for n in further if n != ATTRIBUTE}
    told = {name: [column[i] for i in kept] for name, column in told.items()}
    told, out = _usable_columns(told)
    if ATTRIBUTE in further and asked != [ATTRIBUTE]:
        out.insert(0, f"{ATTRIBUTE} (another is asked for)")
    made = {name: set_options.number_values(column) for name, column in told.items()}
    return _Listed(
        files.take(order),
        classes,
        {name: column for name, (_, column) in made.items()},
        {name: known for name, (known, _) in made.items()},
        _note(len(lines) - len(kept), f"{label} or {'+'.join(asked)}", out),
    )


def _chosen_columns(path, attribute, further) -> list[str]:
    """The columns that "attribute" is made of."""
    if not attribute:
        fit = [
            name
            for name, column in further.items()
            if not set_options.why_unfit(column)
        ]
        return [ATTRIBUTE if ATTRIBUTE in further else [*fit, *further][0]]
    asked = attribute.split("+")
    for name in asked:
        if name not in further or asked.count(name) > 1:
            raise ValueError(
                f"{path}: attribute must name different columns beside file and class,"
                f" got {attribute!r}; {base.did_you_mean(name, further)}"
            )
    return asked


def _check_files(root, path, lines) -> None:
    """Refuses a line without an image, a file that is not there, and one named twice."""
    if not lines:
        raise ValueError(f"{path}: must have a line an image, got the header alone")
    seen = set()
    for number, row in lines:
        name = row[FILE]
        if not listing.is_image(name):
            raise ValueError(
                f"{path}:{number}: a line must have an image's file, got {name!r}"
            )
        if name in seen or not os.path.isfile(os.path.join(root, name)):
            why = "once" if name in seen else f"and exist below {root!r}"
            raise ValueError(f"{path}:{number}: files must be there {why}: {name!r}")
        seen.add(name)


def _usable_columns(table) -> tuple[dict[str, list[str]], list[str]]:
    """Columns that are attributes, and words about the others; "attribute" is one."""
    kept, out = {}, []
    for name, column in table.items():
        why = (
            "batches have another of that name" if set_options.is_reserved(name) else ""
        )
        why = "" if name == ATTRIBUTE else why or set_options.why_unfit(column)
        if why:
            out.append(f"{name} ({why})")
        else:
            kept[name] = column
    return kept, out


def _note(lost: int, asked: str, out: Sequence[str]) -> str:
    notes = [f"{lost:,} images without {asked} left out"] if lost else []
    notes += [f"no attributes: {', '.join(out)}"] if out else []
    return "; ".join(notes)


SPEC = folder.spec("attributed", read, own=True)
