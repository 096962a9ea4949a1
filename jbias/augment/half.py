"""Applies a batch transform to the upper or the lower half of images.

For images that stand above one another, as in `stacked`: each half has crops, flips or
mixing of its own.
"""

from collections.abc import Callable

import jax.numpy as jnp

from jbias.augment import options

HALVES = ("top", "bottom")


def make(*, mix: Callable, which: str, mix_group: int = 32) -> Callable:
    """Transforms one half, "top" or "bottom"; the other stays.

    mix: a batch transform that keeps the size; in a config `mix=dict(name="flip")`. Labels
    and all else become what it makes of them. mix_group: of how many images it draws
    partners.
    """
    options.one_of("half", "which", which, HALVES)

    def apply(batch, key):
        image = batch["image"]
        height = image.shape[1]
        if height % 2:
            raise ValueError(
                f"half: images must have an even height, got {height}; change their size"
            )
        top, bottom = image[:, : height // 2], image[:, height // 2 :]
        half, rest = (top, bottom) if which == "top" else (bottom, top)
        changed = mix({**batch, "image": half}, key)
        if changed["image"].shape != half.shape:
            raise ValueError(
                f"half: the transform must keep the shape {half.shape}, got "
                f"{changed['image'].shape}; take another"
            )
        parts = changed["image"], rest
        joined = jnp.concatenate(parts if which == "top" else parts[::-1], 1)
        return {**changed, "image": joined}

    return apply
