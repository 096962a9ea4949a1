"""Reports of runs or scores: an answer, tables, tests and figures."""

from jbias.report.cli import main

__all__ = ["main"]
