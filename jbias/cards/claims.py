"""Claims of a card: a number that its doubts call a guess is none; imports are fast."""

from collections.abc import Mapping
from typing import Any


def guess_start(dataset: str) -> str:
    """Return the start of the doubt that the decisions of a set may be guesses."""
    return f"decisions for either cue on {dataset} are no more than guessing gives"


def has_claim(content: Mapping[str, Any], number: Mapping[str, Any]) -> bool:
    """Return False for a shape bias of decisions that may be guesses, which is no claim.

    content: of card.json. number: an entry of its numbers.
    """
    if number["name"] != "shape_bias":
        return True
    start = f"{guess_start(number['set'])} ("
    return not any(line.startswith(start) for line in content["doubts"])
