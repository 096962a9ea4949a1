"""Deep feature reweighting: the last layer is refitted on standardised features.

Source: Kirichenko, Izmailov and Wilson, "Last Layer Re-Training is Sufficient for
Robustness to Spurious Correlations", ICLR 2023, https://arxiv.org/abs/2204.02937.
Reference code: https://github.com/PolinaKirichenko/deep_feature_reweighting at 46666e6,
dfr_evaluate_spurious.py.
Deviations: the reference fits logistic regressions to twenty group-balanced subsets of the
held-out images and averages the regressions; here one layer is trained on group-balanced
batches, by proximal steps, and no image is left out. Features are standardised by the
statistics of the images that the layer is trained on; the reference uses the statistics of the
training set. The strength of L1 is not searched.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.algos import base


def make(net: nn.Module) -> base.Algo:
    """Return DFR, which replaces the linear layer by z = W (h - m) / s + b.

    W and b are trained from 0. h is the input of the linear layer in evaluation mode; the rest
    of the net is frozen. m and s are the mean and standard deviation of h over all examples so
    far (s = 1 for constant features). Use DFR as a second stage, on separate images, with
    balance="group" and without augmentation, as in configs/dfr.py. The L1 penalty,
    config.optim.l1 of the optimiser, acts on W; zeros of W are zeros of the net's layer.

    The metric "zeros" is the fraction of weights in W that are 0. ValueError for a net that
    does not end in a linear layer.
    """
    base.check_linear_head("dfr", net)

    def losses(params, stats, batch, key, static=None):
        """Return {"class": loss} and `base.Aux`, with the metric "zeros"; see base.Algo."""
        _, h, _ = base.forward_features(
            net, params["net"], stats["net"], batch["image"], None, train=False
        )
        h = jax.lax.stop_gradient(h)
        sums = add_batch(stats["head"], h, batch.get("weight"))
        mean, deviation = moments(sums)
        head = params["head"]
        z = (h - mean[None]) / deviation[None] @ head["kernel"] + head["bias"][None]
        metrics = {"zeros": jnp.mean((head["kernel"] == 0).astype(jnp.float32))}
        loss = base.objective(z, batch)
        return {"class": loss}, base.Aux({**stats, "head": sums}, metrics)

    def settle(params, stats):
        """Return the parameters; the net's linear layer is the trained head for raw features.

        The standardisation of the features is folded into the layer. See base.Algo.
        """
        mean, deviation = moments(stats["head"])
        linear = fold_standardisation(params["head"], mean, deviation)
        return {**params, "net": {**params["net"], "fc": linear}}

    def init(key, image, net_variables):
        """Return {"params": W and b, "stats": "count", "mean" and "square"}, all zero."""
        linear = net_variables["params"]["fc"]
        width = len(linear["kernel"])
        shapes = {"count": (), "mean": width, "square": width}
        start = {name: jnp.zeros(shape) for name, shape in shapes.items()}
        return {"params": jax.tree.map(jnp.zeros_like, linear), "stats": start}

    updates = (base.Update("class", lambda path: path[0] == "head"),)
    return base.Algo(net, losses, updates, {"head": init}, settle=settle)


def add_batch(
    sums: dict[str, Array], h: Float[Array, "b c"], weight: Float[Array, "b"] | None
) -> dict[str, Any]:
    """Return the sums over all batches so far, after a batch of features h.

    Keys: "count", the sum of weights; "mean" (c), the weighted mean; "square" (c), the weighted sum
    of squared differences from the mean. The update of Chan, Golub and LeVeque, The American
    Statistician 1983, 37 (3), has no cancellation.

    sums: the result before the batch; all 0 at first. weight: weights of the examples; None: all 1.
    """
    weight = jnp.ones(len(h)) if weight is None else weight
    count = jnp.sum(weight)
    mean = jnp.sum(weight[:, None] * h, axis=0) / jnp.maximum(count, 1e-12)
    square = jnp.sum(weight[:, None] * jnp.square(h - mean[None]), axis=0)
    total = sums["count"] + count
    share = count / jnp.maximum(total, 1e-12)
    shift = mean - sums["mean"]
    return {
        "count": total,
        "mean": sums["mean"] + shift * share,
        "square": sums["square"] + square + jnp.square(shift) * sums["count"] * share,
    }


def moments(sums: dict[str, Array]) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
    """Return the mean and the standard deviation of each feature.

    The returned deviation of a constant feature is 1. sums: result of `add_batch`.
    """
    var = sums["square"] / jnp.maximum(sums["count"], 1e-12)
    return sums["mean"], jnp.sqrt(jnp.where(var > 1e-12, var, 1))


def fold_standardisation(
    head: dict[str, Array], mean: Float[Array, "c"], deviation: Float[Array, "c"]
) -> dict[str, Array]:
    """Return the linear layer on plain features that equals `head` on standardised features.

    head: {"kernel", "bias"}. mean, deviation: mean and standard deviation of the features.
    """
    kernel = head["kernel"] / deviation[:, None]
    shift = jnp.matmul(mean, kernel, precision=jax.lax.Precision.HIGHEST)
    return {"kernel": kernel, "bias": head["bias"] - shift}


ALGOS = {"dfr": make}
