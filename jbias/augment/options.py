"""Transforms that act on single images, and options whose values are known before tracing."""

import numbers
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from jbias.augment import random_numbers

Batch = Mapping[str, Any]  # Entries: see jbias.augment.
Transform = Callable[[Batch, PRNGKeyArray], Batch]


def each_image(transform: Callable, **strengths: Any) -> Transform:
    """Return a function apply(batch, key) -> batch that transforms each image with its own key.

    transform: (image (h w c), key) -> image, of a fixed shape. The key of an image depends on
      its position in the batch.
    strengths: options of the transform; if one is the number 0, the batch is returned
      unchanged.
    """

    def apply(batch, key):
        if any(is_statically(value, 0) for value in strengths.values()):
            return batch
        image = batch["image"]
        new = jax.vmap(transform)(image, random_numbers.keys(key, len(image)))
        return {**batch, "image": new}

    return apply


def is_statically(value: Any, number: float) -> bool:
    """Return True if a value is a plain number, not traced, and equals `number`."""
    return isinstance(value, numbers.Real) and value == number
