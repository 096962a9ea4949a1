"""Tests that take a matrix of scores or measures of the same models, and decide nothing.

Scores are (data sets, algorithms); correlations take a number for each model.
"""

from jbias.stats.correlation import kendall, spearman
from jbias.stats.pairs import nemenyi
from jbias.stats.partials import partial
from jbias.stats.ranks import friedman
from jbias.stats.sensitivity import influence

__all__ = ["friedman", "influence", "kendall", "nemenyi", "partial", "spearman"]
