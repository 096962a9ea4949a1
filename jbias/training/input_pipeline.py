"""What the steps of a stage learn from: a set on the device, rows from files, or windows.

Resident sets live on the device as a whole. Streamed ones are read from their files in
each seed's own order. Of windowed ones a part is on the device, which all seeds share, and
the next part is under way. Where several processes train, each reads its own share.
"""

import abc
import contextlib
import dataclasses
import functools
import itertools
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt8

from jbias.data import base, decoding, loader
from jbias.training import samplers

Rows = Mapping[str, Any]  # "image" uint8 (n h w c), "label" int32 (n), ...


class InputPipeline(abc.ABC):
    """What the steps of some seeds learn from; called with ascending steps.

    Unless it says otherwise, nothing is held but for the batches, or one thing throughout.
    """

    order: samplers.Sampler
    streams = True  # Whether images are read while it is trained on.
    fixed: int | None = None  # The seed whose order all have: config.fix.order.

    def batch(self, seed: int, step: int) -> Int[np.ndarray, "b"] | Rows:
        """One seed's batch: places in what is held, or the rows themselves."""
        return self.order.index(seed if self.fixed is None else self.fixed, step)

    def wait(self, step: int, halt: Callable[[], bool]) -> bool:
        """Waits for what is held at a step; False where `halt` said so before."""
        return True

    def shared(self, step: int) -> Rows:
        """What all seeds draw from at this step, on the device."""
        return {}

    def next_change(self, step: int) -> int:
        """The first later step at which another thing is held."""
        return samplers.NEVER

    def close(self) -> None:
        """Stops what reads ahead."""

    @abc.abstractmethod
    def shapes(self) -> tuple[PyTree, PyTree]:
        """Shapes and types of what `batch` and `shared` give."""


@dataclasses.dataclass(frozen=True)
class ResidentInput(InputPipeline):
    """A set that lives on the device as a whole."""

    order: samplers.Sampler
    rows: Rows
    fixed: int | None = None
    streams = False

    def shared(self, step: int) -> Rows:
        return self.rows

    def shapes(self) -> tuple[PyTree, PyTree]:
        return index_shape(self.order), jax.eval_shape(lambda: self.rows)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["shape"]
)
@dataclasses.dataclass(frozen=True)
class FlatImages:
    """Images that are held as rows of bytes, and come out whole.

    A TPU lays a set of four axes out with the images innermost, and again with them
    outermost, all of it, whenever some are taken.
    """

    rows: UInt8[Array, "n hwc"]
    shape: tuple[int, ...]  # Of an image.

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> UInt8[Array, "b h w c"]:
        return self.rows[index].reshape(-1, *self.shape)

    __iter__ = None  # It would never end: jax takes the last row for all behind it.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self[:], dtype)


def flatten_images(rows: Rows) -> Rows:
    """Rows as they are held on a device."""
    image = rows["image"]
    return {**rows, "image": FlatImages(image.reshape(len(image), -1), image.shape[1:])}


def index_shape(order: samplers.Sampler) -> jax.ShapeDtypeStruct:
    """Shape and type of a batch of places in what is held."""
    return jax.ShapeDtypeStruct((order.batch,), np.int32)


def rows_shape(rows: Rows, count: int) -> PyTree:
    """Shapes and types of so many rows like these."""
    return {
        name: jax.ShapeDtypeStruct((count, *column.shape[1:]), column.dtype)
        for name, column in rows.items()
    }


def assemble_batch(
    held: Rows, taken: Int[Array, "b"] | Rows, classes: int | None
) -> dict[str, Array]:
    """Makes a batch of rows, or of the examples at these places in what is held.

    Returns "image" in [0, 1], "index", each further column under its own name, and
    "target" one-hot, unless `classes` is None.
    """
    batch = taken
    if not isinstance(taken, Mapping):
        batch = {"index": taken}
        batch |= {name: column[taken] for name, column in held.items()}
    batch = {**batch, "image": batch["image"].astype(jnp.float32) / 255}
    if classes is not None:
        batch["target"] = jax.nn.one_hot(batch.pop("label"), classes)
    return batch


@dataclasses.dataclass(frozen=True)
class JoinedSources:
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
        self, index: Int[np.ndarray, "m"], image: np.ndarray | None = None
    ) -> Rows:
        """Images with their columns; without `image` they are as for evaluation."""
        if image is None:
            image = _empty(len(index), self.opened[0].size)
            for i, (source, number) in enumerate(self.each(index)):
                image[i] = source.image(number)
        known = {name: column[index] for name, column in self.columns.items()}
        return {"image": image, "index": index.astype(np.int32), **known}


@dataclasses.dataclass(frozen=True)
class BatchReader:
    """Reads rows of one seed's batch, cut at random by the seed, step and row alone."""

    files: JoinedSources
    order: samplers.Sampler
    name: str
    size: int
    window: Mapping[str, Any] | None  # None: preprocessed as for evaluation.
    fix: Mapping[str, int]  # Seeds of "order" and "augment" that all seeds take.

    def __call__(self, step: int, seed: int, rows: slice) -> Rows:
        index = self.order.index(self.fix.get("order", seed), step)[rows]
        if self.window is None:
            return self.files.rows(index)
        image = _empty(len(index), self.size)
        for i, (source, number) in enumerate(self.files.each(index)):
            generator = self.generator(seed, step, rows.start + i)
            cut = functools.partial(decoding.random_window, generator, **self.window)
            image[i] = source.cropped(number, self.size, cut)
        return self.files.rows(index, image)

    def generator(self, seed: int, step: int, row: int) -> np.random.Generator:
        """What an image is cut by; cheaper than a jax key, and needs no device."""
        stream = zlib.crc32(f"crop/{self.name}".encode())
        drawn = self.fix.get("augment", seed)
        return np.random.default_rng((drawn, stream, step, row))


@dataclasses.dataclass(frozen=True)
class WindowReader:
    """Reads members of a window: whole images squeezed to a canvas, or preprocessed."""

    files: JoinedSources
    first: int  # Example that the members are counted from.
    canvas: int | None

    def __call__(self, members: Int[np.ndarray, "m"]) -> Rows:
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


class StreamedInput(InputPipeline):
    """Rows for each seed, read from the set's files in the seed's own order.

    read(step, seed, rows) -> Rows gives rows of one batch, wherever it runs.
    """

    def __init__(
        self,
        order: samplers.Sampler,
        read: Callable[[int, int, slice], Rows],
        seeds: Sequence[int],
        steps: int,
        reading: loader.ReaderOptions,
        place: Callable[[Rows], Rows] | None,
    ):
        self.order, self.read, self._steps = order, read, steps
        self._place, self._reading = place, reading
        part = dict(part=reading.part, parts=reading.parts)
        self._pieces = BatchPieces(read, tuple(seeds), order.batch, **part)
        self._next, self._coming = None, None

    def batch(self, seed: int, step: int) -> Rows:
        pieces = self._pieces
        number = pieces.number(step, seed)
        if number != self._next:
            self.close()
            stop = pieces.number(self._steps, pieces.seeds[0])
            self._coming = self._reading.pieces(pieces, number, stop)
        self._next = number + pieces.pieces_per_batch
        rows = _joined([next(self._coming) for _ in range(number, self._next)])
        return self._place(rows) if self._place else rows

    def shapes(self) -> tuple[PyTree, PyTree]:
        first = self.read(0, self._pieces.seeds[0], slice(0, 1))
        return rows_shape(first, self.order.batch), {}

    def close(self) -> None:
        if self._coming is not None:
            self._coming.close()
        self._next = self._coming = None


class BatchPieces(NamedTuple):
    """Numbers the pieces of a part of all batches: by step, then seed, then place."""

    read: Callable[[int, int, slice], Rows]
    seeds: tuple[int, ...]
    batch: int
    part: int = 0
    parts: int = 1

    @property
    def pieces_per_batch(self) -> int:
        return -(-self.batch // self.parts // loader.PIECE_SIZE)

    def number(self, step: int, seed: int) -> int:
        """The first piece of a batch."""
        before = step * len(self.seeds) + self.seeds.index(seed)  # Batches.
        return before * self.pieces_per_batch

    def __call__(self, number: int) -> Rows:
        batch, piece = divmod(number, self.pieces_per_batch)
        step, seed = divmod(batch, len(self.seeds))
        share, first = self.batch // self.parts, piece * loader.PIECE_SIZE
        start, stop = self.part * share, min(first + loader.PIECE_SIZE, share)
        return self.read(step, self.seeds[seed], slice(start + first, start + stop))


class WindowedInput(InputPipeline):
    """A window of a set on the device, which all seeds share, and the next under way.

    Each set of the order has its own windows; read[i](members) -> Rows gives rows
    of set i. Two windows at most are on the device and two in the host's memory; three
    where there are several sets and processes.
    """

    def __init__(
        self,
        order: samplers.Sampler,
        read: Sequence[Callable[[Int[np.ndarray, "m"]], Rows]],
        steps: int,
        reading: loader.ReaderOptions,
        place: Callable[[Rows], Rows],
        fixed: int | None = None,
    ):
        self.order, self._alone, self.fixed = order, reading.parts == 1, fixed
        self._place = lambda rows: place(flatten_images(rows))
        parts = order.orders if isinstance(order, samplers.MixtureSampler) else (order,)
        self._parts = []
        for one, part, last in zip(read, parts, order.windows(steps - 1), strict=True):
            share = (reading.part, reading.parts, reading.devices)
            stream = _WindowStream(WindowPieces(one, part, *share), last + 1, reading)
            self._parts.append(stream)
        self._numbers, self._held = None, None

    def wait(self, step: int, halt: Callable[[], bool]) -> bool:
        numbers = self.order.windows(step)
        return numbers == self._numbers or all(
            part.wait(number, halt) for part, number in zip(self._parts, numbers)
        )

    def shared(self, step: int) -> Rows:
        numbers = self.order.windows(step)
        if numbers != self._numbers:
            self._held = None  # Its memory is free once the steps under way are done.
            rows = [part.rows(number) for part, number in zip(self._parts, numbers)]
            if self._alone:
                self._held = self._place(_joined(rows))
            else:
                placed = []
                for part, one in zip(self._parts, rows):
                    cut = functools.partial(lambda n, x: x[:n], part.pieces.order.span)
                    placed.append(jax.tree.map(cut, self._place(one)))
                self._held = _joined(placed, jnp.concatenate)
            self._numbers = numbers
        return self._held

    def next_change(self, step: int) -> int:
        return self.order.next_change(step)

    def shapes(self) -> tuple[PyTree, PyTree]:
        pieces = self._parts[0].pieces
        first = pieces.read(pieces.order.members(0)[:1])
        held = rows_shape(first, self.order.span)
        return index_shape(self.order), jax.eval_shape(flatten_images, held)

    def close(self) -> None:
        self._numbers = self._held = None
        for part in self._parts:
            part.close()


class WindowPieces(NamedTuple):
    """Numbers the pieces of a part of all windows of one set."""

    read: Callable[[Int[np.ndarray, "m"]], Rows]
    order: samplers.EpochSampler | samplers.WindowSampler
    part: int = 0
    parts: int = 1
    devices: int = 1

    @property
    def share(self) -> int:
        """Rows of a window that this part reads; its devices divide them."""
        if self.parts == 1:
            return self.order.span
        return -(-self.order.span // (self.parts * self.devices)) * self.devices

    @property
    def pieces_per_window(self) -> int:
        return -(-self.share // loader.PIECE_SIZE)

    def __call__(self, number: int) -> Rows:
        window, piece = divmod(number, self.pieces_per_window)
        start, first = self.part * self.share, piece * loader.PIECE_SIZE
        members = self.order.members(window)[start : start + self.share]
        return self.read(members[first : first + loader.PIECE_SIZE])


class _WindowStream:
    """The windows of one set, one after the other, each read while one is used."""

    def __init__(self, pieces: WindowPieces, stop: int, reading: loader.ReaderOptions):
        self.pieces, self._stop, self._reading = pieces, stop, reading
        self._pool = futures.ThreadPoolExecutor(1, "window")
        self._number, self._rows = None, None
        self._coming, self._future, self._next = None, None, None
        self._closed = threading.Event()

    def rows(self, number: int) -> Rows:
        """The rows of a window, with as many rows as any other."""
        if number != self._number:
            self.wait(number, lambda: False)
            self._rows, self._number = self._future.result(), number
            self._future = self._pool.submit(next, self._coming, None)
            self._next = number + 1
        return self._rows

    def wait(self, number: int, halt: Callable[[], bool]) -> bool:
        """Waits for a window; False where `halt` said so before it was read."""
        if number == self._number:
            return True
        if number != self._next:
            self.close()
            self._closed.clear()
            self._coming, self._next = self._read(number), number
            self._future = self._pool.submit(next, self._coming)
        while not self._future.done():
            if halt():
                return False
            futures.wait([self._future], timeout=0.1)
        self._future.result()  # What could not be read is told here.
        return True

    def _read(self, first: int) -> Iterator[Rows]:
        each = self.pieces.pieces_per_window
        whole = (self.pieces, first * each, self._stop * each)
        with contextlib.closing(self._reading.pieces(*whole)) as coming:
            for _ in range(first, self._stop):
                rows, done = {}, 0
                for piece in itertools.islice(coming, each):
                    if self._closed.is_set():
                        return
                    for name, column in piece.items():
                        if name not in rows:  # What no piece fills stays zero.
                            shape = (self.pieces.share, *column.shape[1:])
                            rows[name] = np.zeros(shape, column.dtype)
                        rows[name][done : done + len(column)] = column
                    done += len(piece["image"])
                yield rows

    def close(self) -> None:
        self._closed.set()
        if self._future is not None:
            futures.wait([self._future])
            self._coming.close()
        self._number = self._rows = None
        self._coming = self._future = self._next = None


def _joined(several: Sequence[Rows], join: Callable = np.concatenate) -> Rows:
    if len(several) == 1:
        return several[0]
    return jax.tree.map(lambda *columns: join(columns), *several)
