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
    where, path = os.fspath(path), pathlib.Path(path)
    if path.is_dir():
        whole = path.resolve()
        whole = whole.parent.parent if whole.parent.name == "vary" else whole
        return _trained(where, whole) or _said(where, _json(whole / "config.json"))
    if path.suffix != ".safetensors":
        return None
    try:
        return _said(where, json.loads(safetensors.read(path)[1].get("jbias", "{}")))
    except (json.JSONDecodeError, RecursionError):
        raise _wrong(where) from None


def _json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text()) if path.is_file() else {}
    except (ValueError, RecursionError):
        raise _wrong(os.fspath(path)) from None


def _trained(where: str, workdir: pathlib.Path) -> Classes | None:
    """Of a run that was trained here; its training set tells."""
    told = _json(workdir / "provenance.json")
    try:
        held = told["data"]["train/0"] if told else {}
    except (KeyError, TypeError):
        raise _wrong(where) from None
    if not isinstance(held, Mapping) or "names" not in held:
        return None
    return _said(where, {"class_names": held["names"], "space": held.get("space")})


def _said(where: str, told: Any) -> Classes | None:
    if not isinstance(told, Mapping) or "class_names" not in told:
        return None
    names, space = told["class_names"], told.get("space")
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(name, str) for name in (*names, space))
    ):
        raise _wrong(where)
    return Classes(tuple(names), space)


def _wrong(where: str) -> ValueError:
    return ValueError(
        f"{where}: must say its classes as a list of names and a space; export it anew"
    )
