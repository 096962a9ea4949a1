"""Limits of memory and size for untrusted files; a file that declares more is refused."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

MAX_CLASSES = 1_000_000  # ImageNet-21k has 21,843, sets of faces some hundred thousand.
MAX_PIXELS = 178_956_970  # Of an image; Pillow's own limit.
# An unpacked file may be larger than the packed one by at most MAX_GROWTH_BYTES, and at most
# MAX_GROWTH times as large; dSprites grows 115 times.
MAX_GROWTH_BYTES = 2**34
MAX_GROWTH = 200
MAX_TABLE_BYTES = 2**28  # Of a table of decisions: some four million rows.
_FREE_BYTES = 2**27  # Growth that is always allowed.
DOCS = "limits of docs/data.md"


def check_labels(
    where: str, labels: Sequence[int] | np.ndarray
) -> Int[np.ndarray, "n"]:
    """Return labels as int32; raise ValueError unless all are in [0, MAX_CLASSES).

    labels: integers. where: start of the error message, such as the path of the file.
    """
    labels = np.asarray(labels)
    low, high = labels.min(initial=0), labels.max(initial=0)
    if not 0 <= low <= high < MAX_CLASSES:
        raise ValueError(
            f"{where}: labels must be whole numbers from 0 to {MAX_CLASSES - 1:,} ({DOCS}), "
            f"got {low} to {high}; number the classes from 0"
        )
    return labels.astype(np.int32)


def max_unpacked(packed: int, times: int = MAX_GROWTH, free: int = _FREE_BYTES) -> int:
    """Return the largest allowed unpacked size, in bytes, of a file of `packed` bytes.

    times: largest growth, as a multiple of `packed`. free: growth in bytes that is allowed
    for any file, however small. The growth is at most MAX_GROWTH_BYTES.
    """
    return packed + min(MAX_GROWTH_BYTES, max(free, times * packed))


def check_growth(packed: int, unpacked: int, **options: int) -> None:
    """Raise ValueError if a file's unpacked size exceeds `max_unpacked`.

    packed, unpacked: sizes in bytes. options: `times` and `free` of `max_unpacked`. The message
    has no name of a file; the caller adds the name.
    """
    allowed = max_unpacked(packed, **options)
    if unpacked > allowed:
        raise ValueError(
            f"{packed:,} bytes that would become {unpacked:,}, more than {allowed:,} "
            f"({DOCS}); store it unpacked if you trust it"
        )
