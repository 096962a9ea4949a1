"""Group DRO: a weighted loss over groups, whose weights grow with the groups' losses.

Source: Sagawa, Koh, Hashimoto and Liang, "Distributionally Robust Neural Networks for
Group Shifts", ICLR 2020, https://arxiv.org/abs/1911.08731, algorithm 1.
Reference code: https://github.com/kohpangwei/group_DRO at e80fe20, loss.py.
Deviations: the weight of a group without examples in a batch is not updated; in the reference
the adjustment of such a group is still applied. Weights are stored as logarithms, so that no weight
is rounded to 0.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jbias import errors
from jbias.algos import base, erm, groups

_NEVER = -1e9  # The logarithm of the weight of a group that has no examples.


def make(
    net: nn.Module,
    *,
    eta: float = 0.01,
    adjustment: float = 0.0,
    by: str = groups.GROUP,
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return group DRO, with L = sum_g q_g L_g; q_g <- q_g exp(eta (L_g + C / sqrt(n_g))) / Z.

    L_g is the batch's mean loss in group g (0 without examples of g), n_g the number of
    training examples in g, C the `adjustment`, and Z scales the sum of all q_g to 1. All q_g
    start equal, and are updated before the loss is computed. The authors draw batches with
    equal shares of the groups: config.train.balance="group".

    by: columns that define the groups, joined by +; by default class and attribute.
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    With eta=0, L is the mean over groups. This is ERM's loss if all groups have the same number
    of examples in the batch. If only one group has training examples, this equals ERM bit for
    bit. Metrics: "worst_group_loss", the largest L_g in the batch, and "largest_weight", the
    largest q_g. ValueError for a negative number, and for columns that `groups.from_columns`
    refuses.
    """
    errors.check_condition("group_dro", "at least 0", eta=eta, adjustment=adjustment)
    if columns is None:
        return groups.evaluation_only("group_dro", net)
    known = groups.from_columns("group_dro: by", columns, by)
    if np.count_nonzero(known.counts) == 1:
        return erm.make(net)
    has_examples = known.counts > 0
    extra = adjustment / jnp.sqrt(jnp.maximum(known.counts, 1).astype(jnp.float32))

    def losses(params, stats, batch, key, static=None):
        """Return the losses "class" and "robust" by name, and `base.Aux`; see base.Algo.

        Metrics: "worst_group_loss" and "largest_weight".
        """
        logits, net_stats = base.forward(
            net, params["net"], stats["net"], batch["image"], key
        )
        example_losses = base.example_losses(logits, batch)
        risks, present = groups.means(example_losses, known.members(batch))
        adjusted = jax.lax.stop_gradient(risks) + extra
        log_q = stats["groups"]["log_q"] + eta * adjusted * present
        log_q = jnp.maximum(jax.nn.log_softmax(log_q), _NEVER)
        q = jnp.exp(log_q)
        named = {
            "class": base.objective(logits, batch),
            "robust": base.with_consistency(jnp.sum(q * risks), logits, batch),
        }
        metrics = {"worst_group_loss": jnp.max(risks), "largest_weight": jnp.max(q)}
        new_stats = {**stats, "net": net_stats, "groups": {"log_q": log_q}}
        return named, base.Aux(new_stats, metrics)

    def init(key, image, net_variables):
        """Return {"stats": {"log_q": log weights of the groups, equal at first}}.

        The value of a group without training examples is -1e9. The arguments (see
        base.Algo.parts) are unused.
        """
        uniform = -jnp.log(jnp.sum(has_examples))
        return {"stats": {"log_q": jnp.where(has_examples, uniform, _NEVER)}}

    updates = (base.Update("robust"),)
    return base.Algo(net, losses, updates, {"groups": init}, whole_batch=True)


ALGOS = {"group_dro": make}
