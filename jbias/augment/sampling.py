"""Random keys for the examples of a batch, partners within groups, and uniform numbers.

Partners are drawn inside groups of consecutive examples, each group with a key derived from
its position in the global batch, so that neither the number of devices nor their layout
changes the meaning and no example leaves its device.

`uniforms` draws for several purposes in one call: a program of many small draws takes
seconds to compile on CPU, mostly for the random bits of each; one call takes a fraction.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

Rows = Float[Array, "b *shape"]
Orders = Int[Array, "groups group"]  # Of the members of each group.


def keys(key: PRNGKeyArray, count: int) -> PRNGKeyArray:
    """Derives keys from places in the global batch, whatever its size or layout."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))


def permute(x: Rows, key: PRNGKeyArray, *, group: int, views: int = 1) -> Rows:
    """Permutes examples uniformly inside each `group` of consecutive ones.

    Fixed points may occur. With `views` an example has that many consecutive rows,
    which stay together. Every array permuted with the same key is permuted alike.
    Raises ValueError if the examples are not a multiple of `group`.
    """
    return reorder(x, orders(key, x.shape[0] // views, group=group), views=views)


def orders(key: PRNGKeyArray, count: int, *, group: int) -> Orders:
    """Draws a uniform order of the members of each group, for `reorder`.

    Raises ValueError if `count` is not a multiple of `group`.
    """
    _check(count, group)
    return draw_each(lambda k: jax.random.permutation(k, group), key, count // group)


def orders_across(domain: Int[Array, "b"], key: PRNGKeyArray, *, group: int) -> Orders:
    """Draws orders in which members stand at places of another domain.

    Each group's members are lined up by domain, domains and members at random, twice;
    the second line is turned by the size of the largest domain, and members of the
    same place meet. Where a domain has more than half of a group, as few of its members
    as possible meet their own.
    """
    _check(domain.shape[0], group)

    def one(k, domain):
        k_domains, *k_lines = jax.random.split(k, 3)
        rank = jax.vmap(lambda d: jax.random.uniform(jax.random.fold_in(k_domains, d)))
        place = rank(domain)
        draws = (jax.random.uniform(k, (group,)) for k in k_lines)
        taker, giver = (jnp.lexsort((draw, place)) for draw in draws)
        largest = jnp.sum(domain[:, None] == domain[None, :], axis=1).max()
        giver = giver[(jnp.arange(group) + largest) % group]
        return jnp.zeros(group, giver.dtype).at[taker].set(giver)

    grouped = domain.reshape(-1, group)
    return jax.vmap(one)(keys(key, grouped.shape[0]), grouped)


def split_groups(x: Rows, *, group: int) -> Float[Array, "groups group *shape"]:
    """Gives the groups an axis. Raises ValueError if they do not divide the batch."""
    _check(x.shape[0], group)
    return x.reshape(-1, group, *x.shape[1:])


def reorder(x: Rows, order: Array, *, views: int = 1) -> Float[Array, "b2 *shape"]:
    """Takes, inside each group, the members that `order` (groups, some) names."""
    grouped = x.reshape(len(order), -1, *(views,) * (views > 1), *x.shape[1:])
    taken = jax.vmap(lambda members, o: members[o])(grouped, order)
    return taken.reshape(-1, *x.shape[1:])


def inverse(order: Int[Array, "n"]) -> Int[Array, "n"]:
    """The order that undoes this one; cheaper than to sort it."""
    place = jnp.arange(len(order), dtype=order.dtype)
    return jnp.zeros_like(order).at[order].set(place, unique_indices=True)


def draw_each(draw: Callable, key: PRNGKeyArray, count: int) -> Array:
    """Draws something for each member of the batch: draw(key of its place)."""
    return jax.vmap(draw)(keys(key, count))


def _check(n: int, group: int) -> None:
    if group < 1 or n % group:
        must = f"augment.sampling: the batch must be a multiple of mix_group={group}"
        got = f"got {n} examples"
        raise ValueError(f"{must}, {got}; change mix_group or the batch size")


def uniforms(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Draws from [0, 1) one array of each shape."""
    sizes = [math.prod(shape) for shape in shapes]
    flat = jax.random.uniform(key, (sum(sizes),))
    parts = jnp.split(flat, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes)]


def integers(u: Float[Array, "*shape"], n: int) -> Int[Array, "*shape"]:
    """Turns uniform numbers into whole ones from 0 to n - 1, as likely to 2^-23."""
    return jnp.floor(u * n).astype(jnp.int32)
