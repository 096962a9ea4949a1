"""`RunStore`: writes a run: records and decisions of its evaluations, and checkpoints.

Records are written before the checkpoint that relies on them. Checkpoints have checksums
of all record files. `resuming` reads what is written here.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from etils import epath

from jbias import run_spec
from jbias.models import trained
from jbias.runs import checkpoints, record_store, results
from jbias.runtime import files, heap, messages
from jbias.runtime import processes as teams
from jbias.training import decision_writer, monitoring, run_costs, run_log, schedule
from jbias.training.evaluator import Evaluation
from jbias.training.experiment import Experiment
from jbias.training.seed_axis import PackedStates

# The entries of config.run that an evaluation depends on.
_EVALUATION_ENTRIES = ("eval_batch", "eval_norm", "decisions")


NOT_EVALUATED = Evaluation(
    schedule.NEVER, records=(), valid={}, decisions={}, began=0.0
)


@dataclasses.dataclass
class LastGood:
    """The latest states of a stage, and their step."""

    experiment: Experiment
    states: PackedStates
    step: int | None  # None while the metrics of the latest steps are read.


@dataclasses.dataclass
class RunStore:
    """The files of a run in its workdir; only process 0 reads and writes files.

    checkpoints: None if another process trains the run. monitor: metrics of all seeds, a part of
    each checkpoint. check_lock: called before writing; OSError if the workdir is missing or belongs
    to another process. best: highest validation accuracy by member's name in the current stage.
    evaluation: the latest evaluation in the current stage. left: the latest step whose evaluation
    is left to another process, or to the next start.
    """

    spec: run_spec.RunSpec
    workdir: epath.Path
    _: dataclasses.KW_ONLY
    group: teams.ProcessGroup
    checkpoints: checkpoints.CheckpointStore | None
    records: record_store.RecordStore
    decisions: decision_writer.DecisionWriter
    costs: run_costs.RunCosts
    monitor: monitoring.Monitor
    log: run_log.RunLog
    check_lock: Callable[[], None]
    best: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluation: Evaluation = NOT_EVALUATED
    left: int = schedule.NEVER

    @property
    def progress(self) -> schedule.Progress:
        """The progress of the run so far, for `schedule.due`."""
        best, valid = self.best, self.evaluation.valid
        return schedule.Progress(
            evaluated=self.evaluation.step,
            left=self.left,
            saved=self.checkpoints.step,
            has_records=self.checkpoints.complete,
            is_best=any(value > best.get(name, -1.0) for name, value in valid.items()),
        )

    def write_evaluation(self, evaluation: Evaluation) -> None:
        """Write the records and decisions of an evaluation, and log them; reset the monitor.

        Intact records of an earlier evaluation of the step stay, and become those of the
        evaluation. OSError if the disk fails, or if the workdir belongs to another process.
        """
        with self.log.saving():
            step = evaluation.step
            new_sums = self.decisions.write(step, evaluation.decisions)
            records = self.records.write(step, evaluation.records)
            self.records.sums |= new_sums
            self.records.seal()
            self.log.observers.send_records(step, records)
            # Decisions are large, and are not needed again.
            self.evaluation = evaluation._replace(records=records, decisions={})
            self.monitor.reset()
            heap.trim()
            seconds = time.monotonic() - evaluation.began
            self.log.evaluation(step, records, valid=evaluation.valid, seconds=seconds)

    def save(
        self,
        experiment: Experiment,
        states: PackedStates,
        step: int,
        *,
        without_evaluation: bool = False,
    ) -> None:
        """Save a checkpoint of a step, with the records of the step's evaluation, if any.

        Also updates `best` from that evaluation, and writes the run's cost.

        states: the states of all members (all seeds of all branches) after `step`.
        without_evaluation: the step's evaluation is due, and is left to another process or to the
        next start; resets the monitor. OSError if the disk fails, or if the workdir is missing or
        belongs to another process.
        """
        with self.log.saving():
            self._save(experiment, states, step, without_evaluation=without_evaluation)

    def _save(
        self,
        experiment: Experiment,
        states: PackedStates,
        step: int,
        *,
        without_evaluation: bool,
    ) -> None:
        """Save a checkpoint, see `save`."""
        stage = experiment.stage
        self.log.failures(self.monitor.flush(), stage.rollback)
        self.check_lock()
        is_evaluated, valid = step == self.evaluation.step, self.evaluation.valid
        if is_evaluated:
            for name, value in valid.items():
                self.best[name] = max(value, self.best.get(name, -1.0))
        run = self.spec.config["run"]
        info = {
            "step": step,
            "stage": stage.number,
            "watch": self.monitor.state(),
            "best": self.best,
            "sums": self.records.sums_until(step),
            "records": results.dumps(self.evaluation.records) if is_evaluated else "",
            "left": None,
        }
        if not experiment.has_statistics(step):
            info[trained.OUTDATED] = True
        accuracies = None
        if without_evaluation:
            info["left"] = {key: run[key] for key in _EVALUATION_ENTRIES if key in run}
            accuracies = {}
        elif is_evaluated and valid:
            accuracies = {
                f"{stage.number}/{name}": value for name, value in valid.items()
            }
        states_of_members = experiment.placed.layout.unpack(states)
        self.checkpoints.save(step, states_of_members, info, accuracies)
        self.log.saved(step)
        if without_evaluation:
            self.left = step
            self.monitor.reset()
        self.costs.write(self.checkpoints.step)

    def start_stage(self) -> None:
        """Forget the best accuracies and the evaluation of the previous stage."""
        self.best, self.evaluation = {}, NOT_EVALUATED

    @contextlib.contextmanager
    def saving_on_data_error(self, latest: LastGood) -> Iterator[None]:
        """Save the latest states if the context ends with a ValueError, as for a damaged image.

        The error is raised again as a ValueError with instructions for the user. Nothing is saved
        if the step is saved already or the stage has taken no step. A `UserCodeError` is raised
        unchanged, and nothing is saved.
        """
        try:
            yield
        except messages.UserCodeError:
            raise  # The error is not about an image.
        except ValueError as error:
            experiment, step = latest.experiment, latest.step
            if step > max(self.checkpoints.step, experiment.stage.first):
                self.save(experiment, latest.states, step)
            saved = f"step {step} is saved" if step == self.checkpoints.step else ""
            self.checkpoints.wait()
            # Wait for all processes: the first one to exit kills its peers.
            self.group.all_gather("the end of a save", None)
            raise ValueError(
                f"{error}; {saved or 'no step was taken'}: restore the file as it was when the "
                "run began and run the same command to continue. A repair that changes the "
                "file's length changes the data set and needs a new --workdir. `jbias "
                "prepare check` lists all damaged files"
            ) from error

    @contextlib.contextmanager
    def saving_on_crash(
        self, experiment: Experiment, states: PackedStates, step: int
    ) -> Iterator[LastGood]:
        """Save the latest states if the context ends with an unexpected error.

        Yields a `LastGood`, in which the training loop stores its latest states and step. The
        error is raised again, with a note that says whether the states were saved. With several
        processes, and after a ValueError whose step is saved already, nothing is saved and there
        is no note. Earlier checkpoints are not deleted.
        """
        latest = LastGood(experiment, states, step)
        try:
            yield latest
        except Exception as error:
            # `saving_on_data_error` has saved the step and says so in the message.
            is_data_error = isinstance(error, ValueError)
            is_saved = is_data_error and latest.step == self.checkpoints.step
            # With several processes all would have to save together.
            if self.group.count == 1 and not is_saved:
                note = self._save_latest(latest)
                if note:
                    error.add_note(note)
            raise

    def _save_latest(self, latest: LastGood) -> str:
        """Save the latest states; return a note that says which step is saved.

        If saving failed, the note gives the reason. The note is "" if there was no new step to
        save and the run has no checkpoint. Raises no errors.
        """
        try:
            leaves = jax.tree.leaves(latest.states)
            leaves = [x for x in leaves if isinstance(x, jax.Array)]
            if self.checkpoints.saving:
                raise ValueError("saving failed")
            if latest.step is None or any(x.is_deleted() for x in leaves):
                raise ValueError("the error came during a step")
            jax.block_until_ready(leaves)
            experiment = latest.experiment
            if latest.step > max(self.checkpoints.step, experiment.stage.first):
                self.save(experiment, latest.states, latest.step)
            self.checkpoints.wait()
        # Report the error that ended the run, even if saving fails, too.
        except Exception as save_error:  # noqa: BLE001
            reason = " ".join(str(save_error.__cause__ or save_error).split())[:200]
            with contextlib.suppress(Exception):
                self.checkpoints.wait()
            saved = "the folder of checkpoints cannot be read now"
            with contextlib.suppress(OSError):
                last = checkpoints.steps(self.workdir / "checkpoints")[-1:]
                saved = "there is no checkpoint"
                if last:
                    saved = f"the latest checkpoint is of step {last[0]}"
            return f"the latest step could not be saved ({reason}); {saved}"
        if self.checkpoints.step < 0:
            return ""
        step = self.checkpoints.step
        return f"step {step} is saved; run the same command to continue"

    def end(self, outcome: str) -> dict[str, Any]:
        """Write the files `done` and costs.json of a run that has ended; return its total cost.

        Process 0 only. The run and each of its branches get a file `done` with the text `outcome`,
        "finished" or "diverged". The records of a run on a local disk are also written to Parquet
        files (`results.compact`); errors of this step are ignored.

        The result is the dict of `costs.total`: the number of starts, device hours (in total and by
        phase), energy in kWh and kg of CO2e. OSError if a file cannot be written, or if the workdir
        is missing or belongs to another process; ValueError if costs.json is damaged.
        """
        self.check_lock()
        branches = self.spec.branches
        for folder in (*(branch.folder for branch in branches if branch.folder), ""):
            files.save(self.workdir / folder / "done", outcome + "\n")
        if not files.is_remote(self.workdir):
            # An optional copy of the records. A damaged line is reported when it is read.
            with contextlib.suppress(OSError, ValueError):
                results.compact(self.workdir)
        return self.costs.write(self.checkpoints.step)
