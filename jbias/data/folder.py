"""Images by class, as ImageNet is laid out, <root>/<split>/<class>/*.jpg, or in shards.

A split is a folder, or shards of tar, Parquet or ArrayRecord (see forms.py), or a part
of every class in it: "train[:90%]" and "train[90%:]" are disjoint and together "train".
Which image falls where depends on its name alone.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import forms, labels, listing, sources, spec, stores, transforms

CITE = "a folder of the user's own: cite its authors"


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    space: str = "names",
    classes: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists <root>/<split>/<class>/**, or shards; labels follow the classes' names.

    `resize` and `crop` are those of transforms.preprocess. `space` says what the class
    names are: "names" of their own, WordNet ids ("wnid"), or Geirhos' 16 ("entry16").
    `classes` is a file with their names, a line each, for shards whose labels are
    numbers. `ignore` has patterns of files that are no images and may be passed over.
    """
    name = f"{os.path.basename(os.path.abspath(root))}/{split}"
    where = f"data.folder {name}"
    found, part = forms.find(where, root, split, ignore=ignore)
    names = named(where, found, classes)
    _check_space(where, names, space)
    source = build(
        where,
        part,
        store=found.store,
        files=found.files,
        name=name,
        classes=names,
        space=space,
        transform=transforms.preprocess(size, resize, crop),
        cite=CITE,
    )
    made = os.path.join(os.path.expanduser(root), part.base) + ".json"
    return dataclasses.replace(source, **made_by(made))


def named(where: str, found: forms.Listing, path: str) -> tuple[str, ...]:
    """Names the classes: the form's own, those of the file `path`, or numbers."""
    if found.form == "folder" or not path:
        k = int(found.files.labels.max()) + 1
        return found.classes or tuple(f"{i:0{len(str(k - 1))}d}" for i in range(k))
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            names = tuple(line.strip() for line in file if line.strip())
    except OSError as error:
        raise ValueError(
            f"{where}: classes must be a file of names: {error}"
        ) from error
    if found.files.labels.max() >= len(names):
        raise ValueError(
            f"{where}: {path} must have a line for each class, got {len(names)} for"
            f" labels up to {found.files.labels.max()}"
        )
    return names


def made_by(path: str) -> dict[str, str]:
    """Note and citation of images that a command of ours made and noted beside them."""
    if not os.path.isfile(path):
        return {}
    with open(path) as file:
        try:
            held = json.load(file)
        except (ValueError, RecursionError):  # Some file of the user's own.
            return {}
    if not isinstance(held, dict) or "made_by" not in held:
        return {}
    note = "made by {made_by} of {source}, {preprocessing}".format_map(held)
    return dict(note=note, cite=held["cite"])


def find(
    where: str, root: str, split: str, spellings: Sequence[str] = ()
) -> tuple[str, listing.Split]:
    """Finds the folder of a split: its name, or the first of `spellings` there is."""
    part = listing.parse_split(where, split)
    root = listing.existing(where, os.path.expanduser(root), "root")
    paths = [os.path.join(root, one) for one in (part.base, *spellings)]
    path = next(filter(os.path.isdir, paths), paths[0])
    return listing.existing(where, path, f"split {part.base!r}"), part


def build(
    where: str,
    part: listing.Split,
    *,
    store: stores.Store,
    files: listing.Files,
    classes: tuple[str, ...],
    extra: Mapping[str, Int[np.ndarray, "n"]] | None = None,
    published: int | None = None,
    measures: tuple[str, ...] = ("accuracy",),
    **attributes,
) -> sources.EncodedSource:
    """Makes a source of a part of the listed files.

    `extra` has further columns of all files. A whole set of another size than
    `published` is used as it is, and the source's note says so.
    """
    index = listing.part(where, files, classes, part)
    chosen = files.take(index)
    columns = {"label": chosen.labels}
    columns |= {name: column[index] for name, column in (extra or {}).items()}
    fingerprint = listing.digest(chosen, classes)
    if attributes.get("values"):  # A list of one's own may change, the files may not.
        fingerprint = listing.digest_with(fingerprint, columns, attributes["values"])
    n, note = len(files.names), ""
    if published not in (None, n):
        note = f"{n:,} images on disk, the published set has {published:,}"
    return sources.EncodedSource(
        store=store.take(index),
        classes=classes,
        columns=columns,
        measures=measures,
        fingerprint=fingerprint,
        note=note,
        **attributes,
    )


def _check_space(where: str, classes: Sequence[str], space: str) -> None:
    if space not in spec.SPACES:
        raise ValueError(
            f"{where}: space must be one of {', '.join(spec.SPACES)}, got {space!r}"
        )
    if space == "entry16":
        wrong = [name for name in classes if name not in labels.geirhos16()]
    else:
        wnid = re.compile(r"n\d{8}" if space == "wnid" else r".*")
        wrong = [name for name in classes if not wnid.fullmatch(name)]
    if wrong:
        raise ValueError(
            f"{where}: class folders must be of space {space!r}, got {wrong[0]!r};"
            " leave out space where classes have names of their own"
        )


SPEC = spec.Spec(
    make,
    splits=(),
    cite=CITE,
    licence="that of the images",
    about=(
        "any images by class: <root>/<split>/<class>/*.{jpg,png,...}, or shards"
        " <root>/*<split>*.{tar,parquet,array_record}"
    ),
)
