"""Ties: by one rule in every test, whatever the unit of the scores."""

import dataclasses

import numpy as np
import pytest

from jbias import stats
from jbias.stats import score_table
from tests import cases


def numbers(result, ignored=()):
    """All arrays and numbers of a result, by name."""
    if isinstance(result, dict):
        items = result.items()
    elif dataclasses.is_dataclass(result):
        items = ((f.name, getattr(result, f.name)) for f in dataclasses.fields(result))
    else:
        items = ()
        if isinstance(result, (float, int, np.ndarray)):
            yield "", np.asarray(result, float)
    for name, value in items:
        if name not in ignored:
            for below, number in numbers(value, ignored):
                yield f"{name}.{below}", number


def results_of(table, unit):
    """Every result that does not depend on the unit; its own numbers are scaled."""
    up = dict(larger_is_better=True)
    yield stats.friedman(table, **up)
    yield stats.quade(table, **up)
    yield stats.aligned_ranks(table, **up)
    yield stats.nemenyi(table, **up)
    yield stats.wilcoxon(table, **up)
    yield stats.rank_stability(table, draws=100, **up)
    yield stats.effect_sizes(table, draws=100, **up)
    yield stats.bayesian_signed_rank(table, rope=0.2 * unit, draws=500, **up)
    yield stats.correlated_t(table, rope=0.2 * unit, **up)
    yield stats.correlated_t(table, rope=0.2 * unit, paired=True, **up)
    yield stats.bradley_terry(table, local_rope=0.4, draws=2000, **up)
    found = stats.power_of_design(
        table, difference=0.5 * unit, seeds=(1, 3), datasets=(6,), draws=200
    )
    for name, value in found.minimal.items():
        found.minimal[name] = value / unit
    yield dataclasses.replace(found, difference=0)


@pytest.mark.parametrize("unit", [1e-11, 1e9])
def test_units_change_nothing(unit):
    rng = np.random.default_rng(0)
    table = (rng.normal(size=(8, 4, 3)) + 0.3 * np.arange(4)[:, None]).round(1)
    table[:2, 1] = table[:2, 0]
    table[2] = table[2, :, :1]
    for one, other in zip(
        results_of(table, 1), results_of(unit * table, unit), strict=True
    ):
        before, after = dict(numbers(one)), dict(numbers(other))
        assert before.keys() == after.keys() and before
        for name, value in before.items():
            told = f"{type(one).__name__}.{name}"
            np.testing.assert_allclose(
                after[name],
                value,
                rtol=1e-3 if "minimal" in name else 1e-6,
                atol=1e-9,
                err_msg=told,
            )


@pytest.mark.slow
@cases.each("unit", [1e-11, 1, 1e9])
def test_means_that_differ_by_rounding_tie(unit):
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1."""
    table = np.zeros((6, 3, 3))
    table[:, 0], table[:, 1] = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    table *= unit
    assert unit > 1 or (table[:, 0].sum(axis=1) != table[:, 1].sum(axis=1)).any()
    up = dict(larger_is_better=True)
    assert stats.friedman(table, **up).ranks.tolist() == [1.5, 1.5, 3]
    stable = stats.rank_stability(table, draws=100, **up)
    assert stable.ranks.value.tolist() == [1.5, 1.5, 3]
    found = stats.bradley_terry(table, draws=2000, **up)
    assert found.ties[0, 1] == 6 and found.wins[0].tolist() == [0, 3, 6]
    found = stats.effect_sizes(table, draws=100, **up)
    assert found.rank_biserial.value[0, 1] == found.hedges_g.value[0, 1] == 0
    found = stats.bayesian_signed_rank(table, rope=0, draws=500, **up)
    assert found.better[0, 1] == found.better[1, 0] == 0.5


@cases.each("unit", [1e-11, 1, 1e9])
def test_runs_that_differ_by_rounding_have_no_spread(unit):
    table = unit * np.ones((4, 1, 5)) * np.array([0.1, 0.3, 0.7])[:, None]
    signs = np.array([[0, -1, -1], [1, 0, -1], [1, 1, 0]])
    up = dict(larger_is_better=True)
    found = stats.effect_sizes(table, draws=100, **up)
    for gamma in found.gamma:
        np.testing.assert_array_equal(np.sign(gamma), signs)
        assert np.isinf(gamma[signs != 0]).all()
    for paired in (False, True):
        found = stats.correlated_t(table, rope=0, paired=paired, **up)
        expected = np.tile(signs > 0, (4, 1, 1))
        np.testing.assert_allclose(found.better, expected, atol=1e-9)


def test_scores_of_one_data_set_set_its_rounding():
    values = np.array([[[1.0, 3.0], [2.0, np.nan]], [[4e9, 1.0], [2.0, 2.0]]])
    np.testing.assert_allclose(score_table.rounding_error(values), [[3e-12], [4e-3]])
