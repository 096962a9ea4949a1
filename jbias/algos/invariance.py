"""Invariance between environments: ERM with one of three penalties.

IRMv1: one linear layer, multiplied by 1, should be the best in every environment.
Source: Arjovsky, Bottou, Gulrajani and Lopez-Paz, "Invariant Risk Minimization", 2019,
https://arxiv.org/abs/1907.02893.
Reference code: https://github.com/facebookresearch/InvariantRiskMinimization at 0db3fb2,
code/colored_mnist/main.py.
Deviations: of a batch the square of one gradient is larger than that of a whole set, by
its variance over examples (DomainBed multiplies the gradients of two halves, which is not);
the class loss is the mean over the batch's examples, which is the mean over
environments where these have equal shares of it, as in the reference; a weight below 1
is no larger at first.

V-REx: the losses of all environments should be equal.
Source: Krueger et al., "Out-of-Distribution Generalization via Risk Extrapolation",
ICML 2021, https://arxiv.org/abs/2003.00688.
Reference codes: https://github.com/facebookresearch/DomainBed at 026d588, class VREx,
and, for what is divided by the weight, the authors'
https://github.com/capybaralet/REx_code_release at 802da4a.
Deviations: the class loss is the mean over the batch's examples, which is the mean over
environments where these have equal shares of it, as in the references; the optimiser is
not begun anew when the weight grows, as DomainBed's is. The authors' code adds
weight * (R_1 - R_2)^2 to R_1 + R_2: beta is twice that weight.

CORAL: features should have one mean and one covariance in all environments.
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

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.algos import base, erm, groups
from jbias.augment import options

Batch = base.Batch
Columns = groups.Columns
Logits = Float[Array, "b k"]
Features = Float[Array, "b c"]  # What the linear layer reads.
Members = Float[Array, "b e"]  # Weights of the examples in their own environments.
Scalar = Float[Array, ""]


def irm(
    net: nn.Module,
    *,
    weight: float = 100.0,
    anneal: float = 0.1,
    by: str = "",
    columns: Columns | None = None,
) -> base.Algo:
    """L = R + weight * mean_e (d/dw R_e(w z) at w = 1)^2, over max(1, weight).

    R_e is the mean loss of environment e in the batch, z the logits; the mean is over the
    environments that the batch has. In the first share `anneal` of the stage the weight
    is 1 (the reference: 100 of 501 steps; its weight is 10,000, on whole data sets as one
    batch). Environments are the sources where there are several, or a set's own
    "domain", else its "attribute", or the column that `by` names. With weight=0 this is
    ERM to the bit. `columns` are those of the training data, which the frame fills in.
    """
    options.check_plain("irm", "at least 0", weight=weight)
    return _penalised("irm", net, irm_penalty, weight, by, columns, anneal)


def irm_penalty(logits: Logits, h: Features, batch: Batch, members: Members) -> Scalar:
    """mean_e (mean_(i in e) sum_k (p_ik - t_ik) z_ik)^2, p the softmax, t the targets."""

    def scaled(w):
        return base.example_losses(w * logits.astype(jnp.float32), batch)

    _, slopes = jax.jvp(scaled, (1.0,), (1.0,))
    mean, present = groups.means(slopes, members)
    return groups.mean_present(jnp.square(mean), present)


def vrex(
    net: nn.Module,
    *,
    beta: float = 10.0,
    anneal: float = 0.1,
    by: str = "",
    columns: Columns | None = None,
) -> base.Algo:
    """L = R + beta * mean_e (R_e - mean_e R_e)^2, over max(1, beta).

    R_e is the mean loss of environment e in the batch; means are over the environments
    that the batch has. In the first share `anneal` of the stage beta is 1 at most.
    Environments are the sources where there are several, or a set's own "domain", else
    its "attribute", or the column that `by` names. With beta=0 this is ERM to the bit.
    `columns` are those of the training data, which the frame fills in.
    """
    options.check_plain("vrex", "at least 0", beta=beta)
    return _penalised("vrex", net, vrex_penalty, beta, by, columns, anneal)


def vrex_penalty(logits: Logits, h: Features, batch: Batch, members: Members) -> Scalar:
    """The variance of the losses of the environments that are there."""
    risks, present = groups.means(base.example_losses(logits, batch), members)
    square = jnp.square(risks - groups.mean_present(risks, present))
    return groups.mean_present(square, present)


def coral(
    net: nn.Module, *, gamma: float = 1.0, by: str = "", columns: Columns | None = None
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
    options.check_plain("coral", "at least 0", gamma=gamma)
    return _penalised("coral", net, coral_penalty, gamma, by, columns)


def coral_penalty(
    logits: Logits, h: Features, batch: Batch, members: Members
) -> Scalar:
    """The mean over pairs: of e points, sum_(e < f) |x_e - x_f|^2 = e sum_e |x_e - x|^2."""
    total = jnp.sum(members, axis=0)
    share = members / jnp.where(total > 0, total, 1)[None]
    exact = jax.lax.Precision.HIGHEST
    mean = jnp.einsum("be,bi->ei", share, h, precision=exact)
    apart = h - jnp.matmul((members > 0).astype(h.dtype), mean, precision=exact)
    square = jnp.einsum("be,bi,bj->eij", share, apart, apart, precision=exact)
    # With shares s_i this is 1 - sum_i s_i^2, (n - 1) / n where all weigh the same.
    free = 1 - jnp.sum(jnp.square(share), axis=0)
    present = ((total > 0) & (free > 1e-6)).astype(jnp.float32)
    free = jnp.where(present > 0, free, 1)[:, None, None]
    scale = 2 / jnp.maximum(jnp.sum(present) - 1, 1)
    return scale * (_spread(mean, present) + _spread(square / free, present))


def _spread(x: Float[Array, "e *d"], present: Float[Array, "e"]) -> Float[Array, ""]:
    """sum_e mean_d (x_e - x)^2 over the environments that are there, x their mean."""
    x = x.reshape(len(x), -1)
    there = present[:, None]
    centre = jnp.sum(there * x, axis=0, keepdims=True) / jnp.maximum(jnp.sum(there), 1)
    return jnp.sum(there * jnp.square(x - centre)) / x.shape[1]


def _penalised(name, net, penalty, weight, by, columns, anneal=None) -> base.Algo:
    """ERM with weight * penalty(logits, features, batch, members) added to its loss.

    anneal: in that first share of the stage's steps the weight is 1 at most, and the sum
    is divided by the weight where that is above 1; None is neither. With weight 0 it is
    ERM to the bit. `name` is what errors say.
    """
    options.check_range(name, 0, 1, anneal=anneal)
    if options.is_statically(weight, 0):
        return erm.make(net)
    if columns is None:
        return groups.evaluation_only(name, net)
    known = groups.environments(name, columns, by)

    def losses(params, stats, batch, key, static=None):
        own = params["net"], stats["net"]
        logits, h, new = base.forward_features(net, *own, batch["image"], key)
        loss = base.objective(logits, batch)
        term = penalty(logits, h, batch, known.members(batch))
        strength = jnp.minimum(weight, 1) if static is False else weight
        total = loss + strength * term
        if anneal is not None:
            total = total / jnp.maximum(strength, 1)
        named = {"class": loss, "penalty": term, "penalised": total}
        return named, base.Aux({**stats, "net": new}, {})

    def at_full_weight(step: int, steps: int) -> bool:
        return step >= round(anneal * steps)

    static = at_full_weight if anneal else base.no_static
    updates = (base.Update("penalised"),)
    return base.Algo(net, losses, updates, static=static, whole_batch=True)
