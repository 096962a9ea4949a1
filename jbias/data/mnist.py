"""MNIST and Fashion-MNIST, from their published IDX files, packed (.gz) or not."""

import dataclasses
import gzip
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import UInt8

from jbias.data import arrays, base, folder, sources
from jbias.untrusted import limits, opening

DIGITS = tuple("0123456789")
GARMENTS = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
_STEMS = {"train": "train", "test": "t10k"}
_UBYTE = 8  # The code of bytes in an IDX header.


def _reader(classes: Sequence[str]) -> Callable[..., sources.ArraySource]:
    """Makes the function that reads one set; files of both have the same names."""

    def read(request: folder.Request, *, pad: int = 0) -> sources.ArraySource:
        """Reads "train", "test" or a part such as "train[:90%]".

        `pad` black pixels are put on each side first: 2 make 32, without resizing.
        """
        where, stem = request.where, _STEMS[request.part.base]
        images, labels = (
            read_idx(_path(where, request.root, f"{stem}-{kind}"))
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        if type(pad) is not int or pad < 0:
            raise ValueError(f"{where}: pad must be 0 pixels or more, got {pad!r}")
        if pad:
            images = np.pad(images, ((0, 0), (pad, pad), (pad, pad)))
        labels = labels.astype(np.int32)
        made = arrays.build(request, images, labels, classes=classes)
        words = f"padded by {pad} pixels; {made.preprocessing}"
        return dataclasses.replace(made, preprocessing=words) if pad else made

    return read


def _path(where: str, root: str, stem: str) -> str:
    """The file of that name, packed or not; some copies have a dot before idx."""
    for name in (stem, stem.replace("-idx", ".idx")):
        for path in (os.path.join(root, name), os.path.join(root, f"{name}.gz")):
            if os.path.isfile(path):
                return path
    raise base.Missing(
        f"{where}: needs the file {stem} or {stem}.gz in {root!r}, got none; take the"
        " published files as they are"
    )


def read_idx(path: str) -> UInt8[np.ndarray, "n ..."]:
    """Reads an IDX file of bytes; ValueError where it is none, or cut off."""
    kinds = OSError, ValueError, EOFError, zlib.error, struct.error
    with base.explained(f"{path}: must be a whole IDX file: ", *kinds):
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
        raise ValueError(
            f"{path}: must be an IDX file of {expected} bytes after its header, got"
            f" {len(found)} of kind {kind}; download it again"
        )
    return found.reshape(shape)


SPECS: Mapping[str, base.Spec] = {
    name: folder.spec(name, _reader(classes), size=28, native=True, squeezes=False)
    for name, classes in {"mnist": DIGITS, "fashion_mnist": GARMENTS}.items()
}
make = SPECS["mnist"].make
