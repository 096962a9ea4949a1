"""Few networks: draws of their mean, and a test of it, that allow for how few there are.

Percentiles of a bootstrap over two or three networks cover far less than they say. Here
deviations of the networks are weighed by normal numbers, scaled so that a draw of a mean is
Student's t with s - 1 degrees of freedom: its percentiles are the t interval.
"""

import math

import numpy as np
import scipy.stats
from jaxtyping import Float


def weights(s: int, draws: int, rng: np.random.Generator) -> Float[np.ndarray, "b s"]:
    """What each of s networks weighs in each draw of their mean; rows sum to 1.

    sum_i w_i x_i is distributed as mean(x) + T sd(x) / sqrt(s), T of Student's t with s - 1
    degrees of freedom, and jointly so for several measurements x of the same networks. A
    single network weighs 1 in each: how others would do is not known.
    """
    if s == 1:
        return np.ones((draws, 1))
    normal = rng.standard_normal((draws, s))
    normal -= normal.mean(1, keepdims=True)
    scale = np.sqrt((s - 1) / rng.chisquare(s - 1, (draws, 1)))
    return 1 / s + scale * normal / math.sqrt(s * (s - 1))


def exceeds(excess: float, between: tuple[float, float], others: float = 0.0) -> float:
    """p of: the true excess is not above 0, by a one-sided t test.

    between: the variance of the excess that is due to networks, and its degrees of freedom;
    others: of what is the same for all networks, as if known. Degrees of freedom together
    after Satterthwaite, Biometrics Bulletin 1946, 2 (6).
    """
    variance, free = between
    total = variance + others
    if not total:
        return 0.0 if excess > 0 else 1.0
    degrees = total**2 / (variance**2 / free) if variance and free else math.inf
    if math.isinf(degrees):
        return float(scipy.stats.norm.sf(excess / math.sqrt(total)))
    return float(scipy.stats.t.sf(excess / math.sqrt(total), degrees))
