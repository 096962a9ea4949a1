"""Axes of a search: config entries with the values to try, as text such as "[0.1, 0.2]".

`parse` converts an axis to one of Optuna's distributions.
"""

import ast
from collections.abc import Mapping
from typing import Any

from optuna import distributions

from jbias import config as jc

_DIGITS = 4  # Significant digits of a drawn number, for readable commands.
_MAX_BOUND = 1e300  # Of the bounds of a range.


def choice(*values: Any) -> str:
    """Return the axis of these values as text, for sweep files; a list is the same axis."""
    return repr([*values])


def uniform(low: float, high: float) -> str:
    """Return the axis of numbers drawn uniformly from low to high, as text for sweep files."""
    return f"uniform({low!r}, {high!r})"


def log_uniform(low: float, high: float) -> str:
    """Return the axis of numbers drawn log-uniformly from low to high, as text.

    For sweep files. low: above 0.
    """
    return f"log_uniform({low!r}, {high!r})"


def parse(key: str, text: str) -> distributions.BaseDistribution | None:
    """Return the distribution of an axis such as `[0.1, 0.2]` or `uniform(0, 1)`.

    key: of the config, such as "optim.rate", for messages. None if the text is a single
    value. The choices of a list are texts, as in flags. The text is parsed as a Python
    expression, but not evaluated. ValueError for an invalid axis.
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
        return None  # The config's flags reject invalid values.
    if kind == "choice":
        texts = [*map(as_text, values)]
        if texts and len({*texts}) == len(texts):
            return distributions.CategoricalDistribution(texts)
        must = "must list different values, at least one"
    elif kind in ("uniform", "log_uniform"):
        is_log = kind == "log_uniform"
        match values:
            case [int() | float() as low, int() | float() as high]:
                is_range = -_MAX_BOUND < low < high < _MAX_BOUND
                if is_range and (low > 0 or not is_log):
                    return distributions.FloatDistribution(low, high, log=is_log)
        must = "must have two finite numbers, the lower first"
        if is_log:
            must += ", above 0"
    else:
        return None
    raise ValueError(f"--config.{key}: {kind}: {must}, got {values}")


def as_text(value: Any, *, is_drawn: bool = False) -> str:
    """Return a value as text for a flag; is_drawn: whether to round a float.

    The value of a distribution has more digits than useful in a name.
    """
    if is_drawn and isinstance(value, float):
        value = float(f"{value:.{_DIGITS}g}")
    return value if isinstance(value, str) else repr(value)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Return the values, by key, as flags --config.KEY=VALUE of `jbias train`."""
    return [f"--config.{key}={as_text(value)}" for key, value in values.items()]
