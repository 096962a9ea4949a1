"""Files that are there whole or not at all, and one line where the disk takes none."""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from etils import epath

REMEDY = (
    "what was saved before is whole: make room or bring the disk back, and run the same "
    "command again"
)


def write(path: epath.PathLike, content: str | bytes) -> None:
    """Writes beside `path`, then renames: readers see all of it or nothing."""
    path = epath.Path(path)
    content = content.encode() if isinstance(content, str) else content
    part = path.parent / f".{path.name}.part"
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # Else a loss of power may leave an empty file.
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)  # On a full disk every byte counts.
        raise


def read_json(path: epath.Path, kind: type, remedy: str) -> Any:
    """What a file of JSON holds; ValueError where it holds nothing of that kind."""
    try:
        told = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise ValueError(f"workdir: {path} is not JSON; {remedy}") from None
    if not isinstance(told, kind):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")  # noqa: TRY004
    return told


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Names what could not be written, and what to do; an OSError of one line."""
    try:
        yield
    except OSError as error:
        reason = gist(error)
        raise OSError(f"{what}: cannot be written ({reason}); {REMEDY}") from error


def gist(error: OSError) -> str:
    """What the system said, without number and path."""
    return error.strerror or " ".join(str(error).split())
