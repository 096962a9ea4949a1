"""Moves and scales images of one set to the mean and deviation of another.

Networks here normalise all images by one mean and deviation, in their first layer. Images
of a second set that are to be normalised by constants of their own pass this first.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp


def make(
    *,
    mean: Sequence[float],
    std: Sequence[float],
    as_mean: Sequence[float],
    as_std: Sequence[float],
) -> Callable:
    """x' = (x - mean) / std * as_std + as_mean, by channel; x' may leave [0, 1].

    mean, std: the set's own. as_mean, as_std: the network's, which takes x' to
    (x - mean) / std. Each has one value or three.
    """
    given = dict(mean=mean, std=std, as_mean=as_mean, as_std=as_std)
    for name, values in given.items():
        if len(values) not in (1, 3) or ("std" in name and min(values) <= 0):
            raise ValueError(
                f"standardise_as: {name} must be one or three numbers, deviations above "
                f"0, got {values}; change {name}"
            )
    mean, std, as_mean, as_std = (
        jnp.asarray(values, jnp.float32).reshape(1, 1, 1, -1)
        for values in (mean, std, as_mean, as_std)
    )

    def apply(batch, key):
        del key
        image = (batch["image"] - mean) / std * as_std + as_mean
        return {**batch, "image": image}

    return apply
