"""Group DRO: the loss of the worst group, by weights that follow the losses.

Source: Sagawa, Koh, Hashimoto and Liang, "Distributionally Robust Neural Networks for
Group Shifts", ICLR 2020, https://arxiv.org/abs/1911.08731, algorithm 1.
Reference code: https://github.com/kohpangwei/group_DRO at e80fe20, loss.py.
Deviations: a group that a batch lacks keeps its share of the weights; in the reference
an adjustment counts for it even then. Weights are kept as logarithms, so that none is
ever lost to rounding.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jbias.algos import base, erm, groups
from jbias.augment import options

_NEVER = -1e9  # The logarithm of the weight of a group that has no examples.


def make(
    net: nn.Module,
    *,
    eta: float = 0.01,
    adjustment: float = 0.0,
    by: str = groups.GROUP,
    columns: groups.Columns | None = None,
) -> base.Algo:
    """L = sum_g q_g L_g;  q_g <- q_g exp(eta (L_g + C / sqrt(n_g))) / (their sum).

    L_g is the batch's mean loss in group g, 0 where it has none of it, n_g the number of
    training examples in it and C the `adjustment`. q starts with all groups equal, and
    is updated before it weighs. Groups are those of a class and an attribute; other
    columns may be named, joined by +. Authors draw batches with equal shares of the
    groups: config.train.balance="group".

    At eta=0 L is the mean over groups, which is ERM's where all have as many examples in
    the batch. With one group this is ERM to the bit. `columns` are those of the training
    data, which the frame fills in. Metrics: the worst group's loss in the batch, and the
    largest weight.
    """
    options.check_plain("group_dro", "at least 0", eta=eta, adjustment=adjustment)
    if columns is None:
        return groups.evaluation_only("group_dro", net)
    known = groups.from_columns("group_dro: by", columns, by)
    if np.count_nonzero(known.counts) == 1:
        return erm.make(net)
    seen = known.counts > 0
    extra = adjustment / jnp.sqrt(jnp.maximum(known.counts, 1).astype(jnp.float32))

    def losses(params, stats, batch, key, static=None):
        own = params["net"], stats["net"]
        logits, new = base.forward(net, *own, batch["image"], key)
        each = base.example_losses(logits, batch)
        risks, present = groups.means(each, known.members(batch))
        adjusted = jax.lax.stop_gradient(risks) + extra
        log_q = stats["groups"]["log_q"] + eta * adjusted * present
        log_q = jnp.maximum(jax.nn.log_softmax(log_q), _NEVER)
        q = jnp.exp(log_q)
        named = {
            "class": base.objective(logits, batch),
            "robust": base.with_consistency(jnp.sum(q * risks), logits, batch),
        }
        metrics = {"worst_group_loss": jnp.max(risks), "largest_weight": jnp.max(q)}
        after = {**stats, "net": new, "groups": {"log_q": log_q}}
        return named, base.Aux(after, metrics)

    def init(key, image, net_variables):
        return {"stats": {"log_q": jnp.where(seen, -jnp.log(jnp.sum(seen)), _NEVER)}}

    updates = (base.Update("robust"),)
    return base.Algo(net, losses, updates, {"groups": init}, whole_batch=True)
