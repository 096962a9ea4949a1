"""CelebA: faces with forty attributes, one of which is the class and one the shortcut.

Layout: <root>/{img_align_celeba/*.jpg,list_attr_celeba.txt,list_eval_partition.txt},
or these in the folders Img, Anno and Eval, as published. By itself the class is blond
hair and the attribute gender: Sagawa, Koh, Hashimoto and Liang, ICLR 2020,
https://arxiv.org/abs/1911.08731.
"""

import os
from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Bool, Int

from jbias.data import base, sources
from jbias.data.forms import listing
from jbias.data.sets import folder
from jbias.untrusted import opening

_PARTS = ("train", "valid", "test")  # In the order of the partition file's numbers.
_IMAGES, _FLAGS, _PARTITION = (
    "img_align_celeba",
    "list_attr_celeba.txt",
    "list_eval_partition.txt",
)
_PLACES = ("", "Img", "Anno", "Eval")


def read(
    request: folder.Request,
    *,
    label: str = "Blond_Hair",
    attribute: str = "",
    flags: str = "",
) -> sources.EncodedSource:
    """Lists one split by the partition file; classes are "not <label>" and "<label>".

    The column "attribute" likewise, by itself of Male, or Blond_Hair where that is the
    class; or, for several that exclude each other, such as
    "Black_Hair+Blond_Hair+Brown_Hair+Gray_Hair", which of them holds: images with none
    or more than one are left out. flags: further attributes, "Male+Smiling", or "all", as
    columns of their own names; then `attribute` is there under its own as well.
    """
    where, root = request.where, request.root
    attribute = attribute or ("Blond_Hair" if label == "Male" else "Male")
    kinds = (_IMAGES, _FLAGS, _PARTITION)
    place, table, partition = (_locate(where, root, name) for name in kinds)
    names = _split(where, partition, request.part.base)
    held = _flags(where, table, names)
    _check(where, label, attribute, held)
    columns = {"attribute": _column(held, attribute.split("+"))}
    if flags:
        columns[attribute] = columns["attribute"]
        further = _flag_columns(where, flags, label, held)
        columns |= {one: _column(held, [one]) for one in further}
    (kept,) = np.nonzero(columns["attribute"][1] >= 0)
    found = held[label].astype(np.int32)
    kept = kept[np.argsort(found[kept], kind="stable")]
    files = listing.Files(tuple(names), _lengths(where, place, names), found).take(kept)
    return folder.build(
        request,
        folder.in_folder(place, files, (f"not {label}", label)),
        extra={name: column[kept] for name, (_, column) in columns.items()},
        values={name: values for name, (values, _) in columns.items()},
        measures=("accuracy", "groups"),
        note=_note(request.published, attribute, len(names), len(kept)),
    )


def _check(where: str, label: str, attribute: str, known: Collection[str]) -> None:
    asked = attribute.split("+")
    for name in (label, *asked):
        if name not in known or asked.count(name) + (name == label) > 1:
            raise ValueError(
                f"{where}: label and attribute must be different ones of the"
                f" {len(known)}, got {label!r} and {attribute!r};"
                f" {base.did_you_mean(name, known)}"
            )


def _flag_columns(where, flags, label, known) -> Sequence[str]:
    """Those that are asked for as columns; "all" are all but the class."""
    asked = [name for name in known if name != label]
    asked = asked if flags == "all" else flags.split("+")
    for name in asked:
        if name not in known:
            raise ValueError(
                f"{where}: flags must be all or some of the {len(known)}, got {flags!r};"
                f" {base.did_you_mean(name, known)}"
            )
    return asked


def _note(published: int, attribute: str, n: int, kept: int) -> str:
    """Counts unlike the published, and images that have no attribute."""
    out = f"{n - kept:,} with none or several of {attribute} left out"
    count = listing.count_note(n, published)
    return "; ".join(filter(None, (count, out if kept != n else "")))


def _column(flags, asked) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """Names of an attribute's values and the value of each image; -1 where none is."""
    if len(asked) == 1:
        return (f"not {asked[0]}", asked[0]), flags[asked[0]].astype(np.int32)
    table = np.stack([flags[name] for name in asked])
    column = np.where(table.sum(0) == 1, table.argmax(0), -1)
    return tuple(asked), column.astype(np.int32)


def _locate(where: str, root: str, name: str) -> str:
    for place in _PLACES:
        path = os.path.join(root, place, name)
        if os.path.exists(path):
            return path
    raise base.Missing(f"{where}: needs {name!r} in {root!r}, which is not there")


def _lines(path: str) -> list[str]:
    what = f"{path}: must be the published text file: "
    with base.explained(what, OSError, ValueError), opening.text(path) as file:
        return file.read().splitlines()


def _split(where: str, path: str, base: str) -> list[str]:
    """The images of a split: lines of the partition file read "000001.jpg 0"."""
    number = str(_PARTS.index(base))
    rows = [line.split() for line in _lines(path) if line.strip()]
    wrong = next((i for i, row in enumerate(rows, 1) if len(row) != 2), None)
    if wrong:
        raise ValueError(f"{path}:{wrong}: a line must read <file> <0, 1 or 2>")
    names = sorted(name for name, which in rows if which == number)
    if not names:
        raise ValueError(f"{where}: {path!r} must name images of part {number}")
    return names


def _flags(where, path, names) -> dict[str, Bool[np.ndarray, "n"]]:
    """The attributes of the named images: {attribute: whether each has it}."""
    lines, wanted, table = _lines(path), {*names}, {}
    header = lines[1].split() if len(lines) > 1 else []
    for number, line in enumerate(lines[2:], start=3):
        name, *cells = line.split() or [""]
        if name in wanted:
            if len(cells) != len(header) or not {*cells} <= {"1", "-1"}:
                raise ValueError(
                    f"{path}:{number}: a line must read <file> and {len(header)} of 1"
                    f" and -1, got {line[:60]!r}; fetch the file again"
                )
            table[name] = [cell == "1" for cell in cells]
    lost = [name for name in names if name not in table]
    if lost:
        raise ValueError(
            f"{where}: every image must have a line in {path!r}, {len(lost):,} have"
            f" none, first {lost[0]!r}; fetch the file again"
        )
    return dict(zip(header, np.array([table[name] for name in names]).T, strict=True))


def _lengths(where: str, place: str, names: Sequence[str]) -> Int[np.ndarray, "n"]:
    """Sizes of the files in bytes; refuses images that are not there."""
    with os.scandir(place) as entries:
        lengths = {entry.name: entry.stat().st_size for entry in entries}
    lost = [name for name in names if name not in lengths]
    if lost:
        raise ValueError(
            f"{where}: every image of the partition must be in {place!r},"
            f" {len(lost):,} are not, first {lost[0]!r}; unpack the archive again"
        )
    return np.array([lengths[name] for name in names], np.int64)


SPEC = folder.spec("celeba", read, native=True, narrows=("label", "attribute", "flags"))
