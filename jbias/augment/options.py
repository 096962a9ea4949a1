"""Options of input transforms: plain numbers are checked, traced ones are taken."""

import numbers
from collections.abc import Iterable
from typing import Any


def check_range(where: str, name: str, value: Any, low: float, high: float) -> None:
    """Refuses a plain number outside [low, high]."""
    if isinstance(value, numbers.Real) and not low <= value <= high:
        raise ValueError(
            f"{where}: {name} must be in [{low:g}, {high:g}], got {value}; change {name}"
        )


def check_choice(where: str, name: str, value: str, known: Iterable[str]) -> None:
    """Refuses a word that is not known."""
    if value not in known:
        raise ValueError(
            f"{where}: {name} must be one of {', '.join(known)}, got {value!r}; "
            f"change {name}"
        )


def is_statically(value: Any, number: float) -> bool:
    """Says whether the value is this number, known before anything is traced."""
    return isinstance(value, numbers.Real) and value == number
