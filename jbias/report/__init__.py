"""`python -m jbias.report`: records or scores -> tables, tests, figures, one page."""

from jbias.report.cli import main

__all__ = ["main"]
