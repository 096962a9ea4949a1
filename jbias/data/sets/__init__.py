"""DATASETS: all data sets, made from the rows of tables/data_sets.json.

A row has the published facts of a data set: citation, licence, layout, download size and
address, images per split, number of classes, and the `parser` of its files.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jbias.data import base, corruptions, tables
from jbias.data.embedded import anagrams, fractals, shapes
from jbias.data.sets import (
    arrays,
    attributed,
    celeba,
    cifar,
    colored_mnist,
    folder,
    geirhos,
    imagenet,
    mnist,
    split_files,
    tfds,
)

Maker = Callable[..., base.Source]
# Data sets in files: read(files, **options).
_PARSERS: Mapping[str, Maker] = {
    "folder": folder.read,
    "known folders": folder.read_known,
    "npz": arrays.read,
    "attributed": attributed.read,
    "tfds": tfds.read,
    "idx": mnist.read,
    "cifar": cifar.read,
    "npy": cifar.read_arrays,
    "celeba": celeba.read,
    "geirhos": geirhos.read,
    "trials": geirhos.read_trials,
    "imagenet": imagenet.read,
    "wordnet": imagenet.read_wordnet,
    "sixteen": imagenet.read_sixteen,
    "real": imagenet.read_with_real,
    "subset": imagenet.read_subset,
    "tiny": imagenet.read_tiny,
}
# Data sets that are drawn or made of other data sets: make(split, **options).
_MAKERS: Mapping[str, Maker] = {
    "shapes": shapes.make,
    "fractals": fractals.make,
    "anagrams": anagrams.make,
    "colored_mnist": colored_mnist.make,
    "stacked": mnist.stacked,
}


def _severities(kinds: Mapping[str, corruptions.Corruption]) -> dict[str, list[str]]:
    """Return {split: [its folder in the published archive]}, {"fog/3": ["weather/fog/3"], ...}.

    kinds: {name of the corruption: the corruption}.
    """
    return {
        f"{kind}/{level}": [
            f"{'extra' if corruption.extra else corruption.family}/{kind}/{level}"
        ]
        for kind, corruption in kinds.items()
        for level in corruptions.SEVERITIES
    }


_KINDS = {"c": corruptions.CORRUPTIONS, "c_bar": corruptions.BAR}
_FOLDERS = {name: _severities(kinds) for name, kinds in _KINDS.items()}
_CROPPING = ("crop", "fit", "fill")  # Options of data sets whose images are cropped.
_TUPLES = ("splits", "narrows", "aspect")
_FIELDS = {field.name for field in dataclasses.fields(base.Spec)}


def _spec(name: str, row: Mapping[str, Any]) -> base.Spec:
    """Return the Spec of the data set `name`; row: its row of tables/data_sets.json."""
    folders = _FOLDERS.get(row.get("severities"), row.get("folders", {}))
    if row["parser"] in _MAKERS:
        make = _MAKERS[row["parser"]]
        options = base.keyword_options(make)
    else:
        read = _PARSERS[row["parser"]]
        make = _file_maker(name, row, folders, read=read)
        options = _file_options(row, make, read)
    images = row.get("images")
    image_splits = images if isinstance(images, dict) else ()
    fields = {"splits": folders if "severities" in row else image_splits} | row
    fields = {
        key: tuple(value) if key in _TUPLES else value
        for key, value in fields.items()
        if key in _FIELDS
    }
    return base.Spec(make=make, options=options, **fields)


def _file_maker(
    name: str,
    row: Mapping[str, Any],
    folders: Mapping[str, Sequence[str]],
    *,
    read: Maker,
) -> Maker:
    """Return make(split, *, root, size, ...) -> source, for a data set in files.

    name, row: name and row of the data set in tables/data_sets.json. folders: {split: further
    names of its folder}. read: the parser, (SplitFiles, **options) -> source.
    """

    def make(
        split: str,
        *,
        root: str,
        size: int = row.get("pixels", 224),
        resize: int | None = None,
        crop: bool = True,
        fit: str = "crop",
        interpolation: str = "bilinear",
        fill: Sequence[int] = (0, 0, 0),
        **options: Any,
    ) -> base.Source:
        """Return the source of a split: read(files, **options).

        root: folder of the data set. options: of the parser `read`. Other arguments: see
        `decoding.preprocess`.
        """
        files = split_files.request(
            name,
            split,
            root=root,
            size=size,
            resize=resize,
            crop=crop,
            fit=fit,
            interpolation=interpolation,
            fill=fill,
            folders=folders,
        )
        return read(files, **options)

    return make


def _file_options(row: Mapping[str, Any], make: Maker, read: Maker) -> base.Options:
    """Return {name: inspect.Parameter} of the options of a data set in files.

    The options are the arguments of `make` and of `read`; options of the crop are left out for
    data sets without crops. row: of tables/data_sets.json. make: the result of `_file_maker`.
    read: the parser.
    """
    options = dict(base.keyword_options(make))
    del options["options"]  # The parser's own options, which follow.
    if not row.get("crops", True):
        for name in _CROPPING:
            del options[name]
    options.update(base.keyword_options(read))
    return MappingProxyType(options)


_ROWS = {name: row for name, row in tables.data_sets().items() if "parser" in row}
_SPECS = {name: _spec(name, row) for name, row in _ROWS.items()}
DATASETS: Mapping[str, base.Spec] = MappingProxyType(_SPECS)
