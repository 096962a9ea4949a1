"""Friedman's test and its pairs by permutation: p-values that hold for any n, k and ties.

If algorithms are alike, every order of the scores within a data set is equally likely.
Sources: Pitman 1938; Phipson and Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for
(1 + hits) / (1 + draws); Westfall and Young 1993, algorithm 2.8, for max-T.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from jbias.stats import compared, null
from jbias.stats import ranks as omnibus
from jbias.stats import scores as score_table

_CELLS = 200_000  # Pairs of rank sums at a time.


@dataclasses.dataclass(frozen=True, eq=False)
class PermutationResult:
    """Friedman's test by permutation, with the approximate one beside it."""

    statistic: float  # Iman and Davenport's F; chi2 and Kendall's W order alike.
    pvalue: float
    standard_error: float  # Of the p-value, from drawing; 0 if exact.
    exact: bool  # All permutations, or draws.
    permutations: int  # Drawn; 0 if exact.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    approximate: omnibus.FriedmanResult


@dataclasses.dataclass(frozen=True, eq=False)
class MaxTResult(compared.PairsResult):
    """All pairs by permutation; statistics are differences of mean ranks."""

    permutations: int  # Drawn; 0 if exact.
    # Of adjusted p, from drawing; 0 if exact.
    standard_errors: Float[np.ndarray, "k k"]


def friedman_permutation(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    axis: int = 1,
    permutations: int = 10_000,
    seed: int = 0,
) -> PermutationResult:
    """Tests whether k algorithms rank alike over n data sets, without an approximation.

    p = P(T >= t), T the sum of squared rank sums with each data set's ranks permuted, which
    F, chi2 and W grow with. All permutations are taken where that is quick (3 algorithms on
    100 data sets, 4 on 20, 5 on 7); else `permutations` are drawn and
    p = (1 + hits) / (1 + permutations).
    Raises ValueError for missing cells, for fewer than 2 data sets or algorithms and for
    fewer than 1 permutation.
    """
    _checked(permutations)
    matrix = score_table.matrix(scores, axis=axis)
    ranked = score_table.rank(matrix, larger_is_better=larger_is_better)
    twice = np.rint(2 * ranked).astype(np.int64)
    seen = int(np.sum(twice.sum(axis=0) ** 2))
    found = null.exact(twice)
    if found:
        sums, chances = found
        pvalue = min(float(chances[np.sum(sums**2, axis=1) >= seen].sum()), 1.0)
        error = 0.0
    else:
        blocks = null.draws(twice, permutations, seed)
        hits = sum(int(np.sum(np.sum(sums**2, axis=1) >= seen)) for sums in blocks)
        pvalue = (1 + hits) / (1 + permutations)
        error = float(_error(pvalue, permutations))
    plain = omnibus.friedman(matrix, larger_is_better=larger_is_better)
    return PermutationResult(
        statistic=plain.statistic,
        pvalue=pvalue,
        standard_error=error,
        exact=found is not None,
        permutations=0 if found else permutations,
        ranks=plain.ranks,
        approximate=plain,
    )


def max_t(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    axis: int = 1,
    permutations: int = 10_000,
    seed: int = 0,
) -> MaxTResult:
    """Compares all pairs of k algorithms by mean ranks, adjusted by permutation.

    Pairs in the order of |R_i - R_j|, the farthest first: pair m's adjusted p is
    P(max over pairs m, m+1, ... of |R_i - R_j| >= that of m), and no less than the p of the
    pairs before it (step-down). All permutations or draws, as in `friedman_permutation`.
    The family-wise error is kept where all algorithms are alike; where some differ, a
    difference of mean ranks depends on the others, here as in Nemenyi's test, and no test
    of mean ranks promises more (`wilcoxon` does). Raises as `friedman_permutation` does.
    """
    _checked(permutations)
    read = score_table.read(scores, axis=axis)
    ranked = score_table.rank(read, larger_is_better=larger_is_better)
    n, k = ranked.shape
    twice = np.rint(2 * ranked).astype(np.int64)
    found = null.exact(twice)
    found = null.labelled(*found) if found else None
    rows, columns = np.triu_indices(k, 1)
    seen = twice.sum(axis=0)
    seen = seen[columns] - seen[rows]
    order = np.argsort(-np.abs(seen), kind="stable")
    if found:
        sums, chances = found
        alone, step = _reached(sums, chances, np.abs(seen), order)
    else:
        alone, step = np.ones(len(seen)), np.ones(len(seen))
        for sums in null.draws(twice, permutations, seed):
            more = _reached(sums, np.ones(len(sums)), np.abs(seen), order)
            alone, step = alone + more[0], step + more[1]
        alone, step = alone / (1 + permutations), step / (1 + permutations)
    adjusted = np.empty(len(seen))
    adjusted[order] = np.maximum.accumulate(step[order])
    adjusted = np.minimum(adjusted, 1)
    errors = np.zeros(len(seen)) if found else _error(adjusted, permutations)
    drawn = 0.0 if found else 1 / (1 + permutations)
    return MaxTResult(
        statistics=compared.square(seen / (2 * n), k, diagonal=0.0, sign=-1),
        pvalues=compared.square(np.minimum(alone, 1), k),
        adjusted=compared.square(adjusted, k),
        ranks=ranked.mean(axis=0),
        algorithms=read.algorithms,
        n=n,
        adjustment="max-T",
        exact=found is not None,
        least=max(drawn, 2.0 * float(k * (k - 1)) ** -n),
        least_adjusted=max(drawn, float(k * (k - 1)) ** (1 - n)),
        permutations=0 if found else permutations,
        standard_errors=compared.square(errors, k, diagonal=0.0),
    )


def _reached(
    sums: Int[np.ndarray, "b k"],
    weights: Float[np.ndarray, "b"],
    seen: Int[np.ndarray, "m"],
    order: Int[np.ndarray, "m"],
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Sums the weights where a pair is as far apart as seen, and where any from it on is."""
    rows, columns = np.triu_indices(sums.shape[1], 1)
    alone, step = np.zeros(len(seen)), np.zeros(len(seen))
    size = max(_CELLS // len(seen), 1)
    for start in range(0, len(sums), size):
        part, weight = sums[start : start + size], weights[start : start + size]
        apart = np.abs(part[:, columns[order]] - part[:, rows[order]])
        alone[order] += weight @ (apart >= seen[order])
        farthest = np.maximum.accumulate(apart[:, ::-1], axis=1)[:, ::-1]
        step[order] += weight @ (farthest >= seen[order])
    return alone, step


def _error(p: float | Float[np.ndarray, "*m"], count: int) -> Float[np.ndarray, "*m"]:
    return np.sqrt(p * (1 - p) / count)


def _checked(permutations: int) -> None:
    if permutations < 1:
        raise ValueError(f"permutations: must be at least 1, got {permutations}")
