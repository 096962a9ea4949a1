"""The option `shift` of every data set: a part of it with a chosen table of an attribute.

    shift = dict(level="C6", part="train", attribute="attribute", images=0, held=0.1,
                 seed=0, groups="", order="")

level       M0 to M4, C0 to C6, J0 to J4 (shifts.LEVELS), or "only-red": one value is
            trained on, the others are tested on
part        "train", "valid", "id" (the test like training) or "ood"; of "only-red" also
            "ood-green", one of the other values alone
attribute   a column of the set, or "a+b", several together, which becomes its column
            "attribute"; images without a value, "(none)", are in no part
images      of the training distribution, in all of train, valid and id; 0 is as many as
            all levels of all kinds can have alike, or with "only" all there are
held        the shares of these that are valid and id; ood has as many as id
seed        which images
groups      the classes of both groups, "cat+dog/car+bus"; first and last half if empty
order       the attribute's values, "red+yellow+green+blue"; as the set numbers them
"""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jbias.data import annotations, base, shifts, sources

OPTIONS: Mapping[str, Any] = dict(
    level="", part="", attribute="attribute", images=0, held=0.1, seed=0, groups="", order=""
)  # fmt: skip
_PARTS = {"train": "train", "valid": "valid", "id": "id_test", "ood": "ood_test"}
_ONLY = "only-"


def apply(source: base.Source, options: Mapping[str, Any]) -> base.Source:
    """Takes one part of a shift; the note has its counts by class and value.

    Raises ValueError, one line, for options that do not fit, and shifts.Infeasible where
    images are missing.
    """
    where = f"data.{source.name}: shift"
    o = _checked(where, options)
    column, names = _column(where, source, o["attribute"], o["order"])
    if (column < 0).any():
        source, column = _known(source, column, o["attribute"])
    groups = _groups(where, source.classes, o["groups"])
    try:
        if o["level"].startswith(_ONLY):
            index = _single(where, source, column, names, o)
        else:
            index = _levelled(where, source, column, names, groups, o)
    except shifts.Infeasible as error:
        raise shifts.Infeasible(f"{where}: {error}") from error
    keys = ("level", "part", "attribute", "seed")
    settings = ", ".join(f"{key} {o[key]}" for key in keys)
    digest = hashlib.sha256(index.tobytes()).hexdigest()
    part = sources.take(source, index, digest=f"shift {settings} {digest}")
    columns = {**part.columns, "attribute": column[index].astype(np.int32)}
    counted = shifts.contingency_table(
        columns["label"], columns["attribute"], len(source.classes), len(names)
    )
    note = f"shift {o['level']}, {o['part']}: {describe_counts(counted, source.classes, names)}"
    return dataclasses.replace(
        part,
        columns=columns,
        values={**part.values, "attribute": names},
        note="; ".join(filter(None, (part.note, note))),
    )


def describe_counts(
    counted: Int[np.ndarray, "k m"], classes: Sequence[str], values: Sequence[str]
) -> str:
    """Says how many images there are of each value, class by class, or of like classes."""
    rows: dict[tuple, list[str]] = {}
    for name, row in zip(classes, counted.tolist(), strict=True):
        rows.setdefault(tuple(row), []).append(name)
    return f"{'/'.join(values)} " + ", ".join(
        f"{' '.join(map(str, row))} of {'each of ' * (len(some) > 1)}{'+'.join(some)}"
        for row, some in rows.items()
    )


def _checked(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise ValueError(  # noqa: TRY004
            f'{where} must be a dict such as dict(level="C5", part="train"), got'
            f" {options!r}"
        )
    for key in options:
        base.check_known(f"{where} must have known options", key, OPTIONS)
    o = {**OPTIONS, **options}
    if o["level"] not in shifts.LEVELS and not o["level"].startswith(_ONLY):
        raise ValueError(
            f"{where}.level must be one of {', '.join(shifts.LEVELS)} or"
            f" {_ONLY}<value>, got {o['level']!r}"
        )
    only = o["level"].startswith(_ONLY)
    if o["part"] not in _PARTS and not (only and o["part"].startswith("ood-")):
        raise ValueError(
            f"{where}.part must be one of {', '.join(_PARTS)}, got {o['part']!r}"
        )
    if not 0 < o["held"] < 0.5:
        raise ValueError(f"{where}.held must be between 0 and 1/2, got {o['held']}")
    for key in ("images", "seed"):
        if type(o[key]) is not int or o[key] < 0:
            raise ValueError(f"{where}.{key} must be 0 or more, got {o[key]!r}")
    return o


def attribute_values(source: base.Source, attribute: str) -> tuple[str, ...]:
    """The values of an attribute, as the set numbers them."""
    return _column(f"data.{source.name}: shift", source, attribute, "")[1]


def _known(
    source: base.Source, column: Int[np.ndarray, "n"], attribute: str
) -> tuple[base.Source, Int[np.ndarray, "m"]]:
    """The images that have a value, and their values."""
    (kept,) = np.nonzero(column >= 0)
    note = f"{len(column) - len(kept):,} images without {attribute} left out"
    return sources.take(source, kept, digest=note, note=note), column[kept]


def _column(
    where: str, source: base.Source, name: str, order: str
) -> tuple[Int[np.ndarray, "n"], tuple[str, ...]]:
    """The attribute of each image and the names of its values, in the order asked for.

    Images without a value have -1. "a+b" is both columns together, "dark small".
    """
    column, values = _values(where, source, name)
    if annotations.NO_VALUE in values:
        column = np.where(column == values.index(annotations.NO_VALUE), -1, column)
    present, number = np.unique(column[column >= 0], return_inverse=True)
    names = tuple(values[value] for value in present)  # Others are of other splits.
    column = column.copy()
    column[column >= 0] = number
    if not order:
        return column, names
    asked = tuple(order.split("+"))
    if sorted(asked) != sorted(names):
        raise ValueError(
            f"{where}.order must name each value once, {'+'.join(names)}, got {order!r}"
        )
    return np.array([*map(asked.index, names), -1])[column], asked


def _values(
    where: str, source: base.Source, name: str
) -> tuple[Int[np.ndarray, "n"], tuple[str, ...]]:
    """A column, or several together, and the names of all its values."""
    known = [key for key in source.columns if key != "label"]
    parts = name.split("+")
    if name not in known and len(parts) > 1 and {*parts} <= {*source.values}:
        table = {}
        for one in parts:
            named = [v if v != annotations.NO_VALUE else "" for v in source.values[one]]
            table[one] = [named[value] for value in source.columns[one]]
        names, column = annotations.number_values(
            annotations.combine(where, table, parts)
        )
        return column, names
    if name not in known:
        raise ValueError(
            f"{where}.attribute must be a column of the set, got {name!r};"
            f" {base.did_you_mean(name, known) if known else 'it has none'}"
        )
    column = np.asarray(source.columns[name])
    return column, source.values.get(name) or tuple(map(str, range(column.max() + 1)))


def _groups(where: str, classes: Sequence[str], text: str) -> Int[np.ndarray, "k"]:
    if not text:
        return shifts.half_groups(len(classes))
    groups = np.full(len(classes), -1, np.int32)
    sides = [side.split("+") for side in text.split("/")]
    for number, side in enumerate(sides):
        for name in side:
            if name not in classes or len(sides) != 2:
                raise ValueError(
                    f"{where}.groups must be classes of two groups, such as a+b/c+d, got"
                    f" {name!r} in {text!r}; {base.did_you_mean(name, classes)}"
                )
            groups[classes.index(name)] = number
    return groups


def _levelled(where, source, column, names, groups, o) -> Int[np.ndarray, "n"]:
    kind, share = shifts.LEVELS[o["level"]]
    train, test = shifts.tables(kind, share, groups, len(names))
    there = shifts.contingency_table(
        source.columns["label"], column, len(source.classes), len(names)
    )
    size = o["images"] or _largest(tuple(map(tuple, there)), tuple(groups), o["held"])
    sizes = _sizes(size, o["held"])
    some = _fewest(there, source.classes, names)
    if not min(sizes.values()):
        raise shifts.Infeasible(
            "images must be there of every class and value, so that no part is empty; "
            f"{size} are too few, fewest are {some}"
        )
    try:
        made = shifts.make_shift(
            source.columns["label"], column, train, test, sizes, o["seed"]
        )
    except shifts.Infeasible as error:
        most = shifts.largest_feasible_size(
            there, [(train, test)], functools.partial(_sizes, held=o["held"])
        )
        raise shifts.Infeasible(
            f"images must be at most {most} at {o['level']}, the largest feasible size, got"
            f" {size}; fewest are {some}"
        ) from error
    return getattr(made, _PARTS[o["part"]])


def _fewest(there, classes: Sequence[str], values: Sequence[str]) -> str:
    """Names the classes and values with the fewest images."""
    few = [np.unravel_index(i, there.shape) for i in np.argsort(there, axis=None)]
    return ", ".join(
        f"{there[k, a]} of {classes[k]} with {values[a]}" for k, a in few[:4]
    )


@functools.cache
def _largest(there: tuple, groups: tuple, held: float) -> int:
    """As many images as all levels of all kinds can have, so that they are alike."""
    counted = np.array(there)
    levels = shifts.LEVELS.values()
    grid = [shifts.tables(*one, np.array(groups), counted.shape[1]) for one in levels]
    return shifts.largest_feasible_size(
        counted, grid, functools.partial(_sizes, held=held)
    )


def _sizes(size: int, held: float) -> dict[str, int]:
    """How large the parts are; those of the training distribution sum to `size`."""
    own = round(held * size)
    return {"train": size - 2 * own, "valid": own, "id_test": own, "ood_test": own}


def _single(where, source, column, names, o) -> Int[np.ndarray, "n"]:
    """Images of one value to train on, and of the others to test on."""
    values = [o["level"].removeprefix(_ONLY)]
    values += [o["part"][4:]] if o["part"].startswith("ood-") else []
    for value in values:
        if value not in names or values.count(value) > 1:
            raise ValueError(
                f"{where}: the values must be different ones of the attribute, got"
                f" {'/'.join(values)}; {base.did_you_mean(value, names)}"
            )
    own = np.eye(len(names))[names.index(values[0])]
    others = (1 - own) / (len(names) - 1)
    if len(values) > 1:
        others = np.eye(len(names))[names.index(values[1])]
    if not o["images"]:
        return _all_of(source, column, own, others, o)
    train, test = (np.tile(row, (len(source.classes), 1)) for row in (own, others))
    sizes = _sizes(o["images"], o["held"])
    made = shifts.make_shift(
        source.columns["label"], column, train, test, sizes, o["seed"]
    )
    return getattr(made, _PARTS[o["part"][:3] if len(values) > 1 else o["part"]])


def _all_of(
    source: base.Source,
    column: Int[np.ndarray, "n"],
    own: Float[np.ndarray, "m"],
    others: Float[np.ndarray, "m"],
    o: Mapping[str, Any],
) -> Int[np.ndarray, "n"]:
    """All images of the values, however many a class has; each class dealt alike."""
    if o["part"].startswith("ood"):
        return np.flatnonzero(others[column] > 0)
    y, chosen = source.columns["label"], []
    for k, name in enumerate(source.classes):
        members = np.flatnonzero((y == k) & (own[column] > 0))
        if round(o["held"] * len(members)) == 0:
            value = o["level"].removeprefix(_ONLY)
            raise shifts.Infeasible(
                f"there must be images of every class to train and to test on, {name} has"
                f" {len(members)} with {value}; leave the class out (drop={name})"
            )
        members = np.random.default_rng([o["seed"], k]).permutation(members)
        count = round(o["held"] * len(members))
        cut = {"id": slice(0, count), "valid": slice(count, 2 * count)}
        chosen.append(members[cut.get(o["part"], slice(2 * count, None))])
    return np.sort(np.concatenate(chosen))
