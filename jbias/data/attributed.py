"""Images of the user's own with a class and an attribute, such as the background.

Layout: <root>/<split>/<class>/<attribute>/*.jpg, as NICO has it with its contexts, or
<root>/<split>.csv with the columns file, class and attribute, a line an image, files
relative to <root>. The column "attribute" numbers the attributes' sorted names, which
the source's `values` tell.
"""

import csv
import os
from collections.abc import Sequence

import numpy as np

from jbias.data import folder, listing, sources, spec, stores, transforms

CITE = "images of the user's own: cite their authors"
COLUMNS = ("file", "class", "attribute")


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists a split, or a part of every class of it such as "train[:90%]"."""
    name = f"{os.path.basename(os.path.abspath(root))}/{split}"
    where = f"data.attributed {name}"
    part = listing.parse_split(where, split)
    root = listing.existing(where, os.path.expanduser(root), "root")
    table = os.path.join(root, f"{part.base}.csv")
    if os.path.isfile(table):
        place, (files, classes, attributes) = root, _rows(root, table)
    else:
        place, _ = folder.find(where, root, split)
        files, classes, attributes = _folders(where, place, ignore)
    known, column = np.unique(attributes, return_inverse=True)
    return folder.build(
        where,
        part,
        store=stores.Files(place, files.names),
        files=files,
        classes=classes,
        extra={"attribute": column.astype(np.int32)},
        values={"attribute": tuple(known.tolist())},
        name=name,
        space="names",
        measures=("accuracy", "groups"),
        transform=transforms.preprocess(size, resize, crop),
        cite=CITE,
    )


def _folders(
    where: str, path: str, ignore: Sequence[str]
) -> tuple[listing.Files, tuple[str, ...], list[str]]:
    """Files, classes and the attribute of each file, out of the folders."""
    classes = listing.class_folders(where, path)
    files = listing.scan(where, path, {name: name for name in classes}, ignore)
    cells = [name.split("/") for name in files.names]
    wrong = [name for name, row in zip(files.names, cells) if len(row) < 3]
    if wrong:
        raise ValueError(
            f"{where}: images must lie in <class>/<attribute>/, got {len(wrong):,}"
            f" directly in a class, first {wrong[0]!r}; move them"
        )
    return files, classes, [row[1] for row in cells]


def _rows(root: str, table: str) -> tuple[listing.Files, tuple[str, ...], list[str]]:
    """The same out of a CSV file."""
    seen, lengths = {}, []
    for number, (name, label, attribute) in _lines(table):
        if not (name and label and attribute) or not listing.is_image(name):
            raise ValueError(
                f"{table}:{number}: a line must have an image's file, class and"
                f" attribute, got {[name, label, attribute]}"
            )
        path = os.path.join(root, name)
        if name in seen or not os.path.isfile(path):
            why = "once" if name in seen else f"and exist below {root!r}"
            raise ValueError(f"{table}:{number}: files must be there {why}: {name!r}")
        seen[name] = (label, attribute)
        lengths.append(os.path.getsize(path))
    if not seen:
        raise ValueError(f"{table}: must have a line an image, got the header alone")
    names, labels = tuple(seen), [label for label, _ in seen.values()]
    classes, found = np.unique(labels, return_inverse=True)
    files = listing.Files(names, np.array(lengths, np.int64), found.astype(np.int32))
    files = files.take(np.lexsort((np.array(names), found)))
    return files, tuple(classes.tolist()), [seen[name][1] for name in files.names]


def _lines(table: str) -> list[tuple[int, tuple[str | None, ...]]]:
    """Line numbers and the three cells of each line."""
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            header = tuple(reader.fieldnames or ())
            rows = [
                (reader.line_num, tuple(row.get(name) for name in COLUMNS))
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{table}: must be a CSV file in UTF-8: {error}") from error
    if not {*COLUMNS} <= {*header}:
        raise ValueError(
            f"{table}: the header must have {', '.join(COLUMNS)}, got"
            f" {', '.join(header) or 'nothing'}"
        )
    return rows


SPEC = spec.Spec(
    make,
    splits=(),
    cite=CITE,
    licence="that of the images",
    about=(
        "any images by class and attribute, as NICO's by context:"
        " <root>/<split>/<class>/<attribute>/*.jpg, or <root>/<split>.csv with the"
        " columns file, class and attribute"
    ),
)
