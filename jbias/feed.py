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


def gather(data: Resident, index: Int[Array, "b"], classes: int) -> dict[str, Array]:
    """Makes the batch of these examples, on the device.

    Returns "image" in [0, 1], "target" one-hot, "index", and each further column
    under its own name.
    """
    batch = {name: column[index] for name, column in data.items()}
    label = batch.pop("label")
    return {
        **batch,
        "image": batch["image"].astype(jnp.float32) / 255,
        "target": jax.nn.one_hot(label, classes),
        "index": index,
    }


def padded(n: int, batch: int) -> Sequence[Int[np.ndarray, "b"]]:
    """Cuts 0..n-1 into batches of one size; the last one is padded with example 0."""
    index = np.zeros(-(-n // batch) * batch, np.int64)
    index[:n] = np.arange(n)
    return np.split(index, len(index) // batch)
