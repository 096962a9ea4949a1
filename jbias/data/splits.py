"""Opens the training and test sets that a config names, and maps them to the network's classes."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float, UInt8

from jbias import config as jc
from jbias import data
from jbias.data import base, labels, loader, shifts
from jbias.data.base import Columns

Options = Mapping[str, Any]
Opener = Callable[..., base.Source]

# Of config.train, and some of its `other`, beside the data set's own options.
_TRAINING = ("batch", "accumulate", "also", "shares", "balance", "other")
_TRAINING += ("inputs", "pair", "window", "canvas")
# Of config.valid and config.tests, likewise: keywords of labels.match.
_ANSWERING = ("aggregate", "mapping", "restrict")


class TestSet(NamedTuple):
    """A set to evaluate on, in the space of the network's decisions."""

    name: str
    images: loader.Images
    columns: Columns
    matrix: Float[np.ndarray, "k d"] | None
    aggregate: str
    measures: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of its images, in pixels."""
        return self.images.shape[1:3]


class TrainSet(NamedTuple):
    """The sources that a stage trains on, one after the other, and a second stream.

    Labels of `other` are not used.
    """

    sources: tuple[base.Source, ...]
    other: base.Source | None = None

    def named(self, number: int) -> dict[str, base.Source]:
        """All of them, by what messages and provenance call them."""
        names = [f"train/{number}", *(f"train/{number}/also/{i}" for i in range(99))]
        found = dict(zip(names, self.sources))
        return found | ({f"train/{number}/other": self.other} if self.other else {})


def open_source(where: str, options: Options, size: int) -> base.Source:
    """Opens one set."""
    jc.check_type(where, options, dict)
    options = dict(options)
    if type(options.get("crop")) is str:
        must = f"{where}.crop: must be True or False, got {options['crop']!r}"
        raise ValueError(f"{must}, which only config.train and its `other` may have")
    for key in ("data", "split"):
        if key not in options:
            raise ValueError(f"{where}: {key!r} is missing")
    for key, kind in {"data": str, "split": str, **data.COMMON_OPTIONS}.items():
        if key in options:
            jc.check_type(f"{where}.{key}", options[key], kind)
    name, split = options.pop("data"), options.pop("split")
    if name in data.DATASETS:
        jc.check_annotations(where, data.DATASETS[name].make, options)
    with base.explained(f"{where}: ", ValueError):
        return data.load(name, split, **{"size": size, **options})


def train_set(
    where: str, options: Options, size: int, opened: Opener = open_source
) -> TrainSet:
    """Opens the sources of one stage; the first says what the classes are.

    `opened` does so, by these arguments.
    """
    sources = [opened(where, _source_options(options), size)]
    for i, more in enumerate(options.get("also", ())):
        here = f"{where}.also[{i}]"
        remedy = "; `jbias prepare deepaugment --help` tells how one is made"
        with base.explained("", ValueError, remedy=remedy):
            sources.append(opened(here, more, size))
        with base.explained(f"{here}: ", ValueError):
            _relabelled(sources[0], sources[-1])
    other = _source_options(options.get("other") or {})
    beside = opened(f"{where}.other", other, size) if other else None
    return TrainSet(tuple(sources), beside)


def _source_options(options: Options) -> dict[str, Any]:
    """The options of a training set without those that say how it is fed."""
    fed = (*_TRAINING, *["crop"] * (type(options.get("crop")) is str))
    return {key: value for key, value in options.items() if key not in fed}


def open_test_source(
    where: str, options: Options, size: int, opened: Opener = open_source
) -> base.Source:
    """Opens a set to evaluate on."""
    own = {key: value for key, value in options.items() if key not in _ANSWERING}
    return opened(where, own, size)


def class_map(
    where: str,
    options: Options,
    test: base.Source,
    train: base.Source | labels.LabelSpace,
    aggregate: str,
) -> labels.ClassMap:
    """How a network answers a set: by the set's own options, else by `aggregate`.

    base.Mismatch where it cannot; ValueError for wrong options.
    """
    chosen = {"aggregate": aggregate, "restrict": test.restrict}
    chosen |= {key: options[key] for key in _ANSWERING if key in options}
    jc.check_type(f"{where}.restrict", chosen["restrict"], bool)
    if isinstance(train, labels.LabelSpace):
        chosen["answers"] = train.answers
    sides = train.classes, train.space, test.classes, test.space
    with base.explained(f"{where}: ", ValueError):
        return labels.match(*sides, **chosen)


def class_map_options(options: Options) -> dict[str, Any]:
    """What a set's options say of how it is answered, with the digest of its mapping."""
    found = {key: options[key] for key in _ANSWERING if key in options}
    if found.get("mapping"):
        content = epath.Path(found["mapping"]).expanduser().read_bytes()
        found["mapping"] = hashlib.sha256(content).hexdigest()[:16]
    return found


def test_set(
    name: str,
    test: base.Source,
    classes: labels.ClassMap,
    images: UInt8[np.ndarray, "n h w c"] | None,
    say: Callable,
    *,
    whole: bool = False,
    trained: str = "the training set",
    measures: Sequence[str] = (),
) -> TestSet:
    """Brings a set into the network's decision space.

    `images` are None where they are to be read anew at each evaluation. Images of classes
    that the network has no answer for are left out, or kept with the label -1 where the
    set is to be `whole`, and told about. Those without a class are always left out.
    trained: what has no such classes; measures: what the images are for; for that line.
    """
    columns = {**test.columns, **_classes_as(classes, test.columns)}
    known = columns["label"] >= 0
    kept = test.columns["label"] >= 0 if whole else known
    if not known.all():
        absent = [test.classes[i] for i in np.unique(test.columns["label"][~known])]
        more = f" and {len(absent) - 16} more" if len(absent) > 16 else ""
        which = f"{name}: {(~known).sum()} of {len(known)} images"
        effect = "shown and never right" if whole else "left out"
        if measures:
            effect += f" {'in' if whole else 'of'} {_few(measures)}"
        say(f"{which} {effect}, {trained} has none of {', '.join(absent[:16])}{more}")
    if not known.any():
        must = f"config.tests.{name}: no class in common with the training set"
        raise ValueError(must)
    columns = {key: column[kept] for key, column in columns.items()}
    if images is None:
        images = loader.EncodedImages(test, np.flatnonzero(kept))
    elif not kept.all():  # Else they are not copied.
        images = images[kept]
    rule = classes.matrix, classes.aggregate
    return TestSet(name, images, columns, *rule, test.measures)


def _few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def join_columns(sources: Sequence[base.Source]) -> dict[str, np.ndarray]:
    """What all of the sources know of their images, one source after the other.

    With several, "domain" says which of them an image is from. Values of a column are
    numbered alike, by their names; a column whose values have names in some of the
    sources only is left out.
    """
    known = [{**s.columns, **s.arrays, **_relabelled(sources[0], s)} for s in sources]
    for name in {name for one in sources for name in one.values}:
        _number_alike(name, sources, known)
    shared = [name for name in known[0] if all(name in rows for rows in known)]
    joined = {name: np.concatenate([rows[name] for rows in known]) for name in shared}
    if len(sources) > 1:
        numbers = np.arange(len(sources), dtype=np.int32)
        joined["domain"] = np.repeat(numbers, [*map(len, sources)])
    return joined


def _number_alike(name: str, sources: Sequence[base.Source], known: list[dict]) -> None:
    """Numbers the values of a column by the names that all of the sources have."""
    if not all(name in one.values and name in one.columns for one in sources):
        for rows in known:
            rows.pop(name, None)
        return
    every = [*dict.fromkeys(value for one in sources for value in one.values[name])]
    for one, rows in zip(sources, known):
        place = [every.index(value) for value in one.values[name]]
        rows[name] = np.array(place, np.int32)[one.columns[name]]


def _relabelled(first: base.Source, more: base.Source) -> dict[str, np.ndarray]:
    """Columns of classes in those of the first source, whatever the order of names."""
    if more.space != first.space:
        must = f"{more.name} must name its classes as {first.name}, by {first.space!r}"
        raise ValueError(f"{must}, got {more.space!r}")
    classes = labels.match(first.classes, first.space, more.classes, more.space)
    return _classes_as(classes, more.columns)


def _classes_as(classes: labels.ClassMap, columns: Columns) -> dict[str, np.ndarray]:
    """The columns that hold classes, mapped; where an image has none it is -1."""
    held = {k: v for k, v in columns.items() if base.holds_classes(k)}
    return {k: np.where(v < 0, -1, classes.relabel[v]) for k, v in held.items()}


def contingency_tables(source: base.Source) -> dict[str, list[list[int]]]:
    """Counts of each column whose values have names: a row a class, a column a value."""
    has_class, found = source.columns["label"] >= 0, {}
    for name, names in source.values.items():
        pair = (source.columns[one][has_class] for one in ("label", name))
        table = shifts.contingency_table(*pair, len(source.classes), len(names))
        found[name] = table.tolist()
    return found


def describe(source: base.Source) -> dict[str, Any]:
    """What provenance says of a set."""
    values = {name: [*names] for name, names in source.values.items()}
    fields = "name", "space", "note", "preprocessing", "fingerprint", "cite"
    said = {field: getattr(source, field) for field in fields}
    counts = dict(n=len(source), classes=len(source.classes), names=[*source.classes])
    return said | counts | dict(values=values, tables=contingency_tables(source))
