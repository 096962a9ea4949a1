"""`State`, the train state of one seed, and `make_step`, its training step."""

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
from jbias.training.averaging import averages
from jbias.training.perturbing import sharpness as sharpness_aware


class State(NamedTuple):
    """The train state of one seed."""

    step: Int[Array, ""]
    params: dict[str, PyTree]  # "net" and one entry per part of the algorithm.
    stats: dict[str, PyTree]  # As `params`, and the state of an average (`averages`).
    opt: tuple[PyTree, ...]  # One entry per update.


TrainStep = Callable[..., tuple[State, dict[str, Float[Array, ""]]]]
Optimisers = tuple[optax.GradientTransformation, ...]  # One per update.


class _Gradients(NamedTuple):
    """The losses of a batch, their gradients, and the algorithm's further results."""

    losses: dict[str, Float[Array, ""]]
    gradient_of: Callable[[str], PyTree]  # Maps a loss's name to its gradient.
    aux: base.Aux


def init(
    algo: base.Algo,
    txs: Optimisers,
    key: PRNGKeyArray,
    image: Float[Array, "1 h w c"],
    net: Mapping[str, PyTree] | None = None,
    *,
    average: averages.Average | None = None,
) -> State:
    """Return the initial state of a seed, at step 0.

    The network and each part of the algorithm have a random stream of their own.

    txs: one optimiser per update. key: key of the seed. image: an input of the network, for
    its shape. net: {"params", "stats"} of a network to start from; None: draw its weights.
    average: average of the network's weights that the state keeps.
    """
    if net is None:
        net = algo.net.init(prng.stream(key, "net"), image)
    params, stats = {"net": net["params"]}, {"net": net.get("stats", {})}
    for name, part in algo.parts.items():
        variables = part(prng.stream(key, name), image, net)
        params[name] = variables.get("params", {})
        stats[name] = variables.get("stats", {})
    if average:
        stats[averages.KEY] = average.start(
            {"params": params["net"], "stats": stats["net"]}
        )
    opt = tuple(tx.init(params) for tx in _selected(algo, txs))
    return State(jnp.zeros((), jnp.int32), params, stats, opt)


def make_step(
    algo: base.Algo,
    txs: Optimisers,
    *,
    average: averages.Average | None = None,
    first: int = 0,
    accumulate: int = 1,
    block: int = 1,
    sharpness: sharpness_aware.Sharpness | None = None,
) -> TrainStep:
    """Return the training step (state, batch, key, static=None) -> (state, metrics).

    One forward pass computes all losses. Each update that the step applies (`Update.when`)
    uses the gradient of its own loss on the weights that it trains; all gradients are taken at
    the same weights. `key` is the seed's key, equal in all steps. Metrics are scalars by name:
    "loss_<name>", for applied updates "gradient_norm_<name>" (see `_gradient`) and
    "sharpness_<name>" (see `sharpness`), and the algorithm's own.

    txs: one optimiser per update.
    average: average of the network's weights from step `first` on; None: none.
    accumulate, block: with accumulate = k > 1, the batch is processed as k micro-batches,
      one after the other. Losses, metrics and gradients are averaged over micro-batches
      before the updates; batch statistics are updated after each micro-batch. The j-th block of
      `block` examples belongs to micro-batch j % k.
    sharpness: take each update's gradient at perturbed weights (perturbing/sharpness.py), in
      one more pass per update; "sharpness_<name>" is the rise of the update's loss there.
      None: no second pass.
    """
    selected = _selected(algo, txs)
    compute_gradients = (
        _full_batch if accumulate == 1 else _accumulated(accumulate, block)
    )

    def step(state, batch, key, static=None):
        """Take a training step of one seed; return (new `State`, metrics, scalars by name).

        Arguments and names of metrics: see `make_step`.
        """
        key = jax.random.fold_in(prng.stream(key, "algorithm"), state.step)
        losses, gradient_of, aux = compute_gradients(
            algo, state.params, state.stats, batch, key, static
        )
        opts, deltas, norms, rises = [], [], {}, {}

        def compute_at(params, update):
            """Return the losses and gradients of one update at other weights, `_Gradients`."""
            return compute_gradients(
                algo._replace(updates=(update,)),
                params,
                state.stats,
                batch,
                key,
                static,
            )

        for update, tx, opt in zip(algo.updates, selected, state.opt):
            if not update.is_applied(static):
                opts.append(_skip_step(opt))
                continue
            grads, norm = _gradient(update, gradient_of, state.params)
            if sharpness is not None:
                perturbed = _perturbed(update, grads, state.params, sharpness)
                above = compute_at(perturbed, update)
                grads, norm = _gradient(update, above.gradient_of, state.params)
                rise = above.losses[update.loss] - losses[update.loss]
                rises.setdefault((update.loss, update.trains), rise)
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
                stats[averages.KEY] = average.update(
                    state.stats[averages.KEY],
                    {"params": params["net"], "stats": stats["net"]},
                    state.step - first,
                )
        new_state = State(state.step + 1, params, stats, tuple(opts))
        losses = {f"loss_{name}": loss for name, loss in losses.items()}
        metrics = _by_loss("gradient_norm", norms) | _by_loss("sharpness", rises)
        return new_state, {**losses, **metrics, **aux.metrics}

    return step


def net_of(state: State) -> dict[str, PyTree]:
    """Return the network {"params", "stats"} for evaluation and for later stages.

    This is the average of weights if the state has one, else the current network.
    """
    return averages.network(state.params, state.stats)


def _full_batch(
    algo: base.Algo,
    params: PyTree,
    stats: PyTree,
    batch: base.Batch,
    key: PRNGKeyArray,
    static: Any,
) -> _Gradients:
    """Return the losses and gradients of a batch, processed as a whole.

    params, stats: trees of the state. key: random key of this step. static: compile-time
    arguments.
    """
    losses, push, aux = jax.linearize(
        lambda params: algo.losses(params, stats, batch, key, static),
        params,
        has_aux=True,
    )

    def gradient_of(name: str) -> PyTree:
        """Return the gradient of one loss: the transpose of its part of the linear map.

        Zero cotangents for the other losses would have the same result, but XLA computes
        with these zeros: SagNet's step then takes a quarter more operations.
        """
        transposed = jax.linear_transpose(lambda tangent: push(tangent)[name], params)
        (grads,) = transposed(jnp.ones_like(losses[name]))
        return grads

    return _Gradients(losses, gradient_of, aux)


def _accumulated(count: int, block: int) -> Callable[..., _Gradients]:
    """Return a function like `_full_batch` that processes `count` micro-batches in turn.

    block: number of neighbouring examples that stay together, see `micro_batch`. A loop
    around convolutions is slow on CPU, where the loop is unrolled. The loop only adds
    gradients, so that XLA sums them over devices once, after the loop.
    """
    loop = _unrolled_scan if xla.platform() == "cpu" else jax.lax.scan

    def accumulated(algo, params, stats, batch, key, static):
        """Return the mean losses, gradients and metrics over all micro-batches, as `_Gradients`.

        The statistics in `aux` have their values after the last micro-batch. Arguments: see
        `_full_batch`.
        """
        names = {
            name
            for update in algo.updates
            for name in (update.loss, update.plus)
            if name and update.is_applied(static)
        }
        zeros = {name: jax.tree.map(jnp.zeros_like, params) for name in sorted(names)}
        if "weight" in batch:
            batch = {**batch, "weight_sum": jnp.sum(batch["weight"]) / count}

        def add_micro_batch(carry, number):
            """Return (carry with the gradients of a micro-batch added, (losses, metrics)).

            carry: (statistics, sums of gradients by name of the loss). number: index of the
            micro-batch.
            """
            stats, sums = carry
            losses, gradient_of, aux = _full_batch(
                algo,
                params,
                stats,
                micro_batch(batch, number, count=count, block=block),
                jax.random.fold_in(key, number),
                static,
            )
            sums = {
                name: jax.tree.map(jnp.add, total, gradient_of(name))
                for name, total in sums.items()
            }
            return (aux.stats, sums), (losses, aux.metrics)

        (stats, sums), stacked = loop(
            add_micro_batch, (stats, zeros), jnp.arange(count)
        )
        losses, metrics = jax.tree.map(lambda x: jnp.mean(x, axis=0), stacked)
        grads = jax.tree.map(lambda total: total / count, sums)
        return _Gradients(losses, grads.__getitem__, base.Aux(stats, metrics))

    return accumulated


def _unrolled_scan(
    body: Callable[[PyTree, Any], tuple[PyTree, PyTree]],
    carry: PyTree,
    numbers: Int[Array, "k"],
) -> tuple[PyTree, PyTree]:
    """Return the result of jax.lax.scan(body, carry, numbers), computed without a loop.

    Without a loop, XLA would start with the forward passes of all iterations and store all
    activations. Each iteration therefore depends on the previous one: its number has an added
    term that is 0 unless the earlier gradients are NaN. (XLA's barriers do not order
    computations on CPU.)
    """
    outs = []
    for number in numbers:
        carry_sum = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(carry))
        carry, out = body(carry, number + jnp.isnan(carry_sum))
        outs.append(out)
    return carry, jax.tree.map(lambda *x: jnp.stack(x), *outs)


def micro_batch(
    batch: base.Batch, number: int | Int[Array, ""], count: int, block: int
) -> dict[str, Any]:
    """Return the micro-batch `number`: every `count`-th block of `block` examples.

    Block j of the batch belongs to micro-batch j % count; scalars and keys in the batch are
    unchanged. A micro-batch has the same examples on any number of devices, and no example
    moves to a different device if each device has a multiple of `count` blocks. Views of an
    image stay together, and count as one example. batch["other"] is divided in the same way.
    ValueError if the batch is not a multiple of `count` blocks.
    """
    rows, block_rows = len(batch["image"]), block * batch.get("views", 1)
    if rows % (count * block_rows):
        raise ValueError(
            f"step: the batch must be a multiple of accumulate={count} x {block_rows} "
            f"rows, got {rows}; lower accumulate or change the batch"
        )

    def select(x):
        """Return the rows of one array that belong to the micro-batch."""
        if not jnp.ndim(x):
            return x  # A number, or a key.
        blocks = x.reshape(-1, count, block_rows, *x.shape[1:])
        selected = jax.lax.dynamic_index_in_dim(blocks, number, axis=1, keepdims=False)
        return selected.reshape(-1, *x.shape[1:])

    first_set = {name: x for name, x in batch.items() if name != "other"}
    selected_batch = jax.tree.map(select, first_set)
    if "other" in batch:
        selected_batch["other"] = micro_batch(
            batch["other"], number, count=count, block=block
        )
    return selected_batch


def _gradient(
    update: base.Update, gradient_of: Callable[[str], PyTree], params: PyTree
) -> tuple[PyTree, Float[Array, ""]]:
    """Return an update's gradient, and the L2 norm of its loss's gradient before clipping.

    gradient_of: maps the name of a loss to its gradient. The norm is over the weights that
    the update trains, and NaN if the gradient of `update.plus` is not finite. The returned
    gradient also has the weights that the update does not train; ignore them.
    """
    grads, labels = gradient_of(update.loss), _labels(update, params)
    trained = jax.tree.map(lambda x, g: g if x == "trained" else None, labels, grads)
    with jax.named_scope("guard"):
        norm = optax.tree.norm(trained)
    if update.clip is not None:
        scale = clip_scale(trained, update.clip)
        grads = jax.tree.map(lambda g: g * scale.astype(g.dtype), grads)
    if update.plus is not None:
        plus_grads = gradient_of(update.plus)
        grads = jax.tree.map(jnp.add, grads, plus_grads)
        # Makes the norm NaN if the second loss's gradient is not finite.
        norm += 0 * optax.tree.norm(plus_grads)
    return grads, norm


def _perturbed(
    update: base.Update,
    grads: PyTree,
    params: PyTree,
    sharpness: sharpness_aware.Sharpness,
) -> PyTree:
    """Return the weights at which a sharpness-aware update takes its gradient.

    grads: the update's gradient at the weights `params`. Weights that the update does not
    train are unchanged.
    """
    labels = _labels(update, params)
    trained = jax.tree.map(lambda label: label == "trained", labels)
    with jax.named_scope("optimiser"):
        return sharpness_aware.perturb(
            params, grads, trained=trained, sharpness=sharpness
        )


def _by_loss(
    metric: str, values: Mapping[tuple, Float[Array, ""]]
) -> dict[str, Float[Array, ""]]:
    """Return a metric of each update by name, such as "gradient_norm_<loss>".

    values: by (name of the loss, selection of the trained weights). Further values of one
    loss, over other weights, are "gradient_norm_<loss>_2" and so on.
    """
    metrics, counts = {}, collections.Counter()
    for (loss, _), value in values.items():
        counts[loss] += 1
        suffix = f"_{counts[loss]}" if counts[loss] > 1 else ""
        metrics[f"{metric}_{loss}{suffix}"] = value
    return metrics


def _skip_step(opt: PyTree) -> PyTree:
    """Return an optimiser's state after a step without its update.

    Only the counts of schedules grow, so that learning rates follow the steps of the run.
    """

    def advance(entry: Any) -> Any:
        """Return the state of a schedule with its count increased; other entries as they are."""
        if not isinstance(entry, optax.ScaleByScheduleState):
            return entry
        return entry._replace(count=entry.count + 1)

    return jax.tree.map(
        advance,
        opt,
        is_leaf=lambda entry: isinstance(entry, optax.ScaleByScheduleState),
    )


def _selected(algo: base.Algo, txs: Optimisers) -> Optimisers:
    """Return the optimisers, each restricted to the weights that its update trains."""
    return tuple(
        optax.partition(
            {"trained": tx, "frozen": optax.set_to_zero()},
            lambda params, update=update: _labels(update, params),
        )
        for update, tx in zip(algo.updates, txs, strict=True)
    )


def _labels(update: base.Update, params: PyTree) -> PyTree:
    """Return a tree like `params` with the label "trained" or "frozen" of each weight."""

    def label(path: tuple[Any, ...], _: Array) -> str:
        names = tuple(str(entry.key) for entry in path)
        return "trained" if update.trains(names) else "frozen"

    return jax.tree_util.tree_map_with_path(label, params)


def clip_scale(grads: PyTree, limit: float) -> Float[Array, ""]:
    """Return the factor that clips a gradient to a global L2 norm of at most `limit`.

    The factor is min(1, limit / (|g| + 1e-6)), as in torch; optax divides by |g|.
    """
    return jnp.minimum(1.0, limit / (optax.tree.norm(grads) + 1e-6))
