"""Freezes or rolls back a seed whose numbers are no longer finite, and says so.

The step itself does it, so that what a seed does is a function of its config, its own
number and the step: not of when the host looks, which is some steps later. `Monitor` takes
the metrics of all seeds in on the host without holding the devices up.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jbias import config as jc
from jbias.runtime import xla
from jbias.training import step as train_step

# Metrics that must be finite; any other may be anything.
FINITE_PREFIXES = ("loss_", "gradient_norm_")
FROZEN, ROLLED_BACK = "frozen", "rolled_back"  # Metrics that are 1 where that happened.
_PLACE = "fallback"  # In a state's stats.


class Rollback(NamedTuple):
    """How often a seed that diverged goes back, and to what: config.rollback in steps.

    To where it stood at the latest step that is a multiple of `every` from the stage's
    `first` on; its rate is multiplied by `factor` each time.
    """

    every: int
    times: int
    factor: float
    first: int = 0

    def target(self, step: int) -> int:
        """Where the seed goes whose `step`, counted from 1, failed."""
        return step - 1 - (step - 1 - self.first) % self.every


def rollback_in_steps(
    how: Mapping[str, Any] | None, first: int, **lasting: int
) -> Rollback | None:
    """What config.rollback means in a stage from step `first`; None where it is off."""
    if not how or not how["times"]:
        return None
    every = jc.to_steps(how["every"], **lasting, where="config.rollback.every")
    return Rollback(every, how["times"], how["factor"], first)


def freeze_nonfinite(
    take: train_step.TrainStep, *, settled: bool = False
) -> train_step.TrainStep:
    """The step, until one fails: from then on the state stays what it was before.

    A step fails where a loss, a gradient's norm or a statistic is not finite, and with
    `settled`, of weights that follow from others, where a weight is not. No other weight
    can fail alone: the norm of a gradient overflows long before a step along it does. So
    nothing is read once more for it. The frozen state's `step` is ~step, so that it never
    moves again, whatever the batch.
    """

    def step(state, batch, key, static=None):
        new, metrics = take(state, batch, key, static)
        with jax.named_scope("guard"):
            fine = _fine(state, new, metrics, settled)
            new = _select(fine, new, _stopped(state))
        return new, {**metrics, FROZEN: 1.0 - fine}

    return step


def rollback_nonfinite(
    take_at: Callable[[Float[Array, ""]], train_step.TrainStep],
    how: Rollback,
    *,
    settled: bool = False,
) -> train_step.TrainStep:
    """Sends a seed back instead, up to `how.times` times; then as `freeze_nonfinite`.

    Of states of `with_fallback`.

    `take_at` gives the step whose rate is that many times the config's. A failed step
    counts as taken: the seed goes on beside the others, with the weights, statistics and
    optimiser of before and the batches that are due.
    """

    def step(state, batch, key, static=None):
        stats = dict(state.stats)
        past = stats.pop(_PLACE)
        bare, count = state._replace(stats=stats), past["count"]
        due = (state.step >= 0) & ((state.step - how.first) % how.every == 0)
        held = _select(due, _fallback(bare), past["held"])
        new, metrics = take_at(how.factor**count)(bare, batch, key, static)
        fine = _fine(bare, new, metrics, settled)
        again = ~fine & (state.step >= 0) & (count < how.times)
        back = train_step.State(state.step + 1, **held)
        new = _select(fine, new, _select(again, back, _stopped(bare)))
        past = {"held": held, "count": count + again}
        told = {FROZEN: 1.0 - (fine | again), ROLLED_BACK: 1.0 * again}
        return new._replace(stats={**new.stats, _PLACE: past}), {**metrics, **told}

    return step


def with_fallback(draw: Callable[..., train_step.State]) -> Callable:
    """Draws states as `draw` does, with what `rollback_nonfinite` keeps in them."""

    def drawn(*args: Any) -> train_step.State:
        state = draw(*args)
        # A copy: the step's donated buffers must not meet twice.
        held = jax.tree.map(jnp.copy, _fallback(state))
        past = {"held": held, "count": jnp.zeros((), jnp.int32)}
        return state._replace(stats={**state.stats, _PLACE: past})

    return drawn


def finite_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Those that must be finite."""
    return {name: x for name, x in metrics.items() if name.startswith(FINITE_PREFIXES)}


def _fallback(state: train_step.State) -> dict[str, PyTree]:
    return {"params": state.params, "stats": state.stats, "opt": state.opt}


def _stopped(state: train_step.State) -> train_step.State:
    return state._replace(step=jnp.where(state.step < 0, state.step, ~state.step))


def _fine(state: train_step.State, new: train_step.State, metrics, settled: bool):
    """Whether a state that is not frozen has taken a step to finite numbers."""
    there = {id(leaf) for leaf in jax.tree.leaves(state)}
    moved = {k: v for k, v in new.stats.items() if k != "average"}
    found = (finite_metrics(metrics), moved, new.params if settled else ())
    fine = state.step >= 0
    for leaf in jax.tree.leaves(found):
        if id(leaf) not in there and jnp.issubdtype(leaf.dtype, jnp.inexact):
            fine &= jnp.all(jnp.isfinite(leaf))
    return fine


def _select(fine: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """One of two trees.

    On CPU by a condition: what computes them keeps the bits that it has alone. The host
    of an accelerator would wait for it in every step: there each number is selected.
    """
    if xla.platform() == "cpu":
        return jax.lax.cond(fine, lambda new, old: new, lambda new, old: old, new, old)
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), new, old)


DEPTH = 4  # Steps in flight: enough to hide the host, few enough to notice soon.


class Divergence(NamedTuple):
    """A seed whose step, counted from 1, failed."""

    seed: Hashable
    step: int
    what: str  # Is not finite: "loss", "gradient", or "weights".
    rolled_back: bool  # Else it is frozen.


@dataclasses.dataclass
class Monitor:
    """Metrics since the last evaluation, and which seed diverged at which step.

    A seed diverged, or was rolled back, at the step that says so, or whose loss
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
    ) -> list[Divergence]:
        """Takes in a step's metrics; returns what failed since.

        `split` makes one mapping a seed of them, once they are on the host; None where a
        seed that diverged takes no more steps.
        """
        self._pending.append((step, metrics, split))
        return self._take(DEPTH)

    def flush(self) -> list[Divergence]:
        """Waits for all steps taken in so far."""
        return self._take(0)

    def _take(self, depth: int) -> list[Divergence]:
        events = []
        while len(self._pending) > depth:
            step, metrics, split = self._pending.popleft()
            shown, each = [], split(jax.device_get(metrics))
            for seed, values in zip(self.seeds, each, strict=True):
                if seed in self.diverged:
                    continue
                values = {name: float(value) for name, value in values.items()}
                event = _event(seed, step, values)
                if event is None:
                    losses = [v for k, v in values.items() if k.startswith("loss_")]
                    shown.append(values.get("loss_class", losses[0]))
                    self._count(seed, values)
                    continue
                events.append(event)
                if event.rolled_back:
                    self.rolled_back.setdefault(seed, []).append(step)
                else:
                    self.diverged[seed] = step
            if shown:
                self.latest = sum(shown) / len(shown)
        return events

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
        kept = dict(diverged=self.diverged, rolled_back=self.rolled_back)
        kept |= dict(sums=self.sums, most=self.most, counts=self.counts)
        pairs = ((name, of_seeds.items()) for name, of_seeds in kept.items())
        return {name: {str(seed): x for seed, x in of} for name, of in pairs}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave."""
        known = {str(seed): seed for seed in self.seeds}

        def named(name: str) -> dict[Hashable, Any]:
            return {known[k]: v for k, v in state.get(name, {}).items()}

        self.diverged, self.rolled_back = named("diverged"), named("rolled_back")
        self.sums, self.most, self.counts = map(named, ("sums", "most", "counts"))
        if "count" in state:  # Before, seeds were never rolled back.
            self.counts = dict.fromkeys(self.sums, state["count"])


def _event(seed: Hashable, step: int, values: dict[str, float]) -> Divergence | None:
    """What became of a seed whose step failed; its flags leave the values."""
    flags = [values.pop(name, 0.0) for name in (ROLLED_BACK, FROZEN)]
    seen = finite_metrics(values).items()
    bad = {name.partition("_")[0] for name, x in seen if not math.isfinite(x)}
    if not any(flags) and "loss" not in bad:
        return None
    what = "loss" if "loss" in bad else "gradient" if bad else "weights"
    return Divergence(seed, step, what, bool(flags[0]))
