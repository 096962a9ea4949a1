"""Samplers: choose the examples of each batch, as a function of the seed and the step only.

`EpochSampler` permutes a whole set each epoch, `WindowSampler` one window at a time. Batches
of a `MixtureSampler` have a fixed share of each of several sets. Batches of a
`BalancedSampler` have equal shares of all groups of examples, even if the groups have
different sizes. `PairedSampler` draws examples of a second set with the classes of a batch of
the first set.
"""

import abc
import dataclasses
import functools
import math
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jbias.training import prng

NEVER = 1 << 62  # A step after the last step of any run.


class Sampler(abc.ABC):
    """The order in which each seed draws examples, as indices of the examples in memory.

    By default all examples are in memory during all steps.
    """

    batch: int  # Examples per batch.
    span: int  # Number of examples in memory at a time.
    # Number of consecutive examples of a batch in which every set or group has its share.
    period = 1

    @property
    def steps_per_epoch(self) -> int:
        """Number of complete batches in an epoch."""
        return self.span // self.batch

    @abc.abstractmethod
    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """Return the indices of a batch's examples among the examples in memory."""

    def windows(self, step: int) -> tuple[int, ...]:
        """Return the numbers of the windows that are in memory at a step, one per set."""
        return (0,)

    def next_change(self, step: int) -> int:
        """Return the first step after `step` that changes the examples in memory, or NEVER."""
        return NEVER


@dataclasses.dataclass(frozen=True)
class EpochSampler(Sampler):
    """An order over all examples, which are in memory; each seed has its own order.

    Each epoch is one permutation; the examples beyond a whole number of batches are left out of
    that epoch. examples: number of examples. batch: examples per batch. stream: name of the random
    stream. ValueError unless `batch` is between 1 and `examples`.
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
    def span(self) -> int:
        return self.examples

    def members(self, window: int) -> Int[np.ndarray, "n"]:
        """Return the indices 0 to n - 1 of all examples; `window` is ignored."""
        return np.arange(self.examples)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """Return the indices of a batch's examples."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch
        order = permutation(seed, self.stream, epoch, self.examples)
        return order[start : start + self.batch]


@dataclasses.dataclass(frozen=True)
class WindowSampler(Sampler):
    """An order over windows of examples that all seeds share; each seed permutes a window.

    An epoch is one permutation for all seeds, cut into windows of `steps` batches; one window at a
    time is in memory. Each seed permutes every window independently. With one window per epoch the
    orders of two seeds are independent; with k windows the positions of an example in the epochs of
    two seeds have correlation 1 - 1 / k^2.

    examples: number of examples of the set. batch: examples per batch. steps: batches per window;
    the last window of an epoch may have fewer. stream: name of the random stream. ValueError unless
    `batch` is between 1 and `examples` and `steps` is at least 1.
    """

    examples: int
    batch: int
    steps: int
    stream: str = "order"

    def __post_init__(self):
        EpochSampler(self.examples, self.batch)
        if self.steps < 1:
            raise ValueError(f"a window must have 1 batch or more, got {self.steps}")

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch

    @property
    def per_epoch(self) -> int:
        """Number of windows in an epoch; the last window may be shorter."""
        return -(-self.steps_per_epoch // self.steps)

    @property
    def span(self) -> int:
        return self.steps * self.batch

    def windows(self, step: int) -> tuple[int, ...]:
        """Return the number of the window that is in memory at a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return (epoch * self.per_epoch + position // self.steps,)

    def next_change(self, step: int) -> int:
        """Return the first step after `step` at which the window in memory changes."""
        epoch, position = divmod(step, self.steps_per_epoch)
        end = (position // self.steps + 1) * self.steps
        return epoch * self.steps_per_epoch + min(end, self.steps_per_epoch)

    def members(self, window: int) -> Int[np.ndarray, "w"]:
        """Return the indices of a window's examples in the data set."""
        epoch, number = divmod(window, self.per_epoch)
        start = number * self.steps * self.batch
        stop = min(start + self.steps * self.batch, self.steps_per_epoch * self.batch)
        return permutation(0, f"window/{self.stream}", epoch, self.examples)[start:stop]

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """Return the positions of a batch's examples in the window."""
        (window,) = self.windows(step)
        start = step % self.steps_per_epoch % self.steps * self.batch
        order = permutation(seed, self.stream, window, len(self.members(window)))
        return order[start : start + self.batch]


@dataclasses.dataclass(frozen=True)
class MixtureSampler(Sampler):
    """An order of batches with a fixed share of each of several concatenated sets.

    Each set has its own order. The examples of a set are spread evenly over the batch, so
    that every `period` consecutive examples also have these shares. An epoch of the mixture
    is an epoch of the first set.
    """

    orders: tuple[Sampler, ...]  # One per set, over epochs or windows.

    @classmethod
    def from_shares(
        cls,
        counts: Sequence[int],
        shares: Sequence[float],
        batch: int,
        stream: str,
        *,
        steps: int | None = None,
    ) -> "MixtureSampler":
        """Return the sampler of several sets, in which every batch has a fixed share of each set.

        counts: number of examples of each set. shares: fraction of a batch for each set. batch:
        number of examples per batch. stream: name of the random stream of the first set; the
        streams of the other sets have names derived from it. steps: largest number of batches per
        window; None: no windows (see `make_sampler`).

        ValueError unless there is one positive share per set, the shares sum to 1, each share of a
        batch is a whole number of examples, and no set has fewer examples than its share of a
        batch.
        """
        set_batches = [batch * share for share in shares]
        are_shares = (
            len(shares) == len(counts)
            and abs(sum(shares) - 1) <= 1e-6
            and min(set_batches) > 0
        )
        if not are_shares or max(abs(x - round(x)) for x in set_batches) > 1e-3:
            raise ValueError(
                f"shares must be {len(counts)} positive numbers, one per set, that sum to "
                f"1 and make whole numbers of {batch} examples, got {tuple(shares)}"
            )
        orders = []
        for i, (count, set_batch) in enumerate(zip(counts, set_batches)):
            name = f"{stream}/source/{i}" if i else stream
            orders.append(
                make_sampler(count, round(set_batch), steps=steps, stream=name)
            )
        return cls(tuple(orders))

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

    def next_change(self, step: int) -> int:
        return min(order.next_change(step) for order in self.orders)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """Return the indices of a batch's examples; each set is spread evenly over the batch.

        Indices count the examples in memory, set after set.
        """
        first, set_indices, positions = 0, [], []
        for order in self.orders:
            set_indices.append(order.index(seed, step) + first)
            positions.append((np.arange(order.batch) + 0.5) / order.batch)
            first += order.span
        batch_order = np.argsort(np.concatenate(positions), kind="stable")
        return np.concatenate(set_indices)[batch_order]


def make_sampler(examples: int, batch: int, steps: int | None, stream: str) -> Sampler:
    """Return the sampler of one set: a `WindowSampler`, or an `EpochSampler` without windows.

    examples: number of examples of the set. batch: examples per batch. steps: largest number
    of batches per window; None: no windows. There are no windows either if one window would
    contain the whole set. Windows have equal numbers of batches, but the last may have fewer.
    stream: name of the random stream. ValueError if the batch is not between 1 and `examples`.
    """
    epochs = EpochSampler(examples, batch, stream=stream)
    if steps is None or steps * batch >= examples:
        return epochs
    num_windows = -(-epochs.steps_per_epoch // steps)
    window_steps = -(-epochs.steps_per_epoch // num_windows)
    return WindowSampler(examples, batch, steps=window_steps, stream=stream)


def permutation(seed: int, stream: str, epoch: int, n: int) -> Int[np.ndarray, "n"]:
    """Return a seed's random order of the numbers 0 to n - 1 in an epoch.

    stream: name of the random stream. The array is cached; do not change it.
    """
    return _permutations(seed, stream, n)(epoch)


@functools.cache
def _permutations(
    seed: int, stream: str, n: int
) -> Callable[[int], Int[np.ndarray, "n"]]:
    """Return a function from an epoch to a seed's permutation of n examples.

    stream: name of the random stream. The function caches two permutations, of four bytes
    per example.
    """
    root, lock = prng.stream(prng.key(seed), stream), threading.Lock()

    @functools.lru_cache(maxsize=2)
    def draw(epoch):
        return np.asarray(_shuffled(jax.random.fold_in(root, epoch), n))

    def permutation_of_epoch(epoch):
        with (
            lock
        ):  # Otherwise threads that read ahead would all draw the same permutation.
            return draw(epoch)

    return permutation_of_epoch


@functools.partial(jax.jit, static_argnums=1)
def _shuffled(key: PRNGKeyArray, n: int) -> Int[Array, "n"]:
    """Return the numbers 0 to n - 1 in the random order of a key."""
    return jax.random.permutation(key, n).astype(jnp.int32)


class _GroupTurns(NamedTuple):
    """The groups with one extra example in a batch, and the earlier draws per group."""

    num_drawn: Int[np.ndarray, "g"]  # Examples drawn before the batch, by group.
    extra: Int[np.ndarray, "e"]  # The groups with one more example in this batch.


@dataclasses.dataclass(frozen=True, eq=False)
class BalancedSampler(Sampler):
    """An order of batches in which the groups' numbers of examples differ by at most one.

    groups: the group of each example. stream: name of the random stream. If the number of
    groups does not divide the batch, groups get the extra examples in turn, in random order;
    after each cycle of turns all groups have had the same number of extra examples. Each seed draws
    the examples of a group in its own random order; an example is drawn again only after all
    examples of the group. The groups do not change the number of batches in an epoch. ValueError
    unless `batch` is between 1 and the number of examples.
    """

    groups: Int[np.ndarray, "n"]
    batch: int
    stream: str = "order"

    def __post_init__(self):
        EpochSampler(len(self.groups), self.batch)

    @functools.cached_property
    def members_by_group(self) -> tuple[Int[np.ndarray, "m"], ...]:
        """The indices of the examples of each group that is not empty, by ascending group."""
        by_group = np.argsort(self.groups, kind="stable").astype(np.int32)
        counts = np.bincount(self.groups)
        return tuple(np.split(by_group, np.cumsum(counts[counts > 0])[:-1]))

    @property
    def period(self) -> int:
        """The number of non-empty groups if it divides the size of a batch, otherwise 1.

        If it divides the batch, each run of `period` examples of a batch has one example per group.
        """
        count = len(self.members_by_group)
        return 1 if self.batch % count else count

    @property
    def span(self) -> int:
        return len(self.groups)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """Return the indices of a batch's examples, in rounds of one example of each group.

        The last round, if any, has only the groups with an extra example.
        """
        count = len(self.members_by_group)
        num_rounds, num_extra = divmod(self.batch, count)
        turns = self._turns(seed, step, num_rounds=num_rounds, num_extra=num_extra)
        rng = _generator(seed, self.stream, purpose="places", number=step)
        rounds = [rng.permutation(count) for _ in range(num_rounds)]
        batch = [
            self._example(seed, group, number=turns.num_drawn[group] + i)
            for i, groups in enumerate([*rounds, turns.extra])
            for group in groups
        ]
        return np.array(batch, np.int32)

    def _turns(
        self, seed: int, step: int, *, num_rounds: int, num_extra: int
    ) -> _GroupTurns:
        """Return the groups with an extra example at a step, and the earlier draws per group.

        num_rounds: number of examples of every group in a batch. num_extra: number of groups
        with one extra example. Groups get extra examples in a random order. Once all groups
        have had the same number of extra examples, a new random order begins.
        """
        count = len(self.members_by_group)
        cycle = count // math.gcd(count, num_extra) if num_extra else 1
        num_cycles, turn = divmod(step, cycle)
        rng = _generator(seed, self.stream, purpose="turns", number=num_cycles)
        order = rng.permutation(count)
        passes, position = divmod(turn * num_extra, count)
        extra_before = num_cycles * (cycle * num_extra // count) + passes
        num_drawn = np.full(count, step * num_rounds + extra_before)
        num_drawn[order[:position]] += 1
        return _GroupTurns(num_drawn, extra=np.roll(order, -position)[:num_extra])

    def _example(self, seed: int, group: int, number: int) -> int:
        """Return the example that a seed draws from a group after `number` earlier draws."""
        members = self.members_by_group[group]
        num_passes, position = divmod(int(number), len(members))
        order = _group_orders(seed, self.stream, group=int(group), n=len(members))
        return members[order(num_passes)[position]]


@functools.cache
def _group_orders(
    seed: int, stream: str, group: int, n: int
) -> Callable[[int], Int[np.ndarray, "n"]]:
    """Return a function from the number of earlier passes over a group to its random order.

    stream: name of the random stream. group: index of the group. n: number of examples in
    the group; an order is a permutation of 0 to n - 1. The function caches two orders.
    """

    @functools.lru_cache(maxsize=2)
    def draw(num_passes: int) -> Int[np.ndarray, "n"]:
        rng = _generator(seed, stream, purpose=f"group/{group}", number=num_passes)
        return rng.permutation(n)

    return draw


def _generator(
    seed: int, stream: str, purpose: str, number: int
) -> np.random.Generator:
    """Return a random generator that is a function of all arguments.

    stream: name of the random stream. purpose: "places", "turns" or "group/<number>".
    number: number of a step, of a cycle of turns or of a pass, depending on the purpose.
    """
    name = zlib.crc32(f"balance/{stream}/{purpose}".encode())
    return np.random.default_rng([seed, name, number])


@dataclasses.dataclass(frozen=True, eq=False)
class PairedSampler(Sampler):
    """An order of a second set's examples, whose classes match the first set's batches.

    Row i of a batch is paired with row i of the first set's batch. In each epoch the second
    set's examples of a class are put into a random order and assigned to the first set's
    examples of that class. An example of the second set repeats in an epoch only if the
    second set has fewer examples of the class. ValueError if the second set has no example of a
    class of the first set.
    """

    first: EpochSampler  # The order of the first set.
    labels: Int[np.ndarray, "n"]  # Classes of the first set's examples.
    other_labels: Int[np.ndarray, "m"]  # Classes of the second set's examples.
    stream: str

    def __post_init__(self):
        missing = sorted({*self.labels.tolist()} - {*self.other_labels.tolist()})
        if missing:
            raise ValueError(
                "pair: both sets must have examples of every class, the second has none"
                f" of class {missing[0]}"
            )

    @property
    def batch(self) -> int:
        return self.first.batch

    @property
    def span(self) -> int:
        return len(self.other_labels)

    @property
    def steps_per_epoch(self) -> int:
        return self.first.steps_per_epoch

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """Return the indices of a batch's examples in the second set."""
        first = self.first.index(seed, step)
        return self._partners(seed, step // self.steps_per_epoch)[first]

    @functools.cached_property
    def _partners(self) -> Callable[[int, int], Int[np.ndarray, "n"]]:
        """A function (seed, epoch) -> the partner of each example of the first set.

        Partners are indices of examples in the second set, in the order of the first set. The
        function caches the partners of 32 epochs.
        """
        counts = np.bincount(self.other_labels, minlength=self.labels.max() + 1)
        by_class = np.argsort(self.labels, kind="stable")
        starts = np.cumsum(np.bincount(self.labels)) - np.bincount(self.labels)
        rank = np.empty(len(self.labels), np.int64)
        rank[by_class] = np.arange(len(rank)) - starts[self.labels[by_class]]
        position = np.cumsum(counts)[self.labels] - counts[self.labels]
        position += rank % counts[self.labels]

        @functools.lru_cache(maxsize=32)
        def partners(seed, epoch):
            """Return the partner of each example of the first set."""
            order = permutation(
                seed, self.stream, epoch=epoch, n=len(self.other_labels)
            )
            order = order[np.argsort(self.other_labels[order], kind="stable")]
            return order[position].astype(np.int32)

        return partners
