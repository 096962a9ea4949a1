"""Make corrupted test sets from a data set, as ImageNet-C and ImageNet-C-bar.

jbias prepare corrupt --data=folder --root=DIR --split=val --size=224 --out=DIR-c
jbias prepare corrupt --names=fog+snow --severities=3 --size=64 --out=c

Writes

    OUT/<corruption>/<severity>/<class>/<number>.png  the images of a test set, which a config
                                                      reads by data='folder',
                                                      root=OUT/<corruption>, split=<severity>
    OUT/<corruption>/<severity>.json                  the settings of the test set
    OUT/sheet.png                                     the first image under all corruptions

If you start the command again, it makes only the missing images: each image depends only on the
data set, the corruption, the severity, the seed and its number. A folder with images of
different settings is refused.
"""

import argparse
import collections
import itertools
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jbias import errors, numerals
from jbias.data import base, corruptions
from jbias.prepare import dataset

_WHERE = "prepare corrupt"
_KNOWN = corruptions.KNOWN
_DEFAULT_NAMES = [
    name
    for name, corruption in corruptions.CORRUPTIONS.items()
    if not corruption.extra and name != "frost"  # Frost needs photographs.
]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare corrupt` to its parser."""
    add = parser.add_argument
    dataset.add_options(parser, out="folder to write the test sets into")
    names_help = "corruptions to apply, joined by +, such as fog+snow; the names are "
    names_help += f"{', '.join(_KNOWN)} (default: the corruptions of the ImageNet-C "
    names_help += "benchmark except frost, which needs --frost)"
    add("--names", default="+".join(_DEFAULT_NAMES), metavar="A+B", help=names_help)
    severities_help = "severities from 1 (weakest) to 5, joined by +, such as 1+3 "
    severities_help += "(default: all five)"
    add("--severities", default="1+2+3+4+5", metavar="1+3", help=severities_help)
    frost_help = (
        "only for the corruption frost, which needs it: folder of photographs of "
    )
    frost_help += "frost, which are laid over the images"
    add("--frost", default="", metavar="DIR", help=frost_help)
    table_help = "32, 64 or 224: use the strengths that were published for images of this side in "
    table_help += (
        "pixels; required if --size is another number (default: the value of --size)"
    )
    add("--table", type=int, default=None, metavar="PIXELS", help=table_help)
    jpeg_help = "write JPEG files of quality 85, as in the published data sets "
    jpeg_help += "(default: write PNG files)"
    add("--jpeg", action="store_true", help=jpeg_help)
    seed_help = "random seed of the corruptions (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)


def run(args: argparse.Namespace) -> str:
    """Write the missing images; return a line with their count and the options that read them.

    Also write the sheet of samples. args: the flags of `add`. ValueError for an unknown
    corruption or severity, a size without settings, damaged images, and a folder with images
    of different settings.
    """
    names, severities = args.names.split("+"), args.severities.split("+")
    errors.check_all_known(f"{_WHERE}: --names", names, _KNOWN)
    for severity in severities:
        if not numerals.is_count(severity):
            must = f"{_WHERE}: --severities must be like 1+3+5"
            raise ValueError(f"{must}, got {args.severities!r}")
        if int(severity) not in corruptions.SEVERITIES:
            raise ValueError(f"{_WHERE}: --severities must be 1 to 5, got {severity}")
    conditions = [*itertools.product(names, map(int, severities))]
    source, folder = dataset.open_source(args), pathlib.Path(args.out).expanduser()
    ending = "jpg" if args.jpeg else "png"
    shared_settings = {
        "made_by": "jbias.prepare corrupt",
        **dataset.describe_source(source),
        **dataset.select(args, "seed", "table", "jpeg"),
    }
    paths = {
        (name, severity): dataset.image_paths(
            folder / name / str(severity), source, ending, out=folder
        )
        for name, severity in conditions
    }
    options = {"table": args.table, "frost": args.frost or None}
    # Everything is checked before anything is written.
    for name, severity in conditions:
        corruptions.settings(name, severity, side=source.size, **options)
    for check_or_claim in (dataset.check_settings, dataset.claim):
        for name, severity in conditions:
            settings = {**shared_settings, "corruption": name, "severity": severity}
            check_or_claim(
                _WHERE, folder / name, split=str(severity), settings=settings
            )
    missing = [
        _Task(i, name, severity=severity, path=path)
        for (name, severity), condition_paths in paths.items()
        for i, path in enumerate(condition_paths)
        if not path.exists()
    ]
    format_options = {"kind": "PNG"}
    if args.jpeg:
        format_options = {"kind": "JPEG", "quality": 85}

    def make(task: _Task) -> None:
        """Corrupt the image task.index of the source, and write it to task.path.

        The random numbers depend on the seed, the corruption, the severity and the index.
        """
        seed = [args.seed, zlib.crc32(task.name.encode()), task.severity, task.index]
        image = corruptions.corrupt(
            source[task.index]["image"],
            task.name,
            severity=task.severity,
            rng=np.random.default_rng(seed),
            **options,
        )
        dataset.write_image(task.path, image, **format_options)

    with dataset.map_ahead(
        "corrupting", make, items=missing, total=len(missing), ahead=16
    ) as results:
        collections.deque(results, maxlen=0)
    _write_samples(folder / "sheet.png", source, paths)
    total = len(paths) * len(source)
    counts = f"{folder}: {len(missing)} images made, {total} in all"
    name, severity = conditions[0]
    root, split, space = f"{folder}/{name}", str(severity), source.space
    entry = f"data='folder', {root=}, {split=}, {space=}"
    return f"{counts}; test on them with {entry}; {folder / 'sheet.png'} shows some"


class _Task(NamedTuple):
    """An image to corrupt, and the path to which it is written."""

    index: int  # Index of the image in the source.
    name: str  # Name of the corruption.
    severity: int
    path: pathlib.Path


def _write_samples(
    path: pathlib.Path,
    source: base.Source,
    paths: Mapping[tuple[str, int], Sequence[pathlib.Path]],
) -> None:
    """Write a sheet of the first image: a row per corruption, a column per severity.

    paths: {(corruption, severity): paths of its images}.
    """
    rows: dict[str, list] = {}
    severities = sorted({severity for _, severity in paths})
    for name, severity in sorted(paths, key=lambda condition: condition[1]):
        rows.setdefault(name, []).append(dataset.read_image(paths[name, severity][0]))
    titles = [f"severity {severity}" for severity in severities]
    dataset.write_sheet(str(path), rows, titles=titles, foot=source.cite)
