"""ImageNet-1k: the 1000 classes of ILSVRC-2012, train and val.

Layout: <root>/{train,val}/<wnid>/*.JPEG, numbered folders, or shards, as wordnet_sets
has them. The validation images also as the archive of the challenge unpacks, all in one
folder, with labels=<file>: a WordNet id a line for images 1 to 50,000, or lines with an
image's name and its WordNet id or its number in the order of WordNet.
"""

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from jbias.data import (
    folder,
    forms,
    listing,
    sources,
    spec,
    stores,
    transforms,
    wordnet,
    wordnet_sets,
)

CITE = (
    "Russakovsky, Deng, Su, Krause, Satheesh, Ma, Huang, Karpathy, Khosla, Bernstein,"
    " Berg and Fei-Fei: ImageNet Large Scale Visual Recognition Challenge. IJCV 2015,"
    " https://doi.org/10.1007/s11263-015-0816-y"
)
LICENCE = "ImageNet's terms of access: non-commercial research and education"
COUNTS: Mapping[str, int] = MappingProxyType({"train": 1_281_167, "val": 50_000})
_SPELLINGS = {"val": ("validation",)}  # Of Hugging Face and TFDS.
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
    base = split.partition("[")[0]
    spellings = _SPELLINGS.get(base, ())
    if labels and classes:
        raise ValueError(
            f"{where}: labels must come without classes, got {labels!r} and {classes!r};"
            " remove one: labels are for images in one folder, classes for shards"
        )
    if labels:
        found, part = _flat(where, root, split, labels, spellings, ignore)
        found = wordnet_sets.ordered(where, found, found.files.labels, subset=subset)
    else:
        above = os.path.expanduser(root)
        paths = [os.path.join(above, name) for name in (base, *spellings)]
        _has_folders(where, next(filter(os.path.isdir, paths), paths[0]))
        found, part = wordnet_sets.find(
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
        store=found.store,
        files=found.files,
        classes=found.classes,
        name=f"imagenet/{split}",
        space="wnid",
        transform=transforms.preprocess(size, resize, crop),
        published=COUNTS.get(part.base),
        cite=CITE,
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
            f" images 1 to {COUNTS['val']:,}"
        )


def _flat(
    where: str,
    root: str,
    split: str,
    path: str,
    spellings: Sequence[str],
    ignore: Sequence[str],
) -> tuple[forms.Listing, listing.Split]:
    """Lists images that lie in one folder by the labels of a file.

    They are named by the split, so that how the folder is spelt makes no difference.
    """
    place, part = folder.find(where, root, split, spellings)
    parent, name = os.path.split(os.path.abspath(place))
    files = listing.scan(where, parent, {name: name}, ignore)
    store = stores.Files(parent, files.names)
    table = read_labels(path)
    stems = [os.path.basename(file).partition(".")[0] for file in files.names]
    strange = [stem for stem in stems if stem not in table]
    if strange:
        raise ValueError(
            f"{where}: every image must have a label in {path!r}, {len(strange):,} have"
            f" none, first {strange[0]!r}; keep the published names"
        )
    wnids = wordnet.wnids()
    ids = {wnid: i for i, wnid in enumerate(wnids)}
    files = files._replace(
        names=tuple(part.base + one.removeprefix(name) for one in files.names),
        labels=np.array([ids[table[stem]] for stem in stems], np.int32),
    )
    return forms.Listing("flat", store, files, wnids), part


def read_labels(path: str) -> dict[str, str]:
    """Reads the WordNet id of each validation image, by its name without the ending."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: labels must be a text file: {error}") from error
    if lines and lines[0].startswith("ImageId,"):  # Of Kaggle's LOC_val_solution.csv.
        lines = lines[1:]
    rows = [_ROW.match(line) for line in lines]
    wnids, known, table = wordnet.wnids(), frozenset(wordnet.wnids()), {}
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
    if not all(row[1] for row in rows) and len(table) != COUNTS["val"]:
        raise ValueError(
            f"{path}: without names there must be {COUNTS['val']:,} lines, got"
            f" {len(lines):,}"
        )
    return table


SPEC = spec.Spec(
    make,
    splits=tuple(COUNTS),
    cite=CITE,
    licence=LICENCE,
    about=(
        "1,000 WordNet classes, train 1,281,167, val 50,000:"
        " <root>/{train,val}/<wnid>/*.JPEG, or shards as of `folder`"
    ),
    size="155 GB packed",
    where="https://image-net.org/download-images after registration",
)
