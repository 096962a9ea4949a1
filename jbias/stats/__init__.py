"""Tests of tables of scores: they give numbers and decide nothing."""

from jbias.stats.bayes import bayesian_signed_rank, correlated_t
from jbias.stats.bootstrap import (
    intervals,
    mean_differences,
    performance_profiles,
    probability_of_improvement,
)
from jbias.stats.effects import effect_sizes
from jbias.stats.hierarchical import hierarchical_t
from jbias.stats.mixed import mixed_model
from jbias.stats.paired_comparison import bradley_terry, bradley_terry_of_wins
from jbias.stats.pairs import nemenyi
from jbias.stats.power import (
    datasets_for_nemenyi,
    minimal_difference_of_t,
    power_of_design,
    power_of_t,
)
from jbias.stats.ranks import friedman
from jbias.stats.stability import rank_stability

__all__ = [
    "bayesian_signed_rank",
    "bradley_terry",
    "bradley_terry_of_wins",
    "correlated_t",
    "datasets_for_nemenyi",
    "effect_sizes",
    "friedman",
    "hierarchical_t",
    "intervals",
    "mean_differences",
    "minimal_difference_of_t",
    "mixed_model",
    "nemenyi",
    "performance_profiles",
    "power_of_design",
    "power_of_t",
    "probability_of_improvement",
    "rank_stability",
]
