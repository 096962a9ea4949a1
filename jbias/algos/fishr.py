"""Fishr: gradients of the last layer should have the same variance in all environments.

Source: Rame, Dancette and Cord, "Fishr: Invariant Gradient Variances for Out-of-Distribution
Generalization", ICML 2022, https://arxiv.org/abs/2109.02934.
Reference code: https://github.com/facebookresearch/DomainBed at b93c22a, class Fishr, which is
that of the authors' https://github.com/alexrame/fishr at 7b8fdf1.
Deviations: The optimiser is not reset when the penalty sets in; the reference resets it. (Two
stages, ERM and Fishr with anneal=0, do, but the moving averages then start at the second.) The
class loss and the variances are means over all examples and over the examples of an
environment, as in the reference; its batches have equal shares of all environments. An
environment without examples in a batch is left out, and its moving average is unchanged.
Gradients of the examples are never stored: the moments of their products with features are
computed in closed form.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias import errors
from jbias.algos import base, erm, groups
from jbias.augment import options

Variances = dict[str, Float[Array, "e ..."]]  # Of the gradients; "kernel" and "bias".


def make(
    net: nn.Module,
    *,
    weight: float = 1000.0,
    anneal: float = 0.3,
    ema: float = 0.95,
    by: str = "",
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return Fishr, with L = R + weight * mean_e mean_j (v_ej - mean_e v_ej)^2.

    v_ej is the variance, over the examples of environment e in the batch, of the gradient of
    their losses by weight j of the last layer, plus ema / (1 - ema) times its moving average
    over earlier batches, which has the decay `ema`. Means over e are over the environments
    in the batch. With weight=0 this equals ERM bit for bit.

    anneal: first share of the stage without penalty, in which moving averages are updated.
    by: column of the environments, or several joined by +; by default "domain" (the number of
      the source, or a column of the data set) or, without such a column, "attribute".
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    Losses: "class", "penalty", and "penalised", which is minimised. Variances are summed over
    devices, in addition to gradients. ValueError for a negative weight, for `anneal` outside
    [0, 1] and `ema` outside [0, 1), for columns that `groups.from_columns` refuses, and for a
    net that does not end in a linear layer.
    """
    errors.check_condition("fishr", "at least 0", weight=weight)
    errors.check_range("fishr", 0, 1, anneal=anneal)
    errors.check_condition("fishr", "in [0, 1)", ema=ema)
    if options.is_statically(weight, 0):
        return erm.make(net)
    if columns is None:
        return groups.evaluation_only("fishr", net)
    base.check_linear_head("fishr", net)
    known = groups.environments("fishr", columns, by)

    def losses(params, stats, batch, key, static=None):
        """Return the losses by name, and `base.Aux` without metrics; see base.Algo.

        "class" is the class loss, "penalty" the penalty, "penalised" the loss to minimise.
        """
        logits, h, net_stats = base.forward_features(
            net, params["net"], stats["net"], batch["image"], key
        )
        loss = base.objective(logits, batch)
        members = known.members(batch)
        present = (jnp.sum(members, axis=0) > 0).astype(jnp.float32)
        variances = gradient_variances(logits, h, batch, members)
        old = stats["variances"]
        summed = jax.tree.map(lambda v, m: v + ema / (1 - ema) * m, variances, old)
        term = penalty(summed, present)
        new_stats = {
            **stats,
            "net": net_stats,
            "variances": jax.lax.stop_gradient(
                updated_averages(old, variances, present, ema=ema)
            ),
        }
        total = loss if static is False else loss + weight * term
        named = {"class": loss, "penalty": term, "penalised": total}
        return named, base.Aux(new_stats, {})

    def init(key, image, net_variables):
        """Return {"stats": {"kernel", "bias"}}: moving averages (e c k) and (e k), all 0."""
        linear = net_variables["params"]["fc"]
        shape = (len(known.counts),)
        zeros = {name: jnp.zeros(shape + linear[name].shape) for name in linear}
        return {"stats": zeros}

    updates = (base.Update("penalised"),)
    return base.Algo(
        net,
        losses,
        updates,
        {"variances": init},
        static=base.after_share(anneal),
        whole_batch=True,
    )


def gradient_variances(
    logits: Float[Array, "b k"],
    h: Float[Array, "b c"],
    batch: base.Batch,
    members: Float[Array, "b e"],
) -> Variances:
    """Return the variances of the gradients of single examples by the last layer's weights.

    "kernel" (e c k) and "bias" (e k), over the examples of each environment; 0 for an
    environment that the batch lacks. The gradient of an example is h d^T by the kernel and d
    by the bias, with d = d(loss) / d(logits): variances need the sums of h d^T and of
    (h^2) (d^2)^T only.

    h: inputs of the last layer. members: result of Groups.members.
    """

    def total_loss(logits):
        """Return the sum of the examples' losses, whose gradient has a row per example."""
        return jnp.sum(base.example_losses(logits, batch))

    d = jax.grad(total_loss)(logits.astype(jnp.float32))
    total = jnp.sum(members, axis=0)
    share = members / jnp.where(total > 0, total, 1)[None]
    inputs = {"kernel": h, "bias": jnp.ones_like(h[:, :1])}
    variances = {}
    for name, x in inputs.items():
        mean = _weighted_products(share, x, d)
        square = _weighted_products(share, jnp.square(x), jnp.square(d))
        variances[name] = square - jnp.square(mean)
    return {"kernel": variances["kernel"], "bias": variances["bias"][:, 0]}


def _weighted_products(
    share: Float[Array, "b e"], x: Float[Array, "b c"], d: Float[Array, "b k"]
) -> Float[Array, "e c k"]:
    """Return sum_b share_be x_bc d_bk, without an array of the size b c k."""
    weighted = share[:, :, None] * d[:, None, :]
    exact = jax.lax.Precision.HIGHEST
    return jnp.einsum("bek,bc->eck", weighted, x, precision=exact)


def penalty(variances: Variances, present: Float[Array, "e"]) -> Float[Array, ""]:
    """Return the mean, over environments and weights, of (v_ej - mean_e v_ej)^2.

    present: 1 for environments in the batch, else 0; only these count.
    """
    flat = [v.reshape(len(v), -1) for v in variances.values()]
    v = jnp.concatenate(flat, axis=1)
    count = jnp.maximum(jnp.sum(present), 1)
    centre = jnp.sum(present[:, None] * v, axis=0, keepdims=True) / count
    distances = jnp.mean(jnp.square(v - centre), axis=1)
    return groups.mean_present(distances, present)


def updated_averages(
    averages: Variances, variances: Variances, present: Float[Array, "e"], *, ema: float
) -> Variances:
    """Return the moving averages after a batch: ema * average + (1 - ema) * variance.

    present: 1 for environments in the batch, else 0; the averages of other environments are
    unchanged.
    """

    def update(average, variance):
        """Return the new averages of one array, for all environments."""
        is_present = present.reshape(-1, *[1] * (average.ndim - 1)) > 0
        new = ema * average + (1 - ema) * variance
        return jnp.where(is_present, new, average)

    return jax.tree.map(update, averages, variances)


ALGOS = {"fishr": make}
