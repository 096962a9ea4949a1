"""The probes by name; what each shows and counts stands in a file of its own."""

import types
from collections.abc import Callable, Mapping

from jbias.evals import attacks, calibration, classes, cue_conflict, human, probe

PROBES: Mapping[str, Callable[..., probe.Probe]] = types.MappingProxyType(
    {
        "shape_bias": cue_conflict.make,
        "human": human.make,
        "pgd": attacks.make,
        "fgsm": attacks.make_fgsm,
        "calibration": calibration.make,
        "classes": classes.make,
    }
)
