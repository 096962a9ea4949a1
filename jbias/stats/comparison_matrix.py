"""Multi-Comparison Matrix: every pair of methods compared on its own, without adjustment.

For each pair the matrix has the mean difference of the scores, the numbers of blocks (data sets) on
which a method wins, ties and loses, and the two-sided p-value of Wilcoxon's signed-rank test. The
numbers of a pair, and whether it is significant, do not depend on any other method, to the bit.
Therefore p-values are not adjusted: at a level alpha, expect alpha k (k-1) / 2 false ones among the
pairs of k equal methods. For tests that adjust see `posthoc`.
Source: Ismail-Fawaz, Dempster, Tan, Herrmann, Miller, Schmidt, Berretti, Weber, Devanne, Forestier
and Webb 2023, https://arxiv.org/abs/2305.11921; code: the package multi-comp-matrix
(0.0.4, by default `pvalue_correction=None`).

Ties and zero differences: scores that differ only by rounding tie, and `posthoc.wilcoxon` is exact
up to 200 blocks, also with ties. Zero differences are ranked and then dropped (Pratt) by default,
as by the authors' code. Deviations from this code, which calls scipy.stats.wilcoxon: it has the
exact distribution of ranks without ties, also where sizes of differences tie, and the normal
approximation where a difference is 0 or there are more than 50 blocks; it ties only equal floats;
it rounds means to 4 digits before it orders the methods.

`posthoc.wilcoxon` estimates rounding errors from all scores of its table. Here each pair is a table
of its own: otherwise a third method could turn a small difference of two others into a tie.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from jbias import errors as caller_errors
from jbias.stats import posthoc, score_table


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ComparisonMatrix:
    """Comparisons of all pairs of k methods; [i, j] is method i (row) against method j (column).

    Other modules may fill this class with results of their own, such as comparisons over images.
    """

    methods: tuple[str, ...]  # In the order of the table.
    means: Float[np.ndarray, "k"]  # Mean score over all blocks of the method.
    # Mean over the pair's blocks of the row's score minus the column's; NaN without a block.
    differences: Float[np.ndarray, "k k"]
    wins: Int[np.ndarray, "k k"]  # Blocks on which the row is better; diagonal 0.
    ties: Int[np.ndarray, "k k"]  # Blocks on which both are equal; diagonal 0.
    pvalues: Float[np.ndarray, "k k"]  # Not adjusted; diagonal 1; NaN if not tested.
    larger_is_better: bool

    @property
    def losses(self) -> Int[np.ndarray, "k k"]:
        """Blocks on which the column is better."""
        return self.wins.T

    @property
    def order(self) -> list[int]:
        """Indices of the methods by mean score, the best first."""
        means = -self.means if self.larger_is_better else self.means
        return np.argsort(means, kind="stable").tolist()

    def significant(self, alpha: float) -> Bool[np.ndarray, "k k"]:
        """Return True for pairs with p < alpha, as in the paper; False where p is NaN."""
        return self.pvalues < caller_errors.check_share("alpha", alpha)

    def only(self, methods: Sequence[str]) -> "ComparisonMatrix":
        """Return the matrix of these methods, in this order; their numbers do not change.

        Raise ValueError for an unknown name.
        """
        places = [score_table.find_name(m, self.methods, "method") for m in methods]
        cells = np.ix_(places, places)
        return ComparisonMatrix(
            methods=tuple(methods),
            means=self.means[places],
            differences=self.differences[cells],
            wins=self.wins[cells],
            ties=self.ties[cells],
            pvalues=self.pvalues[cells],
            larger_is_better=self.larger_is_better,
        )

    def to_frame(self, alpha: float) -> pd.DataFrame:
        """Return one row per pair, the better mean first, in the order of the means.

        Columns: first, second, mean_difference (first minus second), wins (of the first), ties,
        losses, p_value, and significant (p < alpha).
        """
        order = np.array(self.order)
        i, j = (order[places] for places in np.triu_indices(len(order), 1))
        names = np.array(self.methods, dtype=object)
        return pd.DataFrame(
            {
                "first": names[i],
                "second": names[j],
                "mean_difference": self.differences[i, j],
                "wins": self.wins[i, j],
                "ties": self.ties[i, j],
                "losses": self.losses[i, j],
                "p_value": self.pvalues[i, j],
                "significant": self.significant(alpha)[i, j],
            }
        )

    def __repr__(self) -> str:
        best = self.methods[self.order[0]]
        rows, columns = np.triu_indices(len(self.methods), 1)
        count = int((self.pvalues[rows, columns] < 0.05).sum())
        return (
            f"{len(rows)} pairs, {count} with p < 0.05 (not adjusted); best mean "
            f"{self.means[self.order[0]]:.4g}, of {best}"
        )


def multi_comparison_matrix(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    zeros: Literal["wilcox", "pratt", "split"] = "pratt",
) -> ComparisonMatrix:
    """Return the Multi-Comparison Matrix of k methods (algorithms) over n blocks (data sets).

    scores: see `score_table.read`; several runs are averaged first. zeros: treatment of zero
    differences, see `posthoc.wilcoxon`; "pratt" is that of the authors' code. Scores of all data
    sets must have the same unit, as their differences are averaged and ranked together.
    Raise ValueError for missing cells (`shared_comparison_matrix` allows them), for fewer than 2
    data sets or methods, an unknown `zeros`, and scores whose squares overflow.
    """
    table = score_table.read(scores)
    return _compare_all(table, larger_is_better=larger_is_better, zeros=zeros)


def shared_comparison_matrix(
    scores: pd.DataFrame,
    *,
    larger_is_better: bool,
    zeros: Literal["wilcox", "pratt", "split"] = "pratt",
) -> ComparisonMatrix:
    """Return the Multi-Comparison Matrix of methods with missing cells.

    Each pair is compared on the blocks that both methods have, so that the missing cells of a third
    method change nothing. `means` are over all blocks of a method. A pair with fewer than 2 shared
    blocks is not tested.
    scores: one row per block, one column per method; NaN: missing. zeros: see
    `multi_comparison_matrix`. Raise ValueError for fewer than 2 methods, equal names, a method
    without a score, infinite scores, an unknown `zeros`, and scores whose squares overflow.
    """
    values = score_table.floats(scores)
    names = tuple(map(str, scores.columns))
    where = "scores"
    caller_errors.check(len(names) >= 2, where, "have at least 2 methods", names)
    caller_errors.check(
        caller_errors.are_distinct(names),
        where,
        "have distinct names of methods",
        names,
    )
    caller_errors.check(
        not np.isinf(values).any(), where, "be finite or missing", math.inf
    )
    empty = [names[j] for j in np.flatnonzero(np.isnan(values).all(axis=0))]
    caller_errors.check(
        not empty, where, "have a score of every method", empty, "leave these out"
    )
    table = score_table.Scores(
        values=values[:, :, None],
        datasets=tuple(map(str, scores.index)),
        algorithms=names,
    )
    return _compare_all(table, larger_is_better=larger_is_better, zeros=zeros)


def _compare_all(
    table: score_table.Scores, *, larger_is_better: bool, zeros: str
) -> ComparisonMatrix:
    """Return the matrix of all pairs. table: cells without a score are NaN."""
    score_table.find_name(zeros, posthoc.ZEROS, "zeros")
    score_table.require_squares(table)
    k = len(table.algorithms)
    differences, pvalues = np.zeros((k, k)), np.ones((k, k))
    wins, ties = np.zeros((k, k), np.int64), np.zeros((k, k), np.int64)
    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        pair = _compare_pair(
            _shared_columns(table, [i, j]),
            larger_is_better=larger_is_better,
            zeros=zeros,
        )
        differences[i, j], differences[j, i] = pair.difference, 0 - pair.difference
        wins[i, j], wins[j, i] = pair.wins, pair.losses
        ties[i, j] = ties[j, i] = pair.ties
        pvalues[i, j] = pvalues[j, i] = pair.pvalue
    return ComparisonMatrix(
        methods=table.algorithms,
        means=np.array(
            [_exact_mean(_shared_columns(table, [j]).means[:, 0]) for j in range(k)]
        ),
        differences=differences,
        wins=wins,
        ties=ties,
        pvalues=pvalues,
        larger_is_better=larger_is_better,
    )


class _Pair(NamedTuple):
    """The comparison of a first method with a second method."""

    difference: float  # First minus second.
    wins: int  # Of the first method.
    ties: int
    losses: int
    pvalue: float  # NaN with fewer than 2 blocks.


def _compare_pair(
    pair: score_table.Scores, *, larger_is_better: bool, zeros: str
) -> _Pair:
    """Return the comparison of the two methods of a table, on all of its blocks."""
    num_blocks = len(pair.datasets)
    if not num_blocks:
        return _Pair(math.nan, wins=0, ties=0, losses=0, pvalue=math.nan)
    first, second = pair.means.T
    errors = score_table.rounding_errors(pair).max(axis=1)
    d = first - second
    signs = np.sign(posthoc.signed_levels(d[None], errors[None]))
    larger, ties, smaller = (int((signs == sign).sum()) for sign in (1, 0, -1))
    pvalue = math.nan
    if num_blocks > 1:
        _, pvalues = posthoc.signed_rank_tests(
            d[None], zeros=zeros, errors=errors[None]
        )
        pvalue = float(pvalues[0])
    return _Pair(
        difference=_exact_mean(d),
        wins=larger if larger_is_better else smaller,
        ties=ties,
        losses=smaller if larger_is_better else larger,
        pvalue=pvalue,
    )


def _shared_columns(
    table: score_table.Scores, methods: Sequence[int]
) -> score_table.Scores:
    """Return the table of some methods (indices) on the blocks that all of them have.

    The axis of runs is as long as these methods need, so that nothing depends on other methods.
    """
    values = table.values[:, methods]
    has_score = np.isfinite(values)
    is_shared = has_score.any(axis=2).all(axis=1)
    is_run = has_score.any(axis=(0, 1))
    return score_table.Scores(
        values=np.ascontiguousarray(values[is_shared][:, :, is_run]),
        datasets=tuple(np.array(table.datasets, dtype=object)[is_shared]),
        algorithms=tuple(table.algorithms[j] for j in methods),
    )


def _exact_mean(values: Float[np.ndarray, "n"]) -> float:
    """Return the mean of the values; their sum is exact, so their order has no effect."""
    return math.fsum(values) / len(values)
