"""The checksums of a run's files: size and CRC-32 of each, in its sums.json.

Covered are records, decisions, config.json and provenance.json. Logs, progress.json and
costs.json are not: they change all the time and hold no result; checkpoints have checksums
of their own. A checksum is noted after its file is written, and removed before the file is
written again: what a kill leaves between the two has none, and never counts as damaged.
"""

import json
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any

from etils import epath

from jbias.runtime import files

NAME = "sums.json"
FOLLOWER = "evaluate.sums.json"  # Of another process, which evaluates.
FACTS = ("config.json", "provenance.json")
# By the path in the workdir: [bytes, CRC-32], or as it was once the CRC-32 alone.
Checksums = Mapping[str, Any]


def checksum(content: bytes) -> list[int]:
    """Return what content is known by: its bytes and CRC-32."""
    return [len(content), zlib.crc32(content)]


def checksum_of_file(path: pathlib.Path, buffer: memoryview) -> list[int]:
    """Return `checksum` of a file's content, which is read piece by piece into a buffer."""
    size = crc = 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            size, crc = size + count, zlib.crc32(buffer[:count], crc)
    return [size, crc]


def is_same(held: Any, other: Any) -> bool:
    """Return whether two sums are of the same content, in either of their two forms."""
    if isinstance(held, list) and isinstance(other, list):
        return held == other
    crc, other_crc = (x[1] if isinstance(x, list) else x for x in (held, other))
    return crc == other_crc


def damage(path: epath.PathLike, held: Any, *, quick: bool = False) -> str:
    """What has befallen a file that is known by `held`; "" nothing.

    `quick`: by its size alone.
    """
    path = epath.Path(path)
    try:
        if quick and isinstance(held, list):
            whole = path.stat().length == held[0]
        else:
            found = checksum(path.read_bytes())
            whole = held in (found, found[1])
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    return "" if whole else "is damaged"


def write(workdir: epath.Path, sums: Checksums, name: str = NAME) -> None:
    """Seals these files, and no others."""
    content = json.dumps({"sum": _checksum_of_all(sums), "files": sums})
    files.save(workdir / name, content)


def read(workdir: epath.PathLike, name: str = NAME) -> dict[str, Any]:
    """The sums of a run; empty where it has none. ValueError where they are damaged."""
    path = epath.Path(workdir) / name
    if not path.exists():
        return {}
    remedy = "restore it, or delete it: files are then taken as they are"
    content = files.read_json(path, dict, remedy)
    sums = content.get("files")
    if not isinstance(sums, dict) or content.get("sum") != _checksum_of_all(sums):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")
    return sums


def _checksum_of_all(sums: Checksums) -> int:
    return zlib.crc32(json.dumps(sums, sort_keys=True).encode())


def read_folder(folder: epath.PathLike, *, follower: bool = False) -> dict[str, Any]:
    """The sums of a workdir, or of that of a branch in it, by the path in that folder.

    `follower`: only of what another process evaluated, and the run itself did not since.
    """
    folder, inside = epath.Path(folder), ""
    own = any((folder / name).exists() for name in (NAME, FOLLOWER))
    if folder.parent.name == "vary" and not own:
        folder, inside = folder.parents[1], f"vary/{folder.name}/"
    found, held = read(folder, FOLLOWER), read(folder)
    found = {k: v for k, v in found.items() if k not in held}
    found |= {} if follower else held
    return {k.removeprefix(inside): v for k, v in found.items() if k.startswith(inside)}


def find_damaged(
    workdir: epath.PathLike, held: Checksums, *, quick: bool = False
) -> Iterator[tuple[str, str]]:
    """The files that are not as they were sealed, and what has befallen each.

    In an object store decisions are known by their size alone, and many are asked for
    at once.
    """
    remote = files.is_remote(workdir)

    def found(name: str) -> str:
        size = quick or remote and not is_needed(name)
        return damage(epath.Path(workdir) / name, held[name], quick=size)

    with futures.ThreadPoolExecutor(16) as pool:  # A disk needs none of its threads.
        several = pool.map if remote else map
        yield from ((k, what) for k, what in zip(held, several(found, held)) if what)


def check(folder: epath.PathLike, wanted: Callable[[str], bool]) -> None:
    """Refuses a file that is not as it was sealed; records and facts that are gone."""
    held = {k: v for k, v in read_folder(folder).items() if wanted(k)}
    for name, what in find_damaged(folder, held):
        if what == "is gone" and not is_needed(name):
            continue  # Whoever needs it says so.
        if read_folder(folder).get(name) != held[name]:
            return check(folder, wanted)  # It is just being written anew.
        seal = FOLLOWER if name in read_folder(folder, follower=True) else NAME
        anew = "the run's command, or jbias evaluate --follow, makes it anew from its "
        anew = f"{anew}checkpoint; else " * is_record(name)
        raise ValueError(
            f"{epath.Path(folder) / name} {what}: it is not as the run wrote it ({seal}); "
            f"{anew}restore it, or delete {seal} to take all files as they are"
        )


def is_fact(name: str) -> bool:
    """Whether it says what a run, or a branch of it, is."""
    return name.rpartition("/")[2] in FACTS


def is_needed(name: str) -> bool:
    """Whether it has records, or says what a run is: there must be all of these."""
    return is_record(name) or is_fact(name)


def is_record(name: str) -> bool:
    """Whether it has the records of a step."""
    return name.endswith(".jsonl")


def summarize(files: Iterable[tuple[str, str]]) -> str:
    """Names files that are amiss, in short."""
    first, *others = [f"{name} {what}" for name, what in files]
    return first + f" (and {len(others)} more)" * bool(others)
