"""How often does Friedman's test reject where all algorithms are alike?

F and chi-squared are approximations for many data sets. For few, what a test rejects at
alpha is not alpha; here is what it is.
"""

import dataclasses
import functools
import math

import numpy as np
import scipy.stats

from jbias.stats import compared, null


@dataclasses.dataclass(frozen=True)
class Type1ErrorResult:
    """Actual sizes of nominal tests of k algorithms over n data sets without ties."""

    n: int
    k: int
    alpha: float
    f: float  # Chance that Iman and Davenport's F rejects; alpha if all were well.
    chi2: float  # Chance that Friedman's chi-squared rejects.
    least: float  # Smallest exact p-value: above alpha, an exact test never rejects.
    standard_error: float  # Of the two chances near alpha, from drawing; 0 if exact.
    exact: bool  # All rankings, or draws.


@functools.lru_cache(maxsize=256)
def type_1_error(
    n: int, k: int, *, alpha: float = 0.05, draws: int = 100_000, seed: int = 0
) -> Type1ErrorResult:
    """Gives the size of Friedman's tests at alpha: P(p <= alpha) if algorithms are alike.

    From all rankings where that is quick, else from `draws` of them; answers are kept.
    Raises ValueError for fewer than 2 data sets or algorithms, or 1 draw.
    """
    if n < 2 or k < 2 or draws < 1:
        raise ValueError(
            "type_1_error: needs at least 2 data sets, 2 algorithms and 1 draw, got "
            f"{n}, {k} and {draws}"
        )
    compared.checked(alpha)
    twice = np.tile(2 * np.arange(1, k + 1), (n, 1))
    found = null.exact(twice)
    if found:
        blocks = [found]
    else:
        drawn = null.draws(twice, draws, seed)
        blocks = ((sums, np.full(len(sums), 1 / draws)) for sums in drawn)
    f = chi2 = 0.0
    for sums, chances in blocks:
        # As in `friedman`, without ties.
        spread = 3 * np.sum(sums**2, axis=1) - 3 * n**2 * k * (k + 1) ** 2
        w = spread / (n**2 * k * (k**2 - 1))
        limit = scipy.stats.f.isf(alpha, k - 1, (k - 1) * (n - 1))
        f += float(chances[(n - 1) * w >= limit * (1 - w)].sum())
        limit = scipy.stats.chi2.isf(alpha, k - 1)
        chi2 += float(chances[n * (k - 1) * w >= limit].sum())
    return Type1ErrorResult(
        n=n,
        k=k,
        alpha=alpha,
        f=min(f, 1.0),
        chi2=min(chi2, 1.0),
        least=float(math.factorial(k)) ** (1 - n),
        standard_error=0.0 if found else math.sqrt(alpha * (1 - alpha) / draws),
        exact=found is not None,
    )
