"""Redundant data sets: effective number, blocks of similar data sets, Friedman's test over blocks.

Friedman's test counts each data set as independent. Data sets that share images, or that can
be solved by the same cue, are redundant: n such data sets have less information than n independent
data sets.
Redundancy is measured by the correlation of two data sets over algorithms. Three methods:
spearman, pearson: correlation of mean scores. These correlations are also high where algorithms
  truly differ: without ties Friedman's chi-squared is (k-1) (1 + (n-1) r), r the mean of
  Spearman's. A test over blocks from these correlations rarely rejects, even if data sets are
  independent.
deviations: correlation of ranks less each algorithm's mean rank. The pattern common to all data
  sets is removed; patterns that only some data sets share remain.
Blocks that are defined by the construction of the data sets, before scores are seen, need no
correlation. (The correlation of seeds of one algorithm is a separate question, about
residuals over runs.)

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

from jbias import errors
from jbias.stats import correlation, omnibus, permutation, score_table

Table = score_table.Table
Method = Literal["spearman", "pearson", "deviations"]


@dataclasses.dataclass(frozen=True, eq=False)
class BlocksResult:
    """Blocks of similar data sets, and the effective number of data sets."""

    labels: Int[
        np.ndarray, "n"
    ]  # Block of each data set, numbered by first appearance.
    correlations: Float[np.ndarray, "n n"]
    order: Int[
        np.ndarray, "n"
    ]  # Leaves of the tree: data sets of a block are adjacent.
    tree: Float[np.ndarray, "n-1 4"]  # Format of scipy.cluster.hierarchy.linkage.
    participation_ratio: float
    unrelated: float  # Approximate participation ratio of n independent data sets.
    datasets: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of blocks."""
        return int(self.labels.max()) + 1


@dataclasses.dataclass(frozen=True, eq=False)
class BlockedFriedmanResult(permutation.PermutationResult):
    """Friedman's test by permutation of whole blocks of data sets.

    `approximate` is the usual test, which counts each data set as independent.
    """

    least: float  # The smallest p possible with this number of blocks, or draws.
    means: (
        permutation.PermutationResult | None
    )  # Test of block means; None for 1 block.


def participation_ratio(scores: Table, *, method: Method = "spearman") -> float:
    """Return the effective number of independent data sets, from 1 to n.

    (sum of eigenvalues)^2 / sum of squared eigenvalues = n^2 / sum_ij r_ij^2, r the
    correlations of data sets over algorithms; several runs are averaged first. 1 if all data
    sets order the algorithms in the same way, or in reverse. With few algorithms the ratio is
    small: for unrelated data sets r^2 is 1 / (k-1) on average, and the ratio is about
    n (k-1) / (n+k-2). With the method "deviations", n - 1 replaces n. A data set on which all
    algorithms score the same has the correlation 0 with all other data sets.
    method: kind of correlation, see the module's docstring.
    Raise ValueError as `score_table.read` does, and for an unknown method.
    """
    return _ratio(_correlate(score_table.read(scores), method))


def find_blocks(
    scores: Table,
    *,
    blocks: int | None = None,
    cut: float = 0.5,
    method: Method = "spearman",
) -> BlocksResult:
    """Return blocks of similar data sets, by average linkage of the distance 1 - r.

    Blocks are joined while 1 - r, averaged over their pairs of data sets, is at most `cut`
    (0 to 2). blocks: number of blocks to form instead, ignoring `cut`. method: see
    `participation_ratio`. Raise ValueError for numbers outside these ranges; other errors: see
    `participation_ratio`.
    """
    table = score_table.read(scores)
    n, k, _ = table.values.shape
    errors.check(
        blocks is None or 1 <= blocks <= n,
        "blocks",
        f"be from 1 to {n}, the number of data sets",
        blocks,
    )
    errors.check(0 <= cut <= 2, "cut", "be a distance 1 - r, from 0 to 2", cut)
    correlations = _correlate(table, method)
    distances = distance.squareform(1 - correlations, checks=False)
    tree = hierarchy.linkage(distances, "average")
    height = cut + correlation.SLACK if blocks is None else None
    labels = hierarchy.cut_tree(tree, n_clusters=blocks, height=height).ravel()
    num_free = n - (method == "deviations")
    return BlocksResult(
        labels=pd.factorize(labels)[0],
        correlations=correlations,
        order=hierarchy.leaves_list(tree),
        tree=tree,
        participation_ratio=_ratio(correlations),
        unrelated=num_free * (k - 1) / (num_free + k - 2),
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
    """Return Friedman's test that k algorithms have equal ranks, over blocks of data sets.

    blocks: the label of each data set's block, such as `find_blocks(scores).labels`.
    p = P(T >= t), T the sum of squared rank sums over all data sets. Algorithms are permuted
    in the same way on all data sets of a block, so a block is one observation, however
    similar its data sets are. If each data set is its own block, this is
    `friedman_permutation`; with a single block, p = 1. `means` is `friedman_permutation` of
    the blocks' mean scores, and None for a single block; it needs data sets with the same unit.
    permutations: number of random permutations, if there are too many to use all.
    Raise ValueError unless each data set has a label, and as `friedman_permutation` does.
    """
    errors.check_at_least("permutations", permutations)
    matrix = score_table.read(scores).means
    labels, names = pd.factorize(pd.Series(list(blocks), dtype=object))
    num_labelled = np.sum(labels >= 0)
    errors.check(
        len(labels) == len(matrix) == num_labelled,
        "blocks",
        f"be a label for each of {len(matrix)} data sets",
        num_labelled,
        "give a data set that is like no other its own label",
    )
    is_member = np.equal.outer(range(len(names)), labels)
    means = is_member @ matrix / is_member.sum(axis=1, keepdims=True)
    test_of_means = None
    if len(names) > 1:
        test_of_means = permutation.friedman_permutation(
            means,
            larger_is_better=larger_is_better,
            permutations=permutations,
            seed=seed,
        )
    ranked = score_table.rank(matrix, larger_is_better=larger_is_better)
    approximate = omnibus.friedman(matrix, larger_is_better=larger_is_better)
    result = permutation.permute_ranks(
        is_member @ ranked, approximate, draws=permutations, seed=seed
    )
    num_blocks, k = means.shape
    least = permutation.smallest_pvalue(num_blocks, k)
    least = least if result.exact else max(least, 1 / (1 + permutations))
    return BlockedFriedmanResult(**vars(result), least=least, means=test_of_means)


def _ratio(correlations: Float[np.ndarray, "n n"]) -> float:
    """Return the participation ratio of a matrix of correlations."""
    return float(len(correlations) ** 2 / np.sum(correlations**2))


def _correlate(table: score_table.Scores, method: str) -> Float[np.ndarray, "n n"]:
    """Return the correlations of data sets over algorithms, rounded to 12 decimals.

    A data set with equal scores has the correlation 0 with all other data sets; the diagonal is 1.
    method: see the module's docstring. Raise ValueError for an unknown method.
    """
    score_table.find_name(method, ("spearman", "pearson", "deviations"), "method")
    values = table.means
    if method != "pearson":
        values = score_table.rank(table, larger_is_better=True)
    if method == "deviations":
        values = len(values) * values - values.sum(axis=0)  # In whole halves: exact.
    # Constant data sets become zeros. Rounding makes correlations equal that differ only by
    # the order of a sum.
    columns = np.nan_to_num(correlation.standardize(values.T))
    correlations = np.clip(np.round(columns.T @ columns, 12), -1, 1)
    np.fill_diagonal(correlations, 1)
    return correlations
