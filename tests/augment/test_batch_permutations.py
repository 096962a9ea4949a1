"""Partners: orders inside groups, of any member or of another domain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import batch_permutations
from tests import cases

KEY = jax.random.key(8)


def across(domain, group, key=KEY):
    """Return each example's partner, by its place in the group."""
    return np.asarray(
        batch_permutations.orders_across(jnp.asarray(domain), key, group=group)
    )


def test_permute_follows_the_orders():
    x = jnp.arange(24.0)
    order = batch_permutations.orders(KEY, 24, group=4)
    np.testing.assert_array_equal(
        batch_permutations.reorder(x, order),
        batch_permutations.permute(x, KEY, group=4),
    )


@pytest.mark.slow
@cases.each(
    "domain",
    [
        [0, 1] * 4,
        [0, 0, 0, 0, 1, 1, 1, 1],
        [0, 1, 2, 0, 1, 2, 0, 1],
        [5, 0, 1, 2, 3, 4, 6, 7],
    ],
)
def test_partners_across_are_of_another_domain(domain):
    domain = np.tile(domain, 50)
    partner = across(domain, 8)
    for order, domains in zip(partner, domain.reshape(-1, 8)):
        assert sorted(order) == list(range(8))
        assert (domains[order] != domains).all()


def test_a_large_domain_is_matched_to_itself_as_rarely_as_possible():
    domain = np.tile([0, 0, 0, 0, 0, 0, 1, 1], 50)
    for order, domains in zip(across(domain, 8), domain.reshape(-1, 8)):
        assert sorted(order) == list(range(8))
        assert (domains[order] == domains).sum() == 4


def test_partners_in_a_single_domain_are_uniform():
    """Each of the 6 orders of 3, in 3000 groups."""
    orders = across(np.zeros(9000, int), 3)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert scipy.stats.chisquare(counts).pvalue > 0.001


@pytest.mark.slow
def test_partners_across_two_domains_are_uniform():
    """With 2 and 2 members each domain has 2 equally likely, independent orders."""
    orders = across(np.tile([0, 1], 4000), 4)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 4
    assert scipy.stats.chisquare(counts).pvalue > 0.001


def test_partners_across_three_domains_are_uniform():
    orders = across(np.tile([0, 1, 2], 3000), 3)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 2
    assert scipy.stats.chisquare(counts).pvalue > 0.001


@pytest.mark.slow
def test_groups_across_draw_independently():
    """A group's order depends on its number, not on the length of the batch."""
    domain = np.tile([0, 1], 32)
    np.testing.assert_array_equal(across(domain, 8)[:3], across(domain[:24], 8))


def test_grouped_splits_the_batch():
    x = jnp.arange(24.0).reshape(12, 2)
    np.testing.assert_array_equal(
        batch_permutations.split_groups(x, group=4)[1], x[4:8]
    )


@cases.each("group", [3, 16, 0])
@cases.each(
    "use",
    [
        lambda group: batch_permutations.orders(KEY, 8, group=group),
        lambda group: across(np.zeros(8, int), group),
        lambda group: batch_permutations.split_groups(jnp.zeros(8), group=group),
    ],
)
def test_refuses_groups_that_do_not_fit(use, group):
    with pytest.raises(ValueError, match=f"mix_group={group}, got 8 examples"):
        use(group)
