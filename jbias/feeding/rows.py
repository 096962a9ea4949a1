"""Rows of examples as they are read from files: of a seed's batch, or of a window."""

import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from jbias import feed
from jbias import order as orders
from jbias.data import base, crops


@dataclasses.dataclass(frozen=True)
class Files:
    """Sets one after the other, and what is known of all their examples."""

    opened: tuple[base.Source, ...]
    columns: Mapping[str, np.ndarray]

    def each(self, index: Int[np.ndarray, "m"]) -> Iterator[tuple[base.Source, int]]:
        """The set of each example, and its number there."""
        ends = np.cumsum([len(source) for source in self.opened])
        for example, which in zip(index, np.searchsorted(ends, index, "right")):
            source = self.opened[which]
            yield source, int(example - ends[which] + len(source))

    def rows(
        self,
        index: Int[np.ndarray, "m"],
        image: UInt8[np.ndarray, "m h w 3"] | None = None,
    ) -> feed.Rows:
        """Images with their columns; without `image` they are as for evaluation."""
        if image is None:
            image = _empty(len(index), self.opened[0].size)
            for i, (source, number) in enumerate(self.each(index)):
                image[i] = source.image(number)
        known = {name: column[index] for name, column in self.columns.items()}
        return {"image": image, "index": index.astype(np.int32), **known}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Reads rows of one seed's batch, cut at random by the seed, step and row alone."""

    files: Files
    order: orders.Order
    name: str
    size: int
    window: Mapping[str, Any] | None  # None: preprocessed as for evaluation.

    def __call__(self, step: int, seed: int, rows: slice) -> feed.Rows:
        index = self.order.index(seed, step)[rows]
        if self.window is None:
            return self.files.rows(index)
        first, image = rows.start, _empty(len(index), self.size)
        for i, (source, number) in enumerate(self.files.each(index)):
            draw = functools.partial(
                crops.random_window,
                self.generator(seed, step, first + i),
                **self.window,
            )
            image[i] = source.cropped(number, self.size, draw)
        return self.files.rows(index, image)

    def generator(self, seed: int, step: int, row: int) -> np.random.Generator:
        """What an image is cut by; cheaper than a jax key, and needs no device."""
        stream = zlib.crc32(f"crop/{self.name}".encode())
        return np.random.default_rng((seed, stream, step, row))


@dataclasses.dataclass(frozen=True)
class Members:
    """Reads members of a window: whole images squeezed to a canvas, or preprocessed."""

    files: Files
    first: int  # Example that the members are counted from.
    canvas: int | None

    def __call__(self, members: Int[np.ndarray, "m"]) -> feed.Rows:
        index = members + self.first
        if self.canvas is None:
            return self.files.rows(index)
        image = _empty(len(index), self.canvas)
        aspect = np.ones(len(index), np.float32)
        for i, (source, number) in enumerate(self.files.each(index)):
            image[i], aspect[i] = source.canvas(number, self.canvas)
        return {**self.files.rows(index, image), "aspect": aspect}


def _empty(count: int, side: int) -> UInt8[np.ndarray, "count side side 3"]:
    return np.empty((count, side, side, 3), np.uint8)
