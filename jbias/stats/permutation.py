"""Friedman's test and its pairs by permutation: p-values that hold for any n, k and ties.

If algorithms are alike, every order of the scores within a data set is equally likely, so
each data set's ranks, ties and all, are permuted on their own: all permutations, or random
ones. Ranks are doubled, since with ties they are halves of integers. `type_1_error` is how
often the approximate tests, F and chi-squared, reject where all algorithms are alike; for
few data sets that is not alpha.
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

from jbias.stats import omnibus, posthoc, resampling, score_table

Table = score_table.Table
EXACT_LIMIT = 300_000  # Rows at a time; beyond, drawing is quicker than enumerating.
_DRAW_CELLS = 100_000  # Of one block of draws: what the processor keeps at hand.


def exact_rank_sums(
    twice: Int[np.ndarray, "n k"],
) -> tuple[Int[np.ndarray, "s k"], Float[np.ndarray, "s"]] | None:
    """Gives all sorted vectors of rank sums and their chances; None if they are too many.

    Data set after data set: what comes depends on the vector so far but for the order of
    algorithms, so equal sorted vectors are one, and the first data set stays as it is.
    """
    return _exact_rank_sums(tuple(sorted(map(tuple, np.sort(twice, axis=1).tolist()))))


@functools.lru_cache(maxsize=16)
def _exact_rank_sums(
    twice: tuple[tuple[int, ...], ...],
) -> tuple[np.ndarray, np.ndarray] | None:
    rows = sorted(twice, key=_count, reverse=True)
    sums, chances = np.array(rows[:1]), np.ones(1)
    for row in rows[1:]:
        if len(sums) * _count(row) > EXACT_LIMIT or len(row) > 8:
            return None
        orders = _orders(row)
        following = (sums[:, None] + orders).reshape(-1, len(row))
        following.sort(axis=1)
        shares = np.repeat(chances / len(orders), len(orders))
        sums, places = _distinct(following)
        chances = np.bincount(places, shares)
    sums.flags.writeable = chances.flags.writeable = False  # They are kept.
    return sums, chances


def labelled_rank_sums(
    sums: Int[np.ndarray, "s k"], chances: Float[np.ndarray, "s"]
) -> tuple[Int[np.ndarray, "r k"], Float[np.ndarray, "r"]] | None:
    """Gives each algorithm its sum, in all k! equally likely ways; None if too many."""
    k = sums.shape[1]
    if len(sums) * math.factorial(k) > EXACT_LIMIT:
        return None
    ways = _ways(k)
    return sums[:, ways].reshape(-1, k), np.repeat(chances / len(ways), len(ways))


def draw_rank_sums(
    twice: Int[np.ndarray, "n k"], count: int, seed: int
) -> Iterator[Int[np.ndarray, "b k"]]:
    """Draws `count` vectors of rank sums, in blocks.

    A permutation is what sorting random keys does to the ranks in their lowest bits; with
    22 random bits and more, equal keys favour no algorithm by more than 1e-6.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    k = twice.shape[1]
    low = (1 << int(twice.max()).bit_length()) - 1
    kind = np.uint32 if low < 2**10 else np.uint64
    rows, low = twice.astype(kind), kind(low)
    block = max(_DRAW_CELLS // k, 1)
    words = block * k * kind().itemsize // 8 + 1  # Drawn by eight bytes: it is quicker.
    for start in range(0, count, block):
        size = min(block, count - start)
        sums = np.zeros((size, k), dtype=kind)
        for row in rows:
            bits = rng.integers(0, 2**64, words, dtype=np.uint64).view(kind)
            keys = bits[: size * k].reshape(size, k)
            keys &= ~low
            keys |= row
            keys.sort(axis=1)
            keys &= low
            sums += keys
        yield sums.astype(np.int64)


def _count(row: tuple[int, ...]) -> int:
    """How many distinct orders a row has."""
    sizes = collections.Counter(row).values()
    return math.factorial(len(row)) // math.prod(map(math.factorial, sizes))


@functools.lru_cache(maxsize=256)
def _orders(row: tuple[int, ...]) -> Int[np.ndarray, "p k"]:
    if len(set(row)) == 1:
        return np.array([row])
    orders = np.array(row)[_ways(len(row))]
    return orders if len(set(row)) == len(row) else _distinct(orders)[0]


@functools.cache
def _ways(k: int) -> Int[np.ndarray, "k! k"]:
    return np.array(list(itertools.permutations(range(k))))


def _distinct(
    rows: Int[np.ndarray, "m k"],
) -> tuple[Int[np.ndarray, "s k"], Int[np.ndarray, "m"]]:
    """Distinct rows, and which each is; as numbers where they fit, which is quicker."""
    base = int(rows.max()) + 1
    if base ** rows.shape[1] >= 2**63:
        found, places = np.unique(rows, axis=0, return_inverse=True)
        return found, places.ravel()
    weights = base ** np.arange(rows.shape[1], dtype=np.int64)
    _, first, places = np.unique(rows @ weights, return_index=True, return_inverse=True)
    return rows[first], places


_PAIR_CELLS = 200_000  # Pairs of rank sums at a time.


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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MaxTResult(posthoc.PairsResult):
    """All pairs by permutation; statistics are differences of mean ranks."""

    permutations: int  # Drawn; 0 if exact.
    # Of adjusted p, from drawing; 0 if exact.
    standard_errors: Float[np.ndarray, "k k"]


def friedman_permutation(
    scores: Table, *, larger_is_better: bool, permutations: int = 10_000, seed: int = 0
) -> PermutationResult:
    """Tests whether k algorithms rank alike over n data sets, without an approximation.

    p = P(T >= t), T the sum of squared rank sums with each data set's ranks permuted, which
    F, chi2 and W grow with. All permutations are taken where that is quick (3 algorithms on
    100 data sets, 4 on 20, 5 on 7); else `permutations` are drawn and
    p = (1 + hits) / (1 + permutations).
    Raises ValueError for missing cells, for fewer than 2 data sets or algorithms and for
    fewer than 1 permutation.
    """
    score_table.check_count("permutations", permutations)
    matrix = score_table.read(scores).means
    ranked = score_table.rank(matrix, larger_is_better=larger_is_better)
    plain = omnibus.friedman(matrix, larger_is_better=larger_is_better)
    return permute_ranks(ranked, plain, permutations, seed)


def permute_ranks(
    rows: Float[np.ndarray, "b k"], plain: omnibus.FriedmanResult, draws: int, seed: int
) -> PermutationResult:
    """Permutes each row of ranks, or of sums of ranks; `plain` is the test of their scores."""
    twice = np.rint(2 * rows).astype(np.int64)
    seen = int(np.sum(twice.sum(axis=0) ** 2))
    found = exact_rank_sums(twice)
    hits = 0.0
    for sums, weights in _weighted(found, twice, draws, seed):
        hits += float(weights[np.sum(sums**2, axis=1) >= seen].sum())
    pvalue = min(hits if found else (1 + hits) / (1 + draws), 1.0)
    error = 0.0 if found else math.sqrt(pvalue * (1 - pvalue) / draws)
    return PermutationResult(
        statistic=plain.statistic,
        pvalue=pvalue,
        standard_error=error,
        exact=found is not None,
        permutations=0 if found else draws,
        ranks=plain.ranks,
        approximate=plain,
    )


def smallest_pvalue(n: int, k: int) -> float:
    """Return the smallest exact p: the chance that n rankings of k without ties agree."""
    if k > 170:  # The factorial of 171 is no float.
        return math.exp((1 - n) * math.lgamma(k + 1))
    return float(math.factorial(k)) ** (1 - n)


def max_t(
    scores: Table, *, larger_is_better: bool, permutations: int = 10_000, seed: int = 0
) -> MaxTResult:
    """Compares all pairs of k algorithms by mean ranks, adjusted by permutation.

    Pairs in the order of |R_i - R_j|, the farthest first: pair m's adjusted p is
    P(max over pairs m, m+1, ... of |R_i - R_j| >= that of m), and no less than the p of the
    pairs before it (step-down). All permutations or draws, as in `friedman_permutation`.
    The family-wise error is kept where all algorithms are alike; where some differ, a
    difference of mean ranks depends on the others, here as in Nemenyi's test, and no test
    of mean ranks promises more (`wilcoxon` does). Raises as `friedman_permutation` does.
    """
    score_table.check_count("permutations", permutations)
    read = score_table.read(scores)
    ranked = score_table.rank(read, larger_is_better=larger_is_better)
    n, k = ranked.shape
    twice = np.rint(2 * ranked).astype(np.int64)
    found = exact_rank_sums(twice)
    found = labelled_rank_sums(*found) if found else None
    rows, columns = np.triu_indices(k, 1)
    seen = twice.sum(axis=0)
    seen = seen[columns] - seen[rows]
    order = np.argsort(-np.abs(seen), kind="stable")
    both = np.zeros((2, len(seen))) if found else np.ones((2, len(seen)))
    for sums, weights in _weighted(found, twice, permutations, seed):
        both += _reached(sums, weights, np.abs(seen), order)
    alone, step = both if found else both / (1 + permutations)
    adjusted = np.empty(len(seen))
    adjusted[order] = np.maximum.accumulate(step[order])
    adjusted = np.minimum(adjusted, 1)
    errors = np.sqrt(adjusted * (1 - adjusted) / permutations) * (found is None)
    drawn = 0.0 if found else 1 / (1 + permutations)
    return MaxTResult(
        statistics=resampling.pair_matrix(seen / (2 * n), np.negative),
        pvalues=resampling.pair_matrix(np.minimum(alone, 1), diagonal=1.0),
        adjusted=resampling.pair_matrix(adjusted, diagonal=1.0),
        ranks=ranked.mean(axis=0),
        algorithms=read.algorithms,
        n=n,
        adjustment="max-T",
        exact=found is not None,
        least=max(drawn, 2.0 * float(k * (k - 1)) ** -n),
        least_adjusted=max(drawn, float(k * (k - 1)) ** (1 - n)),
        permutations=0 if found else permutations,
        standard_errors=resampling.pair_matrix(errors),
    )


def _weighted(found, twice, permutations: int, seed: int) -> Iterable[tuple]:
    """Gives all rank sums with their chances, or drawn ones that weigh 1 each."""
    if found:
        return [found]
    drawn = draw_rank_sums(twice, permutations, seed)
    return ((sums, np.ones(len(sums))) for sums in drawn)


def _reached(
    sums: Int[np.ndarray, "b k"],
    weights: Float[np.ndarray, "b"],
    seen: Int[np.ndarray, "m"],
    order: Int[np.ndarray, "m"],
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Sums the weights where a pair is as far apart as seen, and where any from it on is."""
    rows, columns = np.triu_indices(sums.shape[1], 1)
    alone, step = np.zeros(len(seen)), np.zeros(len(seen))
    size = max(_PAIR_CELLS // len(seen), 1)
    for start in range(0, len(sums), size):
        part, weight = sums[start : start + size], weights[start : start + size]
        apart = np.abs(part[:, columns[order]] - part[:, rows[order]])
        alone[order] += weight @ (apart >= seen[order])
        farthest = np.maximum.accumulate(apart[:, ::-1], axis=1)[:, ::-1]
        step[order] += weight @ (farthest >= seen[order])
    return alone, step


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
    score_table.check_share("alpha", alpha)
    twice = np.tile(2 * np.arange(1, k + 1), (n, 1))
    found = exact_rank_sums(twice)
    f = chi2 = 0.0
    for sums, weights in _weighted(found, twice, draws, seed):
        chances = weights if found else weights / draws
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
        least=smallest_pvalue(n, k),
        standard_error=0.0 if found else math.sqrt(alpha * (1 - alpha) / draws),
        exact=found is not None,
    )
