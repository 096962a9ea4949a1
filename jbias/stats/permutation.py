"""Friedman's test and pairwise tests by permutation: valid for any n, k and ties.

If algorithms are equal, every order of the scores within a data set is equally likely, so
the ranks of each data set, ties included, are permuted separately: all permutations, or
random ones. Ranks are doubled to be integers, since ranks may be halves if there are ties.
`type_1_error` returns how often the approximate tests, F and chi-squared, reject where all
algorithms are equal; with few data sets this rate differs from alpha.
Sources: Pitman 1938; Phipson and Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for
(1 + hits) / (1 + draws); Westfall and Young 1993, algorithm 2.8, for max-T.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from jbias import errors as caller_errors
from jbias.stats import bootstrap_intervals, omnibus, posthoc, score_table

Table = score_table.Table
EXACT_LIMIT = 300_000  # Rows in memory; with more, drawing is faster than enumerating.
_DRAW_CELLS = 100_000  # Numbers in a block of draws, which fits the processor's cache.


def exact_rank_sums(
    twice: Int[np.ndarray, "n k"],
) -> tuple[Int[np.ndarray, "s k"], Float[np.ndarray, "s"]] | None:
    """Return all sorted vectors of rank sums and their probabilities, or None.

    None for more than 8 algorithms, or if a step would have more than `EXACT_LIMIT` rows.
    twice: doubled ranks of k algorithms on n data sets. Rank sums are doubled, too. Data sets
    are added one after another. The order of algorithms has no effect, so vectors that are
    equal after sorting are merged, and the first data set is not permuted.
    """
    return _exact_rank_sums(tuple(sorted(map(tuple, np.sort(twice, axis=1).tolist()))))


@functools.lru_cache(maxsize=16)
def _exact_rank_sums(
    twice: tuple[tuple[int, ...], ...],
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the result of `exact_rank_sums` as read-only arrays, cached by the doubled ranks.

    twice: the doubled ranks on each data set, sorted; rows are sorted, too.
    """
    rows = sorted(twice, key=_num_orders, reverse=True)
    sums, probabilities = np.array(rows[:1]), np.ones(1)
    for row in rows[1:]:
        if len(sums) * _num_orders(row) > EXACT_LIMIT or len(row) > 8:
            return None
        orders = _orders(row)
        next_sums = (sums[:, None] + orders).reshape(-1, len(row))
        next_sums.sort(axis=1)
        weights = np.repeat(probabilities / len(orders), len(orders))
        sums, places = _distinct_rows(next_sums)
        probabilities = np.bincount(places, weights)
    # The cache shares these arrays with later callers.
    sums.flags.writeable = probabilities.flags.writeable = False
    return sums, probabilities


def labelled_rank_sums(
    sums: Int[np.ndarray, "s k"], probabilities: Float[np.ndarray, "s"]
) -> tuple[Int[np.ndarray, "r k"], Float[np.ndarray, "r"]] | None:
    """Return the vectors of rank sums in all k! orders, with probabilities, or None.

    None if there would be more than `EXACT_LIMIT` vectors. sums, probabilities: result of
    `exact_rank_sums`. The vectors in `sums` are sorted, so they do not say which sum belongs to
    which algorithm; each of the k! assignments gets 1 / k! of its vector's probability.
    """
    k = sums.shape[1]
    if len(sums) * math.factorial(k) > EXACT_LIMIT:
        return None
    orders = _permutations(k)
    labelled = sums[:, orders].reshape(-1, k)
    return labelled, np.repeat(probabilities / len(orders), len(orders))


def draw_rank_sums(
    twice: Int[np.ndarray, "n k"], count: int, seed: int
) -> Iterator[Int[np.ndarray, "b k"]]:
    """Yield `count` random vectors of doubled rank sums, in blocks.

    twice: doubled ranks of k algorithms on n data sets.
    A row is permuted by sorting random keys that carry the ranks in their lowest bits. With 22
    or more random bits, equal keys favour no algorithm by more than 1e-6.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    k = twice.shape[1]
    rank_bits = (1 << int(twice.max()).bit_length()) - 1  # Mask of the bits of a rank.
    dtype = np.uint32 if rank_bits < 2**10 else np.uint64
    rows, rank_bits = twice.astype(dtype), dtype(rank_bits)
    block = max(_DRAW_CELLS // k, 1)
    # Drawing eight bytes at a time is faster.
    num_words = block * k * dtype().itemsize // 8 + 1
    for start in range(0, count, block):
        size = min(block, count - start)
        sums = np.zeros((size, k), dtype=dtype)
        for row in rows:
            bits = rng.integers(0, 2**64, num_words, dtype=np.uint64).view(dtype)
            keys = bits[: size * k].reshape(size, k)
            keys &= ~rank_bits
            keys |= row
            keys.sort(axis=1)
            keys &= rank_bits
            sums += keys
        yield sums.astype(np.int64)


def _num_orders(row: tuple[int, ...]) -> int:
    """Return the number of distinct orders of a row of ranks."""
    sizes = collections.Counter(row).values()
    return math.factorial(len(row)) // math.prod(map(math.factorial, sizes))


@functools.lru_cache(maxsize=256)
def _orders(row: tuple[int, ...]) -> Int[np.ndarray, "p k"]:
    """Return the distinct orders of a row of ranks, a row per order."""
    if len(set(row)) == 1:
        return np.array([row])
    orders = np.array(row)[_permutations(len(row))]
    return orders if len(set(row)) == len(row) else _distinct_rows(orders)[0]


@functools.cache
def _permutations(k: int) -> Int[np.ndarray, "k! k"]:
    """Return all orders of 0, ..., k - 1."""
    return np.array(list(itertools.permutations(range(k))))


def _distinct_rows(
    rows: Int[np.ndarray, "m k"],
) -> tuple[Int[np.ndarray, "s k"], Int[np.ndarray, "m"]]:
    """Return the distinct rows, and for each row its index among the distinct rows."""
    base = int(rows.max()) + 1
    if base ** rows.shape[1] >= 2**63:
        distinct, places = np.unique(rows, axis=0, return_inverse=True)
        return distinct, places.ravel()
    # Rows as single integers are faster to compare.
    weights = base ** np.arange(rows.shape[1], dtype=np.int64)
    _, first, places = np.unique(rows @ weights, return_index=True, return_inverse=True)
    return rows[first], places


_PAIR_CELLS = 200_000  # Pairs of rank sums in memory.


@dataclasses.dataclass(frozen=True, eq=False)
class PermutationResult:
    """Friedman's test by permutation, and the approximate test."""

    statistic: float  # Iman and Davenport's F; chi2 and Kendall's W give the same p.
    pvalue: float
    standard_error: float  # Of the p-value, from random draws; 0 if exact.
    exact: bool  # All permutations were used, not random ones.
    permutations: int  # Random permutations; 0 if exact.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    approximate: omnibus.FriedmanResult


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MaxTResult(posthoc.PairsResult):
    """Permutation tests of all pairs; statistics are differences of mean ranks."""

    permutations: int  # Random permutations; 0 if exact.
    # Of the adjusted p-values, from random draws; 0 if exact.
    standard_errors: Float[np.ndarray, "k k"]


def friedman_permutation(
    scores: Table, *, larger_is_better: bool, permutations: int = 10_000, seed: int = 0
) -> PermutationResult:
    """Return Friedman's test that k algorithms have equal ranks over n data sets, by permutation.

    p = P(T >= t), T the sum of squared rank sums with the ranks of each data set permuted; F,
    chi2 and W are increasing functions of T. All permutations are used where that is fast
    (3 algorithms on 100 data sets, 4 on 20, 5 on 7); else `permutations` random ones, and
    p = (1 + hits) / (1 + permutations). scores: see `score_table.read`.
    Raise ValueError for missing cells, for fewer than 2 data sets or algorithms and for
    fewer than 1 permutation.
    """
    caller_errors.check_at_least("permutations", permutations)
    matrix = score_table.read(scores).means
    ranked = score_table.rank(matrix, larger_is_better=larger_is_better)
    approximate = omnibus.friedman(matrix, larger_is_better=larger_is_better)
    return permute_ranks(ranked, approximate, draws=permutations, seed=seed)


def permute_ranks(
    rows: Float[np.ndarray, "b k"],
    approximate: omnibus.FriedmanResult,
    *,
    draws: int,
    seed: int,
) -> PermutationResult:
    """Return Friedman's test with each row of ranks, or of rank sums, permuted.

    rows: one row per data set, or per block of data sets. approximate: the usual Friedman test of
    the same scores, for the result. draws: number of random permutations, if there are too many to
    use all.
    """
    twice = np.rint(2 * rows).astype(np.int64)
    observed = int(np.sum(twice.sum(axis=0) ** 2))
    exact = exact_rank_sums(twice)
    hits = 0.0
    for sums, weights in _weighted_sums(exact, twice, draws=draws, seed=seed):
        hits += float(weights[np.sum(sums**2, axis=1) >= observed].sum())
    pvalue = min(hits if exact else (1 + hits) / (1 + draws), 1.0)
    return PermutationResult(
        statistic=approximate.statistic,
        pvalue=pvalue,
        standard_error=0.0 if exact else math.sqrt(pvalue * (1 - pvalue) / draws),
        exact=exact is not None,
        permutations=0 if exact else draws,
        ranks=approximate.ranks,
        approximate=approximate,
    )


def smallest_pvalue(n: int, k: int) -> float:
    """Return the smallest exact p-value of Friedman's test over n data sets.

    This p-value is the probability that n random rankings of k algorithms without ties agree.
    """
    if k > 170:  # The factorial of 171 overflows a float.
        return math.exp((1 - n) * math.lgamma(k + 1))
    return float(math.factorial(k)) ** (1 - n)


def max_t(
    scores: Table, *, larger_is_better: bool, permutations: int = 10_000, seed: int = 0
) -> MaxTResult:
    """Return tests of all pairs of k algorithms by mean ranks, p adjusted by permutation (max-T).

    Pairs are sorted by |R_i - R_j|, the largest first. The adjusted p of pair m is
    P(max over pairs m, m+1, ... of |R_i - R_j| >= |R_i - R_j| of pair m), and at least the p of the
    pairs before m (step-down). All permutations or random ones, as in `friedman_permutation`.
    The family-wise error rate is controlled where all algorithms are equal. Where some
    differ, a difference of mean ranks depends on the other algorithms, as in Nemenyi's test,
    and no test of mean ranks controls the family-wise error rate; `wilcoxon` does.
    Arguments and errors: see `friedman_permutation`.
    """
    caller_errors.check_at_least("permutations", permutations)
    table = score_table.read(scores)
    ranked = score_table.rank(table, larger_is_better=larger_is_better)
    n, k = ranked.shape
    twice = np.rint(2 * ranked).astype(np.int64)
    exact = exact_rank_sums(twice)
    if exact:
        sums, probabilities = exact
        exact = labelled_rank_sums(sums, probabilities)
    rows, columns = np.triu_indices(k, 1)
    rank_sums = twice.sum(axis=0)
    differences = rank_sums[columns] - rank_sums[rows]
    distances = np.abs(differences)
    order = np.argsort(-distances, kind="stable")
    # The observed table is one of the random permutations.
    hits = np.zeros(len(distances)) if exact else np.ones(len(distances))
    max_hits = hits.copy()
    for sums, weights in _weighted_sums(exact, twice, draws=permutations, seed=seed):
        block_hits, block_max_hits = _count_hits(
            sums, weights, distances=distances, order=order
        )
        hits += block_hits
        max_hits += block_max_hits
    total = 1 if exact else 1 + permutations
    pvalues, step_pvalues = hits / total, max_hits / total
    adjusted = np.empty(len(distances))
    adjusted[order] = np.maximum.accumulate(step_pvalues[order])
    adjusted = np.minimum(adjusted, 1)
    errors = np.sqrt(adjusted * (1 - adjusted) / permutations) * (exact is None)
    least_drawn = 0.0 if exact else 1 / (1 + permutations)
    return MaxTResult(
        statistics=bootstrap_intervals.pair_matrix(differences / (2 * n), np.negative),
        pvalues=bootstrap_intervals.pair_matrix(np.minimum(pvalues, 1), diagonal=1.0),
        adjusted=bootstrap_intervals.pair_matrix(adjusted, diagonal=1.0),
        ranks=ranked.mean(axis=0),
        algorithms=table.algorithms,
        n=n,
        adjustment="max-T",
        exact=exact is not None,
        least=max(least_drawn, 2.0 * float(k * (k - 1)) ** -n),
        least_adjusted=max(least_drawn, float(k * (k - 1)) ** (1 - n)),
        permutations=0 if exact else permutations,
        standard_errors=bootstrap_intervals.pair_matrix(errors),
    )


WeightedSums = tuple[Int[np.ndarray, "b k"], Float[np.ndarray, "b"]]


def _weighted_sums(
    exact: WeightedSums | None, twice: Int[np.ndarray, "n k"], *, draws: int, seed: int
) -> Iterable[WeightedSums]:
    """Return blocks of rank sums with weights: all rank sums, or random ones of weight 1.

    exact: all rank sums with their probabilities; None: use `draws` random ones.
    twice: doubled ranks.
    """
    if exact:
        return [exact]
    drawn = draw_rank_sums(twice, draws, seed)
    return ((sums, np.ones(len(sums))) for sums in drawn)


def _count_hits(
    sums: Int[np.ndarray, "b k"],
    weights: Float[np.ndarray, "b"],
    *,
    distances: Int[np.ndarray, "m"],
    order: Int[np.ndarray, "m"],
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Return the weight of rank sums with at least the observed distances of the m pairs.

    The first array is for each pair alone. The second is for the largest distance among a pair
    and all pairs after it in `order`. The two arrays have the pairs in the order of `distances`.
    distances: observed differences of rank sums. order: indices of pairs, the largest first.
    """
    rows, columns = np.triu_indices(sums.shape[1], 1)
    hits, max_hits = np.zeros(len(distances)), np.zeros(len(distances))
    size = max(_PAIR_CELLS // len(distances), 1)
    for start in range(0, len(sums), size):
        block, weight = sums[start : start + size], weights[start : start + size]
        drawn = np.abs(block[:, columns[order]] - block[:, rows[order]])
        hits[order] += weight @ (drawn >= distances[order])
        largest = np.maximum.accumulate(drawn[:, ::-1], axis=1)[:, ::-1]
        max_hits[order] += weight @ (largest >= distances[order])
    return hits, max_hits


@dataclasses.dataclass(frozen=True)
class Type1ErrorResult:
    """True type 1 error rates of Friedman's tests of k algorithms over n data sets without ties."""

    n: int
    k: int
    alpha: float  # Nominal.
    f: float  # Probability that Iman and Davenport's F rejects.
    chi2: float  # Probability that Friedman's chi-squared rejects.
    least: float  # Smallest exact p-value: above alpha, an exact test never rejects.
    standard_error: float  # Of f and chi2 near alpha, from random draws; 0 if exact.
    exact: bool  # All rankings were used, not random ones.


@functools.lru_cache(maxsize=256)
def type_1_error(
    n: int, k: int, *, alpha: float = 0.05, draws: int = 100_000, seed: int = 0
) -> Type1ErrorResult:
    """Return the probabilities that Friedman's tests reject if all algorithms are equal.

    n, k: numbers of data sets and algorithms. alpha: nominal level.
    From all rankings where that is fast, else from `draws` random ones; results are cached.
    Raise ValueError for fewer than 2 data sets or algorithms, fewer than 1 draw, and an alpha
    outside (0, 1).
    """
    if n < 2 or k < 2 or draws < 1:
        raise ValueError(
            "type_1_error: needs at least 2 data sets, 2 algorithms and 1 draw, got "
            f"{n}, {k} and {draws}"
        )
    caller_errors.check_share("alpha", alpha)
    twice = np.tile(2 * np.arange(1, k + 1), (n, 1))
    exact = exact_rank_sums(twice)
    f = chi2 = 0.0
    for sums, weights in _weighted_sums(exact, twice, draws=draws, seed=seed):
        probabilities = weights if exact else weights / draws
        # As in `friedman`, without ties.
        spread = 3 * np.sum(sums**2, axis=1) - 3 * n**2 * k * (k + 1) ** 2
        w = spread / (n**2 * k * (k**2 - 1))
        limit = scipy.stats.f.isf(alpha, k - 1, (k - 1) * (n - 1))
        f += float(probabilities[(n - 1) * w >= limit * (1 - w)].sum())
        limit = scipy.stats.chi2.isf(alpha, k - 1)
        chi2 += float(probabilities[n * (k - 1) * w >= limit].sum())
    return Type1ErrorResult(
        n=n,
        k=k,
        alpha=alpha,
        f=min(f, 1.0),
        chi2=min(chi2, 1.0),
        least=smallest_pvalue(n, k),
        standard_error=0.0 if exact else math.sqrt(alpha * (1 - alpha) / draws),
        exact=exact is not None,
    )
