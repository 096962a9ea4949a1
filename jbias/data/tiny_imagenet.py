"""Tiny ImageNet, in the layout in which it is published: 200 classes, 64 pixels.

<root>/wnids.txt, <root>/train/<wnid>/images/*.JPEG, <root>/val/images/*.JPEG with
<root>/val/val_annotations.txt. The published test split has no labels.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from jbias.data import folder, listing, sources, spec, stores, transforms
from jbias.foreign import opening

CITE = (
    "Le and Yang: Tiny ImageNet Visual Recognition Challenge. Stanford CS231N, 2015;"
    " images from ImageNet, https://doi.org/10.1007/s11263-015-0816-y"
)
COUNTS: Mapping[str, int] = MappingProxyType({"train": 100_000, "val": 10_000})


def make(
    split: str,
    *,
    root: str,
    size: int = 64,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists "train", "val", or a part of one such as "train[:90%]"."""
    where = f"data.tiny_imagenet {split}"
    path, part = folder.find(where, root, split)
    wnids = _lines(where, os.path.join(os.path.expanduser(root), "wnids.txt"))
    classes = tuple(sorted(wnids))
    read = _train if part.base == "train" else _val
    files = read(where, path, classes, ignore)
    return folder.build(
        where,
        part,
        store=stores.Files(path, files.names),
        files=files,
        name=f"tiny_imagenet/{split}",
        classes=classes,
        space="wnid",
        transform=transforms.preprocess(size, resize, crop, native=True),
        published=COUNTS.get(part.base),
        cite=CITE,
    )


def _train(where, path, classes, ignore) -> listing.Files:
    listing.match_classes(where, listing.class_folders(where, path), classes)
    return listing.scan(where, path, {c: f"{c}/images" for c in classes}, ignore)


def _val(where, path, classes, ignore) -> listing.Files:
    """Lists val/images, with labels from val_annotations.txt."""
    files = listing.scan(where, path, {"val": "images"}, ignore)
    table = os.path.join(path, "val_annotations.txt")
    rows = dict(_row(table, i, row, classes) for i, row in _numbered(where, table))
    for names, others, what in (
        (files.names, rows, "have a line in val_annotations.txt"),
        (rows, set(files.names), "exist in val/images"),
    ):
        lost = [name for name in names if name not in others]
        if lost:
            raise ValueError(
                f"{where}: every validation image must {what}, {len(lost)} do not,"
                f" first {lost[0]!r}; unpack the archive again"
            )
    ids = {name: label for label, name in enumerate(classes)}
    found = np.array([ids[rows[name]] for name in files.names], np.int32)
    return files._replace(labels=found).take(np.argsort(found, kind="stable"))


def _numbered(where, path) -> list[tuple[int, str]]:
    return list(enumerate(_lines(where, path), start=1))


def _row(table: str, number: int, line: str, classes) -> tuple[str, str]:
    cells = line.split("\t")
    if len(cells) < 2 or cells[1] not in classes:
        raise ValueError(
            f"{table}:{number}: a line must read <file> tab <wnid of wnids.txt> ...,"
            f" got {line!r}"
        )
    return f"images/{cells[0]}", cells[1]


def _lines(where: str, path: str) -> list[str]:
    try:
        with opening.text(path) as file:
            return [line for line in file.read().splitlines() if line.strip()]
    except FileNotFoundError:
        raise spec.Missing(
            f"{where}: the published layout must be whole, {path!r} is missing; unpack"
            " the archive again, or use data set 'folder' with space='wnid'"
        ) from None


SPEC = spec.Spec(
    make,
    splits=tuple(COUNTS),
    cite=CITE,
    licence="ImageNet's terms of access: non-commercial research and education",
    about=(
        "200 WordNet classes at 64 pixels, train 100,000, val 10,000:"
        " <root>/{wnids.txt,train/<wnid>/images,val/images,val/val_annotations.txt}"
    ),
    size="0.25 GB packed",
    where="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
)
