"""ReaL: all the right classes of each validation image of ImageNet, or none at all.

Source: Beyer, Hénaff, Kolesnikov, Zhai and van den Oord: Are we done with ImageNet?
2020, https://arxiv.org/abs/2006.07159; their file is real.json, a list of 50,000 lists
of positions in the WordNet order, one for each image by the number in its name.
"""

import dataclasses
import json
import os
import posixpath
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import folder, sources, spec, wordnet

CITE = (
    "Beyer, Hénaff, Kolesnikov, Zhai and van den Oord: Are we done with ImageNet? 2020,"
    " https://arxiv.org/abs/2006.07159; images from ImageNet,"
    " https://doi.org/10.1007/s11263-015-0816-y"
)
IMAGES = 50_000


def make(
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
    accepted = columns(f"data.{name}", real, found.files, found.classes)
    none = int((accepted["accepted_0"] < 0).sum())
    return dataclasses.replace(
        found,
        name=name,
        columns={**found.columns, **accepted},
        measures=("accuracy", "real_accuracy"),
        note=f"{none:,} images without a right class count for accuracy alone",
        cite=CITE,
    )


def read(path: str) -> dict[str, tuple[str, ...]]:
    """Reads the WordNet ids of each image, by its name without the ending.

    "ILSVRC2012_val_00000001" is the first. An image without a right class has ().
    """
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            held = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be the real.json of ReaL, got {error}; fetch it again"
        ) from error
    if not isinstance(held, list) or len(held) != IMAGES:
        size = f"{len(held):,}" if isinstance(held, list) else "no list"
        raise ValueError(
            f"{path}: must be a list of {IMAGES:,} lists, got {size}; take the"
            " real.json of google-research/reassessed-imagenet"
        )
    wnids = wordnet.wnids()
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


def columns(
    where: str, path: str, names: Sequence[str], classes: Sequence[str]
) -> dict[str, Int[np.ndarray, "n"]]:
    """Columns accepted_0, accepted_1, ...: the right classes of each file.

    Class ids of `classes`, -1 where an image has fewer. Refuses a file that ReaL does
    not know, and a right class that `classes` lack.
    """
    table = read(path)
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    strange = [name for name, stem in zip(names, stems) if stem not in table]
    if strange:
        raise ValueError(
            f"{where}: ReaL knows files named ILSVRC2012_val_00000001 to"
            f" {IMAGES:08}, got {len(strange)} others, first {strange[0]!r}; take the"
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


SPEC = spec.Spec(
    make,
    splits=(),
    cite=CITE,
    licence=(
        "labels Apache 2.0 (google-research/reassessed-imagenet); images ImageNet's"
        " terms of access: non-commercial research and education"
    ),
    about=(
        "validation images of ImageNet with all their right classes:"
        " <root>/<split>/<wnid>/ILSVRC2012_val_*.JPEG, and real=<...>/real.json"
    ),
    size="6.7 GB packed",
    where=(
        "https://image-net.org/download-images after registration, and real.json from"
        " https://github.com/google-research/reassessed-imagenet"
    ),
)
