"""Reads that a failed one left behind: ended without a word.

Orbax reads many arrays at once. Where one is damaged the others go on without anyone who
waits for them, and tell of it by tracebacks once they are collected.
"""

import gc
import sys


def forget() -> None:
    """Collects garbage, without the tracebacks of what ends in it.

    Orbax reads many arrays at once. Where one is damaged the others go on, though nobody
    waits for them, and report it by tracebacks once they are collected.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
