"""The examples in docstrings give the results that they show."""

import doctest
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias import data, stats
from jbias.data import shifts
from jbias.stats import consistency

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTED = (
    consistency,
    data.make_shift,
    stats.almost_stochastic_order,
    stats.bradley_terry,
    stats.mixed_model,
    stats.probability_of_outperforming,
    stats.rank_stability,
    stats.sources_of_variance,
)


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda x: x.__name__)
def test_examples(documented):
    """Examples in docstrings run; `runs` are the scores of the BiasBed paper."""
    names = {
        "np": np,
        "pd": pd,
        "data": data,
        "stats": stats,
        "shifts": shifts,
        "consistency": consistency,
        "runs": stats.score_table.read(pd.read_csv(ROOT / "examples/biasbed_runs.csv")),
    }
    finder = doctest.DocTestFinder(recurse=False)
    (examples,) = finder.find(documented, name=documented.__name__, globs=names)
    result = doctest.DocTestRunner().run(examples)
    assert result.attempted > 1
    assert result.failed == 0
