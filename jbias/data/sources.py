"""Random-access sources: images in memory, and encoded ones."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from jaxtyping import Int, UInt8

from jbias.data import crops, spec, stores, transforms


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource:
    """Images that are in memory."""

    images: UInt8[np.ndarray, "n h w 3"]
    name: str
    classes: tuple[str, ...]
    space: str
    columns: Mapping[str, Int[np.ndarray, "n"]]
    measures: tuple[str, ...]
    preprocessing: str
    fingerprint: str
    cite: str
    note: str = ""
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    restrict: bool = False
    values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
            raise ValueError(
                f"{self.name}: images must be uint8 (n, h, w, 3), got"
                f" {self.images.dtype} {shape}"
            )
        _check(self)

    @property
    def size(self) -> int:
        return self.images.shape[2]

    @property
    def shape(self) -> tuple[int, int]:
        return self.images.shape[1:3]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.images[index], **_row(self.columns, index)}


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedSource:
    """Images that are decoded when asked for."""

    store: stores.Store
    transform: transforms.Preprocess
    name: str
    classes: tuple[str, ...]
    space: str
    columns: Mapping[str, Int[np.ndarray, "n"]]
    measures: tuple[str, ...]
    fingerprint: str
    cite: str
    note: str = ""
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    restrict: bool = False
    values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        _check(self)

    @property
    def size(self) -> int:
        return self.transform.size

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def preprocessing(self) -> str:
        return self.transform.description

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the images, relative, with slashes."""
        return self.store.names

    def __len__(self) -> int:
        return len(self.store.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.image(index), **_row(self.columns, index)}

    def image(
        self, index: int, transform: transforms.Preprocess | None = None
    ) -> UInt8[np.ndarray, "h w 3"]:
        """Decodes one image, by the source's own preprocessing or another."""
        where = self.store.where(index)
        opened = functools.partial(self.store.open, index)
        return transforms.decode(opened, where, transform or self.transform)

    def cropped(
        self, index: int, size: int, draw: Callable[[int, int], crops.Window]
    ) -> UInt8[np.ndarray, "size size 3"]:
        """Decodes a window of one original image; see crops.cropped."""
        opened = functools.partial(self.store.open, index)
        return crops.cropped(opened, self.store.where(index), size, draw)

    def canvas(
        self, index: int, size: int
    ) -> tuple[UInt8[np.ndarray, "size size 3"], float]:
        """Squeezes one whole original image; see crops.canvas."""
        opened = functools.partial(self.store.open, index)
        return crops.canvas(opened, self.store.where(index), size)


def take(
    source: spec.Source, index: Int[np.ndarray, "m"], *, digest: str, note: str = ""
) -> spec.Source:
    """Selects images, in the order of `index`.

    The fingerprint is that of the old one with `digest`, words or a digest of what was
    selected; `note` is added.
    """
    # There are no others.
    source = cast(ArraySource | EncodedSource, source)
    held = (
        {"images": source.images[index]}
        if isinstance(source, ArraySource)
        else {"store": source.store.take(index)}
    )
    total = hashlib.sha256(f"{source.fingerprint} {digest}".encode())
    return dataclasses.replace(
        source,
        columns={name: column[index] for name, column in source.columns.items()},
        arrays={name: array[index] for name, array in source.arrays.items()},
        note="; ".join(filter(None, (source.note, note))),
        fingerprint=total.hexdigest(),
        **held,
    )


def in_memory(source: spec.Source) -> bool:
    """Whether images are there without reading or decoding anything."""
    return isinstance(source, ArraySource)


def _row(columns: Mapping[str, np.ndarray], index: int) -> dict[str, int]:
    return {name: column[index].item() for name, column in columns.items()}


def _check(source: spec.Source) -> None:
    """Holds every source to what the rest of the package relies on."""
    where, n, k = source.name, len(source), len(source.classes)
    if source.space not in spec.SPACES:
        raise ValueError(
            f"{where}: space must be one of {spec.SPACES}, got {source.space!r}"
        )
    if len(set(source.classes)) != k:
        raise ValueError(f"{where}: class names must differ, got {source.classes}")
    if "label" not in source.columns:
        raise ValueError(f"{where}: columns must have 'label', got {[*source.columns]}")
    for name, array in source.arrays.items():
        if len(array) != n or name in source.columns:
            raise ValueError(
                f"{where}: array {name!r} must have {n} rows and a name of its own, got"
                f" {array.shape}"
            )
    for name, values in source.values.items():
        column = source.columns[name]
        assert not len(column) or 0 <= column.min() <= column.max() < len(values)
    for name, column in source.columns.items():
        if column.shape != (n,) or column.dtype != np.int32:
            raise ValueError(
                f"{where}: column {name!r} must be int32 ({n},), got {column.dtype}"
                f" {column.shape}"
            )
        least = -1 if name.startswith("accepted_") else 0
        if (
            spec.holds_classes(name)
            and n
            and not least <= column.min() <= column.max() < k
        ):
            raise ValueError(
                f"{where}: column {name!r} must be class ids below {k}, got"
                f" {column.min()} to {column.max()}"
            )
