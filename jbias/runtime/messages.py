"""One line of text for a person: errors, crashes, names that come from users and files.

Letters that a terminal would obey or cannot show appear as their codes. The traceback of a
crash goes to the workdir, or with JBIAS_TRACEBACK=1 to the terminal.
"""

import contextlib
import datetime
import itertools
import os
import textwrap
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from jbias.runtime import files

Say = Callable[[str], None]  # Hears lines that are meant for a person.
MAX_LETTERS = 2000  # Letters; a name of a megabyte helps nobody.


def one_line(text: object) -> str:
    """The text on one line, without what a terminal would obey, cut where it is long.

    Letters that cannot be shown appear as their codes, such as \\x1b.
    """
    line = files.describe_error(text) if isinstance(text, Exception) else str(text)
    words = printable(" ".join(line.split()))
    if len(words) <= MAX_LETTERS:
        return words
    half = MAX_LETTERS // 2
    return f"{words[:half]} ... {words[-half:]}"


def utc_now(timespec: str = "seconds") -> str:
    """The time, in UTC, as ISO 8601 has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec=timespec)


def shorten(text: object) -> str:
    """The text on one line, cut after so many words as 200 letters hold."""
    return textwrap.shorten(str(text), 200, placeholder=" …")


def printable(text: str) -> str:
    """The text with its letters that cannot be shown as codes; spaces stay as they are."""
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(letter: str) -> str:
    seen = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if seen else ascii(letter)[1:-1]


_TRACEBACK = "traceback: "
_HINT = "JBIAS_TRACEBACK=1 shows the whole traceback"
_OF_JAX = "-" * 20  # Begins what it notes on tracebacks.


class UserCodeError(ValueError):
    """An error in a file of Python that a user wrote, in one line that names its own."""


@contextlib.contextmanager
def user_code(
    path: str,
    line: int = 0,
    given: Callable[[], str] = lambda: "",
    passing: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raises what goes wrong inside, in the code of that file, as an error that names it.

    line: the file's, where the error tells none; 0: such an error passes, as do those of
    the types `passing`. given: what that code was called with.
    """
    try:
        yield
    except (UserCodeError, *passing):
        raise
    except Exception as error:
        inside = [
            (at, frame.f_code.co_name)
            for frame, at in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == path
        ]
        if isinstance(error, SyntaxError) and error.filename == path:
            inside.append((error.lineno or 1, "<module>"))
        if not (inside or line):
            raise
        at, name = inside[-1] if inside else (line, "")
        where = f"{path}:{at}" + f", in {name}" * (name not in ("", "<module>"))
        what = f"error in {where}: {_type_and_text(error)}"
        parts = filter(None, [what, given(), *notes(error), _HINT])
        raise UserCodeError("; ".join(parts)) from error


def describe_error(error: Exception) -> str:
    """An error in one line, with the notes on it."""
    return "; ".join([files.describe_error(error), *notes(error)])


def save_traceback(
    error: Exception, workdir: os.PathLike, guard: Callable[[], None] = lambda: None
) -> None:
    """Leaves the traceback in a workdir that is this process's, and notes it.

    `guard` raises an OSError where it is not.
    """
    from etils import epath

    path = epath.Path(workdir) / "traceback.txt"
    with contextlib.suppress(OSError):
        guard()
        files.write(path, "".join(traceback.format_exception(error)))
        error.add_note(f"{_TRACEBACK}{path}")


def describe_crash(error: Exception) -> str:
    """A crash of the code, ours or the user's, in one line: what, where, the notes."""
    frames = traceback.extract_tb(error.__traceback__)
    at = [f" ({one.filename}:{one.lineno}, {one.name})" for one in frames[-1:]]
    said = [_type_and_text(error) + "".join(at), *notes(error)]
    if not any(note.startswith(_TRACEBACK) for note in notes(error)):
        said.append(_HINT)
    return "; ".join(said)


def _type_and_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def notes(error: Exception) -> list[str]:
    """Return the notes on an error, without those that jax adds to tracebacks."""
    known = getattr(error, "__notes__", [])
    return [note for note in known if not note.startswith(_OF_JAX)]


def align_columns(rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows as lines; a row's last cell may be of any length, and rows may be short."""
    text = [[str(cell) for cell in row] for row in rows]
    columns = itertools.zip_longest(*(row[:-1] for row in text), fillvalue="")
    widths = [*(max(map(len, column)) for column in columns), 0]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in text]


# Of the extra `train`: what reports and statistics of decisions and scores do without.
_OF_TRAINING = {
    *("array_record", "flax", "google", "grain", "jax", "jaxlib", "ml_collections"),
    *("optax", "orbax", "safetensors", "sklearn", "tensorflow_datasets"),
    *("threadpoolctl", "yaml"),
}


def missing_package(error: ModuleNotFoundError) -> str:
    """What to install, in one line, where a package of training is not; else ""."""
    if (error.name or "").partition(".")[0] not in _OF_TRAINING:
        return ""
    return (
        f"needs {error.name}, which is not installed: pip install 'jbias[train]', "
        "or 'jbias[gpu]', or 'jbias[tpu]'"
    )
