"""Deep feature reweighting: the last layer is fitted anew, on standardised features.

Source: Kirichenko, Izmailov and Wilson, "Last Layer Re-Training is Sufficient for
Robustness to Spurious Correlations", ICLR 2023, https://arxiv.org/abs/2204.02937.
Reference code: https://github.com/PolinaKirichenko/deep_feature_reweighting at 46666e6,
dfr_evaluate_spurious.py.
Deviations: the reference fits logistic regressions to twenty group-balanced subsets of
the held-out images and averages them; here one layer follows batches that are balanced,
by proximal steps, and no image is left out. Features are standardised by those that it
sees, the reference's by the training set's. The strength of L1 is not searched.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.algos import base


def make(net: nn.Module) -> base.Algo:
    """z = W (h - m) / s + b, fitted from W = 0, takes the place of the linear layer.

    h is what the linear layer reads of a net that stands and runs as in evaluation, m and
    s its mean and deviation over all examples seen so far (s = 1 where it does not vary).
    It is to be a stage after another, on images of its own, with balance="group" and
    without augmentation, as configs/dfr.py has it. The L1 penalty is the optimiser's,
    config.optim.l1, and acts on W: its zeros are zeros of the net's layer, too.

    The metric "zeros" is the share of weights that are 0.
    """
    weights = base.parameters(net).items()
    axes = {path[2:]: len(x) for path, x in weights if path[:2] == ("net", "fc")}
    if axes != {("kernel",): 2, ("bias",): 1}:
        raise ValueError(
            f"dfr: needs a net that ends in a linear layer, got {type(net).__name__}; "
            "take another model"
        )

    def losses(params, stats, batch, key, static=None):
        own = params["net"], stats["net"]
        _, h, _ = base.forward_features(net, *own, batch["image"], None, train=False)
        h = jax.lax.stop_gradient(h)
        seen = with_batch(stats["head"], h, batch.get("weight"))
        mean, deviation = moments(seen)
        head = params["head"]
        z = (h - mean[None]) / deviation[None] @ head["kernel"] + head["bias"][None]
        metrics = {"zeros": jnp.mean((head["kernel"] == 0).astype(jnp.float32))}
        loss = base.objective(z, batch)
        return {"class": loss}, base.Aux({**stats, "head": seen}, metrics)

    def settle(params, stats):
        linear = folded(params["head"], *moments(stats["head"]))
        return {**params, "net": {**params["net"], "fc": linear}}

    def init(key, image, net_variables):
        linear = net_variables["params"]["fc"]
        width = len(linear["kernel"])
        shapes = {"count": (), "mean": width, "square": width}
        start = {name: jnp.zeros(shape) for name, shape in shapes.items()}
        return {"params": jax.tree.map(jnp.zeros_like, linear), "stats": start}

    updates = (base.Update("class", lambda path: path[0] == "head"),)
    return base.Algo(net, losses, updates, {"head": init}, settle=settle)


def with_batch(
    seen: dict[str, Array], h: Float[Array, "b c"], weight: Float[Array, "b"] | None
) -> dict[str, Any]:
    """Adds a batch to the count, the mean and the sum of squares around the mean.

    By Chan, Golub and LeVeque, The American Statistician 1983, 37 (3): nothing cancels.
    """
    weight = jnp.ones(len(h)) if weight is None else weight
    count = jnp.sum(weight)
    mean = jnp.sum(weight[:, None] * h, axis=0) / jnp.maximum(count, 1e-12)
    square = jnp.sum(weight[:, None] * jnp.square(h - mean[None]), axis=0)
    total = seen["count"] + count
    share = count / jnp.maximum(total, 1e-12)
    apart = mean - seen["mean"]
    return {
        "count": total,
        "mean": seen["mean"] + apart * share,
        "square": seen["square"] + square + jnp.square(apart) * seen["count"] * share,
    }


def moments(seen: dict[str, Array]) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
    """Mean and deviation of what was seen; 1 where that does not vary."""
    var = seen["square"] / jnp.maximum(seen["count"], 1e-12)
    return seen["mean"], jnp.sqrt(jnp.where(var > 1e-12, var, 1))


def folded(
    head: dict[str, Array], mean: Float[Array, "c"], deviation: Float[Array, "c"]
) -> dict[str, Array]:
    """The linear layer that gives of features what this gives of standardised ones."""
    kernel = head["kernel"] / deviation[:, None]
    shift = jnp.matmul(mean, kernel, precision=jax.lax.Precision.HIGHEST)
    return {"kernel": kernel, "bias": head["bias"] - shift}
