"""Measures as functions of decisions; importing this package does not import jax."""

import types
from collections.abc import Callable, Mapping
from typing import Any

from jbias import extensions
from jbias.measures import accuracy, critical_band, cue_conflict, cue_ranks
from jbias.measures.decisions import Decisions, Number

__all__ = ["MEASURES", "Decisions", "Number", "critical_band_fit"]
__all__ += ["error_consistency", "find_measure", "shape_bias"]

critical_band_fit = critical_band.critical_band_fit
shape_bias = cue_conflict.shape_bias

MEASURES: Mapping[str, Callable[[Decisions], list[Number]]] = types.MappingProxyType(
    {
        "accuracy": accuracy.accuracy,
        "real_accuracy": accuracy.real_accuracy,
        "shape_bias": cue_conflict.measure,
        "cue_rank": cue_ranks.measure,
        "halves": accuracy.stacked_halves,
        "groups": accuracy.by_group,
        "classes": accuracy.by_class,
    }
)


def __getattr__(name: str) -> Any:
    """Return `error_consistency`, imported on first use to keep the start of training fast.

    AttributeError for any other name.
    """
    if name == "error_consistency":
        from jbias.stats import consistency

        return consistency.error_consistency
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _are_numbers(result: object) -> bool:
    """Return True if a measure's result is a list of Number."""
    return isinstance(result, list) and all(
        isinstance(number, Number) for number in result
    )


def find_measure(
    name: str, where: str = "measures"
) -> Callable[[Decisions], list[Number]]:
    """Return the measure with the given name, a function from decisions to numbers.

    name: a key of MEASURES, "path/to/file.py:function", or the name of an installed package's
    entry point in the group "jbias.measures". where: start of the error message. ValueError
    for an unknown name. A user's function raises messages.UserCodeError if its result is not
    a list of Number.
    """
    return extensions.find(where, name, _measures())


def check_measure(name: str, where: str = "measures") -> None:
    """Raise ValueError for an unknown measure, without running a user's code.

    A user's file is only checked to exist. Arguments: see `find_measure`.
    """
    extensions.check_name(where, name, _measures())


def _measures() -> extensions.Registry:
    """Return the registry in which `find_measure` looks up names."""
    return extensions.Registry(
        group="measures",
        known=MEASURES,
        must="a list of jbias.evals.Number",
        fits=_are_numbers,
    )
