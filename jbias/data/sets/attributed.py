"""Reader of users' own images with a class and attributes, such as the background.

Layout: <root>/<split>/<class>/<attribute>/*.jpg, as NICO with its contexts, or
<root>/<split>.csv with a line per image and the columns `file` (relative to <root>), `class`
and any further columns. Every further column with few distinct values becomes a column of the
source, with the index of each value among the sorted names, which are in the source's `values`.
The column "attribute" is one of the further columns, or a combination of several.
"""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from jbias import errors
from jbias.data import base, set_options
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles

FILE, CLASS, ATTRIBUTE = "file", "class", "attribute"


def read(
    files: SplitFiles, *, label: str = CLASS, attribute: str = "", ignore: Names = ()
) -> base.Source:
    """Return the source of a split, or of a part of every class such as "train[:90%]".

    label: the column of the table with the class. attribute: the column that becomes
    "attribute", or several to combine, "hair+smile"; default: the column "attribute", else the
    first further column that `set_options.why_unfit` accepts. Images without a class or
    attribute are left out; the value of an empty cell of another column is "(none)". ignore:
    patterns of files to skip in folders. ValueError for an invalid table and for invalid
    folders.
    """
    where, root = files.where, files.root
    table_path = os.path.join(root, f"{files.part.base}.csv")
    if os.path.isfile(table_path):
        images, cells, note = _read_table(
            root, table_path, label=label, attribute=attribute
        )
    else:
        path, note = files.find_folder(), ""
        if (label, attribute) not in ((CLASS, ""), (CLASS, ATTRIBUTE)):
            must = f"{where}: label and attribute must name columns of {table_path!r}"
            got = f"got {label!r} and {attribute!r} and no such file"
            raise ValueError(f"{must}, {got}; leave them out")
        images, cells = _read_folders(where, path, ignore)
    values, columns = {}, {}
    for name, column_cells in cells.items():
        values[name], columns[name] = set_options.number_values(column_cells)
    return files.build(
        images,
        extra=columns,
        values=values,
        measures=("accuracy", "groups"),
        note=note,
    )


Cells = Mapping[str, Names]  # Column -> the name of each image's value.


def _read_folders(
    where: str, path: str, ignore: Names
) -> tuple[listing.Listing, Cells]:
    """Return the images of a split below `path`, and {"attribute": second folder of each path}.

    ignore: patterns of files to skip. ValueError for images directly in a class folder.
    where: start of error messages.
    """
    images = listing.scan_split(where, path, ignore)
    paths = [name.split("/") for name in images.names]
    wrong = [name for name, steps in zip(images.names, paths) if len(steps) < 3]
    must = f"{where}: images must lie in <class>/<attribute>/"
    errors.refuse_some(wrong, must, which="lie directly in a class", remedy="move them")
    return images, {ATTRIBUTE: [steps[1] for steps in paths]}


def _read_table(
    root: str, path: str, *, label: str, attribute: str
) -> tuple[listing.Listing, Cells, str]:
    """Return the images of the CSV file at `path`, {column: cells} of attributes, and a note.

    Images are sorted by class, then by name. The note says which images and columns are left
    out; "" for none. root: folder of the files in the table. label, attribute: see `read`.
    ValueError for an invalid table.
    """
    header, lines = set_options.read_csv(path)
    further_names = [name for name in header if name not in (FILE, label)]
    if not {FILE, label} <= {*header} or not further_names:
        must = f"{path}: the header must have {FILE}, {label} and an attribute"
        raise ValueError(f"{must}, got {', '.join(header) or 'nothing'}")
    _check_files(root, path, lines)
    table = {name: [row[name] for _, row in lines] for name in header}
    combined_names = _attribute_columns(
        path,
        attribute,
        cells_by_name={name: table[name] for name in further_names},
    )
    attributes = set_options.combine(path, table, combined_names)
    complete = [i for i, pair in enumerate(zip(table[label], attributes)) if all(pair)]
    if not complete:
        must = f"{path}: must have a line with {label} and {'+'.join(combined_names)}"
        raise ValueError(f"{must}, got {len(lines):,} lines")
    names = [table[FILE][i] for i in complete]
    classes, labels = set_options.number_values([table[label][i] for i in complete])
    order = np.lexsort((np.array(names), labels))
    images = listing.in_folder(root, names, labels=labels, classes=classes).take(order)
    rows = np.array(complete)[order]
    columns = {ATTRIBUTE: [attributes[i] for i in rows]}
    for name in further_names:
        if name != ATTRIBUTE:
            columns[name] = [table[name][i] for i in rows]
    reasons = {name: set_options.why_unfit(cells) for name, cells in columns.items()}
    for name in filter(set_options.is_reserved, columns):
        reasons[name] = "batches have another of that name"
    reasons[ATTRIBUTE] = ""
    unfit = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
    if ATTRIBUTE in further_names and combined_names != [ATTRIBUTE]:
        unfit.insert(0, f"{ATTRIBUTE} (another is asked for)")
    notes = []
    num_incomplete = len(lines) - len(rows)
    if num_incomplete:
        required = f"{label} or {'+'.join(combined_names)}"
        notes.append(f"{num_incomplete:,} images without {required} left out")
    if unfit:
        notes.append(f"no attributes: {', '.join(unfit)}")
    fit = {name: cells for name, cells in columns.items() if not reasons[name]}
    return images, fit, "; ".join(notes)


def _attribute_columns(path: str, attribute: str, *, cells_by_name: Cells) -> list[str]:
    """Return the names of the columns that are combined to "attribute".

    path: path of the table. attribute: the user's option; "": the column "attribute", else the
    first column that `set_options.why_unfit` accepts, else the first column. cells_by_name: the
    columns other than file and class. ValueError for unknown or repeated names.
    """
    if not attribute:
        if ATTRIBUTE in cells_by_name:
            return [ATTRIBUTE]
        fit = [
            name
            for name in cells_by_name
            if not set_options.why_unfit(cells_by_name[name])
        ]
        return [[*fit, *cells_by_name][0]]
    names = attribute.split("+")
    for name in names:
        if name not in cells_by_name or names.count(name) > 1:
            must = "attribute must name different columns beside file and class"
            hint = errors.suggest(name, cells_by_name)
            raise ValueError(f"{path}: {must}, got {attribute!r}; {hint}")
    return names


def _check_files(
    root: str, path: str, lines: Sequence[tuple[int, dict[str, str]]]
) -> None:
    """Raise ValueError for a file without an image's ending, a missing or a repeated file.

    ValueError also for a table without lines, and for a file outside `root`. path: path of the
    table. lines: (number, {column: cell}); files are relative to `root`.
    """
    if not lines:
        raise ValueError(f"{path}: must have a line per image, got the header alone")
    first_line = {}
    for number, row in lines:
        name, line = row[FILE], f"{path}:{number}"
        if not listing.is_image(name):
            raise ValueError(f"{line}: a line must have an image's file, got {name!r}")
        if not listing.is_below(root, name):
            must = f"files must lie below {root!r}, without '..'"
            raise ValueError(f"{line}: {must}, got {name!r}; move it there")
        if not os.path.isfile(os.path.join(root, name)):
            must = f"files must be there and exist below {root!r}"
            raise ValueError(f"{line}: {must}: {name!r}")
        # "a.jpg", "./a.jpg" and a link to a.jpg are the same image.
        real_path = os.path.realpath(os.path.join(root, name))
        if real_path in first_line:
            must = f"files must be there once: {name!r}"
            got = f"got line {first_line[real_path]}'s image again"
            raise ValueError(
                f"{line}: {must}, {got}; leave the line with the right class"
            )
        first_line[real_path] = number
