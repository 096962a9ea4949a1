"""Print text for users; make one-line error messages and tables of aligned columns.

Control characters and characters that a terminal cannot show are printed as escapes. The
traceback of a crash is saved in the workdir, or with JBIAS_TRACEBACK=1 printed.
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

from jbias import errors
from jbias.runtime import files, signals

Say = Callable[[str], object]  # A function that prints or logs a line for the user.
MAX_LETTERS = 2000  # Of `one_line`: names in files may be very long.


def one_line(text: object) -> str:
    """Return a text, or an error's text, on one printable line of limited length.

    Characters that cannot be shown become escapes such as \\x1b. The middle of a text longer
    than MAX_LETTERS is left out.
    """
    text = files.describe_error(text) if isinstance(text, Exception) else str(text)
    line = printable(" ".join(text.split()))
    if len(line) <= MAX_LETTERS:
        return line
    half = MAX_LETTERS // 2
    return f"{line[:half]} ... {line[-half:]}"


def error_lines(error: Exception) -> list[str]:
    """Return the lines of an error: one, or those of errors.SeveralErrors."""
    is_several = isinstance(error, errors.SeveralErrors)
    texts = str(error).splitlines() if is_several else [error]
    return [one_line(text) for text in texts]


def utc_now(timespec: str = "seconds") -> str:
    """Return the current time in UTC as text in ISO 8601.

    timespec: unit of the last digits, as for datetime.isoformat.
    """
    return datetime.datetime.now(datetime.UTC).isoformat(timespec=timespec)


def shorten(text: object) -> str:
    """Return the text on one line, cut between words to at most 200 characters."""
    return textwrap.shorten(str(text), 200, placeholder=" …")


# Characters that Unicode counts as printable but that show nothing: fillers of Hangul, the
# blank of Braille, joiners and variation selectors.
_INVISIBLE_CODES = [
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x2800,
    0x3164,
    0xFFA0,
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
]
_INVISIBLE = frozenset(map(chr, _INVISIBLE_CODES))


def printable(text: str) -> str:
    """Return the text with control and invisible characters as escapes such as \\x1b.

    Line breaks become escapes, too. Spaces of all kinds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_printable_letter, text))


def _printable_letter(letter: str) -> str:
    """Return a character, or its escape such as \\x1b if it cannot be shown."""
    is_shown = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if is_shown and letter not in _INVISIBLE else ascii(letter)[1:-1]


def terminal_text(text: object, stream: Any) -> str:
    """Return the text with control characters as escapes, safe to write to the stream.

    Line breaks and tabs stay. Characters that the stream's encoding lacks become escapes.
    """
    lines = (
        "\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n")
    )
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding)


class StdoutError(OSError):
    """Raised if stdout is a file that cannot be written; the error's text is one line."""


@contextlib.contextmanager
def stdout_errors_exit() -> Iterator[None]:
    """Print one line on stderr and exit with code 2 after a StdoutError in the context."""
    try:
        yield
    except StdoutError as error:
        print_text(f"jbias: {one_line(error)}", to_stderr=True)
        raise SystemExit(2) from None


def print_text(text: object = "", *, to_stderr: bool = False, end: str = "\n") -> bool:
    """Print text and `end` to stdout or stderr; return False if the stream has no reader.

    jbias prints all text by this function, or by the log and the bars of `console`. Control
    characters other than line breaks and tabs become escapes. Text for a closed stream is
    dropped. Raises StdoutError if stdout is a file that cannot be written.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    if stream is None:  # Closed before Python started.
        return False
    try:
        stream.write(terminal_text(text, stream) + end)
        stream.flush()
    except BrokenPipeError:  # The reader, such as `head`, has ended.
        _discard(stream)
        return False
    except ValueError:  # Raised if the stream is closed.
        if not stream.closed:
            raise
        return False
    except OSError as error:
        _discard(stream)
        if to_stderr:
            return False
        reason = files.system_message(error)
        raise StdoutError(
            f"stdout: cannot be written ({reason}); {files.REMEDY}"
        ) from error
    return True


def _discard(stream: Any) -> None:
    """Redirect a stream to /dev/null, so that Python's flush at exit does not fail."""
    with contextlib.suppress(OSError, ValueError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)


def flush() -> None:
    """Flush stdout and stderr; ignore errors, such as a closed stream."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def clear_screen() -> None:
    """Clear the terminal of stdout; do nothing if stdout is not a terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.write("\033[H\033[2J")


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Print an exception's traceback by `print_text`; for `sys.excepthook`."""
    lines = traceback.format_exception(kind, error, trace)
    print_text("".join(lines), to_stderr=True, end="")


def to_json(value: Any, **options: Any) -> str:
    """Return the value as JSON in printable ASCII; options: of `json.dumps`."""
    # json.dumps escapes all control characters but DEL.
    return json.dumps(value, **options).replace("\x7f", "\\u007f")


_LACKS_MEMORY = re.compile(
    "RESOURCE_EXHAUSTED|out of memory|MemoryError", re.IGNORECASE
)


def lacks_memory(error: BaseException) -> bool:
    """Return True if an error means that memory of the host or of a device is full."""
    return isinstance(error, MemoryError) or bool(_LACKS_MEMORY.search(str(error)))


_TRACEBACK = "traceback: "
_HINT = "JBIAS_TRACEBACK=1 shows the whole traceback"
_JAX_NOTE = "-" * 20  # The start of jax's notes about hidden frames of tracebacks.


# Raised by an interruption, never by an error of the running code.
_INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit, signals.Interrupted)


class UserCodeError(ValueError):
    """An error in a user's Python file; the text is one line with file and line number."""


@contextlib.contextmanager
def user_code(
    path: str,
    line: int = 0,
    describe_call: Callable[[], str] = lambda: "",
    passing: tuple[type[Exception], ...] = (),
    *,
    catch_all: bool = False,
) -> Iterator[None]:
    """Raise errors of the code in the file `path` as a UserCodeError.

    SystemExit and other subclasses of BaseException count as errors: code that calls
    sys.exit(0) has not finished its work. KeyboardInterrupt and a run's stop signal are raised
    unchanged. With `line` or `catch_all`, os._exit(0) ends the process with exit code 1.

    line: line number in the message if the traceback has no line of the file; 0: such an
      error is raised unchanged, unless `catch_all`.
    describe_call: returns a description of the arguments, for the message; "" for none.
    passing: types of errors that are raised unchanged.
    catch_all: whether to convert errors without a line of the file even if `line` is 0.
    """
    is_user_only = catch_all or line
    try:
        with failing_exit(path) if is_user_only else contextlib.nullcontext():
            yield
    except (UserCodeError, *_INTERRUPTIONS, *passing):
        raise
    except BaseException as error:
        user_frames = [
            (frame_line, frame.f_code.co_name)
            for frame, frame_line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == path
        ]
        if isinstance(error, SyntaxError) and error.filename == path:
            user_frames.append((error.lineno or 1, "<module>"))
        if not (user_frames or is_user_only):
            raise
        error_line, function = user_frames[-1] if user_frames else (line, "")
        where = f"{path}:{error_line}" if error_line else path
        if function not in ("", "<module>"):
            where += f", in {function}"
        is_traced_value = type(error).__name__ in _TRACED_VALUES
        sentences = [
            f"error in {where}: {_type_and_text(error)}",
            "" if is_traced_value else describe_call(),
            *notes(error),
            _HINT,
        ]
        raise UserCodeError("; ".join(filter(None, sentences))) from error


@contextlib.contextmanager
def failing_exit(path: str) -> Iterator[None]:
    """Make os._exit(0) in the context end the process with exit code 1 and a message.

    path: the user's file, for the message. Forked child processes exit normally.
    """
    exit_now, process, is_inside = os._exit, os.getpid(), True

    def exit_failing(status: int) -> None:
        """End the process; exit with code 1 and a message instead of code 0."""
        if status == 0 and is_inside and os.getpid() == process:
            line = f"jbias: error in {path}: os._exit(0) ended the program; remove the call"
            print(line, file=sys.stderr, flush=True)
            status = 1
        exit_now(status)

    os._exit = exit_failing
    try:
        yield
    finally:
        is_inside = False  # Another thread may still refer to exit_failing.
        os._exit = exit_now


def describe_error(error: Exception) -> str:
    """Return an error's text and its notes on one line, joined by semicolons."""
    return "; ".join([files.describe_error(error), *notes(error)])


def save_traceback(
    error: Exception, workdir: os.PathLike, guard: Callable[[], None] = lambda: None
) -> None:
    """Write the traceback to traceback.txt in the workdir, and add its path as a note.

    guard: raises an OSError if this process may not write to the workdir; then, and if the
    disk fails, nothing is written and no error is raised.
    """
    from etils import epath

    path = epath.Path(workdir) / "traceback.txt"
    with contextlib.suppress(OSError):
        guard()
        files.write(path, "".join(traceback.format_exception(error)))
        error.add_note(f"{_TRACEBACK}{path}")


def describe_crash(error: Exception) -> str:
    """Return a line about an unexpected error: its type, text, location in the code and notes.

    Unless `save_traceback` has saved the traceback, the line names JBIAS_TRACEBACK=1.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = (
        f" ({frames[-1].filename}:{frames[-1].lineno}, {frames[-1].name})"
        if frames
        else ""
    )
    sentences = [_type_and_text(error) + place, *notes(error)]
    if not any(note.startswith(_TRACEBACK) for note in notes(error)):
        sentences.append(_HINT)
    return "; ".join(sentences)


# Errors of jax when Python needs the value of a traced array: the mistake and its remedy.
_TRACED_VALUES = {
    "TracerBoolConversionError": (
        "a Python `if` (or `while`, `and`, `not`) on a traced value; use jnp.where or "
        "jax.lax.cond"
    ),
    "TracerIntegerConversionError": (
        "a traced value as an index or a number of repeats in Python; use jnp.take, or a "
        "number that is known without the images"
    ),
    "TracerArrayConversionError": (
        "a numpy function on a traced array; use the function of jax.numpy"
    ),
    "NonConcreteBooleanIndexError": "a traced mask as an index; use jnp.where",
    "ConcretizationTypeError": (
        "a traced value as a number of Python, as by float(), int() or .item(); keep the "
        "array, and convert its type by .astype"
    ),
}


def _type_and_text(error: BaseException) -> str:
    """Return an error's type and text on one line.

    For mistakes that users of jax often make, a remedy replaces the text.
    """
    if remedy := _TRACED_VALUES.get(type(error).__name__):
        return f"{type(error).__name__}: {remedy}"
    if isinstance(error, SystemExit):
        call = f"sys.exit({error.code!r})"[:200]
        return f"SystemExit: calls {call}; remove that, or raise an error that says why"
    text = " ".join(files.error_text(error).split())[:400]
    return f"{type(error).__name__}: {text}"


def describe_array(array: Any) -> str:
    """Return an array's dtype and shape as text, such as "float32 (2, 3)".

    array: a numpy array. For an array without axes, the result names the Python type of the
    value, such as "a single int, no array", or is "None" for the value None.
    """
    if array.dtype.kind == "O" and array.shape:
        return f"an array of Python objects, not of numbers, of shape {array.shape}"
    if array.shape:
        return f"{array.dtype} {array.shape}"
    value = array.item()
    return "None" if value is None else f"a single {type(value).__name__}, no array"


def join_differences(differences: Sequence[str], most: int = 3) -> str:
    """Return the first `most` differences and the number of further differences, on one line.

    Example: "a: 1 != 2; b: 3 != 4; c: 5 != 6; and 2 more".
    """
    more = len(differences) - most
    rest = [f"and {more} more"] if more > 0 else []
    return "; ".join([*differences[:most], *rest])


def notes(error: BaseException) -> list[str]:
    """Return the notes on an error, without jax's notes about hidden frames."""
    all_notes = getattr(error, "__notes__", [])
    return [note for note in all_notes if not note.startswith(_JAX_NOTE)]


def align_columns(rows: Iterable[Sequence[object]]) -> list[str]:
    """Return one line of text per row, with aligned columns.

    Rows may differ in length. The last cell of a row does not widen its column.
    """
    text_rows = [[printable(str(cell)) for cell in row] for row in rows]
    columns = itertools.zip_longest(*(row[:-1] for row in text_rows), fillvalue="")
    widths = [max(map(len, column)) for column in columns] + [0]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in text_rows]


# Packages of the extra `train`. Reports and statistics of decisions and scores work
# without them.
_TRAINING_PACKAGES = {
    "array_record",
    "flax",
    "google",
    "grain",
    "jax",
    "jaxlib",
    "ml_collections",
    "optax",
    "orbax",
    "safetensors",
    "sklearn",
    "tensorflow_datasets",
    "tensorstore",
    "threadpoolctl",
    "yaml",
}


def missing_package(error: ModuleNotFoundError) -> str:
    """Return a line with the command that installs the missing package of an import error.

    "" if the package is not one of the extra `train`.
    """
    if (error.name or "").partition(".")[0] not in _TRAINING_PACKAGES:
        return ""
    return (
        f"needs {error.name}, which is not installed: pip install 'jbias[train]', "
        "or 'jbias[gpu]', or 'jbias[tpu]'"
    )
