"""Readers of MNIST and Fashion-MNIST in published IDX files, packed (.gz) or not; stacked MNIST.

"stacked" is the simplicity-bias experiment: a digit above a photograph, each of which alone
determines the class. Source: Marcu and Prügel-Bennett, ICML 2022, https://arxiv.org/abs/2110.13968,
after Shah et al., "The Pitfalls of Simplicity Bias", NeurIPS 2020,
https://arxiv.org/abs/2006.07710.
"""

import gzip
import hashlib
import os
import struct
import zlib
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8

from jbias import errors
from jbias.data import base, loader, sets, sources, tables
from jbias.data.base import Column
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles
from jbias.untrusted import limits, opening

_STEMS = {"train": "train", "test": "t10k"}
_UBYTE = 8  # Code of unsigned bytes in an IDX header.


def read(files: SplitFiles, *, pad: int = 0) -> sources.ArraySource:
    """Return the source of "train", "test" or a part such as "train[:90%]".

    pad: number of black pixels added on each side before other preprocessing; 2 makes 32 pixels
    without resizing. The files of MNIST and Fashion-MNIST have the same names.
    base.Missing, a ValueError, without the files.
    """
    where, root, stem = files.where, files.root, _STEMS[files.part.base]
    images = read_idx(_path(where, root, f"{stem}-images-idx3-ubyte"))
    labels = read_idx(_path(where, root, f"{stem}-labels-idx1-ubyte"))
    errors.check_whole(where, pad, low=0, name="pad")
    if pad:
        images = np.pad(images, ((0, 0), (pad, pad), (pad, pad)))
    return files.build_arrays(
        images,
        labels=labels,
        classes=tables.class_names(files.name),
        steps_before=f"padded by {pad} pixels; " if pad else "",
    )


def _path(where: str, root: str, stem: str) -> str:
    """Return the path of a published file, packed or not; base.Missing if it does not exist.

    stem: name of the file without ".gz". Some copies have a dot before "idx".
    where: start of error messages.
    """
    for name in (stem, stem.replace("-idx", ".idx")):
        for path in (os.path.join(root, name), os.path.join(root, f"{name}.gz")):
            if os.path.isfile(path):
                return path
    must = f"{where}: needs the file {stem} or {stem}.gz in {root!r}, got none"
    raise base.Missing(f"{must}; take the published files as they are")


def read_idx(path: str) -> UInt8[np.ndarray, "n ..."]:
    """Return the array of an IDX file of bytes; ValueError if it is not IDX or is cut off.

    The file is unpacked if `path` ends in ".gz".
    """
    with base.explain_errors(
        f"{path}: must be a whole IDX file: ",
        OSError,
        ValueError,
        EOFError,
        zlib.error,
        struct.error,
    ):
        with opening.open_binary(path) as raw:
            file = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            size = os.path.getsize(path)
            data = file.read(limits.max_unpacked(size) + 1)
            limits.check_growth(size, len(data))
        zero, dtype_code, num_axes = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{num_axes}I", data[4 : 4 + 4 * num_axes])
    expected = int(np.prod(shape, dtype=np.int64))
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * num_axes)
    if zero or dtype_code != _UBYTE or len(values) != expected:
        must = f"{path}: must be an IDX file of {expected} bytes after its header"
        got = f"got {len(values)} of kind {dtype_code}"
        raise ValueError(f"{must}, {got}; download it again")
    return values.reshape(shape)


HALVES = ("cifar10", "mnist")


def stacked(
    split: str,
    *,
    root: str,
    digits: str,
    size: int = 32,
    answer: Literal["cifar10", "mnist"] = "cifar10",
    seed: int = 0,
) -> sources.ArraySource:
    """Return the source of MNIST's digits, padded to 32 pixels, above CIFAR-10's images.

    Images are twice as high as wide. Digit k belongs to CIFAR's class k. In "train" the two
    halves are of one class, paired by `seed` (training draws new pairs each epoch, by `pair` of
    the config's second set). In "test" pairs ignore classes, so that the two halves are of one
    class in about a tenth of the images.

    root: the folder of CIFAR-10. digits: the folder of MNIST. size: side of each half in
    pixels. answer: "cifar10" or "mnist", the half whose class is the label; the class of the
    other half is the column "texture". ValueError for an unknown `answer` and a negative seed.
    """
    where = f"data.stacked {split}"
    errors.check_choice(where, answer, HALVES, name="answer")
    errors.check_whole(where, seed, low=0, name="seed")
    below = sets.DATASETS["cifar10"].open(split, root=root, size=size)
    above = sets.DATASETS["mnist"].open(split, root=digits, size=size, pad=2)
    objects, numbers = below.columns["label"], above.columns["label"]
    rng = np.random.default_rng((seed, len(objects), len(numbers)))
    if listing.parse_split(where, split).base == "train":
        partners = _draw_same_class(rng, objects, numbers)
    else:
        partners = _draw(rng, len(objects), np.arange(len(numbers)))
    images = [above.images[partners], loader.decode_all(below, workers=1)]
    classes = {"cifar10": objects, "mnist": numbers[partners]}
    other = next(name for name in HALVES if name != answer)
    words = f"{below.fingerprint} under {above.fingerprint}, asked {answer}: "
    return sources.ArraySource(
        name=f"stacked/{split}",
        images=np.concatenate(images, 1),
        classes=below.classes,
        columns={"label": classes[answer], "texture": classes[other]},
        preprocessing=f"{below.preprocessing}; above it {above.preprocessing}",
        fingerprint=hashlib.sha256(words.encode() + partners.tobytes()).hexdigest(),
        note="; ".join(filter(None, (below.note, above.note))),
        measures=("accuracy", "halves"),
        cite=sets.DATASETS["stacked"].cite,
    )


def _draw_same_class(
    rng: np.random.Generator, first: Column, second: Column
) -> Int[np.ndarray, "n"]:
    """Return the index of a random equal label in `second` for each label in `first`.

    No index repeats before all indices of that label have been used.
    """
    partners = np.empty(len(first), np.int64)
    for label in np.unique(first):
        index = np.flatnonzero(first == label)
        partners[index] = _draw(rng, len(index), np.flatnonzero(second == label))
    return partners


def _draw(
    rng: np.random.Generator, count: int, members: Int[np.ndarray, "m"]
) -> Int[np.ndarray, "count"]:
    """Return `count` random entries of `members`; no entry repeats before all are used."""
    order = rng.permutation(members)
    return order[np.arange(count) % len(order)]
