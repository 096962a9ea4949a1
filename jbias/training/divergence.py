"""Freeze or roll back a seed whose losses or gradients are not finite, and report the failure.

The compiled step itself freezes a seed. The host reads the metrics some steps later. This delay
does not affect the weights, which depend only on the config, the seed and the step. `Monitor`
collects the metrics of all seeds on the host without delaying the devices.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jbias import config as jc
from jbias.runtime import xla
from jbias.training import step as train_step

# A step fails if a metric with one of these prefixes is not finite.
FINITE_PREFIXES = ("loss_", "gradient_norm_")
# Metrics of a step: 1 if the seed was frozen or rolled back, else 0.
FROZEN, ROLLED_BACK = "frozen", "rolled_back"
_FALLBACK = "fallback"  # Key of the fallback in a state's stats.


class Rollback(NamedTuple):
    """The options config.rollback of a stage, with durations in steps.

    A seed that diverges returns to its latest saved state, at most `times` times. Its state
    is saved every `every` steps, counted from the stage's `first` step. Each rollback
    multiplies the seed's learning rate by `factor`.
    """

    every: int
    times: int
    factor: float
    first: int = 0

    def target(self, step: int) -> int:
        """Return the step whose state is restored if `step`, counted from 1, failed."""
        return step - 1 - (step - 1 - self.first) % self.every


def rollback_in_steps(
    options: Mapping[str, Any] | None, first: int, *, steps_per_epoch: int, total: int
) -> Rollback | None:
    """Return config.rollback in steps, for a stage that begins at step `first`.

    options: config.rollback. total: number of steps of the stage. Return None if `options`
    is empty or its `times` is 0. ValueError if config.rollback.every is not a duration.
    """
    if not options or not options["times"]:
        return None
    every = jc.to_steps(
        options["every"],
        steps_per_epoch=steps_per_epoch,
        total=total,
        where="config.rollback.every",
    )
    return Rollback(every, options["times"], options["factor"], first)


def freeze_nonfinite(
    train: train_step.TrainStep, *, check_weights: bool = False
) -> train_step.TrainStep:
    """Return a training step that freezes the state of a seed after a failed step.

    train: the step, (state, batch, key, static) -> (state, metrics). The returned step adds
    the metric FROZEN. A step fails if a loss, the norm of a gradient or a statistic is not
    finite. With `check_weights` a step also fails if a weight is not finite. This check is needed
    only if weights are computed from other weights, because the norm of a gradient overflows long
    before an update along that gradient does.
    """

    def step(
        state: train_step.State, batch: Any, key: Any, static: Hashable = None
    ) -> tuple[train_step.State, dict[str, Any]]:
        """Take the step `train`, or return the frozen state if this or an earlier step failed.

        The metric FROZEN is 1 if the state is frozen, else 0.
        """
        new_state, metrics = train(state, batch, key, static)
        with jax.named_scope("guard"):
            is_fine = _is_fine(state, new_state, metrics, check_weights=check_weights)
            new_state = _select(is_fine, new_state, _freeze(state))
        return new_state, {**metrics, FROZEN: 1.0 - is_fine}

    return step


def rollback_nonfinite(
    make_step: Callable[[Float[Array, ""]], train_step.TrainStep],
    rollback: Rollback,
    *,
    check_weights: bool = False,
) -> train_step.TrainStep:
    """Return a training step that rolls a failed seed back at most `rollback.times` times.

    Later failures freeze the seed (`freeze_nonfinite`). Initial states must come from
    `with_fallback`. A failed step counts as a step: the seed continues with the following
    batches, like the other seeds, and with the weights, statistics and optimiser state that
    were saved last.

    make_step: (factor on the learning rate) -> training step; the factor is
    `rollback.factor` to the power of the seed's number of rollbacks. check_weights: see
    `freeze_nonfinite`.
    """

    def step(
        state: train_step.State, batch: Any, key: Any, static: Hashable = None
    ) -> tuple[train_step.State, dict[str, Any]]:
        """Take a step; add the metrics FROZEN and ROLLED_BACK.

        FROZEN is 1 if the seed is frozen, ROLLED_BACK is 1 if this step is rolled back, else 0.
        """
        stats = dict(state.stats)
        fallback = stats.pop(_FALLBACK)
        state, count = state._replace(stats=stats), fallback["count"]
        is_running = _is_running(state)
        is_due = is_running & ((state.step - rollback.first) % rollback.every == 0)
        saved = _select(is_due, _saved_parts(state), fallback["held"])
        train = make_step(rollback.factor**count)
        new_state, metrics = train(state, batch, key, static)
        is_fine = _is_fine(state, new_state, metrics, check_weights=check_weights)
        rolls_back = ~is_fine & is_running & (count < rollback.times)
        restored = train_step.State(
            step=state.step + 1,
            params=saved["params"],
            stats=saved["stats"],
            opt=saved["opt"],
        )
        failed_state = _select(rolls_back, restored, _freeze(state))
        new_state = _select(is_fine, new_state, failed_state)
        fallback = {"held": saved, "count": count + rolls_back}
        new_state = new_state._replace(stats={**new_state.stats, _FALLBACK: fallback})
        return new_state, {
            **metrics,
            FROZEN: 1.0 - (is_fine | rolls_back),
            ROLLED_BACK: 1.0 * rolls_back,
        }

    return step


def with_fallback(draw: Callable[..., train_step.State]) -> Callable:
    """Return a function like `draw` whose states `rollback_nonfinite` can roll back.

    draw: returns a seed's initial state. The new function adds to the state's `stats` a copy
    of its params, stats and optimiser state.
    """

    def draw_with_fallback(*args: Any) -> train_step.State:
        """Return the drawn state, whose fallback is the state itself."""
        state = draw(*args)
        # A copy, as the step donates its buffers and none may be donated twice.
        saved = jax.tree.map(jnp.copy, _saved_parts(state))
        fallback = {"held": saved, "count": jnp.zeros((), jnp.int32)}
        return state._replace(stats={**state.stats, _FALLBACK: fallback})

    return draw_with_fallback


def finite_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that must be finite, by name: losses and norms of gradients."""
    return {name: x for name, x in metrics.items() if name.startswith(FINITE_PREFIXES)}


def _saved_parts(state: train_step.State) -> dict[str, PyTree]:
    """Return the params, stats and optimiser state that a rollback restores, by name."""
    return {"params": state.params, "stats": state.stats, "opt": state.opt}


def _is_running(state: train_step.State) -> Bool[Array, ""]:
    """Return True unless the state is frozen: a frozen state has a negative step."""
    return state.step >= 0


def _frozen_step(step: Int[Array, ""]) -> Int[Array, ""]:
    """Return the step of a frozen state: ~step = -step - 1, which is negative.

    A negative step marks a seed as frozen in all later steps and in checkpoints, and keeps
    the number of its last good step. A negative `step` is returned unchanged.
    """
    return jnp.where(step < 0, step, ~step)


def _freeze(state: train_step.State) -> train_step.State:
    """Return the state with a negative step (`_frozen_step`), which marks the seed as frozen."""
    return state._replace(step=_frozen_step(state.step))


def _is_fine(
    state: train_step.State,
    new_state: train_step.State,
    metrics: Mapping[str, Any],
    *,
    check_weights: bool,
) -> Bool[Array, ""]:
    """Return True if `state` is not frozen and the step to `new_state` gave finite numbers.

    metrics: metrics of the step. Losses, norms of gradients and the new statistics are
    checked, except averaged weights and statistics that the step did not compute.
    check_weights: whether the new weights are checked, too.
    """
    unchanged = {id(leaf) for leaf in jax.tree.leaves(state)}
    stats = {k: v for k, v in new_state.stats.items() if k != "average"}
    weights = new_state.params if check_weights else ()
    is_fine = _is_running(state)
    for leaf in jax.tree.leaves((finite_metrics(metrics), stats, weights)):
        if id(leaf) not in unchanged and jnp.issubdtype(leaf.dtype, jnp.inexact):
            is_fine &= jnp.all(jnp.isfinite(leaf))
    return is_fine


def _select(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """Return the tree `new` if the condition is True, else `old`.

    A CPU uses a conditional: XLA then compiles the computation of both trees as if there
    were no selection, with bitwise equal results. Accelerators select each element of the
    arrays, because the host would wait for a conditional in every step.
    """
    if xla.platform() == "cpu":
        return jax.lax.cond(
            condition, lambda new, old: new, lambda new, old: old, new, old
        )
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), new, old)


DEPTH = (
    4  # Steps whose metrics are not read yet, so that devices do not wait for the host.
)


class Divergence(NamedTuple):
    """The failure of a training step of one seed; `step` is counted from 1."""

    seed: Hashable
    step: int
    cause: str  # The values that are not finite: "loss", "gradient" or "weights".
    rolled_back: bool  # False: the seed is frozen.


@dataclasses.dataclass
class Monitor:
    """Sums of each seed's metrics since the last evaluation, and the seeds that diverged.

    A seed diverged, or was rolled back, at the first step whose metric FROZEN or ROLLED_BACK
    is 1, or whose loss is not finite. `state` is part of a checkpoint, so that a resumed run
    has the same means.

    diverged: the step at which a seed diverged, by seed. rolled_back: failed steps by seed.
    sums, maxima: values by metric, by seed; maxima only for norms of gradients. counts:
    number of steps in the sums, by seed. resets: number of calls of `reset`.
    """

    seeds: tuple[Hashable, ...]  # Names of the seeds, in the order of the metrics.
    diverged: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    rolled_back: dict[Hashable, list[int]] = dataclasses.field(default_factory=dict)
    sums: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    maxima: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    counts: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    resets: int = 0
    latest: float | None = None  # Mean class loss over the finite seeds.
    _pending: collections.deque = dataclasses.field(default_factory=collections.deque)

    def add(
        self, step: int, metrics: Any, split: Callable[[Any], Sequence] = tuple
    ) -> list[Divergence]:
        """Queue a step's metrics; return the failures in steps that leave the queue.

        The queue holds the last DEPTH steps; metrics of older steps are read and added to
        the sums.

        metrics: metrics of all seeds, on the devices. split: maps the metrics, after they
          are copied to the host, to one mapping per seed, or None for a diverged seed that
          takes no more steps.
        """
        self._pending.append((step, metrics, split))
        return self._read_pending(DEPTH)

    def flush(self) -> list[Divergence]:
        """Wait for all queued steps; return their failures."""
        return self._read_pending(0)

    def _read_pending(self, depth: int) -> list[Divergence]:
        """Read the oldest queued metrics until `depth` steps are left; return their failures.

        Updates sums, maxima, counts, `diverged` and `rolled_back`; `latest` becomes the mean
        class loss of a step over its finite seeds. Failed steps and seeds that diverged earlier
        are not part of the sums.
        """
        events = []
        while len(self._pending) > depth:
            step, metrics, split = self._pending.popleft()
            finite_losses = []
            metrics_by_seed = split(jax.device_get(metrics))
            for seed, values in zip(self.seeds, metrics_by_seed, strict=True):
                if seed in self.diverged:
                    continue
                values = {name: float(value) for name, value in values.items()}
                event = _pop_failure(seed, step, values)
                if event is None:
                    losses = [v for k, v in values.items() if k.startswith("loss_")]
                    finite_losses.append(values.get("loss_class", losses[0]))
                    self._accumulate(seed, values)
                    continue
                events.append(event)
                if event.rolled_back:
                    self.rolled_back.setdefault(seed, []).append(step)
                else:
                    self.diverged[seed] = step
            if finite_losses:
                self.latest = sum(finite_losses) / len(finite_losses)
        return events

    def _accumulate(self, seed: Hashable, values: Mapping[str, float]) -> None:
        """Add a step's metrics to a seed's sums, and update its count and maxima.

        Only norms of gradients have maxima.
        """
        sums = self.sums.setdefault(seed, dict.fromkeys(values, 0.0))
        maxima = self.maxima.setdefault(seed, {})
        self.counts[seed] = self.counts.get(seed, 0) + 1
        for name, value in values.items():
            sums[name] += value
            if name.startswith("gradient_norm_"):
                maxima[name] = max(value, maxima.get(name, value))

    @property
    def all_diverged(self) -> bool:
        """True if every seed diverged."""
        return len(self.diverged) == len(self.seeds)

    def means(self, seed: Hashable) -> dict[str, float]:
        """Return a seed's mean of each metric, by name, since the last reset.

        For norms of gradients the largest value is added as <name>_max. The result is empty if the
        seed took no step since the reset.
        """
        sums, count = self.sums.get(seed, {}), self.counts.get(seed, 0)
        means = {name: total / count for name, total in sums.items()}
        maxima = self.maxima.get(seed, {}).items()
        return {**means, **{f"{name}_max": value for name, value in maxima}}

    def reset(self) -> None:
        """Clear sums, maxima and counts."""
        self.sums, self.maxima, self.counts = {}, {}, {}
        self.resets += 1

    def state(self) -> dict[str, Any]:
        """Return all fields that a resumed run needs as a JSON object, for `load`.

        The object maps a field to its values by seed, with the seed as text. The key of
        `maxima` is "most".
        """
        fields = {
            "diverged": self.diverged,
            "rolled_back": self.rolled_back,
            "sums": self.sums,
            "most": self.maxima,
            "counts": self.counts,
        }
        return {
            name: {str(seed): value for seed, value in by_seed.items()}
            for name, by_seed in fields.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the fields; state: the return value of the method `state`.

        Fields that `state` lacks become empty. A common "count" of an old checkpoint becomes
        the count of each seed. KeyError for seeds that the monitor lacks.
        """
        seeds = {str(seed): seed for seed in self.seeds}

        def by_seed(name: str) -> dict[Hashable, Any]:
            return {seeds[k]: v for k, v in state.get(name, {}).items()}

        self.diverged = by_seed("diverged")
        self.rolled_back = by_seed("rolled_back")
        self.sums = by_seed("sums")
        self.maxima = by_seed("most")
        self.counts = by_seed("counts")
        if "count" in state:  # Checkpoints from before rollback have one common count.
            self.counts = dict.fromkeys(self.sums, state["count"])


def _pop_failure(
    seed: Hashable, step: int, values: dict[str, float]
) -> Divergence | None:
    """Return the failure of a seed's step, or None if the step did not fail.

    A step failed if FROZEN or ROLLED_BACK is not 0 or a loss is not finite. The cause is "loss"
    or "gradient", the first that is not finite, else "weights". values: the step's metrics;
    FROZEN and ROLLED_BACK are removed from this dict.
    """
    rolled_back = values.pop(ROLLED_BACK, 0.0)
    frozen = values.pop(FROZEN, 0.0)
    nonfinite = {
        name.partition("_")[0]
        for name, value in finite_metrics(values).items()
        if not math.isfinite(value)
    }
    if not rolled_back and not frozen and "loss" not in nonfinite:
        return None
    cause = "loss" if "loss" in nonfinite else "gradient" if nonfinite else "weights"
    return Divergence(seed, step, cause, bool(rolled_back))
