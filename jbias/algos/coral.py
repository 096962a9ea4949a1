"""CORAL: features should have one mean and one covariance in all environments.

Source: Sun and Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation",
ECCV 2016 workshops, https://arxiv.org/abs/1607.01719; between all environments, and of
means too, as in Gulrajani and Lopez-Paz, ICLR 2021, https://arxiv.org/abs/2007.01434.
Reference code: https://github.com/facebookresearch/DomainBed at 026d588, class CORAL.
Deviations: the class loss is the mean over the batch's examples, which is the mean over
environments where these have equal shares of it, as in the reference; all environments
pass the network together, and batch norm takes the statistics of all. The reference
passes them one by one, which is the same there: its ResNets keep the statistics of their
pretraining, and its small network has group norm. Only its code since July 2024 can
take each environment's own, which makes the penalty smaller (docs/algorithms.md).
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
    gamma: float = 1.0,
    by: str = "",
    columns: Mapping[str, np.ndarray] | None = None,
) -> base.Algo:
    """L = R + gamma * mean_(e < f) (mean_j (m_e - m_f)_j^2 + mean_ij (C_e - C_f)_ij^2).

    m_e and C_e are the mean and the covariance (over n - 1) of what the linear layer
    reads, over the batch's examples of environment e; the mean is over the pairs of
    environments of which the batch has two examples or more. Environments are the
    sources where there are several, or a set's own "domain", else its "attribute", or the
    column that `by` names. With gamma=0 this is ERM to the bit. `columns` are those of
    the training data, which the frame fills in.

    Covariances of all environments are summed over devices: that is what this algorithm
    moves beside its gradients.
    """
    return groups.penalised("coral", net, penalty, gamma, by, columns)


def penalty(
    logits: Float[Array, "b k"],
    h: Float[Array, "b c"],
    batch: base.Batch,
    members: Float[Array, "b e"],
) -> Float[Array, ""]:
    """The mean over pairs: of e points, sum_(e < f) |x_e - x_f|^2 = e sum_e |x_e - x|^2."""
    total = jnp.sum(members, axis=0)
    share = members / jnp.where(total > 0, total, 1)[None]
    exact = jax.lax.Precision.HIGHEST
    mean = jnp.einsum("be,bi->ei", share, h, precision=exact)
    own = jnp.matmul((members > 0).astype(h.dtype), mean, precision=exact)
    apart = h - own
    square = jnp.einsum("be,bi,bj->eij", share, apart, apart, precision=exact)
    # With shares s_i this is 1 - sum_i s_i^2, (n - 1) / n where all weigh the same.
    free = 1 - jnp.sum(jnp.square(share), axis=0)
    present = ((total > 0) & (free > 1e-6)).astype(jnp.float32)
    free = jnp.where(present > 0, free, 1)[:, None, None]
    count = jnp.sum(present)
    scale = 2 / jnp.maximum(count - 1, 1)
    return scale * (_spread(mean, present) + _spread(square / free, present))


def _spread(x: Float[Array, "e *d"], present: Float[Array, "e"]) -> Float[Array, ""]:
    """sum_e mean_d (x_e - x)^2 over the environments that are there, x their mean."""
    x = x.reshape(len(x), -1)
    there = present[:, None]
    centre = jnp.sum(there * x, axis=0, keepdims=True) / jnp.maximum(jnp.sum(there), 1)
    return jnp.sum(there * jnp.square(x - centre)) / x.shape[1]
