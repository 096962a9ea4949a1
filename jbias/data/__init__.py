"""Data sets: the table of those that are known, and one function to load them."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType

from jbias.data import (
    cifar,
    folder,
    fractals,
    geirhos,
    imagenet_subsets,
    mnist,
    npz,
    pacs,
    real,
    shapes,
    spec,
    tfds,
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
        "npz": spec.Spec(npz.make, (), npz.CITE, npz.LICENCE, npz.ABOUT),
        "tfds": spec.Spec(tfds.make, (), tfds.CITE, tfds.LICENCE, tfds.ABOUT),
        "mnist": spec.Spec(
            mnist.make, tuple(mnist.COUNTS), mnist.CITE, mnist.LICENCE, mnist.ABOUT
        ),
        "fashion_mnist": spec.Spec(
            mnist.fashion,
            tuple(mnist.COUNTS),
            mnist.FASHION_CITE,
            mnist.FASHION_LICENCE,
            mnist.FASHION_ABOUT,
        ),
        "cifar10": spec.Spec(
            cifar.make, tuple(cifar.COUNTS), cifar.CITE, cifar.LICENCE, cifar.ABOUT
        ),
        "cifar100": spec.Spec(
            cifar.hundred,
            tuple(cifar.COUNTS),
            cifar.CITE,
            cifar.LICENCE,
            cifar.ABOUT_100,
        ),
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
        "imagenet_a": spec.Spec(
            imagenet_subsets.make_a,
            (),
            imagenet_subsets.CITE_A,
            imagenet_subsets.LICENCE_A,
            imagenet_subsets.ABOUT_A,
        ),
        "imagenet_r": spec.Spec(
            imagenet_subsets.make_r,
            (),
            imagenet_subsets.CITE_R,
            imagenet_subsets.LICENCE_R,
            imagenet_subsets.ABOUT_R,
        ),
        "imagenet_real": spec.Spec(real.make, (), real.CITE, real.LICENCE, real.ABOUT),
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
