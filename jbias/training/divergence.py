"""Freeze or roll back a seed whose losses or gradients are not finite, inside the compiled step.

The host learns about a failure from the metrics FROZEN and ROLLED_BACK (`monitoring.Monitor`).
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jbias import config as jc
from jbias.runtime import xla
from jbias.training import step as train_step
from jbias.training.averaging import averages

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
    stats = {k: v for k, v in new_state.stats.items() if k != averages.KEY}
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
