"""Tests that take one matrix of scores (data sets, algorithms) and decide nothing."""

from jbias.stats.adjustment import adjust
from jbias.stats.omnibus import aligned_ranks, quade
from jbias.stats.pairs import bonferroni_dunn, conover, nemenyi
from jbias.stats.permutation import friedman_permutation, max_t
from jbias.stats.ranks import friedman
from jbias.stats.signed_rank import wilcoxon
from jbias.stats.size import approximation

__all__ = [
    "adjust",
    "aligned_ranks",
    "approximation",
    "bonferroni_dunn",
    "conover",
    "friedman",
    "friedman_permutation",
    "max_t",
    "nemenyi",
    "quade",
    "wilcoxon",
]
