"""Data sets: the table of those that are known, and one function to load them."""

import functools
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jbias.data import base, set_options, sets, shifts

DATASETS = sets.DATASETS
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
    entry, split_name = DATASETS[name], split.partition("[")[0]
    what = f"data.load: the split of {name!r} must be a known one"
    base.check_known(what, split_name, entry.splits or (split_name,))
    asked = {key: options.pop(key, "") for key in COMMON_OPTIONS}
    _check_options(name, entry, options)
    make = _make_source_once if asked["shift"] else _make_source
    whole = source = make(entry, split, _hashable(options))
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


def _check_options(name: str, entry: base.Spec, options: Mapping[str, Any]) -> None:
    """Refuses options that the set has not, and the lack of one that it needs."""
    _, *known = inspect.signature(entry.make).parameters.values()  # Past the split.
    names = {one.name for one in known}
    for option in options:
        what = f"data.load: options of {name!r} must be known ones"
        base.check_known(what, option, names | COMMON_OPTIONS.keys())
    for one in known:
        if one.default is one.empty and one.name not in options:
            must = f"data.load: {name!r} must have the option {one.name!r}"
            got = f"got {sorted(options)}"
            raise base.Missing(f"{must}, {got}; expected: {entry.needs}")


def _hashable(options: Mapping[str, Any]) -> tuple:
    return tuple(
        (key, tuple(value) if isinstance(value, list) else value)
        for key, value in sorted(options.items())
    )


def _make_source(entry: base.Spec, split: str, options: tuple) -> base.Source:
    try:
        return entry.make(split, **dict(options))
    except base.Missing as error:
        raise base.Missing(f"{error}; expected: {entry.needs}") from error


# The same source again where it was the last: a shift takes four parts of one.
_make_source_once = functools.lru_cache(maxsize=1)(_make_source)
