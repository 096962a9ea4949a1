"""Tar shards: WebDataset's samples (<key>.jpg beside <key>.cls), or class folders."""

import json
import os
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jbias.data import cache, listing, stores
from jbias.foreign import limits

_LABELS = ("cls", "json")


class _Member(NamedTuple):
    shard: int
    name: str
    start: int
    length: int


def read(
    where: str, shards: Sequence[str]
) -> tuple[stores.Store, listing.Files, tuple[str, ...] | None]:
    """Lists all images; what the headers say is cached, since large archives have many."""
    found = cache.made("tar", shards, lambda: _listed(where, shards))
    names = tuple(found["names"].tolist())
    store = stores.Slices(
        tuple(shards), names, found["shard"], found["start"], found["length"]
    )
    files = listing.Files(names, found["length"], found["labels"])
    return store, files, tuple(found["classes"].tolist()) or None


def _listed(where: str, shards: Sequence[str]) -> dict[str, np.ndarray]:
    images, labels = {}, {}
    for i, path in enumerate(shards):
        for member, ending, key in _members(where, i, path):
            if f".{ending}" in listing.IMAGES:
                if (i, key) in images:
                    raise ValueError(
                        f"{where}: a sample must have one image, got a second for"
                        f" {key!r} in {path!r}; give each a key of its own"
                    )
                images[i, key] = member
            elif ending in _LABELS:
                labels[i, key] = _label(where, path, member, ending)
    if not images:
        raise ValueError(f"{where}: shards must hold images, got none in {shards[0]!r}")
    if labels:
        lacking = next((key for key in images if key not in labels), None)
        if lacking:
            raise ValueError(
                f"{where}: every image must have a label (<key>.cls), got none for"
                f" {lacking[1]!r} in {shards[lacking[0]]!r}"
            )
        numbers, classes = [labels[key] for key in images], ()
    else:
        numbers, classes = _by_folder(where, [m.name for m in images.values()])
    members = list(images.values())
    return dict(
        names=listing.named(where, _short([m.name for m in members])),
        shard=np.array([m.shard for m in members], np.int32),
        start=np.array([m.start for m in members], np.int64),
        length=np.array([m.length for m in members], np.int64),
        labels=np.array(numbers, np.int32),
        classes=np.array(classes, dtype=str),
    )


def _members(where: str, shard: int, path: str):
    """Yields (member, ending in small letters, key) of all files of an archive."""
    try:
        size = os.path.getsize(path)
        with tarfile.open(path, "r:") as archive:
            for entry in archive:
                whole = entry.name.lstrip("/")  # As tar unpacks it.
                folder, name = os.path.split(whole)
                if not entry.isfile() or name.startswith("."):
                    continue
                stem, _, ending = name.partition(".")
                ending = ending.lower()
                if ending.endswith("tar"):
                    raise ValueError(
                        f"{where}: shards must hold images, {path!r} holds the archive"
                        f" {entry.name!r}; unpack it once"
                    )
                if entry.issparse() or entry.offset_data + entry.size > size:
                    raise ValueError(
                        f"{where}: {path!r} must hold its members whole, got {entry.name!r}"
                        f" of {entry.size} bytes; pack it anew"
                    )
                member = _Member(shard, whole, entry.offset_data, entry.size)
                key = os.path.normpath(os.path.join(folder, stem))  # "./a" is "a".
                yield member, ending.rpartition(".")[2], key
    # A header may follow the other without end, or say that it has gigabytes.
    except (tarfile.TarError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(
            f"{where}: {path!r} must be a whole, uncompressed tar archive, got {error}"
        ) from error


def _label(where: str, path: str, member: _Member, ending: str) -> int:
    with open(path, "rb") as file:
        file.seek(member.start)
        text = file.read(member.length)
    try:
        held = json.loads(text) if ending == "json" else text
        if ending == "json":
            held = held["label"] if "label" in held else held["cls"]
        if not 0 <= (label := int(held)) < limits.CLASSES or label != float(held):
            raise ValueError(f"{held!r} is no label")
        return label
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{where}: labels must be whole numbers, got {text[:40]!r} in"
            f" {path}:{member.name}; they count from 0 to {limits.CLASSES - 1:,}"
            " (limits of docs/data.md)"
        ) from error


def _by_folder(where: str, names: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """Labels by the folder below what all names have in common."""
    parts = [name.split("/") for name in _short(names)]
    if any(len(part) < 2 for part in parts):
        raise ValueError(
            f"{where}: images must have a label (<key>.cls) or lie in class folders,"
            f" got {names[0]!r}; unpack the archive of a single class into a folder of"
            " its name"
        )
    classes = tuple(sorted({part[0] for part in parts}))
    ids = {name: i for i, name in enumerate(classes)}
    return [ids[part[0]] for part in parts], classes


def _short(names: Sequence[str]) -> list[str]:
    """Names without the folders that all are in."""
    above = os.path.commonpath(names) if len(names) > 1 else os.path.dirname(names[0])
    return [os.path.relpath(name, above) if above else name for name in names]
