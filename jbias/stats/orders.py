"""Orders of models for permutation tests, all or random ones, and p from them.

Source: p with its 1 after Phipson and Smyth 2010, https://doi.org/10.2202/1544-6115.1585.
Gavrikov and Keuper (CVPR 2024, https://arxiv.org/abs/2404.01509) give the ratio of draws
without that 1.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

_CELLS = 2**21  # Numbers that a batch of draws may hold.


def orders(
    groups: Int[np.ndarray, "n"], permutations: int, seed: int, cells: int
) -> tuple[int, bool, Iterator[Int[np.ndarray, "b n"]]]:
    """Gives number, whether they are all, and batches of orders that stay within groups.

    All where there are no more than `permutations`, else that many random ones.
    A batch has about 2^21 / `cells` of them; the draws do not depend on that.
    """
    if permutations < 1:
        raise ValueError(f"permutations: must be at least 1, got {permutations}")
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    total = math.prod(math.factorial(len(one)) for one in members)
    size = max(1, _CELLS // cells)
    if total <= permutations:
        return total, True, _all_orders(members, len(groups), size)
    rng = np.random.default_rng(seed)
    return permutations, False, _random_orders(members, permutations, rng, size)


def _all_orders(members, n: int, size: int) -> Iterator[np.ndarray]:
    every = itertools.product(*map(itertools.permutations, members))
    places = np.concatenate(members)
    while some := list(itertools.islice(every, size)):
        batch = np.empty((len(some), n), np.intp)
        batch[:, places] = [list(itertools.chain(*one)) for one in some]
        yield batch


def _random_orders(members, count: int, rng, size: int) -> Iterator[np.ndarray]:
    n = sum(map(len, members))
    generators = rng.spawn(len(members))
    for start in range(0, count, size):
        batch = np.empty((min(size, count - start), n), np.intp)
        for one, generator in zip(members, generators, strict=True):
            tiled = np.tile(one, (len(batch), 1))
            batch[:, one] = generator.permuted(tiled, axis=1)
        yield batch


def p_of(hits, draws: int, exact: bool):
    """Gives p from how many draws reach the observed; all orders hold that itself."""
    return hits / draws if exact else (1 + hits) / (1 + draws)


def least_p(n: int, permutations: int) -> float:
    """Gives the smallest p that two measures of n models can have, ties or none.

    Of all n! orders the one that was observed and its reverse reach the largest
    correlation, and with ties others, too; of random orders none but that itself need do.
    """
    total = math.factorial(n)
    return 2 / total if total <= permutations else p_of(0, permutations, exact=False)
