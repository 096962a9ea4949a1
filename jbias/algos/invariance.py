"""IRMv1, V-REx and CORAL: ERM with a penalty on differences between environments.

IRMv1: the same linear layer, scaled by 1, should be optimal in every environment.
Source: Arjovsky, Bottou, Gulrajani and Lopez-Paz, "Invariant Risk Minimization", 2019,
https://arxiv.org/abs/1907.02893.
Reference code: https://github.com/facebookresearch/InvariantRiskMinimization at 0db3fb2,
code/colored_mnist/main.py.
Deviations: The penalty of a batch exceeds the penalty of the whole data set by the variance of the
gradient over examples (DomainBed avoids this bias by multiplying the gradients of two halves). The
class loss is the mean over the batch's examples; it equals the reference's mean
over environments if all environments have equal shares of the batch. A weight below 1 is not
raised to 1 at first.

V-REx: the losses of all environments should be equal.
Source: Krueger et al., "Out-of-Distribution Generalization via Risk Extrapolation",
ICML 2021, https://arxiv.org/abs/2003.00688.
Reference codes: https://github.com/facebookresearch/DomainBed at 026d588, class VREx;
for the division by the weight, the authors'
https://github.com/capybaralet/REx_code_release at 802da4a.
Deviations: The class loss is the mean over the batch's examples; it equals the references'
mean over environments if all environments have equal shares of the batch. The optimiser is not
reset when the weight grows; DomainBed resets the optimiser. The authors' code adds
weight * (R_1 - R_2)^2 to R_1 + R_2: beta is twice the authors' weight.

CORAL: features should have the same mean and covariance in all environments.
Source: Sun and Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation",
ECCV 2016 workshops, https://arxiv.org/abs/1607.01719; the penalty on means and on all pairs of
environments is from Gulrajani and Lopez-Paz, ICLR 2021, https://arxiv.org/abs/2007.01434.
Reference code: https://github.com/facebookresearch/DomainBed at 026d588, class CORAL.
Deviations: The class loss is the mean over the batch's examples; it equals the reference's
mean over environments if all environments have equal shares of the batch. All environments
pass through the network together, and batch norm uses the statistics of all. The reference
processes the environments one by one, which gives the same result for its networks: the ResNets use
fixed pretraining statistics, and the small network has group norm. Only the reference's code since
July 2024 can use separate statistics per environment, which makes the penalty smaller.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias import errors
from jbias.algos import base, erm, groups
from jbias.augment import options

Batch = base.Batch
Columns = groups.Columns
Logits = Float[Array, "b k"]
Features = Float[Array, "b c"]  # Inputs of the linear layer.
Members = Float[Array, "b e"]  # Weights of the examples in their environments.
Scalar = Float[Array, ""]


def irm(
    net: nn.Module,
    *,
    weight: float = 100.0,
    anneal: float = 0.1,
    by: str = "",
    columns: Columns | None = None,
) -> base.Algo:
    """Return IRMv1, with L = [R + weight * mean_e (d/dw R_e(w z) at w = 1)^2] / max(1, weight).

    R_e is the mean loss of environment e in the batch, z the logits; the mean is over the
    environments in the batch. With weight=0 this equals ERM bit for bit.

    anneal: first share of the stage in which the weight is 1 (100 of 501 steps in the reference,
      whose later weight is 10,000 and whose batches are whole data sets).
    by: column of the environments, or several joined by +; by default "domain" (the number of
      the source, or a column of the data set) or, without such a column, "attribute".
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    ValueError for a negative weight, for `anneal` outside [0, 1], and for columns that
    `groups.from_columns` refuses.
    """
    errors.check_condition("irm", "at least 0", weight=weight)
    return penalised(
        "irm",
        net,
        penalty=irm_penalty,
        weight=weight,
        by=by,
        columns=columns,
        anneal=anneal,
    )


def irm_penalty(logits: Logits, h: Features, batch: Batch, members: Members) -> Scalar:
    """Return IRM's penalty, mean_e (mean_(i in e) sum_k (p_ik - t_ik) z_ik)^2.

    z: logits, p: their softmax, t: targets, e: environments in the batch. For a "binary"
    batch the inner sum is the derivative of the mean binary cross-entropy. h: not used.
    members: result of Groups.members.
    """

    def scaled_losses(w):
        """Return the losses of the examples with logits scaled by w."""
        return base.example_losses(w * logits.astype(jnp.float32), batch)

    _, slopes = jax.jvp(scaled_losses, (1.0,), (1.0,))
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
    """Return V-REx, with L = [R + beta * mean_e (R_e - mean_e R_e)^2] / max(1, beta).

    R_e is the mean loss of environment e in the batch; means are over the environments in
    the batch. With beta=0 this equals ERM bit for bit.

    anneal: first share of the stage in which beta is at most 1.
    by, columns and errors: see `irm`.
    """
    errors.check_condition("vrex", "at least 0", beta=beta)
    return penalised(
        "vrex",
        net,
        penalty=vrex_penalty,
        weight=beta,
        by=by,
        columns=columns,
        anneal=anneal,
    )


def vrex_penalty(logits: Logits, h: Features, batch: Batch, members: Members) -> Scalar:
    """Return the variance, over the environments in the batch, of their mean losses.

    Arguments: see `irm_penalty`; h is not used.
    """
    risks, present = groups.means(base.example_losses(logits, batch), members)
    square = jnp.square(risks - groups.mean_present(risks, present))
    return groups.mean_present(square, present)


def coral(
    net: nn.Module, *, gamma: float = 1.0, by: str = "", columns: Columns | None = None
) -> base.Algo:
    """Return CORAL: ERM with a penalty on the moments of features.

    L = R + gamma * mean_(e < f) (mean_j (m_e - m_f)_j^2 + mean_ij (C_e - C_f)_ij^2).

    m_e and C_e are the mean and the covariance (over n - 1) of the linear layer's inputs,
    over the batch's examples of environment e; the mean is over pairs of environments with
    at least two examples in the batch. With gamma=0 this equals ERM bit for bit. Covariances are
    summed over devices, in addition to gradients.

    by, columns and errors: see `irm`.
    """
    errors.check_condition("coral", "at least 0", gamma=gamma)
    return penalised(
        "coral", net, penalty=coral_penalty, weight=gamma, by=by, columns=columns
    )


def coral_penalty(
    logits: Logits, h: Features, batch: Batch, members: Members
) -> Scalar:
    """Return the mean distance between the moments of pairs of environments; see `coral`.

    h: inputs of the linear layer. Other arguments: see `irm_penalty`; the logits and the
    batch are not used. An environment with a single example in the batch is left out. Return 0
    with fewer than two environments.

    For n points x_e with mean c, sum_(e < f) |x_e - x_f|^2 = n sum_e |x_e - c|^2.
    """
    total = jnp.sum(members, axis=0)
    share = members / jnp.where(total > 0, total, 1)[None]
    exact = jax.lax.Precision.HIGHEST
    mean = jnp.einsum("be,bi->ei", share, h, precision=exact)
    centred = h - jnp.matmul((members > 0).astype(h.dtype), mean, precision=exact)
    square = jnp.einsum("be,bi,bj->eij", share, centred, centred, precision=exact)
    # 1 - sum_i s_i^2 for shares s_i; (n - 1) / n for equal weights.
    free = 1 - jnp.sum(jnp.square(share), axis=0)
    present = ((total > 0) & (free > 1e-6)).astype(jnp.float32)
    free = jnp.where(present > 0, free, 1)[:, None, None]
    scale = 2 / jnp.maximum(jnp.sum(present) - 1, 1)
    return scale * (_spread(mean, present) + _spread(square / free, present))


def _spread(x: Float[Array, "e *d"], present: Float[Array, "e"]) -> Float[Array, ""]:
    """Return sum_e mean_d (x_e - c)^2 over the environments e in the batch, c their mean.

    present: 1 for environments in the batch, else 0.
    """
    x = x.reshape(len(x), -1)
    mask = present[:, None]
    centre = jnp.sum(mask * x, axis=0, keepdims=True) / jnp.maximum(jnp.sum(mask), 1)
    return jnp.sum(mask * jnp.square(x - centre)) / x.shape[1]


def penalised(
    name: str,
    net: nn.Module,
    *,
    penalty: Callable[..., Scalar],
    weight: float,
    by: str,
    columns: Columns | None,
    anneal: float | None = None,
) -> base.Algo:
    """Return ERM with weight * penalty(logits, features, batch, members) in its loss.

    name: start of error messages. by, columns: see `irm`. With weight 0 this equals ERM bit
    for bit.
    anneal: first share of the stage's steps in which the weight is at most 1; the loss is
      divided by the weight if the weight is above 1. None: the weight is the same in all steps,
      and the loss is not divided.
    """
    errors.check_range(name, 0, 1, anneal=anneal)
    if options.is_statically(weight, 0):
        return erm.make(net)
    if columns is None:
        return groups.evaluation_only(name, net)
    known = groups.environments(name, columns, by)

    def losses(params, stats, batch, key, static=None):
        """Return the losses by name, and `base.Aux` without metrics; see base.Algo.

        "class" is the class loss, "penalty" the penalty, "penalised" the loss to minimise.
        """
        logits, h, net_stats = base.forward_features(
            net, params["net"], stats["net"], batch["image"], key
        )
        loss = base.objective(logits, batch)
        term = penalty(logits, h, batch, known.members(batch))
        strength = jnp.minimum(weight, 1) if static is False else weight
        total = loss + strength * term
        if anneal is not None:
            total = total / jnp.maximum(strength, 1)
        named = {"class": loss, "penalty": term, "penalised": total}
        return named, base.Aux({**stats, "net": net_stats}, {})

    static = base.no_static if anneal is None else base.after_share(anneal)
    updates = (base.Update("penalised"),)
    return base.Algo(net, losses, updates, static=static, whole_batch=True)


ALGOS = {"coral": coral, "irm": irm, "vrex": vrex}
