"""Random-access sources of images, in memory (ArraySource) or encoded (EncodedSource)."""

import dataclasses
import functools
import hashlib
import io
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from jbias.data import base, decoding
from jbias.data.base import Columns, Names
from jbias.data.forms import listing, stores


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ArraySource(base.Source):
    """Images that are in memory."""

    images: UInt8[np.ndarray, "n h w 3"]

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
    """Images that are decoded when asked for."""

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
        """Names of the images, relative, with slashes."""
        return self.store.names

    def __len__(self) -> int:
        return len(self.store.names)

    def image(
        self, index: int, transform: decoding.Preprocess | None = None
    ) -> UInt8[np.ndarray, "h w 3"]:
        """Decodes one image, by the source's own preprocessing or another."""
        return decoding.decode(*self._file(index), transform or self.transform)

    def cropped(self, index: int, size: int, draw: decoding.Draw) -> decoding.Square:
        """Decodes a window of one original image; see decoding.cropped."""
        return decoding.cropped(*self._file(index), size, draw)

    def canvas(self, index: int, size: int) -> tuple[decoding.Square, float]:
        """Squeezes one whole original image; see decoding.canvas."""
        return decoding.canvas(*self._file(index), size)

    def _file(self, index: int) -> tuple[decoding.Opened, str]:
        """What opens an image, and what a person calls it."""
        return functools.partial(self.store.open, index), self.store.where(index)


def take(
    source: base.Source, index: Int[np.ndarray, "m"], *, digest: str, note: str = ""
) -> base.Source:
    """Selects images, in the order of `index`.

    The fingerprint is that of the old one with `digest`, words or a digest of what was
    selected; `note` is added.
    """
    # There are no others.
    source = cast(ArraySource | EncodedSource, source)
    if isinstance(source, ArraySource):
        held = {"images": source.images[index]}
    else:
        held = {"store": source.store.take(index)}
    held["columns"] = {key: column[index] for key, column in source.columns.items()}
    held["arrays"] = {key: array[index] for key, array in source.arrays.items()}
    total = hashlib.sha256(f"{source.fingerprint} {digest}".encode())
    return _noted(source, note, fingerprint=total.hexdigest(), **held)


def _noted(source: base.Source, note: str, **changes: Any) -> base.Source:
    """A source with changes, and a note beside its own."""
    note = "; ".join(filter(None, (source.note, note)))
    return dataclasses.replace(source, note=note, **changes)


def add(
    source: base.Source, columns: Columns, values: Mapping[str, Names], note: str = ""
) -> base.Source:
    """Adds columns, the names of their values and a note; the fingerprint follows."""
    digest = listing.digest_columns(source.fingerprint, columns, values)
    columns, values = {**source.columns, **columns}, {**source.values, **values}
    return _noted(source, note, fingerprint=digest, columns=columns, values=values)


def encoded(source: base.Source, index: int) -> bytes:
    """An image as it is stored, a file's bytes; as PNG where it is in memory."""
    if isinstance(source, EncodedSource):
        opened = source.store.open(index)
        with open(opened, "rb") if isinstance(opened, str) else opened as file:
            return file.read()
    return to_png(cast(ArraySource, source).images[index])


def to_png(image: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """An image without a loss."""
    Image.fromarray(image).save(held := io.BytesIO(), "PNG")
    return held.getvalue()


def in_memory(source: base.Source) -> bool:
    """Whether images are there without reading or decoding anything."""
    return isinstance(source, ArraySource)
