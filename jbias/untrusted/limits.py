"""How much memory an untrusted file may ask for; a file that declares more is refused."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

MAX_CLASSES = 1_000_000  # ImageNet-21k has 21,843, sets of faces some hundred thousand.
MAX_PIXELS = 178_956_970  # Of an image; Pillow's own limit.
MAX_GROWTH_BYTES = 2**34  # More than on disk, of what is unpacked at once,
MAX_GROWTH = 200  # and so many times as many; dSprites has 115.
_FREE = 2**27  # Bytes of growth that need no reason.
DOCS = "limits of docs/data.md"


def check_labels(where: str, found: Sequence[int] | np.ndarray) -> Int[np.ndarray, "n"]:
    """Labels as int32; ValueError where one is no number of a class."""
    found = np.asarray(found)
    low, high = found.min(initial=0), found.max(initial=0)
    if not 0 <= low <= high < MAX_CLASSES:
        must = f"{where}: labels must be whole numbers from 0 to {MAX_CLASSES - 1:,}"
        got = f"got {low} to {high}"
        raise ValueError(f"{must} ({DOCS}), {got}; number the classes from 0")
    return found.astype(np.int32)


def max_unpacked(packed: int, times: int = MAX_GROWTH, always: int = _FREE) -> int:
    """How many bytes so many may become."""
    return packed + min(MAX_GROWTH_BYTES, max(always, times * packed))


def check_growth(packed: int, unpacked: int, **options: int) -> None:
    """Refuses more bytes than `max_unpacked`; ValueError, the reason alone."""
    if unpacked > (allowed := max_unpacked(packed, **options)):
        must = f"{packed:,} bytes that would become {unpacked:,}, more than {allowed:,}"
        raise ValueError(f"{must} ({DOCS}); store it unpacked if you trust it")
