"""Options of input transforms, checked unless traced, and the frame of many of them."""

import numbers
from collections.abc import Callable, Iterable
from typing import Any

import jax

from jbias.augment import sampling


def check_range(where: str, low: float, high: float, **values: Any) -> None:
    """Refuses plain numbers outside [low, high]."""
    for name, value in values.items():
        if isinstance(value, numbers.Real) and not low <= value <= high:
            must = f"{where}: {name} must be in [{low:g}, {high:g}]"
            raise ValueError(f"{must}, got {value}; change {name}")


_MUST = dict.fromkeys(("at least 1", "1 or more"), lambda value: value >= 1)
_MUST |= dict.fromkeys(("positive", "positive or None"), lambda value: value > 0)
_MUST["at least 0"] = lambda value: value >= 0
_MUST["in [0, 1]"] = lambda value: 0 <= value <= 1
_MUST["in [0, 1)"] = lambda value: 0 <= value < 1


def check_plain(where: str, must: str, **values: Any) -> None:
    """Refuses plain numbers that are not so, such as "positive"; others are taken."""
    for name, value in values.items():
        if isinstance(value, int | float) and not _MUST[must](value):
            what = f"{where}: {name} must be {must}"
            raise ValueError(f"{what}, got {value}; change {name}")


def check_choice(where: str, name: str, value: str, known: Iterable[str]) -> None:
    """Refuses a word that is not known."""
    if value not in known:
        must = f"{where}: {name} must be one of"
        words = ", ".join(x or repr(x) for x in known)
        raise ValueError(f"{must} {words}, got {value!r}; change {name}")


def each_image(one: Callable, **idle: Any) -> Callable:
    """Builds (batch, key) -> batch that puts one(image, key of its place) in each place.

    idle: an option of which the plain number 0 leaves the batch as it is.
    """

    def apply(batch, key):
        if any(is_statically(value, 0) for value in idle.values()):
            return batch
        image = batch["image"]
        return {**batch, "image": jax.vmap(one)(image, sampling.keys(key, len(image)))}

    return apply


def is_statically(value: Any, number: float) -> bool:
    """Says whether the value is this number, known before anything is traced."""
    return isinstance(value, numbers.Real) and value == number
