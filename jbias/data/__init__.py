"""Data sets: the table of those that are known, and one function to load them."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType

from jbias.data import (
    folder,
    fractals,
    geirhos,
    pacs,
    shapes,
    spec,
    tiny_imagenet,
)

DATASETS: Mapping[str, spec.Spec] = MappingProxyType(
    {
        "shapes": spec.Spec(
            shapes.make, shapes.SPLITS, shapes.CITE, shapes.LICENCE, shapes.ABOUT
        ),
        "fractals": spec.Spec(
            fractals.make,
            fractals.SPLITS,
            fractals.CITE,
            fractals.LICENCE,
            fractals.ABOUT,
        ),
        "folder": spec.Spec(folder.make, (), folder.CITE, folder.LICENCE, folder.ABOUT),
        "pacs": spec.Spec(
            pacs.make, tuple(pacs.COUNTS), pacs.CITE, pacs.LICENCE, pacs.ABOUT
        ),
        "geirhos": spec.Spec(
            geirhos.make,
            tuple(geirhos.COUNTS),
            geirhos.CITE,
            geirhos.LICENCE,
            geirhos.ABOUT,
        ),
        "tiny_imagenet": spec.Spec(
            tiny_imagenet.make,
            tuple(tiny_imagenet.COUNTS),
            tiny_imagenet.CITE,
            tiny_imagenet.LICENCE,
            tiny_imagenet.ABOUT,
        ),
    }
)


def load(name: str, split: str, **options) -> spec.Source:
    """Makes the source of one split, such as load("pacs", "photo[:90%]", root=...).

    Raises ValueError, with the nearest known name, for an unknown data set, split or
    option, and for an option that is missing.
    """
    if name not in DATASETS:
        raise ValueError(
            f"data.load: the data set must be a known one, got {name!r};"
            f" {spec.did_you_mean(name, DATASETS)}"
        )
    entry = DATASETS[name]
    base = split.partition("[")[0]
    if entry.splits and base not in entry.splits:
        raise ValueError(
            f"data.load: the split of {name!r} must be a known one, got {base!r};"
            f" {spec.did_you_mean(base, entry.splits)}"
        )
    known = dict(inspect.signature(entry.make).parameters)
    known.pop("split")
    for option in options:
        if option not in known:
            raise ValueError(
                f"data.load: options of {name!r} must be known ones, got {option!r};"
                f" {spec.did_you_mean(option, known)}"
            )
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise ValueError(
                f"data.load: {name!r} must have the option {option!r}, got"
                f" {sorted(options)}; layout: {entry.about}"
            )
    return entry.make(split, **options)
