"""Keeps an eye on the losses of all seeds without holding the devices up."""

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

DEPTH = 4  # Steps in flight: enough to hide the host, few enough to notice soon.


@dataclasses.dataclass
class Watch:
    """Mean metrics since the last evaluation, and which seed diverged at which step.

    A seed has diverged from the first step, counted from 1, with a loss (a metric
    named "loss_...") that is not finite. What was taken in is part of a checkpoint, so that means survive a resume.
    """

    seeds: tuple[Hashable, ...]  # What they are called.
    diverged: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    sums: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    count: int = 0
    latest: float | None = None  # Mean class loss over the finite seeds.
    _pending: collections.deque = dataclasses.field(default_factory=collections.deque)

    def add(
        self, step: int, metrics: Any, split: Callable[[Any], Sequence] = tuple
    ) -> list[Hashable]:
        """Takes in a step's metrics; returns newly diverged seeds.

        `split` makes one mapping a seed of them, once they are on the host.
        """
        self._pending.append((step, metrics, split))
        return self._take(DEPTH)

    def settle(self) -> list[Hashable]:
        """Waits for all steps taken in so far."""
        return self._take(0)

    def _take(self, depth: int) -> list[Hashable]:
        new = []
        while len(self._pending) > depth:
            step, metrics, split = self._pending.popleft()
            self.count += 1
            shown = []
            each = split(jax.device_get(metrics))
            for seed, values in zip(self.seeds, each, strict=True):
                values = {name: float(value) for name, value in values.items()}
                if seed in self.diverged:
                    continue
                losses = [v for name, v in values.items() if name.startswith("loss_")]
                if not all(map(math.isfinite, losses)):
                    self.diverged[seed] = step
                    new.append(seed)
                    continue
                shown.append(values.get("loss_class", losses[0]))
                sums = self.sums.setdefault(seed, dict.fromkeys(values, 0.0))
                for name, value in values.items():
                    sums[name] += value
            if shown:
                self.latest = sum(shown) / len(shown)
        return new

    @property
    def all_diverged(self) -> bool:
        """Whether no seed is left."""
        return len(self.diverged) == len(self.seeds)

    def means(self, seed: Hashable) -> dict[str, float]:
        """Mean of each metric since the last reset; empty before any step."""
        return {
            name: total / self.count for name, total in self.sums.get(seed, {}).items()
        }

    def reset(self) -> None:
        """Begins new means."""
        self.sums, self.count = {}, 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores; JSON keeps Python floats to the bit."""
        return {
            "diverged": {str(k): v for k, v in self.diverged.items()},
            "sums": {str(k): v for k, v in self.sums.items()},
            "count": self.count,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave."""
        known = {str(seed): seed for seed in self.seeds}
        self.diverged = {known[k]: v for k, v in state["diverged"].items()}
        self.sums = {known[k]: dict(v) for k, v in state["sums"].items()}
        self.count = state["count"]
