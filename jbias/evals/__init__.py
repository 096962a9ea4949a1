"""Measures: functions of decisions. What needs jax stands in modules of its own."""

import types
from collections.abc import Callable, Mapping

from jbias import extensions
from jbias.evals import accuracy, critical_band, cue_conflict
from jbias.evals.decisions import Decisions, Number
from jbias.stats import consistency

__all__ = [
    "MEASURES",
    "Decisions",
    "Number",
    "critical_band_fit",
    "error_consistency",
    "find_measure",
    "shape_bias",
]

critical_band_fit = critical_band.critical_band_fit
error_consistency = consistency.error_consistency
shape_bias = cue_conflict.shape_bias

MEASURES: Mapping[str, Callable[[Decisions], list[Number]]] = types.MappingProxyType(
    {
        "accuracy": accuracy.accuracy,
        "real_accuracy": accuracy.real_accuracy,
        "shape_bias": cue_conflict.measure,
        "halves": accuracy.stacked_halves,
        "groups": accuracy.by_group,
    }
)


def _are_numbers(made: object) -> bool:
    return isinstance(made, list) and all(isinstance(one, Number) for one in made)


def find_measure(
    name: str, where: str = "measures"
) -> Callable[[Decisions], list[Number]]:
    """One of MEASURES, or the user's own: `path/to/file.py:function`, or a package's."""
    must = "a list of jbias.evals.Number"
    kind = extensions.Kind("measures", MEASURES, must, _are_numbers)
    return extensions.find(where, name, kind)
