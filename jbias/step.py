"""The train state of one seed and the pure step over an algorithm's updates."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jbias import optim, seeds
from jbias.algos import base


class State(NamedTuple):
    """All that a seed carries from step to step."""

    step: Int[Array, ""]
    params: dict[str, PyTree]  # "net" and one entry a part.
    stats: dict[str, PyTree]  # The same, and "average" where one is kept.
    opt: tuple[PyTree, ...]  # One entry an update.


Step = Callable[..., tuple[State, dict[str, Float[Array, ""]]]]


def init(
    algo: base.Algo,
    txs: tuple[optax.GradientTransformation, ...],
    key: PRNGKeyArray,
    image: Float[Array, "1 h w c"],
    net: Mapping[str, PyTree] | None = None,
    *,
    average: float = 0.0,
) -> State:
    """Draws the weights of the net and of each part from streams of their own.

    `net` gives {"params", "stats"} to start from instead of drawing them. `average` is
    that of `make`.
    """
    if net is None:
        net = algo.net.init(seeds.stream(key, "net"), image)
    params, stats = {"net": net["params"]}, {"net": net.get("stats", {})}
    for name, part in algo.parts.items():
        variables = part(seeds.stream(key, name), image, net)
        params[name] = variables.get("params", {})
        stats[name] = variables.get("stats", {})
    if average:
        # A copy: the step's donated buffers must not meet twice.
        start = {"params": params["net"], "stats": stats["net"]}
        stats["average"] = jax.tree.map(jnp.copy, start)
    opt = tuple(tx.init(params) for tx in _selected(algo, txs))
    return State(jnp.zeros((), jnp.int32), params, stats, opt)


def make(
    algo: base.Algo,
    txs: tuple[optax.GradientTransformation, ...],
    *,
    average: float = 0.0,
    first: int = 0,
) -> Step:
    """Builds (state, batch, key, static=None) -> (state, metrics).

    One forward pass gives all losses; each update pulls back its own loss, keeps
    the weights that it trains, and all updates are taken at the same weights. `key`
    is the seed's; the step folds in its number. Metrics are "loss_<name>" and the
    algorithm's own. With `average` a moving average of the net is kept, of that decay,
    from step `first` on.
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
            grads = _gradient(update, push, state.params, losses)
            delta, opt = tx.update(grads, opt, state.params)
            opts.append(opt)
            deltas.append(delta)
        params = state.params
        for delta in deltas:
            params = optax.apply_updates(params, delta)
        stats = dict(aux.stats)
        if average:
            stats["average"] = _moved(state, params, stats, average, first)
        new = State(state.step + 1, params, stats, tuple(opts))
        losses = {f"loss_{name}": loss for name, loss in losses.items()}
        return new, {**losses, **aux.metrics}

    return step


def net_of(state: State) -> dict[str, PyTree]:
    """The net to evaluate and to go on from: its moving average, where one is kept."""
    plain = {"params": state.params["net"], "stats": state.stats["net"]}
    return state.stats.get("average", plain)


def _moved(
    state: State, params: PyTree, stats: PyTree, decay: float, first: int
) -> PyTree:
    """Moves the average towards the new net; at first it hardly remembers the start.

    The decay of step first + t is at most (1 + t) / (10 + t).
    """
    t = state.step - first
    decay = jnp.minimum(decay, (1 + t) / (10 + t))
    new = {"params": params["net"], "stats": stats["net"]}
    return jax.tree.map(
        lambda old, new: decay * old + (1 - decay) * new, state.stats["average"], new
    )


def _gradient(
    update: base.Update, push: Callable, params: PyTree, losses: Mapping
) -> PyTree:
    """What an update follows; where it does not train, the value has no meaning."""
    grads = _pulled(push, params, losses, update.loss)
    if update.clip is not None:
        trained = jax.tree.map(
            lambda label, g: g if label == "trained" else None,
            _labels(update, params),
            grads,
        )
        scale = optim.clip_scale(trained, update.clip)
        grads = jax.tree.map(lambda g: g * scale.astype(g.dtype), grads)
    if update.plus is not None:
        more = _pulled(push, params, losses, update.plus)
        grads = jax.tree.map(jnp.add, grads, more)
    return grads


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
