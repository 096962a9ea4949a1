"""Corrupts a set as ImageNet-C or ImageNet-C-bar: a folder for each kind and severity.

python -m jbias.prepare corrupt --data=folder --root=DIR --split=val --size=224 --out=DIR-c
python -m jbias.prepare corrupt --names=fog+snow --severities=3 --size=64 --out=c

Writes OUT/<corruption>/<severity>/<class>/<number>.png, which are sets to test on
(data='folder', root=OUT/<corruption>, split=<severity>), and OUT/sheet.png, the first image
under all of them. Image i is a function of the set, the corruption, the severity, the
seed and i: started again, the command makes what is missing.
"""

import os
import pathlib
import zlib
from collections.abc import Sequence
from concurrent import futures

import numpy as np
from PIL import Image

from jbias.data import base, corruptions
from jbias.prepare import dataset, sheet
from jbias.runtime import console
from jbias.untrusted import opening

_KNOWN = {**corruptions.CORRUPTIONS, **corruptions.BAR}
# Without `frost`, which needs photographs.
_COMMON = [
    name
    for name, entry in corruptions.CORRUPTIONS.items()
    if not entry.extra and name != "frost"
]


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.set_defaults(command=corrupt)
    add = parser.add_argument
    add("--out", required=True, help="the folder to write into")
    dataset.add_options(parser)
    add("--names", default="+".join(_COMMON), help=f"of {', '.join(_KNOWN)}")
    add("--severities", default="1+2+3+4+5")
    add("--frost", default="", help="the folder of frost's photographs, for that alone")
    table = "the side whose settings to use, 32, 64 or 224; by itself --size"
    add("--table", type=int, default=None, help=table)
    add("--jpeg", action="store_true", help="quality 85, as the published sets")
    add("--seed", type=int, default=0)


def corrupt(
    out: str,
    *,
    names: str,
    severities: str,
    frost: str,
    table: int | None,
    jpeg: bool,
    seed: int,
    **arguments,
) -> str:
    """Makes the missing images; returns what it did.

    Raises ValueError, one line, for an unknown corruption or severity, a size without
    settings, and damaged images.
    """
    chosen = [(name, int(s)) for name in names.split("+") for s in _split(severities)]
    for name, _ in chosen:
        if name not in _KNOWN:
            raise ValueError(
                f"prepare corrupt: --names must be known ones, got {name!r};"
                f" {base.did_you_mean(name, _KNOWN)}"
            )
    wrong = [severity for _, severity in chosen if severity not in range(1, 6)]
    if wrong:
        raise ValueError(
            f"prepare corrupt: --severities must be 1 to 5, got {wrong[0]}"
        )
    source = dataset.open_source(arguments)
    options = {"table": table, "frost": frost or None}
    folder, ending = pathlib.Path(out).expanduser(), "jpg" if jpeg else "png"
    work = [
        (i, name, severity, path)
        for name, severity in chosen
        for i, path in enumerate(_paths(folder / name / str(severity), source, ending))
        if not path.exists()
    ]

    def make(task: tuple) -> np.ndarray:
        i, name, severity, path = task
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), severity, i])
        image = corruptions.corrupt(source[i]["image"], name, severity, rng, **options)
        part = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = {"format": "JPEG", "quality": 85} if jpeg else {"format": "PNG"}
        Image.fromarray(image).save(part, **kind)
        os.replace(part, path)
        return image

    with (
        futures.ThreadPoolExecutor(dataset.WORKERS) as pool,
        console.progress_bar("corrupting", len(work)) as progress,
    ):
        for done, _ in enumerate(dataset.map_ahead(pool, make, work, 16), 1):
            progress(done, len(work))
    _sheet(folder, source, chosen, ending)
    return (
        f"{folder}: {len(work)} images made, {len(chosen) * len(source)} in all; test on"
        f" them with data='folder', root='{folder}/{chosen[0][0]}',"
        f" split='{chosen[0][1]}', space={source.space!r}; {folder / 'sheet.png'} shows some"
    )


def _split(severities: str) -> list[str]:
    found = severities.split("+")
    if not all(one.isdecimal() for one in found):
        raise ValueError(
            f"prepare corrupt: --severities must be like 1+3+5, got {severities!r}"
        )
    return found


def _paths(
    folder: pathlib.Path, source: base.Source, ending: str
) -> list[pathlib.Path]:
    names, labels = dataset.class_folders(source), source.columns["label"]
    return [
        folder / names[label] / f"{i:06d}.{ending}" for i, label in enumerate(labels)
    ]


def _sheet(
    folder: pathlib.Path, source: base.Source, chosen: Sequence, ending: str
) -> None:
    """Draws the first image under every corruption, a column for each severity."""
    rows: dict[str, list] = {}
    severities = sorted({severity for _, severity in chosen})
    for name in dict.fromkeys(name for name, _ in chosen):
        for severity in severities:
            path = _paths(folder / name / str(severity), source, ending)[0]
            with opening.image(path) as image:
                rows.setdefault(name, []).append(np.asarray(image.convert("RGB")))
    titles = [f"severity {severity}" for severity in severities]
    sheet.write(str(folder / "sheet.png"), rows, titles=titles, foot=source.cite)
