"""Environment variables that switch an option on, such as JBIAS_TRACEBACK=1."""

import os

_OFF = ("", "0", "false", "no", "off")


def is_on(name: str) -> bool:
    """Return True if an environment variable is set, except to "", 0, false, no or off.

    Upper case and spaces around the value do not matter.
    """
    return os.environ.get(name, "").strip().lower() not in _OFF
