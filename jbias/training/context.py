"""`RunContext`: the objects that training, evaluation and saving of one run share."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import jax
from etils import epath
from jaxtyping import PyTree

from jbias import run_spec, seals
from jbias.data import splits
from jbias.runs import checkpoints, costs, evaluations, loggers, status
from jbias.runtime import console
from jbias.runtime import processes as teams
from jbias.training import divergence
from jbias.training.stages import Stage


class Evaluation(NamedTuple):
    """The result of one step's evaluation."""

    step: int
    records: Sequence  # results.Record
    valid: Mapping[str, float]  # Validation accuracies, fractions, by member's name.


NOT_EVALUATED = Evaluation(-1, (), {})


@dataclasses.dataclass
class RunContext:
    """The context of a run in progress.

    log: logs a line. devices: the mesh, with axes "seed" and "data". tests: the sets to
    evaluate on, the validation set first. records: the run's record files. monitor: sums of
    metrics, and diverged seeds. best: highest validation accuracy by member's name. note: end
    of the progress line. profiled: True once the profile is written. meter: seconds per
    phase. team: the processes that train together.
    """

    spec: run_spec.RunSpec
    workdir: epath.Path
    log: Callable[[str], None]
    devices: jax.sharding.Mesh
    tests: list[splits.TestSet]
    stages: list[Stage]
    # None if another process trains the run.
    checkpoints: checkpoints.CheckpointStore | None
    records: evaluations.RecordStore
    monitor: divergence.Monitor
    seal: seals.Seal  # Seal of the run's checkpoints.
    initial_nets: list | None = None  # Nets to start from, one per seed.
    best: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluation: Evaluation = NOT_EVALUATED  # The latest evaluation.
    pending: int = -1  # The latest step whose evaluation is left to another process.
    progress: console.Progress | None = None  # Progress of the current stage.
    note: str = ""
    profiled: bool = False
    stepped: int = 0  # Number of steps of this start that did not compile a program.
    meter: costs.Stopwatch = dataclasses.field(default_factory=costs.Stopwatch)
    team: teams.ProcessGroup = teams.ALONE
    stop: str = ""  # Name of the stop signal that this process has received.
    halted: str = ""  # Name of the stop signal for which all processes stop.
    # The monitor's resets, counts and sums when the loggers last got means.
    last_progress: tuple[int, dict, dict] = (0, {}, {})
    # Called before writing: OSError if the workdir is missing or belongs to another process.
    check_lock: Callable[[], None] = lambda: None

    def __post_init__(self):
        self.life = status.Heartbeat(self.workdir, self.log)
        self.writers = loggers.Loggers(self.log)
        self.config, self.name = self.spec.config, self.spec.name
        self.branches, self.members = self.spec.branches, self.spec.members
        self.seeds = tuple(self.config["seeds"])
        # True if another process evaluates.
        self.elsewhere = self.config["run"]["evaluate"] == "elsewhere"

    def state_shapes(self, stage: int) -> tuple[PyTree, ...]:
        """Return the shapes of the states in a stage, one tree per member.

        `checkpoints.read` needs these shapes. stage: index of the stage.
        """
        return self.stages[stage].state_shapes

    def stop_requested(self, step: int | None = None) -> bool:
        """Return True if all processes must stop now; all processes must call this together.

        step: the current step, to react also to preemption notices of JAX's own service;
          None to react to signals only.
        """
        self.halted = self.halted or self.team.agree_to_stop(self.stop, step)
        return bool(self.halted)

    def flush(self) -> None:
        """Wait for all steps taken so far, and log the seeds that diverged in them."""
        self.log_divergences(self.monitor.flush())

    def log_divergences(self, events: list[divergence.Divergence]) -> None:
        """Log a warning for each failure: the seed, the step, the cause and the consequence.

        The log event is "rolled_back" or "diverged".
        """
        outcome = "the other seeds continue"
        if self.monitor.all_diverged:
            outcome = "no other seed is left"
        for seed, step, cause, rolled_back in events:
            consequence = f"it stays as it was at step {step - 1}; {outcome}"
            if rolled_back:
                target, scale = self.rollback(seed, step)
                consequence = (
                    f"rolled back to step {target}, its learning rate is now multiplied "
                    f"by {scale:g}"
                )
            line = f"seed {seed} diverged: {cause} not finite at step {step}"
            line += f"; {consequence}"
            event = "rolled_back" if rolled_back else "diverged"
            log_event = console.LogEvent(line, event, step=step, seed=str(seed))
            self.log(log_event.at("warning"))

    def rollback(self, seed: Hashable, step: int) -> tuple[int, float]:
        """Return the step that a seed returned to after a failed step, and its rate factor.

        seed: name of a member that was rolled back. step: the failed step. The factor
        multiplies the learning rate of all later steps: config.rollback.factor to the power
        of the seed's number of rollbacks in the stage until `step`.
        """
        stage = next(s for s in self.stages if s.first < step <= s.last)
        steps = self.monitor.rolled_back[seed]
        num_rollbacks = sum(stage.first < failed_step <= step for failed_step in steps)
        return stage.rollback.target(step), stage.rollback.factor**num_rollbacks
