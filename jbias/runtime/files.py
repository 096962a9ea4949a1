"""Write files completely or not at all, on a local disk or in gs://, and explain errors.

System errors become one line with the path and a remedy. The operations on gs:// are in
`object_store`, which is imported only for such paths.
"""

import contextlib
import errno
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

PathLike = str | os.PathLike

REMEDY = (
    "all earlier saves are complete: make room or bring the disk back, and run the same "
    "command again"
)

_MAX_FOLDERS = 500  # makedirs recurses once per folder, and Python limits recursion.
_FILE_FOR_FOLDER = "a file is where a folder must be: name another path"
_NO_PERMISSION = "change its permissions, or name another path"
_REMEDIES = {
    errno.ENAMETOOLONG: "shorten it: a name has at most 255 bytes, a path 4,095 and "
    f"{_MAX_FOLDERS} folders",
    errno.EEXIST: _FILE_FOR_FOLDER,
    errno.ENOTDIR: _FILE_FOR_FOLDER,
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.ELOOP: "remove the link that points to itself",
    errno.EISDIR: "a folder is where a file must be: remove it, or name another path",
}
_ERRNO = re.compile(r"\[errno -?\d+\]:? ?", re.IGNORECASE)


def cache_path(name: str) -> pathlib.Path:
    """Return the path of the entry `name` in jbias's cache.

    The cache is the folder $JBIAS_CACHE, or ~/.cache/jbias.
    """
    folder = os.environ.get("JBIAS_CACHE") or "~/.cache/jbias"
    return pathlib.Path(folder).expanduser() / name


def is_remote(path: PathLike) -> bool:
    """Return True if a path has a scheme, such as gs://, which local paths do not have."""
    return "://" in os.fspath(path)


def object_store() -> types.ModuleType:
    """Import and return `jbias.runtime.object_store`, which needs the extra `gcs`."""
    from jbias.runtime import object_store

    return object_store


def resolve(path: PathLike, where: str = "workdir") -> "epath.Path":
    """Return the absolute path of a folder; a gs:// path is returned unchanged.

    where: start of the error message, such as "workdir". ValueError for another object
    store, for gs:// without the package or a login, and for letters that cannot be encoded;
    OSError for a path of too many folders.
    """
    from etils import epath  # Late, for a fast --help: the import is slow.

    text = os.fspath(path)
    text.encode()  # A UnicodeEncodeError here is clearer than one from a later write.
    if not is_remote(path):
        absolute = epath.Path(path).resolve()
        if len(absolute.parts) > _MAX_FOLDERS:
            raise OSError(errno.ENAMETOOLONG, "File name too long", str(absolute))
        return absolute
    if not text.startswith("gs://"):
        raise ValueError(
            f"{where}: {text} is no local directory, and gs:// is the only supported "
            "object store; mount it, or name another"
        )
    require_package(where, text, "gcsfs", "gcs")
    object_store().check(text, where)
    return epath.Path(text)


def require_package(where: str, feature: str, package: str, extra: str) -> None:
    """Raise ValueError unless a package is installed.

    where: start of the error message. feature: the input that needs the package, such as
    "gs://x". extra: jbias's extra that installs the package.
    """
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{where}: {feature} needs the package {package}, which is not installed; "
            f"pip install 'jbias[{extra}]'"
        )


def local_copy(path: PathLike, where: str, *, checkpoints: bool = False) -> PathLike:
    """Return a local path or glob unchanged; copy the files of a gs:// path into the cache.

    For gs:// the path or glob of the copies is returned. where: start of the error message,
    such as "--runs". checkpoints: whether to copy checkpoints of runs, too. ValueError if a
    gs:// path or glob matches nothing, and as in `resolve`.
    """
    if not is_remote(path):
        return path
    resolve(path, where)
    return object_store().fetch(
        os.fspath(path), where, home=cache_path("gs"), checkpoints=checkpoints
    )


def write(path: PathLike, content: str | bytes, *, lasting: bool = True) -> None:
    """Write a file atomically: a temporary file is renamed to `path`.

    content: text is encoded as UTF-8. lasting: whether to sync to disk, so that the file
    survives a loss of power. OSError if the file cannot be written.
    """
    from etils import epath

    path = epath.Path(path)
    content = content.encode() if isinstance(content, str) else content
    if is_remote(path):
        return object_store().write(path, content)
    part = path.parent / f".{path.name}.part"
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            if lasting:  # Otherwise a loss of power may leave an empty file.
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)  # Frees space on a full disk.
        raise


def save(path: "epath.Path", content: str) -> None:
    """Write a text file atomically; a failure raises an OSError of one line with a remedy."""
    with translate_os_errors(str(path)):
        write(path, content)


def append(path: "epath.Path", line: str) -> None:
    """Append a line to a text file; an object store writes it seconds later, or in `flush`."""
    if is_remote(path):
        return object_store().log_of(os.fspath(path)).add(line)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def flush(path: "epath.Path") -> None:
    """Write lines of `append` that are still pending to an object store; OSError on failure.

    Does nothing on a disk.
    """
    if is_remote(path):
        object_store().log_of(os.fspath(path)).flush()


def stop_retrying(path: "epath.Path") -> None:
    """Let later requests to an object store fail without a retry; do nothing on a disk."""
    if is_remote(path):
        object_store().filesystem().hurried = True


def discard(path: "epath.Path") -> None:
    """Remove a file, if it exists, and pending lines of `append`."""
    if is_remote(path):
        object_store().log_of(os.fspath(path)).drop()
    path.unlink(missing_ok=True)


def move(folder: "epath.Path", target: "epath.Path") -> None:
    """Rename a folder to `target`; after a kill, the old or the new folder is complete."""
    if is_remote(folder):
        return object_store().move(folder, target)
    folder.rename(target)


def is_saved(checkpoint: "epath.Path") -> bool:
    """Return True if a checkpoint folder is complete.

    On a disk, orbax renames a folder once it is complete. In an object store, orbax writes a
    marker file last.
    """
    if is_remote(checkpoint):
        return (checkpoint / object_store().MARK).exists()
    return checkpoint.exists()


def free_bytes(folder: "epath.Path") -> int | None:
    """Return the free bytes of a folder's disk; None for an object store."""
    return None if is_remote(folder) else shutil.disk_usage(folder).free


def read_json(path: "epath.Path", kind: type, remedy: str) -> Any:
    """Return the content of a JSON file.

    kind: expected type of the content, such as dict. remedy: the end of the error message,
    such as "delete it". ValueError for invalid JSON or another type; OSError if the file
    cannot be read.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"workdir: {path} is not JSON; {remedy}") from None
    if not isinstance(content, kind):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")  # noqa: TRY004
    return content


@contextlib.contextmanager
def explain_os_errors(where: str) -> Iterator[None]:
    """Replace an OSError inside the context by one with the text "WHERE: PATH: REASON; REMEDY".

    The text is shorter for errors without a path or a known remedy; see `describe_error`.
    where: start of the text.
    """
    try:
        yield
    except OSError as error:
        raise OSError(f"{where}: {describe_error(error)}") from error


@contextlib.contextmanager
def translate_os_errors(target: str) -> Iterator[None]:
    """Replace an OSError in the context by "TARGET: cannot be written (REASON); REMEDY".

    target: name of the file or folder that is written.
    """
    try:
        yield
    except OSError as error:
        reason = system_message(error)
        raise OSError(
            f"{target}: cannot be written ({reason}); {remedy(error)}"
        ) from error


def describe_error(error: Exception) -> str:
    """Return an error's text; for a common system error, with its path and a remedy.

    For a UnicodeEncodeError, the result names the text and a setting of the locale.
    """
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object[:200]!r}: cannot be written as {error.encoding}; the locale "
            f"reads names as {sys.getfilesystemencoding()}: set PYTHONUTF8=1"
        )
    cause, path = _cause(error), getattr(error, "filename", None)
    if cause and path:
        return f"{path}: {cause.reason}; {cause.remedy}"
    return error_text(error)


def error_text(error: BaseException) -> str:
    """Return an error's text without the errno, or the type's name if the text is empty.

    For an OSError, the reason and the paths, such as "No such file or directory: 'x'". For a
    MemoryError without text, "not enough memory".
    """
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        paths = [repr(path) for path in (error.filename, error.filename2) if path]
        text = ": ".join(filter(None, (str(error.strerror), " -> ".join(paths))))
    else:
        text = str(error)
    if isinstance(error, MemoryError) and not text:
        return "not enough memory"
    return _ERRNO.sub("", text) or type(error).__name__


def format_sizes(*sizes: int) -> list[str]:
    """Return sizes, given in bytes, as texts such as "1.50 MiB".

    If two different sizes would have the same text, all are exact: "1,572,864 bytes".
    """
    texts = [format_size(size) for size in sizes]
    if len(set(texts)) < len(set(sizes)):
        return [f"{size:,} bytes" for size in sizes]
    return texts


def format_size(size: int) -> str:
    """Return a size in bytes as text such as "1.50 MiB", in the largest fitting unit."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            num_digits = 2 if size < 10 * unit else 1
            return f"{size / unit:,.{num_digits}f} {name}"
    return f"{size:,.0f} bytes"


def remedy(error: OSError) -> str:
    """Return advice to the user on a system error, such as "free some space"."""
    cause = _cause(error)
    return cause.remedy if cause else getattr(error, "remedy", REMEDY)


def system_message(error: OSError) -> str:
    """Return the text of a system error, without errno and path."""
    cause = _cause(error)
    if cause:
        return cause.reason
    return error.strerror or " ".join(error_text(error).split())


class _Cause(NamedTuple):
    """The reason of a system error, and advice to the user."""

    reason: str
    remedy: str


def _cause(error: Exception) -> _Cause | None:
    """Return the reason why the path in an error is unusable, with advice to the user.

    The reason is a broken link on the path, or belongs to an error code in _REMEDIES. None for
    other errors.
    """
    if not isinstance(error, OSError):
        return None
    path = os.path.abspath(error.filename) if isinstance(error.filename, str) else ""
    candidates = [path, *map(str, pathlib.Path(path).parents)] if path else []
    for candidate in candidates:
        if os.path.islink(candidate) and not os.path.exists(candidate):
            target = os.readlink(candidate)
            return _Cause(
                f"{candidate} is a link to {target}, which does not exist",
                "create the target, or remove the link",
            )
    if error.errno in _REMEDIES:
        return _Cause(
            error.strerror or os.strerror(error.errno), _REMEDIES[error.errno]
        )
    return None
