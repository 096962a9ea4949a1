"""The table DATASETS of all known data sets, and `load`, which opens a data set by name."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from jbias import errors, extensions
from jbias.data import base, set_options, sets, shifts, sources
from jbias.data.forms import listing

DATASETS = sets.DATASETS
make_shift = shifts.make_shift  # For a user's own arrays.


class CommonOption(NamedTuple):
    """An option that every data set has.

    kind: the type of its values. apply: the function (source, value) -> source. needs_whole:
    True if `apply` also takes the keywords `split`, the split of the source, "train[:90%]", and
    `whole`, the source of the whole split.
    """

    kind: Any
    apply: Callable[..., base.Source]
    needs_whole: bool = False


# The options of every data set, in the order in which they are applied.
COMMON_OPTIONS: Mapping[str, CommonOption] = MappingProxyType(
    {
        "columns": CommonOption(str, set_options.add_columns, needs_whole=True),
        "keep": CommonOption(str, set_options.keep, needs_whole=True),
        "skip": CommonOption(str, set_options.skip, needs_whole=True),
        "drop": CommonOption(str, set_options.drop),
        "shift": CommonOption(str | Mapping[str, Any], shifts.apply),
        "portion": CommonOption(str, set_options.portion),
        "measures": CommonOption(Sequence[str], set_options.replace_measures),
    }
)


def load(name: str, split: str, **options: Any) -> base.Source:
    """Return the source of one split, such as load("pacs", "photo[:90%]", root=...).

    ValueError, with the nearest known name, for an unknown data set, split or option, and for
    an invalid value of an option. base.Missing, a ValueError, for a required option that is
    absent, and for a data set that is not on disk; the message then has the expected files, and
    the size and the address of the download.

    name: a key of DATASETS, or a user's own function make(split, *, size, ...) -> base.Source,
    given as `path/to/file.py:function` or as an entry point of the group jbias.data. The
    function returns all images of a split; `load` then selects a part such as "[:90%]".

    options: the data set's own options, DATASETS[name].options, and options of every data set:
      columns   file with further attributes (set_options.py)
      keep      file with the images to use
      skip      file with a list of damaged images to leave out
      drop      classes to leave out, "truck+ship"
      shift     options of a distribution shift (shifts.py)
      portion   share of each class and attribute to select last, "[:80%]"
      measures  names of measures (evals.find_measure) instead of the data set's own
    """
    data_set, split_name = find(name), split.partition("[")[0]
    errors.check_known(
        "data.load",
        split_name,
        data_set.splits or (split_name,),
        f"the split of {name!r}",
        must="be a known one",
    )
    values = {key: options.pop(key, "") for key in COMMON_OPTIONS}
    _check_options(name, data_set, options)
    open_split = _open_split_once if values["shift"] else _open_split
    source = whole = open_split(data_set, split, _hashable(options))
    if any(values[key] and COMMON_OPTIONS[key].needs_whole for key in COMMON_OPTIONS):
        wide_options = {k: v for k, v in options.items() if k not in data_set.narrows}
        if (split, options) != (split_name, wide_options):
            whole = _open_split(data_set, split_name, _hashable(wide_options))
    for key, option in COMMON_OPTIONS.items():
        if values[key] and option.needs_whole:
            source = option.apply(source, values[key], split=split, whole=whole)
        elif values[key]:
            source = option.apply(source, values[key])
    return source


def _is_source(value: Any) -> bool:
    """Return True for an ArraySource or an EncodedSource; `load` accepts no other types."""
    return isinstance(value, sources.ArraySource | sources.EncodedSource)


REGISTRY = extensions.Registry(
    group="data",
    known=DATASETS,
    must="an ArraySource or an EncodedSource of jbias.data.sources",
    fits=_is_source,
    allowed_errors=(base.Missing,),
)


def find(name: str) -> base.DataSet:
    """Return the data set of a name; ValueError if the name is unknown.

    name: a key of DATASETS, or the name of a user's own data set, see `load`. A user's data set
    has no known splits. messages.UserCodeError, a ValueError, if the user's file or function
    fails.
    """
    if name in DATASETS:
        return DATASETS[name]
    if ":" not in name:
        offered = [offer.name for offer in extensions.provided(group="jbias.data")]
        errors.check_known(
            "data.load",
            name,
            {*DATASETS, *offered},
            "the data set",
            must="be a known one",
        )
    where = "data.load: the data set must be a known one"
    make = extensions.find(where, name, REGISTRY)
    return _OwnSet(name=name, make=make, cite="", licence="", about=name)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _OwnSet(base.DataSet):
    """A data set of a user's own function, which returns all images of a split."""

    make: Callable[..., base.Source]  # make(split, *, size, option=...) -> source.

    @property
    def options(self) -> base.Options:
        """The keyword options of the user's function."""
        return base.keyword_options(self.make)

    def open(self, split: str, **options: Any) -> base.Source:
        """Return the source of a split or of a part of it; options: of the user's function."""
        parsed_split = listing.parse_split("data.load", split)
        source = self.make(parsed_split.base, **options)
        if parsed_split.base == split:
            return source
        rows = listing.split_indices(
            self.name,
            listing.number_names(len(source)),
            labels=source.columns["label"],
            classes=source.classes,
            split=parsed_split,
        )
        return sources.take(source, rows, digest=split)


def from_arrays(
    name: str,
    images: UInt8[np.ndarray, "n h w 3"],
    labels: Int[np.ndarray, "n"],
    classes: Sequence[str],
    **fields: Any,
) -> sources.ArraySource:
    """Return a source of images in memory, for a data set of the user's own.

    name: the source's name in tables, such as "mine/train". images: not copied. labels: index
    into `classes` of each image. fields: further fields of base.Source, such as `columns`,
    {name: an integer per image}, or `measures` (default: accuracy); default of `preprocessing`:
    "as given".
    ValueError if shapes, types or labels do not fit.
    """
    columns = {"label": labels, **fields.pop("columns", {})}
    columns = {key: np.asarray(column, np.int32) for key, column in columns.items()}
    fingerprint = listing.digest_arrays(
        images, np.stack([*columns.values()]), (*classes, *columns)
    )
    usual_fields = {"preprocessing": "as given", "cite": ""}
    return sources.ArraySource(
        name=name,
        classes=tuple(classes),
        columns=columns,
        images=images,
        fingerprint=fingerprint,
        **{**usual_fields, **fields},
    )


def _check_options(
    name: str, data_set: base.DataSet, options: Mapping[str, Any]
) -> None:
    """Raise ValueError for an unknown option, base.Missing if a required option is absent.

    name, data_set: the data set and its name. options: the user's options by name.
    """
    for option in options:
        errors.check_known(
            "data.load",
            option,
            data_set.options.keys() | COMMON_OPTIONS.keys(),
            f"options of {name!r}",
            must="be known ones",
        )
    for option, parameter in data_set.options.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            must = f"data.load: {name!r} must have the option {option!r}, got"
            raise base.Missing(f"{must} {sorted(options)}; expected: {data_set.needs}")


def _hashable(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a tuple of (name, value) pairs, sorted by name; lists become tuples."""
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return tuple(sorted(values.items()))


def _open_split(
    data_set: base.DataSet, split: str, options: tuple[tuple[str, Any], ...]
) -> base.Source:
    """Return the source of a split; base.Missing, with the expected files, if not on disk.

    options: (name, value) pairs, the result of `_hashable`.
    """
    try:
        option_values = dict(options)
        return data_set.open(split, **option_values)
    except base.Missing as error:
        raise base.Missing(f"{error}; expected: {data_set.needs}") from error


# A shift takes four parts of one data set: the last source is kept for the next part.
_open_split_once = functools.lru_cache(maxsize=1)(_open_split)
