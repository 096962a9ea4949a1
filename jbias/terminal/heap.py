"""The heap of the C library, which many short threads would have grow in a long run.

Glibc gives threads heaps of their own, up to eight a core, and each keeps room for the most
that came to it; the threads of one save after the other come to ever other heaps.
"""

import ctypes
import os

_C = ctypes.CDLL(None)


def bound() -> None:
    """Has all threads to come share two heaps, unless MALLOC_ARENA_MAX says how many."""
    if "MALLOC_ARENA_MAX" not in os.environ and hasattr(_C, "mallopt"):
        _C.mallopt(-8, 2)  # M_ARENA_MAX of glibc's <malloc.h>.


def trim() -> None:
    """Gives the system back what is free, where the library is glibc."""
    if hasattr(_C, "malloc_trim"):
        _C.malloc_trim(0)
