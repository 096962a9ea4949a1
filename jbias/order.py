"""Which examples a seed sees at a step: a function of (seed, step) alone."""

import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jbias import seeds

NEVER = 1 << 62


class Order(Protocol):
    """The examples of every batch, by their numbers in what is held at that step."""

    batch: int  # Examples.
    period: int  # So many neighbours in a batch have the shares of all sets.
    steps_per_epoch: int
    span: int  # How many examples are held at once.

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch."""

    def windows(self, step: int) -> tuple[int, ...]:
        """Numbers what is held at a step, a number for each set."""

    def until(self, step: int) -> int:
        """The first later step at which another thing is held."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """All examples are held, and each seed has an order of its own over them.

    Each epoch is one permutation; the examples beyond a whole number of batches are
    left out of that epoch.
    """

    examples: int
    batch: int
    stream: str = "order"
    period = 1

    def __post_init__(self):
        if not 0 < self.batch <= self.examples:
            raise ValueError(
                f"must be 1 to {self.examples}, the training examples, got {self.batch}"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch

    @property
    def span(self) -> int:
        return self.examples

    def windows(self, step: int) -> tuple[int, ...]:
        del step
        return (0,)

    def until(self, step: int) -> int:
        del step
        return NEVER

    def members(self, window: int) -> Int[np.ndarray, "n"]:
        """All examples."""
        del window
        return np.arange(self.examples)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch
        order = permutation(seed, self.stream, epoch, self.examples)
        return order[start : start + self.batch]


@dataclasses.dataclass(frozen=True)
class Windows:
    """Seeds share one stream of examples, and each has an order of its own in a window.

    An epoch is one permutation for all seeds, cut into windows of `steps` batches, of
    which one at a time is held; each seed permutes every window by itself. Two seeds
    see an example in the same window of an epoch, at places independent in it: with
    one window to an epoch their orders are independent, and with k windows the places
    in the epoch correlate as 1 - 1 / k^2.
    """

    examples: int
    batch: int
    steps: int
    stream: str = "order"
    period = 1

    def __post_init__(self):
        Whole(self.examples, self.batch)
        if self.steps < 1:
            raise ValueError(f"a window must have 1 batch or more, got {self.steps}")

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch

    @property
    def per_epoch(self) -> int:
        """Windows in an epoch; the last may be shorter."""
        return -(-self.steps_per_epoch // self.steps)

    @property
    def span(self) -> int:
        return self.steps * self.batch

    def windows(self, step: int) -> tuple[int, ...]:
        epoch, position = divmod(step, self.steps_per_epoch)
        return (epoch * self.per_epoch + position // self.steps,)

    def until(self, step: int) -> int:
        epoch, position = divmod(step, self.steps_per_epoch)
        end = (position // self.steps + 1) * self.steps
        return epoch * self.steps_per_epoch + min(end, self.steps_per_epoch)

    def members(self, window: int) -> Int[np.ndarray, "w"]:
        """The examples of a window, by their numbers in the set."""
        epoch, number = divmod(window, self.per_epoch)
        start = number * self.steps * self.batch
        stop = min(start + self.steps * self.batch, self.steps_per_epoch * self.batch)
        return permutation(0, f"window/{self.stream}", epoch, self.examples)[start:stop]

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch, by their places in the window."""
        (window,) = self.windows(step)
        start = step % self.steps_per_epoch % self.steps * self.batch
        order = permutation(seed, self.stream, window, len(self.members(window)))
        return order[start : start + self.batch]


@dataclasses.dataclass(frozen=True)
class Shares:
    """Batches with a fixed share of each of several sets, which lie one after another.

    Each set has an order of its own. Its examples are spread evenly over the batch, so
    that every group of neighbours has the shares, too. An epoch is one of the first.
    """

    orders: tuple[Order, ...]  # Whole, or Windows.

    @classmethod
    def from_shares(
        cls,
        counts: Sequence[int],
        shares: Sequence[float],
        batch: int,
        stream: str,
        *,
        steps: int | None = None,
    ) -> "Shares":
        """Splits the batch; ValueError where the shares do not give whole numbers.

        With `steps` each set is held by windows of so many batches.
        """
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
                make(n, round(part), steps, f"{stream}/source/{i}" if i else stream)
                for i, (n, part) in enumerate(zip(counts, parts))
            )
        )

    @property
    def batch(self) -> int:
        return sum(order.batch for order in self.orders)

    @property
    def period(self) -> int:
        return self.batch // math.gcd(*(order.batch for order in self.orders))

    @property
    def span(self) -> int:
        return sum(order.span for order in self.orders)

    @property
    def steps_per_epoch(self) -> int:
        return self.orders[0].steps_per_epoch

    def windows(self, step: int) -> tuple[int, ...]:
        return tuple(number for order in self.orders for number in order.windows(step))

    def until(self, step: int) -> int:
        return min(order.until(step) for order in self.orders)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch."""
        first, parts, places = 0, [], []
        for order in self.orders:
            parts.append(order.index(seed, step) + first)
            places.append((np.arange(order.batch) + 0.5) / order.batch)
            first += order.span
        spread = np.argsort(np.concatenate(places), kind="stable")
        return np.concatenate(parts)[spread]


def make(examples: int, batch: int, steps: int | None, stream: str) -> Order:
    """An order over one set, by windows of about `steps` batches if that is not all.

    Windows are equal, but for a last one that may have a few batches less.
    """
    whole = Whole(examples, batch, stream)
    if steps is None or steps * batch >= examples:
        return whole
    windows = -(-whole.steps_per_epoch // steps)
    even = -(-whole.steps_per_epoch // windows)
    return Windows(examples, batch, even, stream)


def permutation(seed: int, stream: str, epoch: int, n: int) -> Int[np.ndarray, "n"]:
    """A seed's random order of n examples in an epoch, by the name of its stream."""
    return _permutations(seed, stream, n)(epoch)


@functools.cache
def _permutations(
    seed: int, stream: str, n: int
) -> Callable[[int], Int[np.ndarray, "n"]]:
    """Permutations by epoch, of which two are kept: four bytes an example each."""
    root, lock = seeds.stream(seeds.key(seed), stream), threading.Lock()

    @functools.lru_cache(maxsize=2)
    def drawn(epoch):
        return np.asarray(_shuffled(jax.random.fold_in(root, epoch), n))

    def of(epoch):
        with lock:  # Threads that read ahead all ask for it at once.
            return drawn(epoch)

    return of


@functools.partial(jax.jit, static_argnums=1)
def _shuffled(key: PRNGKeyArray, n: int) -> Int[Array, "n"]:
    return jax.random.permutation(key, n).astype(jnp.int32)
