"""Debiasing algorithms. ALGOS is the table of contents: name -> make(net, **options)."""

import types
from collections.abc import Callable, Mapping

from jbias.algos import base, erm, padain, sagnet

ALGOS: Mapping[str, Callable[..., base.Algo]] = types.MappingProxyType(
    {"erm": erm.make, "padain": padain.make, "sagnet": sagnet.make}
)
