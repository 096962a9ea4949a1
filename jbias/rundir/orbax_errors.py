"""What errors of orbax and tensorstore say, in a line, with the system's number in it."""

import os
import re
import textwrap

import jax

from jbias.store import disk

# Errors in reading that are the machine's fault, not the bytes'.
OF_THE_MACHINE = (MemoryError, jax.errors.JaxRuntimeError)


def gist(error: Exception) -> str:
    """What the system said, which tensorstore tells last, in numbers too."""
    if isinstance(error, OSError):
        return disk.gist(error)
    known = number(error)
    return (
        os.strerror(known)
        if known
        else textwrap.shorten(str(error), 200, placeholder=" …")
    )


def first_line(error: Exception) -> str:
    """The first line of what orbax says, which goes on for pages."""
    first = str(error).strip().partition("\n")[0]
    return textwrap.shorten(first, 200, placeholder=" …")


def number(error: Exception) -> int | None:
    """The system's number of an error, which tensorstore has in its text; None: it has none."""
    if isinstance(error, OSError):
        return error.errno
    told = re.search(r"os_error_code='(\d+)'", str(error))
    return int(told[1]) if told else None
