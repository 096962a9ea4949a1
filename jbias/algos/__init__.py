"""Debiasing algorithms: ALGOS maps a name to make(net, **options) -> base.Algo.

A module of this folder offers algorithms by a table `ALGOS` at its end, {name: make}.
"""

import importlib
import pkgutil
import types
from collections.abc import Callable, Mapping

from jbias.algos import base


def _collect() -> dict[str, Callable[..., base.Algo]]:
    """Return the algorithms of all modules of this folder: "erm", then the others by name.

    ValueError if two modules offer the same name.
    """
    algorithms, module_of = {}, {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name, make in vars(module).get("ALGOS", {}).items():
            if name in algorithms:
                must = f"{module.__name__}: ALGOS must have names of its own"
                got = f"got {name!r}, which {module_of[name]} has"
                raise ValueError(f"{must}, {got}; rename it")
            algorithms[name], module_of[name] = make, module.__name__
    names = sorted(algorithms, key=lambda name: (name != "erm", name))
    return {name: algorithms[name] for name in names}


ALGOS: Mapping[str, Callable[..., base.Algo]] = types.MappingProxyType(_collect())
