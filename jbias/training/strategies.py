"""Strategies: how the devices compute the steps of many seeds; `seed_axis` carries them out.

STRATEGIES lists them. With config.run.strategy="auto" the fastest of AUTO_CANDIDATES is
chosen by `tuning.strategy_choice`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax

from jbias import errors
from jbias.runtime import xla


class Strategy(NamedTuple):
    """A way to compute the trees of a wave, and the seeds of one tree.

    dispatch: "looped": one program, which is compiled once and dispatched for each tree in
      turn. "threaded": the same program, dispatched from one thread per tree: a CPU runs a
      program in the thread that dispatches the program, and a single seed leaves part of the
      cores idle. "unrolled": one program that computes all trees. On CPU all three give the
      results of a run of a single seed bit for bit.
    convolutions: "": each tree holds one seed. Otherwise the seeds of a wave form one tree,
      and a convolution becomes one convolution in groups ("grouped", as by `jax.vmap`, slow
      on most backends) or one convolution per seed ("unrolled", see
      `convolutions.over_seeds`). Conditionals become selects; results equal the results of a single
      seed within float tolerance.
    """

    dispatch: str
    convolutions: str = ""

    @property
    def stacked(self) -> bool:
        """True if the seeds of a wave form one tree."""
        return bool(self.convolutions)


STRATEGIES: Mapping[str, Strategy] = {
    "unrolled": Strategy("unrolled"),
    "threaded": Strategy("threaded"),
    "looped": Strategy("looped"),
    "vmapped": Strategy("looped", "grouped"),
    "unrolled_convolutions": Strategy("looped", "unrolled"),
}

# The candidates of "auto" per backend, if a device trains several seeds. On an H100
# `vmapped` was slower than `unrolled_convolutions` in all three ResNet-18 timed.
AUTO_CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("threaded", "looped"),
    "gpu": ("looped", "unrolled_convolutions"),
    "tpu": ("looped", "vmapped"),
}


def default_strategy(backend: str, devices: int = 1) -> str:
    """Return the name of the strategy that "auto" selects without measurements.

    backend: "cpu", "gpu" or "tpu". devices: number of devices. Threads help only a CPU with
    one device: an accelerator runs one operation at a time, and programs of several devices
    must start in the same order on every device.
    """
    return "threaded" if backend == "cpu" and devices == 1 else "looped"


def resolve_strategy(name: str, devices: jax.sharding.Mesh) -> Strategy:
    """Return the strategy with a name, or the default strategy for "auto".

    ValueError if the name is unknown, or for "threaded" on several devices.
    """
    errors.check_choice("config.run.strategy", name, ("auto", *STRATEGIES))
    if name == "auto":
        name = default_strategy(xla.platform(), devices.size)
    if name == "threaded" and devices.size > 1:
        raise ValueError(
            "config.run.strategy: 'threaded' needs a single device, got "
            f"{devices.size}; take 'looped' or 'unrolled'"
        )
    return STRATEGIES[name]
