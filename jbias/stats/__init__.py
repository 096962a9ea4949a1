"""Tests of tables of scores: they give numbers and decide nothing."""

from jbias.stats.bootstrap import (
    intervals,
    mean_differences,
    performance_profiles,
    probability_of_improvement,
)
from jbias.stats.effects import effect_sizes
from jbias.stats.pairs import nemenyi
from jbias.stats.ranks import friedman
from jbias.stats.stability import rank_stability

__all__ = [
    "effect_sizes",
    "friedman",
    "intervals",
    "mean_differences",
    "nemenyi",
    "performance_profiles",
    "probability_of_improvement",
    "rank_stability",
]
