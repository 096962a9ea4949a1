"""Data sets: the table of those that are known, and one function to load them."""

import functools
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jbias.data import base, set_options, shifts
from jbias.data.embedded import fractals, shapes
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
)

DATASETS: Mapping[str, base.Spec] = MappingProxyType(
    {
        "shapes": shapes.SPEC,
        "fractals": fractals.SPEC,
        "folder": folder.SPEC,
        "npz": arrays.SPEC,
        "attributed": attributed.SPEC,
        "tfds": folder.TFDS_SPEC,
        **mnist.SPECS,
        "colored_mnist": colored_mnist.SPEC,
        **cifar.SPECS,
        "stacked": mnist.STACKED_SPEC,
        **cifar.VARIANT_SPECS,
        **folder.DOMAIN_SPECS,
        "celeba": celeba.SPEC,
        **geirhos.SPECS,
        "imagenet": imagenet.SPEC,
        **imagenet.VARIANT_SPECS,
    }
)

# Options that every set has, and of which kind they are.
COMMON_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("columns", "skip", "keep", "drop"), str),
        "shift": str | Mapping[str, Any],
        "portion": str,
    }
)

make_shift = shifts.make_shift  # For arrays of one's own.


def load(name: str, split: str, **options) -> base.Source:
    """Makes the source of one split, such as load("pacs", "photo[:90%]", root=...).

    Raises ValueError, with the nearest known name, for an unknown data set, split or
    option, and for an option that is missing; base.Missing, with what is expected, its
    size and where one gets it, where a set is not there.

    Every set has the options `skip`, a list of damaged images to leave out; `keep`, a
    file that says which images stay; `drop`, classes to leave out, "truck+ship";
    `columns`, a file with further attributes (set_options.py); `shift`, a part with a
    chosen table of an attribute (shifts.py); and `portion`, a share of every class and
    attribute, "[:80%]", of what the others leave.
    """
    base.check_known("data.load: the data set must be a known one", name, DATASETS)
    entry = DATASETS[name]
    split_name = split.partition("[")[0]
    what = f"data.load: the split of {name!r} must be a known one"
    base.check_known(what, split_name, entry.splits or (split_name,))
    known = dict(inspect.signature(entry.make).parameters)
    text = known.pop("split").replace(default="")
    known |= dict.fromkeys(COMMON_OPTIONS, text)
    for option in options:
        what = f"data.load: options of {name!r} must be known ones"
        base.check_known(what, option, known)
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise base.Missing(
                f"data.load: {name!r} must have the option {option!r}, got"
                f" {sorted(options)}; expected: {entry.needs}"
            )
    taken = (options.pop(name, "") for name in COMMON_OPTIONS)
    columns, skip, keep, drop, shift, portion = taken
    source = (_cached_source if shift else _make_source)(entry, split, options)
    whole = source
    if columns or skip or keep:
        wide = {k: value for k, value in options.items() if k not in entry.narrows}
        if (split, options) != (split_name, wide):
            whole = _make_source(entry, split_name, wide)
    if columns:
        source = set_options.add_columns(source, split, columns, whole)
    if keep:
        source = set_options.keep(source, split, keep, whole)
    if skip:
        source = set_options.skip(source, split_name, skip, whole)
    source = set_options.drop(source, drop.split("+")) if drop else source
    source = shifts.apply(source, shift) if shift else source
    return set_options.portion(source, portion) if portion else source


def _cached_source(entry: base.Spec, split: str, options: Mapping) -> base.Source:
    """The same source again where it was the last: a shift takes four parts of one."""
    items = tuple(sorted(options.items()))
    try:
        return _last_source(entry, split, items)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _make_source(entry, split, options)


@functools.lru_cache(maxsize=1)
def _last_source(entry: base.Spec, split: str, items: tuple) -> base.Source:
    return _make_source(entry, split, dict(items))


def _make_source(entry: base.Spec, split: str, options: Mapping) -> base.Source:
    try:
        return entry.make(split, **options)
    except base.Missing as error:
        raise base.Missing(f"{error}; expected: {entry.needs}") from error
