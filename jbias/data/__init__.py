"""Data sets: the table of those that are known, and one function to load them."""

import functools
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jbias.data import (
    annotated,
    attributed,
    celeba,
    cifar,
    cifar_relatives,
    colored_mnist,
    damaged,
    folder,
    fractals,
    geirhos,
    imagenet,
    imagenet16,
    imagenet_relatives,
    imagenet_subsets,
    mnist,
    model_vs_human,
    npz,
    office_home,
    pacs,
    real,
    shapes,
    shifted,
    shifts,
    spec,
    stacked,
    subset,
    tfds,
    tiny_imagenet,
)

DATASETS: Mapping[str, spec.Spec] = MappingProxyType(
    {
        "shapes": shapes.SPEC,
        "fractals": fractals.SPEC,
        "folder": folder.SPEC,
        "npz": npz.SPEC,
        "attributed": attributed.SPEC,
        "tfds": tfds.SPEC,
        **mnist.SPECS,
        "colored_mnist": colored_mnist.SPEC,
        **cifar.SPECS,
        "stacked": stacked.SPEC,
        **cifar_relatives.SPECS,
        "pacs": pacs.SPEC,
        "office_home": office_home.SPEC,
        "celeba": celeba.SPEC,
        "geirhos": geirhos.SPEC,
        "model_vs_human": model_vs_human.SPEC,
        "imagenet": imagenet.SPEC,
        "imagenet16": imagenet16.SPEC,
        "imagenet_real": real.SPEC,
        **imagenet_relatives.SPECS,
        **imagenet_subsets.SPECS,
        "tiny_imagenet": tiny_imagenet.SPEC,
    }
)

# Options that every set has, and of which kind they are.
OF_ALL: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("columns", "skip", "keep", "drop"), str),
        "shift": str | Mapping[str, Any],
        "portion": str,
    }
)

make_shift = shifts.make_shift  # For arrays of one's own.


def load(name: str, split: str, **options) -> spec.Source:
    """Makes the source of one split, such as load("pacs", "photo[:90%]", root=...).

    Raises ValueError, with the nearest known name, for an unknown data set, split or
    option, and for an option that is missing; spec.Missing, with what is expected, its
    size and where one gets it, where a set is not there.

    Every set has the options `skip`, a list of damaged images to leave out; `keep`, a
    file that says which images stay; `drop`, classes to leave out, "truck+ship";
    `columns`, a file with further attributes (annotated.py); `shift`, a part with a
    chosen table of an attribute (shifted.py); and `portion`, a share of every class and
    attribute, "[:80%]", of what the others leave.
    """
    if name not in DATASETS:
        raise ValueError(
            f"data.load: the data set must be a known one, got {name!r};"
            f" {spec.did_you_mean(name, DATASETS)}"
        )
    entry = DATASETS[name]
    split_name = split.partition("[")[0]
    if entry.splits and split_name not in entry.splits:
        raise ValueError(
            f"data.load: the split of {name!r} must be a known one, got {split_name!r};"
            f" {spec.did_you_mean(split_name, entry.splits)}"
        )
    known = dict(inspect.signature(entry.make).parameters)
    text = known.pop("split").replace(default="")
    known |= dict.fromkeys(OF_ALL, text)
    for option in options:
        if option not in known:
            raise ValueError(
                f"data.load: options of {name!r} must be known ones, got {option!r};"
                f" {spec.did_you_mean(option, known)}"
            )
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise spec.Missing(
                f"data.load: {name!r} must have the option {option!r}, got"
                f" {sorted(options)}; expected: {entry.needs}"
            )
    taken = (options.pop(name, "") for name in OF_ALL)
    columns, skip, keep, drop, shift, portion = taken
    source = (_kept if shift else _made)(entry, split, options)
    whole = source
    if columns or skip or keep:
        wide = {k: value for k, value in options.items() if k not in entry.narrows}
        if (split, options) != (split_name, wide):
            whole = _made(entry, split_name, wide)
    if columns:
        source = annotated.add(source, split, columns, whole)
    if keep:
        source = subset.keep(source, split, keep, whole)
    if skip:
        source = damaged.leave_out(source, split_name, skip, whole)
    source = subset.drop(source, drop.split("+")) if drop else source
    source = shifted.apply(source, shift) if shift else source
    return subset.portion(source, portion) if portion else source


def _kept(entry: spec.Spec, split: str, options: Mapping) -> spec.Source:
    """The same source again where it was the last: a shift takes four parts of one."""
    items = tuple(sorted(options.items()))
    try:
        return _last(entry, split, items)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _made(entry, split, options)


@functools.lru_cache(maxsize=1)
def _last(entry: spec.Spec, split: str, items: tuple) -> spec.Source:
    return _made(entry, split, dict(items))


def _made(entry: spec.Spec, split: str, options: Mapping) -> spec.Source:
    try:
        return entry.make(split, **options)
    except spec.Missing as error:
        raise spec.Missing(f"{error}; expected: {entry.needs}") from error
