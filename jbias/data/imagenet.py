"""ImageNet-1k: the 1000 classes of ILSVRC-2012, train and val, and ReaL's labels of val.

Layout: <root>/{train,val}/<wnid>/*.JPEG, numbered folders, or shards. The validation images
also as the archive of the challenge unpacks, all in one folder, with labels=<file>: a WordNet
id a line for images 1 to 50,000, or lines with an image's name and its WordNet id or its
number in the order of WordNet.

`find_wordnet_split` reads any set of these classes, however its classes are named on disk:
by WordNet ids; by the numbers 0 to 999, as folders or as labels of shards; or by the English
names that Hugging Face's copies have. All come to one order, that of tables.wnids(): folder
"10" is class 10 and not the third, as it sorts.

The set "imagenet_real" has all the right classes of each validation image, or none at all.
Source: Beyer, Hénaff, Kolesnikov, Zhai and van den Oord: Are we done with ImageNet?
2020, https://arxiv.org/abs/2006.07159; their file is real.json, a list of 50,000 lists
of positions in the WordNet order, one for each image by the number in its name.
"""

import dataclasses
import json
import os
import posixpath
import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import base, decoding, folder, listing, sources, tables

VALIDATION_IMAGES = tables.data_sets()["imagenet"]["images"]["val"]
_STEM = "ILSVRC2012_val_"
_ROW = re.compile(rf"(?:({_STEM}\d{{8}})\S*?[\s,])?\s*(n\d{{8}}|\d{{1,3}})\b")


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    subset: bool = False,
    classes: str = "",
    labels: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists "train", "val", or a part of one such as "train[:98%]".

    Only some of the classes are taken if `subset` says so. `classes` is a file of
    WordNet ids, a line each, for shards whose labels are numbers of their own, `labels`
    one for validation images that lie in one folder. `ignore` has patterns of files that
    are no images and may be passed over.
    """
    where = f"data.imagenet {split}"
    spellings = tables.folders("imagenet", split)
    if labels and classes:
        raise ValueError(
            f"{where}: labels must come without classes, got {labels!r} and {classes!r};"
            " remove one: labels are for images in one folder, classes for shards"
        )
    if labels:
        found, part = _flat(where, root, split, labels, spellings, ignore)
        found = order_by_wordnet(where, found, found.files.labels, subset=subset)
    else:
        above = os.path.expanduser(root)
        names = split.partition("[")[0], *spellings
        paths = [os.path.join(above, name) for name in names]
        _has_folders(where, next(filter(os.path.isdir, paths), paths[0]))
        found, part = find_wordnet_split(
            where,
            root,
            split,
            spellings=spellings,
            ignore=ignore,
            classes=classes,
            subset=subset,
        )
    return folder.build(
        where,
        part,
        found,
        space="wnid",
        transform=decoding.preprocess(size, resize, crop),
        **tables.published("imagenet", split),
    )


def _has_folders(where: str, path: str) -> None:
    """Refuses validation images as the challenge packed them, without labels."""
    if not os.path.isdir(path) or listing.has_folders(path):
        return
    first = min((name for name in os.listdir(path) if name[0] != "."), default="")
    if first.startswith(_STEM):
        raise ValueError(
            f"{where}: images must lie in class folders, got {first!r} directly in"
            f" {path!r}; move them, or give labels=<file>, a WordNet id a line for"
            f" images 1 to {VALIDATION_IMAGES:,}"
        )


def _flat(
    where: str,
    root: str,
    split: str,
    path: str,
    spellings: Sequence[str],
    ignore: Sequence[str],
) -> tuple[folder.Listing, listing.Split]:
    """Lists images that lie in one folder by the labels of a file.

    They are named by the split, so that how the folder is spelt makes no difference.
    """
    place, part = folder.find_folder(where, root, split, spellings)
    parent, name = os.path.split(os.path.abspath(place))
    files = listing.scan(where, parent, {name: name}, ignore)
    store = sources.FileStore(parent, files.names)
    table = read_labels(path)
    stems = [os.path.basename(file).partition(".")[0] for file in files.names]
    strange = [stem for stem in stems if stem not in table]
    if strange:
        raise ValueError(
            f"{where}: every image must have a label in {path!r}, {len(strange):,} have"
            f" none, first {strange[0]!r}; keep the published names"
        )
    files = files._replace(
        names=tuple(part.base + one.removeprefix(name) for one in files.names),
        labels=tables.positions([table[stem] for stem in stems]),
    )
    return folder.Listing("flat", store, files, tables.wnids()), part


def read_labels(path: str) -> dict[str, str]:
    """Reads the WordNet id of each validation image, by its name without the ending."""
    with (
        base.explained(
            f"{path}: labels must be a text file: ", OSError, UnicodeDecodeError
        ),
        open(os.path.expanduser(path), encoding="utf-8") as file,
    ):
        lines = [line for line in file.read().splitlines() if line.strip()]
    if lines and lines[0].startswith("ImageId,"):  # Of Kaggle's LOC_val_solution.csv.
        lines = lines[1:]
    rows = [_ROW.match(line) for line in lines]
    wnids, known, table = tables.wnids(), frozenset(tables.wnids()), {}
    for i, (row, line) in enumerate(zip(rows, lines), start=1):
        stem, label = row.groups() if row else (None, None)
        if row and stem and label.isdecimal():
            label = wnids[int(label)]
        if label not in known:
            raise ValueError(
                f"{path}: line {i} must have a WordNet id of the 1,000, or an image's"
                f" name and a number up to 999, got {line[:60]!r}; the numbers of the"
                " challenge's own ground truth are in another order and are not taken"
            )
        table[stem or f"{_STEM}{i:08}"] = label
    if not all(row[1] for row in rows) and len(table) != VALIDATION_IMAGES:
        raise ValueError(
            f"{path}: without names there must be {VALIDATION_IMAGES:,} lines, got"
            f" {len(lines):,}"
        )
    return table


SPEC = base.spec("imagenet", make)

_WNID = re.compile(r"n\d{8}")
_SPOKEN = {0: "tench", 999: "toilet tissue"}  # How Hugging Face's names begin.


def find_wordnet_split(
    where: str,
    root: str,
    split: str,
    *,
    spellings: Sequence[str] = (),
    ignore: Sequence[str] = (),
    classes: str = "",
    subset: bool = False,
) -> tuple[folder.Listing, listing.Split]:
    """Finds a split as folder.find_split does; its classes are WordNet ids in their order.

    `classes` is a file of class names for shards whose labels are numbers. Raises
    ValueError for a class that is none of the 1000, and for one that is missing unless
    `subset` says that some of them are meant.
    """
    found, part = folder.find_split(
        where, root, split, spellings=spellings, ignore=ignore
    )
    ids, numbered = _positions(where, found, classes)
    ids = ids[found.files.labels]
    return order_by_wordnet(where, found, ids, subset=subset, numbered=numbered), part


def order_by_wordnet(
    where: str,
    found: folder.Listing,
    ids: Int[np.ndarray, "n"],
    *,
    subset: bool,
    numbered: bool = False,
) -> folder.Listing:
    """Labels images by which of the 1000 each is, and puts them in that order.

    Raises ValueError for a class that is missing, unless `subset` says that some are
    meant and names, rather than numbers, tell which.
    """
    present = np.unique(ids)
    if len(present) < len(tables.wnids()):
        _incomplete(where, present, numbered, subset)
    labels = np.searchsorted(present, ids).astype(np.int32)
    order = np.argsort(labels, kind="stable")
    return found._replace(
        files=found.files._replace(labels=labels),
        classes=tuple(tables.wnids()[i] for i in present),
    ).take(order)


def _positions(
    where: str, found: folder.Listing, path: str
) -> tuple[Int[np.ndarray, "k"], bool]:
    """Which of the 1000 each label is, and whether numbers alone say so."""
    known = tables.wnids()
    if not path and found.classes is None:
        if found.files.labels.max() >= len(known):
            raise ValueError(
                f"{where}: labels must be 0 to {len(known) - 1}, in the order of"
                f" WordNet, got {found.files.labels.max()}; name the classes by"
                " classes=<file>, a WordNet id a line"
            )
        return np.arange(len(known)), True
    names = folder.class_names(where, found, path)
    if all(name.isdecimal() for name in names):
        return _numbers(where, names), True
    if len(names) == len(known) and all(
        names[i].startswith(text) for i, text in _SPOKEN.items()
    ):
        return np.arange(len(known)), False
    wrong = [name for name in names if name not in known]
    if wrong:
        hint = "name classes by WordNet ids, or by the numbers 0 to 999 in their order"
        if _WNID.fullmatch(wrong[0]):
            hint = base.did_you_mean(wrong[0], known)
        raise ValueError(
            f"{where}: classes must be among the {len(known):,} of ILSVRC-2012,"
            f" {len(wrong):,} of {len(names):,} are not, first {wrong[0]!r}; {hint}"
        )
    return tables.positions(names), False


def _numbers(where: str, names: Sequence[str]) -> Int[np.ndarray, "k"]:
    ids = np.array([int(name) for name in names])
    if len(np.unique(ids)) < len(ids) or ids.max() >= len(tables.wnids()):
        raise ValueError(
            f"{where}: folders with numbers must be 0 to 999, each once, got"
            f" {len(ids):,} from {ids.min()} to {ids.max()}; number them in the order"
            " of WordNet, from 0"
        )
    return ids


def _incomplete(where: str, present, numbered: bool, subset: bool) -> None:
    """Refuses some of the classes, unless they are named and asked for."""
    known = tables.wnids()
    lost = sorted({*range(len(known))} - {*present.tolist()})
    if subset and not numbered:
        return
    remedy = (
        "if only some are meant, set subset=True (an argument of configs, an --options of"
        " `prepare check`)"
    )
    if subset:
        remedy = (
            "numbers tell classes only where all are there, so that some must be named:"
            " by folders, or for shards by classes=<file>, a WordNet id a line"
        )
    raise ValueError(
        f"{where}: all {len(known):,} classes must be there, {len(lost):,} are missing,"
        f" first {known[lost[0]]!r} (number {lost[0]}); {remedy}"
    )


def imagenet_real(
    split: str,
    *,
    root: str,
    real: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists the images by their original classes, with those of ReaL in columns."""
    found = folder.make(
        split,
        root=root,
        size=size,
        resize=resize,
        crop=crop,
        space="wnid",
        ignore=ignore,
    )
    name = f"imagenet_real/{found.name.rpartition('/')[2]}"
    accepted = real_columns(f"data.{name}", real, found.files, found.classes)
    none = int((accepted["accepted_0"] < 0).sum())
    return dataclasses.replace(
        found,
        name=name,
        columns={**found.columns, **accepted},
        measures=("accuracy", "real_accuracy"),
        note=f"{none:,} images without a right class count for accuracy alone",
        cite=tables.cite("imagenet_real"),
    )


def read_real(path: str) -> dict[str, tuple[str, ...]]:
    """Reads the WordNet ids of each image, by its name without the ending.

    "ILSVRC2012_val_00000001" is the first. An image without a right class has ().
    """
    what, kinds = "must be the real.json of ReaL, got", (ValueError, RecursionError)
    with (
        base.explained(f"{path}: {what} ", OSError, *kinds, remedy="; fetch it again"),
        open(os.path.expanduser(path), encoding="utf-8") as file,
    ):
        held = json.load(file)
    if not isinstance(held, list) or len(held) != VALIDATION_IMAGES:
        size = f"{len(held):,}" if isinstance(held, list) else "no list"
        raise ValueError(
            f"{path}: must be a list of {VALIDATION_IMAGES:,} lists, got {size}; take the"
            " real.json of google-research/reassessed-imagenet"
        )
    wnids = tables.wnids()
    for i, one in enumerate(held):
        if not isinstance(one, list) or not all(
            type(label) is int and 0 <= label < len(wnids) for label in one
        ):
            raise ValueError(
                f"{path}: entry {i} must be a list of whole numbers below"
                f" {len(wnids)}, got {one!r}; fetch the file again"
            )
    return {
        f"ILSVRC2012_val_{i:08}": tuple(wnids[label] for label in one)
        for i, one in enumerate(held, start=1)
    }


def real_columns(
    where: str, path: str, names: Sequence[str], classes: Sequence[str]
) -> dict[str, Int[np.ndarray, "n"]]:
    """Columns accepted_0, accepted_1, ...: the right classes of each file.

    Class ids of `classes`, -1 where an image has fewer. Refuses a file that ReaL does
    not know, and a right class that `classes` lack.
    """
    table = read_real(path)
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    strange = [name for name, stem in zip(names, stems) if stem not in table]
    if strange:
        raise ValueError(
            f"{where}: ReaL knows files named ILSVRC2012_val_00000001 to"
            f" {VALIDATION_IMAGES:08}, got {len(strange)} others, first {strange[0]!r}; take the"
            " validation images under their published names"
        )
    ids = {name: label for label, name in enumerate(classes)}
    lacking = {wnid for stem in stems for wnid in table[stem]} - ids.keys()
    if lacking:
        raise ValueError(
            f"{where}: every right class of ReaL must be among the class folders,"
            f" {len(lacking)} are not, first {min(lacking)!r}; take all 1,000 folders"
        )
    most = max(1, *(len(table[stem]) for stem in stems))
    accepted = np.full((most, len(names)), -1, np.int32)
    for i, stem in enumerate(stems):
        accepted[: len(table[stem]), i] = [ids[wnid] for wnid in table[stem]]
    return {f"accepted_{j}": row for j, row in enumerate(accepted)}


REAL_SPEC = base.spec("imagenet_real", imagenet_real)
