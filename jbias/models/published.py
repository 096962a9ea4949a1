"""Weights that others published: which files, from where, and are these they?

A file is known by its git blob id, sha1("blob <bytes>" + NUL + content), which the web
page of a repository's file shows and `git hash-object FILE` prints.
"""

import contextlib
import hashlib
import io
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from jbias.models import torch_files
from jbias.runtime import files, outputs
from jbias.untrusted import opening

Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]
Path = str | os.PathLike
_GROWTH = 100  # Weights hardly compress; what does is no file of weights.


class Published(NamedTuple):
    """A set of published files, and the arrays that we make of them."""

    name: str
    title: str  # In a few words.
    files: Mapping[str, str]  # File name -> git blob id.
    url: str  # The page to take them from.
    alternative: str  # The setting that works without them.
    convert: Callable[[Mapping[str, Arrays]], dict[str, np.ndarray]]  # By file name.
    shapes: Shapes  # Of what `convert` returns.
    # Those of such weights, where networks of this kind have several sizes.
    shapes_of: Callable[[Arrays], Shapes] | None = None


def read_folder(published: Published, folder: Path) -> dict[str, np.ndarray]:
    """Reads the published files in a folder and converts them.

    Raises ValueError, one line, where a file is missing or is another.
    """
    states = {}
    for file, blob in published.files.items():
        path = pathlib.Path(folder) / file
        if not path.is_file():
            raise _refusal(published, f"needs {file} in {os.fspath(folder)}, got none")
        if (found := blob_id(path)) != blob:
            need = f"needs {path} with git blob id {blob}, got {found}"
            raise _refusal(published, need)
        states[file] = torch_files.read(path)
    arrays = published.convert(states)
    check_shapes(published.shapes, arrays, os.fspath(folder))
    return dict(arrays)


def load(published: Published, path: Path | None) -> dict[str, np.ndarray]:
    """Reads what `write_npz` wrote, or, given a folder, the published files themselves."""
    if path is None:
        raise _refusal(published, "needs weights, got None")
    path = pathlib.Path(path).expanduser()
    if path.is_dir():
        return read_folder(published, path)
    if not path.is_file():
        raise _refusal(published, f"needs weights at {path}, got no such file")
    arrays, shapes = read_npz(path), published.shapes
    if published.shapes_of:
        # Of another network: the check below says what is missing.
        with contextlib.suppress(KeyError, IndexError):
            shapes = published.shapes_of(arrays)
    check_shapes(shapes, arrays, f"models.{published.name}: {os.fspath(path)}")
    return arrays


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads an .npz file into float32; ValueError where it is damaged or none."""
    try:
        held = opening.npz(path, times=_GROWTH, always=0)
        return {k: v.astype(np.float32, casting="same_kind") for k, v in held.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(path)}: must be an .npz file of weights, got"
            f" {' '.join(str(error).split())[:600]}; make it again"
        ) from error


def write_npz(path: Path, arrays: Arrays) -> None:
    """Writes arrays as .npz, in place of an old file only when whole."""
    outputs.check_file(path)
    content = io.BytesIO()
    np.savez(content, **arrays)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content.getvalue(), lasting=False)


def blob_id(path: Path) -> str:
    """The id that git gives a file's content."""
    path = pathlib.Path(path)
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def check_shapes(shapes: Shapes, arrays: Arrays, where: str) -> None:
    """Refuses weights of another network: names and shapes must be those."""
    missing = sorted(set(shapes) ^ set(arrays))
    if missing:
        odd = "lacks" if missing[0] in shapes else "has unknown"
        raise ValueError(
            f"{where}: must hold {len(shapes)} arrays of known names, got one that"
            f" {odd} {missing[0]!r}; make it again"
        )
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(
                f"{where}: {name} must have shape {shape}, got {arrays[name].shape};"
                " make it again"
            )


def _refusal(published: Published, need: str) -> ValueError:
    files = " and ".join(published.files)
    return ValueError(
        f"models.{published.name}: {published.title} {need}; take {files} from"
        f" {published.url}, then `jbias prepare weights"
        f" --net={published.name} --src=FOLDER --out=FILE`, and set `weights` to FILE;"
        f" without them: {published.alternative}"
    )
