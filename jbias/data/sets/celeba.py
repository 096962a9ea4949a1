"""Reader of CelebA: faces with forty attributes, one as the class, another as the shortcut.

Layout: <root>/{img_align_celeba/*.jpg,list_attr_celeba.txt,list_eval_partition.txt},
or the same files in the folders Img, Anno and Eval, as published. By default the class is blond
hair and the attribute gender: Sagawa, Koh, Hashimoto and Liang, ICLR 2020,
https://arxiv.org/abs/1911.08731.
"""

import collections
import os
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool

from jbias import errors
from jbias.data import base
from jbias.data.base import Column, Names
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles

_PARTS = ("train", "valid", "test")  # In the order of the partition file's numbers.
_FILES = ("img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt")
_PLACES = ("", "Img", "Anno", "Eval")

Flags = Mapping[
    str, Bool[np.ndarray, "n"]
]  # Attribute -> True for images that have it.


def read(
    files: SplitFiles,
    *,
    label: str = "Blond_Hair",
    attribute: str = "",
    flags: str = "",
) -> base.Source:
    """Return the source of a split; its classes are "not <label>" and "<label>".

    label: the flag that is the class.
    attribute: the flag of the column "attribute" (default: Male, or Blond_Hair if the label
      is Male); or several flags that exclude each other, such as
      "Black_Hair+Blond_Hair+Brown_Hair+Gray_Hair": images with none or more than one of
      the flags are left out.
    flags: further attributes as columns, "Male+Smiling", or "all"; `attribute` then also becomes
      a column of its own name.
    ValueError for unknown flags, for a flag twice in `label` and `attribute`, and for damaged
    files; base.Missing for missing files.
    """
    where = files.where
    attribute = attribute or ("Blond_Hair" if label == "Male" else "Male")
    images_path, table, partition = (
        _locate(where, files.root, name) for name in _FILES
    )
    names = _image_names(where, partition, files.part.base)
    known = _read_flags(where, table, names)
    attribute_flags = attribute.split("+")
    for name in (label, *attribute_flags):
        is_repeated = attribute_flags.count(name) + (name == label) > 1
        if name not in known or is_repeated:
            must = f"label and attribute must be different ones of the {len(known)}"
            got = f"got {label!r} and {attribute!r}; {errors.suggest(name, known)}"
            raise ValueError(f"{where}: {must}, {got}")
    flags_of = {"attribute": attribute_flags}
    if flags:
        flags_of[attribute] = attribute_flags
        for name in _flag_names(where, flags, label=label, known=known):
            flags_of[name] = [name]
    columns = {name: _column(known, names) for name, names in flags_of.items()}
    values = {name: _value_names(names) for name, names in flags_of.items()}
    index = np.flatnonzero(columns["attribute"] >= 0)
    index = index[np.argsort(known[label][index], kind="stable")]
    images = listing.in_folder(
        images_path,
        names,
        lengths=_lengths(where, images_path, names),
        labels=known[label],
        classes=(f"not {label}", label),
    )
    notes = [listing.count_note(len(names), files.published)]
    if len(index) < len(names):
        count = len(names) - len(index)
        notes += [f"{count:,} with none or several of {attribute} left out"]
    return files.build(
        images.take(index),
        extra={name: column[index] for name, column in columns.items()},
        values=values,
        measures=("accuracy", "groups"),
        note="; ".join(filter(None, notes)),
    )


def _flag_names(where: str, flags: str, *, label: str, known: Flags) -> Names:
    """Return the names in the option `flags`, "Male+Smiling"; ValueError for unknown names.

    "all": all names except `label`, the class. known: the flags of the data set.
    where: start of error messages.
    """
    if flags == "all":
        return [name for name in known if name != label]
    names = flags.split("+")
    for name in names:
        must = f"be all or some of the {len(known)}"
        errors.check_known(where, name, known, "flags", must=must)
    return names


def _column(flags: Flags, names: Names) -> Column:
    """Return the column of an attribute.

    For one name: 1 if an image has the flag, else 0. For several names: the index of the
    only flag that an image has, -1 if the image has none or more than one. flags: {name: mask}.
    """
    if len(names) == 1:
        return flags[names[0]].astype(np.int32)
    table = np.stack([flags[name] for name in names])
    return np.where(table.sum(0) == 1, table.argmax(0), -1).astype(np.int32)


def _value_names(names: Names) -> tuple[str, ...]:
    """Return the names of the values of `_column`(flags, names)."""
    return tuple(names) if len(names) > 1 else (f"not {names[0]}", names[0])


def _locate(where: str, root: str, name: str) -> str:
    """Return the path of a published file or folder; base.Missing if it does not exist.

    where: start of error messages.
    """
    for place in _PLACES:
        path = os.path.join(root, place, name)
        if os.path.exists(path):
            return path
    raise base.Missing(f"{where}: needs {name!r} in {root!r}, which is not there")


def _lines(path: str) -> list[str]:
    """Return the non-empty lines of a published text file; ValueError if it cannot be read."""
    return listing.text_lines(path, f"{path}: must be the published text file: ")


def _image_names(where: str, path: str, part: str) -> list[str]:
    """Return the sorted image names of a split, from list_eval_partition.txt at `path`.

    Lines read "000001.jpg 0". part: name of the split. ValueError for lines of a different
    form, an image with two lines, and a split without images. where: start of error messages.
    """
    number = str(_PARTS.index(part))
    rows = [line.split() for line in _lines(path)]
    for i, row in enumerate(rows, 1):
        is_file = os.path.basename(row[0]) == row[0]
        if len(row) != 2 or row[1] not in ("0", "1", "2") or not is_file:
            raise ValueError(f"{path}:{i}: a line must read <file> <0, 1 or 2>")
    counts = collections.Counter(name for name, _ in rows)
    errors.refuse_some(
        [name for name, count in counts.items() if count > 1],
        f"{path}: an image must be in one part",
        which="have several lines",
        remedy="fetch the file again",
    )
    names = sorted(name for name, row_number in rows if row_number == number)
    if not names:
        raise ValueError(f"{where}: {path!r} must name images of part {number}")
    return names


def _read_flags(where: str, path: str, names: Names) -> Flags:
    """Return {flag: mask over the named images}, from list_attr_celeba.txt at `path`.

    ValueError for lines of a different form, a repeated flag, an image without a line, and an
    image with two different lines. where: start of error messages.
    """
    lines, wanted, table = _lines(path), {*names}, {}
    header = lines[1].split() if len(lines) > 1 else []
    for name in header:
        if header.count(name) > 1:
            raise ValueError(f"{path}:2: attributes must differ, got {name!r} twice")
    for number, line in enumerate(lines[2:], start=3):
        name, *cells = line.split()
        if name in wanted:
            if len(cells) != len(header) or not {*cells} <= {"1", "-1"}:
                must = f"a line must read <file> and {len(header)} of 1 and -1"
                got = f"got {line[:60]!r}; fetch the file again"
                raise ValueError(f"{path}:{number}: {must}, {got}")
            flags = [cell == "1" for cell in cells]
            if table.setdefault(name, flags) != flags:
                must = f"lines of {name} must agree, got other attributes than above"
                raise ValueError(f"{path}:{number}: {must}; leave the right one")
    errors.refuse_missing(
        names,
        table,
        f"{where}: every image must have a line in {path!r}",
        which="have none",
        remedy="fetch the file again",
    )
    return dict(zip(header, np.array([table[name] for name in names]).T, strict=True))


def _lengths(where: str, folder_path: str, names: Names) -> list[int]:
    """Return the size in bytes of each named file; ValueError if a file does not exist.

    folder_path: folder of the files.
    where: start of error messages.
    """
    with os.scandir(folder_path) as entries:
        lengths = {entry.name: entry.stat().st_size for entry in entries}
    errors.refuse_missing(
        names,
        lengths,
        f"{where}: every image of the partition must be in {folder_path!r}",
        which="are not",
        remedy="unpack the archive again",
    )
    return [lengths[name] for name in names]
