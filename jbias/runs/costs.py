"""Costs of a run: measured device hours, and an estimate of energy and emissions.

Energy is estimated as hours times the rated power of the devices, times the share of the
power in use, times the power usage effectiveness (PUE) of the building. Host, memory and
network are left out, unless the PUE includes them.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jbias import errors
from jbias.runtime import messages


class DevicePower(NamedTuple):
    """The rated power of a jax device, and its source."""

    watts: float
    source: str


_JOUPPI = "Jouppi et al. 2023, arXiv:2304.01433, the most measured"
_LANNELONGUE = "a core, the usual of Lannelongue et al. 2021 (Green Algorithms)"
# By the start of jax's `device_kind`; the longest match counts. The power of TPU v5e and
# later TPUs is not published.
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
    # A chip has 262 W and counts as two devices in jax.
    "TPU v3": DevicePower(131, _JOUPPI),
    "TPU v4": DevicePower(192, _JOUPPI),
    "cpu": DevicePower(12, _LANNELONGUE),
}
PHASES = ("opening", "compiling", "stepping", "evaluating")


class Energy(NamedTuple):
    """Assumptions of an estimate of energy and emissions."""

    watts: float = 0.0  # Power of one device; 0: from DEVICE_POWERS.
    share: float = 1.0  # Share of the rated power in use.
    pue: float = 1.0  # Watts of the building per watt of the devices.
    intensity: float = 0.0  # kg of CO2 equivalents per kWh; 0: unknown, no emissions.


DEFAULT_ENERGY = Energy()


_BOUNDS = {"watts": (0, 1e6), "share": (0, 1), "pue": (1, 10), "intensity": (0, 10)}


def parse_energy(where: str, entries: Mapping[str, float]) -> Energy:
    """Return the assumptions in config.run.energy; ValueError for invalid entries.

    where: name of the entries, "config.run.energy", for messages. entries: numbers by the
    names of the fields of Energy; missing fields have the defaults.
    """
    errors.check_all_known(where, entries, Energy._fields)
    energy = Energy(**entries)
    for name, (low, high) in _BOUNDS.items():
        value = getattr(energy, name)
        if type(value) not in (int, float) or not low <= value <= high:
            errors.refuse(f"{where}.{name}", f"be from {low:g} to {high:g}", value)
    return energy


class Devices(NamedTuple):
    """The kind (jax's `device_kind`) and number of the billed devices; CPUs count by cores."""

    kind: str
    count: int


class Stopwatch:
    """A clock of the seconds that a process spends in each phase of PHASES.

    The current phase is "opening" outside of `during`. began: start time, in UTC. stepped: number
    of training steps that did not compile a program; set by the user of the clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.began = messages.utc_now("microseconds")
        self._clock, self._phase, self._since = clock, PHASES[0], clock()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self.stepped = 0

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Count the duration of the context as a phase, one of PHASES."""
        outer_phase = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer_phase)

    def spent(self) -> dict[str, float]:
        """Return the seconds of each phase so far."""
        self._switch(self._phase)
        return dict(self._seconds)

    def _switch(self, phase: str) -> str:
        """Start a phase, one of PHASES; return the previous phase."""
        now, previous = self._clock(), self._phase
        self._seconds[previous] += now - self._since
        self._since, self._phase = now, phase
        return previous


def device_power(kind: str) -> DevicePower | None:
    """Return the rated power of a kind of device; None if the power is not published.

    kind: jax's `device_kind`, such as "NVIDIA H100 80GB HBM3".
    """
    matches = [name for name in DEVICE_POWERS if kind.startswith(name)]
    return DEVICE_POWERS[max(matches, key=len)] if matches else None


def estimate(
    seconds: float, devices: Devices, energy: Energy = DEFAULT_ENERGY
) -> dict[str, float | str | None]:
    """Return the cost of using devices for some seconds, with the assumptions, by name.

    "device_hours" is hours * count. "energy_kwh" is device_hours * watts * share * pue / 1000,
    None if the power is unknown. "kg_co2e" is energy_kwh * intensity, None if the intensity is
    unknown. The assumptions: "device" (kind), "devices" (count), "watts", "source" (of the
    watts: a citation, "given" if from `energy`, or "not published"), "share", "pue" and
    "intensity" (None if unknown).
    """
    rated = device_power(devices.kind)
    watts = energy.watts or (rated.watts if rated else None)
    hours = devices.count * seconds / 3600
    kwh = None if watts is None else hours * watts * energy.share * energy.pue / 1000
    has_emissions = kwh is not None and energy.intensity > 0
    source = "given" if energy.watts else rated.source if rated else "not published"
    return {
        "device_hours": hours,
        "energy_kwh": kwh,
        "kg_co2e": kwh * energy.intensity if has_emissions else None,
        "device": devices.kind,
        "devices": devices.count,
        "watts": watts,
        "source": source,
        "share": energy.share,
        "pue": energy.pue,
        "intensity": energy.intensity or None,
    }


def describe(cost: Mapping[str, Any]) -> str:
    """Return a cost as text for the log: "12 device hours, about 3.4 kWh, 1.2 kg CO2e".

    Energy and emissions are left out if unknown. cost: as `estimate` or `total` returns it.
    """
    line = f"{cost['device_hours']:.3g} device hours"
    if cost["energy_kwh"] is not None:
        line += f", about {cost['energy_kwh']:.3g} kWh"
    if cost["kg_co2e"] is not None:
        line += f", {cost['kg_co2e']:.3g} kg CO2e"
    return line


def of_start(
    at: str, spent: Mapping[str, float], devices: Devices, energy: Energy, step: int
) -> dict[str, Any]:
    """Return the cost of one start of a run, as in costs.json.

    Keys: "at", "step", "seconds" (by phase), and the keys of `estimate` for all seconds.
    at: time of the start, in UTC. spent: seconds by phase. energy: assumptions of the estimate.
    step: the last step so far.
    """
    seconds = {phase: round(value, 3) for phase, value in spent.items()}
    cost = estimate(sum(seconds.values()), devices, energy=energy)
    return {"at": at, "step": step, "seconds": seconds, **cost}


def total(starts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the total cost of all starts of a run by name, including steps lost to a kill.

    starts: as `of_start` returns them. Keys: "starts" (their number), "device_hours", "hours"
    (device hours by phase), "energy_kwh" and "kg_co2e"; the last two are None if unknown for any
    start.
    """
    starts, sums = list(starts), {}
    for key in ("device_hours", "energy_kwh", "kg_co2e"):
        values = [start[key] for start in starts]
        sums[key] = None if None in values else sum(values)

    def device_hours(phase: str) -> float:
        """Return the device hours of a phase over all starts."""
        seconds = (
            start["devices"] * start["seconds"].get(phase, 0.0) for start in starts
        )
        return sum(seconds) / 3600

    hours = {phase: device_hours(phase) for phase in PHASES}
    return {"starts": len(starts), **sums, "hours": hours}
