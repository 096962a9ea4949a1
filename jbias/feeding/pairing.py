"""Which examples of a second set stand beside those of a batch, class by class."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from jbias import order as orders


@dataclasses.dataclass(frozen=True, eq=False)
class Paired:
    """A second set's examples, each of the class of the first set's at its place.

    In each epoch the second set's examples of a class are put into a random order, and
    the first set's meet them one after the other: none twice, unless they are fewer.
    """

    first: orders.Whole
    labels: Int[np.ndarray, "n"]  # Classes of the first set's examples,
    others: Int[np.ndarray, "m"]  # and of the second's.
    stream: str
    period = 1

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

    def windows(self, step: int) -> tuple[int, ...]:
        del step
        return (0,)

    def until(self, step: int) -> int:
        del step
        return orders.NEVER

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
            order = orders.permutation(seed, self.stream, epoch, len(self.others))
            order = order[np.argsort(self.others[order], kind="stable")]
            return order[place].astype(np.int32)

        return of
