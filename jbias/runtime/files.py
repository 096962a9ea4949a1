"""Files that are written completely or not at all, on a local disk or in gs://.

An error of the system becomes one line that names the path and what to do. What differs
for an object store is in `object_store`, imported only where such a path occurs.
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
from typing import Any

PathLike = str | os.PathLike

REMEDY = (
    "what was saved before is whole: make room or bring the disk back, and run the same "
    "command again"
)

_DEEPEST = 500  # Folders are made from within each other, which Python bounds.
_ELSEWHERE = "a file is where a folder must be: name another path"
_REMEDIES = {
    errno.ENAMETOOLONG: "shorten it: a name has at most 255 bytes, a path 4,095 and "
    f"{_DEEPEST} folders",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), _ELSEWHERE),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "make it yours, or name another"),
    errno.ELOOP: "remove the link that leads to itself",
    errno.EISDIR: "a folder is where a file must be: remove it, or name another path",
}
_NUMBER = re.compile(r"\[errno -?\d+\]:? ?", re.IGNORECASE)


def cache_path(name: str) -> pathlib.Path:
    """A place of that name under $JBIAS_CACHE, or ~/.cache/jbias."""
    folder = os.environ.get("JBIAS_CACHE") or "~/.cache/jbias"
    return pathlib.Path(folder).expanduser() / name


def is_remote(path: PathLike) -> bool:
    """Whether a path is not one of this machine's file systems."""
    return "://" in os.fspath(path)


def object_store() -> types.ModuleType:
    """The module of gs://, which needs the extra `gcs`."""
    from jbias.runtime import object_store

    return object_store


def resolve(path: PathLike, where: str = "workdir") -> "epath.Path":
    """The whole path of a folder; ValueError where it is in a store out of reach, or its
    letters cannot be read, OSError where it is too deep.
    """
    from etils import epath  # Late: it takes long, and --help needs none of it.

    text = os.fspath(path)
    text.encode()  # What a locale misread nobody could write below.
    if not is_remote(path):
        if len((whole := epath.Path(path).resolve()).parts) > _DEEPEST:
            raise OSError(errno.ENAMETOOLONG, "File name too long", str(whole))
        return whole
    if not text.startswith("gs://"):
        raise ValueError(
            f"{where}: {text} is no local directory, and of object stores gs:// alone is "
            "supported; mount it, or name another"
        )
    require_package(where, text, "gcsfs", "gcs")
    object_store().check(text, where)
    return epath.Path(text)


def require_package(where: str, what: str, package: str, extra: str) -> None:
    """Refuses what needs a package that is not installed; the extra brings it."""
    if importlib.util.find_spec(package) is None:
        needs = f"{what} needs the package {package}, which is not installed"
        raise ValueError(f"{where}: {needs}; pip install 'jbias[{extra}]'")


def local_copy(path: PathLike, where: str, *, checkpoints: bool = False) -> PathLike:
    """A path or glob as it is; of an object store, that of a fresh copy in the cache.

    Checkpoints of runs are left out unless asked for. ValueError where nothing is there.
    """
    if not is_remote(path):
        return path
    resolve(path, where)
    home = cache_path("gs")
    return object_store().fetch(os.fspath(path), where, home, checkpoints=checkpoints)


def write(path: PathLike, content: str | bytes, *, lasting: bool = True) -> None:
    """Writes beside `path`, then renames: readers see all of it or nothing.

    `lasting`: also after a loss of power right then.
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
            if lasting:  # Else a loss of power may leave an empty file.
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)  # On a full disk every byte counts.
        raise


def save(path: "epath.Path", content: str) -> None:
    """Writes as `write` does; an OSError of one line names what could not be written."""
    with translate_os_errors(str(path)):
        write(path, content)


def append(path: "epath.Path", line: str) -> None:
    """Adds a line; in an object store it is there some seconds later, or at `flush`."""
    if is_remote(path):
        return object_store().log_of(os.fspath(path)).add(line)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def flush(path: "epath.Path") -> None:
    """Writes what was appended; OSError where an object store does not take it."""
    if is_remote(path):
        object_store().log_of(os.fspath(path)).flush()


def stop_retrying(path: "epath.Path") -> None:
    """After an error: what an object store then fails to do is not tried again."""
    if is_remote(path):
        object_store().filesystem().hurried = True


def discard(path: "epath.Path") -> None:
    """Removes a file, if it is there, and what was to be appended."""
    if is_remote(path):
        object_store().log_of(os.fspath(path)).drop()
    path.unlink(missing_ok=True)


def move(folder: "epath.Path", target: "epath.Path") -> None:
    """Gives a folder another name; a kill leaves one of the two whole."""
    if is_remote(folder):
        return object_store().move(folder, target)
    folder.rename(target)


def is_saved(checkpoint: "epath.Path") -> bool:
    """Whether a folder that orbax writes is there whole; on a disk it is renamed last."""
    if is_remote(checkpoint):
        return (checkpoint / object_store().MARK).exists()
    return checkpoint.exists()


def free_bytes(folder: "epath.Path") -> int | None:
    """Bytes that can be written; None where that has no bound."""
    return None if is_remote(folder) else shutil.disk_usage(folder).free


def read_json(path: "epath.Path", kind: type, remedy: str) -> Any:
    """What a file of JSON holds; ValueError where it holds nothing of that kind."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"workdir: {path} is not JSON; {remedy}") from None
    if not isinstance(content, kind):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")  # noqa: TRY004
    return content


@contextlib.contextmanager
def explain_os_errors(where: str) -> Iterator[None]:
    """Raise an OSError of one line that names the path that could not be read or opened."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{where}: {describe_error(error)}") from error


@contextlib.contextmanager
def translate_os_errors(what: str) -> Iterator[None]:
    """Names what could not be written, and what to do; an OSError of one line."""
    try:
        yield
    except OSError as error:
        why = system_message(error)
        raise OSError(f"{what}: cannot be written ({why}); {remedy(error)}") from error


def describe_error(error: Exception) -> str:
    """What an error says; where that is the system's word, with what to do about it."""
    if isinstance(error, UnicodeEncodeError):
        locale = f"the locale reads names as {sys.getfilesystemencoding()}"
        what = f"{error.object[:200]!r}: cannot be written as {error.encoding}"
        return f"{what}; {locale}: set PYTHONUTF8=1"
    known, path = _cause(error), getattr(error, "filename", None)
    return f"{path}: {'; '.join(known)}" if known and path else error_text(error)


def error_text(error: BaseException) -> str:
    """Return what an error says, without the system's number; its type if nothing."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        paths = [repr(path) for path in (error.filename, error.filename2) if path]
        text = ": ".join(filter(None, (str(error.strerror), " -> ".join(paths))))
    else:
        text = str(error)
    if isinstance(error, MemoryError) and not text:
        return "not enough memory"
    return _NUMBER.sub("", text) or type(error).__name__


def format_sizes(*sizes: int) -> list[str]:
    """Return numbers of bytes with a unit: "1.5 MiB"; exact where two would look alike."""
    texts = [format_size(size) for size in sizes]
    if len(set(texts)) < len(set(sizes)):
        return [f"{size:,} bytes" for size in sizes]
    return texts


def format_size(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is at least one."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:,.{2 if size < 10 * unit else 1}f} {name}"
    return f"{size:,.0f} bytes"


def remedy(error: OSError) -> str:
    """What to do about it."""
    cause = _cause(error)
    return cause[1] if cause else getattr(error, "remedy", REMEDY)


def system_message(error: OSError) -> str:
    """What the system said, without number and path."""
    cause = _cause(error)
    return cause[0] if cause else error.strerror or " ".join(error_text(error).split())


def _cause(error: Exception) -> tuple[str, str] | None:
    """What is so, and what to do about it, where the path and not the disk is to blame."""
    if not isinstance(error, OSError):
        return None  # Of a package that says the system's word otherwise.
    path = os.path.abspath(error.filename) if isinstance(error.filename, str) else ""
    for at in (path, *map(str, pathlib.Path(path).parents)) if path else ():
        if os.path.islink(at) and not os.path.exists(at):
            leads = f"{at} is a link to {os.readlink(at)}, which is not there"
            return leads, "make what it leads to, or remove the link"
    if error.errno in _REMEDIES:
        return error.strerror or os.strerror(error.errno), _REMEDIES[error.errno]
    return None
