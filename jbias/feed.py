"""Batches onto the device: what a step of a seed learns from."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt8

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

    def pieces(self, read: Callable[[int], Rows], first: int, stop: int) -> Iterator:
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
    """Cuts a set into batches of one size, in order; the last one is padded.

    Every process has all of them.
    """
    if not isinstance(images, Kept):
        for start in range(0, len(images), batch):
            yield _padded(images[start : start + batch], batch)
        return
    pieces = _KeptPieces(images, batch)
    stop = -(-len(images) // batch) * pieces.a_batch
    # By threads alone: processes would be started anew for every set.
    coming = stream.pieces(pieces, 0, stop, reading.threads * max(1, reading.workers))
    with contextlib.closing(coming):
        while several := [*itertools.islice(coming, pieces.a_batch)]:
            filled = [one["image"] for one in several if one]
            yield _padded(np.concatenate(filled), batch)


def _padded(images: np.ndarray, batch: int) -> np.ndarray:
    missing = batch - len(images)
    if not missing:
        return images
    return np.concatenate([images, np.zeros((missing, *images.shape[1:]), np.uint8)])
