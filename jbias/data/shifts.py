"""Distribution shifts: selection of images with a chosen table of attribute by class.

A shift is a pair of tables P(attribute = a | class = k), one for training and one for the
out-of-distribution test; classes are balanced in each table. Marginal: the share of each value
changes and does not depend on the class. Conditional: the shares within each class change,
the overall share of each value does not. Joint: the overall shares change, too.

Source: Hu, Sang, Wang and Jiang: Understanding and Testing Generalization of Deep
Networks on Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190, who give the kinds
and the colours of one marginal setting, but no shares. The levels, and the tables for any
number of values and classes, are ours.

The option `shift` of every data set selects a part with a chosen table of an attribute:

    shift = dict(level="C6", part="train", attribute="attribute", images=0, held=0.1,
                 seed=0, groups="", order="")

level       M0 to M4, C0 to C6, J0 to J4 (shifts.LEVELS), or "only-red": train on one value,
            test on the other values
part        "train", "valid", "id" (test set of the training distribution) or "ood"; with
            "only-red" also "ood-green", a single other value
attribute   a column of the data set, or "a+b", several columns combined; it becomes the
            column "attribute"; images without a value, "(none)", are in no part
images      number of images of the training distribution (train, valid and id together);
            0: the largest number for which all levels of all kinds are feasible, or with
            "only-..." all images
held        the share of `images` in valid, and in id; ood has as many images as id
seed        random seed of the selection of images
groups      the classes of the two groups, "cat+dog/car+bus"; default: first and last half
order       the attribute's values, "red+yellow+green+blue"; default: in the data set's order
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias import errors
from jbias.data import base, set_options, sources
from jbias.data.base import Column, Names

Table = Float[np.ndarray, "k m"]  # Probabilities: a row per class, a column per value.
Counts = Int[np.ndarray, "k m"]  # Numbers of images.
Groups = Int[np.ndarray, "k"]  # Group of each class: 0 or 1, or -1 for neither.
Sizes = Mapping[str, int]  # Part -> number of images.

KINDS = ("marginal", "conditional", "joint")
# Shift of group 1's window of values, as a fraction of the number of values.
_WINDOW_SHIFTS: Mapping[str, float] = {
    "marginal": 0.0,
    "conditional": 1 / 2,
    "joint": 1 / 4,
}
# Part -> the table that it follows, in the order in which images are assigned.
PARTS = {"train": "train", "valid": "train", "id_test": "train", "ood_test": "test"}


class Level(NamedTuple):
    """The kind and the strength of a shift."""

    kind: str  # "marginal", "conditional" or "joint".
    # Share of a class's training images whose values are in the half of the circle of values that
    # `tables` assigns to the class: 1/2 (no shift) to 1.
    share: float


LEVELS: Mapping[str, Level] = {
    f"{kind[0].upper()}{i}": Level(kind, share)
    for kind, shares in (
        ("marginal", (0.5, 0.625, 0.75, 0.875, 1.0)),
        ("conditional", (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)),
        ("joint", (0.5, 0.625, 0.75, 0.875, 1.0)),
    )
    for i, share in enumerate(shares)
}


class Infeasible(ValueError):
    """Raised when a class and value have too few images for a shift."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shift:
    """The ascending indices of each part's images, and their counts by class and value.

    realised: {part: counts, a row per class and a column per value of the attribute}.
    """

    train: Column
    valid: Int[np.ndarray, "v"]
    id_test: Int[np.ndarray, "i"]
    ood_test: Int[np.ndarray, "o"]
    realised: Mapping[str, Counts]


def half_groups(classes: int) -> Groups:
    """Return the group of each class: 0 in the first half, 1 in the last half.

    classes: number of classes; if odd, the class in the middle has -1.
    """
    groups = np.full(classes, -1, np.int32)
    groups[: classes // 2] = 0
    groups[classes - classes // 2 :] = 1
    return groups


def tables(kind: str, share: float, groups: Groups, values: int) -> tuple[Table, Table]:
    """Return the tables P(value | class) for training and for the test; rows sum to 1.

    kind: "marginal", "conditional" or "joint". share: see below; in [0, 1].
    The values are arranged in a circle. In training, classes of group 0 have values of the
    first half of the circle with probability `share`, and values of the second half with
    1 - share. For group 1 the half is not rotated (marginal), or it is rotated by half
    (conditional) or a quarter (joint) of the circle. In the test, share and 1 - share
    are swapped. A value on the border is divided between the two halves. Classes without a
    group, -1, have all values equally often, except in a marginal shift. A share of 1/2 is no
    shift.

    groups: the group of each class, 0, 1 or -1. values: number of values. ValueError for
    arguments outside their range, and unless the two groups have equally many classes.
    """
    groups = np.asarray(groups)
    sizes = [int((groups == group).sum()) for group in (0, 1)]
    errors.check_choice("shifts", kind, KINDS, name="kind")
    if not 0 <= share <= 1:
        raise ValueError(f"shifts: share must be in [0, 1], got {share}")
    if values < 2:
        must = "shifts: an attribute must have 2 values or more"
        raise ValueError(f"{must}, got {values}")
    if not set(groups.tolist()) <= {-1, 0, 1} or sizes[0] != sizes[1] or not sizes[0]:
        must = "shifts: groups must be two of equally many classes, so that all values"
        got = f"got {sizes[0]} and {sizes[1]}"
        raise ValueError(f"{must} keep their share in a conditional shift, {got}")
    first, even = _window(0.0, values), np.full(values, 1 / values)
    second = _window(_WINDOW_SHIFTS[kind] * values, values)
    inside = np.stack([first, second, even])[groups]  # -1 selects `even`, the last.
    if kind == "marginal":
        inside = np.tile(first, (len(groups), 1))
    outside, other_share = 2 / values - inside, 1 - share
    train = share * inside + other_share * outside
    return train, share * outside + other_share * inside


def _window(start: float, values: int) -> Float[np.ndarray, "m"]:
    """Return the share of each value in half of the circle of values, from `start` on.

    start: position in values. values: number of values. The shares sum to 1.
    """
    left = np.arange(values)
    overlap = np.zeros(values)
    for turn in (0, values):
        low, high = np.maximum(left, start - turn), start - turn + values / 2
        overlap += np.maximum(np.minimum(left + 1, high) - low, 0)
    return overlap / (values / 2)


def round_to_total(
    shares: Float[np.ndarray, "*k m"], size: int | Int[np.ndarray, "*k"]
) -> Int[np.ndarray, "*k m"]:
    """Return shares times `size`, rounded to integers with the sum `size`.

    The rounding is by largest remainders; of equal remainders the first is rounded up. Rows
    are rounded independently, each with its own size if `size` is an array.
    """
    exact = np.asarray(shares, float) * np.asarray(size)[..., None]
    counts = np.floor(exact + 1e-9).astype(int)
    remaining = np.asarray(size) - counts.sum(-1)
    order = np.argsort(counts - exact, axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    return counts + (rank < remaining[..., None])


def cell_counts(table: Table, size: int) -> Counts:
    """Return the number of images per class and value for `size` images in all.

    table: P(value | class). Numbers of images per class differ by 1 at most.
    """
    classes = len(table)
    return round_to_total(table, round_to_total(np.full(classes, 1 / classes), size))


def contingency_table(y: Column, attribute: Column, k: int, values: int) -> Counts:
    """Return the number of images of each class and value.

    y, attribute: class and value of each image. k, values: numbers of classes and values.
    """
    counts = np.zeros((k, values), int)
    np.add.at(counts, (np.asarray(y), np.asarray(attribute)), 1)
    return counts


def largest_feasible_size(
    available: Counts,
    pairs: Iterable[tuple[Table, Table]],
    sizes: Callable[[int], Sizes],
) -> int:
    """Return the largest size at which every pair of tables is feasible; 0 if none.

    available: numbers of images per class and value. pairs: training and test tables.
    sizes: function of the size, (size) -> {part: its number of images}. The size is found by
    bisection. Since rounding makes some sizes infeasible below larger feasible sizes, sizes up
    to one image per class above the bisection's result are tried, too.
    """
    pairs = list(pairs)

    def is_feasible(size: int) -> bool:
        for train, test in pairs:
            needed = sum(_part_counts(train, test, sizes(size)).values())
            if not (needed <= available).all():
                return False
        return True

    low, high = 0, int(available.sum()) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_feasible(middle) else (low, middle)
    candidates = range(low + 1, low + len(available) + 1)
    return max(filter(is_feasible, candidates), default=low)


def _part_counts(train: Table, test: Table, sizes: Sizes) -> dict[str, Counts]:
    """Return {part: number of images per class and value} that the tables require.

    train, test: P(value | class). sizes: {part: its number of images}.
    """
    part_tables = {"train": train, "test": test}
    return {
        part: cell_counts(part_tables[table_name], sizes.get(part, 0))
        for part, table_name in PARTS.items()
    }


def make_shift(
    y: Column, attribute: Column, train: Table, test: Table, sizes: Sizes, seed: int
) -> Shift:
    """Return disjoint parts of the images that have the given tables, up to rounding.

    y, attribute: class and value of each image. train, test: P(value | class), rows sum to 1;
    classes are balanced. sizes: {part: its number of images}, for "train", "valid" and
    "id_test", which follow the training table, and "ood_test"; a missing part is empty. The
    selection within a class and value depends on `seed` alone.

    ValueError for invalid arguments. Infeasible, a ValueError, with the numbers of missing
    images by class and value and the largest feasible size, if images are missing.

        >>> random = np.random.default_rng(0)
        >>> labels, camera = random.integers(0, (10, 4), (6_000, 2)).T  # Of each image.
        >>> train, test = shifts.tables("conditional", 0.9, shifts.half_groups(10), 4)
        >>> sizes = {"train": 2_000, "id_test": 250, "ood_test": 250}
        >>> shifted = data.make_shift(labels, camera, train, test, sizes, seed=0)
        >>> len(shifted.train)  # Indices of images.
        2000
        >>> shifted.realised["ood_test"][0].tolist()  # A row per class, a column per value.
        [1, 1, 12, 11]
    """
    train, test, y, attribute = map(np.asarray, (train, test, y, attribute))
    for problem in _problems(y, attribute, train, test, sizes, seed):
        raise ValueError(f"make_shift: {problem}")
    k, values = train.shape
    available = contingency_table(y, attribute, k=k, values=values)
    part_counts = _part_counts(train, test, sizes)
    needed = sum(part_counts.values())
    if (needed > available).any():
        raise Infeasible(
            _describe_missing(available, needed, train=train, test=test, sizes=sizes)
        )
    members_of = {part: [np.zeros(0, int)] for part in PARTS}
    for label, value in np.argwhere(needed).tolist():
        members = np.flatnonzero((y == label) & (attribute == value))
        members = np.random.default_rng([seed, label, value]).permutation(members)
        ends = np.cumsum([part_counts[part][label, value] for part in PARTS])
        for part, part_members in zip(PARTS, np.split(members, ends)):
            members_of[part].append(part_members)
    index = {part: np.sort(np.concatenate(x)) for part, x in members_of.items()}
    realised = {
        part: contingency_table(y[rows], attribute[rows], k=k, values=values)
        for part, rows in index.items()
    }
    return Shift(
        train=index["train"],
        valid=index["valid"],
        id_test=index["id_test"],
        ood_test=index["ood_test"],
        realised=realised,
    )


def _problems(
    y: Column, attribute: Column, train: Table, test: Table, sizes: Sizes, seed: int
) -> Iterator[str]:
    """Yield an error message for each invalid argument of `make_shift`.

    These are invalid: tables of different shapes, with negative entries or with rows that do
    not sum to 1, columns that are not integers of the tables' range, unknown parts, and sizes
    or seeds that are not integers of at least 0.
    """
    if train.shape != test.shape or train.ndim != 2:
        yield f"both tables must be (classes, values), got {train.shape} and {test.shape}"
    for name, table in (("train", train), ("test", test)):
        if (table < -1e-9).any() or not np.allclose(table.sum(1), 1):
            sums = np.round(table.sum(1), 4).tolist()
            must = f"rows of the {name} table must be probabilities that sum to 1"
            yield f"{must}, got sums {sums}"
    columns = ("y", y, train.shape[0]), ("attribute", attribute, train.shape[1])
    for name, column, most in columns:
        if column.shape != y.shape or not np.issubdtype(column.dtype, np.integer):
            got = f"{column.dtype} {column.shape}"
            yield f"{name} must be whole numbers, one per image, got {got}"
        if len(column) and not 0 <= column.min() <= column.max() < most:
            must = f"{name} must be from 0 to {most - 1}, as the tables have it"
            yield f"{must}, got {column.min()} to {column.max()}"
    for part, size in sizes.items():
        is_size = isinstance(size, int | np.integer) and size >= 0
        if part not in PARTS or not is_size:
            known = ", ".join(PARTS)
            yield f"sizes must be whole numbers of {known}, got {part}={size}"
    if not isinstance(seed, int | np.integer) or seed < 0:
        yield f"seed must be 0 or more, got {seed!r}"


def _describe_missing(
    available: Counts, needed: Counts, *, train: Table, test: Table, sizes: Sizes
) -> str:
    """Return the message for an infeasible shift, with the largest feasible sizes.

    available, needed: numbers of images per class and value. train, test, sizes: see
    `make_shift`.
    """
    total, missing = sum(sizes.values()), needed - available

    def scale_sizes(size: int) -> dict[str, int]:
        return {part: count * size // total for part, count in sizes.items()}

    largest_size = largest_feasible_size(available, [(train, test)], sizes=scale_sizes)
    largest_sizes = scale_sizes(largest_size)
    cells = np.argwhere(missing > 0).tolist()
    few = [f"{missing[k, a]} of class {k} with value {a}" for k, a in cells]
    more = f" and {len(few) - 6} more" if len(few) > 6 else ""
    must = f"make_shift: {total} images must be there in these shares, missing are"
    largest = ", ".join(f"{part} {n}" for part, n in largest_sizes.items())
    largest = (
        f"the largest feasible size is {sum(largest_sizes.values())}, as {largest}"
    )
    return f"{must} {', '.join(few[:6])}{more}; {largest}"


OPTIONS: Mapping[str, Any] = {
    "level": "",
    "part": "",
    "attribute": "attribute",
    "images": 0,
    "held": 0.1,
    "seed": 0,
    "groups": "",
    "order": "",
}
_PARTS = {"train": "train", "valid": "valid", "id": "id_test", "ood": "ood_test"}
_ONLY = "only-"


def apply(source: base.Source, options: Mapping[str, Any]) -> base.Source:
    """Return the source of one part of a shift; its note has the counts by class and value.

    The source's column "attribute" has the values of the option "attribute"; images without a
    value are in no part. options: the option `shift`, with keys of OPTIONS; the module's
    docstring describes them. ValueError for invalid options, and Infeasible, a ValueError, if
    images are missing.
    """
    where = f"data.{source.name}: shift"
    options = _check_options(f"data.{source.name}", options)
    attribute, level, part = options["attribute"], options["level"], options["part"]
    column, names = _column(where, source, attribute, order=options["order"])
    if (column < 0).any():
        (has_value,) = np.nonzero(column >= 0)
        note = f"{len(column) - len(has_value):,} images without {attribute} left out"
        source = sources.take(source, has_value, digest=note, note=note)
        column = column[has_value]
    groups = _groups(where, source.classes, options["groups"])
    try:
        if level.startswith(_ONLY):
            index = _select_single_value(where, source, column, names, options)
        else:
            index = _select_level(where, source, column, names, groups, options)
    except Infeasible as error:
        raise Infeasible(f"{where}: {error}") from error
    settings = f"level {level}, part {part}, attribute {attribute}"
    settings += f", seed {options['seed']}"
    digest = hashlib.sha256(index.tobytes()).hexdigest()
    classes, labels = source.classes, source.columns["label"][index]
    column = column[index].astype(np.int32)
    counts = contingency_table(labels, column, k=len(classes), values=len(names))
    note = f"shift {level}, {part}: {describe_counts(counts, classes, names)}"
    source = sources.take(source, index, digest=f"shift {settings} {digest}", note=note)
    columns = {**source.columns, "attribute": column}
    values = {**source.values, "attribute": names}
    return dataclasses.replace(source, columns=columns, values=values)


def describe_counts(counts: Counts, classes: Names, values: Names) -> str:
    """Return counts in words, for a note: "red/green 10 20 of each of cat+dog, 5 5 of car".

    Classes with equal counts are grouped. counts: a row per class and a column per value.
    classes, values: their names.
    """
    classes_of: dict[str, list[str]] = {}
    for name, row in zip(classes, counts.tolist(), strict=True):
        classes_of.setdefault(" ".join(map(str, row)), []).append(name)
    descriptions = []
    for row, names in classes_of.items():
        prefix = "each of " if len(names) > 1 else ""
        descriptions.append(f"{row} of {prefix}{'+'.join(names)}")
    return f"{'/'.join(values)} {', '.join(descriptions)}"


def _check_options(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the defaults of OPTIONS filled in.

    ValueError for unknown options and values. where: start of error messages.
    """
    is_dict = isinstance(options, Mapping)
    must = 'be a dict such as dict(level="C5", part="train")'
    errors.check(is_dict, where, must, options, name="shift")
    for key in options:
        errors.check_known(where, key, OPTIONS, "shift", must="have known options")
    options = {**OPTIONS, **options}
    for key in ("level", "part"):
        is_text = isinstance(options[key], str)
        errors.check(is_text, where, "be text", options[key], name=f"shift.{key}")
    is_single = options["level"].startswith(_ONLY)
    if not is_single:
        known_levels = (*LEVELS, f"{_ONLY}<value>")
        errors.check_choice(where, options["level"], known_levels, name="shift.level")
    if not (is_single and options["part"].startswith("ood-")):
        errors.check_choice(where, options["part"], _PARTS, name="shift.part")
    share = options["held"]
    is_valid = isinstance(share, int | float) and 0 < share < 0.5
    errors.check(is_valid, where, "be between 0 and 1/2", share, name="shift.held")
    for key in ("images", "seed"):
        errors.check_whole(where, options[key], low=0, name=f"shift.{key}")
    return options


def attribute_values(source: base.Source, attribute: str) -> tuple[str, ...]:
    """Return the names of an attribute's values that occur, in the data set's order.

    attribute: a column, or "a+b". ValueError for an unknown column.
    """
    where = f"data.{source.name}: shift"
    return _column(where, source, attribute, order="")[1]


def _column(
    where: str, source: base.Source, name: str, *, order: str
) -> tuple[Column, tuple[str, ...]]:
    """Return the value of an attribute for each image, and the names of the values that occur.

    Values are indices in the names; images without a value have -1.
    name: a column, or "a+b" for combined values such as "dark small". order: the names of
    the values joined by "+"; "" for the data set's order. ValueError for an unknown column or
    an order with different names. where: start of error messages.
    """
    column, values = _values(where, source, name)
    if set_options.NO_VALUE in values:
        column = np.where(column == values.index(set_options.NO_VALUE), -1, column)
    present = np.unique(column[column >= 0])
    names = tuple(values[value] for value in present)  # Without those of other splits.
    ordered = tuple(order.split("+")) if order else names
    if sorted(ordered) != sorted(names):
        must = f"{where}.order must name each value once, {'+'.join(names)}"
        raise ValueError(f"{must}, got {order!r}")
    number = np.full(len(values) + 1, -1, column.dtype)  # The last entry is for -1.
    number[present] = [ordered.index(name) for name in names]
    return number[column], ordered


def _values(
    where: str, source: base.Source, name: str
) -> tuple[Column, tuple[str, ...]]:
    """Return a column, or several columns combined, and the names of all its values.

    Values without names have the names "0", "1", ... name: a column, or "a+b" for columns whose
    values have names. An image that lacks one of several values has the value "(none)".
    ValueError for "label" and for an unknown column. where: start of error messages.
    """
    known = [key for key in source.columns if key != "label"]
    part_names = name.split("+")
    if name not in known and len(part_names) > 1 and {*part_names} <= {*source.values}:
        table = {}
        for part_name in part_names:
            value_names = [
                value if value != set_options.NO_VALUE else ""
                for value in source.values[part_name]
            ]
            table[part_name] = [
                value_names[value] for value in source.columns[part_name]
            ]
        cells = set_options.combine(where, table, part_names)
        combined_names, column = set_options.number_values(cells)
        return column, combined_names
    if name not in known:
        hint = errors.suggest(name, known) if known else "it has none"
        must = f"{where}.attribute must be a column of the set"
        raise ValueError(f"{must}, got {name!r}; {hint}")
    column = np.asarray(source.columns[name])
    return column, source.values.get(name) or tuple(map(str, range(column.max() + 1)))


def _groups(where: str, classes: Names, text: str) -> Groups:
    """Return the group of each class, 0 or 1, -1 for classes that are not named.

    text: the option `groups`, "cat+dog/car+bus"; "" gives
    half_groups(number of classes). ValueError for text of a
    different form, an unknown class or a class named twice. where: start of error messages.
    """
    if not text:
        return half_groups(len(classes))
    groups, sides = np.full(len(classes), -1, np.int32), text.split("/")
    for number, side in enumerate(sides):
        for name in side.split("+"):
            if name not in classes or len(sides) != 2:
                must = f"{where}.groups must be classes of two groups, such as a+b/c+d"
                got = f"got {name!r} in {text!r}"
                raise ValueError(f"{must}, {got}; {errors.suggest(name, classes)}")
            if groups[classes.index(name)] >= 0:
                must = f"{where}.groups must name a class once"
                raise ValueError(f"{must}, got {name!r} again in {text!r}; remove one")
            groups[classes.index(name)] = number
    return groups


def _select_level(
    where: str,
    source: base.Source,
    column: Column,
    names: Names,
    groups: Groups,
    options: Mapping[str, Any],
) -> Column:
    """Return the ascending indices of the images of one part at a level of LEVELS.

    column, names: attribute of each image and names of its values. groups: group of each
    class. options: see OPTIONS. Infeasible if images are missing or a part would be empty.
    where: start of error messages.
    """
    kind, share = LEVELS[options["level"]]
    train, test = tables(kind, share, groups=groups, values=len(names))
    labels, held_share = source.columns["label"], options["held"]
    available = contingency_table(
        labels, column, k=len(source.classes), values=len(names)
    )
    size = options["images"]
    if not size:
        size = _largest_common_size(
            tuple(map(tuple, available)), tuple(groups), held_share
        )
    sizes = _sizes(size, held_share)
    fewest = _describe_fewest(available, source.classes, names)
    if not min(sizes.values()):
        must = "images must be there of every class and value, so that no part is empty"
        raise Infeasible(f"{must}; {size} are too few, fewest are {fewest}")
    try:
        shift = make_shift(
            labels,
            column,
            train=train,
            test=test,
            sizes=sizes,
            seed=options["seed"],
        )
    except Infeasible as error:
        largest = largest_feasible_size(
            available, [(train, test)], sizes=lambda size: _sizes(size, held_share)
        )
        must = f"images must be at most {largest} at {options['level']}, the largest"
        raise Infeasible(
            f"{must} feasible size, got {size}; fewest are {fewest}"
        ) from error
    return getattr(shift, _PARTS[options["part"]])


def _describe_fewest(counts: Counts, classes: Names, values: Names) -> str:
    """Return the four pairs of class and value with the fewest images, in words."""
    cells = zip(*np.unravel_index(np.argsort(counts, axis=None)[:4], counts.shape))
    return ", ".join(
        f"{counts[k, a]} of {classes[k]} with {values[a]}" for k, a in cells
    )


@functools.cache
def _largest_common_size(
    available: tuple[tuple[int, ...], ...], groups: tuple[int, ...], held_share: float
) -> int:
    """Return the largest number of images that is feasible at all LEVELS; 0 if none is.

    available: images per class and value, a tuple for each class. groups: group of each class.
    held_share: share of the images in valid, and in id_test.
    """
    counts = np.array(available)
    pairs = [
        tables(kind, share, groups=np.array(groups), values=counts.shape[1])
        for kind, share in LEVELS.values()
    ]
    return largest_feasible_size(
        counts, pairs, sizes=lambda size: _sizes(size, held_share)
    )


def _sizes(size: int, held_share: float) -> dict[str, int]:
    """Return {part: its number of images}.

    size: images of the training distribution: train, valid and id_test together.
    held_share: share of the images in valid, and in id_test. ood_test is as large as id_test.
    """
    test_size = round(held_share * size)
    return {
        "train": size - 2 * test_size,
        "valid": test_size,
        "id_test": test_size,
        "ood_test": test_size,
    }


def _select_single_value(
    where: str,
    source: base.Source,
    column: Column,
    names: Names,
    options: Mapping[str, Any],
) -> Column:
    """Return the ascending indices of the images of one part at a level "only-<value>".

    The parts train, valid and id have images with that value only; ood has all other values in
    equal shares (all their images if options["images"] is 0), and "ood-green" only "green".
    Classes are balanced unless options["images"] is 0.
    column, names: attribute of each image and names of its values. options: see OPTIONS.
    ValueError for an unknown value, Infeasible if images are missing.
    where: start of error messages.
    """
    part, _, other = options["part"].partition("-")  # "ood-green": the value green.
    values = [options["level"].removeprefix(_ONLY)]
    if "-" in options["part"]:
        values.append(other)
    for value in values:
        if value not in names or values.count(value) > 1:
            must = f"{where}: the values must be different ones of the attribute"
            hint = errors.suggest(value, names)
            raise ValueError(f"{must}, got {'/'.join(values)}; {hint}")
    if len(names) < 2:
        must = f"{where}: the attribute must have at least two values for a level {_ONLY}..."
        raise ValueError(f"{must}, got {'/'.join(names)}; name another attribute")
    one_hot = np.eye(len(names))
    train_row = one_hot[names.index(values[0])]
    if other:
        test_row = one_hot[names.index(other)]
    else:
        test_row = (1 - train_row) / (len(names) - 1)
    if not options["images"]:
        return _select_all(source, column, train_row, test_row, options)
    k = len(source.classes)
    sizes = _sizes(options["images"], options["held"])
    if not min(sizes.values()):
        must = "images must be so many that no part is empty"
        few = f"{options['images']} are too few"
        raise Infeasible(f"{must}, {few}; ask for more, or for all, 0")
    shift = make_shift(
        source.columns["label"],
        column,
        train=np.tile(train_row, (k, 1)),
        test=np.tile(test_row, (k, 1)),
        sizes=sizes,
        seed=options["seed"],
    )
    return getattr(shift, _PARTS[part])


def _select_all(
    source: base.Source,
    column: Column,
    train_row: Float[np.ndarray, "m"],
    test_row: Float[np.ndarray, "m"],
    options: Mapping[str, Any],
) -> Column:
    """Return the ascending indices of one part, from all images; classes are not balanced.

    column: attribute of each image. train_row, test_row: P(value) in training and in the ood
    test; images of values with probability 0 are left out, other probabilities have no effect.
    options: see OPTIONS. For train, valid and id, Infeasible if a class has so few images that
    its share in valid and in id would be rounded to 0.
    """
    if options["part"].startswith("ood"):
        return np.flatnonzero(test_row[column] > 0)
    labels, selected = source.columns["label"], []
    for k, name in enumerate(source.classes):
        members = np.flatnonzero((labels == k) & (train_row[column] > 0))
        if round(options["held"] * len(members)) == 0:
            value = options["level"].removeprefix(_ONLY)
            must = "there must be images of every class to train and to test on"
            got = f"{name} has {len(members)} with {value}"
            raise Infeasible(f"{must}, {got}; leave the class out (drop={name})")
        members = np.random.default_rng([options["seed"], k]).permutation(members)
        count = round(options["held"] * len(members))
        part_slices = {
            "id": slice(0, count),
            "valid": slice(count, 2 * count),
            "train": slice(2 * count, None),
        }
        selected.append(members[part_slices[options["part"]]])
    return np.sort(np.concatenate(selected))
