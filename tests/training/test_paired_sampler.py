"""Partners from a second set: of the same class, and all equally likely."""

import numpy as np
import pytest
import scipy.stats

from jbias.training import samplers
from tests.training import test_samplers

epoch = test_samplers.epoch


def pairs(n=90, m=120, classes=3, batch=30) -> samplers.PairedSampler:
    """Return the order of m examples that are paired with n examples."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(n) % classes
    other_labels = rng.permutation(m) % classes
    return samplers.PairedSampler(
        samplers.EpochSampler(n, batch), labels, other_labels, "other"
    )


def test_partners_have_the_same_class_and_none_repeats():
    order = pairs()
    first, second = epoch(order.first, 4, 2), epoch(order, 4, 2)
    np.testing.assert_array_equal(order.labels[first], order.other_labels[second])
    assert len(set(second)) == len(second) == 90
    assert order.index(4, 7).dtype == np.int32


def test_partners_differ_between_epochs_and_seeds():
    order = pairs()

    def partners(seed, number):
        partner_of = np.empty(90, int)
        partner_of[epoch(order.first, seed, number)] = epoch(order, seed, number)
        return partner_of

    drawn = [partners(seed, number) for seed, number in ((0, 0), (0, 1), (1, 0))]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        # With 40 examples per class, 2 or 3 of 90 have the same partner by chance.
        assert (drawn[i] == drawn[j]).sum() < 12
    np.testing.assert_array_equal(drawn[0], partners(0, 0))


def test_all_examples_of_the_class_are_equally_likely():
    order = pairs(n=6, m=9, batch=6)
    counts = np.zeros((6, 9), int)
    for number in range(300):
        counts[epoch(order.first, 0, number), epoch(order, 0, number)] += 1
    has_same_class = order.labels[:, None] == order.other_labels[None, :]
    assert not counts[~has_same_class].any()
    assert scipy.stats.chisquare(counts[has_same_class]).pvalue > 1e-3


def test_fewer_partners_repeat_and_a_missing_class_is_refused():
    order = pairs(n=90, m=30)
    second = epoch(order, 0)
    assert (np.bincount(second, minlength=30) == 3).all()
    with pytest.raises(ValueError, match="the second has none of class 2"):
        samplers.PairedSampler(
            samplers.EpochSampler(9, 3), np.arange(9) % 3, np.arange(4) % 2, "other"
        )
