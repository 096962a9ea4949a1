"""Measures: functions of decisions. What needs jax stands in modules of its own."""

import types
from collections.abc import Callable, Mapping

from jbias.evals.accuracy import accuracy, real_accuracy
from jbias.evals.consistency import error_consistency
from jbias.evals.critical_band import critical_band_fit
from jbias.evals.cue_conflict import measure, shape_bias
from jbias.evals.decisions import Decisions, Number
from jbias.evals.groups import by_group
from jbias.evals.halves import halves

__all__ = [
    "MEASURES",
    "Decisions",
    "Number",
    "critical_band_fit",
    "error_consistency",
    "shape_bias",
]

MEASURES: Mapping[str, Callable[[Decisions], list[Number]]] = types.MappingProxyType(
    {
        "accuracy": accuracy,
        "real_accuracy": real_accuracy,
        "shape_bias": measure,
        "halves": halves,
        "groups": by_group,
    }
)
