"""`Observers`: tools that watch a run: the heartbeat file progress.json, and loggers."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from etils import epath

from jbias import run_spec
from jbias.runs import costs, loggers, results, status
from jbias.runtime import console, messages
from jbias.runtime import processes as teams
from jbias.training import monitoring, scalars


class Observers:
    """Writes the phase, the speed and the numbers of a run for tools; only in process 0."""

    def __init__(
        self,
        spec: run_spec.RunSpec,
        workdir: epath.Path,
        say: messages.Say,
        *,
        group: teams.ProcessGroup,
        billed: costs.Devices,
        total: int,
        monitor: monitoring.Monitor,
        check_lock: Callable[[], None],
    ):
        """Create the observers of a run.

        billed: the devices that the run uses. total: the run's last step. monitor: metrics of all
        seeds. check_lock: raises an OSError if another process owns the workdir.
        """
        self._spec, self._workdir, self._group = spec, workdir, group
        self._billed, self._total, self._check_lock = billed, total, check_lock
        self._monitor = monitor
        self._heartbeat = status.Heartbeat(workdir, say)
        self._loggers = loggers.Loggers(say)
        self._recent_means = scalars.RecentMeans(monitor, spec.members)

    def open_loggers(self, step: int, *, alone: bool = True) -> None:
        """Open the loggers of a run that starts or resumes at a step.

        alone: whether no other process writes to these loggers; False in a process that only
        evaluates the run.
        """
        if not self._group.is_main:
            return
        run = loggers.RunInfo(
            workdir=self._workdir,
            name=self._spec.name,
            config=self._spec.config,
            step=step,
            alone=alone,
            branches={branch.name: branch.config for branch in self._spec.branches},
        )
        self._loggers.begin(loggers.configured(self._spec.run.write), run)

    def close_loggers(self) -> None:
        """Close all loggers."""
        self._loggers.close()

    def set_phase(self, phase: str, step: int) -> None:
        """Write the run's current phase and step to the heartbeat file (progress.json).

        Errors of the disk are ignored. phase: such as "stepping".
        """
        self._write_heartbeat(
            phase,
            step,
            total=self._total,
            devices=f"{self._billed.count} x {self._billed.kind}",
            log_seconds=self._spec.run.log_seconds,
        )

    def report_speed(self, speed: console.Speed) -> None:
        """Write progress and speed to the heartbeat; send speed and recent means to the loggers.

        The loggers get the speed as "speed/steps" and "speed/images" (per second) of the mean
        over seeds.
        """
        self._write_heartbeat(
            "stepping",
            speed.done,
            rate=round(speed.rate, 4),
            images=round(speed.images, 4),
            eta_seconds=round(speed.seconds_left, 4),
        )
        rates = {"speed/steps": speed.rate, "speed/images": speed.images}
        numbers = scalars.with_means(self._recent_means())
        numbers[loggers.MEAN] = rates | numbers.get(loggers.MEAN, {})
        self._loggers.scalars(speed.done, numbers)

    def send_records(self, step: int, records: Iterable[results.Record]) -> None:
        """Send the values of an evaluation to the loggers: per seed, and means over seeds."""
        numbers = scalars.of_records(records, self._spec.branches)
        self._loggers.scalars(step, numbers)

    def _write_heartbeat(self, phase: str, step: int, **fields: Any) -> None:
        """Update the heartbeat file in process 0.

        phase: current activity. fields: further fields of `status.Heartbeat.update`.
        """
        if not self._group.is_main:
            return
        diverged = {str(k): v for k, v in self._monitor.diverged.items()}
        # If another process owns the workdir now, the next save reports that.
        with contextlib.suppress(OSError):
            self._check_lock()
            self._heartbeat.update(phase, step=step, diverged=diverged, **fields)
