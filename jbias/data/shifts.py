"""Chosen distribution shifts: which images make sets with these tables of an attribute.

A shift is a pair of tables P(attribute = a | class = k), one to train on and one to test
on out of distribution; classes are balanced in both. Marginal: the share of each value
changes and does not depend on the class. Conditional: what each class has changes, the
share of each value does not. Joint: both change.

Source: Hu, Sang, Wang and Jiang: Understanding and Testing Generalization of Deep
Networks on Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190, who give
the kinds, the colours of one marginal setting, and no shares in numbers: levels, and how
the kinds look with any number of values and classes, are ours.

The option `shift` of every data set takes a part of it with a chosen table of an attribute:

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias.data import base, set_options, sources
from jbias.data.base import Column, Names

Table = Float[np.ndarray, "k m"]  # A row a class, a column a value.
Counts = Int[np.ndarray, "k m"]
Groups = Int[np.ndarray, "k"]  # 0 and 1, or -1 for neither.
Sizes = Mapping[str, int]  # Of the parts.

KINDS = ("marginal", "conditional", "joint")
# Of m, by how much group 1's window is.
_MOVED: Mapping[str, float] = {"marginal": 0.0, "conditional": 1 / 2, "joint": 1 / 4}
# Those of `sizes`, in the order in which images are dealt, and the table each follows.
PARTS = {"train": "train", "valid": "train", "id_test": "train", "ood_test": "test"}


class Level(NamedTuple):
    """How far a shift of some kind goes: from 1/2, none at all, to 1."""

    kind: str
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
    """There are too few images of some class and value."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shift:
    """Numbers of the images of each part, ascending, and what the parts hold of each.

    realised: part -> counts, a row a class and a column a value.
    """

    train: Column
    valid: Int[np.ndarray, "v"]
    id_test: Int[np.ndarray, "i"]
    ood_test: Int[np.ndarray, "o"]
    realised: Mapping[str, Counts]


def half_groups(classes: int) -> Groups:
    """Two groups of classes, the first and the last half: 0 and 1; -1 in the middle."""
    groups = np.full(classes, -1, np.int32)
    groups[: classes // 2] = 0
    groups[classes - classes // 2 :] = 1
    return groups


def tables(kind: str, share: float, groups: Groups, values: int) -> tuple[Table, Table]:
    """Gives P(value | class) to train on and to test on; rows sum to 1.

    Of the values in a circle, group 0 has the first half with probability `share` in
    training and the other half with the rest; of group 1 that half is moved by nothing
    (marginal), half (conditional) or a quarter of the circle (joint). The test has it the
    other way round. A value that a border cuts belongs to both sides in part. Classes of
    neither group, -1, have all values alike, but in a marginal shift. A share of 1/2 is no shift.

    Raises ValueError, one line, for arguments outside their range.
    """
    groups = np.asarray(groups)
    sizes = [int((groups == group).sum()) for group in (0, 1)]
    base.check_choice("shifts: kind", kind, KINDS)
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
    second = _window(_MOVED[kind] * values, values)
    inside = np.stack([first, second, even])[groups]  # -1 is the last.
    if kind == "marginal":
        inside = np.tile(first, (len(groups), 1))
    outside, rest = 2 / values - inside, 1 - share
    return share * inside + rest * outside, share * outside + rest * inside


def _window(start: float, values: int) -> Float[np.ndarray, "m"]:
    """Shares of the values in half of the circle, from `start` on."""
    left = np.arange(values)
    held = np.zeros(values)
    for turn in (0, values):
        low, high = np.maximum(left, start - turn), start - turn + values / 2
        held += np.maximum(np.minimum(left + 1, high) - low, 0)
    return held / (values / 2)


def round_to_total(shares: Float[np.ndarray, "*k m"], size) -> Int[np.ndarray, "*k m"]:
    """Whole numbers that sum to `size`, by largest remainders; of equal ones the first.

    Rows by themselves, each of a size of its own if `size` is an array.
    """
    exact = np.asarray(shares, float) * np.asarray(size)[..., None]
    counts = np.floor(exact + 1e-9).astype(int)
    left = np.asarray(size) - counts.sum(-1)
    order = np.argsort(counts - exact, axis=-1, kind="stable")
    place = np.argsort(order, axis=-1, kind="stable")
    return counts + (place < left[..., None])


def cell_counts(table: Table, size: int) -> Counts:
    """How many of `size` images each class and value has; classes differ by 1 at most."""
    classes = len(table)
    return round_to_total(table, round_to_total(np.full(classes, 1 / classes), size))


def contingency_table(y: Column, attribute: Column, k: int, values: int) -> Counts:
    """How many images there are of each class and value."""
    found = np.zeros((k, values), int)
    np.add.at(found, (np.asarray(y), np.asarray(attribute)), 1)
    return found


def largest_feasible_size(
    there: Counts, pairs: Iterable[tuple[Table, Table]], sizes: Callable[[int], Sizes]
) -> int:
    """The most images for which every pair of tables can be had; 0 if none.

    sizes: how large the parts are for so many images. Rounding makes some sizes
    infeasible below others that are not: none within one image a class is left out.
    """
    pairs = list(pairs)

    def fits(size: int) -> bool:
        wanted = (sum(_wanted(*pair, sizes(size)).values()) for pair in pairs)
        return all((one <= there).all() for one in wanted)

    low, high = 0, int(there.sum()) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    more = [size for size in range(low + 1, low + len(there) + 1) if fits(size)]
    return max(more, default=low)


def _wanted(train, test, sizes) -> dict[str, Counts]:
    """How many images of each class and value each part takes."""
    by = {"train": train, "test": test}
    return {p: cell_counts(by[of], sizes.get(p, 0)) for p, of in PARTS.items()}


def make_shift(
    y: Column, attribute: Column, train: Table, test: Table, sizes: Sizes, seed: int
) -> Shift:
    """Deals images to parts that have the tables asked for, up to rounding.

    train, test: P(value | class), rows sum to 1, of classes that are balanced. sizes: of
    "train", "id_test" and "ood_test", and, from the training table, "valid". No image is
    in two parts; which images of a class and value are taken depends on `seed` alone.

    Raises ValueError for arguments that do not fit, Infeasible where images are missing,
    with how many of which class and value, and the largest size that there is.
    """
    train, test, y, attribute = map(np.asarray, (train, test, y, attribute))
    for problem in _problems(y, attribute, train, test, sizes, seed):
        raise ValueError(f"make_shift: {problem}")
    there = contingency_table(y, attribute, *train.shape)
    asked = _wanted(train, test, sizes)
    wanted = sum(asked.values())
    if (wanted > there).any():
        raise Infeasible(_missing(there, wanted, train, test, sizes))
    chosen = {part: [np.zeros(0, int)] for part in PARTS}
    for k, a in np.argwhere(wanted).tolist():
        members = np.flatnonzero((y == k) & (attribute == a))
        members = np.random.default_rng([seed, k, a]).permutation(members)
        ends = np.cumsum([asked[part][k, a] for part in PARTS])
        for part, some in zip(PARTS, np.split(members, ends)):
            chosen[part].append(some)
    parts = {part: np.sort(np.concatenate(some)) for part, some in chosen.items()}
    dealt = {part: (y[i], attribute[i]) for part, i in parts.items()}
    realised = {p: contingency_table(*of, *train.shape) for p, of in dealt.items()}
    return Shift(**parts, realised=realised)


def _problems(y, attribute, train, test, sizes, seed) -> Iterator[str]:
    """What does not fit of the arguments of `make_shift`."""
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
            yield f"{name} must be whole numbers, one an image, got {got}"
        if len(column) and not 0 <= column.min() <= column.max() < most:
            must = f"{name} must be from 0 to {most - 1}, as the tables have it"
            yield f"{must}, got {column.min()} to {column.max()}"
    for part, size in sizes.items():
        whole = isinstance(size, int | np.integer) and size >= 0
        if part not in PARTS or not whole:
            known = ", ".join(PARTS)
            yield f"sizes must be whole numbers of {known}, got {part}={size}"
    if not isinstance(seed, int | np.integer) or seed < 0:
        yield f"seed must be 0 or more, got {seed!r}"


def _missing(there, wanted, train, test, sizes) -> str:
    """Which images are missing, and how many there could be of the same shares."""
    total, lacking = sum(sizes.values()), wanted - there

    def scaled(size: int) -> dict[str, int]:
        return {part: one * size // total for part, one in sizes.items()}

    most = scaled(largest_feasible_size(there, [(train, test)], scaled))
    cells = np.argwhere(lacking > 0).tolist()
    few = [f"{lacking[k, a]} of class {k} with value {a}" for k, a in cells]
    more = f" and {len(few) - 6} more" if len(few) > 6 else ""
    must = f"make_shift: {total} images must be there in these shares, missing are"
    largest = ", ".join(f"{part} {n}" for part, n in most.items())
    largest = f"the largest feasible size is {sum(most.values())}, as {largest}"
    return f"{must} {', '.join(few[:6])}{more}; {largest}"


OPTIONS: Mapping[str, Any] = dict(
    level="", part="", attribute="attribute", images=0, held=0.1, seed=0, groups="", order=""
)  # fmt: skip
_PARTS = {"train": "train", "valid": "valid", "id": "id_test", "ood": "ood_test"}
_ONLY = "only-"


def apply(source: base.Source, options: Mapping[str, Any]) -> base.Source:
    """Takes one part of a shift; the note has its counts by class and value.

    Raises ValueError, one line, for options that do not fit, and Infeasible where
    images are missing.
    """
    where = f"data.{source.name}: shift"
    o = _checked(where, options)
    column, names = _column(where, source, o["attribute"], o["order"])
    if (column < 0).any():
        (kept,) = np.nonzero(column >= 0)
        note = f"{len(column) - len(kept):,} images without {o['attribute']} left out"
        source = sources.take(source, kept, digest=note, note=note)
        column = column[kept]
    groups = _groups(where, source.classes, o["groups"])
    try:
        if o["level"].startswith(_ONLY):
            index = _single(where, source, column, names, o)
        else:
            index = _levelled(where, source, column, names, groups, o)
    except Infeasible as error:
        raise Infeasible(f"{where}: {error}") from error
    keys = "level", "part", "attribute", "seed"
    settings = ", ".join(f"{key} {o[key]}" for key in keys)
    digest = hashlib.sha256(index.tobytes()).hexdigest()
    classes, label = source.classes, source.columns["label"][index]
    shown = column[index].astype(np.int32)
    table = contingency_table(label, shown, len(classes), len(names))
    note = f"shift {o['level']}, {o['part']}: {describe_counts(table, classes, names)}"
    part = sources.take(source, index, digest=f"shift {settings} {digest}", note=note)
    columns = {**part.columns, "attribute": shown}
    values = {**part.values, "attribute": names}
    return dataclasses.replace(part, columns=columns, values=values)


def describe_counts(counted: Counts, classes: Names, values: Names) -> str:
    """Says how many images there are of each value, class by class, or of like classes."""
    rows: dict[str, list[str]] = {}
    for name, row in zip(classes, counted.tolist(), strict=True):
        rows.setdefault(" ".join(map(str, row)), []).append(name)
    each = ("each of " * (len(some) > 1) + "+".join(some) for some in rows.values())
    alike = (f"{row} of {those}" for row, those in zip(rows, each))
    return f"{'/'.join(values)} {', '.join(alike)}"


def _checked(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        must = f'{where} must be a dict such as dict(level="C5", part="train")'
        raise ValueError(f"{must}, got {options!r}")  # noqa: TRY004
    for key in options:
        base.check_known(f"{where} must have known options", key, OPTIONS)
    o = {**OPTIONS, **options}
    only = o["level"].startswith(_ONLY)
    if not only:
        base.check_choice(f"{where}.level", o["level"], (*LEVELS, f"{_ONLY}<value>"))
    if not (only and o["part"].startswith("ood-")):
        base.check_choice(f"{where}.part", o["part"], _PARTS)
    if not 0 < o["held"] < 0.5:
        raise ValueError(f"{where}.held must be between 0 and 1/2, got {o['held']}")
    for key in ("images", "seed"):
        base.check_int(f"{where}.{key}", o[key], 0)
    return o


def attribute_values(source: base.Source, attribute: str) -> tuple[str, ...]:
    """The values of an attribute, as the set numbers them."""
    return _column(f"data.{source.name}: shift", source, attribute, "")[1]


def _column(where, source, name, order) -> tuple[Column, tuple[str, ...]]:
    """The attribute of each image and the names of its values, in the order asked for.

    Images without a value have -1. "a+b" is both columns together, "dark small".
    """
    column, values = _values(where, source, name)
    if set_options.NO_VALUE in values:
        column = np.where(column == values.index(set_options.NO_VALUE), -1, column)
    present = np.unique(column[column >= 0])
    names = tuple(values[value] for value in present)  # Others are of other splits.
    asked = tuple(order.split("+")) if order else names
    if sorted(asked) != sorted(names):
        must = f"{where}.order must name each value once, {'+'.join(names)}"
        raise ValueError(f"{must}, got {order!r}")
    number = np.full(len(values) + 1, -1, column.dtype)  # -1 is the last.
    number[present] = [asked.index(one) for one in names]
    return number[column], asked


def _values(where, source, name) -> tuple[Column, tuple[str, ...]]:
    """A column, or several together, and the names of all its values."""
    known = [key for key in source.columns if key != "label"]
    parts = name.split("+")
    if name not in known and len(parts) > 1 and {*parts} <= {*source.values}:
        table = {}
        for one in parts:
            named = [v if v != set_options.NO_VALUE else "" for v in source.values[one]]
            table[one] = [named[value] for value in source.columns[one]]
        return set_options.number_values(set_options.combine(where, table, parts))[::-1]
    if name not in known:
        hint = base.did_you_mean(name, known) if known else "it has none"
        must = f"{where}.attribute must be a column of the set"
        raise ValueError(f"{must}, got {name!r}; {hint}")
    column = np.asarray(source.columns[name])
    return column, source.values.get(name) or tuple(map(str, range(column.max() + 1)))


def _groups(where: str, classes: Names, text: str) -> Groups:
    if not text:
        return half_groups(len(classes))
    groups, sides = np.full(len(classes), -1, np.int32), text.split("/")
    for number, side in enumerate(sides):
        for name in side.split("+"):
            if name not in classes or len(sides) != 2:
                must = f"{where}.groups must be classes of two groups, such as a+b/c+d"
                got = f"got {name!r} in {text!r}"
                raise ValueError(f"{must}, {got}; {base.did_you_mean(name, classes)}")
            if groups[classes.index(name)] >= 0:
                must = f"{where}.groups must name a class once"
                raise ValueError(f"{must}, got {name!r} again in {text!r}; remove one")
            groups[classes.index(name)] = number
    return groups


def _levelled(where, source, column, names, groups, o) -> Column:
    train, test = tables(*LEVELS[o["level"]], groups, len(names))
    label, k = source.columns["label"], len(source.classes)
    there = contingency_table(label, column, k, len(names))
    size = o["images"] or _largest(tuple(map(tuple, there)), tuple(groups), o["held"])
    sizes = _sizes(size, o["held"])
    some = _fewest(there, source.classes, names)
    if not min(sizes.values()):
        must = "images must be there of every class and value, so that no part is empty"
        raise Infeasible(f"{must}; {size} are too few, fewest are {some}")
    try:
        made = make_shift(label, column, train, test, sizes, o["seed"])
    except Infeasible as error:
        parts = functools.partial(_sizes, held=o["held"])
        most = largest_feasible_size(there, [(train, test)], parts)
        must = f"images must be at most {most} at {o['level']}, the largest feasible"
        raise Infeasible(f"{must} size, got {size}; fewest are {some}") from error
    return getattr(made, _PARTS[o["part"]])


def _fewest(there, classes: Names, values: Names) -> str:
    """Names the classes and values with the fewest images."""
    few = zip(*np.unravel_index(np.argsort(there, axis=None)[:4], there.shape))
    return ", ".join(f"{there[k, a]} of {classes[k]} with {values[a]}" for k, a in few)


@functools.cache
def _largest(there: tuple, groups: tuple, held: float) -> int:
    """As many images as all levels of all kinds can have, so that they are alike."""
    counted = np.array(there)
    grid = [tables(*one, np.array(groups), counted.shape[1]) for one in LEVELS.values()]
    return largest_feasible_size(counted, grid, functools.partial(_sizes, held=held))


def _sizes(size: int, held: float) -> dict[str, int]:
    """How large the parts are; those of the training distribution sum to `size`."""
    own = round(held * size)
    return {"train": size - 2 * own, "valid": own, "id_test": own, "ood_test": own}


def _single(where, source, column, names, o) -> Column:
    """Images of one value to train on, and of the others to test on."""
    part, dash, other = o["part"].partition("-")  # Of "ood-green" the value.
    values = [o["level"].removeprefix(_ONLY)] + [other] * bool(dash)
    for value in values:
        if value not in names or values.count(value) > 1:
            must = f"{where}: the values must be different ones of the attribute"
            hint = base.did_you_mean(value, names)
            raise ValueError(f"{must}, got {'/'.join(values)}; {hint}")
    one = np.eye(len(names))
    own = one[names.index(values[0])]
    others = one[names.index(other)] if other else (1 - own) / (len(names) - 1)
    if not o["images"]:
        return _all_of(source, column, own, others, o)
    train, test = (np.tile(row, (len(source.classes), 1)) for row in (own, others))
    sizes = _sizes(o["images"], o["held"])
    if not min(sizes.values()):
        must = "images must be so many that no part is empty"
        few = f"{o['images']} are too few"
        raise Infeasible(f"{must}, {few}; ask for more, or for all, 0")
    made = make_shift(source.columns["label"], column, train, test, sizes, o["seed"])
    return getattr(made, _PARTS[part])


def _all_of(source, column, own, others, o) -> Column:
    """All images of the values, however many a class has; each class dealt alike."""
    if o["part"].startswith("ood"):
        return np.flatnonzero(others[column] > 0)
    y, chosen = source.columns["label"], []
    for k, name in enumerate(source.classes):
        members = np.flatnonzero((y == k) & (own[column] > 0))
        if round(o["held"] * len(members)) == 0:
            value = o["level"].removeprefix(_ONLY)
            must = "there must be images of every class to train and to test on"
            got = f"{name} has {len(members)} with {value}"
            raise Infeasible(f"{must}, {got}; leave the class out (drop={name})")
        members = np.random.default_rng([o["seed"], k]).permutation(members)
        count = round(o["held"] * len(members))
        cut = {"id": slice(0, count), "valid": slice(count, 2 * count)}
        chosen.append(members[cut.get(o["part"], slice(2 * count, None))])
    return np.sort(np.concatenate(chosen))
