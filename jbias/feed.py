"""Batches onto the device: what a step of a seed learns from."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt8

from jbias import order as orders

Rows = Mapping[str, Any]  # "image" uint8 (n h w c), "label" int32 (n), ...


class Feed(Protocol):
    """What the steps of some seeds learn from; called with ascending steps."""

    order: orders.Order

    def batch(self, seed: int, step: int) -> Int[np.ndarray, "b"] | Rows:
        """One seed's batch: places in what is held, or the rows themselves."""

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        """Waits for what is held at a step; False where `halt` said so before."""

    def shared(self, step: int) -> Rows:
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

    def batch(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        return self.order.index(seed, step)

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        del step, halt
        return True

    def shared(self, step: int) -> Rows:
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
