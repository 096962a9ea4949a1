"""EQRM: minimise a quantile of the losses of environments.

Source: Eastwood, Robey, Singh, von Kügelgen, Hassani, Pappas and Schölkopf, "Probable Domain
Generalization via Quantile Risk Minimization", NeurIPS 2022, https://arxiv.org/abs/2207.09944,
algorithm 1.
Reference code: https://github.com/facebookresearch/DomainBed at b93c22a, class EQRM and
lib/misc.py, which are those of the authors' https://github.com/cianeastwood/qrm at 6117c00.
Deviations: The optimiser is not reset after the burn-in, and its rate is the same in both; the
references reset it, and DomainBed trains at a rate of its own, 1/50 of ERM's, after the burn-in.
Two stages, ERM and EQRM with burn_in=0, do both. During the burn-in, the loss is the mean over
the batch's examples; it equals the references' mean over environments if all environments have
equal shares of the batch. If all losses are equal, the references end with an error; here the
quantile is then the loss. The references' formula for quantiles that are given by
log(1 - alpha) < 0 is left out. So is the authors' division of the loss, in their experiments on
Colored MNIST, by the norm of its gradient over that of ERM.
"""

import numbers

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias import errors
from jbias.algos import base, erm, groups
from jbias.augment import options

_NUM_BISECTIONS = 32


def make(
    net: nn.Module,
    *,
    alpha: float = 0.75,
    burn_in: float = 0.5,
    by: str = "",
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return EQRM, whose L is the alpha-quantile of a kernel density of the losses R_e.

    R_e is the mean loss of environment e in the batch; see `quantile` for the density and for
    the gradient. alpha=0.5 is near the mean, and alpha near 1 near or above the largest loss.

    burn_in: first share of the stage in which L is the class loss. With burn_in=1 this equals
      ERM bit for bit, as it does if the training data have a single environment.
    by: column of the environments, or several joined by +; by default "domain" (the number of
      the source, or a column of the data set) or, without such a column, "attribute".
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    Losses: "class", and "risk", which is minimised. Metric: "quantile", the quantile, also
    during the burn-in. ValueError for alpha outside (0, 1), for `burn_in` outside [0, 1], and
    for columns that `groups.from_columns` refuses.
    """
    if isinstance(alpha, numbers.Real):
        errors.check_share("eqrm: alpha", alpha)
    errors.check_range("eqrm", 0, 1, burn_in=burn_in)
    if options.is_statically(burn_in, 1):
        return erm.make(net)
    if columns is None:
        return groups.evaluation_only("eqrm", net)
    known = groups.environments("eqrm", columns, by)
    if (known.counts > 0).sum() == 1:
        return erm.make(net)

    def losses(params, stats, batch, key, static=None):
        """Return the losses "class" and "risk", and `base.Aux`; see base.Algo.

        Metric: "quantile".
        """
        logits, net_stats = base.forward(
            net, params["net"], stats["net"], batch["image"], key
        )
        loss = base.objective(logits, batch)
        example_losses = base.example_losses(logits, batch)
        risks, present = groups.means(example_losses, known.members(batch))
        tail = quantile(risks, present, alpha)
        robust = base.with_consistency(tail, logits, batch)
        named = {"class": loss, "risk": loss if static is False else robust}
        return named, base.Aux({**stats, "net": net_stats}, {"quantile": tail})

    updates = (base.Update("risk"),)
    static = base.after_share(burn_in)
    return base.Algo(net, losses, updates, static=static, whole_batch=True)


def quantile(
    risks: Float[Array, "e"], present: Float[Array, "e"], alpha: float
) -> Float[Array, ""]:
    """Return the alpha-quantile of a Gaussian kernel density of risks.

    The kernels of the n risks have the standard deviation s = 1.06 sd(risks) n^(-1/5), where sd
    is the standard deviation with n - 1. The quantile is searched by 32 bisections between the
    quantiles of the kernels at the smallest and at the largest risk:
    q = (1 - w) min(risks) + w max(risks) + s Phi^-1(alpha).

    As in the reference, the gradient is that of this sum with w fixed. It differs from the
    gradient of the exact quantile: risks between the smallest and the largest count only by s.
    If the risks are equal, q is their mean. present: 1 for the risks that exist, else 0.
    """
    n = jnp.sum(present)
    centred = (risks - groups.mean_present(risks, present)) * present
    variance = jnp.sum(jnp.square(centred)) / jnp.maximum(n - 1, 1)
    is_spread = variance > 1e-30
    deviation = jnp.sqrt(jnp.where(is_spread, variance, 1.0))
    bandwidth = 1.06 * deviation * jnp.maximum(n, 1) ** -0.2
    smallest = jnp.min(risks, where=present > 0, initial=jnp.inf)
    largest = jnp.max(risks, where=present > 0, initial=-jnp.inf)
    shift = bandwidth * jax.scipy.special.ndtri(alpha)
    w = jax.lax.stop_gradient(
        _position(
            risks,
            present,
            bandwidth=bandwidth,
            start=smallest + shift,
            length=largest - smallest,
            alpha=alpha,
        )
    )
    value = (1 - w) * smallest + w * largest + shift
    return jnp.where(is_spread, value, groups.mean_present(risks, present))


def _position(
    risks: Float[Array, "e"],
    present: Float[Array, "e"],
    *,
    bandwidth: Float[Array, ""],
    start: Float[Array, ""],
    length: Float[Array, ""],
    alpha: float,
) -> Float[Array, ""]:
    """Return w in [0, 1] such that start + w * length is the alpha-quantile, by bisection.

    The distribution is the mean of normal distributions around the risks whose `present` is 1,
    all with the standard deviation `bandwidth`.
    """

    def halve(_, interval):
        """Return the half of the interval (low, high) of w that has the quantile."""
        low, high = interval
        middle = (low + high) / 2
        z = (start + middle * length - risks) / bandwidth
        is_above = groups.mean_present(jax.scipy.special.ndtr(z), present) > alpha
        return jnp.where(is_above, low, middle), jnp.where(is_above, middle, high)

    interval = jnp.zeros_like(start), jnp.ones_like(start)
    low, high = jax.lax.fori_loop(0, _NUM_BISECTIONS, halve, interval)
    return (low + high) / 2


ALGOS = {"eqrm": make}
