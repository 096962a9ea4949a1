"""Laws of the statistics of recovery: oracles of scipy, closed forms, ranges."""

import math

import numpy as np
import pytest
from scipy import stats

from jbias.calibrating import recovery
from jbias.stats import correlation

RNG = np.random.default_rng(0)
VALUES = np.round(RNG.normal(size=40), 1)  # With ties.
DIALS = np.round(VALUES / 4 + RNG.random(40), 1)
FAMILIES = np.repeat(["a", "b"], 20)


def test_rho_is_scipys_and_undefined_for_constants():
    assert recovery.rho(VALUES, DIALS) == pytest.approx(
        stats.spearmanr(VALUES, DIALS).statistic
    )
    assert math.isnan(recovery.rho(VALUES, np.zeros(40)))
    assert math.isnan(recovery.rho(VALUES[:2], DIALS[:2]))


def test_with_one_family_the_interval_is_the_bootstrap_over_networks():
    interval = recovery.rho_interval(
        VALUES,
        DIALS,
        families=np.repeat("a", 40),
        clusters=np.arange(40),
        draws=4_000,
        seed=0,
    )
    other = correlation.bootstrap_interval(VALUES, DIALS, resamples=4_000, seed=1)
    assert interval.value == pytest.approx(other.statistic)
    assert interval.lower == pytest.approx(other.low, abs=0.03)
    assert interval.upper == pytest.approx(other.high, abs=0.03)


def test_draws_are_within_families():
    """Families that differ completely in value and dial keep rho high in every draw."""
    values = np.concatenate([np.zeros(20), np.ones(20)])
    interval = recovery.rho_interval(
        values,
        values,
        families=FAMILIES,
        clusters=np.arange(40),
        draws=500,
        seed=0,
    )
    assert interval == pytest.approx((1, 1, 1))


def test_weighted_rho_is_scipys_of_repeated_networks():
    weights = recovery.cluster_weights(FAMILIES, np.arange(40) % 8, draws=20, seed=0)
    drawn = recovery.weighted_rho(VALUES, DIALS, weights)
    for rho, counts in zip(drawn, weights, strict=True):
        values, dials = np.repeat(VALUES, counts), np.repeat(DIALS, counts)
        assert rho == pytest.approx(stats.spearmanr(values, dials).statistic)
    constant = recovery.weighted_rho(np.ones(40), DIALS, weights)
    assert np.isnan(constant).all()


def test_networks_of_a_cluster_are_drawn_together_within_their_family():
    clusters = np.arange(40) % 5
    weights = recovery.cluster_weights(FAMILIES, clusters, draws=300, seed=0)
    assert (weights[:, FAMILIES == "a"].sum(axis=1) == 20).all()
    for family in ("a", "b"):
        for cluster in range(5):
            members = (FAMILIES == family) & (clusters == cluster)
            assert (np.ptp(weights[:, members], axis=1) == 0).all()
    # Means over draws: each network is drawn once on average.
    assert np.abs(weights.mean(axis=0) - 1).max() < 0.25


def test_four_clusters_have_no_interval():
    units = {"families": np.repeat("a", 40), "draws": 100, "seed": 0}
    for count, has_interval in ((4, False), (5, True)):
        clusters = np.arange(40) % count
        rho = recovery.rho_interval(VALUES, DIALS, clusters=clusters, **units)
        mean = recovery.mean_interval(VALUES, clusters=clusters, **units)
        for interval in (rho, mean):
            assert math.isfinite(interval.value)
            assert math.isfinite(interval.lower) == has_interval


def test_the_interval_of_rho_of_clusters_holds_its_level_without_a_relation():
    """Five clusters share a value each: an interval over networks excludes 0 far too often."""
    rng = np.random.default_rng(0)
    excluded = {"clusters": 0, "networks": 0}
    clusters = np.repeat(np.arange(10), 4)
    for number in range(100):
        values = rng.normal(size=10)[clusters] + 0.1 * rng.normal(size=40)
        dials = rng.random(10)[clusters]
        for name, unit in (("clusters", clusters), ("networks", np.arange(40))):
            interval = recovery.rho_interval(
                values,
                dials,
                families=np.repeat("a", 40),
                clusters=unit,
                draws=300,
                seed=number,
            )
            excluded[name] += not interval.lower <= 0 <= interval.upper
    assert excluded["clusters"] <= 20 and excluded["networks"] >= 25


def test_partial_rho_is_that_of_the_statistics_room():
    control = np.round(VALUES + RNG.normal(size=40), 1)
    expected = correlation.partial(
        VALUES, DIALS, covariates=[control], permutations=1
    ).statistic
    assert recovery.partial_rho(VALUES, DIALS, control) == pytest.approx(expected)
    assert recovery.partial_rho(VALUES, DIALS, np.ones(40)) == recovery.rho(
        VALUES, DIALS
    )
    assert math.isnan(recovery.partial_rho(VALUES, DIALS, VALUES))


def test_a_family_is_read_by_the_curve_of_the_others():
    values, dials = np.arange(40.0), np.where(FAMILIES == "a", 0.2, 0.7)
    knots = recovery.held_out_knots(values, dials, FAMILIES, direction=1)
    read = recovery.read_dials([knots[name] for name in FAMILIES], values)
    np.testing.assert_allclose(read, np.where(FAMILIES == "a", 0.7, 0.2))
    single = recovery.held_out_knots(values, dials, np.repeat("a", 40), direction=1)
    assert np.isnan(recovery.read_dials([single["a"]] * 40, values)).all()


def test_the_error_of_a_guess_is_that_of_the_mean_of_the_other_families():
    dials = np.where(FAMILIES == "a", 0.0, 1.0)
    assert recovery.guessing_error(dials, FAMILIES) == 1
    assert math.isnan(recovery.guessing_error(dials, np.repeat("a", 40)))


def test_coverage_counts_intervals_with_the_dial_at_an_end():
    lower = np.array([0.1, 0.3, 0.5, math.nan])
    upper = np.array([0.3, 0.4, 0.6, 0.9])
    covered = recovery.coverage(lower, upper, np.array([0.3, 0.3, 0.4, 0.5]))
    assert covered.value == 2 / 3 and covered.n == 3
    nothing = recovery.coverage(lower[:0], upper[:0], upper[:0])
    assert math.isnan(nothing.value) and nothing.n == 0


def bins_of(errors, networks=10):
    return [
        recovery.Bin(low=k / 4, high=(k + 1) / 4, networks=count, error=error, rho=1)
        for k, (error, count) in enumerate(
            zip(errors, np.broadcast_to(networks, 4), strict=True)
        )
    ]


@pytest.mark.parametrize(
    ("errors", "networks", "span"),
    [
        ([0.05, 0.05, 0.05, 0.05], 10, (0, 1)),
        ([0.05, 0.2, 0.05, 0.05], 10, (0.5, 1)),
        ([0.05, 0.05, 0.05, 0.2], 10, None),
        ([0.05, math.nan, 0.05, 0.05], [10, 0, 10, 10], (0.5, 1)),
        ([0.05, 0.05, 0.4, 0.05], [10, 10, 2, 10], (0.75, 1)),
        ([0.05, 0.05, 0.05, 0.2], [10, 10, 10, 2], (0, 0.75)),
        ([0.2, 0.2, 0.2, 0.2], 2, None),
    ],
)
def test_the_range_of_accuracy_ends_at_the_first_error_from_above(
    errors, networks, span
):
    bins = bins_of(errors, networks)
    assert recovery.accuracy_range(bins, most_error=0.1, least_networks=5) == span


def test_each_network_is_in_one_range_of_accuracy():
    accuracy = np.array([0, 0.25, 0.3, 0.5, 1, -0.1])
    bins = recovery.accuracy_bins(
        accuracy, np.zeros(6), np.ones(6), edges=(0, 0.25, 0.5, 1)
    )
    assert [entry.networks for entry in bins] == [1, 2, 2]
    assert {entry.error for entry in bins} == {1}


def test_above_chance_is_0_at_chance_and_1_if_all_is_correct():
    accuracy = recovery.above_chance(np.array([0.25, 1.0, 0.625]), np.repeat(0.25, 3))
    np.testing.assert_allclose(accuracy, [0, 1, 0.5])


@pytest.mark.parametrize(
    ("is_within", "size"),
    [
        ([False, True, True], 20),
        ([True, False, True], 30),
        ([True, True, False], None),
        ([True, True, True], 10),
    ],
)
def test_the_smallest_size_is_followed_by_no_failure(is_within, size):
    assert recovery.smallest_size([10, 20, 30], is_within) == size


def test_the_interval_of_a_mean_covers_it_in_95_of_100_studies():
    rng = np.random.default_rng(3)
    covered = 0
    for number in range(200):
        interval = recovery.mean_interval(
            0.1 + rng.normal(0, 0.05, size=40),
            families=np.repeat("a", 40),
            clusters=np.arange(40),
            draws=300,
            seed=number,
        )
        covered += interval.lower <= 0.1 <= interval.upper
    assert 0.88 <= covered / 200 <= 0.99
