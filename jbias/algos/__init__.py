"""Debiasing algorithms: ALGOS maps a name to make(net, **options) -> base.Algo."""

import types
from collections.abc import Callable, Mapping

from jbias.algos import (
    base,
    debiased,
    dfr,
    dsu,
    erm,
    frozen,
    group_dro,
    infodrop,
    invariance,
    linear_probe,
    mixstyle,
    padain,
    pgd,
    reweight,
    sagnet,
    simclr,
)

ALGOS: Mapping[str, Callable[..., base.Algo]] = types.MappingProxyType(
    {
        "erm": erm.make,
        "coral": invariance.coral,
        "debiased": debiased.make,
        "dfr": dfr.make,
        "dsu": dsu.make,
        "efdmix": mixstyle.efdmix,
        "frozen_filters": frozen.make,
        "group_dro": group_dro.make,
        "infodrop": infodrop.make,
        "irm": invariance.irm,
        "linear_probe": linear_probe.make,
        "mixstyle": mixstyle.make,
        "padain": padain.make,
        "pgd": pgd.make,
        "reweight": reweight.make,
        "sagnet": sagnet.make,
        "simclr": simclr.make,
        "vrex": invariance.vrex,
    }
)
