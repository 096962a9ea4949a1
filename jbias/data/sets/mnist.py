"""MNIST and Fashion-MNIST, from their published IDX files, packed (.gz) or not; stacked MNIST.

"stacked" is the simplicity-bias experiment: a digit above a photograph, each of which alone
tells the class. Source: Marcu and Prügel-Bennett, ICML 2022, https://arxiv.org/abs/2110.13968,
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

from jbias.data import base, loader, sources, tables
from jbias.data.forms import listing
from jbias.data.sets import arrays, cifar, folder
from jbias.untrusted import limits, opening

_STEMS = {"train": "train", "test": "t10k"}
_UBYTE = 8  # The code of bytes in an IDX header.


def read(request: folder.Request, *, pad: int = 0) -> sources.ArraySource:
    """Reads "train", "test" or a part such as "train[:90%]".

    `pad` black pixels are put on each side first: 2 make 32, without resizing. Files of
    MNIST and Fashion-MNIST have the same names.
    """
    where, stem = request.where, _STEMS[request.part.base]
    names = (f"{stem}-{kind}" for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    images, labels = (read_idx(_path(where, request.root, name)) for name in names)
    base.check_int(f"{where}: pad", pad, 0)
    if pad:
        images = np.pad(images, ((0, 0), (pad, pad), (pad, pad)))
    before = f"padded by {pad} pixels; " if pad else ""
    classes = tables.class_names(request.name)
    return arrays.build(request, images, labels, classes, before=before)


def _path(where: str, root: str, stem: str) -> str:
    """The file of that name, packed or not; some copies have a dot before idx."""
    for name in (stem, stem.replace("-idx", ".idx")):
        for path in (os.path.join(root, name), os.path.join(root, f"{name}.gz")):
            if os.path.isfile(path):
                return path
    must = f"{where}: needs the file {stem} or {stem}.gz in {root!r}, got none"
    raise base.Missing(f"{must}; take the published files as they are")


def read_idx(path: str) -> UInt8[np.ndarray, "n ..."]:
    """Reads an IDX file of bytes; ValueError where it is none, or cut off."""
    kinds = OSError, ValueError, EOFError, zlib.error, struct.error
    with base.explain_errors(f"{path}: must be a whole IDX file: ", *kinds):
        with opening.binary(path) as raw:
            file = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            size = os.path.getsize(path)
            data = file.read(limits.max_unpacked(size) + 1)
            limits.check_growth(size, len(data))
        zero, kind, axes = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    expected = int(np.prod(shape, dtype=np.int64))
    found = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
    if zero or kind != _UBYTE or len(found) != expected:
        must = f"{path}: must be an IDX file of {expected} bytes after its header"
        raise ValueError(f"{must}, got {len(found)} of kind {kind}; download it again")
    return found.reshape(shape)


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
    """Puts MNIST's digits, of 28 pixels padded to 32, above the images of CIFAR-10.

    Images are twice as high as wide. root: the folder of CIFAR-10; digits: that of MNIST.
    Digit k is of CIFAR's class k. In "train" both halves are of one class, their partners
    drawn by `seed` (training draws new ones each epoch, by `pair` of a config's second
    set); in "test" they are drawn without regard to classes, so that a tenth agrees.

    answer: the half whose class is the label; that of the other half is the column
    "texture", as the cue beside it.
    """
    where = f"data.stacked {split}"
    base.check_choice(f"{where}: answer", answer, HALVES)
    below = cifar.read(folder.request("cifar10", split, root=root, size=size))
    above = read(folder.request("mnist", split, root=digits, size=size), pad=2)
    objects, numbers = below.columns["label"], above.columns["label"]
    rng = np.random.default_rng((seed, len(objects), len(numbers)))
    same = listing.parse_split(where, split).base == "train"
    every = np.arange(len(numbers))
    chosen = _paired(rng, objects, numbers) if same else _any(rng, len(objects), every)
    images = [above.images[chosen], loader.decode_all(below, workers=1)]
    classes = {"cifar10": objects, "mnist": numbers[chosen]}
    other = next(name for name in HALVES if name != answer)
    held = f"{below.fingerprint} under {above.fingerprint}, asked {answer}: "
    about = dict(name=f"stacked/{split}", classes=below.classes)
    about["columns"] = {"label": classes[answer], "texture": classes[other]}
    about["preprocessing"] = f"{below.preprocessing}; above it {above.preprocessing}"
    about["fingerprint"] = hashlib.sha256(held.encode() + chosen.tobytes()).hexdigest()
    about["note"] = "; ".join(filter(None, (below.note, above.note)))
    about |= dict(measures=("accuracy", "halves"), cite=tables.cite("stacked"))
    return sources.ArraySource(images=np.concatenate(images, 1), **about)


def _paired(rng, first, second) -> Int[np.ndarray, "n"]:
    """For each of the first a member of the second of its class, at random."""
    chosen = np.empty(len(first), np.int64)
    for label in np.unique(first):
        places = np.flatnonzero(first == label)
        chosen[places] = _any(rng, len(places), np.flatnonzero(second == label))
    return chosen


def _any(rng, count, members) -> Int[np.ndarray, "count"]:
    """So many of the members: none twice, unless they are fewer."""
    order = rng.permutation(members)
    return order[np.arange(count) % len(order)]
