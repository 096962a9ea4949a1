"""CIFAR-10 and CIFAR-100, their corrupted versions CIFAR-10-C and CIFAR-100-C, and CIFAR-10.1.

CIFAR is read from its published archives or as folders and shards. Both the "python" and the
"binary" archive are read, unpacked: <root>/cifar-10-batches-py, <root>/cifar-10-batches-bin,
<root>/cifar-100-python, <root>/cifar-100-binary, or these folders themselves as root.

The others are read from the arrays that their authors publish:
<root>/[CIFAR-10-C/]{<corruption>,labels}.npy: 50,000 images for each corruption, of which
severity s has rows 10,000 (s - 1) to 10,000 s; a split is "fog/3".
<root>/[datasets/]cifar10.1_{v4,v6}_{data,labels}.npy; a split is "v4" or "v6".

Sources: hendrycks/robustness at 8190fe3, modestyachts/CIFAR-10.1 at d9982ab.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from jbias.data import base, corruptions, sources, tables
from jbias.data.sets import arrays, folder
from jbias.untrusted import opening

CORRUPTED_SPLITS = tuple(
    f"{name}/{level}"
    for name, level in itertools.product(
        corruptions.CORRUPTIONS, corruptions.SEVERITIES
    )
)


class _Archive(NamedTuple):
    """Where a set's arrays lie: folders, files of each split, meta file and keys."""

    python: str
    binary: str
    files: Mapping[str, Sequence[str]]
    meta: tuple[str, str, str]  # Of python: file and key; of binary: file.
    label: str
    labels: int  # Bytes before the pixels, of which the last is the label.


def _clean(name: str, k: int) -> Callable[..., base.Source]:
    """Makes the function that reads a set of k classes."""
    archive = _Archive(**tables.read("cifar")[name])

    def read(request: folder.Request) -> base.Source:
        """Reads "train", "test" or a part such as "train[:90%]"."""
        where, root = request.where, request.root
        for below, ending, unpack in (
            (archive.python, "", _python),
            (archive.binary, ".bin", _binary),
        ):
            for place in (os.path.join(root, below), root):
                names = archive.files[request.part.base]
                files = [os.path.join(place, f"{name}{ending}") for name in names]
                lost = [file for file in files if not os.path.isfile(file)]
                if not lost:
                    images, labels, classes = unpack(where, place, files, archive)
                    return arrays.build(request, images, labels, classes=classes)
                if len(lost) < len(files):
                    raise base.Missing(
                        f"{where}: {lost[0]} is missing; unpack the archive again"
                    )
        found = folder.find_split(request)  # By class, or in shards.
        if not found.classes or len(found.classes) != k:
            raise ValueError(
                f"{where}: must have {k} classes, got {len(found.classes or ())} in a"
                f" {found.form}; unpack the published archive below {root!r}"
            )
        return folder.build(request, found)

    return read


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
    with base.explained(
        f"{path}: must be of the published archive: ",
        *(OSError, ValueError),
        reason=lambda error: base.one_line(error)[:600],
    ):
        return arrays.load_pickle(path)


def _variant(clean: str, below: str) -> Callable[..., sources.ArraySource]:
    """Makes the function that reads arrays, in the folder `below`, of the classes of
    "cifar10" or "cifar100".
    """

    def read(request: folder.Request) -> sources.ArraySource:
        """Reads a split: of CIFAR-10.1 "v6", with balanced classes, or "v4"; of the
        corrupted sets one corruption and severity, "fog/3".
        """
        where = request.where
        stem, _, severity = request.part.base.partition("/")
        if severity:
            files = [f"{stem}.npy", "labels.npy"]
        else:
            files = [f"cifar10.1_{stem}_{what}.npy" for what in ("data", "labels")]
        images, labels = _read(where, request.root, below, files)
        rows = slice(None)
        if severity:
            n, rest = divmod(len(images), len(corruptions.SEVERITIES))
            if rest:
                raise ValueError(
                    f"{where}: {stem}.npy must have as many images of each of the five"
                    f" severities, got {len(images):,} in all; fetch it again"
                )
            rows = slice((int(severity) - 1) * n, int(severity) * n)
        classes = tables.class_names(clean)
        images = np.array(images[rows])
        return arrays.build(request, images, labels[rows], classes=classes)

    return read


def _read(where, root, below, names) -> tuple[np.ndarray, ...]:
    """Opens images and labels in <root> or <root>/<below>, without reading them all."""
    place = next(
        (
            place
            for place in (root, os.path.join(root, below))
            if os.path.isfile(os.path.join(place, names[0]))
        ),
        root,
    )
    found = []
    for name in names:
        path = os.path.join(place, name)
        try:
            path = opening.require_regular(path)
            found.append(np.load(path, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError as error:
            raise base.Missing(
                f"{where}: needs {path!r}, which is not there"
            ) from error
        except (OSError, ValueError, EOFError) as error:
            reason = base.one_line(error)
            raise ValueError(
                f"{path}: must be a whole .npy file: {reason}; fetch it again"
            ) from error
    images, labels = found
    if labels.shape != images.shape[:1]:
        raise ValueError(
            f"{where}: every image must have a label, got images {images.shape} and"
            f" labels {labels.shape}; fetch both again"
        )
    return images, labels


_STYLE = dict(size=32, native=True, squeezes=False)
SPECS: Mapping[str, base.Spec] = {
    name: folder.spec(name, _clean(name, k), **_STYLE)
    for name, k in {"cifar10": 10, "cifar100": 100}.items()
}
VARIANT_SPECS: Mapping[str, base.Spec] = {
    name: folder.spec(name, _variant(clean, below), splits, **_STYLE)
    for name, clean, below, splits in (
        ("cifar10_c", "cifar10", "CIFAR-10-C", CORRUPTED_SPLITS),
        ("cifar100_c", "cifar100", "CIFAR-100-C", CORRUPTED_SPLITS),
        ("cifar10_1", "cifar10", "datasets", ()),
    )
}
