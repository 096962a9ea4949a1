"""Axes of a search as text: an entry of a config, and the values that it is tried with.

`parse` makes Optuna's distributions of them.
"""

import ast
from collections.abc import Mapping
from typing import Any

from optuna import distributions

from jbias import config as jc

_DIGITS = 4  # Significant ones of a drawn number, so that commands can be read.
_MOST = 1e300  # No end of a range lies beyond.


def choice(*values: Any) -> str:
    """For sweep files: one of these values; a list says the same."""
    return repr([*values])


def uniform(low: float, high: float) -> str:
    """For sweep files: a number between the two."""
    return f"uniform({low!r}, {high!r})"


def log_uniform(low: float, high: float) -> str:
    """For sweep files: a number between the two whose logarithm is drawn evenly."""
    return f"log_uniform({low!r}, {high!r})"


def parse(key: str, text: str) -> distributions.BaseDistribution | None:
    """The axis that a text such as `[0.1, 0.2]` or `uniform(0, 1)` is; None for a value.

    Names and literals of Python are read, and nothing is run. What there is to choose from
    are texts, as flags have them. ValueError for an axis by which nothing can be tried.
    """
    kind, text = "choice", text.strip()
    try:
        match jc.parse_expression(text).body:
            case ast.List(elts=nodes):
                pass
            case ast.Call(func=ast.Name(id=kind), args=nodes, keywords=[]):
                pass
            case _:
                return None
        sources = [ast.get_source_segment(text, node) for node in nodes]
        values = [*map(jc.parse_value, sources)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None  # What no axis is, the config's flags refuse.
    if kind == "choice":
        texts = [*map(as_text, values)]
        if texts and len({*texts}) == len(texts):
            return distributions.CategoricalDistribution(texts)
        must = "must list different values, at least one"
    elif kind in ("uniform", "log_uniform"):
        log = kind == "log_uniform"
        match values:
            case [int() | float() as low, int() | float() as high]:
                if -_MOST < low < high < _MOST and (low > 0 or not log):
                    return distributions.FloatDistribution(low, high, log=log)
        must = "must have two finite numbers, the lower first" + ", above 0" * log
    else:
        return None
    raise ValueError(f"--config.{key}: {kind}: {must}, got {values}")


def as_text(value: Any, *, drawn: bool = False) -> str:
    """A value as a flag has it."""
    if drawn and isinstance(value, float):
        value = float(f"{value:.{_DIGITS}g}")
    return value if isinstance(value, str) else repr(value)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """The values as arguments of `jbias train`."""
    return [f"--config.{key}={as_text(value)}" for key, value in values.items()]
