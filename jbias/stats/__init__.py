"""Tests of tables of scores: they give numbers and decide nothing."""

from jbias.stats import (
    bayes,
    bootstrap,
    correlation,
    effects,
    hierarchical,
    multiple_testing,
    omnibus,
    paired_comparison,
    permutation,
    posthoc,
    power,
)

__all__ = [
    "adjust",
    "aligned_ranks",
    "bayesian_signed_rank",
    "bonferroni_dunn",
    "bradley_terry",
    "bradley_terry_of_wins",
    "conover",
    "correlated_t",
    "datasets_for_nemenyi",
    "effect_sizes",
    "friedman",
    "friedman_permutation",
    "hierarchical_t",
    "influence",
    "intervals",
    "kendall",
    "max_t",
    "mean_differences",
    "minimal_difference_of_t",
    "mixed_model",
    "nemenyi",
    "partial",
    "performance_profiles",
    "power_of_design",
    "power_of_t",
    "probability_of_improvement",
    "quade",
    "rank_stability",
    "spearman",
    "type_1_error",
    "wilcoxon",
]

adjust = multiple_testing.adjust
bayesian_signed_rank = bayes.bayesian_signed_rank
correlated_t = bayes.correlated_t
intervals = bootstrap.intervals
mean_differences = bootstrap.mean_differences
performance_profiles = bootstrap.performance_profiles
probability_of_improvement = bootstrap.probability_of_improvement
kendall = correlation.kendall
spearman = correlation.spearman
effect_sizes = effects.effect_sizes
hierarchical_t = hierarchical.hierarchical_t
mixed_model = hierarchical.mixed_model
aligned_ranks = omnibus.aligned_ranks
quade = omnibus.quade
bradley_terry = paired_comparison.bradley_terry
bradley_terry_of_wins = paired_comparison.bradley_terry_of_wins
bonferroni_dunn = posthoc.bonferroni_dunn
conover = posthoc.conover
nemenyi = posthoc.nemenyi
partial = correlation.partial
friedman_permutation = permutation.friedman_permutation
max_t = permutation.max_t
datasets_for_nemenyi = power.datasets_for_nemenyi
minimal_difference_of_t = power.minimal_difference_of_t
power_of_design = power.power_of_design
power_of_t = power.power_of_t
friedman = omnibus.friedman
influence = correlation.influence
wilcoxon = posthoc.wilcoxon
type_1_error = permutation.type_1_error
rank_stability = bootstrap.rank_stability
