"""Data sets that are alike: how many they amount to, blocks of them, Friedman over blocks.

Friedman's test counts each data set as independent. Data sets that share images, or reward
the same cue, repeat each other, and n of them say less than n. What repeats is seen by the
correlation of two data sets over algorithms, of which there are three kinds:
spearman, pearson: of mean scores. These also correlate where algorithms truly differ:
  without ties Friedman's chi-squared is (k-1) (1 + (n-1) r), r the mean of Spearman's. So
  blocks found by them let no test reject, not even where data sets are independent.
deviations: of ranks, less each algorithm's mean rank. What all data sets share is left out,
  and what some share beyond that is left.
Blocks named by how data sets were made, before scores are seen, need neither. (How the seeds
of one algorithm vary together is another question: that of residuals over runs.)

Sources: Bretherton et al. 1999, section 2,
https://doi.org/10.1175/1520-0442(1999)012<1990:TENOSD>2.0.CO;2 (participation ratio, there
the effective number of degrees of freedom); Sokal and Michener 1958 (average linkage);
Winkler et al. 2015, https://doi.org/10.1016/j.neuroimage.2015.05.092 (blocks as units of
exchange).
"""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.cluster import hierarchy
from scipy.spatial import distance

from jbias.stats import correlation, omnibus, permutation, score_table

Table = score_table.Table
Method = Literal["spearman", "pearson", "deviations"]


@dataclasses.dataclass(frozen=True, eq=False)
class BlocksResult:
    """Which data sets are alike, and how many all of them amount to."""

    labels: Int[np.ndarray, "n"]  # Each data set's block: 0 is the first one's.
    correlations: Float[np.ndarray, "n n"]
    order: Int[np.ndarray, "n"]  # Leaves of the tree: blocks lie together.
    tree: Float[np.ndarray, "n-1 4"]  # As scipy.cluster.hierarchy.linkage gives it.
    participation_ratio: float
    unrelated: float  # About the ratio of as many independent data sets.
    datasets: tuple[str, ...]

    @property
    def count(self) -> int:
        """Blocks."""
        return int(self.labels.max()) + 1


@dataclasses.dataclass(frozen=True, eq=False)
class BlockedFriedmanResult(permutation.PermutationResult):
    """Friedman's test with whole blocks permuted; `approximate` counts each data set."""

    least: float  # The smallest p that so many blocks, or draws, can give.
    means: permutation.PermutationResult | None  # A block a row; None of a single one.


def participation_ratio(scores: Table, *, method: Method = "spearman") -> float:
    """Gives how many independent data sets n amount to, 1 to n.

    (sum of eigenvalues)^2 / sum of their squares = n^2 / sum_ij r_ij^2 of the correlations r
    of data sets over algorithms; several runs are averaged first. 1 if all data sets order
    the algorithms alike, or in reverse. Few algorithms make it small: of unrelated data sets
    r^2 is 1 / (k-1) on average, and the ratio about n (k-1) / (n+k-2), with n-1 for n of
    deviations. A data set that does not vary over algorithms correlates with none.
    Raises ValueError as `score_table.read`, and for another method.
    """
    return _ratio(_correlate(score_table.read(scores), method))


def find_blocks(
    scores: Table,
    *,
    blocks: int | None = None,
    cut: float = 0.5,
    method: Method = "spearman",
) -> BlocksResult:
    """Joins data sets that are alike, by average linkage of 1 - r.

    Blocks join while 1 - r, averaged over their pairs of data sets, is at most `cut`, 0 to
    2; or until `blocks` are left, whatever `cut` is. Raises ValueError for numbers beyond
    these, and as `participation_ratio`.
    """
    table = score_table.read(scores)
    n, k, _ = table.values.shape
    must = f"be from 1 to {n}, the number of data sets"
    score_table.check(blocks is None or 1 <= blocks <= n, "blocks", must, blocks)
    score_table.check(0 <= cut <= 2, "cut", "be a distance 1 - r, from 0 to 2", cut)
    found = _correlate(table, method)
    tree = hierarchy.linkage(distance.squareform(1 - found, checks=False), "average")
    height = cut + correlation.SLACK if blocks is None else None
    labels = hierarchy.cut_tree(tree, n_clusters=blocks, height=height).ravel()
    free = n - (method == "deviations")
    return BlocksResult(
        labels=pd.factorize(labels)[0],
        correlations=found,
        order=hierarchy.leaves_list(tree),
        tree=tree,
        participation_ratio=_ratio(found),
        unrelated=free * (k - 1) / (free + k - 2),
        datasets=table.datasets,
    )


def friedman_blocked(
    scores: Table,
    *,
    blocks: Sequence[Hashable],
    larger_is_better: bool,
    permutations: int = 10_000,
    seed: int = 0,
) -> BlockedFriedmanResult:
    """Tests whether k algorithms rank alike where data sets come in blocks.

    blocks: the label of each data set's block, such as `find_blocks(scores).labels`.
    p = P(T >= t), T the sum of squared rank sums over all data sets, the algorithms permuted
    alike on all data sets of a block: so a block is one observation, whatever its data sets
    share. With each data set in a block of its own this is `friedman_permutation`; with one
    block p = 1. `means` is that test over the blocks' mean scores, for data sets of one unit.
    Raises ValueError for another number of labels and as `friedman_permutation`.
    """
    score_table.check_count("permutations", permutations)
    matrix = score_table.read(scores).means
    labels, names = pd.factorize(pd.Series(list(blocks), dtype=object))
    must, count = f"be a label for each of {len(matrix)} data sets", np.sum(labels >= 0)
    told = f"{count}; give those without a like one a label of their own"
    score_table.check(len(labels) == len(matrix) == count, "blocks", must, told)
    member = np.equal.outer(range(len(names)), labels)
    means = member @ matrix / member.sum(axis=1, keepdims=True)
    how = dict(larger_is_better=larger_is_better, permutations=permutations, seed=seed)
    pooled = permutation.friedman_permutation(means, **how) if len(names) > 1 else None
    ranked = score_table.rank(matrix, larger_is_better=larger_is_better)
    plain = omnibus.friedman(matrix, larger_is_better=larger_is_better)
    found = permutation.permute_ranks(member @ ranked, plain, permutations, seed)
    least = permutation.smallest_pvalue(*means.shape)
    least = least if found.exact else max(least, 1 / (1 + permutations))
    return BlockedFriedmanResult(**vars(found), least=least, means=pooled)


def _ratio(found: Float[np.ndarray, "n n"]) -> float:
    return float(len(found) ** 2 / np.sum(found**2))


def _correlate(table: score_table.Scores, method: str) -> Float[np.ndarray, "n n"]:
    score_table.find_name(method, ("spearman", "pearson", "deviations"), "method")
    values = table.means
    if method != "pearson":
        values = score_table.rank(table, larger_is_better=True)
    if method == "deviations":
        values = len(values) * values - values.sum(axis=0)  # In whole halves: exact.
    # Constant rows become zeros. Equal correlations must not differ by the order of a sum.
    rows = np.nan_to_num(correlation.standardize(values.T))
    found = np.clip(np.round(rows.T @ rows, 12), -1, 1)
    np.fill_diagonal(found, 1)
    return found
