"""One line of text for a person: errors, crashes, names that come from users and files.

Letters that a terminal would obey or cannot show appear as their codes. The traceback of a
crash goes to the workdir, or with JBIAS_TRACEBACK=1 to the terminal.
"""

import contextlib
import datetime
import itertools
import json
import os
import re
import sys
import textwrap
import traceback
import types
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jbias.runtime import files, signals

Say = Callable[[str], object]  # Hears lines that are meant for a person.
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


# Letters that Unicode counts as printable and that show nothing: fillers of Hangul, the
# blank of Braille, joiners and selectors of variants.
_INVISIBLE = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def printable(text: str) -> str:
    """Return the text with letters that a terminal obeys or cannot show as codes.

    Spaces stay as they are. Line breaks become codes, too.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(letter: str) -> str:
    is_shown = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if is_shown and letter not in _INVISIBLE else ascii(letter)[1:-1]


def terminal_text(text: object, stream: Any) -> str:
    """Return text that is safe to write to the stream: `printable`, line by line.

    Line breaks and tabs stay. Letters that the stream's encoding lacks become codes.
    """
    lines = (
        "\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n")
    )
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding)


class StdoutError(OSError):
    """Standard output is a file that cannot be written; the text says so in one line."""


@contextlib.contextmanager
def stdout_errors_exit() -> Iterator[None]:
    """End the program with one line on stderr and exit code 2 where stdout cannot be written."""
    try:
        yield
    except StdoutError as error:
        print_text(f"jbias: {one_line(error)}", to_stderr=True)
        raise SystemExit(2) from None


def print_text(text: object = "", *, to_stderr: bool = False, end: str = "\n") -> bool:
    """Print text to stdout, or to stderr; return whether somebody still reads it.

    Everything that jbias prints goes through here, or through the log and the bars of
    `console`. Several lines stay several lines; all else that a terminal would obey
    appears as codes. A closed stream is no error: later text for it is dropped. StdoutError
    where stdout is a file that cannot be written.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    if stream is None:  # Closed before Python began.
        return False
    try:
        stream.write(terminal_text(text, stream) + end)
        stream.flush()
    except BrokenPipeError:  # The reader has gone, as `head` does.
        _discard(stream)
        return False
    except ValueError:  # Closed since.
        if not stream.closed:
            raise
        return False
    except OSError as error:
        _discard(stream)
        if to_stderr:
            return False
        why = files.system_message(error)
        line = f"stdout: cannot be written ({why}); {files.REMEDY}"
        raise StdoutError(line) from error
    return True


def _discard(stream: Any) -> None:
    """Send the rest of a stream nowhere, so that Python's end does not fail at it."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def flush() -> None:
    """Flush stdout and stderr, of which neither may be there any more."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def clear_screen() -> None:
    """Clear the terminal behind stdout; do nothing where stdout is none."""
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.write("\033[H\033[2J")


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Print an exception as Python does (a `sys.excepthook`), through `print_text`."""
    lines = traceback.format_exception(kind, error, trace)
    print_text("".join(lines), to_stderr=True, end="")


def to_json(value: Any, **options: Any) -> str:
    """Return the value as JSON in ASCII, without any letter that a terminal obeys.

    options: of `json.dumps`, which writes DEL as it is.
    """
    return json.dumps(value, **options).replace("\x7f", "\\u007f")


_LACKS_MEMORY = re.compile(
    "RESOURCE_EXHAUSTED|out of memory|MemoryError", re.IGNORECASE
)


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that memory of the host or of a device is full."""
    return isinstance(error, MemoryError) or bool(_LACKS_MEMORY.search(str(error)))


_TRACEBACK = "traceback: "
_HINT = "JBIAS_TRACEBACK=1 shows the whole traceback"
_OF_JAX = "-" * 20  # Begins what it notes on tracebacks.


# May be raised while any code runs, and is never that code's error.
_NOT_OF_THE_CODE = (KeyboardInterrupt, GeneratorExit, signals.Interrupted)


class UserCodeError(ValueError):
    """An error in a file of Python that a user wrote, in one line that names its own."""


@contextlib.contextmanager
def user_code(
    path: str,
    line: int = 0,
    given: Callable[[], str] = lambda: "",
    passing: tuple[type[Exception], ...] = (),
    *,
    whole: bool = False,
) -> Iterator[None]:
    """Raise what goes wrong inside, in the code of that file, as a UserCodeError.

    SystemExit and other exceptions that are no Exception count as errors: code that calls
    sys.exit(0) has not done its work. So does os._exit(0), which ends the process at once,
    here with exit code 1. KeyboardInterrupt passes, as it is the person's.

    line: the file's, where the error tells none; 0: such an error passes, as do those of
    the types `passing`. given: what that code was called with. whole: whether all that
    runs inside is the user's, so that no error passes.
    """
    try:
        with failing_exit(path) if whole or line else contextlib.nullcontext():
            yield
    except (UserCodeError, *_NOT_OF_THE_CODE, *passing):
        raise
    except BaseException as error:
        inside = [
            (at, frame.f_code.co_name)
            for frame, at in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == path
        ]
        if isinstance(error, SyntaxError) and error.filename == path:
            inside.append((error.lineno or 1, "<module>"))
        if not (inside or line or whole):
            raise
        at, name = inside[-1] if inside else (line, "")
        where = f"{path}:{at}" if at else path
        where += f", in {name}" * (name not in ("", "<module>"))
        what = f"error in {where}: {_type_and_text(error)}"
        called_with = "" if type(error).__name__ in _TRACED_VALUES else given()
        parts = filter(None, [what, called_with, *notes(error), _HINT])
        raise UserCodeError("; ".join(parts)) from error


@contextlib.contextmanager
def failing_exit(path: str) -> Iterator[None]:
    """Make os._exit(0) end this process with exit code 1 and a line that names the file.

    Child processes that the code inside starts by fork end as they say.
    """
    exit_now, process, is_inside = os._exit, os.getpid(), True

    def exit_failing(status: int) -> None:
        if status == 0 and is_inside and os.getpid() == process:
            line = f"jbias: error in {path}: os._exit(0) ended the program; remove the call"
            print(line, file=sys.stderr, flush=True)
            status = 1
        exit_now(status)

    os._exit = exit_failing
    try:
        yield
    finally:
        is_inside = False  # Another thread may have kept exit_failing.
        os._exit = exit_now


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


# What jax raises where Python asks a traced array for its value, and what to write instead.
_TRACED_VALUES = {
    "TracerBoolConversionError": (
        "a Python `if` (or `while`, `and`, `not`) on a traced value; use jnp.where or "
        "jax.lax.cond"
    ),
    "TracerIntegerConversionError": (
        "a traced value as an index or a number of repeats in Python; use jnp.take, or a "
        "number that is known without the images"
    ),
    "TracerArrayConversionError": "a function of numpy on a traced array; use that of jax.numpy",
    "NonConcreteBooleanIndexError": "a traced mask as an index; use jnp.where",
    "ConcretizationTypeError": (
        "a traced value as a number of Python, as by float(), int() or .item(); keep the "
        "array, and convert its type by .astype"
    ),
}


def _type_and_text(error: BaseException) -> str:
    if remedy := _TRACED_VALUES.get(type(error).__name__):
        return f"{type(error).__name__}: {remedy}"
    if isinstance(error, SystemExit):
        call = f"sys.exit({error.code!r})"[:200]
        return f"SystemExit: calls {call}; remove that, or raise an error that says why"
    text = " ".join(files.error_text(error).split())[:400]
    return f"{type(error).__name__}: {text}"


def describe_array(array: Any) -> str:
    """Return the type and the shape of an array, or what a value is that is none."""
    if array.dtype.kind == "O" and array.shape:
        return f"an array of Python objects, not of numbers, of shape {array.shape}"
    if array.shape:
        return f"{array.dtype} {array.shape}"
    value = array.item()
    return "None" if value is None else f"a single {type(value).__name__}, no array"


def notes(error: BaseException) -> list[str]:
    """Return the notes on an error, without those that jax adds to tracebacks."""
    known = getattr(error, "__notes__", [])
    return [note for note in known if not note.startswith(_OF_JAX)]


def align_columns(rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows as lines; a row's last cell may be of any length, and rows may be short."""
    text = [[printable(str(cell)) for cell in row] for row in rows]
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
