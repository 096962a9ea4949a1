"""The heap of the C library, which many short threads would have grow in a long run.

Glibc gives threads heaps of their own, up to eight a core, and each keeps room for the most
that came to it; the threads of one save after the other come to ever other heaps.
"""

import ctypes
import os

_C = ctypes.CDLL(None)
_SAID = frozenset(("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"))


def bound() -> None:
    """Has all threads to come share few heaps, unless the environment says how many.

    Two, or one for each four cores where that is more.
    """
    if not _SAID & os.environ.keys() and hasattr(_C, "mallopt"):
        many = max(2, (os.cpu_count() or 1) // 4)
        _C.mallopt(-8, many)  # M_ARENA_MAX of glibc's <malloc.h>.


def trim() -> None:
    """Gives the system back what is free, where the library is glibc."""
    if hasattr(_C, "malloc_trim"):
        _C.malloc_trim(0)
