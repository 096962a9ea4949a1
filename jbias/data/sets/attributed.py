"""Users' own images with a class and attributes, such as the background.

Layout: <root>/<split>/<class>/<attribute>/*.jpg, as NICO has it with its contexts, or
<root>/<split>.csv with the columns file, class and any others, a line for each image, with
files relative to <root>. Every other column with few distinct values becomes a column of the
source; it holds the place of each value among the sorted names, which are in the source's
`values`. The column "attribute" is one of them, or a combination of several.
"""

import os
from collections.abc import Mapping

import numpy as np

from jbias.data import base, set_options
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets import folder
from jbias.data.sets.folder import Request

FILE, CLASS, ATTRIBUTE = "file", "class", "attribute"


def read(
    request: Request, *, label: str = CLASS, attribute: str = "", ignore: Names = ()
) -> base.Source:
    """Lists a split, or a part of every class of it such as "train[:90%]".

    label: the column of the table that is the class. attribute: the one, or several such
    as "hair+smile", that the column "attribute" is made of; by itself the one of that
    name, else the first of the further ones. Images without either are left out; where
    a cell of another column is empty, its value is "(none)".
    """
    where, root = request.where, request.root
    table = os.path.join(root, f"{request.part.base}.csv")
    if os.path.isfile(table):
        found, named, note = _table(root, table, label, attribute)
    else:
        place, note = folder.find_folder(request), ""
        if (label, attribute) not in ((CLASS, ""), (CLASS, ATTRIBUTE)):
            must = f"{where}: label and attribute must name columns of {table!r}"
            got = f"got {label!r} and {attribute!r} and no such file"
            raise ValueError(f"{must}, {got}; leave them out")
        found, named = _folders(where, place, ignore)
    made = {name: set_options.number_values(column) for name, column in named.items()}
    about = dict(measures=("accuracy", "groups"), note=note)
    about["values"] = {name: known for name, (known, _) in made.items()}
    extra = {name: column for name, (_, column) in made.items()}
    return folder.build(request, found, extra=extra, **about)


Named = Mapping[str, Names]  # By column, what each image has.


def _folders(where: str, path: str, ignore: Names) -> tuple[listing.Listing, Named]:
    """What the folders say of all images of a split."""
    found = listing.scan_split(where, path, ignore)
    parts = [name.split("/") for name in found.names]
    wrong = [name for name, row in zip(found.names, parts) if len(row) < 3]
    must = f"{where}: images must lie in <class>/<attribute>/"
    base.refuse_some(wrong, must, "lie directly in a class", "move them")
    return found, {ATTRIBUTE: [row[1] for row in parts]}


def _table(
    root: str, path: str, label: str, attribute: str
) -> tuple[listing.Listing, Named, str]:
    """What a CSV file says of all images of a split, and a note about it."""
    header, lines = set_options.read_csv(path)
    further = [name for name in header if name not in (FILE, label)]
    if not {FILE, label} <= {*header} or not further:
        must = f"{path}: the header must have {FILE}, {label} and an attribute"
        raise ValueError(f"{must}, got {', '.join(header) or 'nothing'}")
    _check_files(root, path, lines)
    table = {name: [row[name] for _, row in lines] for name in header}
    asked = _chosen_columns(path, attribute, {name: table[name] for name in further})
    wanted = set_options.combine(path, table, asked)
    kept = [i for i, pair in enumerate(zip(table[label], wanted)) if all(pair)]
    if not kept:
        must = f"{path}: must have a line with {label} and {'+'.join(asked)}"
        raise ValueError(f"{must}, got {len(lines):,} lines")
    names = [table[FILE][i] for i in kept]
    classes, labels = set_options.number_values([table[label][i] for i in kept])
    lengths = [os.path.getsize(os.path.join(root, name)) for name in names]
    order = np.lexsort((np.array(names), labels))
    found = listing.in_folder(root, names, lengths, labels, classes).take(order)
    columns = {ATTRIBUTE: wanted} | {n: table[n] for n in further if n != ATTRIBUTE}
    kept = np.array(kept)[order]
    columns = {name: [one[i] for i in kept] for name, one in columns.items()}
    why = {name: set_options.why_unfit(column) for name, column in columns.items()}
    taken = filter(set_options.is_reserved, columns)
    why |= dict.fromkeys(taken, "batches have another of that name") | {ATTRIBUTE: ""}
    out = [f"{name} ({reason})" for name, reason in why.items() if reason]
    if ATTRIBUTE in further and asked != [ATTRIBUTE]:
        out.insert(0, f"{ATTRIBUTE} (another is asked for)")
    lost = len(lines) - len(kept)
    none = f"{label} or {'+'.join(asked)}"
    notes = [f"{lost:,} images without {none} left out"] * bool(lost)
    notes += [f"no attributes: {', '.join(out)}"] * bool(out)
    named = {name: column for name, column in columns.items() if not why[name]}
    return found, named, "; ".join(notes)


def _chosen_columns(path: str, attribute: str, further: Named) -> list[str]:
    """The columns that "attribute" is made of."""
    if not attribute:
        fit = [one for one in further if not set_options.why_unfit(further[one])]
        return [ATTRIBUTE if ATTRIBUTE in further else [*fit, *further][0]]
    asked = attribute.split("+")
    for name in asked:
        if name not in further or asked.count(name) > 1:
            must = "attribute must name different columns beside file and class"
            hint = base.did_you_mean(name, further)
            raise ValueError(f"{path}: {must}, got {attribute!r}; {hint}")
    return asked


def _check_files(root, path, lines) -> None:
    """Refuses a line without an image, a file that is not there, and one named twice."""
    if not lines:
        raise ValueError(f"{path}: must have a line an image, got the header alone")
    seen = {}
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
        # "./a.jpg", and a link to it, are the same image.
        place = os.path.realpath(os.path.join(root, name))
        if place in seen:
            must = f"files must be there once: {name!r}"
            got = f"got {seen[place]} again; leave the line with the right class"
            raise ValueError(f"{line}: {must}, {got}")
        seen[place] = f"line {number}'s image"
