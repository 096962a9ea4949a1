"""Sets that stream from their files: rows for each seed, or a window for all."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from jbias import feed
from jbias import order as orders
from jbias.data import loader


class Streamed:
    """Rows for each seed, read from the set's files in the seed's own order.

    read(step, seed, rows) -> feed.Rows gives rows of one batch, wherever it runs.
    """

    def __init__(
        self,
        order: orders.Order,
        read: Callable[[int, int, slice], feed.Rows],
        seeds: Sequence[int],
        steps: int,
        reading: loader.ReaderOptions,
        place: Callable[[feed.Rows], feed.Rows] | None,
    ):
        self.order, self.read, self._steps = order, read, steps
        self._place, self._reading = place, reading
        self._pieces = Batches(
            read, tuple(seeds), order.batch, part=reading.part, parts=reading.parts
        )
        self._next, self._coming = None, None

    def batch(self, seed: int, step: int) -> feed.Rows:
        number = self._pieces.number(step, seed)
        if number != self._next:
            self.close()
            stop = self._steps * self._pieces.a_step
            self._coming = self._reading.pieces(self._pieces, number, stop)
        several = [next(self._coming) for _ in range(self._pieces.a_batch)]
        self._next = number + self._pieces.a_batch
        rows = _joined(several)
        return self._place(rows) if self._place else rows

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        del step, halt
        return True

    def shared(self, step: int) -> feed.Rows:
        del step
        return {}

    def until(self, step: int) -> int:
        del step
        return orders.NEVER

    def shapes(self) -> tuple[PyTree, PyTree]:
        first = self.read(0, self._pieces.seeds[0], slice(0, 1))
        return feed.longer(first, self.order.batch), {}

    def close(self) -> None:
        if self._coming is not None:
            self._coming.close()
        self._next = self._coming = None


class Batches(NamedTuple):
    """Numbers the pieces of a part of all batches: by step, then seed, then place."""

    read: Callable[[int, int, slice], feed.Rows]
    seeds: tuple[int, ...]
    batch: int
    part: int = 0
    parts: int = 1

    @property
    def a_batch(self) -> int:
        return -(-self.batch // self.parts // loader.PIECE_SIZE)

    @property
    def a_step(self) -> int:
        return self.a_batch * len(self.seeds)

    def number(self, step: int, seed: int) -> int:
        """The first piece of a batch."""
        return step * self.a_step + self.seeds.index(seed) * self.a_batch

    def __call__(self, number: int) -> feed.Rows:
        step, rest = divmod(number, self.a_step)
        seed, piece = divmod(rest, self.a_batch)
        share = self.batch // self.parts
        first, stop = (
            piece * loader.PIECE_SIZE,
            min((piece + 1) * loader.PIECE_SIZE, share),
        )
        rows = slice(self.part * share + first, self.part * share + stop)
        return self.read(step, self.seeds[seed], rows)


class Windowed:
    """A window of a set on the device, which all seeds share, and the next under way.

    Each set of the order has its own windows; read[i](members) -> feed.Rows gives rows
    of set i. Two windows at most are on the device and two in the host's memory; three
    where there are several sets and processes.
    """

    def __init__(
        self,
        order: orders.Order,
        read: Sequence[Callable[[Int[np.ndarray, "m"]], feed.Rows]],
        steps: int,
        reading: loader.ReaderOptions,
        place: Callable[[feed.Rows], feed.Rows],
    ):
        self.order, self._place, self._alone = order, place, reading.parts == 1
        parts = order.orders if isinstance(order, orders.Shares) else (order,)
        last = order.windows(steps - 1)
        self._parts = [
            _Windows(
                WindowPieces(*pair, reading.part, reading.parts, reading.devices),
                number + 1,
                reading,
            )
            for *pair, number in zip(read, parts, last, strict=True)
        ]
        self._numbers, self._held = None, None

    def batch(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        return self.order.index(seed, step)

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        numbers = self.order.windows(step)
        return numbers == self._numbers or all(
            part.ready(number, halt) for part, number in zip(self._parts, numbers)
        )

    def shared(self, step: int) -> feed.Rows:
        numbers = self.order.windows(step)
        if numbers != self._numbers:
            self._held = None  # Its memory is free once the steps under way are done.
            rows = [part.rows(number) for part, number in zip(self._parts, numbers)]
            if self._alone:
                self._held = self._place(feed.flat(_joined(rows)))
            else:
                placed = [
                    jax.tree.map(
                        lambda x, n=part.span: x[:n], self._place(feed.flat(one))
                    )
                    for part, one in zip(self._parts, rows)
                ]
                self._held = _joined(placed, jnp.concatenate)
            self._numbers = numbers
        return self._held

    def until(self, step: int) -> int:
        return self.order.until(step)

    def shapes(self) -> tuple[PyTree, PyTree]:
        pieces = self._parts[0].pieces
        first = pieces.read(pieces.order.members(0)[:1])
        held = feed.longer(first, self.order.span)
        return feed.places(self.order), jax.eval_shape(feed.flat, held)

    def close(self) -> None:
        self._numbers = self._held = None
        for part in self._parts:
            part.close()


class WindowPieces(NamedTuple):
    """Numbers the pieces of a part of all windows of one set."""

    read: Callable[[Int[np.ndarray, "m"]], feed.Rows]
    order: orders.Whole | orders.Windows
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
    def a_window(self) -> int:
        return -(-self.share // loader.PIECE_SIZE)

    def __call__(self, number: int) -> feed.Rows:
        window, piece = divmod(number, self.a_window)
        first = self.part * self.share
        members = self.order.members(window)[first : first + self.share]
        return self.read(
            members[piece * loader.PIECE_SIZE : (piece + 1) * loader.PIECE_SIZE]
        )


class _Windows:
    """The windows of one set, one after the other, each read while one is used."""

    def __init__(self, pieces: WindowPieces, stop: int, reading: loader.ReaderOptions):
        self.pieces, self._stop, self._reading = pieces, stop, reading
        self._pool = futures.ThreadPoolExecutor(1, "window")
        self._number, self._rows = None, None
        self._coming, self._future, self._next = None, None, None
        self._closed = threading.Event()

    @property
    def span(self) -> int:
        """Rows of a window, all parts together."""
        return self.pieces.order.span

    def rows(self, number: int) -> feed.Rows:
        """The rows of a window, with as many rows as any other."""
        if number != self._number:
            self.ready(number, lambda: False)
            self._rows, self._number = self._future.result(), number
            self._future = self._pool.submit(next, self._coming, None)
            self._next = number + 1
        return self._rows

    def ready(self, number: int, halt: Callable[[], bool]) -> bool:
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

    def _read(self, first: int) -> Iterator[feed.Rows]:
        a_window, share = self.pieces.a_window, self.pieces.share
        coming = self._reading.pieces(
            self.pieces, first * a_window, self._stop * a_window
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
        self._number = self._rows = None
        self._coming = self._future = self._next = None


def _fill(rows: dict[str, np.ndarray], piece: feed.Rows, done: int, share: int) -> int:
    """Puts a piece into its place; what no piece fills stays zero."""
    for name, column in piece.items():
        if name not in rows:
            rows[name] = np.zeros((share, *column.shape[1:]), column.dtype)
        rows[name][done : done + len(column)] = column
    return done + len(piece["image"])


def _joined(several: Sequence[feed.Rows], join: Callable = np.concatenate) -> feed.Rows:
    if len(several) == 1:
        return several[0]
    return jax.tree.map(lambda *columns: join(columns), *several)
