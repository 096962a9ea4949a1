"""The table of probes: how a set is shown to a network, and what is counted."""

import types
from collections.abc import Callable, Mapping

from jbias.evals import corruptions, plain, probe

# make(**options) -> Probe. The frame passes `side`, the images' in pixels, and `measures`,
# those of the set, where `make` takes them.
PROBES: Mapping[str, Callable[..., probe.Probe]] = types.MappingProxyType(
    {"corruptions": corruptions.make, "plain": plain.make}
)
