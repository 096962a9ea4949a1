"""Says in one line what nobody foresaw."""

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator

from etils import epath

from jbias.store import disk

_KEPT = "traceback: "
_WHOLE = "JBIAS_TRACEBACK=1 shows the whole traceback"
_OF_JAX = "-" * 20  # Begins what it notes on tracebacks.


class Own(ValueError):
    """An error in a file of Python that a user wrote, in one line that names its own."""


@contextlib.contextmanager
def own(
    path: str, line: int = 0, given: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Raises what goes wrong inside, in the code of that file, as an error that names it.

    line: the file's, where the error tells none. given: what that code was called with.
    """
    try:
        yield
    except Own:
        raise
    except Exception as error:
        inside = [
            (at, frame.f_code.co_name)
            for frame, at in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == path
        ]
        if isinstance(error, SyntaxError) and error.filename == path:
            inside.append((error.lineno or 1, "<module>"))
        at, name = inside[-1] if inside else (line, "")
        where = f"{path}:{at}" + f", in {name}" * (name not in ("", "<module>"))
        parts = [f"error in {where}: {_said(error)}", given(), *_notes(error), _WHOLE]
        raise Own("; ".join(filter(None, parts))) from error


def line(error: Exception) -> str:
    """What was wrong, and what is noted on it."""
    return "; ".join([disk.told(error), *_notes(error)])


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
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno}, {frames[-1].name})" * any(
        frames
    )
    said = [f"{_said(error)}{at}", *_notes(error)]
    if not any(note.startswith(_KEPT) for note in _notes(error)):
        said.append(_WHOLE)
    return "; ".join(said)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def _notes(error: Exception) -> list[str]:
    notes = getattr(error, "__notes__", [])
    return [note for note in notes if not note.startswith(_OF_JAX)]
