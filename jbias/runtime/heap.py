"""Settings of this process's heap: malloc arenas, freed pages, garbage collection.

Glibc gives each thread its own arena, up to eight arenas per core, and an arena keeps its
peak memory. In a long run, each save starts threads that use other arenas, so memory grows.
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
    """Limit malloc to one arena per four cores, at least two, for all later threads.

    Does nothing if an environment variable sets the number, or without glibc.
    """
    if not _VARIABLES & os.environ.keys() and hasattr(_C, "mallopt"):
        num_arenas = max(2, (os.cpu_count() or 1) // 4)
        _C.mallopt(-8, num_arenas)  # M_ARENA_MAX of glibc's <malloc.h>.


def keep_freed(size: int) -> None:
    """Let malloc keep up to `size` bytes of freed memory for later arrays.

    This speeds up work on many large arrays: otherwise the system clears fresh pages for
    each array. Does nothing if an environment variable configures this, or without glibc.
    """
    if not _KEEPING & os.environ.keys() and hasattr(_C, "mallopt"):
        _C.mallopt(-3, 2**30)  # M_MMAP_THRESHOLD of glibc's <malloc.h>.
        _C.mallopt(-1, size)  # M_TRIM_THRESHOLD.


def trim() -> None:
    """Return freed memory to the system; do nothing without glibc."""
    if hasattr(_C, "malloc_trim"):
        _C.malloc_trim(0)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Turn the garbage collector off inside the context.

    Use this for a few seconds of work that makes many objects and few reference cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def skip_last_collection() -> None:
    """Skip the garbage collection at the exit of this process, which frees all memory."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def collect_silently() -> None:
    """Collect garbage without printing exceptions of the collected objects.

    Orbax reads arrays in parallel. If one array is damaged, the reads of the other arrays
    are not awaited, and print tracebacks when they are collected.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
