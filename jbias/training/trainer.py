"""The whole of one seed's training: its first state, and its step."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jbias import feed, seeds
from jbias import step as train_step
from jbias.algos import base
from jbias.runtime import xla
from jbias.training import guard, parts


def make(
    algo: base.Algo,
    txs_at: Callable[[Any], tuple],
    inputs: Iterable[parts.Input],
    classes: int,
    *,
    other: Iterable[parts.Input] = (),
    rollback: guard.Rollback | None = None,
    **learning: Any,
) -> seeds.One:
    """The whole step of one seed: gather, transform, learn.

    `txs_at` gives the optimisers with so many times their rate. `learning` are options
    of step.make.
    """

    def take_at(scale: Any) -> train_step.Step:
        return train_step.make(algo, txs_at(scale), **learning)

    settled = algo.settle is not base.as_updated
    if rollback:
        take = guard.rolling(take_at, rollback, settled=settled)
    else:
        take = guard.frozen(take_at(1), settled=settled)

    def one(state, arg, held, static):
        key, taken = arg
        with jax.named_scope("data"):
            batch = feed.gather(held["train"], taken["train"], classes)
        stream = seeds.stream(key, "augment")
        if "other" in taken:
            with jax.named_scope("data"):
                beside = feed.gather(held["other"], taken["other"], None)
            apart = seeds.stream(key, "augment/other")
            batch["other"] = transformed(beside, apart, state.step, other)
        batch = transformed(batch, stream, state.step, inputs)
        return take(state, batch, key, static)

    return one


@jax.named_scope("inputs")
def transformed(batch: base.Batch, key: Any, step: Any, through: Iterable) -> Any:
    """A batch as a network is given it in a step, through so many parts.Input."""
    now = jax.random.fold_in(key, step)
    for transform in through:
        batch["once"] = seeds.stream(key, f"once/{transform.stream}")
        batch = transform.apply(batch, seeds.stream(now, transform.stream))
    return batch


def initialiser(
    algo: base.Algo, txs: tuple, shape: tuple[int, int], first: int, average: float
) -> Callable:
    """Draws a seed's state for step `first`; one program for all seeds."""

    def init(key, net):
        image = jnp.zeros((1, *shape, 3))
        state = train_step.init(algo, txs, key, image, net, average=average)
        return state._replace(step=jnp.asarray(first, jnp.int32))

    return init


def quickly_compiled(init: Callable) -> Callable:
    """Compiles what runs once a seed without optimising it: seconds instead of a dozen.

    On CPU the random bits of every weight's shape are optimised for half a second.
    """
    quick = {"xla_backend_optimization_level": 0}
    on_cpu = xla.platform() == "cpu"
    return jax.jit(init, compiler_options=quick if on_cpu else None)
