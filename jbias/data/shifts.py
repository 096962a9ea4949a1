"""Chosen distribution shifts: which images make sets with these tables of an attribute.

A shift is a pair of tables P(attribute = a | class = k), one to train on and one to test
on out of distribution; classes are balanced in both. Marginal: the share of each value
changes and does not depend on the class. Conditional: what each class has changes, the
share of each value does not. Joint: both change.

Source: Hu, Sang, Wang and Jiang: Understanding and Testing Generalization of Deep
Networks on Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190, who give
the kinds, the colours of one marginal setting, and no shares in numbers: levels, and how
the kinds look with any number of values and classes, are ours.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

KINDS = ("marginal", "conditional", "joint")
_MOVED: Mapping[str, float] = (
    MappingProxyType(  # Of m, by how much group 1's window is.
        {"marginal": 0.0, "conditional": 1 / 2, "joint": 1 / 4}
    )
)
# Those of `sizes`, in the order in which images are dealt, and the table each follows.
PARTS: Mapping[str, str] = MappingProxyType(
    {"train": "train", "valid": "train", "id_test": "train", "ood_test": "test"}
)


class Level(NamedTuple):
    """How far a shift of some kind goes: from 1/2, none at all, to 1."""

    kind: str
    share: float


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        f"{kind[0].upper()}{i}": Level(kind, share)
        for kind, shares in (
            ("marginal", (0.5, 0.625, 0.75, 0.875, 1.0)),
            ("conditional", (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)),
            ("joint", (0.5, 0.625, 0.75, 0.875, 1.0)),
        )
        for i, share in enumerate(shares)
    }
)


class Infeasible(ValueError):
    """There are too few images of some class and value."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shift:
    """Numbers of the images of each part, ascending, and what the parts hold of each.

    realised: part -> counts, a row a class and a column a value.
    """

    train: Int[np.ndarray, "n"]
    valid: Int[np.ndarray, "v"]
    id_test: Int[np.ndarray, "i"]
    ood_test: Int[np.ndarray, "o"]
    realised: Mapping[str, Int[np.ndarray, "k m"]]


def half_groups(classes: int) -> Int[np.ndarray, "k"]:
    """Two groups of classes, the first and the last half: 0 and 1; -1 in the middle."""
    groups = np.full(classes, -1, np.int32)
    groups[: classes // 2] = 0
    groups[classes - classes // 2 :] = 1
    return groups


def tables(
    kind: str, share: float, groups: Int[np.ndarray, "k"], values: int
) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
    """Gives P(value | class) to train on and to test on; rows sum to 1.

    Of the values in a circle, group 0 has the first half with probability `share` in
    training and the other half with the rest; of group 1 that half is moved by nothing
    (marginal), half (conditional) or a quarter of the circle (joint). The test has it the
    other way round. A value that a border cuts belongs to both sides in part. Classes of
    neither group, -1, have all values alike, but in a marginal shift. A share of 1/2 is no shift.

    Raises ValueError, one line, for arguments outside their range.
    """
    groups = np.asarray(groups)
    if kind not in KINDS:
        raise ValueError(
            f"shifts: kind must be one of {', '.join(KINDS)}, got {kind!r}"
        )
    if not 0 <= share <= 1:
        raise ValueError(f"shifts: share must be in [0, 1], got {share}")
    if values < 2:
        raise ValueError(
            f"shifts: an attribute must have 2 values or more, got {values}"
        )
    sizes = [int((groups == group).sum()) for group in (0, 1)]
    if not set(groups.tolist()) <= {-1, 0, 1} or sizes[0] != sizes[1] or not sizes[0]:
        raise ValueError(
            "shifts: groups must be two of equally many classes, so that all values keep"
            f" their share in a conditional shift, got {sizes[0]} and {sizes[1]}"
        )
    first = _window(0.0, values)
    second = _window(_MOVED[kind] * values, values)
    even = np.full(values, 1 / values)
    inside = np.stack([first, second, even])[groups]  # -1 is the last.
    if kind == "marginal":
        inside = np.tile(first, (len(groups), 1))
    outside = 2 / values - inside
    return share * inside + (1 - share) * outside, share * outside + (
        1 - share
    ) * inside


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


def cell_counts(table: Float[np.ndarray, "k m"], size: int) -> Int[np.ndarray, "k m"]:
    """How many of `size` images each class and value has; classes differ by 1 at most."""
    classes = len(table)
    return round_to_total(table, round_to_total(np.full(classes, 1 / classes), size))


def contingency_table(
    y: Int[np.ndarray, "n"], attribute: Int[np.ndarray, "n"], classes: int, values: int
) -> Int[np.ndarray, "k m"]:
    """How many images there are of each class and value."""
    found = np.zeros((classes, values), int)
    np.add.at(found, (np.asarray(y), np.asarray(attribute)), 1)
    return found


def largest_feasible_size(
    there: Int[np.ndarray, "k m"],
    pairs: Iterable[tuple[Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]],
    sizes: Callable[[int], Mapping[str, int]],
) -> int:
    """The most images for which every pair of tables can be had; 0 if none.

    sizes: how large the parts are for so many images. Rounding makes some sizes
    infeasible below others that are not: none within one image a class is left out.
    """
    pairs = list(pairs)

    def fits(size: int) -> bool:
        parts = sizes(size)
        return all((_wanted(*pair, parts) <= there).all() for pair in pairs)

    low, high = 0, int(there.sum()) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    more = [size for size in range(low + 1, low + len(there) + 1) if fits(size)]
    return max(more, default=low)


def _wanted(
    train: Float[np.ndarray, "k m"],
    test: Float[np.ndarray, "k m"],
    sizes: Mapping[str, int],
) -> Int[np.ndarray, "k m"]:
    """How many images of each class and value all parts take together."""
    by = {"train": train, "test": test}
    return sum(cell_counts(by[PARTS[part]], size) for part, size in sizes.items())


def make_shift(
    y: Int[np.ndarray, "n"],
    attribute: Int[np.ndarray, "n"],
    train: Float[np.ndarray, "k m"],
    test: Float[np.ndarray, "k m"],
    sizes: Mapping[str, int],
    seed: int,
) -> Shift:
    """Deals images to parts that have the tables asked for, up to rounding.

    train, test: P(value | class), rows sum to 1, of classes that are balanced. sizes: of
    "train", "id_test" and "ood_test", and, from the training table, "valid". No image is
    in two parts; which images of a class and value are taken depends on `seed` alone.

    Raises ValueError for arguments that do not fit, Infeasible where images are missing,
    with how many of which class and value, and the largest size that there is.
    """
    train, test, y, attribute = map(np.asarray, (train, test, y, attribute))
    _check(y, attribute, train, test, sizes)
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"make_shift: seed must be 0 or more, got {seed!r}")
    there = contingency_table(y, attribute, *train.shape)
    by = {"train": train, "test": test}
    asked = {
        part: cell_counts(by[of], sizes.get(part, 0)) for part, of in PARTS.items()
    }
    if (sum(asked.values()) > there).any():
        raise Infeasible(_missing(there, sum(asked.values()), train, test, sizes))
    chosen = {part: [] for part in PARTS}
    for k, a in np.argwhere(sum(asked.values())).tolist():
        members = np.flatnonzero((y == k) & (attribute == a))
        members = np.random.default_rng([seed, k, a]).permutation(members)
        ends = np.cumsum([asked[part][k, a] for part in PARTS])
        for part, some in zip(PARTS, np.split(members, ends)):
            chosen[part].append(some)
    parts = {
        part: np.sort(np.concatenate([*some, np.zeros(0, int)]))
        for part, some in chosen.items()
    }
    realised = {
        part: contingency_table(y[index], attribute[index], *train.shape)
        for part, index in parts.items()
    }
    return Shift(**parts, realised=realised)


def _check(y, attribute, train, test, sizes) -> None:
    if train.shape != test.shape or train.ndim != 2:
        raise ValueError(
            "make_shift: both tables must be (classes, values), got"
            f" {train.shape} and {test.shape}"
        )
    for name, table in (("train", train), ("test", test)):
        if (table < -1e-9).any() or not np.allclose(table.sum(1), 1):
            raise ValueError(
                f"make_shift: rows of the {name} table must be probabilities that sum to"
                f" 1, got sums {np.round(table.sum(1), 4).tolist()}"
            )
    for name, column, most in (
        ("y", y, train.shape[0]),
        ("attribute", attribute, train.shape[1]),
    ):
        if column.shape != y.shape or not np.issubdtype(column.dtype, np.integer):
            raise ValueError(
                f"make_shift: {name} must be whole numbers, one an image, got"
                f" {column.dtype} {column.shape}"
            )
        if len(column) and not 0 <= column.min() <= column.max() < most:
            raise ValueError(
                f"make_shift: {name} must be from 0 to {most - 1}, as the tables have it,"
                f" got {column.min()} to {column.max()}"
            )
    for part, size in sizes.items():
        whole = isinstance(size, int | np.integer) and size >= 0
        if part not in PARTS or not whole:
            raise ValueError(
                f"make_shift: sizes must be whole numbers of {', '.join(PARTS)}, got"
                f" {part}={size}"
            )


def _missing(there, wanted, train, test, sizes) -> str:
    """Which images are missing, and how many there could be of the same shares."""
    total = sum(sizes.values())

    def scaled(size: int) -> dict[str, int]:
        return {part: one * size // total for part, one in sizes.items()}

    most = scaled(largest_feasible_size(there, [(train, test)], scaled))
    lacking = np.argwhere(wanted > there)
    some = ", ".join(
        f"{wanted[k, a] - there[k, a]} of class {k} with value {a}"
        for k, a in lacking[:6].tolist()
    )
    more = f" and {len(lacking) - 6} more" if len(lacking) > 6 else ""
    return (
        f"make_shift: {total} images must be there in these shares, missing are {some}"
        f"{more}; the largest feasible size is {sum(most.values())}, as"
        f" {', '.join(f'{part} {n}' for part, n in most.items())}"
    )
