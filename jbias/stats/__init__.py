"""Tests that take one matrix of scores (data sets, algorithms) and decide nothing."""

from jbias.stats.pairs import nemenyi
from jbias.stats.ranks import friedman

__all__ = ["friedman", "nemenyi"]
