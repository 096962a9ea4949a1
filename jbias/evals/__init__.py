"""Measures: functions of decisions. What needs jax stands in modules of its own."""

import types
from collections.abc import Callable, Mapping
from typing import Any

from jbias import extensions
from jbias.evals import accuracy, critical_band, cue_conflict
from jbias.evals.decisions import Decisions, Number

__all__ = ["MEASURES", "Decisions", "Number", "critical_band_fit"]
__all__ += ["error_consistency", "find_measure", "shape_bias"]

critical_band_fit = critical_band.critical_band_fit
shape_bias = cue_conflict.shape_bias

MEASURES: Mapping[str, Callable[[Decisions], list[Number]]] = types.MappingProxyType(
    {
        "accuracy": accuracy.accuracy,
        "real_accuracy": accuracy.real_accuracy,
        "shape_bias": cue_conflict.measure,
        "halves": accuracy.stacked_halves,
        "groups": accuracy.by_group,
        "classes": accuracy.by_class,
    }
)


def __getattr__(name: str) -> Any:
    """`error_consistency`, of statistics, for which no training waits."""
    if name == "error_consistency":
        from jbias.stats import consistency

        return consistency.error_consistency
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _are_numbers(made: object) -> bool:
    return isinstance(made, list) and all(isinstance(one, Number) for one in made)


def find_measure(
    name: str, where: str = "measures"
) -> Callable[[Decisions], list[Number]]:
    """One of MEASURES, or the user's own: `path/to/file.py:function`, or a package's."""
    return extensions.find(where, name, _measures())


def check_measure(name: str, where: str = "measures") -> None:
    """Raise ValueError where `find_measure` knows no such name; run no code of a user."""
    extensions.check_name(where, name, _measures())


def _measures() -> extensions.Registry:
    """Return the registry of measures."""
    return extensions.Registry(
        group="measures",
        known=MEASURES,
        must="a list of jbias.evals.Number",
        fits=_are_numbers,
    )
