"""Reader of the names of a network's classes, from the file or folder of its weights."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from jbias.models import safetensors


class Classes(NamedTuple):
    """Names of classes, in the order of a network's outputs, and their label space."""

    names: tuple[str, ...]
    space: str  # A key of data.base.SPACES.

    def to_metadata(self) -> dict[str, Any]:
        """Return {"class_names": list, "space": text}, for an export or for config.json."""
        return {"class_names": list(self.names), "space": self.space}


def read(path: str | os.PathLike) -> Classes | None:
    """Return the classes of an export, a run or a branch of a run; None if not stored.

    path: a .safetensors file, or the workdir of a run or branch; None is returned for any
    other file. ValueError, one line, if the stored entry is not a list of names and a label
    space, or the file is damaged. OSError if a .safetensors file cannot be opened.
    """
    where, path, metadata = os.fspath(path), pathlib.Path(path), {}
    try:
        if path.is_dir():
            workdir = path.resolve()
            if workdir.parent.name == "vary":
                workdir = workdir.parent.parent
            metadata = _from_provenance(workdir) or _read_json(workdir / "config.json")
        elif path.suffix == ".safetensors":
            metadata = json.loads(safetensors.read_metadata(path).get("jbias", "{}"))
    except (json.JSONDecodeError, RecursionError, KeyError, TypeError):
        raise _invalid_classes(where) from None
    if not isinstance(metadata, Mapping) or "class_names" not in metadata:
        return None
    names, space = metadata["class_names"], metadata.get("space")
    is_valid = isinstance(names, list) and bool(names)
    if not is_valid or not all(isinstance(name, str) for name in (*names, space)):
        raise _invalid_classes(where)
    return Classes(tuple(names), space)


def _read_json(path: pathlib.Path) -> Any:
    """Return the content of a JSON file, {} if there is no such file.

    ValueError if the file is not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError):
        raise _invalid_classes(os.fspath(path)) from None


def _from_provenance(workdir: pathlib.Path) -> dict[str, Any]:
    """Return {"class_names", "space"} of a run's training set; {} if the run stores no names."""
    provenance = _read_json(workdir / "provenance.json")
    train_set = provenance["data"]["train/0"] if provenance else {}
    if not isinstance(train_set, Mapping) or "names" not in train_set:
        return {}
    return {"class_names": train_set["names"], "space": train_set.get("space")}


def _invalid_classes(where: str) -> ValueError:
    """Return the error for invalid classes; where: path of the file, for the message."""
    return ValueError(
        f"{where}: its classes must be a list of names and a label space; export the "
        "network again"
    )
