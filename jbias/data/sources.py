"""Random-access sources of images, in memory (ArraySource) or encoded (EncodedSource)."""

import dataclasses
import functools
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from jbias.data import base, decoding
from jbias.data.base import Columns, Names
from jbias.data.forms import listing, stores


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ArraySource(base.Source):
    """A source of images in memory.

    files: the name of each image, as in EncodedSource; () if images have no names.
    """

    images: UInt8[np.ndarray, "n h w 3"]
    files: Names = ()

    def __post_init__(self):
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
            must = f"{self.name}: images must be uint8 (n, h, w, 3)"
            raise ValueError(f"{must}, got {self.images.dtype} {shape}")
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, int]:
        return self.images.shape[1:3]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> UInt8[np.ndarray, "h w 3"]:
        return self.images[index]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EncodedSource(base.Source):
    """A source of encoded images, each decoded when it is read.

    preprocessing: the description of `transform`.
    """

    store: stores.Store
    transform: decoding.Preprocess
    preprocessing: str = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "preprocessing", self.transform.description)
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, int]:
        return self.transform.size, self.transform.size

    @property
    def files(self) -> tuple[str, ...]:
        """Name of each image: a relative path with slashes."""
        return self.store.names

    def __len__(self) -> int:
        return len(self.store.names)

    def image(
        self, index: int, transform: decoding.Preprocess | None = None
    ) -> UInt8[np.ndarray, "h w 3"]:
        """Return the image at `index`, preprocessed by `transform` (None: the source's own)."""
        return decoding.decode(
            self._opener(index), self.store.where(index), transform or self.transform
        )

    def cropped(self, index: int, size: int, draw: decoding.Draw) -> decoding.Square:
        """Return a window of the original image at `index`, squeezed to size x size pixels.

        draw: (width, height) -> window, see decoding.cropped.
        """
        where = self.store.where(index)
        return decoding.cropped(self._opener(index), where, size=size, draw=draw)

    def canvas(self, index: int, size: int) -> tuple[decoding.Square, float]:
        """Return the original image at `index`, and its width / height.

        The whole image is squeezed to size x size pixels, without the source's preprocessing.
        """
        return decoding.canvas(self._opener(index), self.store.where(index), size)

    def _opener(self, index: int) -> decoding.Opener:
        """Return a function () -> path or open file of the encoded image at `index`."""
        return functools.partial(self.store.open, index)


def take(
    source: base.Source, index: Int[np.ndarray, "m"], *, digest: str, note: str = ""
) -> base.Source:
    """Return a source of the images at `index`, in that order.

    digest: text that identifies the selection; it is hashed into the new fingerprint.
    note: text to add to the source's note.
    """
    # Source has no other subclasses.
    source = cast(ArraySource | EncodedSource, source)
    if isinstance(source, ArraySource):
        names = tuple(source.files[i] for i in index) if source.files else ()
        images = {"images": source.images[index], "files": names}
    else:
        images = {"store": source.store.take(index)}
    fingerprint = hashlib.sha256(f"{source.fingerprint} {digest}".encode()).hexdigest()
    return _with_note(
        source,
        note,
        fingerprint=fingerprint,
        columns={key: column[index] for key, column in source.columns.items()},
        arrays={key: array[index] for key, array in source.arrays.items()},
        **images,
    )


def join_images(
    sources: Sequence[base.Source], *, prefixes: Sequence[str], **changes: Any
) -> base.Source:
    """Return a source of the images of all sources, which are all in memory or all encoded.

    prefixes: start of the names of each source's images. changes: fields of the new source;
    fields that are not named are those of the first source, without further arrays.
    """
    # Source has no other subclasses.
    joined = cast(Sequence[ArraySource | EncodedSource], sources)
    if isinstance(joined[0], ArraySource):
        named = [
            prefix + name
            for source, prefix in zip(joined, prefixes, strict=True)
            for name in source.files
        ]
        images = np.concatenate([source.images for source in joined])
        has_names = len(named) == len(images)
        changes |= {"images": images, "files": tuple(named) if has_names else ()}
    else:
        image_stores = [source.store for source in joined]
        changes["store"] = stores.JoinedStore.join(image_stores, prefixes)
    return dataclasses.replace(joined[0], arrays={}, **changes)


def _with_note(source: base.Source, note: str, **changes: Any) -> base.Source:
    """Return a source with changed fields, and with `note` added to its note."""
    note = "; ".join(filter(None, (source.note, note)))
    return dataclasses.replace(source, note=note, **changes)


def add(
    source: base.Source, columns: Columns, values: Mapping[str, Names], note: str = ""
) -> base.Source:
    """Return a source with further columns.

    columns: {name: an int per image}; existing columns of the same names are replaced.
    values: {column: names of its values}, for each new column. note: text to add to the
    source's note. The fingerprint changes with the columns.
    """
    digest = listing.digest_columns(source.fingerprint, columns, values)
    return _with_note(
        source,
        note,
        fingerprint=digest,
        columns={**source.columns, **columns},
        values={**source.values, **values},
    )


def read_encoded(source: base.Source, index: int) -> bytes:
    """Return the bytes of an image file: the stored file, or a PNG for a source in memory."""
    if isinstance(source, EncodedSource):
        opened = source.store.open(index)
        with open(opened, "rb") if isinstance(opened, str) else opened as file:
            return file.read()
    return to_png(cast(ArraySource, source).images[index])


def to_png(image: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """Return the bytes of an image as a PNG file, which is lossless."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def is_in_memory(source: base.Source) -> bool:
    """Return True for an ArraySource, whose images are in memory and need no decoding."""
    return isinstance(source, ArraySource)
