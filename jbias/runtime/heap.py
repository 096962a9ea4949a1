"""The memory of this process: few malloc arenas, freed pages returned, quiet collection.

Glibc gives threads arenas of their own, up to eight a core, and each arena keeps as much
memory as it ever needed. In a long run the threads of one save after another come to ever
other arenas.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator

_C = ctypes.CDLL(None)
_VARIABLES = frozenset(("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"))
_KEEPING = frozenset(
    ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
)


def limit_arenas() -> None:
    """Has all threads to come share few heaps, unless the environment says how many.

    Two, or one for each four cores where that is more.
    """
    if not _VARIABLES & os.environ.keys() and hasattr(_C, "mallopt"):
        many = max(2, (os.cpu_count() or 1) // 4)
        _C.mallopt(-8, many)  # M_ARENA_MAX of glibc's <malloc.h>.


def keep_freed(size: int) -> None:
    """Keep up to `size` bytes of freed memory for the next arrays, where the library is glibc.

    Each large array has fresh pages else, and the system clears all of them: for work on many
    arrays of equal size. Leaves settings of the environment as they are.
    """
    if not _KEEPING & os.environ.keys() and hasattr(_C, "mallopt"):
        _C.mallopt(-3, 2**30)  # M_MMAP_THRESHOLD of glibc's <malloc.h>.
        _C.mallopt(-1, size)  # M_TRIM_THRESHOLD.


def trim() -> None:
    """Gives the system back what is free, where the library is glibc."""
    if hasattr(_C, "malloc_trim"):
        _C.malloc_trim(0)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no cycles meanwhile: for seconds of work that makes many objects and few cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def skip_last_collection() -> None:
    """Have this process search no cycles as it exits, as its memory is freed anyway."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def collect_silently() -> None:
    """Collects garbage, without the tracebacks of what ends in it.

    Orbax reads many arrays at once. Where one is damaged the others go on, though nobody
    waits for them, and report it by tracebacks once they are collected.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
