"""Writes Colored MNIST as arrays: for each split the images, and all that is known of them.

jbias prepare colored-mnist --root=DIR --out=colored
jbias prepare colored-mnist --root=DIR --out=half --form=conditional --correlation=0.5

Writes OUT/<split>.npz with images, labels, classes and a column each for "digit",
"attribute", the colour, and, of two classes, "domain", the environment; OUT/<split>.json,
what it was made by; and OUT/<split>.png, some of it. To train on it: data='npz', root=OUT.
Started again, the command makes the splits that are missing.
"""

import argparse
import io
import itertools
import pathlib

import numpy as np

from jbias import data
from jbias.data import base
from jbias.data.forms import listing
from jbias.data.sets import colored_mnist as forms
from jbias.prepare import dataset

_WHERE, _EXAMPLES = "prepare colored-mnist", 12
_SETTINGS = ("correlation", "label_noise", "grey", "n", "seed")


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.argument_default = argparse.SUPPRESS  # Left out: the set's default.
    add = parser.add_argument
    add("--root", required=True, help="the folder of MNIST's published files")
    add("--out", required=True, help="the folder to write into")
    add("--splits", default="train+test", help=f"of {', '.join(forms.SPLITS)}")
    add("--form", default="irm", help=f"one of {', '.join(forms.FORMS)}")
    add("--correlation", type=float, help="how often colour agrees with the label")
    add("--label-noise", type=float, help="how often a label of two classes is flipped")
    add("--grey", action="store_true", help="show no colours")
    add("--n", type=int, help="the first n images of each split")
    add("--size", type=int, help="pixels; 14, 28 or 32 by the form")
    add("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> str:
    """Makes the missing splits; returns what it did.

    Raises ValueError, one line, for what the data set refuses, and for a folder that
    holds splits of other settings.
    """
    folder, made = pathlib.Path(args.out).expanduser(), []
    found, options = {}, dataset.select(args, "form", "size", *_SETTINGS)
    for split in dict.fromkeys(args.splits.split("+")):
        if listing.parse_split(_WHERE, split).base != split:
            raise ValueError(f"{_WHERE}: --splits must be whole ones, got {split!r}")
        source = data.load("colored_mnist", split, root=args.root, **options)
        found[split] = source, _settings(source, options)
    for split, (_, own) in found.items():
        path = folder / f"{split}.npz"
        if path.exists() and not path.with_suffix(".json").exists():
            must = f"{_WHERE}: {path} must be new"
            raise ValueError(f"{must}, got one made by something else; {dataset.OTHER}")
        dataset.refuse_others(_WHERE, folder, split, own)
    for split, (source, own) in found.items():
        dataset.claim(_WHERE, folder, split, own)
        if not (folder / f"{split}.npz").exists():
            _write(folder / f"{split}.npz", source)
            made.append(split)
        foot = source.cite.partition(";")[0]
        dataset.write_sheet(str(folder / f"{split}.png"), _rows(source), foot=foot)
    first, size = next(iter(found)), source.size
    done = f"{'+'.join(made) or 'nothing'} made, {'+'.join(found)} in all"
    them = f"data='npz', root={str(folder)!r}, split={first!r}, size={size}"
    return f"{folder}: {done}; read them with {them}; {folder / first}.png shows some"


def _settings(source: base.Source, options: dict) -> dict:
    return {
        "made_by": "jbias.prepare colored-mnist",
        "source": source.name,
        "preprocessing": source.preprocessing,
        **{key: options.get(key) for key in _SETTINGS},
        "fingerprint": source.fingerprint,
        "cite": source.cite,
    }


def _write(path: pathlib.Path, source: base.Source) -> None:
    columns = dict(source.columns)
    arrays = {"images": source.images, "labels": columns.pop("label"), **columns}
    arrays["classes"] = np.array(source.classes)
    np.savez_compressed(written := io.BytesIO(), **arrays)
    dataset.write_file(path, written.getvalue())


def _rows(source: base.Source) -> dict[str, list[np.ndarray]]:
    """The first images of each class, in each environment where there are several."""
    label = source.columns["label"]
    domain = source.columns.get("domain", np.zeros_like(label))
    rows, domains = {}, np.unique(domain)
    for number, (k, name) in itertools.product(domains, enumerate(source.classes)):
        chosen = np.flatnonzero((label == k) & (domain == number))[:_EXAMPLES]
        if len(chosen):
            title = f"env {number}: {name}" if len(domains) > 1 else name
            rows[title] = [*source.images[chosen]]
    return rows
