"""Batches onto the device: of sets that live there, and of sets that stream."""

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from jbias import order as orders
from jbias.data import spec, stream

Rows = Mapping[str, Array]  # "image" uint8 (n h w c), "label" int32 (n), ...
# Images that one thread decodes one after the other.
PIECE = 32


class Feed(Protocol):
    """What the steps of some seeds learn from; called with ascending steps."""

    order: orders.Order

    def take(self, seed: int, step: int) -> Int[np.ndarray, "b"] | Rows:
        """One seed's batch: places in what is held, or the rows themselves."""

    def held(self, step: int) -> Rows:
        """What all seeds draw from at this step, on the device."""

    def until(self, step: int) -> int:
        """The first later step at which another thing is held."""

    def close(self) -> None:
        """Stops what reads ahead."""


class Resident(NamedTuple):
    """A set that lives on the device as a whole."""

    order: orders.Order
    rows: Rows

    def take(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        return self.order.index(seed, step)

    def held(self, step: int) -> Rows:
        del step
        return self.rows

    def until(self, step: int) -> int:
        del step
        return orders.NEVER

    def close(self) -> None:
        pass


class Reading(NamedTuple):
    """Who reads a streamed set: threads, of this process or of `workers` others.

    Where several processes train together, each reads its own share of every batch and
    of every window: the `part`-th of `parts`.
    """

    threads: int
    workers: int = 0
    part: int = 0
    parts: int = 1

    def pieces(self, read: Callable[[int], Rows], first: int, stop: int) -> Iterator:
        return stream.pieces(read, first, stop, self.threads, self.workers)


class Streamed:
    """Rows for each seed, read from the set's files in the seed's own order.

    read(step, seed, rows) -> Rows gives rows of one batch, wherever it runs.
    """

    def __init__(
        self,
        order: orders.Order,
        read: Callable[[int, int, slice], Rows],
        seeds: Sequence[int],
        steps: int,
        reading: Reading,
        place: Callable[[Rows], Rows],
    ):
        self.order, self._steps, self._place = order, steps, place
        self._reading = reading
        self._pieces = Batches(read, tuple(seeds), order.batch, *reading[2:])
        self._next, self._coming = None, None

    def take(self, seed: int, step: int) -> Rows:
        number = self._pieces.number(step, seed)
        if number != self._next:
            self.close()
            stop = self._steps * self._pieces.a_step
            self._coming = self._reading.pieces(self._pieces, number, stop)
        several = [next(self._coming) for _ in range(self._pieces.a_batch)]
        self._next = number + self._pieces.a_batch
        return self._place(_joined(several))

    def held(self, step: int) -> Rows:
        del step
        return {}

    def until(self, step: int) -> int:
        del step
        return orders.NEVER

    def close(self) -> None:
        if self._coming is not None:
            self._coming.close()
        self._next = self._coming = None


class Batches(NamedTuple):
    """Numbers the pieces of a part of all batches: by step, then seed, then place."""

    read: Callable[[int, int, slice], Rows]
    seeds: tuple[int, ...]
    batch: int
    part: int = 0
    parts: int = 1

    @property
    def a_batch(self) -> int:
        return -(-self.batch // self.parts // PIECE)

    @property
    def a_step(self) -> int:
        return self.a_batch * len(self.seeds)

    def number(self, step: int, seed: int) -> int:
        """The first piece of a batch."""
        return step * self.a_step + self.seeds.index(seed) * self.a_batch

    def __call__(self, number: int) -> Rows:
        step, rest = divmod(number, self.a_step)
        seed, piece = divmod(rest, self.a_batch)
        share = self.batch // self.parts
        first, stop = piece * PIECE, min((piece + 1) * PIECE, share)
        rows = slice(self.part * share + first, self.part * share + stop)
        return self.read(step, self.seeds[seed], rows)


class Windowed:
    """A window of a set on the device, which all seeds share, and the next under way.

    Each set of the order has its own windows; read[i](members) -> Rows gives rows of
    set i. Two windows at most are on the device, and two in the host's memory.
    """

    def __init__(
        self,
        order: orders.Order,
        read: Sequence[Callable[[Int[np.ndarray, "m"]], Rows]],
        steps: int,
        reading: Reading,
        place: Callable[[Rows], Rows],
    ):
        self.order, self._place = order, place
        parts = order.orders if isinstance(order, orders.Shares) else (order,)
        last = order.held(steps - 1)
        self._parts = [
            _Windows(WindowPieces(*pair, *reading[2:]), number + 1, reading)
            for *pair, number in zip(read, parts, last, strict=True)
        ]
        self._numbers, self._held = None, None

    def take(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        return self.order.index(seed, step)

    def held(self, step: int) -> Rows:
        numbers = self.order.held(step)
        if numbers != self._numbers:
            self._held = None  # Its memory is free once the steps under way are done.
            placed = []
            for part, number in zip(self._parts, numbers):
                rows = self._place(part.rows(number))
                placed.append({k: x[: part.span] for k, x in rows.items()})
            self._held = _joined(placed, jnp.concatenate)
            self._numbers = numbers
        return self._held

    def until(self, step: int) -> int:
        return self.order.until(step)

    def close(self) -> None:
        self._numbers = self._held = None
        for part in self._parts:
            part.close()


class WindowPieces(NamedTuple):
    """Numbers the pieces of a part of all windows of one set."""

    read: Callable[[Int[np.ndarray, "m"]], Rows]
    order: orders.Whole | orders.Windows
    part: int = 0
    parts: int = 1

    @property
    def share(self) -> int:
        """Rows of a window that this part reads."""
        return -(-self.order.span // self.parts)

    @property
    def a_window(self) -> int:
        return -(-self.share // PIECE)

    def __call__(self, number: int) -> Rows:
        window, piece = divmod(number, self.a_window)
        first = self.part * self.share
        members = self.order.members(window)[first : first + self.share]
        return self.read(members[piece * PIECE : (piece + 1) * PIECE])


class _Windows:
    """The windows of one set, one after the other, each read while one is used."""

    def __init__(self, pieces: WindowPieces, stop: int, reading: Reading):
        self._pieces, self._stop, self._reading = pieces, stop, reading
        self._pool = futures.ThreadPoolExecutor(1, "window")
        self._number, self._rows = None, None
        self._coming, self._future, self._closed = None, None, threading.Event()

    @property
    def span(self) -> int:
        """Rows of a window, all parts together."""
        return self._pieces.order.span

    def rows(self, number: int) -> Rows:
        """The rows of a window, with as many rows as any other."""
        if number != self._number:
            if self._number is None or number != self._number + 1:
                self._begin(number)
            self._rows, self._number = self._future.result(), number
            self._future = self._pool.submit(next, self._coming, None)
        return self._rows

    def _begin(self, number: int) -> None:
        self.close()
        self._closed.clear()
        self._coming = self._read(number)
        self._future = self._pool.submit(next, self._coming)

    def _read(self, first: int) -> Iterator[Rows]:
        a_window, share = self._pieces.a_window, self._pieces.share
        coming = self._reading.pieces(
            self._pieces, first * a_window, self._stop * a_window
        )
        with contextlib.closing(coming):
            for _ in range(first, self._stop):
                rows, done = {}, 0
                for piece in itertools.islice(coming, a_window):
                    if self._closed.is_set():
                        return
                    done = _fill(rows, piece, done, share)
                yield rows

    def close(self) -> None:
        self._closed.set()
        if self._future is not None:
            futures.wait([self._future])
            self._coming.close()
        self._number = self._rows = self._coming = self._future = None


def _fill(rows: dict[str, np.ndarray], piece: Rows, done: int, share: int) -> int:
    """Puts a piece into its place; what no piece fills stays zero."""
    for name, column in piece.items():
        if name not in rows:
            rows[name] = np.zeros((share, *column.shape[1:]), column.dtype)
        rows[name][done : done + len(column)] = column
    return done + len(piece["image"])


def _joined(several: Sequence[Rows], join: Callable = np.concatenate) -> Rows:
    if len(several) == 1:
        return several[0]
    return {k: join([one[k] for one in several]) for k in several[0]}


def gather(
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


@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
    """Images of a set that stay in its files."""

    source: spec.Source
    index: Int[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.index)


class _KeptPieces(NamedTuple):
    """Numbers the pieces of a set in its order."""

    kept: Kept
    batch: int

    @property
    def a_batch(self) -> int:
        return -(-self.batch // PIECE)

    def __call__(self, number: int) -> Rows:
        batch, piece = divmod(number, self.a_batch)
        first = batch * self.batch + piece * PIECE
        stop = min(first + PIECE, (batch + 1) * self.batch)
        images = [self.kept.source.image(i) for i in self.kept.index[first:stop]]
        return {"image": np.stack(images)} if images else {}


def batches(
    images: UInt8[np.ndarray, "n h w c"] | Kept, batch: int, reading: Reading
) -> Iterator[UInt8[np.ndarray, "b h w c"]]:
    """Cuts a set into batches of one size, in order; the last one is padded."""
    if not isinstance(images, Kept):
        for start in range(0, len(images), batch):
            yield _padded(images[start : start + batch], batch)
        return
    pieces = _KeptPieces(images, batch)
    stop = -(-len(images) // batch) * pieces.a_batch
    with contextlib.closing(reading.pieces(pieces, 0, stop)) as coming:
        while several := [*itertools.islice(coming, pieces.a_batch)]:
            filled = [one["image"] for one in several if one]
            yield _padded(np.concatenate(filled), batch)


def _padded(images: np.ndarray, batch: int) -> np.ndarray:
    missing = batch - len(images)
    if not missing:
        return images
    return np.concatenate([images, np.zeros((missing, *images.shape[1:]), np.uint8)])
