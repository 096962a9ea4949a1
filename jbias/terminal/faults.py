"""Says in one line what nobody foresaw."""

import contextlib
import os
import traceback
from collections.abc import Callable

from etils import epath

from jbias.store import disk

_KEPT = "traceback: "


def line(error: Exception) -> str:
    """What was wrong, and what is noted on it."""
    return "; ".join([str(error), *_notes(error)])


def keep(
    error: Exception, workdir: os.PathLike, guard: Callable[[], None] = lambda: None
) -> None:
    """Leaves the traceback in a workdir that is this process's, and notes it.

    `guard` raises an OSError where it is not.
    """
    path = epath.Path(workdir) / "traceback.txt"
    with contextlib.suppress(OSError):
        guard()
        disk.write(path, "".join(traceback.format_exception(error)))
        error.add_note(f"{_KEPT}{path}")


def told(error: Exception) -> str:
    """Likewise of an error of the code, ours or the user's: what, where, what is kept."""
    text = str(error).strip().split("\n")[0][:300]
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno}, {frames[-1].name})" * any(
        frames
    )
    said = [f"{type(error).__name__}: {text}{at}", *_notes(error)]
    if not any(note.startswith(_KEPT) for note in _notes(error)):
        said.append("JBIAS_TRACEBACK=1 shows the traceback")
    return "; ".join(said)


def _notes(error: Exception) -> list[str]:
    notes = getattr(error, "__notes__", [])
    return [note for note in notes if "JAX has removed" not in note]  # Of frames.
