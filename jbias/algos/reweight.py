"""Reweighting: weight examples by the rarity of their group in the training data.

The usual baseline for attribute shifts, such as in Sagawa, Raghunathan, Koh and Liang,
"An Investigation of Why Overparameterization Exacerbates Spurious Correlations", ICML
2020, https://arxiv.org/abs/2005.04345.
"""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Float

from jbias import errors
from jbias.algos import base, erm, groups
from jbias.augment import options


def make(
    net: nn.Module,
    *,
    power: float = 1.0,
    by: str = groups.GROUP,
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return ERM with the loss sum_i w_i CE_i / b, where w_i = c n_g^-power.

    n_g is the number of training examples in the group g of example i, b the size of the
    batch; c makes the mean weight of the training examples 1. With power=1 all groups have
    the same total weight; with power=0, or if all groups have one size, this equals ERM bit
    for bit. Weights of transforms are multiplied by w_i. The sum is divided by the number of
    examples, not by the sum of weights, so that the gradient equals the gradient on the
    reweighted data.

    by: columns that define the groups, joined by +; by default class and attribute.
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    ValueError for a negative power, and for columns that `groups.from_columns` refuses.
    """
    errors.check_condition("reweight", "at least 0", power=power)
    plain = erm.make(net)
    if options.is_statically(power, 0):
        return plain
    if columns is None:
        return groups.evaluation_only("reweight", net)
    known = groups.from_columns("reweight: by", columns, by)
    if len(set(known.counts[known.counts > 0])) == 1:
        return plain
    table = weights(known.counts, power)

    def losses(params, stats, batch, key, static=None):
        """Return {"class": reweighted loss} and `base.Aux`, without metrics; see base.Algo."""
        prior = batch.get("weight", jnp.ones(len(batch["target"])))
        weight = prior * table[known.number(batch)]
        total = batch.get("weight_sum", jnp.sum(prior))
        batch = {**batch, "weight": weight, "weight_sum": total}
        return plain.losses(params, stats, batch, key, static)

    return base.Algo(net, losses)


def weights(counts: np.ndarray, power: float) -> Float[jnp.ndarray, "g"]:
    """Return the weight of an example of each group: n n_g^-power / sum_h n_h^(1 - power).

    The weight is 0 for groups without examples, which the sum leaves out. counts: number n_g of
    examples per group; n is the sum of all n_g.
    """
    n = jnp.asarray(counts, jnp.float32)
    unscaled = jnp.where(n > 0, jnp.maximum(n, 1) ** -power, 0)
    return jnp.sum(n) * unscaled / jnp.sum(n * unscaled)


ALGOS = {"reweight": make}
