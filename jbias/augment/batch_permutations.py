"""Permutations of a batch's examples inside groups, as pAdaIN, MixStyle and CutMix draw partners.

Partners are drawn inside groups of consecutive examples. The key of a group depends on its
position in the global batch, so that results do not depend on the number or layout of
devices, and no example leaves its device.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import random_numbers

Rows = Float[Array, "b *shape"]
Orders = Int[Array, "groups group"]  # A permutation of the members of each group.


def permute(x: Rows, key: PRNGKeyArray, *, group: int, views: int = 1) -> Rows:
    """Return x with examples permuted uniformly inside groups of consecutive examples.

    Examples may stay in place. Arrays permuted with the same key get the same permutation.
    group: number of examples of a group; ValueError if the number of examples is not a
      multiple of it.
    views: number of consecutive rows of one example, which stay together.
    """
    return reorder(x, orders(key, x.shape[0] // views, group=group), views=views)


def orders(key: PRNGKeyArray, count: int, *, group: int) -> Orders:
    """Return a uniform random permutation of each group's examples, for `reorder`.

    count: number of examples. group: number of examples of a group; ValueError if `count`
    is not a multiple of it.
    """
    _check_group(count, group)
    return random_numbers.draw_each(
        lambda k: jax.random.permutation(k, group), key, count // group
    )


def orders_across(domain: Int[Array, "b"], key: PRNGKeyArray, *, group: int) -> Orders:
    """Return a permutation of each group's examples, for `reorder`, that mixes domains.

    An example and its partner differ in domain where possible.
    domain: index of the domain of each example. group: number of examples of a group;
    ValueError if the number of examples is not a multiple of it.

    Each group's examples are sorted twice by domain, with domains and examples of a domain in
    random order. The second sorted list is rotated by the size of the largest domain, and
    examples at the same position become partners. If a domain has more than half of a group, as
    few of its examples as possible get partners of the same domain.
    """
    _check_group(domain.shape[0], group)

    def draw(k, domain):
        """Return the permutation (group,) of one group's examples; see `orders_across`.

        k: random key. domain: index of the domain of each example of the group.
        """
        k_domains, k_first, k_second = jax.random.split(k, 3)
        rank = jax.vmap(lambda d: jax.random.uniform(jax.random.fold_in(k_domains, d)))
        domain_rank = rank(domain)
        first = jnp.lexsort((jax.random.uniform(k_first, (group,)), domain_rank))
        second = jnp.lexsort((jax.random.uniform(k_second, (group,)), domain_rank))
        largest = jnp.sum(domain[:, None] == domain[None, :], axis=1).max()
        second = second[(jnp.arange(group) + largest) % group]
        return jnp.zeros(group, second.dtype).at[first].set(second)

    grouped = domain.reshape(-1, group)
    return jax.vmap(draw)(random_numbers.keys(key, grouped.shape[0]), grouped)


def split_groups(x: Rows, *, group: int) -> Float[Array, "groups group *shape"]:
    """Return x reshaped to groups of `group` consecutive examples.

    ValueError if the number of examples is not a multiple of `group`.
    """
    _check_group(x.shape[0], group)
    return x.reshape(-1, group, *x.shape[1:])


def reorder(x: Rows, order: Array, *, views: int = 1) -> Float[Array, "b2 *shape"]:
    """Return m examples of each group in the order `order`, all groups along one axis.

    order: whole numbers (groups, m): positions of the m examples inside their group.
    views: number of consecutive rows of one example, which are not separated.
    """
    view_axis = (views,) if views > 1 else ()
    grouped = x.reshape(len(order), -1, *view_axis, *x.shape[1:])
    selected = jax.vmap(lambda members, o: members[o])(grouped, order)
    return selected.reshape(-1, *x.shape[1:])


def inverse(order: Int[Array, "n"]) -> Int[Array, "n"]:
    """Return the inverse permutation; this is cheaper than an argsort."""
    place = jnp.arange(len(order), dtype=order.dtype)
    return jnp.zeros_like(order).at[order].set(place, unique_indices=True)


def _check_group(n: int, group: int) -> None:
    """Raise ValueError unless n examples are a multiple of the group size."""
    if group < 1 or n % group:
        must = f"augment.batch_permutations: the batch must be a multiple of mix_group={group}"
        got = f"got {n} examples"
        raise ValueError(f"{must}, {got}; change mix_group or the batch size")
