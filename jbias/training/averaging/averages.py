"""Averages of a network's weights over the steps of a stage (config.optim.average).

The average is evaluated, exported and passed to the next stage in place of the current network;
training itself does not depend on it. A network here is a dict {"params", "stats"}: its weights,
and the running statistics of its batch norms.

exponential: a moving average, average <- d average + (1 - d) w. In step t of the stage, counted
  from 0, d is at most (1 + t) / (10 + t), so that the initial weights soon have little influence.

uniform: the simple moving average of Arpit et al., "Ensemble of Averages", NeurIPS 2022
  (https://arxiv.org/abs/2110.10832): the mean of the weights after each step from step `first`
  on, w_first, ..., w_n. Until step `first`, the average is the current network.
  Code: https://github.com/salesforce/ensemble-of-averages at 19183f1, domainbed/algorithms.py,
  class MovingAvg. Deviations: its first mean is of w_99 and w_100, the paper's and ours of w_100
  and w_101 (first="100 steps"); it freezes batch norms, whose statistics are then constant.
  Each step rounds the mean once, by at most half a unit in the last place of float32.

One average costs one copy of the network per seed in memory, and reads and writes each weight of
the copy once per step.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from jbias import build, errors
from jbias import config as jc

Net = Mapping[str, PyTree]  # {"params", "stats"}.

KEY = "average"  # Key of the average in the `stats` of a train state.


class Average(NamedTuple):
    """An average, as functions of its state: a dict with the averaged "params" and "stats".

    start: (first network) -> the initial state.
    update: (state, network after a step, number of the step in the stage from 0) -> new state.
    """

    start: Callable[[Net], dict[str, PyTree]]
    update: Callable[[Mapping[str, PyTree], Net, Int[Array, ""]], dict[str, PyTree]]


def network(
    params: Mapping[str, PyTree], stats: Mapping[str, PyTree]
) -> dict[str, PyTree]:
    """Return the network to evaluate: the average if the state has one, else the current one.

    params, stats: of a train state.
    """
    net = stats.get(KEY, {"params": params["net"], "stats": stats["net"]})
    return {"params": net["params"], "stats": net["stats"]}


def copy(net: Net) -> dict[str, PyTree]:
    """Return a copy of a network, as a step cannot donate the same buffer twice."""
    return jax.tree.map(jnp.copy, dict(net))


def exponential(*, decay: float) -> Average:
    """Return an exponential moving average; decay: in (0, 1)."""

    def update(
        state: Mapping[str, PyTree], net: Net, t: Int[Array, ""]
    ) -> dict[str, PyTree]:
        d = jnp.minimum(decay, (1 + t) / (10 + t))
        return jax.tree.map(lambda a, b: d * a + (1 - d) * b, dict(state), dict(net))

    return Average(start=copy, update=update)


def uniform(*, first: int) -> Average:
    """Return the mean of the networks after step `first` and all later steps."""

    def update(
        state: Mapping[str, PyTree], net: Net, t: Int[Array, ""]
    ) -> dict[str, PyTree]:
        # The number of networks in the mean so far; 0: the average is the current network.
        count = jnp.maximum(t + 1 - first, 0)

        def mean(old: Array, new: Array) -> Array:
            return jnp.where(count == 0, new, old + (new - old) / (count + 1))

        return jax.tree.map(mean, dict(state), dict(net))

    return Average(start=copy, update=update)


def _make_exponential(
    where: str, total: int, steps_per_epoch: int, *, decay: float
) -> Average | None:
    """Return the exponential average of the options; None if `decay` is 0."""
    errors.check(0 <= decay < 1, f"{where}.decay", "be in [0, 1)", decay)
    return exponential(decay=decay) if decay else None


def _make_uniform(
    where: str, total: int, steps_per_epoch: int, *, first: str = "100 steps"
) -> Average:
    """Return the uniform average of the options.

    first: a duration such as "100 steps" or "25 %"; from the stage's last step on, the average is
    the last network.
    """
    steps = jc.to_steps(
        first, steps_per_epoch=steps_per_epoch, total=total, where=f"{where}.first"
    )
    return uniform(first=steps)


# By name, functions (place in messages, steps of the stage, steps per epoch, **options).
AVERAGES = types.MappingProxyType(
    {"exponential": _make_exponential, "uniform": _make_uniform}
)


def check_name(where: str, option: float | Mapping[str, Any]) -> None:
    """Raise ValueError if config.optim.average has entries and an unknown name.

    where: name of the entry in the config.
    """
    if isinstance(option, Mapping):
        build.check_name(where, option, AVERAGES)


def from_options(
    option: float | Mapping[str, Any],
    *,
    total: int,
    steps_per_epoch: int,
    where: str = "config.optim.average",
) -> Average | None:
    """Return the average of config.optim.average; None without an average.

    option: a dict with a name of AVERAGES and options, or the decay of an exponential average, 0
    for none. total: number of steps of the stage. where: name of the entry in the config.
    ValueError for wrong options.
    """
    if not isinstance(option, Mapping):
        return exponential(decay=option) if option else None
    make, options = build.lookup(where, option, AVERAGES)
    return build.call_checked(where, make, where, total, steps_per_epoch, **options)
