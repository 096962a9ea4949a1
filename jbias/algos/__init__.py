"""Debiasing algorithms. ALGOS is the table of contents: name -> make(net, **options)."""

import types
from collections.abc import Callable, Mapping

from jbias.algos import (
    base,
    coral,
    debiased,
    dfr,
    dsu,
    efdmix,
    erm,
    frozen,
    group_dro,
    infodrop,
    irm,
    linear_probe,
    mixstyle,
    padain,
    pgd,
    reweight,
    sagnet,
    simclr,
    vrex,
)

ALGOS: Mapping[str, Callable[..., base.Algo]] = types.MappingProxyType(
    {
        "erm": erm.make,
        "coral": coral.make,
        "debiased": debiased.make,
        "dfr": dfr.make,
        "dsu": dsu.make,
        "efdmix": efdmix.make,
        "frozen_filters": frozen.make,
        "group_dro": group_dro.make,
        "infodrop": infodrop.make,
        "irm": irm.make,
        "linear_probe": linear_probe.make,
        "mixstyle": mixstyle.make,
        "padain": padain.make,
        "pgd": pgd.make,
        "reweight": reweight.make,
        "sagnet": sagnet.make,
        "simclr": simclr.make,
        "vrex": vrex.make,
    }
)
