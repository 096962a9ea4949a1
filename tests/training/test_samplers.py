"""Orders of examples: permutations, shares of several sets, windows."""

import numpy as np
import pytest
import scipy.stats

from jbias.training import samplers
from tests import cases


def epoch(order: samplers.Sampler, seed: int, number: int = 0) -> np.ndarray:
    """Return the indices of all batches of an epoch, one batch after another."""
    first = number * order.steps_per_epoch
    steps = range(first, first + order.steps_per_epoch)
    return np.concatenate([order.index(seed, step) for step in steps])


def test_an_epoch_sees_each_example_once():
    assert sorted(epoch(samplers.EpochSampler(60, 20), seed=3)) == list(range(60))


def test_examples_beyond_whole_batches_differ_between_epochs():
    order = samplers.EpochSampler(64, 20)
    omitted = [set(range(64)) - set(epoch(order, 0, number)) for number in range(6)]
    assert {len(examples) for examples in omitted} == {4}
    assert len(set.union(*omitted)) > 4


def test_the_order_depends_on_the_seed_and_the_epoch():
    order = samplers.EpochSampler(64, 16)
    assert not np.array_equal(epoch(order, 0), epoch(order, 1))
    assert not np.array_equal(epoch(order, 0), epoch(order, 0, 1))
    np.testing.assert_array_equal(
        epoch(order, 7), epoch(samplers.EpochSampler(64, 16), 7)
    )


def test_the_order_depends_on_the_stream():
    assert not np.array_equal(
        epoch(samplers.EpochSampler(64, 16), 0),
        epoch(samplers.EpochSampler(64, 16, "order/1"), 0),
    )


@pytest.mark.parametrize("batch", [0, 65])
def test_impossible_batch_is_refused(batch):
    with pytest.raises(ValueError, match="must be 1 to 64"):
        samplers.EpochSampler(64, batch)


def test_every_batch_and_every_period_has_the_shares():
    order = samplers.MixtureSampler.from_shares([40, 100], [0.25, 0.75], 16, "order")
    assert (order.batch, order.steps_per_epoch) == (16, 10)
    for step in range(3):
        index = order.index(5, step)
        first = index < 40
        assert first.reshape(4, 4).sum(1).tolist() == [1, 1, 1, 1]
        assert index.max() < 140


def test_with_shares_an_epoch_has_each_example_of_the_first_set_once():
    order = samplers.MixtureSampler.from_shares([40, 100], [0.5, 0.5], 16, "order")
    index = epoch(order, seed=1)
    assert sorted(index[index < 40]) == list(range(40))
    of_second = index[index >= 40]
    assert len(set(of_second)) == len(of_second) == 40


def test_with_shares_the_first_set_has_the_order_of_a_single_set():
    shares = samplers.MixtureSampler.from_shares([40, 100], [0.5, 0.5], 16, "order")
    index = epoch(shares, seed=1)
    np.testing.assert_array_equal(
        index[index < 40], epoch(samplers.EpochSampler(40, 8), 1)
    )


@cases.each("shares", [(0.5,), (0.5, 0.4), (0.3, 0.7), (1.0, 0.0), (1.5, -0.5)])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="shares must be 2 positive numbers"):
        samplers.MixtureSampler.from_shares([40, 100], shares, 16, "order")


@pytest.mark.slow
@cases.each(("n", "steps"), [(640, 4), (650, 3), (1000, 7), (96, 5)])
def test_the_windows_of_an_epoch_have_each_example_once(n, steps):
    order = samplers.make_sampler(n, 16, steps, "order")
    for number in (0, 3):
        first = number * order.per_epoch
        windows = [order.members(first + i) for i in range(order.per_epoch)]
        assert max(len(window) for window in windows) == order.span <= steps * 16
        joined = np.concatenate(windows)
        assert len(set(joined)) == len(joined) == n // 16 * 16


def examples(order: samplers.WindowSampler, seed: int, number: int = 0) -> np.ndarray:
    """Return the examples of an epoch in a seed's order."""
    first = number * order.steps_per_epoch
    return np.concatenate(
        [
            order.members(*order.windows(step))[order.index(seed, step)]
            for step in range(first, first + order.steps_per_epoch)
        ]
    )


def test_seeds_share_windows_and_have_their_own_order_in_each():
    order = samplers.make_sampler(640, 16, 10, "order")
    first, second = examples(order, 1), examples(order, 2)
    assert sorted(first) == sorted(second) == list(range(640))
    for start in range(0, 640, 160):
        window = slice(start, start + 160)
        assert set(first[window]) == set(second[window])
        assert (first[window] != second[window]).mean() > 0.9
    assert not np.array_equal(first, examples(order, 1, number=1))


@pytest.mark.slow
@cases.each("windows", [2, 4, 10])
def test_positions_of_two_seeds_have_the_correlation_of_the_closed_form(windows):
    n = 20_000
    order = samplers.make_sampler(n, 20, n // 20 // windows, "order")
    assert order.per_epoch == windows
    first, second = (np.argsort(examples(order, seed)) for seed in (0, 1))
    correlation = scipy.stats.pearsonr(first, second).statistic
    # The standard error of the correlation is 1 / sqrt(20,000), about 0.007.
    assert abs(correlation - (1 - 1 / windows**2)) < 0.02


def test_a_single_window_has_the_order_of_a_set_in_memory():
    assert samplers.make_sampler(100, 16, 7, "order") == samplers.EpochSampler(100, 16)
    assert isinstance(
        samplers.make_sampler(100, 16, 6, "order"), samplers.WindowSampler
    )


def test_a_window_may_be_one_batch():
    order = samplers.WindowSampler(60, 20, 1)
    assert sorted(examples(order, 0)) == list(range(60))
    assert {order.windows(step) for step in range(3)} == {(0,), (1,), (2,)}
    with pytest.raises(ValueError, match="1 batch or more, got 0"):
        samplers.WindowSampler(60, 20, 0)


def test_windows_change_at_next_change():
    order = samplers.make_sampler(650, 16, 7, "order")
    for step in range(3 * order.steps_per_epoch):
        change = order.next_change(step)
        assert all(order.windows(s) == order.windows(step) for s in range(step, change))
        assert order.windows(change) != order.windows(step)


def test_windows_of_several_sets_have_separate_index_ranges():
    order = samplers.MixtureSampler.from_shares(
        [400, 100], [0.5, 0.5], 16, "order", steps=10
    )
    spans = [set_order.span for set_order in order.orders]
    assert spans == [80, 48] and order.span == 128
    for step in (0, 9, 10, 49, 50):
        index = order.index(3, step)
        assert (index < 80).tolist() == [True, False] * 8 and index.max() < 128
    assert order.next_change(0) == 6, (
        "the second set's epoch of 12 steps has two windows"
    )
