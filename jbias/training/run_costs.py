"""`RunCosts`: the measured cost of a run's starts, in costs.json."""

from typing import Any

import jax
from etils import epath

from jbias import run_spec
from jbias.runs import costs, workdirs
from jbias.runtime import processes as teams


class RunCosts:
    """Writes the cost of a run.

    meter: the seconds of this start, by phase. billed: the devices that the run uses.
    """

    def __init__(
        self,
        spec: run_spec.RunSpec,
        workdir: epath.Path,
        *,
        group: teams.ProcessGroup,
        devices: jax.sharding.Mesh,
        meter: costs.Stopwatch,
    ):
        self.meter = meter
        self.billed = workdirs.billed_devices(devices, group.cores)
        self._spec, self._workdir = spec, workdir
        self._group, self._devices = group, devices

    def write(self, step: int) -> dict[str, Any]:
        """Write the cost of this start of the run so far; return the total of all starts.

        The total is as `costs.total` returns it. Processes other than 0 return {}. step: the latest
        saved step.
        """
        if not self._group.is_main:
            return {}
        meter = self.meter
        start = costs.of_start(
            meter.began,
            meter.spent(),
            devices=self.billed,
            energy=costs.parse_energy("config.run.energy", self._spec.run.energy),
            step=max(step, 0),
        )
        start["stepped"] = meter.stepped
        memory_stats = self._devices.local_devices[0].memory_stats() or {}
        if "peak_bytes_in_use" in memory_stats:  # Missing on a CPU.
            start["peak_gib"] = memory_stats["peak_bytes_in_use"] / 2**30
        return workdirs.record_cost(self._workdir, start)
