"""Makes a report of runs or scores: an answer, tables, tests, figures."""

from jbias.report.cli import main

__all__ = ["main"]
