"""What an algorithm is: named losses of one forward pass, and updates that use them.

An algorithm never sees the seed axis, the optimiser or the config. Its `losses` get
the train state's two trees, `params` and `stats`, both with one entry for the net and
one for every part: {"net": ..., "style": ...}.

A batch is a dict. Always there: "image" in [0, 1] (b h w c), "target" (b k), soft.
Sometimes: "weight" (b), and in a micro-batch "weight_sum", the whole batch's over the
number of micro-batches; "views", a number: so many consecutive rows show one image;
"consistency", a number; "binary", a truth value; "domain" (b), which of several sources;
"other", the batch of a second source; "once", a key that is the same at every step;
and the data set's own columns, such as "index" or "attribute".
"""

import functools
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import taps

Path = tuple[str, ...]  # ("net", "stage1_block0", "bn1", "scale")
Batch = Mapping[str, Any]


def all_parameters(path: Path) -> bool:
    """Selects every parameter."""
    return True


def no_static(step: int, steps: int) -> None:
    """Says that the step's number changes nothing that the compiler must know."""


def as_updated(params: dict, stats: dict) -> dict:
    """Leaves the weights as the updates made them."""
    return params


class Aux(NamedTuple):
    """What comes with the losses: the whole new `stats` tree, and scalars to log."""

    stats: dict
    metrics: dict


class Update(NamedTuple):
    """One optimiser: the loss it follows and the parameters it trains.

    clip: largest global L2 norm of that loss's gradient over the trained parameters.
    plus: another loss, whose gradient is added after the clip.
    decay: whether the weights that it trains decay in this update.
    """

    loss: str
    trains: Callable[[Path], bool] = all_parameters
    clip: float | None = None
    plus: str | None = None
    decay: bool = True


class Algo(NamedTuple):
    """A plain backbone, its losses, and which update of which weights uses which loss.

    losses: (params, stats, batch, key, static=None) -> ({name: scalar}, Aux).
    parts: name -> init(key, image, net_variables) -> {"params": ..., "stats": ...},
      the weights beside the net's; each has an initialisation stream of its own.
    static: host function, (step, steps) of a stage -> what the compiler must know about
      that step.
    mix_group: how many neighbouring examples of a batch mix; they share a device.
    whole_batch: whether a loss compares all examples of a batch, which then cannot be
      cut into micro-batches. Others are means over examples, or over groups of them.
    decide: (variables, image) -> logits in evaluation, where that is not the net's own.
    settle: (params, stats) -> params, after all updates of a step: for weights that
      follow from others.
    """

    net: nn.Module
    losses: Callable
    updates: tuple[Update, ...] = (Update("class"),)
    parts: Mapping[str, Callable] = types.MappingProxyType({})
    static: Callable[[int, int], Hashable] = no_static
    mix_group: int = 1
    whole_batch: bool = False
    decide: Callable | None = None
    settle: Callable = as_updated


def parameters(net: nn.Module) -> Mapping[Path, tuple[int, ...]]:
    """The shapes of the net's parameters, for images of some size."""
    shapes = {"net": taps.shapes(net).variables["params"]}
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    return {tuple(entry.key for entry in path): x.shape for path, x in leaves}


def forward(
    net: nn.Module,
    params: Mapping,
    stats: Mapping,
    image: Float[Array, "b h w c"],
    key: PRNGKeyArray | None,
    *,
    method: str | None = None,
    train: bool = True,
    **kw,
) -> tuple[Array, dict]:
    """Runs the net, or one of its methods, on an image or a feature map.

    Returns the output and the net's full statistics: those of layers that this
    method does not visit are passed through.
    """
    variables = {"params": params, "stats": stats}
    run = functools.partial(net.apply, variables, image, key, method=method, **kw)
    if not train:
        return cast(Array, run(train=False)), dict(stats)
    out, new = cast(tuple[Array, Mapping], run(train=True, mutable=["stats"]))
    return out, {**stats, **new["stats"]}


def forward_features(
    net: nn.Module, *args: Any, train: bool = True
) -> tuple[Float[Array, "b k"], Float[Array, "b c"], dict]:
    """Runs the net: its logits, what its linear layer reads, and new statistics.

    Of maps that is their mean, where a convolution of one pixel ends the net.
    args: parameters, statistics, images and key, as of `forward`.
    """
    seen = []

    def note(call, args, options, context):
        if context.method_name == "__call__" and context.module.path == ("fc",):
            seen.append(args[0])
        return call(*args, **options)

    with nn.intercept_methods(note):
        logits, new = forward(net, *args, train=train)
    (h,) = seen
    h = jnp.mean(h, (1, 2)) if h.ndim == 4 else h
    return logits, h.astype(jnp.float32), new


def objective(logits: Float[Array, "b k"], batch: Batch) -> Float[Array, ""]:
    """The class loss: sum_i w_i CE(z_i, target_i) / sum_i w_i, in float32.

    Targets are distributions over the classes; without "weight" all w_i are 1. Where
    the batch has a "consistency", that many times the divergence between the "views" of
    each image is added.
    """
    loss = weighted_mean(example_losses(logits, batch), batch)
    return with_consistency(loss, logits, batch)


def example_losses(logits: Float[Array, "b k"], batch: Batch) -> Float[Array, "b"]:
    """CE(z_i, target_i) of every example, in float32.

    Where the batch is "binary", the classes are independent yes-or-no questions and CE
    is the mean of their binary cross-entropies.
    """
    logits = logits.astype(jnp.float32)
    if batch.get("binary"):
        yes, no = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
        target = batch["target"]
        return -jnp.mean(target * yes + (1 - target) * no, axis=-1)
    return -jnp.sum(batch["target"] * jax.nn.log_softmax(logits), axis=-1)


def with_consistency(
    loss: Float[Array, ""], logits: Float[Array, "b k"], batch: Batch
) -> Float[Array, ""]:
    """Adds what a batch with a "consistency" asks of its views to a loss."""
    if "consistency" not in batch:
        return loss
    apart = divergence(logits.astype(jnp.float32), batch["views"])
    return loss + batch["consistency"] * apart


def weighted_mean(each: Float[Array, "b"], batch: Batch) -> Float[Array, ""]:
    """The mean over the batch's examples by their weights, if it has any.

    In a micro-batch it is its part of that mean: the mean of all parts is the whole's.
    """
    weight = batch.get("weight")
    if weight is None:
        return jnp.mean(each)
    return jnp.sum(weight * each) / batch.get("weight_sum", jnp.sum(weight))


def divergence(logits: Float[Array, "b k"], views: int) -> Float[Array, ""]:
    """Mean Jensen-Shannon divergence of `views` consecutive predictions, in nats.

    (1/v) sum_j KL(p_j || m), m the mean of the p_j within [1e-7, 1]; at most ln v.
    Source: Hendrycks et al., AugMix, ICLR 2020, and its released code.
    """
    log_p = jax.nn.log_softmax(logits).reshape(-1, views, logits.shape[-1])
    p = jnp.exp(log_p)
    log_m = jnp.log(jnp.clip(p.mean(axis=1, keepdims=True), 1e-7, 1))
    return jnp.mean(jnp.sum(p * (log_p - log_m), axis=-1))
