"""What invariance penalties share: the class loss and a term between environments."""

import functools
from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jbias.algos import base, erm, groups
from jbias.augment import options


def make(
    name: str,
    net: nn.Module,
    penalty: Callable,
    *,
    weight: float,
    anneal: float = 0.0,
    rescaled: bool = False,
    by: str,
    columns: Mapping[str, np.ndarray] | None,
) -> base.Algo:
    """ERM with weight * penalty(logits, features, batch, members) added to its loss.

    features: what the linear layer reads; members: (b e), weights of the examples in
    their own environments. In the first share `anneal` of the stage's steps the weight is
    1 at most. rescaled: the sum is divided by the weight where that is above 1. With
    weight 0 it is ERM to the bit. `name` is what errors say.
    """
    if isinstance(weight, int | float) and not weight >= 0:
        raise ValueError(
            f"{name}: the penalty's weight must be 0 or more, got {weight}"
        )
    options.within(name, "anneal", anneal, 0, 1)
    if options.surely(weight, 0):
        return erm.make(net)
    if columns is None:
        return groups.untold(name, net)
    known = groups.environments(name, columns, by)

    def losses(params, stats, batch, key, static=None):
        own = params["net"], stats["net"]
        logits, h, new = base.read(net, *own, batch["image"], key)
        loss = base.objective(logits, batch)
        term = penalty(logits, h, batch, known.members(batch))
        strength = jnp.minimum(weight, 1) if static is False else weight
        total = loss + strength * term
        if rescaled:
            total = total / jnp.maximum(strength, 1)
        named = {"class": loss, "penalty": term, "penalised": total}
        return named, base.Aux({**stats, "net": new}, {})

    return base.Algo(
        net,
        losses,
        (base.Update("penalised"),),
        static=functools.partial(_grown, anneal) if anneal else base.no_static,
        whole_batch=True,
    )


def _grown(anneal: float, step: int, steps: int) -> bool:
    """Whether a step has the whole weight."""
    return step >= round(anneal * steps)
