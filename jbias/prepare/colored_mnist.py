"""Make Colored MNIST: MNIST's digits in colours that correlate with their class.

jbias prepare colored-mnist --root=DIR --out=colored
jbias prepare colored-mnist --root=DIR --out=half --form=conditional --correlation=0.5

Writes, for each split,

    OUT/<split>.npz   images, labels, classes, and the columns "digit", "attribute" (the colour)
                      and, for the forms with two classes, "domain" (the environment)
    OUT/<split>.json  the settings
    OUT/<split>.png   a figure with samples

A config reads the result by data='npz', root=OUT. If you start the command again, it makes only
the missing splits.
"""

import argparse
import io
import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jbias import data
from jbias.data import base
from jbias.data.forms import listing
from jbias.data.sets import colored_mnist as forms
from jbias.prepare import dataset

_WHERE, _EXAMPLES = "prepare colored-mnist", 12
_SETTINGS = ("correlation", "label_noise", "grey", "n", "seed")
_FORM_HELP = (
    "relation of digit and colour. irm and domainbed have two classes (digits 0 to 4, and "
    "5 to 9) in red or green, as in Arjovsky et al. 2019 and in DomainBed. The other forms "
    "have ten classes in four colours, as in Hu et al. 2021: marginal, conditional and joint "
    "give each digit two main colours (marginal: red and yellow for all digits; conditional: "
    "red and yellow for 0 to 4, green and blue for 5 to 9; joint: red and yellow for 0 to 4, "
    "yellow and green for 5 to 9), uniform has all colours equally often, and red, yellow, "
    "green and blue have only this colour (default: irm)"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare colored-mnist` to its parser."""
    parser.argument_default = argparse.SUPPRESS  # Left out: the data set's default.
    add = parser.add_argument
    root_help = "folder with the four published files of MNIST (docs/data.md)"
    add("--root", required=True, metavar="DIR", help=root_help)
    add("--out", required=True, metavar="DIR", help="folder to write the arrays into")
    splits_help = (
        "splits to write, joined by +. The forms irm and domainbed have the splits "
    )
    splits_help += f"{', '.join(forms.SPLITS)}, where train_0 and train_1 are the two "
    splits_help += (
        "environments of train. The other forms have the splits train and test "
    )
    splits_help += "(default: train+test)"
    add("--splits", default="train+test", metavar="A+B", help=splits_help)
    add("--form", default="irm", metavar="FORM", help=_FORM_HELP)
    correlation_help = (
        "fraction of the images of every split, 0 to 1, in the colour of their "
    )
    correlation_help += "label (irm, domainbed) or in a main colour of their digit "
    correlation_help += (
        "(marginal, conditional, joint) (default: for irm 0.8 in train_0, 0.9 in "
    )
    correlation_help += (
        "train_1 and 0.1 in test; for domainbed 0.9, 0.8 and 0.1; for the other "
    )
    correlation_help += "forms 1 in train and 0 in test)"
    add("--correlation", type=float, metavar="SHARE", help=correlation_help)
    noise_help = (
        "only for the forms irm and domainbed: fraction of the labels, 0 to 1, that "
    )
    noise_help += "are flipped (default: 0.25)"
    add("--label-noise", type=float, metavar="SHARE", help=noise_help)
    grey_help = "draw grey digits: a control that cannot use colour (default: coloured)"
    add("--grey", action="store_true", help=grey_help)
    n_help = "number of images: use only the first N of each split (default: all)"
    add("--n", type=int, metavar="N", help=n_help)
    size_help = "side of the images in pixels (default: 14 for irm, 28 for domainbed, "
    size_help += "else 32)"
    add("--size", type=int, metavar="PIXELS", help=size_help)
    seed_help = (
        "random seed of the environments, flipped labels and colours (default: 0)"
    )
    add("--seed", type=int, default=0, metavar="N", help=seed_help)


def run(args: argparse.Namespace) -> str:
    """Write the missing splits; return a line with their names and the options that read them.

    Also write the figure of every split. args: the flags of `add`. ValueError for a part of a
    split, options that the data set refuses, and a folder with splits of different settings.
    """
    folder, new_splits = pathlib.Path(args.out).expanduser(), []
    options = dataset.select(args, "form", "size", *_SETTINGS)
    split_sources = {}
    for split in dict.fromkeys(args.splits.split("+")):
        if listing.parse_split(_WHERE, split).base != split:
            raise ValueError(f"{_WHERE}: --splits must be whole ones, got {split!r}")
        split_sources[split] = data.load(
            "colored_mnist", split, root=args.root, **options
        )
    for split, source in split_sources.items():
        path = folder / f"{split}.npz"
        if path.exists() and not path.with_suffix(".json").exists():
            must = f"{_WHERE}: {path} must be new"
            raise ValueError(f"{must}, got one made by something else; {dataset.OTHER}")
        dataset.check_settings(
            _WHERE, folder, split=split, settings=_settings(source, options)
        )
    for split, source in split_sources.items():
        dataset.claim(_WHERE, folder, split=split, settings=_settings(source, options))
        if not (folder / f"{split}.npz").exists():
            _write_arrays(folder / f"{split}.npz", source)
            new_splits.append(split)
        foot = source.cite.partition(";")[0]
        dataset.write_sheet(str(folder / f"{split}.png"), _rows(source), foot=foot)
    first, size = next(iter(split_sources)), source.size
    counts = f"{'+'.join(new_splits) or 'nothing'} made"
    counts += f", {'+'.join(split_sources)} in all"
    entry = f"data='npz', root={str(folder)!r}, split={first!r}, size={size}"
    return (
        f"{folder}: {counts}; read them with {entry}; {folder / first}.png shows some"
    )


def _settings(source: base.Source, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a split, for its JSON file.

    The settings are "made_by", "source", "preprocessing", "fingerprint", "cite", and the
    options in _SETTINGS, None if left out. options: options of the data set, by name.
    """
    return {
        "made_by": "jbias.prepare colored-mnist",
        "source": source.name,
        "preprocessing": source.preprocessing,
        **{key: options.get(key) for key in _SETTINGS},
        "fingerprint": source.fingerprint,
        "cite": source.cite,
    }


def _write_arrays(path: pathlib.Path, source: base.Source) -> None:
    """Write a source to an .npz file: "images", "labels", "classes" and further columns."""
    columns = dict(source.columns)
    labels = columns.pop("label")
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        images=source.images,
        labels=labels,
        **columns,
        classes=np.array(source.classes),
    )
    dataset.write_file(path, buffer.getvalue())


def _rows(source: base.Source) -> dict[str, list[np.ndarray]]:
    """Return {title: images}, rows of the sheet: the first images of a class, at most 12.

    With several environments, each class has a row for each environment. Rows without images
    are left out.
    """
    label = source.columns["label"]
    domain = source.columns.get("domain", np.zeros_like(label))
    rows, domains = {}, np.unique(domain)
    for number, (k, name) in itertools.product(domains, enumerate(source.classes)):
        index = np.flatnonzero((label == k) & (domain == number))[:_EXAMPLES]
        if len(index):
            title = f"env {number}: {name}" if len(domains) > 1 else name
            rows[title] = [*source.images[index]]
    return rows
