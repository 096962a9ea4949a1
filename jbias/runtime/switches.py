"""Environment variables that switch an option on, such as JBIAS_TRACEBACK=1."""

import os

_OFF = ("", "0", "false", "no", "off")


def is_on(name: str) -> bool:
    """Return True if an environment variable is set to anything but 0, false, no or off."""
    return os.environ.get(name, "").strip().lower() not in _OFF
