"""Keeps a seed whose numbers are no longer finite from going on.

In the step itself, so that what a seed does is a function of its config, its own number
and the step: not of when the host looks, which is some steps later.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from jbias import config as jc
from jbias import step as train_step
from jbias.algos import base
from jbias.runtime import xla

# Metrics that must be finite; any other may be anything.
WATCHED = ("loss_", "gradient_norm_")
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


def rollback(
    how: Mapping[str, Any] | None, first: int, **lasting: int
) -> Rollback | None:
    """What config.rollback means in a stage from step `first`; None where it is off."""
    if not how or not how["times"]:
        return None
    every = jc.steps(how["every"], **lasting, where="config.rollback.every")
    return Rollback(every, how["times"], how["factor"], first)


def frozen(take: train_step.Step, *, settled: bool = False) -> train_step.Step:
    """The step, until one fails: from then on the state stays what it was before.

    A step fails where a loss, a gradient's norm or a statistic is not finite, and with
    `settled`, of weights that follow from others, where a weight is not. No other weight
    can fail alone: the norm of a gradient overflows long before a step along it does. So
    nothing is read once more for it. The frozen state's `step` is ~step, so that it never
    moves again, whatever the batch.
    """

    def step(
        state: train_step.State,
        batch: base.Batch,
        key: PRNGKeyArray,
        static: Hashable = None,
    ) -> tuple[train_step.State, dict[str, Float[Array, ""]]]:
        new, metrics = take(state, batch, key, static)
        with jax.named_scope("guard"):
            fine = _fine(state, new, metrics, settled)
            new = _chosen(fine, new, _stopped(state))
        return new, {**metrics, FROZEN: 1.0 - fine}

    return step


def rolling(
    take_at: Callable[[Float[Array, ""]], train_step.Step],
    how: Rollback,
    *,
    settled: bool = False,
) -> train_step.Step:
    """As `frozen`, of a state of `beginning` that first goes back, up to `how.times` times.

    `take_at` gives the step whose rate is that many times the config's. A failed step
    counts as taken: the seed goes on beside the others, with the weights, statistics and
    optimiser of before and the batches that are due.
    """

    def step(
        state: train_step.State,
        batch: base.Batch,
        key: PRNGKeyArray,
        static: Hashable = None,
    ) -> tuple[train_step.State, dict[str, Float[Array, ""]]]:
        stats = dict(state.stats)
        past = stats.pop(_PLACE)
        bare, count = state._replace(stats=stats), past["count"]
        due = (state.step >= 0) & ((state.step - how.first) % how.every == 0)
        held = _chosen(due, _held(bare), past["held"])
        new, metrics = take_at(how.factor**count)(bare, batch, key, static)
        fine = _fine(bare, new, metrics, settled)
        again = ~fine & (state.step >= 0) & (count < how.times)
        back = train_step.State(state.step + 1, **held)
        new = _chosen(fine, new, _chosen(again, back, _stopped(bare)))
        past = {"held": held, "count": count + again}
        told = {FROZEN: 1.0 - (fine | again), ROLLED_BACK: 1.0 * again}
        return new._replace(stats={**new.stats, _PLACE: past}), {**metrics, **told}

    return step


def beginning(draw: Callable[..., train_step.State]) -> Callable:
    """Draws states as `draw` does, with what `rolling` keeps in them."""

    def drawn(*args: Any) -> train_step.State:
        state = draw(*args)
        # A copy: the step's donated buffers must not meet twice.
        held = jax.tree.map(jnp.copy, _held(state))
        past = {"held": held, "count": jnp.zeros((), jnp.int32)}
        return state._replace(stats={**state.stats, _PLACE: past})

    return drawn


def watched(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Those that must be finite."""
    return {name: x for name, x in metrics.items() if name.startswith(WATCHED)}


def _held(state: train_step.State) -> dict[str, PyTree]:
    return {"params": state.params, "stats": state.stats, "opt": state.opt}


def _stopped(state: train_step.State) -> train_step.State:
    return state._replace(step=jnp.where(state.step < 0, state.step, ~state.step))


def _fine(
    state: train_step.State,
    new: train_step.State,
    metrics: Mapping[str, Array],
    settled: bool,
) -> Bool[Array, ""]:
    """Whether a state that is not frozen has taken a step to finite numbers."""
    there = {id(leaf) for leaf in jax.tree.leaves(state)}
    moved = {k: v for k, v in new.stats.items() if k != "average"}
    found = (watched(metrics), moved, new.params if settled else ())
    fine = state.step >= 0
    for leaf in jax.tree.leaves(found):
        if id(leaf) not in there and jnp.issubdtype(leaf.dtype, jnp.inexact):
            fine &= jnp.all(jnp.isfinite(leaf))
    return fine


def _chosen(fine: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """One of two trees.

    On CPU by a condition: what computes them keeps the bits that it has alone. The host
    of an accelerator would wait for it in every step: there each number is selected.
    """
    if xla.platform() == "cpu":
        return jax.lax.cond(fine, lambda new, old: new, lambda new, old: old, new, old)
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), new, old)
