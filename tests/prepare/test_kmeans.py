"""k-means: finds what was planted, as SciPy's does, and clusters of equal size."""

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


def test_planted_blobs_are_found_the_largest_first(blobs):
    rows, number, middle = blobs
    found = clusters.kmeans(rows, 4)
    np.testing.assert_array_equal(found.number, number)
    assert found.sizes.tolist() == [*SIZES] and found.number.dtype == np.int32
    assert abs(found.centres - middle).max() < 5 / np.sqrt(min(SIZES))
    within = sum(((rows[number == i] - c) ** 2).sum() for i, c in enumerate(middle))
    assert 0.9 * within < found.inertia < within  # Means are nearer than the truth.


def test_steps_are_those_of_scipy(blobs):
    rows = blobs[0].astype(float) + 15 * np.random.default_rng(1).normal(size=(140, 5))
    start = clusters.plus_plus(rows, 6, np.random.default_rng(2))
    found = clusters.lloyd(rows, start)
    centres, number = vq.kmeans2(rows, start, iter=100, minit="matrix", missing="raise")
    np.testing.assert_array_equal(found.number, number)
    np.testing.assert_allclose(found.centres, centres, rtol=1e-10)
    expected = (vq.vq(rows, centres)[1] ** 2).sum()
    np.testing.assert_allclose(found.inertia, expected, rtol=1e-10)


def test_restarts_are_never_worse_and_draws_repeat():
    rows = np.random.default_rng(3).normal(size=(200, 3))
    inertia = [clusters.kmeans(rows, 7, restarts=n).inertia for n in (1, 2, 5, 20)]
    assert inertia == sorted(inertia, reverse=True) and inertia[0] > inertia[-1]
    one, again = (clusters.kmeans(rows, 7, restarts=5, seed=(1, 4)) for _ in range(2))
    np.testing.assert_array_equal(one.number, again.number)
    assert one.inertia == again.inertia
    other = clusters.kmeans(rows, 7, restarts=1, seed=(2, 4))
    assert (other.number != clusters.kmeans(rows, 7, restarts=1).number).any()


def test_starts_are_drawn_by_squared_distance():
    rows = np.array([[0.0], [1.0], [3.0]])
    seen = np.zeros((3, 3), int)
    for seed in range(3000):
        a, b = clusters.plus_plus(rows, 2, np.random.default_rng(seed))[:, 0]
        seen[[0, 1, 3].index(a), [0, 1, 3].index(b)] += 1
    apart = (rows - rows.T) ** 2
    expected = 1000 * apart / apart.sum(1, keepdims=True)
    assert not seen.diagonal().any()
    # Five deviations of a binomial count.
    assert (abs(seen - expected) <= 5 * np.sqrt(expected + 1)).all()


def test_rows_that_are_alike_leave_no_cluster_empty():
    rows = np.repeat([[0.0, 0.0], [1.0, 1.0]], [9, 2], 0)
    found = clusters.kmeans(rows, 4)
    assert min(found.sizes) >= 1 and found.inertia == 0
    for k in (0, 12):
        with pytest.raises(ValueError, match="k must be from 1 to the 11 rows"):
            clusters.kmeans(rows, k)


@cases.each(("n", "k"), [(140, 4), (61, 8), (2003, 8)])
def test_equal_clusters_differ_by_one_at_most(n, k):
    rng = np.random.default_rng(n)
    rows = np.concatenate([rng.normal(size=(n - 5, 3)), 8 + rng.normal(size=(5, 3))])
    found = clusters.kmeans(rows, k, restarts=2)
    even = clusters.balance(rows, found)
    assert np.ptp(even.sizes) <= 1 and even.sizes.sum() == n
    assert (np.diff(even.sizes) <= 0).all()
    assert even.inertia >= found.inertia
    np.testing.assert_array_equal(even.centres, found.centres)


def test_equal_clusters_are_the_best_of_all_and_greedy_ones_near(monkeypatch):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(8, 2))
    found = clusters.kmeans(rows, 2)
    even = clusters.balance(rows, found)
    apart = clusters.squared_distances(rows, found.centres)
    every = [
        sum(apart[i, int(i in chosen)] for i in range(8))
        for chosen in itertools.combinations(range(8), 4)
    ]
    np.testing.assert_allclose(even.inertia, min(every))
    many = rng.normal(size=(600, 4))
    found = clusters.kmeans(many, 6, restarts=2)
    best = clusters.balance(many, found).inertia
    monkeypatch.setattr(clusters, "_MAX_EXACT_ROWS", 0)
    monkeypatch.setattr(optimize, "linear_sum_assignment", None)
    greedy = clusters.balance(many, found).inertia
    assert best <= greedy < 1.2 * best
