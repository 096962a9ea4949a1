"""Corrupts a set as ImageNet-C or ImageNet-C-bar: a folder for each kind and severity.

jbias prepare corrupt --data=folder --root=DIR --split=val --size=224 --out=DIR-c
jbias prepare corrupt --names=fog+snow --severities=3 --size=64 --out=c

Writes OUT/<corruption>/<severity>/<class>/<number>.png, which are sets to test on
(data='folder', root=OUT/<corruption>, split=<severity>), OUT/<corruption>/<severity>.json,
what they were made by, and OUT/sheet.png, the first image under all of them. Image i is a
function of the set, the corruption, the severity, the seed and i: started again, the command
makes what is missing, and refuses a folder with images of other settings.
"""

import argparse
import collections
import itertools
import pathlib
import zlib
from collections.abc import Mapping

import numpy as np

from jbias import config as jc
from jbias import numerals
from jbias.data import base, corruptions
from jbias.prepare import dataset

_WHERE = "prepare corrupt"
_KNOWN = {**corruptions.CORRUPTIONS, **corruptions.BAR}
# Without `frost`, which needs photographs.
_USUAL = [name for name, one in corruptions.CORRUPTIONS.items() if not one.extra]
_COMMON = [name for name in _USUAL if name != "frost"]


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    dataset.add_options(parser, out="the folder to write into")
    add("--names", default="+".join(_COMMON), help=f"of {', '.join(_KNOWN)}")
    add("--severities", default="1+2+3+4+5")
    add("--frost", default="", help="the folder of frost's photographs, for that alone")
    table = "the side whose settings to use, 32, 64 or 224; by itself --size"
    add("--table", type=int, default=None, help=table)
    add("--jpeg", action="store_true", help="quality 85, as the published sets")
    add("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> str:
    """Makes the missing images; returns what it did.

    Raises ValueError, one line, for an unknown corruption or severity, a size without
    settings, and damaged images.
    """
    names, severities = args.names.split("+"), args.severities.split("+")
    jc.check_all_known(f"{_WHERE}: --names", names, _KNOWN)
    for one in severities:
        if not numerals.is_count(one):
            must = f"{_WHERE}: --severities must be like 1+3+5"
            raise ValueError(f"{must}, got {args.severities!r}")
        if int(one) not in corruptions.SEVERITIES:
            raise ValueError(f"{_WHERE}: --severities must be 1 to 5, got {one}")
    chosen = [*itertools.product(names, map(int, severities))]
    source, folder = dataset.open_source(args), pathlib.Path(args.out).expanduser()
    ending = "jpg" if args.jpeg else "png"
    about = {"made_by": "jbias.prepare corrupt", **dataset.made_of(source)}
    about |= dataset.select(args, "seed", "table", "jpeg")
    places = {one: folder.joinpath(*map(str, one)) for one in chosen}
    paths = {
        one: dataset.image_paths(place, source, ending, out=folder)
        for one, place in places.items()
    }
    options = {"table": args.table, "frost": args.frost or None}
    # What cannot be is refused before anything is written.
    for name, severity in chosen:
        corruptions.settings(name, severity, side=source.size, **options)
    for claim in (dataset.refuse_others, dataset.claim):  # All or none.
        for name, severity in chosen:
            own = {**about, "corruption": name, "severity": severity}
            claim(_WHERE, folder / name, str(severity), own)
    tasks = ((i, *one, p) for one, those in paths.items() for i, p in enumerate(those))
    work = [task for task in tasks if not task[-1].exists()]
    kind = {"kind": "JPEG", "quality": 85} if args.jpeg else {"kind": "PNG"}

    def make(task: tuple) -> None:
        i, name, severity, path = task
        rng = np.random.default_rng([args.seed, zlib.crc32(name.encode()), severity, i])
        image = corruptions.corrupt(source[i]["image"], name, severity, rng, **options)
        dataset.write_image(path, image, **kind)

    with dataset.map_ahead("corrupting", make, work, len(work), ahead=16) as made:
        collections.deque(made, maxlen=0)
    _sheet(folder / "sheet.png", source, paths)
    done = f"{folder}: {len(work)} images made, {len(paths) * len(source)} in all"
    first, level = chosen[0]
    root, split, space = f"{folder}/{first}", str(level), source.space
    them = f"data='folder', {root=}, {split=}, {space=}"
    return f"{done}; test on them with {them}; {folder / 'sheet.png'} shows some"


def _sheet(path: pathlib.Path, source: base.Source, paths: Mapping) -> None:
    """Draws the first image under every corruption, a column for each severity."""
    rows: dict[str, list] = {}
    severities = sorted({severity for _, severity in paths})
    for name, severity in sorted(paths, key=lambda one: one[1]):
        rows.setdefault(name, []).append(dataset.read_image(paths[name, severity][0]))
    titles = [f"severity {severity}" for severity in severities]
    dataset.write_sheet(str(path), rows, titles=titles, foot=source.cite)
