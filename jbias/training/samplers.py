"""Which examples a seed sees at a step: a function of (seed, step) alone.

`EpochSampler` permutes a whole set each epoch, `WindowSampler` a part at a time;
`MixtureSampler` has a fixed share of each of several sets. `BalancedSampler` has equal
shares of all groups of examples, whatever their sizes. `PairedSampler` puts examples of a
second set beside those of a batch, class by class.
"""

import abc
import dataclasses
import functools
import math
import threading
import zlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jbias.training import prng

NEVER = 1 << 62


class Sampler(abc.ABC):
    """The examples of every batch, by their numbers in what is held at that step.

    Unless it says otherwise, one thing is held throughout: all examples.
    """

    batch: int  # Examples.
    span: int  # How many examples are held at once.
    period = 1  # So many neighbours in a batch have the shares of all sets.

    @property
    def steps_per_epoch(self) -> int:
        return self.span // self.batch

    @abc.abstractmethod
    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch."""

    def windows(self, step: int) -> tuple[int, ...]:
        """Numbers what is held at a step, a number for each set."""
        return (0,)

    def next_change(self, step: int) -> int:
        """The first later step at which another thing is held."""
        return NEVER


@dataclasses.dataclass(frozen=True)
class EpochSampler(Sampler):
    """All examples are held, and each seed has an order of its own over them.

    Each epoch is one permutation; the examples beyond a whole number of batches are
    left out of that epoch.
    """

    examples: int
    batch: int
    stream: str = "order"

    def __post_init__(self):
        if not 0 < self.batch <= self.examples:
            most = f"{self.examples}, the training examples"
            raise ValueError(f"must be 1 to {most}, got {self.batch}")

    @property
    def span(self) -> int:
        return self.examples

    def members(self, window: int) -> Int[np.ndarray, "n"]:
        """All examples."""
        return np.arange(self.examples)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch
        order = permutation(seed, self.stream, epoch, self.examples)
        return order[start : start + self.batch]


@dataclasses.dataclass(frozen=True)
class WindowSampler(Sampler):
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

    def __post_init__(self):
        EpochSampler(self.examples, self.batch)
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

    def next_change(self, step: int) -> int:
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
class MixtureSampler(Sampler):
    """Batches with a fixed share of each of several sets, which lie one after another.

    Each set has an order of its own. Its examples are spread evenly over the batch, so
    that every group of neighbours has the shares, too. An epoch is one of the first.
    """

    orders: tuple[Sampler, ...]  # Over epochs, or windows.

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
        """Splits the batch; ValueError where the shares do not give whole numbers.

        With `steps` each set comes in windows of so many batches.
        """
        parts = [batch * share for share in shares]
        whole = len(shares) == len(counts) and abs(sum(shares) - 1) <= 1e-6
        whole = whole and min(parts) > 0
        if not whole or max(abs(part - round(part)) for part in parts) > 1e-3:
            raise ValueError(
                f"shares must be {len(counts)} positive numbers, one a set, that sum to "
                f"1 and make whole numbers of {batch} examples, got {tuple(shares)}"
            )
        orders = []
        for i, (n, part) in enumerate(zip(counts, parts)):
            name = f"{stream}/source/{i}" if i else stream
            orders.append(make_sampler(n, round(part), steps, name))
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
        first, parts, places = 0, [], []
        for order in self.orders:
            parts.append(order.index(seed, step) + first)
            places.append((np.arange(order.batch) + 0.5) / order.batch)
            first += order.span
        spread = np.argsort(np.concatenate(places), kind="stable")
        return np.concatenate(parts)[spread]


def make_sampler(examples: int, batch: int, steps: int | None, stream: str) -> Sampler:
    """An order over one set, by windows of about `steps` batches if that is not all.

    Windows are equal, but for a last one that may have a few batches less.
    """
    whole = EpochSampler(examples, batch, stream)
    if steps is None or steps * batch >= examples:
        return whole
    windows = -(-whole.steps_per_epoch // steps)
    even = -(-whole.steps_per_epoch // windows)
    return WindowSampler(examples, batch, even, stream)


def permutation(seed: int, stream: str, epoch: int, n: int) -> Int[np.ndarray, "n"]:
    """A seed's random order of n examples in an epoch, by the name of its stream."""
    return _permutations(seed, stream, n)(epoch)


@functools.cache
def _permutations(seed: int, stream: str, n: int) -> Callable:
    """Permutations by epoch, of which two are kept: four bytes an example each."""
    root, lock = prng.stream(prng.key(seed), stream), threading.Lock()

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


@dataclasses.dataclass(frozen=True, eq=False)
class BalancedSampler(Sampler):
    """Every group has the same number of examples in every batch, or one more.

    groups: the group of each example. Which groups have one more takes turns, in random
    order, so that after some batches all have had as many. A group's examples come in a
    random order of the seed's own, all of them before one comes again. An epoch has as
    many batches as it would have without groups.
    """

    groups: Int[np.ndarray, "n"]
    batch: int
    stream: str = "order"

    def __post_init__(self):
        EpochSampler(len(self.groups), self.batch)

    @functools.cached_property
    def members(self) -> tuple[Int[np.ndarray, "m"], ...]:
        """The examples of every group that has some."""
        by_group = np.argsort(self.groups, kind="stable").astype(np.int32)
        counts = np.bincount(self.groups)
        return tuple(np.split(by_group, np.cumsum(counts[counts > 0])[:-1]))

    @property
    def period(self) -> int:
        """As many neighbours as groups have one of each, where all have equal shares."""
        count = len(self.members)
        return 1 if self.batch % count else count

    @property
    def span(self) -> int:
        return len(self.groups)

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch: round by round one of each group."""
        count = len(self.members)
        each, more = divmod(self.batch, count)
        used, now = self._turns(seed, step, each, more)
        rng = _generator(seed, self.stream, "places", step)
        rounds = [rng.permutation(count) for _ in range(each)]
        pairs = [(g, used[g] + i) for i, one in enumerate([*rounds, now]) for g in one]
        return np.array([self._example(seed, *pair) for pair in pairs], np.int32)

    def _turns(self, seed: int, step: int, each: int, more: int) -> tuple:
        """How many examples each group has given before, and which have one more now.

        `more` at a time they take turns along one random order, until all have had as
        many turns; then along another.
        """
        count = len(self.members)
        cycle = count // math.gcd(count, more) if more else 1
        whole, turn = divmod(step, cycle)
        order = _generator(seed, self.stream, "turns", whole).permutation(count)
        rounds, place = divmod(turn * more, count)
        used = np.full(count, step * each + whole * (cycle * more // count) + rounds)
        used[order[:place]] += 1
        return used, np.roll(order, -place)[:more]

    def _example(self, seed: int, group: int, number: int) -> int:
        members = self.members[group]
        times, place = divmod(int(number), len(members))
        order = _group_orders(seed, self.stream, int(group), len(members))
        return members[order(times)[place]]


@functools.cache
def _group_orders(seed: int, stream: str, group: int, n: int) -> Callable:
    """A group's random orders, by how often it has been through; two are kept."""

    @functools.lru_cache(maxsize=2)
    def drawn(times: int) -> Int[np.ndarray, "n"]:
        return _generator(seed, stream, f"group/{group}", times).permutation(n)

    return drawn


def _generator(seed: int, stream: str, what: str, number: int) -> np.random.Generator:
    name = zlib.crc32(f"balance/{stream}/{what}".encode())
    return np.random.default_rng([seed, name, number])


@dataclasses.dataclass(frozen=True, eq=False)
class PairedSampler(Sampler):
    """A second set's examples, each of the class of the first set's at its place.

    In each epoch the second set's examples of a class are put into a random order, and
    the first set's meet them one after the other: none twice, unless they are fewer.
    """

    first: EpochSampler
    labels: Int[np.ndarray, "n"]  # Classes of the first set's examples,
    others: Int[np.ndarray, "m"]  # and of the second's.
    stream: str

    def __post_init__(self):
        if missing := sorted({*self.labels.tolist()} - {*self.others.tolist()}):
            raise ValueError(
                "pair: both sets must have examples of every class, the second has none"
                f" of class {missing[0]}"
            )

    @property
    def batch(self) -> int:
        return self.first.batch

    @property
    def span(self) -> int:
        return len(self.others)

    @property
    def steps_per_epoch(self) -> int:
        return self.first.steps_per_epoch

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The second set's examples of one batch."""
        first = self.first.index(seed, step)
        return self._partners(seed, step // self.steps_per_epoch)[first]

    @functools.cached_property
    def _partners(self) -> Callable[[int, int], Int[np.ndarray, "n"]]:
        """The partner of every example, by seed and epoch; some are kept."""
        counts = np.bincount(self.others, minlength=self.labels.max() + 1)
        by_class = np.argsort(self.labels, kind="stable")
        starts = np.cumsum(np.bincount(self.labels)) - np.bincount(self.labels)
        rank = np.empty(len(self.labels), np.int64)
        rank[by_class] = np.arange(len(rank)) - starts[self.labels[by_class]]
        place = np.cumsum(counts)[self.labels] - counts[self.labels]
        place += rank % counts[self.labels]

        @functools.lru_cache(maxsize=32)
        def of(seed, epoch):
            order = permutation(seed, self.stream, epoch, len(self.others))
            order = order[np.argsort(self.others[order], kind="stable")]
            return order[place].astype(np.int32)

        return of
