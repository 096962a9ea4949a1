"""Files that a command may replace: those that jbias wrote, and no others.

A person may name a folder for a report in which other files are. Nothing there is
overwritten, removed, or written through a link; the refusal comes before anything is
computed where the names are known by then, and else before anything is written.
"""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Collection, Iterable

from jbias.runtime import files

PathLike = str | os.PathLike
KINDS = {  # How files of a kind begin.
    ".png": b"\x89PNG",
    ".pdf": b"%PDF",
    ".npz": b"PK",
    ".svg": b"<?xml",
}
_REPORT_KEYS = ("headline", "basis", "files")
# What lies at the top of reports, of this version and of older ones.
REPORT_NAMES = ("index.html", "results.json", "methods.md", "methods.bib")
REPORT_NAMES += ("tables", "figures")


def report_files(folder: PathLike) -> frozenset[str]:
    """Return the files that a report in a folder lists as its own; none without a report.

    A report says them in results.json, beside its headline and what that rests on.
    """
    try:
        tree = json.loads((pathlib.Path(folder) / "results.json").read_text("utf-8"))
        names = [str(name) for name in tree["files"]]
        is_report = all(key in tree for key in _REPORT_KEYS)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return frozenset()
    return frozenset(names) if is_report and "index.html" in names else frozenset()


def check_report_folder(folder: PathLike, more: Collection[str] = ()) -> None:
    """Raise ValueError where a folder has files that a report would overwrite.

    Called before anything is computed: a folder with a report is free for the next one, and
    one without may have files of other names alone. more: names besides those of all reports.
    """
    folder = pathlib.Path(folder)
    if report_files(folder):
        check_report_files(folder, REPORT_NAMES[:2])
        return
    for name in (*REPORT_NAMES, *more):
        if os.path.lexists(folder / name):
            _refuse(folder, name, "is there already, and no report of jbias wrote it")


def check_report_files(folder: PathLike, names: Iterable[str]) -> None:
    """Raise ValueError where a file of a report is there and no earlier report wrote it."""
    folder, known = pathlib.Path(folder), report_files(folder)
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
        if path.exists() and name not in known:
            _refuse(folder, name, "is there already, and no report of jbias wrote it")


def removable(folder: PathLike, names: Collection[str]) -> list[pathlib.Path]:
    """Return files of an earlier report that a new one lacks, of `names`.

    Links, and files behind a link anywhere below the folder, stay.
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
    """Raise ValueError where no file can be written into a folder, which need not exist.

    Leaves nothing behind: a folder that was made for the check is removed again.
    """
    path = pathlib.Path(folder)
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        why = files.system_message(error)
        raise ValueError(
            f"{flag}: {path} cannot be written ({why}); name another folder"
        ) from error
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


def check_file(path: PathLike, flag: str = "--out") -> None:
    """Raise ValueError where a path is there and no file of the kind that its name says.

    A figure replaces a figure, and weights replace weights; nothing replaces a text, a
    folder or a link.
    """
    path = pathlib.Path(path)
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise ValueError(
            f"{flag}: {path} is no plain file; remove it or name another file"
        )
    start = KINDS.get(path.suffix.lower())
    with path.open("rb") as file:
        content = file.read(16)
    if start is None or content and not content.startswith(start):
        raise ValueError(
            f"{flag}: {path} is there already and no {path.suffix or 'such'} file of jbias; "
            "remove it or name another file"
        )


def check_no_link(path: PathLike, flag: str = "--out") -> None:
    """Raise ValueError where a path is a link, through which others' files are changed."""
    if os.path.islink(path):
        must = f"{flag}: {path} must be no link, got one to {os.readlink(path)!r}"
        raise ValueError(f"{must}; remove it or name another folder")


def check_made_by(path: PathLike, made_by: str, *, flag: str) -> None:
    """Raise ValueError where a path is there and no JSON file that `made_by` wrote.

    Such a file is an object whose entry "made_by" says so.
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
            f"{flag}: {path} is there already and {made_by} did not write it; "
            "remove it or name another file"
        )


def _refuse(folder: pathlib.Path, name: str, why: str) -> None:
    raise ValueError(f"--out: {folder / name} {why}; remove it or name another folder")
