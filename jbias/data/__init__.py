"""Data sets: the table of those that are known, and one function to load them."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from jbias import extensions
from jbias.data import base, set_options, sets, shifts, sources
from jbias.data.forms import listing

DATASETS = sets.DATASETS
# Options that every set has, and of which kind they are.
_OPTIONS: dict[str, Any] = dict.fromkeys(("columns", "skip", "keep", "drop"), str)
_OPTIONS |= {"shift": str | Mapping[str, Any], "portion": str}
_OPTIONS |= {"measures": Sequence[str]}
COMMON_OPTIONS: Mapping[str, Any] = MappingProxyType(_OPTIONS)
make_shift = shifts.make_shift  # For arrays of one's own.


def load(name: str, split: str, **options) -> base.Source:
    """Makes the source of one split, such as load("pacs", "photo[:90%]", root=...).

    Raises ValueError, with the nearest known name, for an unknown data set, split or
    option, and for an option that is missing; base.Missing, with what is expected, its
    size and where one gets it, where a set is not there.

    name: a key of DATASETS, or `path/to/file.py:function`, or an entry point of the group
    jbias.data: make(split, *, size, ...) -> base.Source of all images of a split, of which
    "[:90%]" is taken here.

    Every set has the options `skip`, a list of damaged images to leave out; `keep`, a
    file that says which images stay; `drop`, classes to leave out, "truck+ship";
    `columns`, a file with further attributes (set_options.py); `shift`, a part with a
    chosen table of an attribute (shifts.py); and `portion`, a share of every class and
    attribute, "[:80%]", of what the others leave. `measures` are counted of it in the
    place of its own, names that evals.find_measure knows.
    """
    entry, split_name = find(name), split.partition("[")[0]
    what = f"data.load: the split of {name!r} must be a known one"
    base.check_known(what, split_name, entry.splits or (split_name,))
    asked = {key: options.pop(key, "") for key in COMMON_OPTIONS}
    _check_options(name, entry, options)
    make = _make_source_once if asked["shift"] else _make_source
    whole = source = make(entry, split, _hashable(options))
    if asked["measures"]:
        source = dataclasses.replace(source, measures=tuple(asked["measures"]))
    if asked["columns"] or asked["skip"] or asked["keep"]:
        wide = {k: value for k, value in options.items() if k not in entry.narrows}
        if (split, options) != (split_name, wide):
            whole = _make_source(entry, split_name, _hashable(wide))
    if asked["columns"]:
        source = set_options.add_columns(source, split, asked["columns"], whole)
    if asked["keep"]:
        source = set_options.keep(source, split, asked["keep"], whole)
    if asked["skip"]:
        source = set_options.skip(source, split_name, asked["skip"], whole)
    if asked["drop"]:
        source = set_options.drop(source, asked["drop"].split("+"))
    if asked["shift"]:
        source = shifts.apply(source, asked["shift"])
    return set_options.portion(source, asked["portion"]) if asked["portion"] else source


_MUST = "an ArraySource or an EncodedSource of jbias.data.sources"
_KNOWN = sources.ArraySource | sources.EncodedSource
_is_source = lambda made: isinstance(made, _KNOWN)
KIND = extensions.Kind("data", DATASETS, _MUST, _is_source, (base.Missing,))


def find(name: str) -> base.Spec:
    """The row of a data set, ours or the user's own; ValueError for none."""
    where = "data.load: the data set must be a known one"
    if name in DATASETS:
        return DATASETS[name]
    if ":" not in name:
        names = (one.name for one in extensions.offered(group="jbias.data"))
        base.check_known(where, name, {*DATASETS, *names})
    made = extensions.find(where, name, KIND)

    @functools.wraps(made)
    def make(split: str, **options: Any) -> base.Source:
        part = listing.parse_split("data.load", split)
        source = made(part.base, **options)
        if part.base == split:
            return source
        label, names = source.columns["label"], listing.number_names(len(source))
        rows = listing.split_indices(name, names, label, source.classes, part)
        return sources.take(source, rows, digest=split)

    return base.Spec(make, (), cite="", licence="", about=name)


def from_arrays(
    name: str,
    images: UInt8[np.ndarray, "n h w 3"],
    labels: Int[np.ndarray, "n"],
    classes: Sequence[str],
    **about: Any,
) -> sources.ArraySource:
    """A source of images in memory, such as a data set of one's own returns.

    name: in tables, such as "mine/train". about: further fields of the source, such as
    `columns`, numbers of each image by name, or `measures` (accuracy, if not given).
    ValueError where shapes, types or labels do not fit.
    """
    columns = {"label": labels, **about.pop("columns", {})}
    columns = {key: np.asarray(one, np.int32) for key, one in columns.items()}
    told = dict(name=name, classes=tuple(classes), columns=columns, images=images)
    of = np.stack([*columns.values()]), (*classes, *columns)
    told["fingerprint"] = listing.digest_arrays(images, *of)
    usual = dict(preprocessing="as given", cite="")  # Others are a source's defaults.
    return sources.ArraySource(**told, **usual | about)


def _check_options(name: str, entry: base.Spec, options: Mapping[str, Any]) -> None:
    """Refuses options that the set has not, and the lack of one that it needs."""
    _, *known = inspect.signature(entry.make).parameters.values()  # Past the split.
    names = {one.name for one in known}
    for option in options:
        what = f"data.load: options of {name!r} must be known ones"
        base.check_known(what, option, names | COMMON_OPTIONS.keys())
    for one in known:
        if one.default is one.empty and one.name not in options:
            must = f"data.load: {name!r} must have the option {one.name!r}, got"
            raise base.Missing(f"{must} {sorted(options)}; expected: {entry.needs}")


def _hashable(options: Mapping[str, Any]) -> tuple:
    held = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return tuple(sorted(held.items()))


def _make_source(entry: base.Spec, split: str, options: tuple) -> base.Source:
    try:
        return entry.make(split, **dict(options))
    except base.Missing as error:
        raise base.Missing(f"{error}; expected: {entry.needs}") from error


# The same source again where it was the last: a shift takes four parts of one.
_make_source_once = functools.lru_cache(maxsize=1)(_make_source)
