"""Opening of a config's training and test sets, and their mapping to the network's classes."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float, UInt8

from jbias import data, errors
from jbias.data import base, class_maps, loader, shifts
from jbias.data import sources as image_sources
from jbias.data.base import Columns
from jbias.data.forms import listing

Options = Mapping[str, Any]
# open(where, options, size) -> source.
OpenFunction = Callable[..., base.Source]

# Entries of config.train (some also of config.train.other) that are no data set options.
_TRAINING_ENTRIES = (
    "batch",
    "accumulate",
    "also",
    "shares",
    "balance",
    "other",
    "inputs",
    "pair",
    "window",
    "canvas",
)
# Entries of config.valid and config.tests that are no data set options: keywords of
# class_maps.match.
_MATCHING_ENTRIES = ("aggregate", "mapping", "restrict")


class TestSet(NamedTuple):
    """A test set; the class ids in its columns are ids of the network's decisions.

    matrix, aggregate: see class_maps.ClassMap. measures: names in jbias.evals.MEASURES.
    """

    name: str  # Name of the test set in the config.
    images: loader.Images
    columns: Columns  # {name: an int per image}.
    matrix: Float[np.ndarray, "k d"] | None
    aggregate: str
    measures: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the images in pixels."""
        return self.images.shape[1:3]


class TrainSet(NamedTuple):
    """The sources of a training stage, to be concatenated, and `other`, a second stream's source.

    Labels of `other` are not used.
    """

    sources: tuple[base.Source, ...]
    other: base.Source | None = None

    def named(self, number: int) -> dict[str, base.Source]:
        """Return {"train/0": first source, "train/0/also/0": next, ..., "train/0/other": other}.

        The keys are used in messages and provenance; the last exists only with a second stream.
        number: index of the training stage, 0 in the keys above.
        """
        first, *also = self.sources
        sources = {f"train/{number}": first}
        sources |= {f"train/{number}/also/{i}": source for i, source in enumerate(also)}
        if self.other:
            sources[f"train/{number}/other"] = self.other
        return sources


def open_source(where: str, options: Options, size: int) -> base.Source:
    """Return the source of a config's entry, such as config.valid.

    where: the entry's name, for messages. options: "data", "split" and the data set's own
    options. size: side of the images in pixels, unless the options have a size.
    Raises ValueError for wrong options and for data that are missing.
    """
    errors.check_type(where, options, dict)
    options = dict(options)
    if type(options.get("crop")) is str:
        must = f"{where}.crop: must be True or False, got {options['crop']!r}"
        raise ValueError(f"{must}, which only config.train and its `other` may have")
    for key in ("data", "split"):
        if key not in options:
            raise ValueError(f"{where}: {key!r} is missing")
    kinds = {key: option.kind for key, option in data.COMMON_OPTIONS.items()}
    for key, kind in {"data": str, "split": str, **kinds}.items():
        if key in options:
            errors.check_type(f"{where}.{key}", options[key], kind)
    name, split = options.pop("data"), options.pop("split")
    if name in data.DATASETS:
        for option, parameter in data.DATASETS[name].options.items():
            if option in options and parameter.annotation is not parameter.empty:
                errors.check_type(
                    f"{where}.{option}", options[option], parameter.annotation
                )
    with base.explain_errors(f"{where}: ", ValueError):
        return data.load(name, split, **{"size": size, **options})


def train_set(
    where: str, options: Options, size: int, open_set: OpenFunction = open_source
) -> TrainSet:
    """Return the training set of one stage; the first source defines the classes.

    `sources` are read from the entry itself and from each entry in its "also"; `other` is the
    source of its entry "other", or None.

    where: the stage's name in the config, for messages. options: the stage's entry in
    config.train. size: side of the images in pixels. open_set: function (where, options,
    size) -> source. ValueError for wrong options, and for sources with different classes.
    """
    _check_trainable(where, options)
    sources = [open_set(where, _source_options(options), size)]
    for i, more_options in enumerate(options.get("also", ())):
        also_where = f"{where}.also[{i}]"
        _check_trainable(also_where, more_options)
        remedy = "; `jbias prepare deepaugment --help` tells how one is made"
        with base.explain_errors("", ValueError, remedy=remedy):
            sources.append(open_set(also_where, more_options, size))
        with base.explain_errors(f"{also_where}: ", ValueError):
            _relabelled(sources[0], sources[-1])
    other_options = _source_options(options.get("other") or {})
    other = open_set(f"{where}.other", other_options, size) if other_options else None
    return TrainSet(tuple(sources), other)


def _check_trainable(where: str, options: Options) -> None:
    """Raise ValueError if the licence of an entry's data set forbids training on it.

    where: the entry's name in the config.
    """
    data_set = data.DATASETS.get(options.get("data", ""))
    if data_set is not None and data_set.is_test_only:
        must = f"{where}: the licence must allow training, got {data_set.name!r}"
        raise ValueError(f"{must} ({data_set.licence}); use it among config.tests")


def _source_options(options: Options) -> dict[str, Any]:
    """Return the options of the data set in an entry of config.train.

    Options of the input pipeline are left out; "crop" is an option of the input pipeline if its
    value is text.
    """
    source_options = {
        key: value for key, value in options.items() if key not in _TRAINING_ENTRIES
    }
    if type(options.get("crop")) is str:  # Where crops are cut; else of the data set.
        del source_options["crop"]
    return source_options


def open_test_source(
    where: str, options: Options, size: int, open_set: OpenFunction = open_source
) -> base.Source:
    """Return the source of a test set.

    where: the entry's name in the config, for messages. options: the entry; "aggregate",
    "mapping" and "restrict", for `class_map`, are ignored. With the entry "also", a list of
    entries, the source has the images of all of them; see `join`. size, open_set: see `train_set`.
    """
    source_options = {
        key: value
        for key, value in options.items()
        if key not in (*_MATCHING_ENTRIES, "also")
    }
    first = open_set(where, source_options, size)
    also = options.get("also", ())
    errors.check_type(f"{where}.also", also, (list, tuple))
    if not also:
        return first
    places = [f"{where}.also[{i}]" for i in range(len(also))]
    more = [
        open_set(place, more_options, size) for place, more_options in zip(places, also)
    ]
    with base.explain_errors(f"{where}.also: ", ValueError):
        return join([first, *more])


def join(sources: Sequence[base.Source]) -> base.Source:
    """Return a source of the images of all sources, such as several splits of one data set.

    Names of images begin with the name of their split. The columns are those of `join_columns`, with
    the number of each image's source as "domain", named by the splits. Further arrays, which only
    training uses, are left out. ValueError for sources of different classes, measures, sizes or
    preprocessing, for sources with the same name, and for images in memory joined with images
    in files.
    """
    first = sources[0]
    splits = [source.name.partition("/")[2] or source.name for source in sources]
    errors.check(len({*splits}) == len(splits), "splits", "differ", splits)
    short = [split.partition("[")[0] for split in splits]
    prefixes = short if len({*short}) == len(short) else splits
    for source in sources[1:]:
        must = f"fit {first.name}"
        is_alike = isinstance(source, type(first)) and source.measures == first.measures
        is_alike &= source.preprocessing == first.preprocessing
        is_alike &= source.shape == first.shape
        remedy = "evaluate on them as sets of their own"
        errors.check(is_alike, source.name, must, source, remedy)
    columns = join_columns(sources)
    arrays = {name for source in sources for name in source.arrays}
    shared_values = {
        name: _all_values(name, sources)
        for name in columns
        if all(name in source.values for source in sources)
    }
    digest = " ".join(source.fingerprint for source in sources)
    return image_sources.join_images(
        sources,
        prefixes=[f"{prefix}/" for prefix in prefixes],
        name="+".join([first.name, *splits[1:]]),
        fingerprint=hashlib.sha256(digest.encode()).hexdigest(),
        note="; ".join(dict.fromkeys(x.note for x in sources if x.note)),
        columns={key: x for key, x in columns.items() if key not in arrays},
        values={**shared_values, "domain": tuple(prefixes)},
    )


def is_trained_on(config: Mapping[str, Any]) -> bool:
    """Return True if the validation set of a run has images that the run trains on.

    Two entries share images if they have the same options, beside overlapping parts of one split
    such as "[:90%]" and "[80%:]". Sets with splits of another form, and sets that other options
    divide, count as disjoint. config: config of a run.
    """

    def splits_of(options: Mapping[str, Any]) -> Iterator[tuple[Any, listing.Split]]:
        """Yield (other options as text, part of a split) of the entry and its "also"."""
        ignored = {*_TRAINING_ENTRIES, *_MATCHING_ENTRIES, "split"}
        for entry in (options, *options.get("also", ())):
            remaining = sorted(
                (k, str(v)) for k, v in entry.items() if k not in ignored
            )
            with contextlib.suppress(ValueError):
                yield (
                    remaining,
                    listing.parse_split("split", str(entry.get("split", ""))),
                )

    train_options = [config.get("train", {})]
    train_options += [stage.get("train", {}) for stage in config.get("stages", ())]
    trained = [split for options in train_options for split in splits_of(options)]
    return any(
        options == other_options
        and split.base == other.base
        and split.start < other.stop
        and other.start < split.stop
        for options, split in splits_of(config.get("valid", {}))
        for other_options, other in trained
    )


def class_map(
    where: str,
    options: Options,
    test: base.Source,
    train: base.Source | class_maps.LabelSpace,
    aggregate: str,
) -> class_maps.ClassMap:
    """Return the map from a network's classes to the classes of a test set.

    where: the test set's name in the config. options: its entry; "aggregate", "mapping" and
    "restrict" replace the defaults. test: the source of the test set. train: the classes
    of the network. aggregate: rule for several network classes per test class, if neither the
    entry nor `test` has one.
    Raises base.Mismatch if the classes do not match, ValueError for wrong options.
    """
    restrict = options.get("restrict", test.restrict)
    errors.check_type(f"{where}.restrict", restrict, bool)
    with base.explain_errors(f"{where}: ", ValueError):
        return class_maps.match(
            train.classes,
            train.space,
            test_classes=test.classes,
            test_space=test.space,
            aggregate=options.get("aggregate", test.aggregate or aggregate),
            mapping=options.get("mapping"),
            restrict=restrict,
            answers=train.answers if isinstance(train, class_maps.LabelSpace) else (),
        )


def class_map_options(options: Options) -> dict[str, Any]:
    """Return the entries "aggregate", "mapping" and "restrict" that `options` has.

    Used to compare test sets: the path "mapping" is replaced by a digest of the file.
    """
    map_options = {key: options[key] for key in _MATCHING_ENTRIES if key in options}
    if map_options.get("mapping"):
        content = epath.Path(map_options["mapping"]).expanduser().read_bytes()
        map_options["mapping"] = hashlib.sha256(content).hexdigest()[:16]
    return map_options


def test_set(
    name: str,
    test: base.Source,
    classes: class_maps.ClassMap,
    images: UInt8[np.ndarray, "n h w c"] | None,
    say: Callable[[str], None],
    *,
    keep_unanswerable: bool = False,
    trained: str = "the training set",
    measures: Sequence[str] = (),
) -> TestSet:
    """Return a test set with class ids of the network's decisions.

    An image without an answer is an image whose class is not mapped to any decision of the
    network. Such images are left out or, if `keep_unanswerable`, have the label -1. Images
    without a class are always left out. ValueError if no image has an answer.

    name: name of the test set in the config. test: its source. classes: the result of
    `class_map`.
    images: the decoded images; None: images are read from their files at each evaluation.
    say: prints a line about images without an answer.
    trained: the part of the run that lacks the classes, named in the line.
    measures: names of the measures that use the images, named in the line.
    """
    columns = {**test.columns, **_map_class_columns(classes, test.columns)}
    is_answerable = columns["label"] >= 0
    is_kept = test.columns["label"] >= 0 if keep_unanswerable else is_answerable
    if not is_answerable.all():
        absent_ids = np.unique(test.columns["label"][~is_answerable])
        absent = [test.classes[i] for i in absent_ids]
        more = f" and {len(absent) - 16} more" if len(absent) > 16 else ""
        count = f"{name}: {(~is_answerable).sum()} of {len(is_answerable)} images"
        effect = "shown and never right" if keep_unanswerable else "left out"
        if measures:
            effect += f" {'in' if keep_unanswerable else 'of'} {_few(measures)}"
        say(f"{count} {effect}, {trained} has none of {', '.join(absent[:16])}{more}")
    if not is_answerable.any():
        must = f"config.tests.{name}: no class in common with the training set"
        raise ValueError(must)
    columns = {key: column[is_kept] for key, column in columns.items()}
    if images is None:
        images = loader.EncodedImages(test, np.flatnonzero(is_kept))
    elif not is_kept.all():  # Else they are not copied.
        images = images[is_kept]
    return TestSet(
        name,
        images,
        columns=columns,
        matrix=classes.matrix,
        aggregate=classes.aggregate,
        measures=test.measures,
    )


def _few(names: Sequence[str], most: int = 4) -> str:
    """Return the first `most` names and the number of further names, as "a, b and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def join_columns(sources: Sequence[base.Source]) -> dict[str, np.ndarray]:
    """Return {name: array}: the columns and arrays that all sources have, concatenated.

    Class ids refer to the classes of the first source; ValueError if the classes do not match.
    With several sources, column "domain" is the index of each image's source. Values of a
    column are numbered consistently, by their names; a column whose values have names in
    some sources only is left out.
    """
    tables = [{**s.columns, **s.arrays, **_relabelled(sources[0], s)} for s in sources]
    for name in {name for source in sources for name in source.values}:
        _unify_numbering(name, sources, tables)
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    joined = {
        name: np.concatenate([table[name] for table in tables]) for name in shared
    }
    if len(sources) > 1:
        numbers = np.arange(len(sources), dtype=np.int32)
        joined["domain"] = np.repeat(numbers, [*map(len, sources)])
    return joined


def _all_values(name: str, sources: Sequence[base.Source]) -> tuple[str, ...]:
    """Return the names of a column's values in any of the sources, in order of appearance."""
    names = (value for source in sources for value in source.values[name])
    return tuple(dict.fromkeys(names))


def _unify_numbering(
    name: str, sources: Sequence[base.Source], tables: list[dict]
) -> None:
    """Renumber the values of a column, so that a name has the same number in all tables.

    The column is deleted from all tables if a source has no names for its values.
    name: name of the column. tables: {column: array} of each source, changed in place.
    """
    if not all(name in source.values and name in source.columns for source in sources):
        for table in tables:
            table.pop(name, None)
        return
    all_values = _all_values(name, sources)
    for source, table in zip(sources, tables):
        new_number = [all_values.index(value) for value in source.values[name]]
        table[name] = np.array(new_number, np.int32)[source.columns[name]]


def _relabelled(first: base.Source, more: base.Source) -> dict[str, np.ndarray]:
    """Return the class columns of `more` with the class ids of `first`, by class names.

    Raises ValueError if their label spaces or classes differ.
    """
    if more.space != first.space:
        must = f"{more.name} must name its classes as {first.name}, by {first.space!r}"
        raise ValueError(f"{must}, got {more.space!r}")
    classes = class_maps.match(
        first.classes,
        first.space,
        test_classes=more.classes,
        test_space=more.space,
    )
    return _map_class_columns(classes, more.columns)


def _map_class_columns(
    classes: class_maps.ClassMap, columns: Columns
) -> dict[str, np.ndarray]:
    """Return {name: column} of the columns with class ids, mapped by `classes`; -1 stays -1."""
    return {
        name: np.where(column < 0, -1, classes.relabel[column])
        for name, column in columns.items()
        if base.holds_classes(name)
    }


def contingency_tables(source: base.Source) -> dict[str, list[list[int]]]:
    """Return {column: numbers of images, a row per class and a column per value}.

    Columns whose values have no names, and images without a class, are left out.
    """
    has_class, tables = source.columns["label"] >= 0, {}
    for name, names in source.values.items():
        table = shifts.contingency_table(
            source.columns["label"][has_class],
            source.columns[name][has_class],
            k=len(source.classes),
            values=len(names),
        )
        tables[name] = table.tolist()
    return tables


def describe(source: base.Source) -> dict[str, Any]:
    """Return the provenance record of a source, for JSON.

    The record has the fields name, space, note, preprocessing, fingerprint, cite and values of
    the source, the numbers of images "n" and of "classes", the class "names", and
    `contingency_tables` as "tables".
    """
    return {
        "name": source.name,
        "space": source.space,
        "note": source.note,
        "preprocessing": source.preprocessing,
        "fingerprint": source.fingerprint,
        "cite": source.cite,
        "n": len(source),
        "classes": len(source.classes),
        "names": [*source.classes],
        "values": {name: [*names] for name, names in source.values.items()},
        "tables": contingency_tables(source),
    }
