"""What a run cost: device hours, and an estimate of the energy with its assumptions.

Seconds are measured; energy is an estimate: hours times the rated power of the devices,
times the share of it in use, times the power usage effectiveness (PUE) of the building.
Host, memory and network are left out, unless the PUE accounts for them.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jbias import config as jc
from jbias.runtime import messages


class DevicePower(NamedTuple):
    """What one device of jax draws at most, and who says so."""

    watts: float
    source: str


_JOUPPI = "Jouppi et al. 2023, arXiv:2304.01433, the most measured"
_LANNELONGUE = "a core, the usual of Lannelongue et al. 2021 (Green Algorithms)"
# By how a device's kind begins, the longest first. Makers of v5e and later TPUs do not
# publish their power.
DEVICE_POWERS: Mapping[str, DevicePower] = {
    "NVIDIA H200": DevicePower(700, "NVIDIA H200 datasheet, SXM"),
    "NVIDIA H100 PCIe": DevicePower(350, "NVIDIA H100 PCIe product brief"),
    "NVIDIA H100": DevicePower(700, "NVIDIA H100 datasheet, SXM"),
    "NVIDIA A100 80GB PCIe": DevicePower(300, "NVIDIA A100 datasheet, PCIe 80 GB"),
    "NVIDIA A100-PCIE": DevicePower(250, "NVIDIA A100 datasheet, PCIe 40 GB"),
    "NVIDIA A100": DevicePower(400, "NVIDIA A100 datasheet, SXM"),
    "Tesla V100-PCIE": DevicePower(250, "NVIDIA V100 datasheet, PCIe"),
    "Tesla V100": DevicePower(300, "NVIDIA V100 datasheet, SXM2"),
    "Tesla T4": DevicePower(70, "NVIDIA T4 datasheet"),
    "NVIDIA L4": DevicePower(72, "NVIDIA L4 datasheet"),
    # Of a chip, which has two of jax's devices, 262 W.
    "TPU v3": DevicePower(131, _JOUPPI),
    "TPU v4": DevicePower(192, _JOUPPI),
    "cpu": DevicePower(12, _LANNELONGUE),
}
PHASES = ("opening", "compiling", "stepping", "evaluating")


class Energy(NamedTuple):
    """What an estimate assumes."""

    watts: float = 0.0  # Of one device; 0: as RATED has its kind.
    share: float = 1.0  # Of the rated power that is in use.
    pue: float = 1.0  # What the building draws for each watt of its devices.
    # kg of CO2 equivalents a kWh; 0: not known, nothing is said.
    intensity: float = 0.0


DEFAULT_ENERGY = Energy()


def parse_energy(where: str, given: Mapping[str, float]) -> Energy:
    """What a config's entries assume; ValueError where they cannot be."""
    jc.check_all_known(where, given, Energy._fields)
    energy = Energy(**given)
    bounds = ((0, 1e6), (0, 1), (1, 10), (0, 10))  # Of each field.
    for name, value, (low, high) in zip(Energy._fields, energy, bounds, strict=True):
        if type(value) not in (int, float) or not low <= value <= high:
            jc.refuse(f"{where}.{name}", f"be from {low:g} to {high:g}", value)
    return energy


class Devices(NamedTuple):
    """What is paid for: so many devices of a kind; on a CPU its cores."""

    kind: str
    count: int


class Stopwatch:
    """Adds up where the seconds of a process go; whatever is not told, to "opening".

    began: when, by the calendar, in UTC.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.began = messages.utc_now("microseconds")
        self._clock, self._doing, self._since = clock, PHASES[0], clock()
        self._spent = dict.fromkeys(PHASES, 0.0)

    @contextlib.contextmanager
    def during(self, work: str) -> Iterator[None]:
        """Counts what happens inside as that work, and what follows as before."""
        before = self._turned(work)
        try:
            yield
        finally:
            self._turned(before)

    def spent(self) -> dict[str, float]:
        """Seconds of each work until now."""
        self._turned(self._doing)
        return dict(self._spent)

    def _turned(self, work: str) -> str:
        now, before = self._clock(), self._doing
        self._spent[before] += now - self._since
        self._since, self._doing = now, work
        return before


def device_power(kind: str) -> DevicePower | None:
    """The power of a kind of device; None where nobody published it."""
    fits = [name for name in DEVICE_POWERS if kind.startswith(name)]
    return DEVICE_POWERS[max(fits, key=len)] if fits else None


def estimate(
    seconds: float, devices: Devices, energy: Energy = DEFAULT_ENERGY
) -> dict[str, float | str | None]:
    """What so many seconds of these devices cost.

    "energy_kwh" is hours * count * watts * share * pue / 1000, None where the power is
    not known; "kg_co2e" that times the intensity, None where none is given. What was
    assumed stands beside.
    """
    known = device_power(devices.kind)
    watts = energy.watts or (known.watts if known else None)
    hours = devices.count * seconds / 3600
    kwh = None if watts is None else hours * watts * energy.share * energy.pue / 1000
    emits = kwh is not None and energy.intensity > 0
    source = "given" if energy.watts else known.source if known else "not published"
    return {
        "device_hours": hours,
        "energy_kwh": kwh,
        "kg_co2e": kwh * energy.intensity if emits else None,
        "device": devices.kind,
        "devices": devices.count,
        "watts": watts,
        "source": source,
        "share": energy.share,
        "pue": energy.pue,
        "intensity": energy.intensity or None,
    }


def describe(cost: Mapping[str, Any]) -> str:
    """What `estimate` or `total` gave, in a line."""
    line = f"{cost['device_hours']:.3g} device hours"
    if cost["energy_kwh"] is not None:
        line += f", about {cost['energy_kwh']:.3g} kWh"
    if cost["kg_co2e"] is not None:
        line += f", {cost['kg_co2e']:.3g} kg CO2e"
    return line


def of_start(
    at: str, spent: Mapping[str, float], devices: Devices, energy: Energy, step: int
) -> dict[str, Any]:
    """What one start of a run says of itself, having come to `step`."""
    seconds = {work: round(value, 3) for work, value in spent.items()}
    cost = estimate(sum(seconds.values()), devices, energy)
    return {"at": at, "step": step, "seconds": seconds, **cost}


def total(starts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What all starts of a run cost together, steps that a kill undid among it.

    "hours" are device hours by work. Energy and emissions are None where those of any
    start are.
    """
    starts, sums = list(starts), {}
    for key in ("device_hours", "energy_kwh", "kg_co2e"):
        values = [one[key] for one in starts]
        sums[key] = None if None in values else sum(values)

    def hours(work):
        spent = (one["devices"] * one["seconds"].get(work, 0.0) for one in starts)
        return sum(spent) / 3600

    return {"starts": len(starts), **sums, "hours": {k: hours(k) for k in PHASES}}
