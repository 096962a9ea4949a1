"""Many comparisons at once are those of `sequential.compare`, one by one."""

import numpy as np
import pytest

from jbias.stats import sequential, sequential_batch
from tests import cases


def scores(n, low=0.0, high=1.0):
    """Return scores (12, n) of two methods: large, small and no differences, and equal scores."""
    rng = np.random.default_rng(n)
    a, b = rng.beta(2, 2, (12, n)), rng.beta(2, 2, (12, n))
    a[:3] = rng.beta(20, 2, (3, n))
    b[2:4] = a[2:4] + rng.uniform(-1e-3, 1e-3, (2, n)) * a[2:4] * (1 - a[2:4])
    b[4] = a[4]
    a[5], b[5] = 1, 0
    a[6], b[6] = 0, 1
    return low + (high - low) * a, low + (high - low) * b


@cases.each(
    ("n", "alpha", "points", "bounds"),
    [
        (1, 0.05, None, (0, 1)),
        (6, 0.05, 5, (0, 1)),
        (10, 0.001, None, (0, 1)),
        (40, 0.05, None, (0, 100)),
        (40, 0.02, 20, (0, 100)),
        (40, 0.05, 4.8, (-3, 5)),
    ],
)
def test_each_comparison_is_that_of_compare(n, alpha, points, bounds):
    a, b = scores(n, low=bounds[0], high=bounds[1])
    options = {"alpha": alpha, "points": points, "bounds": bounds}
    batch = sequential_batch.compare_batch(a, b, **options)
    size = bounds[1] - bounds[0]
    for i in range(len(a)):
        result = sequential.compare(a[i], b[i], **options)
        assert batch.decision[i] == result.decision
        stopped_at = np.nan if result.stopped_at is None else result.stopped_at
        np.testing.assert_equal(batch.stopped_at[i], stopped_at)
        ends = batch.lower[i], batch.upper[i], batch.difference[i]
        sequence = result.difference
        expected = sequence.lower[-1], sequence.upper[-1], sequence.estimate[-1]
        # 34 bisections of [0, 1] leave an error below 1e-10 of the range.
        np.testing.assert_allclose(ends, expected, atol=1e-9 * size)
        np.testing.assert_allclose(batch.evalue[i], result.evalues[-1], rtol=1e-12)
        assert (batch.missing[i] == 0) == (result.decision is not None)


def test_what_is_missing_is_the_factor_that_a_larger_alpha_gives():
    """An open comparison is decided at the level alpha * exp(missing), and not just below it."""
    a, b = scores(20)
    for points in (None, 30):
        batch = sequential_batch.compare_batch(a, b, alpha=0.001, points=points)
        for i in np.flatnonzero((batch.missing > 0) & (batch.missing < 6)):
            for factor, is_decided in ((1 + 1e-6, True), (1 - 1e-6, False)):
                level = 0.001 * np.exp(batch.missing[i]) * factor
                result = sequential.compare(a[i], b[i], alpha=level, points=points)
                assert (result.decision is not None) == is_decided


def test_wrong_scores_are_refused():
    good = np.full((2, 3), 0.5)
    for a, options, message in (
        ([[0.5, 0.5]], {}, "a and b: must have one shape"),
        (np.full((2, 0), 0.5), {}, "a and b: must have one shape"),
        (good * np.nan, {}, "a: must be from 0 to 1"),
        (good + 1, {}, "a: must be from 0 to 1"),
        (good, {"alpha": 1.0}, "alpha"),
        (good, {"points": 100}, "points: must be between 0 and 100"),
        (good, {"points": 0}, "points: must be between 0 and 100"),
    ):
        with pytest.raises(ValueError, match=message):
            sequential_batch.compare_batch(a, good, **options)
