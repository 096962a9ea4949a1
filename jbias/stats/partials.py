"""Do two measures go together beyond what a category or other measures explain?

Sources: Kendall 1942, https://doi.org/10.1093/biomet/32.3-4.277 (partial rank correlation);
Freedman and Lane 1983, https://doi.org/10.1080/07350015.1983.10509354, and Anderson and
Robinson 2001, https://doi.org/10.1111/1467-842X.00156 (permutation of residuals).
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from jbias.stats import correlation, orders


def partial(
    x: correlation.Values,
    y: correlation.Values,
    *,
    groups: Sequence[Hashable] | None = None,
    covariates: Sequence[correlation.Values] = (),
    permutations: int = 9_999,
    seed: int = 0,
) -> correlation.CorrelationResult:
    """Correlates what of the ranks of x and y a category and covariates leave unexplained.

    rho = r_x . r_y / (|r_x| |r_y|), r the residuals of the ranks after least squares on a
    constant for each group and on the ranks of the covariates: for one covariate z,
    (rho_xy - rho_xz rho_yz) / sqrt((1 - rho_xz^2) (1 - rho_yz^2)). Ranks are taken over all
    models, so that a group counts by its spread. A model alone in its group says nothing.
    p reorders r_y within groups, fits the controls again, and counts as `spearman`: with
    groups alone exact under the null of no relation within groups, with covariates
    approximate. NaN where the controls explain x or y whole. Raises ValueError without
    groups and covariates, for what `spearman` refuses, and where the controls leave fewer
    than 2 degrees of freedom.
    """
    names = [f"covariate {i}" for i in range(len(covariates))]
    named = dict(zip(names, covariates, strict=True))
    columns = correlation.columns(x=x, y=y, **named)
    n = len(columns[0])
    ranks = scipy.stats.rankdata(np.stack(columns, 1), axis=0)
    codes, basis = _controls(groups, ranks[:, 2:], n)
    left, right = _residuals(ranks[:, 0], basis), _residuals(ranks[:, 1], basis)
    statistic = float(left @ right)
    draws, exact, batches = orders.orders(codes, permutations, seed, n)
    hits = 0
    for order in batches:
        drawn = right[order]
        # Compared without division: where nothing is left after the fit, it is a hit.
        length = np.sqrt(np.clip(1 - ((drawn @ basis) ** 2).sum(axis=1), 0, 1))
        reach = np.abs(drawn @ left) - abs(statistic) * length
        hits += int((reach >= -correlation.SLACK).sum())
    pvalue = orders.p_of(hits, draws, exact)
    if math.isnan(statistic):
        pvalue = math.nan
    return correlation.CorrelationResult(statistic, pvalue, n, draws, exact)


def _controls(groups, covariates: Float[np.ndarray, "n c"], n: int):
    """Gives the code of each model's group, and an orthonormal basis of the controls."""
    if groups is None and not covariates.shape[1]:
        raise ValueError("partial: must control for groups or covariates, got neither")
    codes = np.zeros(n, int)
    if groups is not None:
        codes = pd.factorize(np.asarray(list(groups), object))[0]
    if codes.shape != (n,) or codes.min() < 0:
        raise ValueError(
            f"groups: must name one for each of {n} models, got {codes.size} with "
            f"{int((codes < 0).sum())} missing; fill them or leave the models out"
        )
    design = np.column_stack([np.eye(codes.max() + 1)[codes], covariates])
    vectors, values, _ = np.linalg.svd(design, full_matrices=False)
    basis = vectors[:, values > values[0] * n * np.finfo(float).eps]
    if n - basis.shape[1] < 2:
        raise ValueError(
            f"partial: {n} models less {basis.shape[1]} controls leave "
            f"{n - basis.shape[1]} degrees of freedom, 2 are needed; control for less"
        )
    return codes, basis


def _residuals(ranks: Float[np.ndarray, "n"], basis: np.ndarray) -> np.ndarray:
    """Gives what the controls leave, of length 1; NaN where that is nothing."""
    left = ranks - basis @ (basis.T @ ranks)
    length = np.linalg.norm(left)
    return left / (length if length > 1e-10 * np.linalg.norm(ranks) else math.nan)
