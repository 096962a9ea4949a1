"""Data sets as the subcommands read and write them.

The flags that name a set, its images read ahead of their use, the files of images that
are made of them, and the settings that a folder of made images was made by, which are
noted beside it and checked; and contact sheets of images.
"""

import argparse
import collections
import contextlib
import io
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from jbias import data, numerals
from jbias.data import base, loader
from jbias.runtime import console, files, messages, outputs
from jbias.untrusted import opening

WORKERS = 4
Picture = UInt8[np.ndarray, "h w 3"]
Pictures = UInt8[np.ndarray, "m h w 3"]
Sheet = Mapping[str, Sequence[Picture]]  # Rows of pictures, by name.


def add_options(to, *, out: str = "", size: int = 32, pixels: str = "pixels") -> None:
    """Adds what names a set; those left out have the set's own defaults.

    out: what --out names, which must be given then.
    """
    add = to.add_argument
    if out:
        add("--out", required=True, help=out)
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


def open_source(args: argparse.Namespace) -> base.Source:
    """Opens the set that the arguments name."""
    return data.load(args.data, args.split, **options(args))


def options(args: argparse.Namespace) -> dict[str, Any]:
    """The set's options among the arguments."""
    found = select(args, "size", "root", "space", "correlation", "n")
    return found | ({"seed": args.data_seed} if "data_seed" in args else {})


def select(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those arguments that were given, or have a default."""
    return {name: getattr(args, name) for name in names if name in args}


def parse_options(where: str, text: str) -> dict[str, Any]:
    """Reads options of a set's own, "a=b,c=True,d=2": words, switches, whole numbers."""
    pairs = [item.partition("=") for item in text.split(",") if item]
    for key, sign, _ in pairs:
        if not sign:
            raise ValueError(f"{where}: --options must read a=b,c=d, got {key!r}")
    known: dict[str, Any] = {"True": True, "False": False}
    known |= {value: int(value) for _, _, value in pairs if numerals.is_count(value)}
    return {key: known.get(value, value) for key, _, value in pairs}


def read_sample(source: base.Source, count: int, seed: int) -> Pictures:
    """Reads all images of a set, or so many random ones of it."""
    if len(source) <= count:
        with console.progress_bar(f"reading {source.name}", len(source)) as progress:
            return loader.decode_all(source, workers=WORKERS, progress=progress)
    index = np.random.default_rng(seed).permutation(len(source))[:count]
    return np.stack([source[int(i)]["image"] for i in index])


@contextlib.contextmanager
def map_ahead(
    title: str,
    function: Callable,
    items: Iterable,
    total: int,
    *,
    ahead: int = 2,
    size: Callable[[Any], int] = lambda item: 1,
    done: int = 0,
) -> Iterator[Iterator[tuple[Any, Any]]]:
    """Opens an iterator over (item, function(item)), called in threads, under a bar.

    ahead: calls under way beyond what was taken. size: how far an item moves the bar,
    which ends at `total` and begins at `done`.
    """

    def results() -> Iterator[tuple[Any, Any]]:
        so_far, calls = done, ((item, pool.submit(function, item)) for item in items)
        waiting = collections.deque(itertools.islice(calls, ahead + 1))
        while waiting:
            item, future = waiting.popleft()
            yield item, future.result()
            waiting.extend(itertools.islice(calls, 1))
            so_far += size(item)
            progress(so_far, total)

    with (
        futures.ThreadPoolExecutor(WORKERS) as pool,
        console.progress_bar(title, total) as progress,
    ):
        yield results()


def track(title: str, items: Sequence) -> Iterator[Any]:
    """Gives out items under a bar that each one moves."""
    with console.progress_bar(title, len(items)) as progress:
        for count, item in enumerate(items, 1):
            yield item
            progress(count, len(items))


def image_paths(
    folder: pathlib.Path, source: base.Source, ending: str, *, out: pathlib.Path
) -> list[pathlib.Path]:
    """Return the file of each image made of a set: folder/<class>/<number>.<ending>.

    out: the folder that the user named, `folder` or above it; it alone may be a link.
    ValueError where the name of a class, which may come out of others' files, leads
    elsewhere, and where a folder below `out` is a link: nothing is written through it.
    """
    for name in source.classes:
        if name[:1] in ("", ".") or {"/", "\\", "\0"} & set(name):
            must = f"{source.name}: a class must have a name that a folder can have"
            remedy = "give others, such as by a file of names"
            raise ValueError(f"{must}, got {name!r}; {remedy}")
    for name in source.classes:
        steps = (folder / name).relative_to(out).parts
        for i in range(1, len(steps) + 1):
            outputs.check_no_link(out.joinpath(*steps[:i]))
    folders = [folder / source.classes[label] for label in source.columns["label"]]
    return [inner / f"{i:06d}.{ending}" for i, inner in enumerate(folders)]


def write_image(path: pathlib.Path, image: Picture, kind: str, **options: Any) -> None:
    """Writes a file that is whole or not there, by Pillow's format and its options."""
    Image.fromarray(image).save(encoded := io.BytesIO(), kind, **options)
    write_file(path, encoded.getvalue())


def write_file(path: pathlib.Path, content: str | bytes) -> None:
    """Writes a file that is whole or not there, in a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content, lasting=False)


def read_image(path: pathlib.Path) -> Picture:
    """Reads back what was made."""
    with opening.open_image(path) as image:
        return np.asarray(image.convert("RGB"))


def made_of(source: base.Source) -> dict[str, str]:
    """What the settings of a folder say of the set that it was made of."""
    keys = ("fingerprint", "preprocessing", "cite")
    return {"source": source.name, **{key: getattr(source, key) for key in keys}}


def summary(folder: pathlib.Path, split: str, made: int, source: base.Source) -> str:
    """How many images of a split were made, and how to read them."""
    root, space = str(folder), source.space
    done = f"{folder / split}: {made} images made, {len(source)} in all"
    return f"{done}; read them with data='folder', {root=}, {split=}, {space=}"


OTHER = "name another --out"


def refuse_others(where: str, folder: pathlib.Path, split: str, own: Mapping) -> None:
    """Refuses folder/split if it holds images of anything but these settings."""
    path, must = folder / f"{split}.json", f"{where}: {folder / split} must"
    if not path.exists():
        if (folder / split).exists():
            got = "got a folder made by something else"
            raise ValueError(f"{must} be new, {got}; {OTHER}")
        return
    kinds = OSError, ValueError, TypeError, RecursionError
    with base.explain_errors(
        f"{path}: must be the settings of {folder / split}, got ",
        *kinds,
        remedy=f"; {OTHER}",
        reason=base.describe_error,
    ):
        with opening.open_text(path) as file:
            held = json.load(file)
        if not isinstance(held, dict):
            raise TypeError(f"must be an object, not {type(held).__name__}")
    for key, here in own.items():
        if (there := held.get(key)) != here:
            got = f"got others: {key} is {there!r} there, {here!r} here"
            raise ValueError(f"{must} hold images of these settings, {got}; {OTHER}")


def claim(where: str, folder: pathlib.Path, split: str, own: Mapping) -> None:
    """Notes the settings in folder/split.json, once it is sure that none are others."""
    refuse_others(where, folder, split, own)
    write_file(folder / f"{split}.json", json.dumps(own, indent=1) + "\n")


_DPI = 100


def write_sheet(
    path: str, rows: Sheet, *, titles: Sequence[str] = (), foot: str = ""
) -> None:
    """Writes a contact sheet, pixel for pixel: a named row of images for each entry, titles over the columns."""
    from matplotlib import figure, text

    outputs.check_file(path)
    rows = {messages.printable(name): images for name, images in rows.items()}
    titles = [messages.printable(title) for title in titles]
    cell = next(iter(rows.values()))[0].shape[0]
    cell *= max(1, 64 // cell)  # Whole pixels on whole pixels: nothing is resampled.
    columns = max(len(images) for images in rows.values())
    # A letter of this font is at most nine pixels wide.
    left, top, gap = max(90, 9 * max(map(len, rows)) + 12), 24 if titles else 6, 3
    wide = left + columns * (cell + gap)
    high = top + len(rows) * (cell + gap) + 18
    drawing = figure.Figure(figsize=(wide / _DPI, high / _DPI), dpi=_DPI)
    for i, (name, images) in enumerate(rows.items()):
        for j, image in enumerate(images):
            x, y = left + j * (cell + gap), high - top - cell - i * (cell + gap)
            ax = drawing.add_axes((x / wide, y / high, cell / wide, cell / high))
            ax.imshow(image, interpolation="nearest")
            ax.set_axis_off()
            if i == 0 and titles:
                ax.set_title(titles[j], fontsize=8, pad=4)
        middle = (y + cell / 2) / high
        drawing.text((left - 6) / wide, middle, name, ha="right", va="center", size=9)
    drawing.text(1 - 4 / wide, 5 / high, foot, ha="right", size=5)
    for label in drawing.findobj(text.Text):
        label.set_parse_math(False)  # A name with dollars is no formula.
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    drawing.savefig(path, dpi=_DPI)
