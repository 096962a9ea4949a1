"""Reading and writing of data sets by the subcommands of `jbias prepare`.

Flags that name a data set, reading ahead, image files, the JSON file with the settings of a
folder of prepared images, and contact sheets of images.
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
Sheet = Mapping[str, Sequence[Picture]]  # Name of a row -> its pictures.


def add_options(
    parser: argparse.ArgumentParser,
    *,
    out: str = "",
    out_metavar: str = "DIR",
    size: int = 32,
    size_help: str = "side of the images in pixels (default: 32)",
) -> None:
    """Add the flags that name a data set, its split and its options to a parser.

    The parsed arguments lack flags of the data set's own options that the user leaves out, so
    that the data set's defaults apply. out, out_metavar: help and metavar of the required flag
    --out; out="" adds no --out. size, size_help: default and help of --size.
    """
    add = parser.add_argument
    absent = argparse.SUPPRESS  # No entry in the arguments: the data set's default.
    if out:
        add("--out", required=True, metavar=out_metavar, help=out)
    add("--data", default="shapes", metavar="NAME", help=data_help("shapes"))
    split_help = (
        "split of the data set; for data sets that are read from files also a part "
    )
    split_help += "of a split: train[:90%%] is 90 %% of the images of each class, always the same "
    split_help += "images, and train[90%%:] the other 10 %% (default: train)"
    add("--split", default="train", metavar="SPLIT", help=split_help)
    add("--size", type=int, default=size, metavar="PIXELS", help=size_help)
    add("--root", default=absent, metavar="DIR", help=ROOT_HELP)
    space_help = f"{SPACE_HELP} (default: names)"
    add("--space", default=absent, metavar="KIND", help=space_help)
    n_help = (
        "only for --data=shapes: number of images, a multiple of 16, and of 240 for "
    )
    n_help += "--split=cue_conflict (default: 4096 for train, 512 for valid, else 480)"
    add("--n", type=int, default=absent, metavar="N", help=n_help)
    add(
        "--correlation",
        type=float,
        default=absent,
        metavar="SHARE",
        help=CORRELATION_HELP,
    )
    add("--data-seed", type=int, default=absent, metavar="N", help=DATA_SEED_HELP)


ROOT_HELP = "folder of the data set; required for data sets that are read from files"
SPACE_HELP = (
    "only for --data=folder: kind of class names, which is names (any names), wnid (WordNet "
    "ids such as n02084071) or entry16 (the 16 class names of Geirhos' stimuli)"
)
CORRELATION_HELP = (
    "only for --data=shapes: fraction of the images, 0 to 1, whose texture agrees with their "
    "class, in the splits with informative texture, such as train (default: 0.99)"
)
DATA_SEED_HELP = "only for --data=shapes: random seed of the drawn images (default: 0)"


def data_help(default: str) -> str:
    """Return the help of --data: the names of all data sets, and the default."""
    known = ", ".join(data.DATASETS)
    return f"data set, see docs/data.md: one of {known} (default: {default})"


def open_source(args: argparse.Namespace) -> base.Source:
    """Return the source of the split and data set that the flags of `add_options` name.

    ValueError, base.Missing: see data.load.
    """
    return data.load(args.data, args.split, **options(args))


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return {option of the data set: value} of the flags of `add_options` that `args` has.

    --data-seed becomes the option "seed"; --data, --split and --out are no options.
    """
    set_options = select(args, "size", "root", "space", "correlation", "n")
    if "data_seed" in args:
        set_options["seed"] = args.data_seed
    return set_options


def select(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return {name: value} of the arguments `names` that `args` has."""
    return {name: getattr(args, name) for name in names if name in args}


def parse_options(where: str, text: str) -> dict[str, Any]:
    """Return {"a": "b", "c": True, "d": 2} for "a=b,c=True,d=2", the value of --options.

    "True", "False" and digits become booleans and integers, other values are strings. {} for
    "". ValueError for an item without "=". where: start of the message.
    """
    pairs = [item.partition("=") for item in text.split(",") if item]
    for key, sign, _ in pairs:
        if not sign:
            raise ValueError(f"{where}: --options must read a=b,c=d, got {key!r}")
    known: dict[str, Any] = {"True": True, "False": False}
    known |= {value: int(value) for _, _, value in pairs if numerals.is_count(value)}
    return {key: known.get(value, value) for key, _, value in pairs}


def read_sample(source: base.Source, count: int, seed: int) -> Pictures:
    """Return all images of a source in order, or `count` random images if the source has more.

    Random images are in random order. seed: seed of the random sample. ValueError if an image
    does not decode.
    """
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
    """Open an iterator over (item, function(item)), in order, with a progress bar.

    To be used as a context manager. title: title of the bar. function: called in WORKERS
    threads; an error of `function` is raised in place of the result. total: progress at the
    end, in the unit of `size`. ahead: number of calls that run ahead of the iterator.
    size(item): progress by an item. done: progress at the start.
    """

    def results() -> Iterator[tuple[Any, Any]]:
        """Yield (item, function(item)) for each item, in order; raise the errors of `function`.

        After a pair, call progress(done so far, total).
        """
        num_done, calls = done, ((item, pool.submit(function, item)) for item in items)
        pending = collections.deque(itertools.islice(calls, ahead + 1))
        while pending:
            item, future = pending.popleft()
            yield item, future.result()
            pending.extend(itertools.islice(calls, 1))
            num_done += size(item)
            progress(num_done, total)

    with (
        futures.ThreadPoolExecutor(WORKERS) as pool,
        console.progress_bar(title, total) as progress,
    ):
        yield results()


def track(title: str, items: Sequence) -> Iterator[Any]:
    """Yield the items, with a progress bar of this title."""
    with console.progress_bar(title, len(items)) as progress:
        for count, item in enumerate(items, 1):
            yield item
            progress(count, len(items))


def image_paths(
    folder: pathlib.Path, source: base.Source, ending: str, *, out: pathlib.Path
) -> list[pathlib.Path]:
    """Return the path of each image to make from a source: folder/<class>/<number>.<ending>.

    <number> is the image's index in six digits. ending: without a dot, such as "png".
    out: the user's --out, equal to `folder` or above it; only `out` may be a link.
    ValueError if a class name, which may be from a downloaded file, leads to another folder,
    and if a folder below `out` is a link: nothing is written through links.
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
    """Write an image file atomically, and create its folder.

    kind: Pillow's name of a format, such as "PNG". options: of Pillow's writer of this format.
    """
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
    write_file(path, buffer.getvalue())


def write_file(path: pathlib.Path, content: str | bytes) -> None:
    """Write a file atomically, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content, lasting=False)


def read_image(path: pathlib.Path) -> Picture:
    """Return the pixels of an image file, converted to RGB."""
    with opening.open_image(path) as image:
        return np.asarray(image.convert("RGB"))


def describe_source(source: base.Source) -> dict[str, str]:
    """Return {"source", "fingerprint", "preprocessing", "cite": text} for a settings file.

    source: the data set from which images are made.
    """
    return {
        "source": source.name,
        "fingerprint": source.fingerprint,
        "preprocessing": source.preprocessing,
        "cite": source.cite,
    }


def summary(
    folder: pathlib.Path, split: str, num_made: int, source: base.Source
) -> str:
    """Return a line of text: the number of images made, and the options that read them.

    folder / split: folder of the images. num_made: number of images made by this command.
    source: the original images.
    """
    root, space = str(folder), source.space
    counts = f"{folder / split}: {num_made} images made, {len(source)} in all"
    return f"{counts}; read them with data='folder', {root=}, {split=}, {space=}"


OTHER = "name another --out"


def check_settings(
    where: str, folder: pathlib.Path, split: str, settings: Mapping
) -> None:
    """Raise ValueError if folder/<split>.json has other values than `settings`.

    The file has the settings of the images in folder/<split>; its further entries are ignored.
    Without the file and the folder, nothing is raised. ValueError also for an existing folder
    without this file, and for a file that cannot be read. where: start of the message.
    """
    path, must = folder / f"{split}.json", f"{where}: {folder / split} must"
    if not path.exists():
        if (folder / split).exists():
            got = "got a folder made by something else"
            raise ValueError(f"{must} be new, {got}; {OTHER}")
        return
    with base.explain_errors(
        f"{path}: must be the settings of {folder / split}, got ",
        OSError,
        ValueError,
        TypeError,
        RecursionError,
        remedy=f"; {OTHER}",
        reason=base.describe_error,
    ):
        with opening.open_text(path) as file:
            stored = json.load(file)
        if not isinstance(stored, dict):
            raise TypeError(f"must be an object, not {type(stored).__name__}")
    for key, value in settings.items():
        stored_value = stored.get(key)
        if stored_value != value:
            got = f"got others: {key} is {stored_value!r} there, {value!r} here"
            raise ValueError(f"{must} hold images of these settings, {got}; {OTHER}")


def claim(where: str, folder: pathlib.Path, split: str, settings: Mapping) -> None:
    """Write `settings` to folder/<split>.json; raise the errors of `check_settings`."""
    check_settings(where, folder, split=split, settings=settings)
    write_file(folder / f"{split}.json", json.dumps(settings, indent=1) + "\n")


_DPI = 100


def write_sheet(
    path: str, rows: Sheet, *, titles: Sequence[str] = (), foot: str = ""
) -> None:
    """Write a figure with rows of square images of one size, enlarged only by whole factors.

    path: ending in .png, .pdf or .svg, else ValueError. rows: {name of a row: its images}; the
    first row must have an image. titles: titles of the columns; () for none. foot: a line
    below the images.
    """
    from matplotlib import figure, text

    outputs.check_file(path)
    rows = {messages.printable(name): images for name, images in rows.items()}
    titles = [messages.printable(title) for title in titles]
    cell = next(iter(rows.values()))[0].shape[0]
    cell *= max(1, 64 // cell)  # By an integer, so that nothing is resampled.
    columns = max(len(images) for images in rows.values())
    # A letter of this font is at most nine pixels wide.
    left, top, gap = max(90, 9 * max(map(len, rows)) + 12), 24 if titles else 6, 3
    width = left + columns * (cell + gap)
    height = top + len(rows) * (cell + gap) + 18
    sheet = figure.Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    for i, (name, images) in enumerate(rows.items()):
        for j, image in enumerate(images):
            x, y = left + j * (cell + gap), height - top - cell - i * (cell + gap)
            ax = sheet.add_axes((x / width, y / height, cell / width, cell / height))
            ax.imshow(image, interpolation="nearest")
            ax.set_axis_off()
            if i == 0 and titles:
                ax.set_title(titles[j], fontsize=8, pad=4)
        middle = (y + cell / 2) / height
        sheet.text((left - 6) / width, middle, name, ha="right", va="center", size=9)
    sheet.text(1 - 4 / width, 5 / height, foot, ha="right", size=5)
    for label in sheet.findobj(text.Text):
        label.set_parse_math(False)  # A name with dollars is no formula.
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    sheet.savefig(path, dpi=_DPI)
