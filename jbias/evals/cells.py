"""Images by class and value of an attribute: counts, halves, and which cells take part."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def count(
    label: Int[np.ndarray, "n"], value: Int[np.ndarray, "n"]
) -> Int[np.ndarray, "k m"]:
    """How many images there are of each class and value; negative ones are left out."""
    shape = int(label.max(initial=-1)) + 1, int(value.max(initial=-1)) + 1
    return sums(np.ones(len(label)), label, value, shape).astype(np.int64)


def sums(
    share: Float[np.ndarray, "n"],
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
    shape: tuple[int, int],
) -> Float[np.ndarray, "k m"]:
    """The sum of `share` over the images of each cell; negative ones are left out."""
    known = (label >= 0) & (value >= 0)
    flat = label[known].astype(np.int64) * shape[1] + value[known]
    found = np.bincount(flat, share[known], minlength=shape[0] * shape[1])
    return found.reshape(shape)


def variance(
    right: Float[np.ndarray, "*shape"], n: Int[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Variance of a share right / n: p (1 - p) / n with p = (right + 1) / (n + 2)."""
    p = (right + 1) / (n + 2)
    return p * (1 - p) / np.maximum(n, 1)


def kept(
    table: Int[np.ndarray, "k m"],
    least: int,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
) -> tuple[tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]], str]:
    """Classes and values of which every cell has `least` images, and what that leaves out.

    Where cells lack images, the value or class with the largest share of such cells is
    left out, again and again; of equal ones a value. Fewer than two of either: none. The
    words name what is left out, with counts.
    """
    rows, columns = np.flatnonzero(table.sum(1)), np.flatnonzero(table.sum(0))
    lost = []
    called = names or (
        [*map(str, range(len(table)))],
        [*map(str, range(table.shape[1]))],
    )
    while rows.size and columns.size:
        short = table[np.ix_(rows, columns)] < least
        if not short.any():
            break
        by_row, by_column = short.mean(1), short.mean(0)
        axis = int(by_column.max() >= by_row.max())
        worst = int((by_row, by_column)[axis].argmax())
        lost.append(_lost(table, rows, columns, axis, worst, least, called))
        if axis:
            columns = np.delete(columns, worst)
        else:
            rows = np.delete(rows, worst)
    if len(rows) < 2 or len(columns) < 2:
        what = "classes" if len(rows) < 2 else "values"
        more = f" ({'; '.join(lost[:3])})" if lost else ""
        none = np.zeros(0, int)
        return (none, none), (
            f"cannot be tested: fewer than two {what} have {least} images in every"
            f" cell{more}"
        )
    said = "; ".join(lost[:6]) + (f"; {len(lost) - 6} more" if len(lost) > 6 else "")
    return (rows, columns), f"left out: {said}" if lost else ""


def _lost(table, rows, columns, axis, worst, least, called) -> str:
    """What is left out, and which of its cells lack how many images."""
    if axis:
        line, others = table[rows, columns[worst]], [called[0][k] for k in rows]
        what = f"value {called[1][columns[worst]]}"
    else:
        line, others = table[rows[worst], columns], [called[1][a] for a in columns]
        what = f"class {called[0][rows[worst]]}"
    lacking = [
        f"{n} of {other}" for n, other in zip(line.tolist(), others) if n < least
    ]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    return f"{what} has {', '.join(lacking[:3])}{more}, {least} of each are needed"


def halves(
    label: Int[np.ndarray, "n"],
    value: Int[np.ndarray, "n"],
    kept: tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]],
    rng: np.random.Generator,
) -> Int[np.ndarray, "n"]:
    """Deals the images of each cell to 0 and 1 by chance, evenly; -1 outside of `kept`.

    Of an odd number, either half gets the one more by chance.
    """
    half = np.full(len(label), -1, np.int64)
    for k in kept[0]:
        for a in kept[1]:
            members = np.flatnonzero((label == k) & (value == a))
            side = (np.arange(len(members)) + rng.integers(2)) % 2
            half[rng.permutation(members)] = side
    return half
