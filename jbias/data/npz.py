"""A set of the user's own as NumPy arrays: <root>/<split>.npz."""

import dataclasses
import os

import numpy as np

from jbias.data import arrays, folder, listing, sources, spec, transforms
from jbias.foreign import array_files, limits

CITE = "arrays of the user's own: cite their authors"


def make(
    split: str,
    *,
    root: str,
    size: int = 32,
    resize: int | None = None,
    crop: bool = True,
) -> sources.ArraySource:
    """Reads "images", "labels", "classes" (names; numbers without), further columns."""
    name = f"{os.path.basename(os.path.abspath(root))}/{split}"
    where = f"data.npz {name}"
    part = listing.parse_split(where, split)
    root = listing.existing(where, os.path.expanduser(root), "root")
    path = os.path.join(root, f"{part.base}.npz")
    try:
        held = array_files.read(path)
    except ValueError as error:
        raise ValueError(f"{where}: {path!r} must be an .npz file: {error}") from error
    for key in ("images", "labels"):
        if key not in held:
            raise ValueError(f"{where}: {path!r} must have {key!r}, got {[*held]}")
    images, labels = held.pop("images"), held.pop("labels")
    whole = np.issubdtype(labels.dtype, np.integer)
    k = int(limits.labels(where, labels).max(initial=-1)) + 1 if whole else 0
    classes = held.pop("classes", np.arange(k)).astype(str).ravel()
    for key, column in held.items():
        if column.shape != labels.shape or not np.issubdtype(column.dtype, np.integer):
            raise ValueError(
                f"{where}: {key!r} must be whole numbers {labels.shape}, got"
                f" {column.dtype} {column.shape}; leave it out"
            )
    source = arrays.build(
        where,
        part,
        images,
        labels,
        classes=tuple(classes.tolist()),
        transform=transforms.preprocess(size, resize, crop, native=True),
        columns={key: column.astype(np.int32) for key, column in held.items()},
        name=name,
        space="names",
        measures=("accuracy",),
        cite=CITE,
    )
    note = os.path.join(root, f"{part.base}.json")
    return dataclasses.replace(source, **folder.made_by(note))


SPEC = spec.Spec(
    make,
    splits=(),
    cite=CITE,
    licence="that of the images",
    about=(
        "arrays in <root>/<split>.npz: images uint8 (n, h, w) or (n, h, w, 3), labels"
        " (n), perhaps classes (k) and further whole numbers (n)"
    ),
)
