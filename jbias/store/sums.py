"""What the files of a run are known by: size and CRC-32 of each, in its sums.json.

Sealed are records, decisions, config.json and provenance.json. Logs, progress.json and
costs.json are not: they change all the time and hold no result; checkpoints have sums of
their own. A file is sealed after it is written, and unsealed before it is written again:
what a kill leaves between the two is not sealed, and never counts as damaged.
"""

import json
import os
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from jbias.store import disk

NAME = "sums.json"
FOLLOWER = "evaluate.sums.json"  # Of another process, which evaluates.
FACTS = ("config.json", "provenance.json")
# By the path in the workdir: [bytes, CRC-32], or as it was once the CRC-32 alone.
Sums = Mapping[str, Any]


def of(content: bytes) -> list[int]:
    """What content is known by."""
    return [len(content), zlib.crc32(content)]


def harm(path: epath.PathLike, held: Any, *, quick: bool = False) -> str:
    """What has befallen a file that is known by `held`; "" nothing.

    `quick`: by its size alone.
    """
    path = epath.Path(path)
    if not path.exists():
        return "is gone"
    if quick and isinstance(held, list):
        return "is damaged" if path.stat().length != held[0] else ""
    found = of(path.read_bytes())
    return "is damaged" if held not in (found, found[1]) else ""


def write(workdir: epath.Path, files: Sums, name: str = NAME) -> None:
    """Seals these files, and no others."""
    told = {"sum": _sum(files), "files": files}
    disk.keep(workdir / name, json.dumps(told))


def read(workdir: epath.PathLike, name: str = NAME) -> dict[str, Any]:
    """The sums of a run; empty where it has none. ValueError where they are damaged."""
    path = epath.Path(workdir) / name
    if not path.exists():
        return {}
    remedy = "restore it, or delete it: files are then taken as they are"
    told = disk.read_json(path, dict, remedy)
    if not isinstance(told.get("files"), dict) or told.get("sum") != _sum(
        told["files"]
    ):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")
    return told["files"]


def _sum(files: Sums) -> int:
    return zlib.crc32(json.dumps(files, sort_keys=True).encode())


def of_folder(folder: os.PathLike) -> dict[str, Any]:
    """The sums of a workdir, or of that of a branch in it, by the path in that folder."""
    folder, inside = pathlib.Path(folder), ""
    if folder.parent.name == "vary":
        folder, inside = folder.parents[1], f"vary/{folder.name}/"
    found = {**read(folder, FOLLOWER), **read(folder)}
    return {k.removeprefix(inside): v for k, v in found.items() if k.startswith(inside)}


def amiss(
    workdir: epath.PathLike, held: Sums, *, quick: bool = False
) -> Iterator[tuple[str, str]]:
    """The files that are not as they were sealed, and what has befallen each."""
    for name, known in held.items():
        if what := harm(epath.Path(workdir) / name, known, quick=quick):
            yield name, what


def check(folder: os.PathLike, wanted: Callable[[str], bool]) -> None:
    """Refuses a file that is not as it was sealed, and records that are gone."""
    held = {k: v for k, v in of_folder(folder).items() if wanted(k)}
    for name, what in amiss(folder, held):
        if what == "is gone" and not is_record(name):
            continue  # Whoever needs it says so.
        raise ValueError(
            f"{pathlib.Path(folder) / name} {what}: it is not as the run wrote it "
            f"({NAME}); the run's command puts records back from their checkpoints; else "
            f"restore it, or delete {NAME} to take all files as they are"
        )


def is_fact(name: str) -> bool:
    """Whether it says what a run, or a branch of it, is."""
    return name.rpartition("/")[2] in FACTS


def is_record(name: str) -> bool:
    """Whether it has the records of a step."""
    return name.endswith(".jsonl")


def told(files: Iterable[tuple[str, str]]) -> str:
    """Names files that are amiss, in short."""
    first, *others = [f"{name} {what}" for name, what in files]
    return first + f" (and {len(others)} more)" * bool(others)
