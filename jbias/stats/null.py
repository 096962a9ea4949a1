"""Rank sums if algorithms are exchangeable on every data set: all of them, or draws.

Each data set's ranks, ties and all, are permuted on their own. Ranks are doubled: with ties
they are halves of integers.
"""

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

LIMIT = 300_000  # Rows at a time; beyond, drawing is quicker than enumerating.
_CELLS = 200_000  # Of one block of draws: what the processor keeps at hand.


def exact(
    twice: Int[np.ndarray, "n k"],
) -> tuple[Int[np.ndarray, "s k"], Float[np.ndarray, "s"]] | None:
    """Gives all sorted vectors of rank sums and their chances; None if they are too many.

    Data set after data set: what comes depends on the vector so far but for the order of
    algorithms, so equal sorted vectors are one, and the first data set stays as it is.
    """
    return _exact(tuple(sorted(map(tuple, np.sort(twice, axis=1).tolist()))))


@functools.lru_cache(maxsize=16)
def _exact(twice: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, np.ndarray] | None:
    rows = [_orders(np.array(row)) for row in twice]
    if any(row is None for row in rows):
        return None
    rows.sort(key=len, reverse=True)
    sums, chances = rows[0][:1], np.ones(1)
    for orders in rows[1:]:
        if len(sums) * len(orders) > LIMIT:
            return None
        following = (sums[:, None] + orders).reshape(-1, orders.shape[1])
        following.sort(axis=1)
        shares = np.repeat(chances / len(orders), len(orders))
        sums, places = _distinct(following)
        chances = np.bincount(places, shares)
    sums.flags.writeable = chances.flags.writeable = False  # They are kept.
    return sums, chances


def labelled(
    sums: Int[np.ndarray, "s k"], chances: Float[np.ndarray, "s"]
) -> tuple[Int[np.ndarray, "r k"], Float[np.ndarray, "r"]] | None:
    """Gives each algorithm its sum, in all k! equally likely ways; None if too many."""
    k = sums.shape[1]
    if len(sums) * math.factorial(k) > LIMIT:
        return None
    ways = _ways(k)
    return sums[:, ways].reshape(-1, k), np.repeat(chances / len(ways), len(ways))


def draws(
    twice: Int[np.ndarray, "n k"], count: int, seed: int
) -> Iterator[Int[np.ndarray, "b k"]]:
    """Draws `count` vectors of rank sums, in blocks.

    A permutation is what sorting random keys does to the places in their lowest bits; with
    23 random bits and more, equal keys favour no algorithm by more than 1e-7.
    """
    rng = np.random.default_rng(seed)
    k = twice.shape[1]
    low = (1 << (k - 1).bit_length()) - 1
    kind, bits = (np.uint32, 32) if k <= 512 else (np.uint64, 64)
    places = np.arange(k, dtype=kind)
    block = max(_CELLS // k, 1)
    for start in range(0, count, block):
        size = min(block, count - start)
        sums = np.zeros((size, k), dtype=np.int32)
        for row in twice.astype(np.int32):
            keys = rng.integers(0, 2**bits, size=(size, k), dtype=kind)
            keys &= ~kind(low)
            keys |= places
            keys.sort(axis=1)
            keys &= kind(low)
            sums += row[keys]
        yield sums.astype(np.int64)


def _orders(row: Int[np.ndarray, "k"]) -> Int[np.ndarray, "p k"] | None:
    """All distinct orders of a sorted row, that one first; None if they are too many."""
    different = len(set(row.tolist()))
    if different == 1:
        return row[None]
    if len(row) > 8:
        return None
    orders = row[_ways(len(row))]
    return orders if different == len(row) else np.unique(orders, axis=0)


@functools.cache
def _ways(k: int) -> Int[np.ndarray, "k! k"]:
    return np.array(list(itertools.permutations(range(k))))


def _distinct(
    rows: Int[np.ndarray, "m k"],
) -> tuple[Int[np.ndarray, "s k"], Int[np.ndarray, "m"]]:
    """Distinct rows, and which each is; as numbers where they fit, which is quicker."""
    base = int(rows.max()) + 1
    if base ** rows.shape[1] >= 2**63:
        found, places = np.unique(rows, axis=0, return_inverse=True)
        return found, places.ravel()
    weights = base ** np.arange(rows.shape[1], dtype=np.int64)
    _, first, places = np.unique(rows @ weights, return_index=True, return_inverse=True)
    return rows[first], places
