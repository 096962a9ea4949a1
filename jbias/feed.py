"""Batches onto the device: what a step of a seed learns from."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt8

from jbias import order as orders
from jbias.data import spec, stream

Rows = Mapping[str, Any]  # "image" uint8 (n h w c), "label" int32 (n), ...
# Images that one thread decodes one after the other.
PIECE = 32


class Feed(Protocol):
    """What the steps of some seeds learn from; called with ascending steps."""

    order: orders.Order

    def take(self, seed: int, step: int) -> Int[np.ndarray, "b"] | Rows:
        """One seed's batch: places in what is held, or the rows themselves."""

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        """Waits for what is held at a step; False where `halt` said so before."""

    def held(self, step: int) -> Rows:
        """What all seeds draw from at this step, on the device."""

    def until(self, step: int) -> int:
        """The first later step at which another thing is held."""

    def close(self) -> None:
        """Stops what reads ahead."""

    def shapes(self) -> tuple[PyTree, PyTree]:
        """Shapes and types of what `take` and `held` give."""


class Resident(NamedTuple):
    """A set that lives on the device as a whole."""

    order: orders.Order
    rows: Rows

    def take(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        return self.order.index(seed, step)

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        del step, halt
        return True

    def held(self, step: int) -> Rows:
        del step
        return self.rows

    def until(self, step: int) -> int:
        del step
        return orders.NEVER

    def close(self) -> None:
        pass

    def shapes(self) -> tuple[PyTree, PyTree]:
        return places(self.order), jax.eval_shape(lambda: self.rows)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["shape"]
)
@dataclasses.dataclass(frozen=True)
class Flat:
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


def flat(rows: Rows) -> Rows:
    """Rows as they are held on a device."""
    image = rows["image"]
    return {**rows, "image": Flat(image.reshape(len(image), -1), image.shape[1:])}


def places(order: orders.Order) -> jax.ShapeDtypeStruct:
    """Shape and type of a batch of places in what is held."""
    return jax.ShapeDtypeStruct((order.batch,), np.int32)


def longer(rows: Rows, count: int) -> PyTree:
    """Shapes and types of so many rows like these."""
    return {
        name: jax.ShapeDtypeStruct((count, *column.shape[1:]), column.dtype)
        for name, column in rows.items()
    }


class Reading(NamedTuple):
    """Who reads a streamed set: threads, of this process or of `workers` others.

    Where several processes train together, each reads its own share of every batch and
    of every window, the `part`-th of `parts`, for so many devices of its own.
    """

    threads: int
    workers: int = 0
    part: int = 0
    parts: int = 1
    devices: int = 1

    def pieces(
        self, read: Callable[[int], stream.Piece], first: int, stop: int
    ) -> Iterator:
        return stream.pieces(read, first, stop, self.threads, self.workers)


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


@dataclasses.dataclass(frozen=True, eq=False)
class Unread:
    """What `kept` has, as an array: what is asked for is read, and nothing is kept."""

    kept: Kept
    reading: Reading

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        side = self.kept.source.size
        return len(self.kept), side, side, 3

    def __getitem__(
        self, rows: slice | Int[np.ndarray, "b"]
    ) -> UInt8[np.ndarray, "b h w 3"]:
        some = Kept(self.kept.source, self.kept.index[rows])
        return next(batches([some], len(some), self.reading))


class _Pieces(NamedTuple):
    """Reads the pieces of a set, by their number."""

    kept: Kept

    def __call__(self, number: int) -> stream.Piece:
        index = self.kept.index[number * PIECE : (number + 1) * PIECE]
        return {"image": np.stack([self.kept.source.image(i) for i in index])}


def batches(
    several: Iterable[UInt8[np.ndarray, "n h w c"] | Kept], batch: int, reading: Reading
) -> Iterator[UInt8[np.ndarray, "b h w c"]]:
    """Cuts sets, one after the other, into batches of one size; the last one is padded.

    A batch may hold the end of a set and the start of the next. Every process has all.
    """
    held, missing = [], batch
    for images in several:
        for chunk in _chunks(images, reading):
            start = 0
            while start < len(chunk):
                held.append(chunk[start : start + missing])
                start += len(held[-1])
                missing -= len(held[-1])
                if not missing:
                    yield _joined(held)
                    held, missing = [], batch
    if held:
        padding = np.zeros((missing, *held[0].shape[1:]), np.uint8)
        yield _joined([*held, padding])


def shares(
    several: Sequence[UInt8[np.ndarray, "n h w c"] | Kept], batch: int, reading: Reading
) -> Iterator[UInt8[np.ndarray, "b h w c"]]:
    """As `batches`, of each the rows that this process reads; the others' it never sees."""
    if reading.parts == 1:
        yield from batches(several, batch, reading)
        return
    share, first, own = batch // reading.parts, 0, []
    for images in several:
        of_batch = (first + np.arange(len(images))) % batch
        own.append(_rows(images, np.flatnonzero(of_batch // share == reading.part)))
        first += len(images)
    coming, shape = batches(own, share, reading), _shape(several[0])
    for _ in range(-(-first // batch)):
        found = next(coming, None)
        yield np.zeros((share, *shape), np.uint8) if found is None else found


def _rows(images: np.ndarray | Kept, rows: Int[np.ndarray, "m"]) -> np.ndarray | Kept:
    if isinstance(images, Kept):
        return Kept(images.source, images.index[rows])
    return images[rows]


def _shape(images: np.ndarray | Kept) -> tuple[int, ...]:
    if isinstance(images, Kept):
        return (images.source.size, images.source.size, 3)
    return images.shape[1:]


def _chunks(images: np.ndarray | Kept, reading: Reading) -> Iterator[np.ndarray]:
    if not isinstance(images, Kept):
        yield images
        return
    stop, threads = -(-len(images) // PIECE), reading.threads * max(1, reading.workers)
    # By threads alone: processes would be started anew for every set.
    with contextlib.closing(stream.pieces(_Pieces(images), 0, stop, threads)) as coming:
        for piece in coming:
            yield piece["image"]


def _joined(chunks: list[np.ndarray]) -> np.ndarray:
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
