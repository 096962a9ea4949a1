"""Batches onto the device: each seed's own order over a set that lives there."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from jbias import seeds

Resident = Mapping[str, Array]  # "image" uint8 (n h w c), "label" int32 (n), ...


@dataclasses.dataclass(frozen=True)
class Order:
    """Which examples a seed sees at a step: a function of (seed, step) alone.

    Each epoch is one permutation; the examples beyond a whole number of batches are
    left out of that epoch.
    """

    examples: int
    batch: int
    stream: str = "order"

    def __post_init__(self):
        if not 0 < self.batch <= self.examples:
            raise ValueError(
                f"must be 1 to {self.examples}, the training examples, got {self.batch}"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch
        order = _permutation(seed, self.stream, epoch, self.examples)
        return order[start : start + self.batch]


@dataclasses.dataclass(frozen=True)
class Shares:
    """Batches with a fixed share of each of several sets, which lie one after another.

    Each set has an order of its own. Its examples are spread evenly over the batch, so
    that every group of neighbours has the shares, too. An epoch is one of the first.
    """

    orders: tuple[Order, ...]

    @classmethod
    def of(
        cls, counts: Sequence[int], shares: Sequence[float], batch: int, stream: str
    ) -> "Shares":
        """Splits the batch; ValueError where the shares do not give whole numbers."""
        parts = [batch * share for share in shares]
        if (
            len(shares) != len(counts)
            or abs(sum(shares) - 1) > 1e-6
            or min(parts) <= 0
            or max(abs(part - round(part)) for part in parts) > 1e-3
        ):
            raise ValueError(
                f"shares must be {len(counts)} positive numbers, one a set, that sum to "
                f"1 and make whole numbers of {batch} examples, got {tuple(shares)}"
            )
        return cls(
            tuple(
                Order(n, round(part), f"{stream}/source/{i}" if i else stream)
                for i, (n, part) in enumerate(zip(counts, parts))
            )
        )

    @property
    def batch(self) -> int:
        return sum(order.batch for order in self.orders)

    @property
    def steps_per_epoch(self) -> int:
        return self.orders[0].steps_per_epoch

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch."""
        first, parts, places = 0, [], []
        for order in self.orders:
            parts.append(order.index(seed, step) + first)
            places.append((np.arange(order.batch) + 0.5) / order.batch)
            first += order.examples
        spread = np.argsort(np.concatenate(places), kind="stable")
        return np.concatenate(parts)[spread]


# Large enough for every seed's current epoch; an entry is four bytes an example.
@functools.lru_cache(maxsize=64)
def _permutation(seed: int, stream: str, epoch: int, n: int) -> Int[np.ndarray, "n"]:
    key = jax.random.fold_in(seeds.stream(seeds.key(seed), stream), epoch)
    return np.asarray(_shuffled(key, n))


@functools.partial(jax.jit, static_argnums=1)
def _shuffled(key: PRNGKeyArray, n: int) -> Int[Array, "n"]:
    return jax.random.permutation(key, n).astype(jnp.int32)


def resident(images: UInt8[np.ndarray, "n h w c"], columns: Mapping) -> Resident:
    """Collects a set's arrays; `columns` holds "label" and whatever else is known."""
    return {"image": images, **columns}


def gather(
    data: Resident, index: Int[Array, "b"], classes: int | None
) -> dict[str, Array]:
    """Makes the batch of these examples, on the device.

    Returns "image" in [0, 1], "index", each further column under its own name, and
    "target" one-hot, unless `classes` is None.
    """
    batch = {name: column[index] for name, column in data.items()}
    batch["image"] = batch["image"].astype(jnp.float32) / 255
    batch["index"] = index
    if classes is not None:
        batch["target"] = jax.nn.one_hot(batch.pop("label"), classes)
    return batch


def padded(n: int, batch: int) -> Sequence[Int[np.ndarray, "b"]]:
    """Cuts 0..n-1 into batches of one size; the last one is padded with example 0."""
    index = np.zeros(-(-n // batch) * batch, np.int64)
    index[:n] = np.arange(n)
    return np.split(index, len(index) // batch)
