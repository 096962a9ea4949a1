"""The train state of one seed and the pure step over an algorithm's updates."""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jbias.algos import base
from jbias.runtime import xla
from jbias.training import prng


class State(NamedTuple):
    """All that a seed carries from step to step."""

    step: Int[Array, ""]
    params: dict[str, PyTree]  # "net" and one entry a part.
    stats: dict[str, PyTree]  # The same, and "average" where one is kept.
    opt: tuple[PyTree, ...]  # One entry an update.


TrainStep = Callable[..., tuple[State, dict[str, Float[Array, ""]]]]
Optimisers = tuple[optax.GradientTransformation, ...]  # One an update.


def init(
    algo: base.Algo,
    txs: Optimisers,
    key: PRNGKeyArray,
    image: Float[Array, "1 h w c"],
    net: Mapping[str, PyTree] | None = None,
    *,
    average: float = 0.0,
) -> State:
    """Draws the weights of the net and of each part from streams of their own.

    `net` gives {"params", "stats"} to start from instead of drawing them. `average` is
    that of `make_step`.
    """
    if net is None:
        net = algo.net.init(prng.stream(key, "net"), image)
    params, stats = {"net": net["params"]}, {"net": net.get("stats", {})}
    for name, part in algo.parts.items():
        variables = part(prng.stream(key, name), image, net)
        params[name] = variables.get("params", {})
        stats[name] = variables.get("stats", {})
    if average:
        # A copy: the step's donated buffers must not meet twice.
        start = {"params": params["net"], "stats": stats["net"]}
        stats["average"] = jax.tree.map(jnp.copy, start)
    opt = tuple(tx.init(params) for tx in _selected(algo, txs))
    return State(jnp.zeros((), jnp.int32), params, stats, opt)


def make_step(
    algo: base.Algo,
    txs: Optimisers,
    *,
    average: float = 0.0,
    first: int = 0,
    accumulate: int = 1,
    block: int = 1,
) -> TrainStep:
    """Builds (state, batch, key, static=None) -> (state, metrics).

    One forward pass gives all losses; each update pulls back its own loss, keeps
    the weights that it trains, and all updates are taken at the same weights. `key`
    is the seed's; the step folds in its number. Metrics are "loss_<name>", what
    `_gradient` says of each update as "gradient_norm_<name>", and the algorithm's own.
    With `average` a moving average of the net is kept, of that decay, from step `first`
    on.

    With `accumulate` = k > 1 the batch passes as k micro-batches, one after the other:
    losses, metrics and gradients are averaged before the updates see them, statistics
    go through them in turn. The j-th `block` examples are of micro-batch j % k.
    """
    selected = _selected(algo, txs)
    followed = _full_batch if accumulate == 1 else _in_turn(accumulate, block)

    def step(state, batch, key, static=None):
        key = jax.random.fold_in(prng.stream(key, "algorithm"), state.step)
        given = state.params, state.stats, batch, key, static
        losses, gradient, aux = followed(algo, *given)
        opts, deltas, norms = [], [], {}
        for update, tx, opt in zip(algo.updates, selected, state.opt):
            grads, norm = _gradient(update, gradient, state.params)
            norms.setdefault((update.loss, update.trains), norm)
            with jax.named_scope("optimiser"):
                delta, opt = tx.update(grads, opt, state.params)
            opts.append(opt)
            deltas.append(delta)
        params = state.params
        with jax.named_scope("optimiser"):
            for delta in deltas:
                params = optax.apply_updates(params, delta)
        stats = dict(aux.stats)
        params = algo.settle(params, stats)
        if average:
            with jax.named_scope("optimiser"):
                stats["average"] = _moved(state, params, stats, average, first)
        new = State(state.step + 1, params, stats, tuple(opts))
        losses = {f"loss_{name}": loss for name, loss in losses.items()}
        return new, {**losses, **_by_loss(norms), **aux.metrics}

    return step


def net_of(state: State) -> dict[str, PyTree]:
    """The net to evaluate and to go on from: its moving average, where one is kept."""
    plain = {"params": state.params["net"], "stats": state.stats["net"]}
    return state.stats.get("average", plain)


def _moved(state: State, params, stats, decay: float, first: int) -> PyTree:
    """Moves the average towards the new net; at first it hardly remembers the start.

    The decay of step first + t is at most (1 + t) / (10 + t).
    """
    t = state.step - first
    decay = jnp.minimum(decay, (1 + t) / (10 + t))
    old, new = state.stats["average"], {"params": params["net"], "stats": stats["net"]}
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)


def _full_batch(algo: base.Algo, params, stats, batch, key, static) -> tuple:
    """A batch's losses, what gives the gradient of each by name, and what comes along."""
    losses, push, aux = jax.linearize(
        lambda params: algo.losses(params, stats, batch, key, static),
        params,
        has_aux=True,
    )

    def gradient(name: str) -> PyTree:
        """Transposes that loss's part of the linear map.

        Zero cotangents for the other losses would give the same, but are computed with:
        SagNet's step then takes a quarter more operations.
        """
        transposed = jax.linear_transpose(lambda tangent: push(tangent)[name], params)
        (grads,) = transposed(jnp.ones_like(losses[name]))
        return grads

    return losses, gradient, aux


def _in_turn(count: int, block: int) -> Callable:
    """Does as `_full_batch` with `count` micro-batches, of which one at a time is held.

    A loop around convolutions is slow on CPU: there they are written out. Inside the
    loop gradients are only added up: so XLA sums them over devices once, behind it.
    """
    loop = _written_out if xla.platform() == "cpu" else jax.lax.scan

    def through(algo, params, stats, batch, key, static):
        names = {name for one in algo.updates for name in (one.loss, one.plus) if name}
        zeros = {name: jax.tree.map(jnp.zeros_like, params) for name in sorted(names)}
        if "weight" in batch:
            batch = {**batch, "weight_sum": jnp.sum(batch["weight"]) / count}

        def one(carry, number):
            stats, sums = carry
            part = micro_batch(batch, number, count, block)
            now = jax.random.fold_in(key, number)
            losses, gradient, aux = _full_batch(algo, params, stats, part, now, static)
            sums = {k: jax.tree.map(jnp.add, v, gradient(k)) for k, v in sums.items()}
            return (aux.stats, sums), (losses, aux.metrics)

        (stats, sums), each = loop(one, (stats, zeros), jnp.arange(count))
        losses, metrics = jax.tree.map(lambda x: jnp.mean(x, axis=0), each)
        grads = jax.tree.map(lambda total: total / count, sums)
        return losses, grads.__getitem__, base.Aux(stats, metrics)

    return through


def _written_out(one: Callable, carry: tuple, numbers: Int[Array, "k"]) -> tuple:
    """Does as jax.lax.scan, without a loop, where each turn begins after the last.

    XLA would begin with all forward passes and hold what they leave; its barriers do not
    order them on CPU. So a turn's number waits for the gradients before, by a term that
    is 0 unless these are not numbers.
    """
    outs = []
    for number in numbers:
        late = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(carry))
        carry, out = one(carry, number + jnp.isnan(late))
        outs.append(out)
    return carry, jax.tree.map(lambda *x: jnp.stack(x), *outs)


def micro_batch(
    batch: base.Batch, number: int | Int[Array, ""], count: int, block: int
) -> dict[str, Any]:
    """Takes every `count`-th block of `block` examples, from block `number` on.

    So it is the same examples on any number of devices, and none leaves its device where
    each has a multiple of `count` blocks. Views of an image stay together. Raises
    ValueError where `count` blocks do not divide the batch.
    """
    rows, block_rows = len(batch["image"]), block * batch.get("views", 1)
    if rows % (count * block_rows):
        raise ValueError(
            f"step: the batch must be a multiple of accumulate={count} x {block_rows} "
            f"rows, got {rows}; lower accumulate or change the batch"
        )

    def taken(x):
        if not jnp.ndim(x):
            return x  # A number, or a key.
        blocks = x.reshape(-1, count, block_rows, *x.shape[1:])
        mine = jax.lax.dynamic_index_in_dim(blocks, number, axis=1, keepdims=False)
        return mine.reshape(-1, *x.shape[1:])

    own = {name: x for name, x in batch.items() if name != "other"}
    part = jax.tree.map(taken, own)
    if "other" in batch:
        part["other"] = micro_batch(batch["other"], number, count, block)
    return part


def _gradient(update: base.Update, gradient: Callable, params: PyTree) -> tuple:
    """What an update follows; where it does not train, the value has no meaning.

    Second comes the L2 norm of its loss's gradient over what it trains, before any clip.
    """
    grads, labels = gradient(update.loss), _labels(update, params)
    trained = jax.tree.map(lambda x, g: g if x == "trained" else None, labels, grads)
    with jax.named_scope("guard"):
        norm = optax.tree.norm(trained)
    if update.clip is not None:
        scale = clip_scale(trained, update.clip)
        grads = jax.tree.map(lambda g: g * scale.astype(g.dtype), grads)
    if update.plus is not None:
        more = gradient(update.plus)
        grads = jax.tree.map(jnp.add, grads, more)
        norm += 0 * optax.tree.norm(more)  # Not finite where that is not.
    return grads, norm


def _by_loss(norms: Mapping[tuple, Float[Array, ""]]) -> dict[str, Float[Array, ""]]:
    """Names norms by their losses; the second of one loss, of other weights, ends in _2."""
    named, seen = {}, collections.Counter()
    for (loss, _), norm in norms.items():
        seen[loss] += 1
        number = f"_{seen[loss]}" * (seen[loss] > 1)
        named[f"gradient_norm_{loss}{number}"] = norm
    return named


def _selected(algo: base.Algo, txs: Optimisers) -> Optimisers:
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
        names = tuple(str(entry.key) for entry in path)
        return "trained" if update.trains(names) else "frozen"

    return jax.tree_util.tree_map_with_path(label, params)


def clip_scale(grads: PyTree, limit: float) -> Float[Array, ""]:
    """What brings a gradient to a global L2 norm of at most `limit`, as torch does.

    min(1, limit / (|g| + 1e-6)); optax divides by |g| itself.
    """
    return jnp.minimum(1.0, limit / (optax.tree.norm(grads) + 1e-6))
