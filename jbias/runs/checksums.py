"""Checksums (size and CRC-32) of a run's files, in its sums.json.

Records, decisions, config.json and provenance.json have checksums. Logs, progress.json and
costs.json have none, because they change often and contain no results. Checkpoints contain
their own checksums. A checksum is written after its file, and removed before its file is rewritten.
So a file never counts as damaged because the process was killed in between.
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
FOLLOWER = "evaluate.sums.json"  # Of a process of `jbias evaluate --follow`.
FACTS = ("config.json", "provenance.json")
# By path in the workdir: [bytes, CRC-32]; in older runs only the CRC-32.
Checksums = Mapping[str, Any]


def checksum(content: bytes) -> list[int]:
    """Return [number of bytes, CRC-32] of a file's content."""
    return [len(content), zlib.crc32(content)]


def checksum_of_file(path: pathlib.Path, buffer: memoryview) -> list[int]:
    """Return [number of bytes, CRC-32] of a file; buffer: memory for reading in chunks."""
    size = crc = 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            size, crc = size + count, zlib.crc32(buffer[:count], crc)
    return [size, crc]


def is_same(first: Any, second: Any) -> bool:
    """Return True if two checksums are equal.

    A checksum is [bytes, CRC-32], or in older runs only the CRC-32. With a checksum of an older
    run, only the CRC-32 is compared.
    """
    if isinstance(first, list) and isinstance(second, list):
        return first == second
    return _crc(first) == _crc(second)


def _crc(checksum: Any) -> int:
    """Return the CRC-32 in a checksum: [bytes, CRC-32], or in older runs the CRC-32 itself."""
    return checksum[1] if isinstance(checksum, list) else checksum


def damage(path: epath.PathLike, expected: Any, *, quick: bool = False) -> str:
    """Return the problem of a file: "" if intact, "is gone" if missing, else "is damaged".

    expected: the file's recorded checksum. quick: True to compare the size only; a checksum of
    an older run has no size, so its CRC-32 is compared.
    """
    path = epath.Path(path)
    try:
        if quick and isinstance(expected, list):
            is_intact = path.stat().length == expected[0]
        else:
            is_intact = is_same(checksum(path.read_bytes()), expected)
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    return "" if is_intact else "is damaged"


def write(workdir: epath.Path, sums: Checksums, name: str = NAME) -> None:
    """Write the checksums of a run, in place of its earlier checksums.

    sums: by path in the workdir. name: name of the file, NAME or FOLLOWER.
    """
    content = json.dumps({"sum": _checksum_of_all(sums), "files": sums})
    files.save(workdir / name, content)


def read(workdir: epath.PathLike, name: str = NAME) -> dict[str, Any]:
    """Return checksums by path in the workdir; {} if there is no file.

    A checksum is the list [bytes, CRC-32], or in older runs the CRC-32 alone, an int.
    name: name of the file, NAME or FOLLOWER. ValueError if the file is damaged.
    """
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
    """Return the checksums of a workdir, or of a branch's folder, by path in the folder.

    follower: True: only files that `jbias evaluate --follow` wrote and the run itself has
    not written since; False: all files.
    """
    folder, branch_prefix = epath.Path(folder), ""
    has_own_sums = any((folder / name).exists() for name in (NAME, FOLLOWER))
    if folder.parent.name == "vary" and not has_own_sums:
        folder, branch_prefix = folder.parents[1], f"vary/{folder.name}/"
    follower_sums, run_sums = read(folder, FOLLOWER), read(folder)
    sums = {
        name: value for name, value in follower_sums.items() if name not in run_sums
    }
    if not follower:
        sums |= run_sums
    return {
        name.removeprefix(branch_prefix): value
        for name, value in sums.items()
        if name.startswith(branch_prefix)
    }


def find_damaged(
    workdir: epath.PathLike, sums: Checksums, *, quick: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield (name, problem) of each file that does not match its checksum.

    sums: checksums by name. The problem is "is gone" or "is damaged". quick: True to compare sizes
    only. In an object store, decisions are compared by size only, and files are read in parallel.
    """
    is_remote = files.is_remote(workdir)

    def damage_of(name: str) -> str:
        by_size = quick or is_remote and not is_needed(name)
        return damage(epath.Path(workdir) / name, sums[name], quick=by_size)

    with futures.ThreadPoolExecutor(16) as pool:
        run_all = pool.map if is_remote else map
        for name, problem in zip(sums, run_all(damage_of, sums)):
            if problem:
                yield name, problem


def check(folder: epath.PathLike, is_wanted: Callable[[str], bool]) -> None:
    """Raise ValueError for a damaged file, or a missing file that `is_needed`.

    folder: a workdir, or a branch's folder. is_wanted: selects the files to check by their
    names.
    """
    sums = {k: v for k, v in read_folder(folder).items() if is_wanted(k)}
    for name, problem in find_damaged(folder, sums):
        if problem == "is gone" and not is_needed(name):
            continue  # Code that needs the file reports it.
        if read_folder(folder).get(name) != sums[name]:
            return check(folder, is_wanted)  # The file was rewritten meanwhile.
        sums_file = FOLLOWER if name in read_folder(folder, follower=True) else NAME
        recompute = (
            "the run's command, or jbias evaluate --follow, rewrites it from its "
            "checkpoint; otherwise "
            if is_record(name)
            else ""
        )
        raise ValueError(
            f"{epath.Path(folder) / name} {problem}: it differs from the file that the run "
            f"wrote ({sums_file}); {recompute}restore it, or delete {sums_file} to accept "
            "all files as they are"
        )


def is_fact(name: str) -> bool:
    """Return True if a file describes a run or a branch: config.json or provenance.json."""
    return name.rpartition("/")[2] in FACTS


def is_needed(name: str) -> bool:
    """Return True if a workdir must have this file: *.jsonl, config.json or provenance.json."""
    return is_record(name) or is_fact(name)


def is_record(name: str) -> bool:
    """Return True if a file has records of a step."""
    return name.endswith(".jsonl")


def summarize(problems: Iterable[tuple[str, str]]) -> str:
    """Return a phrase that names the first damaged file and counts the other files.

    problems: pairs (name, problem), as `find_damaged` yields them; at least one.
    """
    phrases = [f"{name} {problem}" for name, problem in problems]
    if len(phrases) == 1:
        return phrases[0]
    return f"{phrases[0]} (and {len(phrases) - 1} more)"
