"""Data sets as the subcommands read and write them.

The flags that name a set, its images read ahead of their use, and the settings that a
folder of made images was made by, which are noted beside it and checked.
"""

import argparse
import collections
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jbias import data
from jbias.data import base, loader
from jbias.runtime import console

_OPTIONS = ("root", "space", "correlation", "n")  # Of data sets, by the same name.
WORKERS = 4


def add_options(
    parser: argparse.ArgumentParser, *, size: int = 32, pixels: str = "pixels"
) -> None:
    """Adds what names a set; those left out have the set's own defaults."""
    add = parser.add_argument
    add("--data", default="shapes", help=f"one of {', '.join(data.DATASETS)}")
    add("--split", default="train", help="such as train or train[:90%%]")
    add("--size", type=int, default=size, help=pixels)
    left_out = dict(default=argparse.SUPPRESS)
    add("--root", help="the folder of a data set of files", **left_out)
    add("--space", help="what class folders are named by, folder only", **left_out)
    add("--n", type=int, help="how many images, shapes only", **left_out)
    correlation = "of texture and class, shapes only"
    add("--correlation", type=float, help=correlation, **left_out)
    add("--data-seed", type=int, help="of the drawing, shapes only", **left_out)


def open_source(arguments: dict[str, Any]) -> base.Source:
    """Opens the set, and takes its options out of the arguments."""
    name, split, options = pop_options(arguments)
    return data.load(name, split, **options)


def pop_options(arguments: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Takes a set's name, split and options out of the arguments."""
    name, split = arguments.pop("data"), arguments.pop("split")
    options = {key: arguments.pop(key) for key in _OPTIONS if key in arguments}
    if "data_seed" in arguments:
        options["seed"] = arguments.pop("data_seed")
    return name, split, {"size": arguments.pop("size"), **options}


def parse_options(where: str, text: str) -> dict[str, Any]:
    """Reads options of a set's own: "a=b,c=True"."""
    pairs = [item.partition("=") for item in text.split(",") if item]
    for key, sign, _ in pairs:
        if not sign:
            raise ValueError(f"{where}: --options must read a=b,c=d, got {key!r}")
    known = {"True": True, "False": False}
    return {key: known.get(value, value) for key, _, value in pairs}


def class_folders(source: base.Source) -> list[str]:
    """A folder for each class, of its name; ValueError where that leads elsewhere.

    Names may come out of a file that others wrote.
    """
    for name in source.classes:
        if name[:1] in ("", ".") or {"/", "\\", "\0"} & set(name):
            raise ValueError(
                f"{source.name}: a class must have a name that a folder can have, got "
                f"{name!r}; give others, such as by a file of names"
            )
    return list(source.classes)


def read_sample(
    source: base.Source, count: int, seed: int
) -> UInt8[np.ndarray, "m h w 3"]:
    """Reads all images of a set, or so many random ones of it."""
    if len(source) <= count:
        with console.progress_bar(f"reading {source.name}", len(source)) as progress:
            return loader.decode_all(source, workers=WORKERS, progress=progress)
    index = np.random.default_rng(seed).permutation(len(source))[:count]
    return np.stack([source[int(i)]["image"] for i in index])


def map_ahead(
    pool: futures.Executor, function: Callable, items: Iterable, count: int = 2
) -> Iterator[tuple[Any, Any]]:
    """Yields (item, function(item)), with `count` calls under way beyond that."""
    waiting = collections.deque()
    for item in items:
        waiting.append((item, pool.submit(function, item)))
        if len(waiting) > count:
            item, future = waiting.popleft()
            yield item, future.result()
    for item, future in waiting:
        yield item, future.result()


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
