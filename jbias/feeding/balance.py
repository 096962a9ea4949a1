"""Batches with equal shares of all groups of examples, whatever their sizes."""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from jbias import order as orders


@dataclasses.dataclass(frozen=True, eq=False)
class Balanced:
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
        orders.Whole(len(self.groups), self.batch)

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
    def steps_per_epoch(self) -> int:
        return len(self.groups) // self.batch

    @property
    def span(self) -> int:
        return len(self.groups)

    def windows(self, step: int) -> tuple[int, ...]:
        del step
        return (0,)

    def until(self, step: int) -> int:
        del step
        return orders.NEVER

    def index(self, seed: int, step: int) -> Int[np.ndarray, "b"]:
        """The examples of one batch: round by round one of each group."""
        count = len(self.members)
        each, more = divmod(self.batch, count)
        used, now = self._turns(seed, step, each, more)
        rng = _random(seed, self.stream, "places", step)
        rounds = [rng.permutation(count) for _ in range(each)]
        pairs = [(g, used[g] + i) for i, one in enumerate([*rounds, now]) for g in one]
        return np.array([self._example(seed, *pair) for pair in pairs], np.int32)

    def _turns(
        self, seed: int, step: int, each: int, more: int
    ) -> tuple[Int[np.ndarray, "g"], Int[np.ndarray, "more"]]:
        """How many examples each group has given before, and which have one more now.

        `more` at a time they take turns along one random order, until all have had as
        many turns; then along another.
        """
        count = len(self.members)
        cycle = count // math.gcd(count, more) if more else 1
        whole, turn = divmod(step, cycle)
        order = _random(seed, self.stream, "turns", whole).permutation(count)
        rounds, place = divmod(turn * more, count)
        used = np.full(count, step * each + whole * (cycle * more // count) + rounds)
        used[order[:place]] += 1
        return used, np.roll(order, -place)[:more]

    def _example(self, seed: int, group: int, number: int) -> int:
        members = self.members[group]
        times, place = divmod(int(number), len(members))
        return members[
            _shuffled(seed, self.stream, int(group), len(members))(times)[place]
        ]


@functools.cache
def _shuffled(seed: int, stream: str, group: int, n: int) -> Callable:
    """A group's random orders, by how often it has been through; two are kept."""

    @functools.lru_cache(maxsize=2)
    def drawn(times: int) -> Int[np.ndarray, "n"]:
        return _random(seed, stream, f"group/{group}", times).permutation(n)

    return drawn


def _random(seed: int, stream: str, what: str, number: int) -> np.random.Generator:
    name = zlib.crc32(f"balance/{stream}/{what}".encode())
    return np.random.default_rng([seed, name, number])
