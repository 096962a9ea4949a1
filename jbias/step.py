"""The train state of one seed and the pure step over an algorithm's updates."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jbias import seeds
from jbias.algos import base


class State(NamedTuple):
    """All that a seed carries from step to step."""

    step: Int[Array, ""]
    params: dict[str, PyTree]  # "net" and one entry a part.
    stats: dict[str, PyTree]  # The same, and "algo" where an algorithm keeps more.
    opt: tuple[PyTree, ...]  # One entry an update.


Step = Callable[..., tuple[State, dict[str, Float[Array, ""]]]]


def init(
    algo: base.Algo,
    txs: tuple[optax.GradientTransformation, ...],
    key: PRNGKeyArray,
    image: Float[Array, "1 h w c"],
    net: Mapping[str, PyTree] | None = None,
) -> State:
    """Draws the weights of the net and of each part from streams of their own.

    `net` gives {"params", "stats"} to start from instead of drawing them.
    """
    if net is None:
        net = algo.net.init(seeds.stream(key, "net"), image)
    params, stats = {"net": net["params"]}, {"net": net.get("stats", {})}
    for name, part in algo.parts.items():
        variables = part(seeds.stream(key, name), image, net)
        params[name] = variables.get("params", {})
        stats[name] = variables.get("stats", {})
    opt = tuple(tx.init(params) for tx in _selected(algo, txs))
    return State(jnp.zeros((), jnp.int32), params, stats, opt)


def make(algo: base.Algo, txs: tuple[optax.GradientTransformation, ...]) -> Step:
    """Builds (state, batch, key, static=None) -> (state, metrics).

    One forward pass gives all losses; each update pulls back its own loss, keeps
    the weights that it trains, and all updates are taken at the same weights. `key`
    is the seed's; the step folds in its number. Metrics are "loss_<name>" and the
    algorithm's own.
    """
    selected = _selected(algo, txs)

    def step(
        state: State, batch: base.Batch, key: PRNGKeyArray, static: Hashable = None
    ) -> tuple[State, dict[str, Float[Array, ""]]]:
        key = jax.random.fold_in(seeds.stream(key, "algorithm"), state.step)
        losses, push, aux = jax.linearize(
            lambda params: algo.losses(params, state.stats, batch, key, static),
            state.params,
            has_aux=True,
        )
        opts, deltas = [], []
        for update, tx, opt in zip(algo.updates, selected, state.opt):
            grads = _pulled(push, state.params, losses, update.loss)
            delta, opt = tx.update(grads, opt, state.params)
            opts.append(opt)
            deltas.append(delta)
        params = state.params
        for delta in deltas:
            params = optax.apply_updates(params, delta)
        new = State(state.step + 1, params, aux.stats, tuple(opts))
        losses = {f"loss_{name}": loss for name, loss in losses.items()}
        return new, {**losses, **aux.metrics}

    return step


def _pulled(push: Callable, params: PyTree, losses: Mapping, name: str) -> PyTree:
    """The gradient of one loss, by transposing that loss's part of the linear map.

    Zero cotangents for the other losses would give the same, but are computed with:
    SagNet's step then takes a quarter more operations.
    """
    transposed = jax.linear_transpose(lambda tangent: push(tangent)[name], params)
    (grads,) = transposed(jnp.ones_like(losses[name]))
    return grads


def _selected(
    algo: base.Algo, txs: tuple[optax.GradientTransformation, ...]
) -> tuple[optax.GradientTransformation, ...]:
    """Restricts each transformation to the weights that its update trains."""
    return tuple(
        optax.partition(
            {"trained": tx, "frozen": optax.set_to_zero()},
            lambda params, update=update: _labels(update, params),
        )
        for update, tx in zip(algo.updates, txs, strict=True)
    )


def _labels(update: base.Update, params: PyTree) -> PyTree:
    def label(path: tuple[Any, ...], _: Array) -> str:
        return "trained" if update.trains(_names(path)) else "frozen"

    return jax.tree_util.tree_map_with_path(label, params)


def _names(path: tuple[Any, ...]) -> base.Path:
    return tuple(str(entry.key) for entry in path)
