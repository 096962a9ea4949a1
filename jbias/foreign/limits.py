"""How much a third-party set may ask for; what says more is refused before it takes it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

CLASSES = 1_000_000  # ImageNet-21k has 21,843, sets of faces some hundred thousand.
PIXELS = 178_956_970  # Of an image; Pillow's own limit.
BYTES = 2**34  # More than on disk, of what is unpacked at once,
GROWTH = 200  # and so many times as many; dSprites has 115.
_ALWAYS = 2**27  # Bytes of growth that need no reason.
_TOLD = "limits of docs/data.md"


def labels(where: str, found: Sequence[int] | np.ndarray) -> Int[np.ndarray, "n"]:
    """Labels as int32; ValueError where one is no number of a class."""
    found = np.asarray(found)
    low, high = found.min(initial=0), found.max(initial=0)
    if not 0 <= low <= high < CLASSES:
        raise ValueError(
            f"{where}: labels must be whole numbers from 0 to {CLASSES - 1:,} ({_TOLD}),"
            f" got {low} to {high}; number the classes from 0"
        )
    return found.astype(np.int32)


def most(packed: int, times: int = GROWTH, always: int = _ALWAYS) -> int:
    """How many bytes so many may become."""
    return packed + min(BYTES, max(always, times * packed))


def growth(packed: int, unpacked: int, **options: int) -> None:
    """Refuses more bytes than `most`; ValueError, the reason alone."""
    if unpacked > (allowed := most(packed, **options)):
        raise ValueError(
            f"{packed:,} bytes that would become {unpacked:,}, more than {allowed:,}"
            f" ({_TOLD}); store it unpacked if you trust it"
        )
