"""Keeps an eye on the losses of all seeds without holding the devices up."""

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jbias.training import guard

DEPTH = 4  # Steps in flight: enough to hide the host, few enough to notice soon.


class Event(NamedTuple):
    """A seed whose step, counted from 1, failed."""

    seed: Hashable
    step: int
    what: str  # Is not finite: "loss", "gradient", or "weights".
    rolled_back: bool  # Else it is frozen.


@dataclasses.dataclass
class Watch:
    """Metrics since the last evaluation, and which seed diverged at which step.

    A seed diverged, or was rolled back, at the step that says so (`guard`), or whose loss
    is not finite. What was taken in is part of a checkpoint, so that means survive a
    resume.
    """

    seeds: tuple[Hashable, ...]  # What they are called.
    diverged: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    rolled_back: dict[Hashable, list[int]] = dataclasses.field(default_factory=dict)
    sums: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    most: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    counts: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    resets: int = 0
    latest: float | None = None  # Mean class loss over the finite seeds.
    _pending: collections.deque = dataclasses.field(default_factory=collections.deque)

    def add(
        self, step: int, metrics: Any, split: Callable[[Any], Sequence] = tuple
    ) -> list[Event]:
        """Takes in a step's metrics; returns what failed since.

        `split` makes one mapping a seed of them, once they are on the host; None where a
        seed that diverged takes no more steps.
        """
        self._pending.append((step, metrics, split))
        return self._take(DEPTH)

    def flush(self) -> list[Event]:
        """Waits for all steps taken in so far."""
        return self._take(0)

    def _take(self, depth: int) -> list[Event]:
        events = []
        while len(self._pending) > depth:
            step, metrics, split = self._pending.popleft()
            shown = []
            each = split(jax.device_get(metrics))
            for seed, values in zip(self.seeds, each, strict=True):
                if seed in self.diverged:
                    continue
                values = {name: float(value) for name, value in values.items()}
                if event := _event(seed, step, values):
                    self._note(event)
                    events.append(event)
                    continue
                losses = [v for name, v in values.items() if name.startswith("loss_")]
                shown.append(values.get("loss_class", losses[0]))
                self._count(seed, values)
            if shown:
                self.latest = sum(shown) / len(shown)
        return events

    def _note(self, event: Event) -> None:
        if event.rolled_back:
            self.rolled_back.setdefault(event.seed, []).append(event.step)
        else:
            self.diverged[event.seed] = event.step

    def _count(self, seed: Hashable, values: Mapping[str, float]) -> None:
        sums = self.sums.setdefault(seed, dict.fromkeys(values, 0.0))
        most = self.most.setdefault(seed, {})
        self.counts[seed] = self.counts.get(seed, 0) + 1
        for name, value in values.items():
            sums[name] += value
            if name.startswith("gradient_norm_"):
                most[name] = max(value, most.get(name, value))

    @property
    def all_diverged(self) -> bool:
        """Whether no seed is left."""
        return len(self.diverged) == len(self.seeds)

    def means(self, seed: Hashable) -> dict[str, float]:
        """What each metric was since the last reset; empty before any step.

        Means, and of gradients' norms the largest too, as <name>_max.
        """
        sums, count = self.sums.get(seed, {}), self.counts.get(seed, 0)
        means = {name: total / count for name, total in sums.items()}
        most = self.most.get(seed, {}).items()
        return {**means, **{f"{name}_max": value for name, value in most}}

    def reset(self) -> None:
        """Begins new means."""
        self.sums, self.most, self.counts = {}, {}, {}
        self.resets += 1

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores; JSON keeps Python floats to the bit."""
        kept = {
            "diverged": self.diverged,
            "rolled_back": self.rolled_back,
            "sums": self.sums,
            "most": self.most,
            "counts": self.counts,
        }
        return {
            name: {str(seed): x for seed, x in of_seeds.items()}
            for name, of_seeds in kept.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave."""
        known = {str(seed): seed for seed in self.seeds}

        def named(name: str) -> dict[Hashable, Any]:
            return {known[k]: v for k, v in state.get(name, {}).items()}

        self.diverged, self.rolled_back = named("diverged"), named("rolled_back")
        self.sums = {k: dict(v) for k, v in named("sums").items()}
        self.most = {k: dict(v) for k, v in named("most").items()}
        self.counts = named("counts")
        if "count" in state:  # Before, seeds were never rolled back.
            self.counts = dict.fromkeys(self.sums, state["count"])


def _event(seed: Hashable, step: int, values: dict[str, float]) -> Event | None:
    """What became of a seed whose step failed; its flags leave the values."""
    flags = [values.pop(name, 0.0) for name in (guard.ROLLED_BACK, guard.FROZEN)]
    seen = guard.watched(values).items()
    bad = {name.partition("_")[0] for name, x in seen if not math.isfinite(x)}
    if not any(flags) and "loss" not in bad:
        return None
    what = "loss" if "loss" in bad else "gradient" if bad else "weights"
    return Event(seed, step, what, bool(flags[0]))
