"""The probes by name; what each shows and counts stands in a file of its own."""

import types
from collections.abc import Callable, Mapping

from jbias.evals import critical_band_stimuli, probe, spectral_filter

PROBES: Mapping[str, Callable[..., probe.Probe]] = types.MappingProxyType(
    {
        "critical_band": critical_band_stimuli.make,
        "spectral": spectral_filter.make,
    }
)
