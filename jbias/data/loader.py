"""Reading of data sets on the host, into memory or in a stream, by threads or processes.

`decode_all` decodes one data set in threads (decoders release Python's lock), and
`load_into_memory` decodes as many data sets as fit into memory. `prefetch` yields pieces of a
data set in order and reads ahead; `batches` cuts images, in memory or in files (EncodedImages),
into batches of one size; `local_batches` yields only this process's rows of each batch.
"""

import contextlib
import dataclasses
import itertools
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from multiprocessing import resource_tracker
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from jbias import errors
from jbias.data import base, sources
from jbias.runtime import console, signals

Sets = Mapping[str, base.Source]
Progress = Callable[[int, int], None]
_CHUNK = 64  # Images per task, and per report of progress.


def nbytes(source: base.Source) -> int:
    """Return the size in memory of a source's decoded images and further arrays, in bytes."""
    arrays = sum(array.nbytes for array in source.arrays.values())
    return len(source) * math.prod(source.shape) * 3 + arrays


def decode_all(
    source: base.Source, *, workers: int, progress: Progress = lambda done, total: None
) -> UInt8[np.ndarray, "n h w 3"]:
    """Return all images of a source, decoded by `workers` threads.

    Images that are already in memory are returned without a copy. progress(done, total),
    numbers of images, is called in the caller's thread after every 64 images, or once if the
    images are in memory. If images are damaged, ValueError with the number of damaged images
    and the first one, after all images have been tried; ValueError also for `workers` below 1.
    """
    errors.check_whole("data.loader", workers, low=1, name="workers")
    n = len(source)
    if sources.is_in_memory(source):
        progress(n, n)
        return source.images
    images, damaged = np.empty((n, source.size, source.size, 3), np.uint8), []
    order, starts = source.store.order(), range(0, n, _CHUNK)

    def decode_chunk(start: int) -> list[str]:
        """Decode the images order[start : start + _CHUNK] into the rows of `images`.

        Return the error messages, one for each damaged image; [] if all images decode.
        """
        chunk_errors = []
        for i in order[start : start + _CHUNK]:
            try:
                images[i] = source.image(i)
            except ValueError as error:
                chunk_errors.append(str(error))
        return chunk_errors

    with futures.ThreadPoolExecutor(workers) as pool:
        try:
            results = pool.map(decode_chunk, starts)
            for start, chunk_errors in zip(starts, results, strict=True):
                damaged += chunk_errors
                progress(min(start + _CHUNK, n), n)
        except BaseException:
            # Else the pool would decode the remaining chunks first.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if damaged:
        got = f"{len(damaged)} of {n} of {source.name} do not, first {damaged[0]}"
        remedy = "replace or remove them, or leave them out by `prepare check --list="
        remedy += "damaged.json` and then skip=damaged.json"
        raise ValueError(f"data.loader: every image must decode, {got}; {remedy}")
    return images


Piece = Mapping[str, np.ndarray]
# Reading processes ignore these signals: the parent handles them.
STOPPING = signals.STOP_SIGNALS


def prefetch(
    read: Callable[[int], Piece], first: int, stop: int, threads: int, workers: int = 0
) -> Iterator[Piece]:
    """Yield read(first), ..., read(stop - 1) in order, reading a few pieces ahead.

    read: index of a piece -> the piece; an error of `read` is raised in place of the piece.
    workers: number of processes with `threads` threads each; 0: threads of this process.
      With workers, `read` is pickled, and a program needs the `if __name__ == "__main__"`
      guard.

    The pieces do not depend on `threads` and `workers`. Closing the iterator stops the reading.
    """
    import grain  # Slow to import, and only streams need it.

    options = grain.ReadOptions(threads, prefetch_buffer_size=2 * threads)
    data = grain.MapDataset.range(first, stop).map(read).to_iter_dataset(options)
    if workers:
        from absl import flags  # The workers read the flags, outside of absl's app.run.

        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        worker_options = grain.MultiprocessingOptions(
            workers, per_worker_buffer_size=2 * threads
        )
        data = data.mp_prefetch(worker_options, worker_init_fn=_set_up_worker)
    iterator = iter(data)
    try:
        with _stop_signals_blocked() if workers else contextlib.nullcontext():
            first_pieces = list(itertools.islice(iterator, 1))  # Starts the workers.
        yield from first_pieces
        yield from iterator
    finally:
        iterator.close()


def _set_up_worker(worker: int, workers: int) -> None:
    """Restrict jax to the CPU in this reading process, and end the process with its parent.

    The process ignores stop signals. grain calls this function and passes the index of this
    worker and the number of workers, which are not used.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:  # Then jax has read the variable already.
        sys.modules["jax"].config.update("jax_platforms", "cpu")
    for number in STOPPING:  # Until now `_stop_signals_blocked` has blocked them.
        signal.signal(number, signal.SIG_IGN)

    def exit_with_parent():
        multiprocessing.parent_process().join()
        os._exit(0)

    threading.Thread(target=exit_with_parent, daemon=True).start()


@contextlib.contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Block stop signals in processes started inside the context.

    A scheduler sends a stop signal to all processes of a job, but the parent needs the workers
    until it has saved. The parent still gets the signal in its other threads.
    """
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        resource_tracker.ensure_running()  # Unblocks some of the signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def choose_resident(sizes: Mapping[str, int], room: float) -> list[str]:
    """Return the names of the data sets to decode into `room` bytes, in the given order.

    Data sets are added while they fit, in the given order or the smallest first. The order that
    fills more bytes is used; the given order if the two orders fill equally many bytes.

    sizes: {name: bytes}.
    """

    def fill(names: Iterable[str]) -> list[str]:
        """Return the names of the sets that fit into `room`; a set that does not fit is skipped."""
        chosen, free = [], room
        for name in names:
            if sizes[name] <= free:
                chosen.append(name)
                free -= sizes[name]
        return chosen

    choices = fill(sizes), fill(sorted(sizes, key=lambda name: sizes[name]))
    fullest = max(choices, key=lambda names: sum(sizes[name] for name in names))
    return [name for name in sizes if name in fullest]


def load_into_memory(
    resident: Sets,
    tested: Sets,
    say: Callable[[str], None],
    *,
    gib: float,
    threads: int,
    sharing: int = 1,
) -> dict[str, UInt8[np.ndarray, "n h w c"]]:
    """Return {name: decoded images} of the data sets that fit into `gib` GiB.

    Training sets must all fit. Test sets are decoded while they fit (`choose_resident`);
    test sets that are already in memory are always returned. The remaining test sets will be
    read again at each evaluation. A progress bar is printed while images are decoded.

    resident: training sets by name. tested: test sets by name. say(line): prints a line. There
    is a line for each data set and, if some test sets are encoded, a line with the number of
    test sets that fit. threads: number of threads that decode.
    sharing: the largest number of processes on a machine; each may use gib / sharing GiB, so
      that all processes of a run decode the same test sets.
    ValueError if the training sets do not fit into `gib` GiB (not divided by `sharing`).
    """
    free = gib * 2**30 - sum(nbytes(source) for source in resident.values())
    if free < 0:
        size = f"data: the training sets take {gib - free / 2**30:.1f} GiB in memory"
        limit = f"more than config.run.loading.gib={gib:g}"
        stream = "stream them from their files (crop=host among the config's arguments"
        smaller = "or in its c.train), or choose a smaller config.size"
        raise ValueError(f"{size}, {limit}; raise it, {stream}, {smaller}")
    process_room = gib * 2**30 / sharing - sum(map(nbytes, resident.values()))
    encoded_sizes = {}  # Bytes of each test set that is still encoded.
    for name, source in tested.items():
        if sources.is_in_memory(source):
            process_room -= nbytes(source)
        else:
            encoded_sizes[name] = nbytes(source)
    decoded_once = choose_resident(encoded_sizes, process_room)
    if encoded_sizes:
        size = sum(encoded_sizes[name] for name in decoded_once) / 2**30
        room = max(0, process_room) / 2**30
        line = (
            f"{len(decoded_once)} of {len(encoded_sizes)} test sets are decoded once and "
            f"kept, {size:.2g} GiB of {room:.2g} GiB that are free for them"
        )
        if sharing > 1:
            line += f" in each process, of which a machine has {sharing} at most"
        say(line)
    resident_tests = {
        name: source
        for name, source in tested.items()
        if name not in encoded_sizes or name in decoded_once
    }
    images = {}
    for name, source in {**resident, **resident_tests}.items():
        with console.progress_bar(f"reading {source.name}", len(source)) as progress:
            images[name] = decode_all(source, workers=threads, progress=progress)
    for name, source in {**resident, **tested}.items():
        note = f" ({source.note})" if source.note else ""
        note += "" if name in images else "; read from its files at each evaluation"
        content = f"{len(source)} images of {source.name}, {source.preprocessing}"
        say(f"{name}: {content}{note}")
    return images


# Images per task of a thread.
PIECE_SIZE = 32


class ReaderOptions(NamedTuple):
    """The threads and processes that read a streamed data set.

    If several processes train together, each process reads its own share of every batch and of
    every window.
    """

    threads: int  # Number of threads of this process, or of each worker.
    workers: int = 0  # Number of reading processes; 0: this process reads.
    part: int = 0  # Index of this process's share, from 0 to parts - 1.
    parts: int = 1  # Number of shares: processes that train together.
    devices: int = 1  # Number of devices of this process.

    def pieces(
        self, read: Callable[[int], Piece], first: int, stop: int
    ) -> Iterator[Piece]:
        """Return an iterator over read(first), ..., read(stop - 1); see `prefetch`."""
        return prefetch(
            read, first, stop=stop, threads=self.threads, workers=self.workers
        )


Rows = slice | Int[np.ndarray, "b"]


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images of a source that are not decoded yet: the images at `index`, in that order."""

    source: base.Source
    index: Int[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), self.source.size, self.source.size, 3

    def __getitem__(self, rows: Rows) -> "EncodedImages":
        return EncodedImages(self.source, self.index[rows])


@dataclasses.dataclass(frozen=True, eq=False)
class LazyImages:
    """Encoded images that act as an array: rows are decoded when indexed, without a cache."""

    images: EncodedImages
    reading: ReaderOptions

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.images.shape

    def __getitem__(self, rows: Rows) -> UInt8[np.ndarray, "b h w 3"]:
        images = self.images[rows]
        return next(batches([images], len(images), self.reading))


Batch = UInt8[np.ndarray, "b h w c"]
Images = UInt8[np.ndarray, "n h w c"] | EncodedImages  # In memory, or in their files.


def batches(
    image_sets: Iterable[Images], batch: int, reading: ReaderOptions
) -> Iterator[Batch]:
    """Yield batches of `batch` images, set after set; the last batch is padded with zeros.

    A batch may have the end of a set and the start of the next set. Every process gets all
    images. If there are no images, there is no batch.
    """
    chunks, missing = [], batch
    for images in image_sets:
        for chunk in _chunks(images, reading):
            while len(chunk):
                chunks.append(chunk[:missing])
                missing, chunk = missing - len(chunks[-1]), chunk[missing:]
                if not missing:
                    yield _join(chunks)
                    chunks, missing = [], batch
    if chunks:
        yield _join([*chunks, np.zeros((missing, *chunks[0].shape[1:]), np.uint8)])


def local_batches(
    image_sets: Sequence[Images], batch: int, reading: ReaderOptions
) -> Iterator[Batch]:
    """Yield this process's share of each batch of `batches`: batch / reading.parts rows.

    The share of process p = reading.part begins at row p * batch / parts. No other rows are
    read; missing rows of the last batch are zeros. batch: rows in all processes, a multiple of
    reading.parts.
    """
    if reading.parts == 1:
        yield from batches(image_sets, batch, reading)
        return
    share, total, local_sets = batch // reading.parts, 0, []
    for images in image_sets:
        row_in_batch = (total + np.arange(len(images))) % batch
        local_sets.append(images[np.flatnonzero(row_in_batch // share == reading.part)])
        total += len(images)
    padding = np.zeros((share, *image_sets[0].shape[1:]), np.uint8)
    local = itertools.chain(
        batches(local_sets, share, reading), itertools.repeat(padding)
    )
    yield from itertools.islice(local, math.ceil(total / batch))


def _chunks(images: Images, reading: ReaderOptions) -> Iterator[Batch]:
    """Yield images in memory as one array, and encoded images decoded in arrays of PIECE_SIZE."""
    if not isinstance(images, EncodedImages):
        yield images
        return

    def read(number: int) -> Piece:
        index = images.index[number * PIECE_SIZE : (number + 1) * PIECE_SIZE]
        return {"image": np.stack([images.source.image(i) for i in index])}

    stop = math.ceil(len(images) / PIECE_SIZE)
    # By threads only: processes would have to be started for every set.
    threads = reading.threads * max(1, reading.workers)
    with contextlib.closing(prefetch(read, 0, stop=stop, threads=threads)) as decoded:
        for piece in decoded:
            yield piece["image"]


def _join(chunks: list[np.ndarray]) -> np.ndarray:
    """Return chunks concatenated; a single chunk is not copied."""
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
