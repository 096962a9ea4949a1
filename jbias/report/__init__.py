"""Reports of runs or scores: a headline, tables, tests and figures."""

from jbias.report.cli import main

__all__ = ["main"]
