"""k-means: recovers planted clusters, equals SciPy's steps, and makes clusters of equal
size.
"""

import itertools

import numpy as np
import pytest
from scipy import optimize
from scipy.cluster import vq

from jbias.prepare import clusters
from tests import cases

SIZES = (50, 40, 30, 20)


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    middle = rng.normal(size=(4, 5)) * 20
    number = np.repeat(np.arange(4), SIZES)
    order = rng.permutation(len(number))
    rows = middle[number] + rng.normal(size=(len(number), 5))
    return rows[order].astype(np.float32), number[order], middle


def test_planted_clusters_are_recovered_in_order_of_size(blobs):
    rows, number, middle = blobs
    clustering = clusters.kmeans(rows, 4)
    np.testing.assert_array_equal(clustering.number, number)
    assert clustering.sizes.tolist() == [*SIZES] and clustering.number.dtype == np.int32
    assert abs(clustering.centres - middle).max() < 5 / np.sqrt(min(SIZES))
    within = sum(((rows[number == i] - c) ** 2).sum() for i, c in enumerate(middle))
    assert (
        0.9 * within < clustering.inertia < within
    )  # Means are nearer than the truth.


def test_steps_equal_scipys(blobs):
    rows = blobs[0].astype(float) + 15 * np.random.default_rng(1).normal(size=(140, 5))
    start = clusters.plus_plus(rows, 6, np.random.default_rng(2))
    clustering = clusters.lloyd(rows, start)
    centres, number = vq.kmeans2(rows, start, iter=100, minit="matrix", missing="raise")
    np.testing.assert_array_equal(clustering.number, number)
    np.testing.assert_allclose(clustering.centres, centres, rtol=1e-10)
    expected = (vq.vq(rows, centres)[1] ** 2).sum()
    np.testing.assert_allclose(clustering.inertia, expected, rtol=1e-10)


def test_restarts_are_never_worse_and_draws_are_deterministic():
    rows = np.random.default_rng(3).normal(size=(200, 3))
    inertia = [clusters.kmeans(rows, 7, restarts=n).inertia for n in (1, 2, 5, 20)]
    assert inertia == sorted(inertia, reverse=True) and inertia[0] > inertia[-1]
    first = clusters.kmeans(rows, 7, restarts=5, seed=(1, 4))
    again = clusters.kmeans(rows, 7, restarts=5, seed=(1, 4))
    np.testing.assert_array_equal(first.number, again.number)
    assert first.inertia == again.inertia
    other = clusters.kmeans(rows, 7, restarts=1, seed=(2, 4))
    assert (other.number != clusters.kmeans(rows, 7, restarts=1).number).any()


def test_starts_are_drawn_by_squared_distance():
    rows = np.array([[0.0], [1.0], [3.0]])
    counts = np.zeros((3, 3), int)
    for seed in range(3000):
        a, b = clusters.plus_plus(rows, 2, np.random.default_rng(seed))[:, 0]
        counts[[0, 1, 3].index(a), [0, 1, 3].index(b)] += 1
    squared_distance = (rows - rows.T) ** 2
    expected = 1000 * squared_distance / squared_distance.sum(1, keepdims=True)
    assert not counts.diagonal().any()
    # Five deviations of a binomial count.
    assert (abs(counts - expected) <= 5 * np.sqrt(expected + 1)).all()


def test_equal_rows_leave_no_cluster_empty():
    rows = np.repeat([[0.0, 0.0], [1.0, 1.0]], [9, 2], 0)
    clustering = clusters.kmeans(rows, 4)
    assert min(clustering.sizes) >= 1 and clustering.inertia == 0
    for k in (0, 12):
        with pytest.raises(ValueError, match="k must be from 1 to the 11 rows"):
            clusters.kmeans(rows, k)


@cases.each(("n", "k"), [(140, 4), (61, 8), (2003, 8)])
def test_balanced_cluster_sizes_differ_by_one_at_most(n, k):
    rng = np.random.default_rng(n)
    rows = np.concatenate([rng.normal(size=(n - 5, 3)), 8 + rng.normal(size=(5, 3))])
    unbalanced = clusters.kmeans(rows, k, restarts=2)
    balanced = clusters.balance(rows, unbalanced)
    assert np.ptp(balanced.sizes) <= 1 and balanced.sizes.sum() == n
    assert (np.diff(balanced.sizes) <= 0).all()
    assert balanced.inertia >= unbalanced.inertia
    np.testing.assert_array_equal(balanced.centres, unbalanced.centres)


def test_balanced_clusters_are_optimal_and_greedy_ones_close(monkeypatch):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(8, 2))
    unbalanced = clusters.kmeans(rows, 2)
    balanced = clusters.balance(rows, unbalanced)
    distances = clusters.squared_distances(rows, unbalanced.centres)
    inertias = [
        sum(distances[i, int(i in second_cluster)] for i in range(8))
        for second_cluster in itertools.combinations(range(8), 4)
    ]
    np.testing.assert_allclose(balanced.inertia, min(inertias))
    many_rows = rng.normal(size=(600, 4))
    large = clusters.kmeans(many_rows, 6, restarts=2)
    best = clusters.balance(many_rows, large).inertia
    monkeypatch.setattr(clusters, "_MAX_EXACT_ROWS", 0)
    monkeypatch.setattr(optimize, "linear_sum_assignment", None)
    greedy = clusters.balance(many_rows, large).inertia
    assert best <= greedy < 1.2 * best
