"""Checks of options of transforms and algorithms; transforms that act on single images.

`where` is the start of error messages: the name of the transform or algorithm. Options that
JAX traces have no value yet and are not checked.
"""

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from jbias.augment import sampling

Batch = Mapping[str, Any]  # Entries: see jbias.augment.
Transform = Callable[[Batch, PRNGKeyArray], Batch]


def check_range(where: str, low: float, high: float, **values: Any) -> None:
    """Raise ValueError if a number among the options `values` is outside [low, high].

    where: start of the message. values: by name; values that are not numbers, such as None
    and traced arrays, are not checked.
    """
    for name, value in values.items():
        if isinstance(value, numbers.Real) and not low <= value <= high:
            must = f"{where}: {name} must be in [{low:g}, {high:g}]"
            raise ValueError(f"{must}, got {value}; change {name}")


_CONDITIONS: Mapping[str, Callable[[float], bool]] = {
    "at least 1": lambda value: value >= 1,
    "1 or more": lambda value: value >= 1,
    "positive": lambda value: value > 0,
    "positive or None": lambda value: value > 0,
    "at least 0": lambda value: value >= 0,
    "in [0, 1]": lambda value: 0 <= value <= 1,
    "in [0, 1)": lambda value: 0 <= value < 1,
}


def check_plain(where: str, condition: str, **values: Any) -> None:
    """Raise ValueError if a number among the options `values` violates a condition.

    where: start of the message. condition: "at least 1", "1 or more", "positive",
    "positive or None", "at least 0", "in [0, 1]" or "in [0, 1)". values: by name; values
    that are not int or float are not checked.
    """
    for name, value in values.items():
        if isinstance(value, int | float) and not _CONDITIONS[condition](value):
            raise ValueError(
                f"{where}: {name} must be {condition}, got {value}; change {name}"
            )


def check_choice(where: str, name: str, value: str, known: Iterable[str]) -> None:
    """Raise ValueError unless the option `name` has one of the known values.

    where: start of the message. value: of the option.
    """
    if value not in known:
        must = f"{where}: {name} must be one of"
        words = ", ".join(x or repr(x) for x in known)
        raise ValueError(f"{must} {words}, got {value!r}; change {name}")


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
        new = jax.vmap(transform)(image, sampling.keys(key, len(image)))
        return {**batch, "image": new}

    return apply


def is_statically(value: Any, number: float) -> bool:
    """Return True if a value is a plain number, not traced, and equals `number`."""
    return isinstance(value, numbers.Real) and value == number
