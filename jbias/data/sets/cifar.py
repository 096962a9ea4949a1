"""Readers of CIFAR-10, CIFAR-100, the corrupted CIFAR-10-C and CIFAR-100-C, and CIFAR-10.1.

CIFAR is read from its published archives or as folders and shards. The "python" and the
"binary" archive can be read after unpacking: <root>/cifar-10-batches-py,
<root>/cifar-10-batches-bin, <root>/cifar-100-python, <root>/cifar-100-binary, or one of the
four folders as root.

CIFAR-10-C, CIFAR-100-C and CIFAR-10.1 are read from the arrays that their authors publish:
<root>/[CIFAR-10-C/]{<corruption>,labels}.npy: 50,000 images for each corruption, of which
severity s has rows 10,000 (s - 1) to 10,000 s; a split is "fog/3".
<root>/[datasets/]cifar10.1_{v4,v6}_{data,labels}.npy; a split is "v4" or "v6".

Sources: hendrycks/robustness at 8190fe3, modestyachts/CIFAR-10.1 at d9982ab.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from jbias.data import base, corruptions, sets, sources, tables
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets import arrays
from jbias.data.sets.split_files import SplitFiles
from jbias.untrusted import opening


def read(files: SplitFiles) -> base.Source:
    """Return the source of "train", "test" or a part such as "train[:90%]".

    base.Missing, a ValueError, if an archive is incomplete, or if there are no archives,
    no folders and no shards. ValueError for files with unexpected contents.
    """
    where, root = files.where, files.root
    archive = tables.read("cifar")[files.name]
    names = archive["files"][files.part.base]
    for form, ending, unpack in (
        ("python", "", _read_python),
        ("binary", ".bin", _read_binary),
    ):
        for path in (os.path.join(root, archive[form]), root):
            batches = [os.path.join(path, f"{name}{ending}") for name in names]
            missing = [file for file in batches if not os.path.isfile(file)]
            if not missing:
                content = unpack(where, path, batches=batches, archive=archive)
                return files.build_arrays(
                    content.images,
                    labels=content.labels,
                    classes=content.classes,
                )
            if len(missing) < len(batches):
                problem = f"{missing[0]} is missing; unpack the archive again"
                raise base.Missing(f"{where}: {problem}")
    images = files.find()  # In class folders or shards.
    k = sets.DATASETS[files.name].classes
    if not images.classes or len(images.classes) != k:
        must = f"{where}: must have {k} classes, got {len(images.classes or ())}"
        raise ValueError(f"{must}; unpack the published archive below {root!r}")
    return files.build(images)


class _Content(NamedTuple):
    """The images, labels and class names of an archive."""

    images: UInt8[np.ndarray, "n 32 32 3"]
    labels: np.ndarray
    classes: list[str]


def _read_python(
    where: str, path: str, *, batches: Names, archive: Mapping[str, Any]
) -> _Content:
    """Return the content of the "python" archive: pickled batches.

    path: folder of the archive. batches: paths of the batches. archive: the data set's entry in
    tables/cifar.json. where: start of error messages. ValueError for files with unexpected
    contents.
    """
    contents = [_unpickled(file) for file in batches]
    meta_file, names_key, _ = archive["meta"]
    with base.explain_errors(
        f"{where}: {batches[0]} must be of the published archive, got ",
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        reason=repr,
        remedy="; unpack it again",
    ):
        pixels = np.concatenate([batch[b"data"] for batch in contents])
        label_key = archive["label"].encode()
        labels = [np.array(batch[label_key], np.int64) for batch in contents]
        names = _unpickled(os.path.join(path, meta_file))[names_key.encode()]
        # A damaged file could repeat a long name a million times.
        if len(names) > 1000 or len({*names}) < len(names):
            raise ValueError("a class name twice, or over 1,000 of them")
        names = [name.decode() for name in names]
    return _Content(_to_images(where, pixels), np.concatenate(labels), names)


def _read_binary(
    where: str, path: str, *, batches: Names, archive: Mapping[str, Any]
) -> _Content:
    """Return the content of the "binary" archive: rows of labels, then pixels.

    Arguments: see `_read_python`. ValueError for a file of a wrong length.
    """
    num_labels = archive["labels"]  # Bytes before the pixels; the last is the label.
    row_bytes = num_labels + 3072
    contents = [np.fromfile(file, np.uint8) for file in batches]
    for file, batch in zip(batches, contents):
        if len(batch) % row_bytes or not len(batch):
            must = f"must be rows of {row_bytes} bytes"
            raise ValueError(f"{file}: {must}; unpack the archive again")
    rows = np.concatenate(contents).reshape(-1, row_bytes)
    names_path = os.path.join(path, archive["meta"][2])
    names = listing.text_lines(names_path, f"{where}: class names must be text: ")
    images = _to_images(where, rows[:, num_labels:])
    return _Content(images, rows[:, num_labels - 1].astype(np.int32), names)


def _to_images(where: str, pixels: np.ndarray) -> UInt8[np.ndarray, "n 32 32 3"]:
    """Return images from rows of red, green and blue planes.

    pixels: bytes (n, 3072); ValueError for rows of a wrong length.
    where: start of error messages.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        got = f"{pixels.dtype} {pixels.shape}"
        raise ValueError(f"{where}: rows must be 3072 bytes, got {got}")
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _unpickled(path: str) -> dict[bytes, Any]:
    """Return the dictionary in a pickle file of the archive; ValueError if the file is invalid."""
    must = f"{path}: must be of the published archive: "
    with base.explain_errors(must, reason=lambda error: base.one_line(error)[:600]):
        return arrays.load_pickle(path)


def read_arrays(files: SplitFiles) -> sources.ArraySource:
    """Return the source of CIFAR-10.1 ("v6", balanced, or "v4") or of a corrupted set.

    A split of the corrupted sets is a corruption and a severity, "fog/3". base.Missing, a
    ValueError, without the files; ValueError if images and labels do not fit together.
    """
    where, root = files.where, files.root
    row = tables.read("cifar")[files.name]
    stem, _, severity = files.part.base.partition("/")
    if severity:
        images_file, labels_file = f"{stem}.npy", "labels.npy"
    else:
        images_file, labels_file = (
            f"cifar10.1_{stem}_data.npy",
            f"cifar10.1_{stem}_labels.npy",
        )
    path = root
    if not os.path.isfile(os.path.join(root, images_file)):
        inner = os.path.join(root, row["folder"])
        path = inner if os.path.isfile(os.path.join(inner, images_file)) else root
    images = _open(where, os.path.join(path, images_file))
    labels = _open(where, os.path.join(path, labels_file))
    if labels.shape != images.shape[:1]:
        must = f"{where}: every image must have a label, got images {images.shape}"
        raise ValueError(f"{must} and labels {labels.shape}; fetch both again")
    rows = slice(None)
    if severity:
        n, remainder = divmod(len(images), len(corruptions.SEVERITIES))
        if remainder:
            must = f"{stem}.npy must have as many images of each of the five severities"
            got = f"got {len(images):,} in all; fetch it again"
            raise ValueError(f"{where}: {must}, {got}")
        rows = slice((int(severity) - 1) * n, int(severity) * n)
    return files.build_arrays(
        np.array(images[rows]),
        labels=labels[rows],
        classes=tables.class_names(row["classes"]),
    )


def _open(where: str, path: str) -> np.ndarray:
    """Return the memory-mapped array of an .npy file; base.Missing if there is no such file.

    where: start of error messages. ValueError for a damaged file.
    """
    if not os.path.exists(path):
        raise base.Missing(f"{where}: needs {path!r}, which is not there")
    must = f"{path}: must be a whole .npy file: "
    with base.explain_errors(must, remedy="; fetch it again"):
        path = opening.require_regular(path)
        return np.load(path, mmap_mode="r", allow_pickle=False)
