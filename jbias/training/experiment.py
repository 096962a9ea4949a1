"""`Experiment`: a stage as the training loop sees it: start, take steps, advance, evaluate."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import PyTree

from jbias.runtime import processes
from jbias.training import monitoring, placement, run_log, schedule, stages
from jbias.training.averaging import averages
from jbias.training.evaluator import Evaluation, Evaluator
from jbias.training.seed_axis import PackedStates
from jbias.training.stopping import AgreedStop
from jbias.training.tuning import profiling


class NextSteps(NamedTuple):
    """Consecutive steps to dispatch together."""

    first: int  # The step before them.
    steps: placement.Steps  # Their data and compile-time arguments.
    count: int
    is_new: bool  # Their program is not compiled yet.


class LatestStates(Protocol):
    """An object with the latest states of a stage, such as `store.LastGood`."""

    states: PackedStates


class Experiment:
    """A stage on its devices, with all processes of the run, and the evaluation of its networks.

    plan: when the stage evaluates and saves. It logs its progress, and its monitor reads the
    metrics of its steps.
    """

    def __init__(
        self,
        placed: placement.PlacedStage,
        plan: schedule.Schedule,
        *,
        evaluator: Evaluator,
        group: processes.ProcessGroup,
        stop: AgreedStop,
        log: run_log.RunLog,
        monitor: monitoring.Monitor,
        steps_per_dispatch: int,
        profiler: profiling.Profiler | None,
    ):
        """Create the experiment of a stage; profiler: None unless steps are to be profiled.

        The stages of a run share one profiler.
        """
        self.placed, self.plan = placed, plan
        self._evaluator, self._monitor = evaluator, monitor
        self._group, self._stop, self._log = group, stop, log
        self._steps_per_dispatch, self._profiler = steps_per_dispatch, profiler
        self._compiled: set = set()  # The programs that were dispatched.
        self._has_data = False  # True after the first `take`.
        self._recomputed_step: int | None = None  # See `recompute_statistics`.

    @property
    def stage(self) -> stages.Stage:
        """The stage that is trained."""
        return self.placed.stage

    def start(self, nets: Sequence[Mapping[str, PyTree]] | None) -> PackedStates:
        """Return the initial states of all members, equal in all processes.

        nets: one network per member to start from; None: weights are drawn.
        """
        return self.placed.start(nets, self._group.broadcast_tree)

    @property
    def all_diverged(self) -> bool:
        """True if every seed diverged."""
        return self._monitor.all_diverged

    def showing_progress(self, step: int) -> contextlib.AbstractContextManager:
        """Return a context that shows the run's progress; `step` is the current step."""
        return self._log.stepping(self.stage.order, step)

    def take(self, step: int, until: int) -> NextSteps | None:
        """Return the next steps, from `step` on; None if a stop signal arrived before their data.

        The steps end at `until`, at the next change of their program or of the rows that seeds
        share, and are at most config.run.steps_per_dispatch. ValueError if an image cannot be read,
        in all processes.
        """
        if not self._wait_for_data(step):
            return None
        self._has_data = True
        count = self.placed.count_steps(step, until, self._steps_per_dispatch)
        # Members that skip steps would have other programs in other processes.
        frozen = self._monitor.diverged if self._group.count == 1 else ()
        # A read error in one process stops all of them.
        streams = self.stage.feed.streams
        with self._group.raise_together("the images of a step", streams):
            steps = self.placed.take(step, count, frozen)
        is_new = steps.program not in self._compiled
        return NextSteps(step, steps, count, is_new=is_new)

    def advance(
        self, states: PackedStates, following: NextSteps
    ) -> tuple[PackedStates, list[PackedStates]]:
        """Return (states after the steps, metrics of each step); `states` are donated.

        The first steps whose program is compiled already are profiled, if asked for.
        """
        self._compiled.add(following.steps.program)
        profiler, is_new = self._profiler, following.is_new
        is_profiled = profiler and not (profiler.is_done or is_new)
        log = self._log
        with log.compiling(following.first) if is_new else contextlib.nullcontext():
            if is_profiled:
                return profiler.advance(self.placed, states, following.steps)
            return self.placed.advance(states, following.steps)

    def read_metrics(self, metrics: list[PackedStates], done: NextSteps) -> None:
        """Queue the metrics of each step, read those of older steps, and log seeds that failed."""
        split = self.placed.layout.split
        for step, metrics_of_step in enumerate(metrics, done.first + 1):
            failures = self._monitor.add(step, metrics_of_step, split)
            self._log.failures(failures, self.stage.rollback)

    def show_progress(self, done: NextSteps) -> None:
        """Show that steps are done; before an evaluation, also log all seeds that failed."""
        step = done.first + done.count
        self._log.progress(step, done.count, is_new=done.is_new)
        if self.plan.is_evaluation(step):
            self._log.failures(self._monitor.flush(), self.stage.rollback)

    def decide_averages(self, states: PackedStates, step: int) -> PackedStates | None:
        """Return the states after the decisions of SWAD at an evaluation; None after a stop.

        States without such an average, and states whose decisions at this step are made already,
        are returned unchanged; otherwise `states` are donated. A loss that is NaN or infinite
        counts as the largest float32.
        """
        average, placed = self.stage.average, self.placed
        if average is None or average.valley is None:
            return states
        number = placed.evaluation_number(step)
        stored = placed.losses(states)
        if not any(
            averages.is_undecided(losses, number, average.valley) for losses in stored
        ):
            return states
        losses = self._evaluator.validation_losses(placed, states)
        if losses is None:
            return None
        largest = np.finfo(np.float32).max
        plans = [
            averages.plan(
                stored_losses,
                loss if np.isfinite(loss) else largest,
                number,
                options=average.valley,
            )
            for stored_losses, loss in zip(stored, losses, strict=True)
        ]
        states = placed.carry_out_plans(states, plans)
        self._log_valleys(stored, placed.losses(states), step)
        return states

    def _log_valleys(
        self, old: Sequence[np.ndarray], new: Sequence[np.ndarray], step: int
    ) -> None:
        """Log which seeds' valleys of SWAD begin or end at an evaluation.

        old, new: losses that the averages stored before and after the decisions, by member.
        """
        average, is_last = self.stage.average, step == self.stage.last
        for member, old_losses, new_losses in zip(
            self.stage.members, old, new, strict=True
        ):
            old_valley, new_valley = (
                averages.find_valley(x, options=average.valley, steps=average.steps)
                for x in (old_losses, new_losses)
            )
            is_measured = not np.array_equal(old_losses, new_losses, equal_nan=True)
            if new_valley is None or not is_measured:  # A seed that diverged.
                continue
            text = averages.describe_change(old_valley, new_valley, is_last=is_last)
            if text:
                self._log.say(f"step {step}: seed {member.name}: {text}")

    def recompute_statistics(self, latest: LatestStates, step: int) -> bool:
        """Recompute the statistics of averages in the states, unless done after this step.

        Return False if a stop was requested while images are read from files, else True; a state
        that another process evaluates always gets its statistics. Nothing is done without an
        average whose statistics are recomputed. latest: its `states` are replaced after each batch.
        ValueError if an image cannot be read, in all processes.
        """
        if self.has_statistics(step):
            return True
        batches = self.placed.recompute_statistics(latest.states)
        streams = self.stage.feed.streams
        can_stop = streams and not self.plan.evaluates_elsewhere
        for number in range(self.stage.average.batches):
            if can_stop:
                data_step = self.placed.statistics_step(number)
                if self._stop.is_agreed() or not self._wait_for_data(data_step):
                    return False
            with self._group.raise_together("the images of a batch", streams):
                latest.states = next(batches)
        self._recomputed_step = step
        return True

    def has_statistics(self, step: int) -> bool:
        """Return True unless the statistics of averages are to be recomputed after this step."""
        average = self.stage.average
        is_recomputing = average is not None and average.batches > 0
        return not is_recomputing or self._recomputed_step == step

    def evaluate(self, states: PackedStates, step: int) -> Evaluation | None:
        """Return the evaluation of all members after `step`; None if a stop was requested."""
        with self._log.evaluating(step):
            return self._evaluator.evaluate(self.placed, states, step)

    def close(self) -> None:
        """Stop the readers of streamed data sets."""
        self.stage.feed.close()

    def _wait_for_data(self, step: int) -> bool:
        """Wait for the data of a step; return False if a stop signal arrived before the data.

        True without waiting if the stage's data is in memory (not `feed.streams`). If each process
        reads a share of the data, all wait for the slowest, and stop if any got a stop signal,
        which is then the agreed stop.
        """
        feed, stop, is_alone = self.stage.feed, self._stop, self._group.count == 1
        if not feed.streams or is_alone and feed.wait(step, lambda: True):
            return True
        with self._log.waiting(is_first=not self._has_data):
            if is_alone:
                return feed.wait(step, lambda: bool(stop.received))
            while True:

                def wait_a_second(until: float = time.monotonic() + 1) -> Any:
                    """Return [whether the data are ready, the signal received or ""]."""
                    is_ready = feed.wait(step, lambda: time.monotonic() > until)
                    return [is_ready, stop.received]

                answers = self._group.gather_results(
                    "the data of a step", wait_a_second
                )
                if stop.agree_on(signal for _, signal in answers):
                    return False
                if all(is_ready for is_ready, _ in answers):
                    return True
