"""MMD: features should have the same distribution in all environments, by a kernel's measure.

Source: Li, Pan, Wang and Kot, "Domain Generalization with Adversarial Feature Learning",
CVPR 2018,
https://openaccess.thecvf.com/content_cvpr_2018/html/Li_Domain_Generalization_With_CVPR_2018_paper.html.
Reference code: https://github.com/facebookresearch/DomainBed at b93c22a, class MMD, which has the
paper's penalty, but neither its autoencoder nor its adversarial prior.
Deviations: The class loss is the mean over the batch's examples; it equals the reference's
mean over environments if all environments have equal shares of the batch. Distances are computed
from centred features, and the distance of an example to itself is exactly 0; in the reference it is
a rounding error, which the narrowest kernel magnifies by 1,000. All environments pass through the
network together, and batch norm uses the statistics of all. The reference processes the
environments one by one, which gives the same result for its networks without batch statistics.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias import errors
from jbias.algos import base, groups, invariance

GAMMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def make(
    net: nn.Module,
    *,
    weight: float = 1.0,
    gammas: Sequence[float] = GAMMAS,
    by: str = "",
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return MMD, with L = R + weight * mean_(e < f) (M_ee + M_ff - 2 M_ef).

    R is the class loss. M_ef is the mean of k(x, y) over the batch's examples x of environment e
    and y of environment f, k(x, y) = sum_gamma exp(-gamma |x - y|^2) for inputs x and y of the
    linear layer. M_ee includes the pairs of an example with itself. The mean is over pairs of
    environments in the batch. With weight=0 this equals ERM bit for bit. The kernel of all
    pairs of examples is computed, for which each device gets the features of all examples.

    by, columns and errors: see `invariance.irm`; also ValueError unless all `gammas` are positive,
    and for none.
    """
    errors.check_condition("mmd", "at least 0", weight=weight)
    must, remedy = "be at least one number", "leave it out for the reference's"
    errors.check(len(gammas) > 0, "mmd", must, gammas, remedy, name="gammas")
    for gamma in gammas:
        errors.check_condition("mmd", "positive", gammas=gamma)

    def penalty(logits, h, batch, members):
        """Return the squared discrepancy of the environments; see `discrepancy`."""
        return discrepancy(h, members, gammas=gammas)

    return invariance.penalised(
        "mmd", net, penalty=penalty, weight=weight, by=by, columns=columns
    )


def discrepancy(
    h: Float[Array, "b c"],
    members: Float[Array, "b e"],
    *,
    gammas: Sequence[float] = GAMMAS,
) -> Float[Array, ""]:
    """Return the mean squared discrepancy of pairs of environments in the batch; see `make`.

    h: inputs of the linear layer. members: weights of the examples in their environments, from
    Groups.members. Return 0 with fewer than two environments.

    For n environments, sum_(e < f) (M_ee + M_ff - 2 M_ef) = n sum_e M_ee - sum_ef M_ef.
    """
    total = jnp.sum(members, axis=0)
    share = members / jnp.where(total > 0, total, 1)[None]
    exact = jax.lax.Precision.HIGHEST
    kernel = _kernel(h, gammas)
    means = jnp.matmul(
        share.T, jnp.matmul(kernel, share, precision=exact), precision=exact
    )
    count = jnp.sum((total > 0).astype(h.dtype))
    num_pairs = jnp.maximum(count * (count - 1) / 2, 1)
    return (count * jnp.trace(means) - jnp.sum(means)) / num_pairs


def _kernel(h: Float[Array, "b c"], gammas: Sequence[float]) -> Float[Array, "b b"]:
    """Return sum_gamma exp(-gamma |h_i - h_j|^2) for all pairs of rows."""
    h = h - jax.lax.stop_gradient(jnp.mean(h, axis=0, keepdims=True))
    product = jnp.matmul(h, h.T, precision=jax.lax.Precision.HIGHEST)
    norm = jnp.sum(jnp.square(h), axis=1)
    square = jnp.maximum(norm[:, None] + norm[None, :] - 2 * product, 0)
    rows = jnp.arange(len(h))
    square = jnp.where(rows[:, None] == rows[None, :], 0.0, square)
    return sum(jnp.exp(-gamma * square) for gamma in gammas)


ALGOS = {"mmd": make}
