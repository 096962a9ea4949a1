"""CIFAR-10 and CIFAR-100, from their published archives, or as folders and shards.

Both the "python" and the "binary" archive are read, unpacked: <root>/cifar-10-batches-py,
<root>/cifar-10-batches-bin, <root>/cifar-100-python, <root>/cifar-100-binary, or these
folders themselves as root.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from jbias.data import (
    array_pickles,
    arrays,
    folder,
    forms,
    listing,
    sources,
    spec,
    transforms,
)
from jbias.foreign import opening

CITE = (
    "Krizhevsky: Learning Multiple Layers of Features from Tiny Images. 2009,"
    " https://www.cs.toronto.edu/~kriz/cifar.html"
)
COUNTS: Mapping[str, int] = MappingProxyType({"train": 50_000, "test": 10_000})
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))


class _Archive(NamedTuple):
    """Where a set's arrays lie: folders, files of each split, meta file and keys."""

    python: str
    binary: str
    files: Mapping[str, Sequence[str]]
    meta: tuple[str, str, str]  # Of python: file and key; of binary: file.
    label: str
    labels: int  # Bytes before the pixels, of which the last is the label.


_TEN = _Archive(
    python="cifar-10-batches-py",
    binary="cifar-10-batches-bin",
    files=MappingProxyType({"train": _BATCHES, "test": ("test_batch",)}),
    meta=("batches.meta", "label_names", "batches.meta.txt"),
    label="labels",
    labels=1,
)
_HUNDRED = _Archive(
    python="cifar-100-python",
    binary="cifar-100-binary",
    files=MappingProxyType({"train": ("train",), "test": ("test",)}),
    meta=("meta", "fine_label_names", "fine_label_names.txt"),
    label="fine_labels",
    labels=2,
)


def make(
    split: str, *, root: str, size: int = 32, resize: int | None = None
) -> spec.Source:
    """Reads CIFAR-10, "train", "test" or a part such as "train[:90%]"."""
    return _make("cifar10", split, root, size, resize, _TEN, 10)


def hundred(
    split: str, *, root: str, size: int = 32, resize: int | None = None
) -> spec.Source:
    """Reads CIFAR-100, by its fine labels."""
    return _make("cifar100", split, root, size, resize, _HUNDRED, 100)


def _make(name, split, root, size, resize, archive: _Archive, k: int) -> spec.Source:
    where = f"data.{name} {split}"
    part = listing.parse_split(where, split)
    root = listing.existing(where, os.path.expanduser(root), "root")
    attributes = dict(
        transform=transforms.preprocess(size, resize, native=True),
        published=COUNTS[part.base],
        name=f"{name}/{split}",
        space="names",
        measures=("accuracy",),
        cite=CITE,
    )
    for below, read in ((archive.python, _python), (archive.binary, _binary)):
        for place in (os.path.join(root, below), root):
            ending = ".bin" if read is _binary else ""
            files = [
                os.path.join(place, f"{f}{ending}") for f in archive.files[part.base]
            ]
            if all(map(os.path.isfile, files)):
                images, labels, classes = read(where, place, files, archive)
                return arrays.build(
                    where, part, images, labels, classes=classes, **attributes
                )
            if any(map(os.path.isfile, files)):
                lost = next(file for file in files if not os.path.isfile(file))
                raise spec.Missing(
                    f"{where}: {lost} is missing; unpack the archive again"
                )
    return _encoded(where, root, split, k, attributes)


def _encoded(where, root, split, k, attributes) -> sources.EncodedSource:
    """The images as files by class, or in shards."""
    found, part = forms.find(where, root, split)
    if not found.classes or len(found.classes) != k:
        raise ValueError(
            f"{where}: must have {k} classes, got {len(found.classes or ())} in a"
            f" {found.form}; unpack the published archive below {root!r}"
        )
    return folder.build(
        where,
        part,
        store=found.store,
        files=found.files,
        classes=found.classes,
        **attributes,
    )


def _python(where, place, files, archive: _Archive):
    held = [_unpickled(path) for path in files]
    try:
        pixels = np.concatenate([one[b"data"] for one in held])
        key = archive.label.encode()
        labels = np.concatenate([np.array(one[key], np.int64) for one in held])
        file, key, _ = archive.meta
        names = _unpickled(os.path.join(place, file))[key.encode()]
        # One long name could stand in it a million times; numbers could collide.
        if len(names) > 1000 or len({*names}) < len(names):
            raise ValueError("a class name twice, or over 1,000 of them")
        names = [name.decode() for name in names]
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{where}: {files[0]} must be of the published archive, got {error!r};"
            " unpack it again"
        ) from error
    return _images(where, pixels), labels, names


def _binary(where, place, files, archive: _Archive):
    row = archive.labels + 3072
    data = [np.fromfile(path, np.uint8) for path in files]
    cut = next(
        (p for p, one in zip(files, data) if len(one) % row or not len(one)), None
    )
    if cut:
        raise ValueError(
            f"{cut}: must be rows of {row} bytes; unpack the archive again"
        )
    rows = np.concatenate(data).reshape(-1, row)
    with opening.text(os.path.join(place, archive.meta[2])) as file:
        names = [line.strip() for line in file if line.strip()]
    labels = rows[:, archive.labels - 1].astype(np.int32)
    return _images(where, rows[:, archive.labels :]), labels, names


def _images(where: str, pixels: np.ndarray) -> UInt8[np.ndarray, "n 32 32 3"]:
    """Rows of red, green and blue planes to images."""
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        raise ValueError(
            f"{where}: rows must be 3072 bytes, got {pixels.dtype} {pixels.shape}"
        )
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _unpickled(path: str) -> dict[bytes, Any]:
    try:
        return array_pickles.load(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: must be of the published archive: {reason[:600]}"
        ) from error


SPECS: Mapping[str, spec.Spec] = MappingProxyType(
    {
        "cifar10": spec.Spec(
            make,
            splits=tuple(COUNTS),
            cite=CITE,
            licence="none stated; for research",
            about=(
                "60,000 images of 32 pixels, 10 classes: <root>/cifar-10-batches-py/"
                "{data_batch_1..5,test_batch}, or -bin, or <root>/{train,test}/<class>/*"
            ),
            size="170 MB packed",
            where="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        "cifar100": spec.Spec(
            hundred,
            splits=tuple(COUNTS),
            cite=CITE,
            licence="none stated; for research",
            about=(
                "60,000 images of 32 pixels, 100 classes: <root>/cifar-100-python/"
                "{train,test}, or -binary, or <root>/{train,test}/<class>/*"
            ),
            size="169 MB packed",
            where="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
    }
)
