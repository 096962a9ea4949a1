"""Reads sets on the host: whole into memory, or ahead of use, by many threads or processes.

`load_into_memory` decodes as many sets as fit, `decode_all` one (decoders release Python's
lock). `prefetch` makes pieces of a set in order, ahead of their use; `batches` cuts sets that
stay in their files (EncodedImages) into batches of one size, `local_batches` into the rows of
each batch that this process reads.
"""

import contextlib
import dataclasses
import functools
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

from jbias.data import base, sources
from jbias.runtime import console, signals

Sets = Mapping[str, base.Source]
Progress = Callable[[int, int], None]
_CHUNK = 64  # Images a task: progress is told this often.


def nbytes(source: base.Source) -> int:
    """Bytes that the decoded images of a source take, and what comes with them."""
    arrays = sum(array.nbytes for array in source.arrays.values())
    return len(source) * math.prod(source.shape) * 3 + arrays


def decode_all(
    source: base.Source, *, workers: int, progress: Progress = lambda done, total: None
) -> UInt8[np.ndarray, "n h w 3"]:
    """Decodes all images, in order, with `workers` threads.

    progress(done, total) is called in the caller's thread. Raises one ValueError that
    counts all unreadable images and names the first.
    """
    base.check_whole("data.loader: workers", workers, 1)
    n = len(source)
    if sources.in_memory(source):
        progress(n, n)
        return source.images
    images, damaged = np.empty((n, source.size, source.size, 3), np.uint8), []
    order, starts = source.store.order(), range(0, n, _CHUNK)
    with futures.ThreadPoolExecutor(workers) as pool:
        fill = functools.partial(_fill, source, images, order)
        try:
            for start, found in zip(starts, pool.map(fill, starts), strict=True):
                damaged += found
                progress(min(start + _CHUNK, n), n)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Else it decodes them all.
            raise
    if damaged:
        got = f"{len(damaged)} of {n} of {source.name} do not, first {damaged[0]}"
        remedy = "replace or remove them, or leave them out by `prepare check --list="
        remedy += "damaged.json` and then skip=damaged.json"
        raise ValueError(f"data.loader: every image must decode, {got}; {remedy}")
    return images


def _fill(source, images, order, start) -> list[str]:
    """Decodes one chunk into place; returns what is wrong with the unreadable ones."""
    damaged = []
    for i in order[start : start + _CHUNK]:
        try:
            images[i] = source.image(i)
        except ValueError as error:
            damaged.append(str(error))
    return damaged


Piece = Mapping[str, np.ndarray]
STOPPING = signals.STOP_SIGNALS  # The parent's affair.


def prefetch(
    read: Callable[[int], Piece], first: int, stop: int, threads: int, workers: int = 0
) -> Iterator[Piece]:
    """Yields read(first), ..., read(stop - 1), a few of them made ahead.

    What comes depends on `read` alone, however many threads or processes there are.
    With `workers`, that many processes have `threads` threads each; `read` is pickled,
    and a program that uses them needs the `if __name__ == "__main__"` guard. Closing
    the iterator stops them. An error of `read` is raised where its piece would come.
    """
    import grain  # Slow to import, and only streams need it.

    options = grain.ReadOptions(threads, prefetch_buffer_size=2 * threads)
    data = grain.MapDataset.range(first, stop).map(read).to_iter_dataset(options)
    if workers:
        from absl import flags  # The workers read them, outside of absl's app.run.

        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        many = grain.MultiprocessingOptions(workers, per_worker_buffer_size=2 * threads)
        data = data.mp_prefetch(many, worker_init_fn=_settle)
    iterator = iter(data)
    try:
        with _spared() if workers else contextlib.nullcontext():
            several = list(itertools.islice(iterator, 1))  # Begins the workers.
        yield from several
        yield from iterator
    finally:
        iterator.close()


def _settle(worker: int, workers: int) -> None:
    """Makes a worker a good child: it takes no accelerator, and ends with its parent."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:  # Which has read that already.
        sys.modules["jax"].config.update("jax_platforms", "cpu")
    for number in STOPPING:  # Until now `_spared` has held them off.
        signal.signal(number, signal.SIG_IGN)

    def follow():
        multiprocessing.parent_process().join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def _spared() -> Iterator[None]:
    """Processes begun within do not end by what a scheduler sends to all of a job.

    The parent is to save first, with their help; it hears of it by its other threads.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        resource_tracker.ensure_running()  # Which lets some of them in again.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def choose_kept(sizes: Mapping[str, int], room: float) -> list[str]:
    """Return the names of the sets that are kept in so much room.

    In order each set that still fits, or the smallest first: the choice that fills more of
    the room, and in order where both fill the same.

    sizes: bytes of each set, by name. room: bytes.
    """

    def fill(names: Iterable[str]) -> list[str]:
        kept, left = [], room
        for name in names:
            if sizes[name] <= left:
                kept.append(name)
                left -= sizes[name]
        return kept

    choices = fill(sizes), fill(sorted(sizes, key=lambda name: sizes[name]))
    fullest = max(choices, key=lambda kept: sum(sizes[name] for name in kept))
    return [name for name in sizes if name in fullest]


def load_into_memory(
    resident: Sets,
    tested: Sets,
    say: Callable,
    *,
    gib: float,
    threads: int,
    sharing: int = 1,
) -> dict[str, UInt8[np.ndarray, "n h w c"]]:
    """Decodes sets into memory, `gib` at most; with a bar where it takes a while.

    Those to train on must fit. Of those to test on, the ones that still fit (`choose_kept`)
    or are there already; the others will be read anew at each evaluation.

    sharing: the number of processes that share the room for sets to test on, the most of any
      machine, so that all processes of a run keep the same sets.
    """
    left = gib * 2**30 - sum(nbytes(source) for source in resident.values())
    if left < 0:
        takes = f"data: the training sets take {gib - left / 2**30:.1f} GiB in memory"
        most = f"more than config.run.loading.gib={gib:g}"
        stream = "stream them from their files (crop=host among the config's arguments"
        smaller = "or in its c.train), or choose a smaller config.size"
        raise ValueError(f"{takes}, {most}; raise it, {stream}, {smaller}")
    own_room = gib * 2**30 / sharing - sum(map(nbytes, resident.values()))
    encoded = {}  # Bytes of each set that must be decoded.
    for name, source in tested.items():
        if sources.in_memory(source):
            own_room -= nbytes(source)
        else:
            encoded[name] = nbytes(source)
    kept, images = choose_kept(encoded, own_room), {}
    if encoded:
        size = sum(encoded[name] for name in kept) / 2**30
        room = max(0, own_room) / 2**30
        line = (
            f"{len(kept)} of {len(encoded)} test sets are decoded once and kept, "
            f"{size:.2g} GiB of {room:.2g} GiB that are free for them"
        )
        if sharing > 1:
            line += f" in each process, of which a machine has {sharing} at most"
        say(line)
    at_hand = {
        name: x for name, x in tested.items() if name not in encoded or name in kept
    }
    chosen = {**resident, **at_hand}
    for name, source in chosen.items():
        with console.progress_bar(f"reading {source.name}", len(source)) as progress:
            images[name] = decode_all(source, workers=threads, progress=progress)
    for name, source in {**resident, **tested}.items():
        note = f" ({source.note})" if source.note else ""
        note += "" if name in images else "; read from its files at each evaluation"
        what = f"{len(source)} images of {source.name}, {source.preprocessing}"
        say(f"{name}: {what}{note}")
    return images


# Images that one thread decodes one after the other.
PIECE_SIZE = 32


class ReaderOptions(NamedTuple):
    """Who reads a streamed set: threads, of this process or of `workers` others.

    Where several processes train together, each reads its own share of every batch and
    of every window, the `part`-th of `parts`, for so many devices of its own.
    """

    threads: int
    workers: int = 0
    part: int = 0
    parts: int = 1
    devices: int = 1

    def pieces(self, read: Callable[[int], Piece], first: int, stop: int) -> Iterator:
        return prefetch(read, first, stop, self.threads, self.workers)


Rows = slice | Int[np.ndarray, "b"]


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images of a set that stay in its files."""

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
    """Encoded images as an array: rows are read when indexed, and none is cached."""

    images: EncodedImages
    reading: ReaderOptions

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.images.shape

    def __getitem__(self, rows: Rows) -> UInt8[np.ndarray, "b h w 3"]:
        some = self.images[rows]
        return next(batches([some], len(some), self.reading))


Batch = UInt8[np.ndarray, "b h w c"]
Images = UInt8[np.ndarray, "n h w c"] | EncodedImages  # In memory, or in their files.


def batches(
    several: Iterable[Images], batch: int, reading: ReaderOptions
) -> Iterator[Batch]:
    """Cuts sets, one after the other, into batches of one size; the last one is padded.

    A batch may hold the end of a set and the start of the next. Every process has all.
    """
    held, missing = [], batch
    for images in several:
        for chunk in _chunks(images, reading):
            while len(chunk):
                held.append(chunk[:missing])
                missing, chunk = missing - len(held[-1]), chunk[missing:]
                if not missing:
                    yield _joined(held)
                    held, missing = [], batch
    if held:
        yield _joined([*held, np.zeros((missing, *held[0].shape[1:]), np.uint8)])


def local_batches(
    several: Sequence[Images], batch: int, reading: ReaderOptions
) -> Iterator[Batch]:
    """As `batches`, of each the rows that this process reads; the others' it never sees."""
    if reading.parts == 1:
        yield from batches(several, batch, reading)
        return
    share, first, own = batch // reading.parts, 0, []
    for images in several:
        of_batch = (first + np.arange(len(images))) % batch
        own.append(images[np.flatnonzero(of_batch // share == reading.part)])
        first += len(images)
    nothing = np.zeros((share, *several[0].shape[1:]), np.uint8)
    coming = itertools.chain(batches(own, share, reading), itertools.repeat(nothing))
    yield from itertools.islice(coming, -(-first // batch))


def _chunks(images, reading) -> Iterator[np.ndarray]:
    if not isinstance(images, EncodedImages):
        yield images
        return

    def read(number: int) -> Piece:
        index = images.index[number * PIECE_SIZE : (number + 1) * PIECE_SIZE]
        return {"image": np.stack([images.source.image(i) for i in index])}

    stop = -(-len(images) // PIECE_SIZE)
    threads = reading.threads * max(1, reading.workers)
    # By threads alone: processes would be started anew for every set.
    with contextlib.closing(prefetch(read, 0, stop, threads)) as coming:
        for piece in coming:
            yield piece["image"]


def _joined(chunks: list[np.ndarray]) -> np.ndarray:
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
