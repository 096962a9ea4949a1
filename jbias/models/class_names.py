"""Which classes a network decides among, as the file or folder of its weights says."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from jbias.models import safetensors


class Classes(NamedTuple):
    """Names in the order of a network's outputs."""

    names: tuple[str, ...]
    space: str  # Of data.base.SPACES.

    def to_metadata(self) -> dict[str, Any]:
        """As an export's metadata and config.json hold it."""
        return {"class_names": list(self.names), "space": self.space}


def read(path: str | os.PathLike) -> Classes | None:
    """The classes of an export, or of a run or one of its branches; None if unsaid.

    ValueError, one line, where what is said is not names and a space.
    """
    where, path, told = os.fspath(path), pathlib.Path(path), {}
    try:
        if path.is_dir():
            whole = path.resolve()
            whole = whole.parent.parent if whole.parent.name == "vary" else whole
            told = _of_training(whole) or _json(whole / "config.json")
        elif path.suffix == ".safetensors":
            told = json.loads(safetensors.read_metadata(path).get("jbias", "{}"))
    except (json.JSONDecodeError, RecursionError, KeyError, TypeError):
        raise _wrong(where) from None
    if not isinstance(told, Mapping) or "class_names" not in told:
        return None
    names, space = told["class_names"], told.get("space")
    sound = isinstance(names, list) and bool(names)
    if not sound or not all(isinstance(name, str) for name in (*names, space)):
        raise _wrong(where)
    return Classes(tuple(names), space)


def _json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError):
        raise _wrong(os.fspath(path)) from None


def _of_training(workdir: pathlib.Path) -> dict[str, Any]:
    """What a run that was trained here says of its training set, if anything."""
    told = _json(workdir / "provenance.json")
    held = told["data"]["train/0"] if told else {}
    if not isinstance(held, Mapping) or "names" not in held:
        return {}
    return {"class_names": held["names"], "space": held.get("space")}


def _wrong(where: str) -> ValueError:
    return ValueError(
        f"{where}: must say its classes as a list of names and a space; export it anew"
    )
