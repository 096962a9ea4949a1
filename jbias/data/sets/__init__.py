"""All data sets: a row of tables/data_sets.json each, and the function that reads it.

A row says what is published of a set: whom to cite, the licence, the layout, how large it is
and where one gets it, images of each split, classes, and the `parser` of its files.
"""

import dataclasses
import inspect
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
    tfds,
)

Maker = Callable[..., base.Source]
# Of sets in files: read(request, **options).
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
# Of sets that are drawn, or made of others: make(split, **options).
_MAKERS: Mapping[str, Maker] = {
    "shapes": shapes.make,
    "fractals": fractals.make,
    "anagrams": anagrams.make,
    "colored_mnist": colored_mnist.make,
    "stacked": mnist.stacked,
}


def _severities(kinds: Mapping[str, corruptions.Corruption]) -> dict[str, list[str]]:
    """A split such as "fog/3", and the folder of the published archive that it has."""
    return {
        f"{kind}/{level}": [f"{'extra' if one.extra else one.family}/{kind}/{level}"]
        for kind, one in kinds.items()
        for level in corruptions.SEVERITIES
    }


_KINDS = {"c": corruptions.CORRUPTIONS, "c_bar": corruptions.BAR}
_FOLDERS = {name: _severities(kinds) for name, kinds in _KINDS.items()}
_CROPPING = ("crop", "fit", "fill")  # Options of sets whose images are cropped.
_TUPLES = ("splits", "narrows", "aspect")
_FIELDS = {field.name for field in dataclasses.fields(base.Spec)}


def _spec(name: str, row: Mapping[str, Any]) -> base.Spec:
    folders = _FOLDERS.get(row.get("severities"), row.get("folders", {}))
    make = _MAKERS.get(row["parser"]) or _opener(name, row, folders)
    images = row.get("images")
    counted = images if isinstance(images, dict) else ()
    told = {"splits": folders if "severities" in row else counted} | row
    told = {k: tuple(v) if k in _TUPLES else v for k, v in told.items() if k in _FIELDS}
    return base.Spec(make, **told)


def _opener(name: str, row: Mapping[str, Any], folders: Mapping) -> Maker:
    """Makes make(split, *, root, size, ...) of a set in files, from its parser."""
    read = _PARSERS[row["parser"]]

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
        request = folder.request(
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
        return read(request, **options)

    *shared, _ = inspect.signature(make).parameters.values()
    if not row.get("crops", True):
        shared = [one for one in shared if one.name not in _CROPPING]
    _, *asked = inspect.signature(read).parameters.values()
    make.__signature__ = inspect.Signature([*shared, *asked])
    return make


_ROWS = {name: row for name, row in tables.data_sets().items() if "parser" in row}
_SPECS = {name: _spec(name, row) for name, row in _ROWS.items()}
DATASETS: Mapping[str, base.Spec] = MappingProxyType(_SPECS)
