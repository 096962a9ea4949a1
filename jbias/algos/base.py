"""What an algorithm is: named losses of one forward pass, and updates that use them.

An algorithm never sees the seed axis, the optimiser or the config. Its `losses` get
the train state's two trees, `params` and `stats`, both with one entry for the net and
one for every part: {"net": ..., "style": ...}.
"""

import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

Path = tuple[str, ...]  # ("net", "stage1_block0", "bn1", "scale")
Batch = Mapping[str, Any]


def everything(path: Path) -> bool:
    """Selects every parameter."""
    del path
    return True


def no_static(step: int) -> None:
    """Says that the step's number changes nothing that the compiler must know."""
    del step


class Aux(NamedTuple):
    """What comes with the losses: the whole new `stats` tree, and scalars to log."""

    stats: dict
    metrics: dict


class Update(NamedTuple):
    """One optimiser: the loss it follows, the parameters it trains, a gradient clip.

    `clip` is the largest global L2 norm of the gradient over the trained parameters.
    """

    loss: str
    trains: Callable[[Path], bool] = everything
    clip: float | None = None


class Algo(NamedTuple):
    """A plain backbone, its losses, and which update of which weights uses which loss.

    losses: (params, stats, batch, key, static=None) -> ({name: scalar}, Aux).
    parts: name -> init(key, image, net_variables) -> {"params": ..., "stats": ...},
      the weights beside the net's; each has an initialisation stream of its own.
    static: host function, step -> what the compiler must know about that step.
    mix_group: how many neighbouring examples of a batch mix; they share a device.
    """

    net: nn.Module
    losses: Callable
    updates: tuple[Update, ...] = (Update("class"),)
    parts: Mapping[str, Callable] = types.MappingProxyType({})
    static: Callable[[int], Hashable] = no_static
    mix_group: int = 1


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
    if not train:
        out = net.apply(variables, image, key, method=method, train=False, **kw)
        return out, dict(stats)
    out, new = net.apply(
        variables, image, key, method=method, train=True, mutable=["stats"], **kw
    )
    return out, {**stats, **new["stats"]}


def objective(logits: Float[Array, "b k"], batch: Batch) -> Float[Array, ""]:
    """The class loss: sum_i w_i CE(z_i, target_i) / sum_i w_i, in float32.

    Targets are distributions over the classes; without "weight" all w_i are 1.
    """
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    return average(-jnp.sum(batch["target"] * log_p, axis=-1), batch)


def average(each: Float[Array, "b"], batch: Batch) -> Float[Array, ""]:
    """The mean over the batch's examples by their weights, if it has any."""
    weight = batch.get("weight")
    if weight is None:
        return jnp.mean(each)
    return jnp.sum(weight * each) / jnp.sum(weight)
