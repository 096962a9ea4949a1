"""`RunLog`: the log lines and the progress of a run, and the seconds of each phase."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from jbias import config as jc
from jbias import run_spec
from jbias.runs import costs, results
from jbias.runtime import console, messages
from jbias.training import divergence, monitoring, observers, samplers, scalars


class RunLog:
    """The log of a run, and the seconds of each phase.

    say: logs a line. meter: counts the seconds that the run spends in each phase. total: the run's
    last step.
    """

    def __init__(
        self,
        spec: run_spec.RunSpec,
        say: messages.Say,
        *,
        total: int,
        monitor: monitoring.Monitor,
        meter: costs.Stopwatch,
        observers: observers.Observers,
    ):
        self.say, self.meter, self.observers = say, meter, observers
        self._spec, self._total, self._monitor = spec, total, monitor
        self._bar: console.Progress | None = None  # None outside of `stepping`.
        self._note = ""  # The end of the progress line.

    def start(self, step: int) -> None:
        """Log that the run begins at a step, open its loggers, and set its phase to "opening"."""
        event = console.LogEvent(
            f"{self._spec.name} begins at step {step}",
            "start",
            run=self._spec.name,
            seeds=tuple(self._spec.config["seeds"]),
            total=self._total,
            step=step,
        )
        self.say(event.at("info", quiet=True))
        self.observers.open_loggers(step)
        self.observers.set_phase("opening", step)

    def resume(self, step: int) -> None:
        """Log that the run resumes at a step."""
        line = f"resuming {self._spec.name} at step {step}/{self._total}"
        self.say(console.LogEvent(line, "resume", step=step, total=self._total))

    def end(
        self, outcome: str, step: int, *, workdir: epath.Path, cost: Mapping[str, Any]
    ) -> None:
        """Log the end of the run, and set its phase to the outcome.

        outcome: "finished" or "diverged". cost: as `costs.total` returns it.
        """
        cost_text = costs.describe(cost)
        line = f"{outcome}: {self._spec.name} in {workdir}, {cost_text}"
        self.say(console.LogEvent(line, "finished", step=step, fate=outcome))
        self.observers.set_phase(outcome, step)

    @contextlib.contextmanager
    def stepping(self, order: samplers.Sampler, step: int) -> Iterator[None]:
        """Show the run's progress inside the context, in which a stage is trained from `step`.

        The time inside the context counts as the phase "stepping". order: sampler of the
        training set.
        """
        run = self._spec.run
        self._bar = console.Progress(
            self.say,
            total=self._total,
            done=step,
            steps_per_epoch=order.steps_per_epoch,
            images_per_step=order.batch * len(self._spec.members),
            seconds=run.log_seconds,
            beat=self.observers.report_speed,
            plain=run.log == "json",
        )
        try:
            with contextlib.closing(self._bar), self.meter.during("stepping"):
                yield
        finally:
            self._bar = None

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Count the time inside the context as evaluation; leave it out of the training rate."""
        idle = self._bar.idle() if self._bar else contextlib.nullcontext()
        with idle, self.meter.during("evaluating"):
            yield

    @contextlib.contextmanager
    def evaluating(self, step: int) -> Iterator[None]:
        """Show the phase "evaluating" inside the context; count its duration as `saving` does."""
        with self.saving():
            self.observers.set_phase("evaluating", step)
            yield
            self.observers.set_phase("stepping", step)

    @contextlib.contextmanager
    def waiting(self, is_first: bool) -> Iterator[None]:
        """Leave the time inside the context out of the training rate, and say so, if `is_first`.

        is_first: whether these are the first data since the start.
        """
        if not is_first:
            yield
            return
        self.say("reading the first window of the training set ...")
        with self._bar.idle():
            yield

    @contextlib.contextmanager
    def compiling(self, step: int) -> Iterator[None]:
        """Log that the step is being compiled; after the context, log the seconds spent in it.

        The context contains the first steps after a start, which compile the step.
        """
        start, num_branches = time.monotonic(), len(self._spec.branches)
        name = jc.algorithm_name(self._spec.config)
        seeds = ", ".join(map(str, self._spec.config["seeds"]))
        if num_branches > 1:
            seeds += f", {num_branches} branches of each"
        line = f"compiling {name} for seeds {seeds} ..."
        self.say(console.LogEvent(line, "compile", step=step))
        self.observers.set_phase("compiling", step)
        with self.meter.during("compiling"):
            yield
        self._bar.restart()
        seconds = time.monotonic() - start
        line = f"compiled, first steps done in {seconds:.1f} s"
        event = console.LogEvent(line, "compiled", step=step, seconds=round(seconds, 3))
        self.say(event)
        self.observers.set_phase("stepping", step)

    def progress(self, step: int, count: int, *, is_new: bool) -> None:
        """Show that `count` steps until `step` are done.

        is_new: the steps compiled a program, so they do not count for the rate.
        """
        self.meter.stepped += 0 if is_new else count
        loss = self._monitor.latest
        note = self._note if loss is None else f"loss {loss:.3f}{self._note}"
        self._bar.update(step, note, counted=not is_new)

    def failures(
        self,
        failures: Iterable[monitoring.Divergence],
        rollback: divergence.Rollback | None,
    ) -> None:
        """Log a warning for each failure: the seed, the step, the cause and the consequence.

        The log event is "rolled_back" or "diverged". rollback: options of the current stage.
        """
        outcome = "the other seeds continue"
        if self._monitor.all_diverged:
            outcome = "no other seed is left"
        for seed, step, cause, rolled_back in failures:
            consequence = f"it stays as it was at step {step - 1}; {outcome}"
            if rolled_back:
                target, scale = self._monitor.rollback(seed, step, rollback)
                consequence = (
                    f"rolled back to step {target}, its learning rate is now multiplied "
                    f"by {scale:g}"
                )
            line = f"seed {seed} diverged: {cause} not finite at step {step}"
            line += f"; {consequence}"
            event = "rolled_back" if rolled_back else "diverged"
            log_event = console.LogEvent(line, event, step=step, seed=str(seed))
            self.say(log_event.at("warning"))

    def saved(self, step: int) -> None:
        """Log that a checkpoint of a step was saved."""
        line = console.LogEvent(f"saved step {step}", "checkpoint", step=step)
        self.say(line.at("debug", quiet=True))

    def evaluation(
        self,
        step: int,
        records: Sequence[results.Record],
        *,
        valid: Mapping[str, float],
        seconds: float,
    ) -> None:
        """Log the mean of each metric over seeds, and the duration of the evaluation.

        Metrics of training, some metrics of evaluation (`scalars.values_by_metric`) and diverged
        seeds are left out of the line. The progress line shows the mean of `valid`, the validation
        accuracies.
        """
        values_by_metric = scalars.values_by_metric(records)
        summary = ", ".join(
            scalars.summarise(dataset, metric, values)
            for (dataset, metric), values in values_by_metric.items()
        )
        line = f"step {step}/{self._total}: {summary or 'no seed is finite'}"
        line += f" ({seconds:.1f} s)"
        event = console.LogEvent(
            line,
            "evaluation",
            step=step,
            total=self._total,
            seconds=round(seconds, 3),
            means={
                f"{dataset}/{metric}": scalars.mean(values)
                for (dataset, metric), values in values_by_metric.items()
            },
        )
        self.say(event)
        self._note = f" valid {100 * scalars.mean(valid.values()):.1f}"
