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

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jbias.data import base, corruptions, sources, tables
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets import arrays, folder
from jbias.untrusted import opening


def read(request: folder.Request) -> base.Source:
    """Reads "train", "test" or a part such as "train[:90%]"."""
    where, root = request.where, request.root
    archive = tables.read("cifar")[request.name]
    names = archive["files"][request.part.base]
    for form, ending, unpack in (("python", "", _python), ("binary", ".bin", _binary)):
        for place in (os.path.join(root, archive[form]), root):
            files = [os.path.join(place, f"{name}{ending}") for name in names]
            lost = [file for file in files if not os.path.isfile(file)]
            if not lost:
                return arrays.build(request, *unpack(where, place, files, archive))
            if len(lost) < len(files):
                what = f"{lost[0]} is missing; unpack the archive again"
                raise base.Missing(f"{where}: {what}")
    found = folder.find_split(request)  # By class, or in shards.
    k = tables.data_sets()[request.name]["classes"]
    if not found.classes or len(found.classes) != k:
        must = f"{where}: must have {k} classes, got {len(found.classes or ())}"
        raise ValueError(f"{must}; unpack the published archive below {root!r}")
    return folder.build(request, found)


def _python(where: str, place: str, files: Names, archive: Mapping[str, Any]):
    held, (file, key, _) = [_unpickled(path) for path in files], archive["meta"]
    kinds = KeyError, ValueError, TypeError, AttributeError, OverflowError
    must = f"{where}: {files[0]} must be of the published archive, got "
    with base.explain_errors(must, *kinds, reason=repr, remedy="; unpack it again"):
        pixels = np.concatenate([one[b"data"] for one in held])
        labels = [np.array(one[archive["label"].encode()], np.int64) for one in held]
        names = _unpickled(os.path.join(place, file))[key.encode()]
        # One long name could stand in it a million times; numbers could collide.
        if len(names) > 1000 or len({*names}) < len(names):
            raise ValueError("a class name twice, or over 1,000 of them")
        names = [name.decode() for name in names]
    return _images(where, pixels), np.concatenate(labels), names


def _binary(where: str, place: str, files: Names, archive: Mapping[str, Any]):
    before = archive["labels"]
    row, data = before + 3072, [np.fromfile(path, np.uint8) for path in files]
    for path, one in zip(files, data):
        if len(one) % row or not len(one):
            what = f"must be rows of {row} bytes; unpack the archive again"
            raise ValueError(f"{path}: {what}")
    rows = np.concatenate(data).reshape(-1, row)
    path = os.path.join(place, archive["meta"][2])
    names = listing.text_lines(path, f"{where}: class names must be text: ")
    return _images(where, rows[:, before:]), rows[:, before - 1].astype(np.int32), names


def _images(where: str, pixels: np.ndarray) -> UInt8[np.ndarray, "n 32 32 3"]:
    """Rows of red, green and blue planes to images."""
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        got = f"{pixels.dtype} {pixels.shape}"
        raise ValueError(f"{where}: rows must be 3072 bytes, got {got}")
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _unpickled(path: str) -> dict[bytes, Any]:
    must = f"{path}: must be of the published archive: "
    with base.explain_errors(must, reason=lambda error: base.one_line(error)[:600]):
        return arrays.load_pickle(path)


def read_arrays(request: folder.Request) -> sources.ArraySource:
    """Reads a split: of CIFAR-10.1 "v6", with balanced classes, or "v4"; of the
    corrupted sets one corruption and severity, "fog/3".
    """
    where, root = request.where, request.root
    known = tables.read("cifar")[request.name]
    stem, _, severity = request.part.base.partition("/")
    names = [f"cifar10.1_{stem}_{what}.npy" for what in ("data", "labels")]
    if severity:
        names = [f"{stem}.npy", "labels.npy"]
    places = root, os.path.join(root, known["folder"])
    there = [one for one in places if os.path.isfile(os.path.join(one, names[0]))]
    place = [*there, root][0]
    images, labels = (_open(where, os.path.join(place, name)) for name in names)
    if labels.shape != images.shape[:1]:
        must = f"{where}: every image must have a label, got images {images.shape}"
        raise ValueError(f"{must} and labels {labels.shape}; fetch both again")
    rows = slice(None)
    if severity:
        n, rest = divmod(len(images), len(corruptions.SEVERITIES))
        if rest:
            must = f"{stem}.npy must have as many images of each of the five severities"
            got = f"got {len(images):,} in all; fetch it again"
            raise ValueError(f"{where}: {must}, {got}")
        rows = slice((int(severity) - 1) * n, int(severity) * n)
    classes = tables.class_names(known["classes"])
    return arrays.build(request, np.array(images[rows]), labels[rows], classes)


def _open(where: str, path: str) -> np.ndarray:
    """Opens an array without reading it all."""
    if not os.path.exists(path):
        raise base.Missing(f"{where}: needs {path!r}, which is not there")
    what = f"{path}: must be a whole .npy file: "
    with base.explain_errors(what, remedy="; fetch it again"):
        path = opening.require_regular(path)
        return np.load(path, mmap_mode="r", allow_pickle=False)
