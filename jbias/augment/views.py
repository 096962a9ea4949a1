"""Repeats each image, so that later transforms show it in several ways."""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def make(*, views: int = 2) -> Callable:
    """Shows each image `views` times, in consecutive rows; sets batch["views"].

    All that has a row an example is repeated, also in batch["other"]. Crops, flips and
    noise that follow are drawn for each row; mixing keeps the rows of one together.
    """
    if views < 1:
        raise ValueError(f"views: views must be 1 or more, got {views}; change views")

    def apply(batch, key):
        del key
        return repeat(batch, views)

    return apply


def repeat(batch, views: int):
    """Repeats every row of a batch; twice is as often as the product."""
    if views == 1:
        return batch
    rows = {name: x for name, x in batch.items() if name != "other"}
    repeated = jax.tree.map(
        lambda x: jnp.repeat(x, views, axis=0) if jnp.ndim(x) else x, rows
    )
    if "other" in batch:
        repeated["other"] = repeat(batch["other"], views)
    return {**repeated, "views": views * batch.get("views", 1)}
