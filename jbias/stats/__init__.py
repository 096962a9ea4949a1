"""Statistical tests of tables of scores: algorithms by data sets, with several runs."""

from jbias.stats.bayes import bayesian_signed_rank, correlated_t
from jbias.stats.bootstrap import (
    intervals,
    mean_differences,
    performance_profiles,
    probability_of_improvement,
    rank_stability,
)
from jbias.stats.comparison_matrix import (
    multi_comparison_matrix,
    shared_comparison_matrix,
)
from jbias.stats.correlation import influence, kendall, partial, spearman
from jbias.stats.dataset_blocks import (
    find_blocks,
    friedman_blocked,
    participation_ratio,
)
from jbias.stats.effective_robustness import effective_robustness
from jbias.stats.effects import effect_sizes
from jbias.stats.few_seeds import few_seeds
from jbias.stats.hierarchical import hierarchical_t, mixed_model
from jbias.stats.multiple_testing import adjust
from jbias.stats.omnibus import aligned_ranks, friedman, quade
from jbias.stats.outperformance import (
    almost_stochastic_order,
    pairs_for_outperforming,
    probability_of_outperforming,
)
from jbias.stats.paired_comparison import bradley_terry, bradley_terry_of_wins
from jbias.stats.permutation import friedman_permutation, max_t, type_1_error
from jbias.stats.posthoc import bonferroni_dunn, conover, nemenyi, wilcoxon
from jbias.stats.power import (
    datasets_for_nemenyi,
    minimal_difference_of_t,
    power_of_design,
    power_of_t,
    seeds_for_t,
)
from jbias.stats.ratios import bootstrap_ratios, compare_ratios
from jbias.stats.seed_tests import compare_seeds
from jbias.stats.sequential import compare, compare_with_control, forecast
from jbias.stats.sources_of_variance import sources_of_variance

__all__ = [
    "adjust",
    "aligned_ranks",
    "almost_stochastic_order",
    "bayesian_signed_rank",
    "bonferroni_dunn",
    "bootstrap_ratios",
    "bradley_terry",
    "bradley_terry_of_wins",
    "compare",
    "compare_ratios",
    "compare_seeds",
    "compare_with_control",
    "conover",
    "correlated_t",
    "datasets_for_nemenyi",
    "effect_sizes",
    "effective_robustness",
    "few_seeds",
    "find_blocks",
    "forecast",
    "friedman",
    "friedman_blocked",
    "friedman_permutation",
    "hierarchical_t",
    "influence",
    "intervals",
    "kendall",
    "max_t",
    "mean_differences",
    "minimal_difference_of_t",
    "mixed_model",
    "multi_comparison_matrix",
    "nemenyi",
    "pairs_for_outperforming",
    "partial",
    "participation_ratio",
    "performance_profiles",
    "power_of_design",
    "power_of_t",
    "probability_of_improvement",
    "probability_of_outperforming",
    "quade",
    "rank_stability",
    "seeds_for_t",
    "shared_comparison_matrix",
    "sources_of_variance",
    "spearman",
    "type_1_error",
    "wilcoxon",
]
