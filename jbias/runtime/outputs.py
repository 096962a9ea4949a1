"""Checks that a command overwrites no file except files that jbias wrote.

A user may name a folder for a report that contains other files. Such files are never
overwritten, removed, or changed through a link. The checks run before anything is computed if
the names of the new files are known by then, otherwise before any write.
"""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Collection, Iterable

from jbias.runtime import files

PathLike = str | os.PathLike
KINDS = {  # The first bytes of a file, by its extension.
    ".png": b"\x89PNG",
    ".pdf": b"%PDF",
    ".npz": b"PK",
    ".svg": b"<?xml",
}
_REPORT_KEYS = ("headline", "basis", "files")
# Files and folders at the top of reports, of this version and of older versions.
REPORT_NAMES = (
    "index.html",
    "results.json",
    "methods.md",
    "methods.bib",
    "tables",
    "figures",
)


def report_files(folder: PathLike) -> frozenset[str]:
    """Return the relative paths, as text, of the files that a report's results.json lists.

    Empty if the folder has no report of jbias.
    """
    try:
        tree = json.loads((pathlib.Path(folder) / "results.json").read_text("utf-8"))
        names = [str(name) for name in tree["files"]]
        is_report = all(key in tree for key in _REPORT_KEYS)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return frozenset()
    return frozenset(names) if is_report and "index.html" in names else frozenset()


def check_report_folder(folder: PathLike, extra_names: Collection[str] = ()) -> None:
    """Raise ValueError if a folder has files that a report would overwrite.

    Files of an earlier report may be overwritten. extra_names: files of the new report in
    addition to REPORT_NAMES. Call this before anything is computed.
    """
    folder = pathlib.Path(folder)
    if report_files(folder):
        check_report_files(folder, REPORT_NAMES[:2])
        return
    for name in (*REPORT_NAMES, *extra_names):
        if os.path.lexists(folder / name):
            _refuse(folder, name, _NOT_A_REPORT)


def check_report_files(folder: PathLike, names: Iterable[str]) -> None:
    """Raise ValueError if a file exists in the folder and no report of jbias wrote it.

    names: paths in the folder of the files to write. ValueError also if there is a link or a
    folder with such a name, or if a folder in a name is a link or a file.
    """
    folder, known_files = pathlib.Path(folder), report_files(folder)
    for name in names:
        *parents, _ = pathlib.PurePath(name).parts
        path = folder
        for part in parents:
            path = path / part
            if path.is_symlink():
                _refuse(folder, str(path.relative_to(folder)), "is a link")
            if path.exists() and not path.is_dir():
                _refuse(
                    folder, str(path.relative_to(folder)), "is a file, not a folder"
                )
        path = folder / name
        if path.is_symlink():
            _refuse(folder, name, "is a link")
        if path.is_dir():
            _refuse(folder, name, "is a folder, not a file")
        if path.exists() and name not in known_files:
            _refuse(folder, name, _NOT_A_REPORT)


def removable(folder: PathLike, names: Collection[str]) -> list[pathlib.Path]:
    """Return the paths of tables and figures of the earlier report that can be removed.

    The result has the files in `folder` that the earlier report lists and the new report does not
    have, sorted. names: files of the new report, as paths in the folder. Links, and files
    below links, are never returned.
    """
    folder = pathlib.Path(folder)
    resolved = folder.resolve()
    paths = []
    for name in sorted(report_files(folder) - set(names)):
        is_inside = name.startswith(("tables/", "figures/")) and ".." not in name
        path = folder / name
        # Equal where no part of the name is a link.
        if is_inside and path.is_file() and path.resolve() == resolved / name:
            paths.append(path)
    return paths


def check_writable_folder(folder: PathLike, flag: str = "--out") -> None:
    """Raise ValueError if no file can be written into a folder, which need not exist.

    flag: start of the error message. A missing folder is created for the check and removed.
    """
    path = pathlib.Path(folder)
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = files.system_message(error)
        raise ValueError(
            f"{flag}: {path} cannot be written ({reason}); name another folder"
        ) from error
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


def check_file(path: PathLike, flag: str = "--out") -> None:
    """Raise ValueError if a path exists, unless it is a file of the type of its extension.

    So a new figure may replace a figure, and new weights may replace weights. The first bytes
    of a file show its type (see KINDS); an empty file with an extension in KINDS passes, too.
    flag: start of the error message.
    """
    path = pathlib.Path(path)
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise ValueError(
            f"{flag}: {path} is no plain file; remove it or name another file"
        )
    first_bytes = KINDS.get(path.suffix.lower())
    with path.open("rb") as file:
        content = file.read(16)
    if first_bytes is None or content and not content.startswith(first_bytes):
        raise ValueError(
            f"{flag}: {path} exists already and is no {path.suffix or 'such'} file of jbias; "
            "remove it or name another file"
        )


def check_no_link(path: PathLike, flag: str = "--out") -> None:
    """Raise ValueError if a path is a link, because writing would change files elsewhere.

    flag: start of the error message.
    """
    if os.path.islink(path):
        raise ValueError(
            f"{flag}: {path} must be no link, got a link to {os.readlink(path)!r}; "
            "remove it or name another folder"
        )


def check_made_by(path: PathLike, made_by: str, *, flag: str) -> None:
    """Raise ValueError if a path exists, unless it is a JSON file of the same program.

    made_by: name of the program, the value of the entry "made_by" in its files. flag: start
    of the error message.
    """
    path = pathlib.Path(path).expanduser()
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise ValueError(
            f"{flag}: {path} is no plain file; remove it or name another file"
        )
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("made_by") != made_by:
        raise ValueError(
            f"{flag}: {path} exists already and {made_by} did not write it; "
            "remove it or name another file"
        )


_NOT_A_REPORT = "exists already, and no report of jbias wrote it"


def _refuse(folder: pathlib.Path, name: str, reason: str) -> None:
    """Raise ValueError for the file `name` of a folder; reason: why it cannot be written."""
    raise ValueError(
        f"--out: {folder / name} {reason}; remove it or name another folder"
    )
