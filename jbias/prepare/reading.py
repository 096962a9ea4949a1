"""What commands that go through the images of a set have in common: options, reading."""

import argparse
import collections
from collections.abc import Callable, Iterable, Iterator
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


def source(arguments: dict[str, Any]) -> base.Source:
    """Opens the set, and takes its options out of the arguments."""
    name, split, options = asked(arguments)
    return data.load(name, split, **options)


def asked(arguments: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Takes a set's name, split and options out of the arguments."""
    name, split = arguments.pop("data"), arguments.pop("split")
    options = {key: arguments.pop(key) for key in _OPTIONS if key in arguments}
    if "data_seed" in arguments:
        options["seed"] = arguments.pop("data_seed")
    return name, split, {"size": arguments.pop("size"), **options}


def further(where: str, text: str) -> dict[str, Any]:
    """Reads options of a set's own: "a=b,c=True"."""
    pairs = [item.partition("=") for item in text.split(",") if item]
    for key, sign, _ in pairs:
        if not sign:
            raise ValueError(f"{where}: --options must read a=b,c=d, got {key!r}")
    known = {"True": True, "False": False}
    return {key: known.get(value, value) for key, _, value in pairs}


def folders(source: base.Source) -> list[str]:
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


def sample(source: base.Source, count: int, seed: int) -> UInt8[np.ndarray, "m h w 3"]:
    """Reads all images of a set, or so many random ones of it."""
    if len(source) <= count:
        with console.progress_bar(f"reading {source.name}", len(source)) as progress:
            return loader.decode_all(source, workers=WORKERS, progress=progress)
    index = np.random.default_rng(seed).permutation(len(source))[:count]
    return np.stack([source[int(i)]["image"] for i in index])


def ahead(
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
