"""Which examples of a second set a seed sees: of the same class, each as likely."""

import numpy as np
import pytest
import scipy.stats

from jbias.training import samplers
from tests.training import test_samplers

epoch = test_samplers.epoch


def pairs(n=90, m=120, classes=3, batch=30) -> samplers.PairedSampler:
    rng = np.random.default_rng(0)
    labels, others = rng.permutation(n) % classes, rng.permutation(m) % classes
    return samplers.PairedSampler(
        samplers.EpochSampler(n, batch), labels, others, "other"
    )


def test_partners_are_of_the_same_class_and_none_comes_twice():
    order = pairs()
    first, second = epoch(order.first, 4, 2), epoch(order, 4, 2)
    np.testing.assert_array_equal(order.labels[first], order.other_labels[second])
    assert len(set(second)) == len(second) == 90
    assert order.index(4, 7).dtype == np.int32


def test_partners_are_others_in_every_epoch_and_of_every_seed():
    order = pairs()

    def partner(seed, number):
        found = np.empty(90, int)
        found[epoch(order.first, seed, number)] = epoch(order, seed, number)
        return found

    drawn = [partner(seed, number) for seed, number in ((0, 0), (0, 1), (1, 0))]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        # Of 40 in a class: the same partner by chance for 2 or 3 of 90.
        assert (drawn[one] == drawn[two]).sum() < 12
    np.testing.assert_array_equal(drawn[0], partner(0, 0))


def test_every_member_of_the_class_is_as_likely():
    order = pairs(n=6, m=9, batch=6)
    counts = np.zeros((6, 9), int)
    for number in range(300):
        counts[epoch(order.first, 0, number), epoch(order, 0, number)] += 1
    same = order.labels[:, None] == order.other_labels[None, :]
    assert not counts[~same].any()
    assert scipy.stats.chisquare(counts[same]).pvalue > 1e-3


def test_fewer_partners_come_again_and_none_is_refused():
    order = pairs(n=90, m=30)
    second = epoch(order, 0)
    assert (np.bincount(second, minlength=30) == 3).all()
    with pytest.raises(ValueError, match="the second has none of class 2"):
        samplers.PairedSampler(
            samplers.EpochSampler(9, 3), np.arange(9) % 3, np.arange(4) % 2, "other"
        )
