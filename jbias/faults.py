"""Says in one line what nobody foresaw."""

import os
import traceback

from etils import epath

from jbias import disk


def line(error: Exception) -> str:
    """What was wrong, and what is noted on it."""
    return "; ".join([str(error), *_notes(error)])


def told(error: Exception, workdir: os.PathLike) -> str:
    """Likewise of an error of the code, ours or the user's: what, where, and what is kept.

    The traceback is left in the workdir, if there is one.
    """
    text = str(error).strip().split("\n")[0][:300]
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno}, {frames[-1].name})" * any(
        frames
    )
    said = [f"{type(error).__name__}: {text}{at}", *_notes(error)]
    try:
        path = epath.Path(workdir) / "traceback.txt"
        disk.write(path, "".join(traceback.format_exception(error)))
        said.append(f"traceback: {path}")
    except OSError:
        said.append("JBIAS_TRACEBACK=1 shows the traceback")
    return "; ".join(said)


def _notes(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])
