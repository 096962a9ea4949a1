"""The examples of docs/statistics-seeds.md and of docstrings give the results that they show."""

import doctest
import pathlib

import numpy as np
import pandas as pd

from jbias import stats
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]


def test_examples(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs" / "statistics-seeds.md"
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0


@cases.each(
    "function",
    [
        stats.almost_stochastic_order,
        stats.bradley_terry,
        stats.mixed_model,
        stats.probability_of_outperforming,
        stats.rank_stability,
        stats.sources_of_variance,
    ],
)
def test_examples_of_docstrings(function):
    """In a docstring, `runs` are those of the BiasBed paper."""
    names = {"np": np, "pd": pd, "stats": stats}
    runs = pd.read_csv(ROOT / "examples/biasbed_runs.csv")
    names["runs"] = stats.score_table.read(runs)
    (examples,) = doctest.DocTestFinder().find(function, globs=names)
    result = doctest.DocTestRunner().run(examples)
    assert result.attempted > 1
    assert result.failed == 0
