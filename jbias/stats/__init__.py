"""Tests that take one matrix of scores (data sets, algorithms) and decide nothing."""

from jbias.stats.adjustment import adjust
from jbias.stats.omnibus import aligned_ranks, quade
from jbias.stats.pairs import bonferroni_dunn, conover, nemenyi
from jbias.stats.ranks import friedman
from jbias.stats.signed_rank import wilcoxon

__all__ = [
    "adjust",
    "aligned_ranks",
    "bonferroni_dunn",
    "conover",
    "friedman",
    "nemenyi",
    "quade",
    "wilcoxon",
]
