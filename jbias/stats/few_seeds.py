"""Would fewer seeds have said the same? Groups of the seeds that there are, compared.

Two groups of a method's seeds, drawn without replacement, are what two studies of the same
method would have compared. The mean squared difference of their means is 2 S^2 / s, S^2 the
variance of all its seeds (ddof 1), as it is of new seeds.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from jbias.stats import power, score_table

_QUANTILES = 500


@dataclasses.dataclass(frozen=True, eq=False)
class FewSeedsResult:
    """What s seeds a method would have shown; NaN where methods have too few seeds."""

    apart: Float[np.ndarray, "s k"]  # Share of draws: two groups of a method differ.
    lead: Float[np.ndarray, "s k"]  # Of the best of k copies of a method, expected.
    reversed: Float[np.ndarray, "s k k"]  # Share of draws: another sign than of all.
    # Seeds of each of a pair; inf where means are equal.
    needed: Float[np.ndarray, "k k"]


def few_seeds(
    scores: Sequence[npt.ArrayLike],
    *,
    difference: float,
    larger_is_better: bool,
    seeds: Sequence[int] = (1, 3, 5, 10),
    alpha: float = 0.05,
    target: float = 0.8,
    draws: int = 5000,
    seed: int = 0,
) -> FewSeedsResult:
    """Compares groups of s seeds, for s in `seeds`, of k methods on one data set.

    `apart`: how often two disjoint groups of one method have means more than `difference`
    apart. `lead`: how far the best of k groups of one method lies above their mean, where
    groups are independent and deviate by sqrt(n / (n - s)) more than those drawn from n
    seeds. Both need 2 s seeds. `reversed`: how often groups of a pair of methods have not the
    sign of the difference of all seeds, but the other or none; it needs more than s seeds,
    and those drawn are among all, so new seeds would reverse it more often. `needed`: as
    `seeds_for_t` gives it if difference and pooled deviation of the pair were true.

    All groups are enumerated where they are at most `draws`, and else drawn so often, with
    a standard error of at most 0.5 / sqrt(draws); of 1,000 and more, quantiles stand for one
    side of `reversed`, which moves it by less than 0.001. scores: the scores of each method, one a
    seed. Raises ValueError for methods with a single score or one that is not finite.
    """
    sign = 1 if larger_is_better else -1
    runs = [sign * np.asarray(one, np.float64) for one in scores]
    if not runs or not all(x.ndim == 1 < x.size and np.isfinite(x).all() for x in runs):
        raise ValueError(
            "scores: every method must have two finite scores or more; leave others out"
        )
    score_table.check(
        0 <= difference < math.inf, "difference", "be 0 or larger", difference
    )
    score_table.check_count("seeds", min(seeds, default=0))
    score_table.check_count("draws", draws, 100)
    k, roundings = len(runs), [1e-12 * np.abs(x).max() for x in runs]
    apart, lead = np.full((2, len(seeds), k), math.nan)
    means: list[dict[int, np.ndarray]] = [{} for _ in seeds]
    for (row, s), (i, x) in itertools.product(enumerate(seeds), enumerate(runs)):
        if s >= len(x):
            continue
        order = _groups(len(x), s, draws, seed)
        first = x[order[:, :s]].mean(1)
        means[row][i] = np.sort(first)
        if 2 * s <= len(x):
            gap = np.abs(first - x[order[:, s : 2 * s]].mean(1))
            apart[row, i] = np.mean(gap > difference + roundings[i])
            chance = np.linspace(0, 1, len(first) + 1) ** k  # That none is better.
            best = np.diff(chance) @ means[row][i] - x.mean()
            lead[row, i] = best * math.sqrt(len(x) / (len(x) - s))
    turned = np.full((len(seeds), k, k), math.nan)
    needed = np.where(np.eye(k), math.nan, math.inf)
    for i, j in itertools.permutations(range(k), 2):
        gap, variance = runs[i].mean() - runs[j].mean(), runs[i].var(ddof=1)
        tolerance = max(roundings[i], roundings[j])
        if gap <= tolerance:
            continue
        spread = math.sqrt((variance + runs[j].var(ddof=1)) / 2)
        needed[[i, j], [j, i]] = power.seeds_for_t(
            difference=gap, deviation=max(spread, tolerance), alpha=alpha, target=target
        )
        for row, of in enumerate(means):
            if i in of and j in of:
                step = max(1, len(of[i]) // _QUANTILES)
                mine = of[i][step // 2 :: step] - tolerance
                behind = np.searchsorted(of[j], mine).mean() / len(of[j])
                turned[row, [i, j], [j, i]] = 1 - behind
    return FewSeedsResult(apart, lead, turned, needed)


@functools.lru_cache(maxsize=64)
def _groups(n: int, s: int, draws: int, seed: int) -> Int[np.ndarray, "m _"]:
    """Gives orders of n seeds whose first s are a group and whose next s are another.

    All groups where they are at most `draws`, each equally often, else so many drawn.
    """
    other = min(s, n - s)
    if math.comb(n, s) * math.comb(n - s, other) > draws:
        rows = np.tile(np.arange(n), (draws, 1))
        return np.random.default_rng(seed).permuted(rows, axis=1)
    pairs = (
        (one, another)
        for one in itertools.combinations(range(n), s)
        for another in itertools.combinations({*range(n)}.difference(one), other)
    )
    return np.array([one + another for one, another in pairs])
