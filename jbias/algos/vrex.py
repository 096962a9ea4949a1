"""V-REx: the losses of all environments should be equal.

Source: Krueger et al., "Out-of-Distribution Generalization via Risk Extrapolation",
ICML 2021, https://arxiv.org/abs/2003.00688.
Reference codes: https://github.com/facebookresearch/DomainBed at 026d588, class VREx,
and, for what is divided by the weight, the authors'
https://github.com/capybaralet/REx_code_release at 802da4a.
Deviations: the class loss is the mean over the batch's examples, which is the mean over
environments where these have equal shares of it, as in the references; the optimiser is
not begun anew when the weight grows, as DomainBed's is. The authors' code adds
weight * (R_1 - R_2)^2 to R_1 + R_2: beta is twice that weight.
"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.algos import base, groups


def make(
    net: nn.Module,
    *,
    beta: float = 10.0,
    anneal: float = 0.1,
    by: str = "",
    columns: Mapping[str, np.ndarray] | None = None,
) -> base.Algo:
    """L = R + beta * mean_e (R_e - mean_e R_e)^2, over max(1, beta).

    R_e is the mean loss of environment e in the batch; means are over the environments
    that the batch has. In the first share `anneal` of the stage beta is 1 at most.
    Environments are the sources where there are several, or a set's own "domain", else
    its "attribute", or the column that `by` names. With beta=0 this is ERM to the bit.
    `columns` are those of the training data, which the frame fills in.
    """
    return groups.penalised(
        "vrex", net, penalty, beta, by, columns, anneal=anneal, rescaled=True
    )


def penalty(
    logits: Float[Array, "b k"],
    h: Float[Array, "b c"],
    batch: base.Batch,
    members: Float[Array, "b e"],
) -> Float[Array, ""]:
    """The variance of the losses of the environments that are there."""
    risks, present = groups.means(base.example_losses(logits, batch), members)
    return groups.mean_present(
        jnp.square(risks - groups.mean_present(risks, present)), present
    )
