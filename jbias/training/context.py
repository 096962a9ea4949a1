"""What stays the same during a run, and the few things that its loop changes."""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from jbias import run_spec
from jbias.data import splits
from jbias.runs import costs, loggers, results, status, workdirs
from jbias.runtime import console
from jbias.runtime import processes as teams
from jbias.training import divergence
from jbias.training.stages import Stage


@dataclasses.dataclass
class RunContext:
    """A run under way."""

    spec: run_spec.RunSpec
    workdir: epath.Path
    log: Callable[[str], None]
    devices: jax.sharding.Mesh
    tests: list[splits.TestSet]
    stages: list[Stage]
    manager: ocp.CheckpointManager | None  # None where another process trains.
    monitor: divergence.Monitor
    initial_nets: list | None = None  # Nets to start from, one a seed.
    best: dict[str, float] = dataclasses.field(default_factory=dict)
    records: list[results.Record] = dataclasses.field(default_factory=list)
    evaluated: int = -1  # The step that `records` and `valid` belong to.
    valid: dict[str, float] = dataclasses.field(default_factory=dict)  # By entry.
    # Of records and decisions, by file, and of what says what the run is.
    sums: dict[str, Any] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    pending: int = -1  # The latest step whose evaluation is left to another process.
    saved: int = -1  # The latest step in the checkpoints,
    complete: bool = True  # and whether its evaluation, if one was due, is in there.
    saving: bool = False  # Whether a save has begun and not returned.
    note: str = ""
    profiled: bool = False
    began: str = dataclasses.field(
        default_factory=workdirs.utc_now
    )  # This start of it.
    meter: costs.Stopwatch = dataclasses.field(default_factory=costs.Stopwatch)
    team: teams.ProcessGroup = dataclasses.field(default_factory=teams.ProcessGroup)
    stop: str = ""  # The name of the signal that has come to this process,
    halted: str = ""  # and of the one that all processes stop for.
    # The monitor's resets, counts and sums as they were last shown.
    last_progress: tuple[int, dict, dict] = (0, {}, {})
    # OSError where the workdir is gone or another's: called before it is written to.
    check_lock: Callable[[], None] = lambda: None

    def __post_init__(self):
        self.life = status.Heartbeat(self.workdir, self.log)
        self.writers = loggers.Loggers(self.log)

        self.config, self.name = self.spec.config, self.spec.name
        self.branches, self.members = self.spec.branches, self.spec.members
        self.seeds = tuple(self.config["seeds"])

    @property
    def elsewhere(self) -> bool:
        """Whether another process evaluates."""
        return self.config["run"]["evaluate"] == "elsewhere"

    def stop_requested(self) -> bool:
        """Whether all processes stop here; each asks at the same places."""
        if not self.halted:
            self.halted = next(filter(None, self.team.gather_previous(self.stop)), "")
        return bool(self.halted)

    def check_preemption(self, step: int) -> None:
        """Asks to stop where jax's own service has told of a preemption."""
        if self.team.preempted(step):
            self.stop = self.stop or "a preemption notice"

    def flush(self) -> None:
        """Waits for all steps taken so far, and tells which seeds they ended."""
        self.log_divergences(self.monitor.flush())

    def log_divergences(self, events: list[divergence.Divergence]) -> None:
        """Says of seeds that they have just diverged."""
        others = "no other is left" if self.monitor.all_diverged else "the others go on"
        for seed, step, what, rolled_back in events:
            then = f"it stays as it was at step {step - 1}; {others}"
            if rolled_back:
                to, scale = self.rollback(seed, step)
                then = f"rolled back to step {to}, its rate is {scale:g} of what it was"
            line = f"seed {seed} diverged: {what} not finite at step {step}; {then}"
            event = "rolled_back" if rolled_back else "diverged"
            told = console.LogEvent(line, event, step=step, seed=str(seed))
            self.log(told.at("warning"))

    def rollback(self, seed: Hashable, step: int) -> tuple[int, float]:
        """Where a seed's failed step sent it, and by what its rate is multiplied since."""
        stage = next(s for s in self.stages if s.first < step <= s.last)
        steps = self.monitor.rolled_back[seed]
        times = sum(stage.first < one <= step for one in steps)
        return stage.rollback.target(step), stage.rollback.factor**times
