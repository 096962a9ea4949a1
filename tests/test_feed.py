import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import feed


def epoch(order: feed.Order, seed: int, number: int = 0) -> np.ndarray:
    first = number * order.steps_per_epoch
    steps = range(first, first + order.steps_per_epoch)
    return np.concatenate([order.index(seed, step) for step in steps])


def test_an_epoch_sees_each_example_once():
    assert sorted(epoch(feed.Order(60, 20), seed=3)) == list(range(60))


def test_examples_beyond_whole_batches_differ_between_epochs():
    order = feed.Order(64, 20)
    left = [set(range(64)) - set(epoch(order, 0, number)) for number in range(6)]
    assert {len(one) for one in left} == {4}
    assert len(set.union(*left)) > 4


def test_order_is_of_the_seed_and_the_epoch():
    order = feed.Order(64, 16)
    assert not np.array_equal(epoch(order, 0), epoch(order, 1))
    assert not np.array_equal(epoch(order, 0), epoch(order, 0, 1))
    np.testing.assert_array_equal(epoch(order, 7), epoch(feed.Order(64, 16), 7))


def test_order_of_another_stage_is_another():
    assert not np.array_equal(
        epoch(feed.Order(64, 16), 0), epoch(feed.Order(64, 16, "order/1"), 0)
    )


@pytest.mark.parametrize("batch", [0, 65])
def test_impossible_batch_is_refused(batch):
    with pytest.raises(ValueError, match="must be 1 to 64"):
        feed.Order(64, batch)


def test_shares_are_in_every_batch_and_every_group():
    order = feed.Shares.of([40, 100], [0.25, 0.75], 16, "order")
    assert (order.batch, order.steps_per_epoch) == (16, 10)
    for step in range(3):
        index = order.index(5, step)
        first = index < 40
        assert first.reshape(4, 4).sum(1).tolist() == [1, 1, 1, 1]
        assert index.max() < 140


def test_shares_see_each_example_of_the_first_once_an_epoch():
    order = feed.Shares.of([40, 100], [0.5, 0.5], 16, "order")
    seen = epoch(order, seed=1)
    assert sorted(seen[seen < 40]) == list(range(40))
    others = seen[seen >= 40]
    assert len(set(others)) == len(others) == 40


def test_the_first_of_shares_has_the_order_that_it_has_alone():
    shares = feed.Shares.of([40, 100], [0.5, 0.5], 16, "order")
    index = epoch(shares, seed=1)
    np.testing.assert_array_equal(index[index < 40], epoch(feed.Order(40, 8), 1))


@pytest.mark.parametrize(
    "shares", [(0.5,), (0.5, 0.4), (0.3, 0.7), (1.0, 0.0), (1.5, -0.5)]
)
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="shares must be 2 positive numbers"):
        feed.Shares.of([40, 100], shares, 16, "order")


def test_gather_without_classes_knows_no_target():
    data = {"image": np.zeros((4, 2, 2, 3), np.uint8)}
    assert set(feed.gather(data, jnp.array([1]), None)) == {"image", "index"}


def test_gather_makes_the_batch():
    images = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3)
    columns = {"label": np.array([2, 0, 1, 2]), "attribute": np.array([5, 6, 7, 8])}
    data = feed.resident(images, columns)
    batch = jax.jit(feed.gather, static_argnums=2)(data, jnp.array([3, 1]), 3)
    np.testing.assert_allclose(batch["image"], images[[3, 1]] / np.float32(255))
    np.testing.assert_array_equal(batch["target"], [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(batch["attribute"], [8, 6])
    np.testing.assert_array_equal(batch["index"], [3, 1])


@pytest.mark.parametrize(("n", "batch"), [(10, 4), (8, 4), (3, 4), (1, 1)])
def test_padded_batches_hold_each_example_once_up_to_n(n, batch):
    pieces = feed.padded(n, batch)
    assert {len(piece) for piece in pieces} == {batch}
    np.testing.assert_array_equal(np.concatenate(pieces)[:n], np.arange(n))
