"""The interface of algorithms: named losses of one forward pass, and updates that use them.

An algorithm does not depend on the seed axis, the optimiser or the config. Its `losses` get
the train state's two trees, `params` and `stats`. Each tree has an entry for the net and an entry
for every part: {"net": ..., "style": ...}. A net may have a tap, a function of an algorithm
that changes feature maps inside the net during training (models/taps.py).

A batch is a dict. A batch always has "image" in [0, 1] (b h w c) and "target" (b k), soft
labels. Optional entries:
  "weight" (b): weights of the examples;
  "weight_sum": in a micro-batch, the sum of the whole batch's weights over the number of
    micro-batches;
  "views": number of consecutive rows that show one image;
  "consistency": factor of the divergence between views in the loss;
  "binary": true if the classes are independent yes-or-no questions;
  "domain" (b): number of the source of each example;
  "other": the batch of a second source;
  "once": a key that is the same at every step;
  columns of the data set, such as "index" or "attribute".
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
    """Return True, so that an update trains every parameter: the default of Update.trains."""
    return True


def no_static(step: int, steps: int) -> None:
    """Return None, so that all steps have the same program: the default of Algo.static."""


def after_share(share: float) -> Callable[[int, int], Hashable]:
    """Return a `static` of Algo: True from step round(share * steps) on, False earlier.

    With share 0 the result is `no_static`, so that all steps have the same program.
    """

    def is_after(step: int, steps: int) -> bool:
        """Return True if step >= round(share * steps); steps: length of the stage."""
        return step >= round(share * steps)

    return is_after if share else no_static


def as_updated(params: dict, stats: dict) -> dict:
    """Return params unchanged: the default of Algo.settle."""
    return params


class Aux(NamedTuple):
    """The second result of `losses`: the whole new `stats` tree, and scalars to log."""

    stats: dict
    metrics: dict  # Scalars by name.


class Update(NamedTuple):
    """One optimiser: the loss that it minimises and the parameters that it trains.

    trains: path of a parameter -> whether this update trains it.
    clip: largest global L2 norm of the loss's gradient over the trained parameters; None:
      gradients are not clipped.
    plus: another loss, whose gradient is added after the clip.
    decay: whether weight decay applies to the trained parameters in this update.
    when: the update is applied in steps whose static argument (Algo.static) equals `when`; None:
      in every step. In other steps its weights and moments do not change, and its learning
      rate follows the schedule.
    rate: factor on the learning rate of config.optim.
    optim: options of this update's optimiser that replace those of config.optim.
    """

    loss: str  # Name, a key of the losses.
    trains: Callable[[Path], bool] = all_parameters
    clip: float | None = None
    plus: str | None = None
    decay: bool = True
    when: Hashable = None
    rate: float = 1.0
    optim: Mapping[str, Any] = types.MappingProxyType({})

    def is_applied(self, static: Hashable) -> bool:
        """Return True if a step with this static argument applies the update.

        A step without a static argument (None) applies all updates.
        """
        return self.when is None or static is None or static == self.when


class Algo(NamedTuple):
    """A plain backbone, its losses, and the updates that use the losses.

    losses: (params, stats, batch, key, static=None) -> ({name: scalar}, Aux).
    parts: name -> init(key, image, net_variables) -> {"params": ..., "stats": ...},
      additional weights; each part is initialised from a random stream of its own.
    static: host function, (step, steps) of a stage -> a value that selects the compiled
      program of that step; `losses` gets it as `static`.
    mix_group: number of neighbouring examples of a batch that are mixed; they are on one
      device.
    whole_batch: whether a loss compares all examples of a batch, so that the batch cannot
      be split into micro-batches. Otherwise losses are means over examples or mix groups.
    decide: (variables, image) -> logits in evaluation; None: the net's logits.
    settle: (params, stats) -> params, called after all updates of a step, for weights that
      are computed from other weights.
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
    """Return the shape of each parameter of the net, for images of a default size.

    The keys are paths that begin with "net", such as ("net", "fc", "kernel").
    """
    shapes = {"net": taps.shapes(net).variables["params"]}
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    return {tuple(entry.key for entry in path): x.shape for path, x in leaves}


def check_linear_head(where: str, net: nn.Module) -> None:
    """Raise ValueError unless the net's last layer, "fc", has a kernel (c k) and a bias (k).

    where: start of the message.
    """
    ranks = {
        path[2:]: len(shape)
        for path, shape in parameters(net).items()
        if path[:2] == ("net", "fc")
    }
    if ranks != {("kernel",): 2, ("bias",): 1}:
        raise ValueError(
            f"{where}: needs a net that ends in a linear layer, got "
            f"{type(net).__name__}; take another model"
        )


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
    """Return the output of the net, or of one of its methods, and the net's new statistics.

    params, stats: variables of the net. image: images, or a feature map for methods that
      take one.
    key: random key of the tap and dropout; None in evaluation.
    method: name of a method, such as "features"; None: the whole net, which returns logits.
    train: whether the tap, dropout and batch statistics are active. If False, the statistics
      are returned unchanged.
    kw: further arguments of the method.

    Statistics of layers that the method does not use are unchanged.
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
    """Return the net's logits, the input of its last layer in float32, and new statistics.

    If the last layer is a 1x1 convolution, its input is averaged over the map. args: params,
    stats, image and key of `forward`. train: see `forward`.
    """
    inputs = []

    def record_input(call, args, options, context):
        """Return the output of a module, and record the input of the last layer in `inputs`."""
        if context.method_name == "__call__" and context.module.path == ("fc",):
            inputs.append(args[0])
        return call(*args, **options)

    with nn.intercept_methods(record_input):
        logits, new_stats = forward(net, *args, train=train)
    (h,) = inputs
    h = jnp.mean(h, (1, 2)) if h.ndim == 4 else h
    return logits, h.astype(jnp.float32), new_stats


def objective(logits: Float[Array, "b k"], batch: Batch) -> Float[Array, ""]:
    """Return the class loss: sum_i w_i CE(z_i, target_i) / sum_i w_i, in float32.

    z_i are the logits of example i, w_i its batch["weight"], or 1 without such an entry. If
    the batch has a "consistency", that factor times the divergence between the "views" of
    each image is added. CE is as in `example_losses`.
    """
    loss = weighted_mean(example_losses(logits, batch), batch)
    return with_consistency(loss, logits, batch)


def example_losses(logits: Float[Array, "b k"], batch: Batch) -> Float[Array, "b"]:
    """Return the cross-entropy of every example in float32.

    batch["target"]: soft labels (b k), probabilities of the classes. If batch["binary"] is
    true, the classes are independent yes-or-no questions, and the mean of their binary
    cross-entropies is returned. Weights of the examples are not applied.
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
    """Return the loss plus the batch's "consistency" times the divergence between views.

    Return the loss unchanged if the batch has no "consistency".
    """
    if "consistency" not in batch:
        return loss
    view_divergence = divergence(logits.astype(jnp.float32), batch["views"])
    return loss + batch["consistency"] * view_divergence


def weighted_mean(values: Float[Array, "b"], batch: Batch) -> Float[Array, ""]:
    """Return the mean of `values` over the examples, weighted by batch["weight"] if it exists.

    In a micro-batch, which has a "weight_sum", the result is scaled so that its mean over
    all micro-batches is the weighted mean of the whole batch.
    """
    weight = batch.get("weight")
    if weight is None:
        return jnp.mean(values)
    return jnp.sum(weight * values) / batch.get("weight_sum", jnp.sum(weight))


def divergence(logits: Float[Array, "b k"], views: int) -> Float[Array, ""]:
    """Return the mean Jensen-Shannon divergence of the predictions for views, in nats.

    views: number of consecutive rows that show one image.
    (1/v) sum_j KL(p_j || m), m the mean of the p_j, clipped to [1e-7, 1]; at most ln v.
    Source: Hendrycks et al., AugMix, ICLR 2020, and its released code.
    """
    log_p = jax.nn.log_softmax(logits).reshape(-1, views, logits.shape[-1])
    p = jnp.exp(log_p)
    log_m = jnp.log(jnp.clip(p.mean(axis=1, keepdims=True), 1e-7, 1))
    return jnp.mean(jnp.sum(p * (log_p - log_m), axis=-1))
