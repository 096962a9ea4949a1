"""Adjusted p-values against closed testing, enumeration of true pairs, and invariants."""

import itertools

import numpy as np
import pytest

from jbias import stats
from jbias.stats import multiple_testing
from tests import cases


def closed(p, local):
    """Return the largest local p of the intersections that contain each hypothesis."""
    result = np.zeros(len(p))
    for size in range(1, len(p) + 1):
        for some in itertools.combinations(range(len(p)), size):
            result[list(some)] = np.maximum(result[list(some)], local(p[list(some)]))
    return result


def bonferroni(p):
    return min(1, len(p) * p.min())


def simes(p):
    return min(1, np.min(len(p) * np.sort(p) / np.arange(1, len(p) + 1)))


@pytest.mark.parametrize(("method", "local"), [("holm", bonferroni), ("hommel", simes)])
def test_closed_testing(method, local):
    rng = np.random.default_rng(0)
    for m in (1, 2, 3, 5, 8):
        p = rng.random(m) ** 3
        np.testing.assert_allclose(stats.adjust(p, method), closed(p, local))


def partitions(items):
    if not items:
        yield []
        return
    first, *remaining_items = items
    for partition in partitions(remaining_items):
        yield [[first], *partition]
        for i in range(len(partition)):
            yield [*partition[:i], [first, *partition[i]], *partition[i + 1 :]]


@cases.each("k", [1, 2, 3, 4, 5, 6, 7])
def test_numbers_of_possibly_true_pairs_equal_those_of_all_partitions(k):
    counts = {
        sum(len(group) * (len(group) - 1) // 2 for group in partition)
        for partition in partitions(list(range(k)))
    }
    assert multiple_testing.possible_true_pairs(k) == tuple(sorted(counts))


def test_published_sets():
    """Garcia and Herrera 2008, section 2.2: S(4) and S(5)."""
    assert multiple_testing.possible_true_pairs(4) == (0, 1, 2, 3, 6)
    assert multiple_testing.possible_true_pairs(5) == (0, 1, 2, 3, 4, 6, 10)


def test_order_of_strength():
    rng = np.random.default_rng(1)
    for _ in range(100):
        p = rng.random(10) ** 3
        adjusted = {name: stats.adjust(p, name) for name in multiple_testing.METHODS}
        for weak, strong in [
            ("bonferroni", "holm"),
            ("holm", "shaffer"),
            ("holm", "hochberg"),
            ("hochberg", "hommel"),
            ("hommel", "bh"),
            ("by", "bh"),
            ("bh", "none"),
        ]:
            assert (adjusted[strong] <= adjusted[weak] + 1e-12).all(), (strong, weak)


@cases.each("method", multiple_testing.METHODS)
def test_invariants(method):
    rng = np.random.default_rng(2)
    p = rng.random(15)
    adjusted = stats.adjust(p, method)
    assert ((adjusted >= p) & (adjusted <= 1)).all()
    order = rng.permutation(15)
    np.testing.assert_allclose(stats.adjust(p[order], method), adjusted[order])
    ordered = adjusted[np.argsort(p)]
    assert (np.diff(ordered) >= 0).all()
    grown = p.copy()
    grown[3] = min(1, grown[3] + 0.2)  # Growing one p lets none fall.
    assert (stats.adjust(grown, method) >= adjusted - 1e-12).all()
    assert stats.adjust([0.03], method).tolist() == [0.03]
    assert stats.adjust([], method).tolist() == []


def test_refusals():
    with pytest.raises(ValueError, match="adjust: must be one of bonferroni, holm"):
        stats.adjust([0.1], "sidak")
    for bad in ([0.1, 1.2], [-0.1], [np.nan], [[0.1]]):
        with pytest.raises(ValueError, match="pvalues: must be a row of numbers"):
            stats.adjust(bad, "holm")
    with pytest.raises(ValueError, match="shaffer needs all pairs.*got 4"):
        stats.adjust([0.1] * 4, "shaffer")
