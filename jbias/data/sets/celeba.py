"""CelebA: faces with forty attributes, one of which is the class and one the shortcut.

Layout: <root>/{img_align_celeba/*.jpg,list_attr_celeba.txt,list_eval_partition.txt},
or these in the folders Img, Anno and Eval, as published. By itself the class is blond
hair and the attribute gender: Sagawa, Koh, Hashimoto and Liang, ICLR 2020,
https://arxiv.org/abs/1911.08731.
"""

import collections
import os
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool

from jbias.data import base
from jbias.data.base import Column, Names
from jbias.data.forms import listing
from jbias.data.sets import folder
from jbias.data.sets.folder import Request

_PARTS = ("train", "valid", "test")  # In the order of the partition file's numbers.
_FILES = ("img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt")
_PLACES = ("", "Img", "Anno", "Eval")

Flags = Mapping[str, Bool[np.ndarray, "n"]]  # By attribute, whether each image has it.


def read(
    request: Request, *, label: str = "Blond_Hair", attribute: str = "", flags: str = ""
) -> base.Source:
    """Lists one split by the partition file; classes are "not <label>" and "<label>".

    The column "attribute" likewise, by itself of Male, or Blond_Hair where that is the
    class; or, for several that exclude each other, such as
    "Black_Hair+Blond_Hair+Brown_Hair+Gray_Hair", which of them holds: images with none
    or more than one are left out. flags: further attributes, "Male+Smiling", or "all", as
    columns of their own names; then `attribute` is there under its own as well.
    """
    where = request.where
    attribute = attribute or ("Blond_Hair" if label == "Male" else "Male")
    place, table, partition = (_locate(where, request.root, one) for one in _FILES)
    names = _names(where, partition, request.part.base)
    held = _read_flags(where, table, names)
    asked = attribute.split("+")
    for name in (label, *asked):
        if name not in held or asked.count(name) + (name == label) > 1:
            must = f"label and attribute must be different ones of the {len(held)}"
            got = f"got {label!r} and {attribute!r}; {base.did_you_mean(name, held)}"
            raise ValueError(f"{where}: {must}, {got}")
    wanted = {"attribute": asked}
    if flags:
        wanted[attribute] = asked
        wanted |= {name: [name] for name in _further(where, flags, label, held)}
    columns = {name: _column(held, some) for name, some in wanted.items()}
    values = {k: tuple(v) if v[1:] else (f"not {v[0]}", *v) for k, v in wanted.items()}
    kept = np.flatnonzero(columns["attribute"] >= 0)
    kept = kept[np.argsort(held[label][kept], kind="stable")]
    files = names, _lengths(where, place, names), held[label]
    found = listing.in_folder(place, *files, (f"not {label}", label))
    notes = [listing.count_note(len(names), request.published)]
    if lost := len(names) - len(kept):
        notes += [f"{lost:,} with none or several of {attribute} left out"]
    extra = {name: column[kept] for name, column in columns.items()}
    about = dict(measures=("accuracy", "groups"), note="; ".join(filter(None, notes)))
    return folder.build(request, found.take(kept), extra=extra, values=values, **about)


def _further(where: str, flags: str, label: str, known: Flags) -> Names:
    """Those that are asked for as columns; "all" are all but the class."""
    if flags == "all":
        return [name for name in known if name != label]
    asked = flags.split("+")
    for name in asked:
        what = f"{where}: flags must be all or some of the {len(known)}"
        base.check_known(what, name, known)
    return asked


def _column(flags: Flags, asked: Names) -> Column:
    """Whether each image has an attribute; of several, which it has, or -1."""
    if len(asked) == 1:
        return flags[asked[0]].astype(np.int32)
    table = np.stack([flags[name] for name in asked])
    return np.where(table.sum(0) == 1, table.argmax(0), -1).astype(np.int32)


def _locate(where: str, root: str, name: str) -> str:
    for place in _PLACES:
        path = os.path.join(root, place, name)
        if os.path.exists(path):
            return path
    raise base.Missing(f"{where}: needs {name!r} in {root!r}, which is not there")


def _lines(path: str) -> list[str]:
    return listing.text_lines(path, f"{path}: must be the published text file: ")


def _names(where: str, path: str, part: str) -> list[str]:
    """The images of a split: lines of the partition file read "000001.jpg 0"."""
    number = str(_PARTS.index(part))
    rows = [line.split() for line in _lines(path)]
    for i, row in enumerate(rows, 1):
        is_file = os.path.basename(row[0]) == row[0]
        if len(row) != 2 or row[1] not in ("0", "1", "2") or not is_file:
            raise ValueError(f"{path}:{i}: a line must read <file> <0, 1 or 2>")
    times = collections.Counter(name for name, _ in rows)
    twice = [name for name, count in times.items() if count > 1]
    must = f"{path}: an image must be in one part"
    base.refuse_some(twice, must, "have several lines", "fetch the file again")
    if not (names := sorted(name for name, which in rows if which == number)):
        raise ValueError(f"{where}: {path!r} must name images of part {number}")
    return names


def _read_flags(where: str, path: str, names: Names) -> Flags:
    """The attributes of the named images."""
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
    must = f"{where}: every image must have a line in {path!r}"
    base.refuse_missing(names, table, must, "have none", "fetch the file again")
    return dict(zip(header, np.array([table[name] for name in names]).T, strict=True))


def _lengths(where: str, place: str, names: Names) -> list[int]:
    """Sizes of the files in bytes; refuses images that are not there."""
    with os.scandir(place) as entries:
        lengths = {entry.name: entry.stat().st_size for entry in entries}
    must = f"{where}: every image of the partition must be in {place!r}"
    base.refuse_missing(names, lengths, must, "are not", "unpack the archive again")
    return [lengths[name] for name in names]
