"""Reader of published weight files, checked by git blob ids, and of .npz files of weights.

A git blob id is sha1("blob <bytes>" + NUL + content). The web page of a file in a repository
shows the blob id, and `git hash-object FILE` prints it.
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
_MAX_COMPRESSION = 100  # Weights hardly compress; a file that expands more is refused.


class PublishedWeights(NamedTuple):
    """A set of published files and their conversion to the arrays of a network."""

    name: str
    title: str  # A few words for messages.
    files: Mapping[str, str]  # File name -> git blob id.
    url: str  # Page to download the files from.
    alternative: str  # The setting that works without the files.
    # {file name: its arrays} -> converted arrays.
    convert: Callable[[Mapping[str, Arrays]], dict[str, np.ndarray]]
    shapes: Shapes  # Shapes of the converted arrays.
    # For networks of several sizes: converted arrays -> the shapes of their network.
    shapes_of: Callable[[Arrays], Shapes] | None = None


def read_folder(published: PublishedWeights, folder: Path) -> dict[str, np.ndarray]:
    """Return the converted arrays, by name, of the published files in a folder.

    ValueError, one line, if a file is missing or has another blob id, or if the arrays do not
    have the names and shapes of `published`.
    """
    states = {}
    for file, blob in published.files.items():
        path = pathlib.Path(folder) / file
        if not path.is_file():
            raise _needs(published, f"needs {file} in {os.fspath(folder)}, got none")
        actual_blob = blob_id(path)
        if actual_blob != blob:
            need = f"needs {path} with git blob id {blob}, got {actual_blob}"
            raise _needs(published, need)
        states[file] = torch_files.read(path)
    arrays = published.convert(states)
    check_shapes(published.shapes, arrays, os.fspath(folder))
    return dict(arrays)


def load(published: PublishedWeights, path: Path | None) -> dict[str, np.ndarray]:
    """Return the converted arrays, by name, at a path.

    path: a file of `write_npz`, or a folder of the published files. ValueError, with the page
    to download from, if the path is missing or not given. ValueError for a damaged file and for
    arrays of other names or shapes.
    """
    if path is None:
        raise _needs(published, "needs weights, got None")
    path = pathlib.Path(path).expanduser()
    if path.is_dir():
        return read_folder(published, path)
    if not path.is_file():
        raise _needs(published, f"needs weights at {path}, got no such file")
    arrays, shapes = read_npz(path), published.shapes
    if published.shapes_of:
        # Arrays of another kind of network: check_shapes reports what is missing.
        with contextlib.suppress(KeyError, IndexError):
            shapes = published.shapes_of(arrays)
    check_shapes(shapes, arrays, f"models.{published.name}: {os.fspath(path)}")
    return arrays


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file as float32, by name.

    ValueError if the file cannot be read or has anything but real numbers.
    """
    try:
        arrays = opening.read_npz(path, times=_MAX_COMPRESSION, free=0)
        return {
            name: array.astype(np.float32, casting="same_kind")
            for name, array in arrays.items()
        }
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(path)}: must be an .npz file of weights, got"
            f" {' '.join(str(error).split())[:600]}; make it again"
        ) from error


def write_npz(path: Path, arrays: Arrays) -> None:
    """Write arrays, by name, as an .npz file; an existing file is replaced in one step."""
    outputs.check_file(path)
    content = io.BytesIO()
    np.savez(content, **arrays)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content.getvalue(), lasting=False)


def blob_id(path: Path) -> str:
    """Return the git blob id of a file's content."""
    path = pathlib.Path(path)
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def check_shapes(shapes: Shapes, arrays: Arrays, where: str) -> None:
    """Raise ValueError unless the arrays have exactly these names and shapes.

    where: path of the file, for the message.
    """
    differing = sorted(set(shapes) ^ set(arrays))
    if differing:
        problem = "lacks" if differing[0] in shapes else "has unknown"
        raise ValueError(
            f"{where}: must hold {len(shapes)} arrays of known names, got one that"
            f" {problem} {differing[0]!r}; make it again"
        )
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(
                f"{where}: {name} must have shape {shape}, got {arrays[name].shape};"
                " make it again"
            )


def _needs(published: PublishedWeights, need: str) -> ValueError:
    """Return the error for missing weights, with the page to download from.

    need: the middle of the message, such as "needs weights, got None".
    """
    files = " and ".join(published.files)
    return ValueError(
        f"models.{published.name}: {published.title} {need}; take {files} from"
        f" {published.url}, then `jbias prepare weights"
        f" --net={published.name} --src=FOLDER --out=FILE`, and set `weights` to FILE;"
        f" without them: {published.alternative}"
    )
