"""Axes of a search: an entry of a config, and the values that it is tried with."""

import ast
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

KINDS = ("choice", "uniform", "log_uniform")
_DIGITS = 4  # Significant ones of a drawn number, so that commands can be read.


class SearchAxis(NamedTuple):
    """`values` to choose from, or the ends of what is drawn between."""

    key: str  # Such as "optim.rate".
    kind: str
    values: tuple


def choice(*values: Any) -> tuple:
    """For sweep files: one of these values; a list says the same."""
    return ("choice", values)


def uniform(low: float, high: float) -> tuple:
    """For sweep files: a number between the two."""
    return ("uniform", (low, high))


def log_uniform(low: float, high: float) -> tuple:
    """For sweep files: a number between the two whose logarithm is drawn evenly."""
    return ("log_uniform", (low, high))


def parse(key: str, text: str) -> SearchAxis | None:
    """The axis that a text such as `[0.1, 0.2]` or `uniform(0, 1)` is; None for a value.

    Names and literals of Python are read, and nothing is run.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # What no axis is, the config's flags refuse.
    if isinstance(tree, ast.List):
        return make_axis(key, "choice", [_value(text, one) for one in tree.elts])
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return None
    if tree.func.id not in KINDS or tree.keywords:
        return None
    return make_axis(key, tree.func.id, [_value(text, one) for one in tree.args])


def _value(text: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return ast.get_source_segment(text.strip(), node)


def from_values(key: str, values: Any) -> SearchAxis:
    """The axis of a sweep file: a list, or what `choice`, `uniform` ... return."""
    if isinstance(values, tuple) and len(values) == 2 and values[0] in KINDS:
        return make_axis(key, *values)
    if not isinstance(values, list | tuple):
        raise ValueError(  # noqa: TRY004
            f"--sweep: axes: {key}: must be a list of values, got {values!r}"
        )
    return make_axis(key, "choice", values)


def make_axis(key: str, kind: str, values: Sequence) -> SearchAxis:
    """An axis; ValueError where nothing can be tried by it."""
    where, values = f"--config.{key}", tuple(values)
    if kind == "choice":
        if not values or len({repr(one) for one in values}) < len(values):
            raise ValueError(
                f"{where}: must list different values, at least one, got {[*values]}"
            )
        return SearchAxis(key, kind, values)
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    if len(values) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise ValueError(
            f"{where}: {kind} must have two numbers, the lower first, got {[*values]}"
        )
    if not math.isfinite(numbers[1] - numbers[0]):
        raise ValueError(f"{where}: {kind}: the ends lie too far apart, {[*values]}")
    if kind == "log_uniform" and not numbers[0] > 0:
        raise ValueError(
            f"{where}: log_uniform must have positive ends, got {[*values]}"
        )
    return SearchAxis(key, kind, values)


def grid(axes: Sequence[SearchAxis]) -> list[dict[str, Any]]:
    """All combinations, the first axis' values slowest."""
    if drawn := [axis for axis in axes if axis.kind != "choice"]:
        raise ValueError(
            f"--config.{drawn[0].key}: a grid has listed values, got {drawn[0].kind}; "
            "take --search=random"
        )
    names = [axis.key for axis in axes]
    combined = itertools.product(*(axis.values for axis in axes))
    return [dict(zip(names, values, strict=True)) for values in combined]


def sample(axes: Sequence[SearchAxis], count: int, seed: int) -> list[dict[str, Any]]:
    """So many different combinations, drawn at random.

    What is drawn for an axis is a function of (seed, number of the draw, key): more
    draws begin with the same ones, and another axis changes none of them.
    """
    if count < 1:
        raise ValueError(f"--trials: must be at least 1, got {count}")
    found: dict[str, dict[str, Any]] = {}
    for number in range(100 * count):
        one = {axis.key: _draw(axis, seed, number) for axis in axes}
        found.setdefault(repr(one), one)
        if len(found) == count:
            return [*found.values()]
    raise ValueError(
        f"--trials: the axes have about {len(found)} different combinations, got "
        f"{count}; lower it or take --search=grid"
    )


def _draw(axis: SearchAxis, seed: int, number: int) -> Any:
    rng = np.random.default_rng([seed, number, zlib.crc32(axis.key.encode())])
    if axis.kind == "choice":
        return axis.values[rng.integers(len(axis.values))]
    low, high = axis.values
    if axis.kind == "uniform":
        return _rounded(rng.uniform(low, high))
    return _rounded(math.exp(rng.uniform(math.log(low), math.log(high))))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """The values as arguments of `python -m jbias.main`."""
    return [f"--config.{key}={_text(value)}" for key, value in values.items()]


def format_axis(axis: SearchAxis) -> str:
    """The text that `parse` makes the axis of."""
    values = ", ".join(map(repr, axis.values))
    return f"[{values}]" if axis.kind == "choice" else f"{axis.kind}({values})"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
