import numpy as np
import pytest

from jbias import evals
from jbias.evals import decisions


def test_accuracy_is_counts():
    decided = evals.Decisions(np.array([1, 2, 3]), {"label": np.array([1, 0, 3])})
    (number,) = evals.MEASURES["accuracy"](decided)
    assert (number.count, number.n) == (2, 3)
    assert number.value == 2 / 3


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match="column label must have 3 entries, got 2"):
        evals.Decisions(np.array([1, 2, 3]), {"label": np.array([1, 0])})


def test_decisions_go_through_parquet(tmp_path):
    columns = {"label": np.array([1, 0, 3]), "texture": np.array([2, 2, -1])}
    by_seed = {
        seed: evals.Decisions(np.array([seed, 2, 3]), columns) for seed in (0, 5)
    }
    decisions.write(tmp_path / "edge" / "10.parquet", by_seed)
    back = decisions.read(tmp_path / "edge" / "10.parquet")
    assert back.keys() == by_seed.keys()
    for seed, decided in by_seed.items():
        np.testing.assert_array_equal(back[seed].prediction, decided.prediction)
        for name, column in columns.items():
            np.testing.assert_array_equal(back[seed].columns[name], column)
