"""A run's sign of life, progress.json: what it does, how far it is, how fast.

For who looks at many runs; no part of the results. What cannot be written is told once.
"""

import datetime
import json
import os
import pathlib
import socket
from collections.abc import Callable
from typing import Any

from etils import epath

from jbias.store import disk

NAME = "progress.json"
VERSION = 1
_MOST = 1e15  # Steps, seconds, images.
_KINDS = {  # What who reads it relies on.
    **dict.fromkeys(("at", "doing", "devices", "host"), str),
    **dict.fromkeys(("step", "total"), int),
    **dict.fromkeys(("rate", "images", "eta_seconds", "log_seconds"), (int, float)),
}


class Life:
    """Rewrites the file whenever it is told something."""

    def __init__(self, workdir: epath.Path, say: Callable[[str], None]):
        self._path, self._say, self._lost = workdir / NAME, say, False
        self._facts = {
            "version": VERSION,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }

    def update(self, doing: str, **facts: Any) -> None:
        """Says what is done now; facts told before stay until they are told anew."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._facts |= {"at": now, "doing": doing, **facts}
        try:
            disk.write(self._path, json.dumps(self._facts), lasting=False)
        except OSError as error:
            if not self._lost:
                self._say(
                    f"{NAME} cannot be written ({' '.join(str(error).split())}): "
                    "--status does not see how far the run is; it goes on"
                )
            self._lost = True


def read(workdir: str | os.PathLike) -> dict[str, Any]:
    """What a run told last; empty where it told nothing that can be read."""
    try:
        told = json.loads((pathlib.Path(workdir) / NAME).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    told = told if isinstance(told, dict) else {}
    return {key: value for key, value in told.items() if _fits(key, value)}


def _fits(key: str, value: Any) -> bool:
    kinds = _KINDS.get(key, object)
    if isinstance(value, (int, float)) and not abs(value) < _MOST:
        return False
    return isinstance(value, kinds) and not isinstance(value, bool)
