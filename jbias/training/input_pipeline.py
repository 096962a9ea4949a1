"""Input pipelines, which supply the batches for the steps of a stage.

A resident set is on the device completely. A streamed set is read from its files in each
seed's own order. A windowed set has one part (a window) on the device, shared by all seeds,
while the next window is read. If several processes train, each process reads its share of the
rows. The shared rows of an input are the rows on the device from which all seeds draw their
batches: all rows of a resident set, and the rows of one window of a windowed set.
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
    """The source of the batches of a stage's seeds.

    Callers must request steps in ascending order, counted from the start of the stage. By
    default there are no shared rows (see the module).
    """

    order: samplers.Sampler
    streams = True  # True if images are read from files during training.
    fixed: int | None = None  # config.fix.order: the seed whose order all seeds use.

    def batch(self, seed: int, step: int) -> Int[np.ndarray, "b"] | Rows:
        """Return a seed's batch: indices into the shared rows, or the rows of the batch."""
        return self.order.index(seed if self.fixed is None else self.fixed, step)

    def wait(self, step: int, stop_requested: Callable[[], bool]) -> bool:
        """Wait for a step's shared rows; return True once they are ready.

        Return False if `stop_requested` returns True first.
        """
        return True

    def shared(self, step: int) -> Rows:
        """Return the rows on the device that all seeds draw from at this step, or {}."""
        return {}

    def next_change(self, step: int) -> int:
        """Return the first step after `step` at which the shared rows change, or NEVER."""
        return samplers.NEVER

    def close(self) -> None:
        """Stop reading ahead."""

    @abc.abstractmethod
    def shapes(self) -> tuple[PyTree, PyTree]:
        """Return the shapes of the results of `batch` and `shared`, as jax.ShapeDtypeStructs."""


@dataclasses.dataclass(frozen=True)
class ResidentInput(InputPipeline):
    """A data set that is on the device completely; rows: all of its examples, in order."""

    order: samplers.Sampler
    rows: Rows
    fixed: int | None = None
    streams = False

    def shared(self, step: int) -> Rows:
        return self.rows

    def shapes(self) -> tuple[PyTree, PyTree]:
        """Return jax.ShapeDtypeStructs of a batch of indices and of all rows."""
        return index_shape(self.order), jax.eval_shape(lambda: self.rows)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["shape"]
)
@dataclasses.dataclass(frozen=True)
class FlatImages:
    """Images stored as rows of bytes; indexing returns images.

    A TPU stores an array of four axes with the images innermost, and copies the whole array
    to another layout whenever images are gathered. Rows of bytes avoid this copy.
    """

    rows: UInt8[Array, "n hwc"]
    shape: tuple[int, ...]  # Shape (h, w, c) of an image.

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> UInt8[Array, "b h w c"]:
        return self.rows[index].reshape(-1, *self.shape)

    # Iteration would never end: JAX returns the last row for any index after the end.
    __iter__ = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self[:], dtype)


def flatten_images(rows: Rows) -> Rows:
    """Return the rows with the column "image" as `FlatImages`."""
    image = rows["image"]
    return {**rows, "image": FlatImages(image.reshape(len(image), -1), image.shape[1:])}


def index_shape(order: samplers.Sampler) -> jax.ShapeDtypeStruct:
    """Return the shape (b,) and dtype of a batch of indices from a sampler."""
    return jax.ShapeDtypeStruct((order.batch,), np.int32)


def rows_shape(rows: Rows, count: int) -> PyTree:
    """Return the shapes and dtypes, by column, of `count` rows like the given rows."""
    return {
        name: jax.ShapeDtypeStruct((count, *column.shape[1:]), column.dtype)
        for name, column in rows.items()
    }


def assemble_batch(
    shared: Rows, rows: Int[Array, "b"] | Rows, classes: int | None
) -> dict[str, Array]:
    """Return a batch: "image" in [0, 1], one-hot "target", "index" and further columns.

    shared: rows on the device. rows: the rows of the batch, or their indices in `shared`.
    classes: number of classes; None: keep "label" and add no "target".
    """
    batch = rows
    if not isinstance(rows, Mapping):
        batch = {"index": rows}
        batch |= {name: column[rows] for name, column in shared.items()}
    batch = {**batch, "image": batch["image"].astype(jnp.float32) / 255}
    if classes is not None:
        batch["target"] = jax.nn.one_hot(batch.pop("label"), classes)
    return batch


@dataclasses.dataclass(frozen=True)
class JoinedSources:
    """Several data sets, concatenated; columns: the columns of all examples."""

    opened: tuple[base.Source, ...]
    columns: Mapping[str, np.ndarray]

    def locate(self, index: Int[np.ndarray, "m"]) -> Iterator[tuple[base.Source, int]]:
        """Yield (source, index of the example in the source) for each index."""
        ends = np.cumsum([len(source) for source in self.opened])
        for example, which in zip(index, np.searchsorted(ends, index, "right")):
            source = self.opened[which]
            yield source, int(example - ends[which] + len(source))

    def rows(
        self, index: Int[np.ndarray, "m"], image: np.ndarray | None = None
    ) -> Rows:
        """Return the rows of the examples with these indices: "image", "index", all columns.

        image: the examples' images, uint8; default: images preprocessed as for evaluation.
        """
        if image is None:
            image = _empty(len(index), self.opened[0].size)
            for i, (source, number) in enumerate(self.locate(index)):
                image[i] = source.image(number)
        columns = {name: column[index] for name, column in self.columns.items()}
        return {"image": image, "index": index.astype(np.int32), **columns}


@dataclasses.dataclass(frozen=True)
class BatchReader:
    """A reader of rows of a batch; crops depend only on the seed, step and row.

    A call with (step, seed, slice of rows in the batch) returns these rows.
    """

    files: JoinedSources
    order: samplers.Sampler
    name: str  # Name of the stream of random numbers.
    size: int  # Side of the images, in pixels.
    window: Mapping[str, Any] | None  # None: preprocessed as for evaluation.
    fix: Mapping[str, int]  # config.fix: seeds of "order" and "augment" for all seeds.

    def __call__(self, step: int, seed: int, rows: slice) -> Rows:
        """Return some rows of a seed's batch at a step, on the host.

        Columns: see JoinedSources.rows. rows: the slice of the batch; its start must not be None.
        """
        index = self.order.index(self.fix.get("order", seed), step)[rows]
        if self.window is None:
            return self.files.rows(index)
        image = _empty(len(index), self.size)
        for i, (source, number) in enumerate(self.files.locate(index)):
            generator = self.generator(seed, step, rows.start + i)
            crop = functools.partial(decoding.random_window, generator, **self.window)
            image[i] = source.cropped(number, self.size, crop)
        return self.files.rows(index, image)

    def generator(self, seed: int, step: int, row: int) -> np.random.Generator:
        """Return the random generator for the crop of one image in a batch.

        row: position in the batch. For the host a NumPy generator is cheaper than a JAX key.
        """
        stream = zlib.crc32(f"crop/{self.name}".encode())
        augment_seed = self.fix.get("augment", seed)
        return np.random.default_rng((augment_seed, stream, step, row))


@dataclasses.dataclass(frozen=True)
class WindowReader:
    """A reader of the examples of a window: images resized to a canvas, or preprocessed.

    A call with indices of examples, counted from `first`, returns the rows of these examples.
    """

    files: JoinedSources
    first: int  # Added to the indices of a call.
    canvas: int | None  # Side in pixels; None: preprocessed as for evaluation.

    def __call__(self, members: Int[np.ndarray, "m"]) -> Rows:
        """Return the rows of the examples with the indices `first` + `members`, on the host.

        Columns: see JoinedSources.rows; with a canvas also "aspect", float32 (n), the original
        width / height of each image.
        """
        index = members + self.first
        if self.canvas is None:
            return self.files.rows(index)
        image = _empty(len(index), self.canvas)
        aspect = np.ones(len(index), np.float32)
        for i, (source, number) in enumerate(self.files.locate(index)):
            image[i], aspect[i] = source.canvas(number, self.canvas)
        return {**self.files.rows(index, image), "aspect": aspect}


def _empty(count: int, side: int) -> UInt8[np.ndarray, "count side side 3"]:
    """Return an uninitialised array of `count` square images; side: in pixels."""
    return np.empty((count, side, side, 3), np.uint8)


class StreamedInput(InputPipeline):
    """A data set whose rows are read from files, in each seed's own order.

    order: sampler of the examples. read: (step, seed, slice of rows) -> rows of one batch;
    may run in another process. seeds: the seeds, in the order in which `batch` is called at
    each step.
    steps: number of steps of the stage. reading: threads, worker processes and this process's
    share. place: moves rows to the devices; None: they stay on the host.
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
        self._pieces = BatchPieces(
            read,
            tuple(seeds),
            batch=order.batch,
            part=reading.part,
            parts=reading.parts,
        )
        # The iterator over pieces that are read ahead, and the number of its next piece.
        self._iterator, self._next = None, None

    def batch(self, seed: int, step: int) -> Rows:
        """Return the rows of a seed's batch, read ahead if possible.

        The rows are on the devices if there is a `place`, else on the host; columns: see
        JoinedSources.rows. Call this method for each step, and within a step for each of `seeds`,
        in order. After a call in a different order the rows are correct, but reading ahead starts
        again.
        """
        pieces = self._pieces
        number = pieces.number(step, seed)
        if number != self._next:
            self.close()
            stop = pieces.number(self._steps, pieces.seeds[0])
            self._iterator = self._reading.pieces(pieces, number, stop)
        self._next = number + pieces.pieces_per_batch
        rows = _concatenate([next(self._iterator) for _ in range(number, self._next)])
        return self._place(rows) if self._place else rows

    def shapes(self) -> tuple[PyTree, PyTree]:
        """Return jax.ShapeDtypeStructs of a batch, and {}: there are no shared rows."""
        first = self.read(0, self._pieces.seeds[0], slice(0, 1))
        return rows_shape(first, self.order.batch), {}

    def close(self) -> None:
        """Stop reading ahead."""
        if self._iterator is not None:
            self._iterator.close()
        self._next = self._iterator = None


class BatchPieces(NamedTuple):
    """A reader of one process's part of all batches, in numbered pieces.

    Pieces are numbered by step, then by seed, then by position in the batch. A call with the
    number of a piece reads and returns the rows of the piece.

    read: (step, seed, slice of rows in the batch) -> rows.
    """

    read: Callable[[int, int, slice], Rows]
    seeds: tuple[int, ...]
    batch: int  # Examples per batch.
    part: int = 0  # Index of this process's part.
    parts: int = 1  # Number of parts.

    @property
    def pieces_per_batch(self) -> int:
        """The number of pieces in which this process reads its part of a batch."""
        return -(-self.batch // self.parts // loader.PIECE_SIZE)

    def number(self, step: int, seed: int) -> int:
        """Return the number of the first piece of a seed's batch at a step."""
        num_batches_before = step * len(self.seeds) + self.seeds.index(seed)
        return num_batches_before * self.pieces_per_batch

    def __call__(self, number: int) -> Rows:
        """Read and return the rows of the piece `number`."""
        batch, piece = divmod(number, self.pieces_per_batch)
        step, seed = divmod(batch, len(self.seeds))
        share, first = self.batch // self.parts, piece * loader.PIECE_SIZE
        start, stop = self.part * share, min(first + loader.PIECE_SIZE, share)
        return self.read(step, self.seeds[seed], slice(start + first, start + stop))


class WindowedInput(InputPipeline):
    """A data set that is read in windows; all seeds share the window on the device.

    The next window is read while a window is used. Each set of a `MixtureSampler` has its
    own windows.

    order: sampler of the examples. read: for each set, a function from indices of examples to
    rows. steps: number of steps of the stage. reading: threads, worker processes and this
    process's share. place: moves rows to the devices. fixed: see `InputPipeline`.

    At most two windows are on the device and two in the host's memory. With several sets and
    several processes, at most three windows are on the device.
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
        set_orders = (order,)
        if isinstance(order, samplers.MixtureSampler):
            set_orders = order.orders
        self._streams = []
        last_windows = order.windows(steps - 1)
        for read_set, set_order, last in zip(
            read, set_orders, last_windows, strict=True
        ):
            pieces = WindowPieces(
                read_set,
                set_order,
                part=reading.part,
                parts=reading.parts,
                devices=reading.devices,
            )
            self._streams.append(_WindowStream(pieces, last + 1, reading))
        # The rows on the devices, and the numbers of their windows, one per set.
        self._rows, self._numbers = None, None

    def wait(self, step: int, stop_requested: Callable[[], bool]) -> bool:
        """Wait for a step's windows; return True, or False if a stop was requested first."""
        numbers = self.order.windows(step)
        return numbers == self._numbers or all(
            stream.wait(number, stop_requested)
            for stream, number in zip(self._streams, numbers)
        )

    def shared(self, step: int) -> Rows:
        """Return the rows of the windows of a step, on the devices, set after set.

        Waits until the windows are read. Do not use the rows of earlier windows after this
        call.
        """
        numbers = self.order.windows(step)
        if numbers != self._numbers:
            # The memory of the old window is free once the dispatched steps are done.
            self._rows = None
            rows = [
                stream.rows(number) for stream, number in zip(self._streams, numbers)
            ]
            if self._alone:
                self._rows = self._place(_concatenate(rows))
            else:
                placed = []
                for stream, set_rows in zip(self._streams, rows):
                    span = stream.pieces.order.span  # Without the padding.
                    placed.append(
                        jax.tree.map(
                            lambda x, span=span: x[:span], self._place(set_rows)
                        )
                    )
                self._rows = _concatenate(placed, jnp.concatenate)
            self._numbers = numbers
        return self._rows

    def next_change(self, step: int) -> int:
        return self.order.next_change(step)

    def shapes(self) -> tuple[PyTree, PyTree]:
        """Return jax.ShapeDtypeStructs of a batch of indices and of the shared rows."""
        pieces = self._streams[0].pieces
        first = pieces.read(pieces.order.members(0)[:1])
        window_shape = rows_shape(first, self.order.span)
        return index_shape(self.order), jax.eval_shape(flatten_images, window_shape)

    def close(self) -> None:
        """Stop reading ahead and drop the windows."""
        self._numbers = self._rows = None
        for stream in self._streams:
            stream.close()


class WindowPieces(NamedTuple):
    """A reader of one process's part of all windows of one set, in numbered pieces.

    Pieces are numbered by window, then by position. A call with the number of a piece reads and
    returns the rows of the piece.

    read: indices of examples -> rows.
    """

    read: Callable[[Int[np.ndarray, "m"]], Rows]
    order: samplers.EpochSampler | samplers.WindowSampler
    part: int = 0  # Index of this process's part.
    parts: int = 1  # Number of parts.
    devices: int = 1  # Devices of this process.

    @property
    def share(self) -> int:
        """Number of rows of a window in this part.

        With several parts this is a multiple of `devices`.
        """
        if self.parts == 1:
            return self.order.span
        return -(-self.order.span // (self.parts * self.devices)) * self.devices

    @property
    def pieces_per_window(self) -> int:
        """The number of pieces in this part of a window."""
        return -(-self.share // loader.PIECE_SIZE)

    def __call__(self, number: int) -> Rows:
        """Read and return the rows of the piece `number`."""
        window, piece = divmod(number, self.pieces_per_window)
        start, first = self.part * self.share, piece * loader.PIECE_SIZE
        members = self.order.members(window)[start : start + self.share]
        return self.read(members[first : first + loader.PIECE_SIZE])


class _WindowStream:
    """A reader of the windows of one set into the host's memory, one window ahead.

    stop: the number of the last window plus 1.
    """

    def __init__(self, pieces: WindowPieces, stop: int, reading: loader.ReaderOptions):
        self.pieces, self._stop, self._reading = pieces, stop, reading
        self._pool = futures.ThreadPoolExecutor(1, "window")
        # The current window and its number.
        self._rows, self._number = None, None
        # The iterator over windows; the future and the number of its next window.
        self._iterator, self._future, self._next = None, None, None
        self._closed = threading.Event()

    def rows(self, number: int) -> Rows:
        """Return the rows of a window, and start to read the next window.

        Waits until the window is read. All windows have the same number of rows: a shorter
        window is padded with zeros.
        """
        if number != self._number:
            self.wait(number, lambda: False)
            self._rows, self._number = self._future.result(), number
            self._future = self._pool.submit(next, self._iterator, None)
            self._next = number + 1
        return self._rows

    def wait(self, number: int, stop_requested: Callable[[], bool]) -> bool:
        """Wait for the window `number`; return True once it is ready.

        Return False if `stop_requested` returns True first. An error of the reader is
        raised here.
        """
        if number == self._number:
            return True
        if number != self._next:
            self.close()
            self._closed.clear()
            self._iterator, self._next = self._read_windows(number), number
            self._future = self._pool.submit(next, self._iterator)
        while not self._future.done():
            if stop_requested():
                return False
            futures.wait([self._future], timeout=0.1)
        self._future.result()  # Raises the reader's errors.
        return True

    def _read_windows(self, first: int) -> Iterator[Rows]:
        """Yield the rows (a dict of arrays) of each window from number `first` on, on the host.

        Rows are padded with zeros, so that all windows have the same number. Ends after the last
        window, or once the stream is closed.
        """
        per_window = self.pieces.pieces_per_window
        piece_iterator = self._reading.pieces(
            self.pieces, first * per_window, self._stop * per_window
        )
        with contextlib.closing(piece_iterator):
            for _ in range(first, self._stop):
                rows, num_done = {}, 0
                for piece in itertools.islice(piece_iterator, per_window):
                    if self._closed.is_set():
                        return
                    for name, column in piece.items():
                        if name not in rows:  # Rows without a piece stay zero.
                            shape = (self.pieces.share, *column.shape[1:])
                            rows[name] = np.zeros(shape, column.dtype)
                        rows[name][num_done : num_done + len(column)] = column
                    num_done += len(piece["image"])
                yield rows

    def close(self) -> None:
        """Stop reading and drop the windows."""
        self._closed.set()
        if self._future is not None:
            futures.wait([self._future])
            self._iterator.close()
        self._number = self._rows = None
        self._iterator = self._future = self._next = None


def _concatenate(
    chunks: Sequence[Rows], concatenate: Callable = np.concatenate
) -> Rows:
    """Return all rows of the chunks, concatenated column by column, in order.

    concatenate: a function such as jnp.concatenate. A single chunk is not copied.
    """
    if len(chunks) == 1:
        return chunks[0]
    return jax.tree.map(lambda *columns: concatenate(columns), *chunks)
