"""Debiasing algorithms. ALGOS is the table of contents: name -> make(net, **options)."""

import types
from collections.abc import Callable, Mapping

from jbias.algos import (
    base,
    debiased,
    dsu,
    efdmix,
    erm,
    frozen,
    infodrop,
    linear_probe,
    mixstyle,
    padain,
    pgd,
    sagnet,
    simclr,
)

ALGOS: Mapping[str, Callable[..., base.Algo]] = types.MappingProxyType(
    {
        "erm": erm.make,
        "debiased": debiased.make,
        "dsu": dsu.make,
        "efdmix": efdmix.make,
        "frozen_filters": frozen.make,
        "infodrop": infodrop.make,
        "linear_probe": linear_probe.make,
        "mixstyle": mixstyle.make,
        "padain": padain.make,
        "pgd": pgd.make,
        "sagnet": sagnet.make,
        "simclr": simclr.make,
    }
)
