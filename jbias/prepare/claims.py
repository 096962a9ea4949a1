"""What a folder of made images was made by: noted beside it, and held to."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


def refuse_others(
    where: str, folder: pathlib.Path, split: str, own: Mapping[str, Any]
) -> None:
    """Refuses folder/split if it holds images of anything but these settings."""
    path = folder / f"{split}.json"
    if path.exists():
        held = json.loads(path.read_text())
        other = [key for key in own if held.get(key) != own[key]]
        if other:
            key = other[0]
            raise ValueError(
                f"{where}: {folder / split} must hold images of these settings, got"
                f" others: {key} is {held.get(key)!r} there, {own[key]!r} here; name"
                " another --out"
            )
    elif (folder / split).exists():
        raise ValueError(
            f"{where}: {folder / split} must be new, got a folder made by something"
            " else; name another --out"
        )


def claim(where: str, folder: pathlib.Path, split: str, own: Mapping[str, Any]) -> None:
    """Notes the settings in folder/split.json, once it is sure that none are others."""
    refuse_others(where, folder, split, own)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{split}.json.part"
    part.write_text(json.dumps(own, indent=1) + "\n")
    os.replace(part, folder / f"{split}.json")
