"""`Evaluator`: decisions of all seeds on all data sets, and the records computed from them."""

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jbias import evals, run_spec
from jbias.data import config_sets, loader
from jbias.evals import inference
from jbias.measures import cue_conflict, cue_ranks, decisions
from jbias.runs import record_store, results
from jbias.runtime import mesh, messages
from jbias.runtime import processes as teams
from jbias.training import monitoring, stages
from jbias.training import step as train_step
from jbias.training.averaging import averages
from jbias.training.placement import PlacedStage
from jbias.training.seed_axis import PackedStates
from jbias.training.stopping import AgreedStop


class Evaluation(NamedTuple):
    """The result of one step's evaluation."""

    step: int
    records: Sequence[results.Record]
    valid: Mapping[str, float]  # Validation accuracies, fractions, by member's name.
    # By data set, one entry per member; {} if decisions are not stored.
    decisions: Mapping[str, Sequence[evals.Decisions]]
    began: float  # Start of the evaluation, by time.monotonic.


class Evaluator:
    """Runs the networks of all members on all data sets of a run.

    tests: the sets to evaluate on, the validation set first. run: config.run, whose options of
    evaluation a caller may replace between evaluations.
    """

    def __init__(
        self,
        spec: run_spec.RunSpec,
        tests: Sequence[config_sets.TestSet],
        *,
        devices: jax.sharding.Mesh,
        group: teams.ProcessGroup,
        stop: AgreedStop,
        monitor: monitoring.Monitor,
        epochs: Sequence[float],
        say: messages.Say,
    ):
        """Create the evaluator of a run.

        monitor: means of training metrics, and diverged seeds. epochs: length of each stage in
        epochs. say: logs a line. stop: a requested stop ends an evaluation.
        """
        self.tests, self.run = tests, spec.run
        self._members, self._devices, self._group = spec.members, devices, group
        self._stop, self._monitor, self._say = stop, monitor, say
        self._epochs = epochs
        self._has_said_folding = False

    def evaluate(
        self, placed: PlacedStage, states: PackedStates, step: int
    ) -> Evaluation | None:
        """Return the evaluation of every seed on every data set; None if a stop was requested.

        states: the states of all members after `step`. ValueError if memory is too small.
        """
        began = time.monotonic()
        with _refusing_full_memory(step):
            decided = self.decide(placed, states)
        if decided is None:
            return None
        self._report_undecided(decided, step)
        differences = self._measure_folding(placed, states, step)
        average = placed.stage.average
        valleys = None
        if average is not None and average.valley is not None:
            valleys = [
                averages.find_valley(
                    losses, options=average.valley, steps=average.steps
                )
                for losses in placed.losses(states)
            ]
        records, valid = [], {}
        for number, member in enumerate(self._members):
            member_records = self._records(
                placed.stage,
                step=step,
                member=member,
                decisions_by_set=[decided[test.name][number] for test in self.tests],
                difference=differences[number] if differences else None,
                valley=valleys[number] if valleys else None,
            )
            for record in member_records:
                records.append(record)
                if record_store.is_valid(record):
                    valid[member.name] = record.value
        return Evaluation(
            step=step,
            records=records,
            valid=valid,
            decisions=decided if self.run.decisions else {},
            began=began,
        )

    def decide(
        self, placed: PlacedStage, states: PackedStates
    ) -> dict[str, list[evals.Decisions]] | None:
        """Return the decisions about each data set by its name; None if a stop was requested.

        Decisions are a list with one entry per member. Consecutive sets with images of one size
        share batches, so that only the last batch is padded.
        """
        layout, score = placed.layout, placed.scorer(self.run.eval_norm)
        decided = {test.name: [] for test in self.tests}
        for wave, trees in enumerate(states):
            nets = layout.to_device(tuple(map(train_step.net_of, trees)), wave)
            last_log_time, num_done = time.monotonic(), 0
            for _, sets in itertools.groupby(self.tests, lambda test: test.shape):
                tests = list(sets)
                decisions_by_set = inference.decide_sets(
                    score,
                    nets,
                    self._batches([test.images for test in tests]),
                    rules=[self._decision_rule(test) for test in tests],
                    split=functools.partial(layout.split_wave, number=wave),
                    halt=self._stop.is_agreed,
                    fetch=functools.partial(mesh.fetch, mesh=self._devices),
                )
                for test, predictions in zip(tests, decisions_by_set):
                    for prediction in predictions:
                        decided[test.name].append(_decisions(prediction, test))
                    num_done += 1
                    if time.monotonic() - last_log_time > self.run.log_seconds:
                        last_log_time = time.monotonic()
                        self._say(
                            f"evaluated {test.name}, {num_done} of {len(self.tests)} "
                            "sets ..."
                        )
        num_members = len(self._members)
        is_complete = all(len(of_set) == num_members for of_set in decided.values())
        return decided if is_complete else None

    def validation_losses(
        self, placed: PlacedStage, states: PackedStates
    ) -> list[float] | None:
        """Return the validation loss of each member's current network, in nats.

        The networks are not averages of weights. The loss is the mean of the cross-entropy over
        the images of the validation set. None if a stop was requested.
        """
        layout, test, losses = placed.layout, self.tests[0], []
        rule = self._decision_rule(test)
        rule = rule._replace(label=np.asarray(test.columns["label"]))
        for wave, trees in enumerate(states):
            nets = layout.to_device(tuple(map(averages.current, trees)), wave)
            for predictions in inference.decide_sets(
                placed.score,
                nets,
                self._batches([test.images]),
                rules=[rule],
                split=functools.partial(layout.split_wave, number=wave),
                halt=self._stop.is_agreed,
                fetch=functools.partial(mesh.fetch, mesh=self._devices),
            ):
                losses += [
                    decisions.cross_entropy(prediction.likelihood)
                    for prediction in predictions
                ]
        return losses if len(losses) == len(self._members) else None

    def _decision_rule(self, test: config_sets.TestSet) -> inference.DecisionRule:
        """Return the rule that turns logits into decisions about a data set.

        The rule has labels only if decisions are stored (config.run.decisions) or ranks are
        measured, as for shape bias, and cues only if ranks are measured.
        """
        ranked = cue_ranks.ranked_columns(test.measures)
        needs_labels = bool(ranked) or self.run.decisions
        return inference.DecisionRule(
            n=len(test.images),
            matrix=mesh.replicate(test.matrix, self._devices),
            aggregate=test.aggregate,
            label=np.asarray(test.columns["label"]) if needs_labels else None,
            cues=cue_conflict.cues_of(test.columns, ranked) if ranked else {},
        )

    def _batches(self, images: Sequence[Any]) -> Iterator[jax.Array]:
        """Yield the batches of several arrays of images, concatenated, on the devices.

        All batches have `_batch_size` images; the last batch is padded. images: one array or
        reader per data set. If one process cannot read its share of a batch, all processes raise
        the error.
        """
        reading = stages.reader_options(self.run.loading, self._devices)
        reads_files = any(isinstance(of_set, loader.EncodedImages) for of_set in images)
        host_batches = loader.local_batches(images, self._batch_size, reading)
        place = mesh.split if reading.parts == 1 else mesh.assemble
        while True:
            with self._group.raise_together("images to evaluate", reads_files):
                share = next(host_batches, None)
            if share is None:
                return
            yield place(share, self._devices)

    @property
    def _batch_size(self) -> int:
        """The number of images per batch, over all devices (config.run.eval_batch)."""
        shards = self._devices.shape["data"]
        return -(-self.run.eval_batch // shards) * shards

    def _report_undecided(
        self, decided: Mapping[str, Sequence[evals.Decisions]], step: int
    ) -> None:
        """Log the seeds and data sets without a result because logits are NaN or infinite.

        decided: as `decide` returns it. Seeds that diverged are left out, because their
        divergence is in the log already.
        """
        for test, (number, member) in itertools.product(
            self.tests, enumerate(self._members)
        ):
            if member.name in self._monitor.diverged:
                continue
            prediction = decided[test.name][number].prediction
            count = int((prediction == inference.UNDECIDED).sum())
            if count:
                self._say(
                    f"step {step}: seed {member.name}: no numbers on {test.name}, as its "
                    f"logits are NaN or infinite for {count} of {len(prediction)} images"
                )

    def _measure_folding(
        self, placed: PlacedStage, states: PackedStates, step: int
    ) -> list[float]:
        """Return, per member, the largest change of a logit if batch norms are folded.

        Empty if evaluations do not fold or memory is too small. The largest value is logged at
        the first evaluation after a start.
        """
        try:
            differences = self._fold_differences(placed, states)
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            if not messages.lacks_memory(error):
                raise
            self._say(
                f"step {step}: no folding_difference is recorded, as memory is too small for "
                "the exact and the folded network together"
            )
            return []
        finite = [x for x in differences if np.isfinite(x)]
        if finite and not self._has_said_folding:
            self._has_said_folding = True
            self._say(
                f"step {step}: {placed.stage.foldable_norms} batch norms are folded into "
                f"convolutions in evaluation: logits differ by {max(finite):.2g} at most from "
                "exact ones (config.run.eval_norm)"
            )
        return differences

    def _fold_differences(
        self, placed: PlacedStage, states: PackedStates
    ) -> list[float]:
        """Return the largest change of a logit by folded batch norms, one value per member.

        The change is the absolute difference between the logits with folded and with exact
        batch norms; the maximum is over all classes and the images of the first batch of the
        validation set. NaN if logits are not finite. Empty if evaluations do not fold.
        """
        if not placed.stage.folds_norms(self.run.eval_norm):
            return []
        images, layout, differences = self.tests[0].images, placed.layout, []
        images = images[: self._batch_size]
        for wave, trees in enumerate(states):
            nets = layout.to_device(tuple(map(train_step.net_of, trees)), wave)
            (batch,) = self._batches([images])
            no_arguments = ((),) * len(nets)
            wave_differences = inference.largest_differences(
                placed.score_folded(nets, no_arguments, batch, None),
                placed.score(nets, no_arguments, batch, None),
                count=len(images),
            )
            on_host = mesh.fetch(wave_differences, self._devices)
            differences += map(float, layout.split_wave(on_host, wave))
        return differences

    def _records(
        self,
        stage: stages.Stage,
        *,
        step: int,
        member: run_spec.Member,
        decisions_by_set: Sequence[evals.Decisions],
        difference: float | None = None,
        valley: averages.Valley | None = None,
    ) -> Iterator[results.Record]:
        """Yield the records of one seed's evaluation at a step.

        Records of the data set "train": the mean of each metric since the previous evaluation,
        `difference` if it is finite, and the metrics of `valley`. Instead of these
        records, a diverged seed has a record
        "diverged", whose value is the step at which the seed diverged. Each rollback in this stage
        so far has a record "rolled_back", whose value is the factor on the learning rate.

        Records of other data sets: the measures of the set. The value is None and the status
        "diverged" if the seed diverged or the logits of any image are not finite.

        decisions_by_set: one entry per set of `tests`. difference: the member's entry of
          `_fold_differences`; None: batch norms are not folded, or the difference is unknown.
        valley: the stretch of steps in the member's average of SWAD, if any.
        """
        monitor = self._monitor
        stage_epoch = (step - stage.first) / stage.order.steps_per_epoch
        epoch = round(sum(self._epochs[: stage.number]) + stage_epoch, 4)

        def record(**fields: Any) -> results.Record:
            """Return a record of this seed and step; fields: the remaining fields of Record."""
            return results.Record(
                **member.branch.fields,
                stage=stage.number,
                seed=member.seed,
                step=step,
                epoch=epoch,
                **fields,
            )

        def train_record(metric: str, value: float, **fields: Any) -> results.Record:
            """Return a record of the data set "train", without a condition by default."""
            fields = {"condition": "", **fields}
            return record(dataset=results.TRAIN, metric=metric, value=value, **fields)

        diverged_step = monitor.diverged.get(member.name)
        if diverged_step:
            yield train_record("diverged", diverged_step, status="diverged")
        else:
            for name, value in monitor.means(member.name).items():
                yield train_record(name, value)
            if difference is not None and np.isfinite(difference):
                yield train_record("folding_difference", difference)
            for name, value in valley.metrics.items() if valley else ():
                yield train_record(name, value)
        for failed_step in monitor.rolled_back.get(member.name, ()):
            if stage.first < failed_step <= step:
                target, scale = monitor.rollback(
                    member.name, failed_step, stage.rollback
                )
                condition = f"at step {failed_step} to step {target}"
                yield train_record("rolled_back", scale, condition=condition)
        for test, set_decisions in zip(self.tests, decisions_by_set, strict=True):
            is_undecided = (set_decisions.prediction == inference.UNDECIDED).any()
            for name in test.measures:
                for measurement in evals.find_measure(name)(set_decisions):
                    fields = measurement._asdict()
                    if diverged_step or is_undecided:
                        fields |= {"value": None, "count": None, "status": "diverged"}
                    yield record(dataset=test.name, **fields)


@contextlib.contextmanager
def _refusing_full_memory(step: int) -> Iterator[None]:
    """Turn an out-of-memory error inside the context into a ValueError with a remedy.

    Other errors pass. step: the step that is evaluated, for the message.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not messages.lacks_memory(error):
            raise
        raise ValueError(
            f"evaluation at step {step}: must fit into memory, got "
            f"{messages.shorten(error) or type(error).__name__}; resume with a smaller "
            "config.run.eval_batch"
        ) from error


def _decisions(prediction: Any, test: config_sets.TestSet) -> evals.Decisions:
    """Return one seed's decisions about a data set, with the set's columns.

    prediction: an array of classes, or `inference.ScoredDecisions`, whose probabilities and
    ranks become further columns.
    """
    if not isinstance(prediction, inference.ScoredDecisions):
        return evals.Decisions(prediction, test.columns)
    columns = prediction.columns
    return evals.Decisions(columns.pop("prediction"), {**test.columns, **columns})
