"""IRMv1: one linear layer, multiplied by 1, should be the best in every environment.

Source: Arjovsky, Bottou, Gulrajani and Lopez-Paz, "Invariant Risk Minimization", 2019,
https://arxiv.org/abs/1907.02893.
Reference code: https://github.com/facebookresearch/InvariantRiskMinimization at 0db3fb2,
code/colored_mnist/main.py.
Deviations: of a batch the square of one gradient is larger than that of a whole set, by
its variance over examples (DomainBed multiplies the gradients of two halves, which is not);
the class loss is the mean over the batch's examples, which is the mean over
environments where these have equal shares of it, as in the reference; a weight below 1
is no larger at first.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.algos import base, groups


def make(
    net: nn.Module,
    *,
    weight: float = 100.0,
    anneal: float = 0.1,
    by: str = "",
    columns: Mapping[str, np.ndarray] | None = None,
) -> base.Algo:
    """L = R + weight * mean_e (d/dw R_e(w z) at w = 1)^2, over max(1, weight).

    R_e is the mean loss of environment e in the batch, z the logits; the mean is over the
    environments that the batch has. In the first share `anneal` of the stage the weight
    is 1 (the reference: 100 of 501 steps; its weight is 10,000, on whole data sets as one
    batch). Environments are the sources where there are several, or a set's own
    "domain", else its "attribute", or the column that `by` names. With weight=0 this is
    ERM to the bit. `columns` are those of the training data, which the frame fills in.
    """
    return groups.penalised(
        "irm", net, penalty, weight, by, columns, anneal=anneal, rescaled=True
    )


def penalty(
    logits: Float[Array, "b k"],
    h: Float[Array, "b c"],
    batch: base.Batch,
    members: Float[Array, "b e"],
) -> Float[Array, ""]:
    """mean_e (mean_(i in e) sum_k (p_ik - t_ik) z_ik)^2, p the softmax, t the targets."""

    def scaled(w):
        return base.example_losses(w * logits.astype(jnp.float32), batch)

    _, slopes = jax.jvp(scaled, (1.0,), (1.0,))
    mean, present = groups.means(slopes, members)
    return groups.mean_present(jnp.square(mean), present)
