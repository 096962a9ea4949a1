"""Evaluate all seeds on all data sets and write the records.

`evaluate` evaluates the current step of a run. `follow` evaluates the checkpoints of a run
that another process trains with config.run.evaluate="elsewhere": that run saves a
checkpoint instead of each evaluation, and stores the checkpoint until evals/<step>.jsonl exists.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from jbias import evals, extensions, run_spec, seals
from jbias.data import loader, splits
from jbias.evals import decision_files, inference
from jbias.measures import cue_conflict
from jbias.models import trained
from jbias.runs import checkpoints, checksums, evaluations, results, status, workdirs
from jbias.runtime import console, files, heap, lock, mesh, messages
from jbias.training import memory, setup, stages, telemetry
from jbias.training import step as train_step
from jbias.training.context import Evaluation, RunContext
from jbias.training.seed_axis import PackedStates
from jbias.training.stages import Stage


def evaluate(job: RunContext, stage: Stage, states: PackedStates, step: int) -> None:
    """Evaluate every seed on every data set; write the records and set `job.evaluation`.

    Also resets the monitor and logs a summary. If a stop is requested during the evaluation,
    nothing is written, and the resumed run evaluates the step.

    states: the states of all members after `step`. ValueError if memory is too small.
    """
    start, records, valid_accuracies = time.monotonic(), [], {}
    with _refusing_full_memory(step):
        predictions = _predict(job, stage, states)
    if not predictions:
        return
    _report_undecided(job, predictions, step)
    differences = _measure_folding(job, stage, states, step)
    for number, member in enumerate(job.members):
        member_decisions = [
            _decisions(predictions[test.name][number], test) for test in job.tests
        ]
        member_records = _records(
            job,
            stage,
            step=step,
            member=member,
            decisions_by_set=member_decisions,
            difference=differences[number] if differences else None,
        )
        for record in member_records:
            records.append(record)
            if evaluations.is_valid(record):
                valid_accuracies[member.name] = record.value
    checksums_of_decisions = {}
    if job.config["run"]["decisions"]:
        checksums_of_decisions = _write_decisions(job, step, predictions)
    records = job.records.write(step, records)
    job.records.sums |= checksums_of_decisions
    job.records.seal()
    telemetry.log_evaluation(job, step, records)
    job.evaluation = Evaluation(step, records, valid_accuracies)
    job.monitor.reset()
    heap.trim()
    job.note = f" valid {100 * _mean(valid_accuracies.values()):.1f}"
    _log_summary(job, step, records, seconds=time.monotonic() - start)


def _log_summary(
    job: RunContext, step: int, records: list[results.Record], *, seconds: float
) -> None:
    """Log the mean of each metric over seeds, and the duration of the evaluation.

    Metrics in `_UNLOGGED_METRICS`, metrics of training and diverged seeds are left out.
    """
    total, values_by_metric = job.stages[-1].last, _values_by_metric(records)
    summary = ", ".join(
        _summarise(dataset, metric, values)
        for (dataset, metric), values in values_by_metric.items()
    )
    line = f"step {step}/{total}: {summary or 'no seed is finite'} ({seconds:.1f} s)"
    event = console.LogEvent(
        line,
        "evaluation",
        step=step,
        total=total,
        seconds=round(seconds, 3),
        means={
            f"{dataset}/{metric}": _mean(values)
            for (dataset, metric), values in values_by_metric.items()
        },
    )
    job.log(event)


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


def _report_undecided(job: RunContext, predictions: dict[str, list], step: int) -> None:
    """Log the seeds and data sets without a result because logits are NaN or infinite.

    predictions: as `_predict` returns them. Seeds that diverged are left out, because their
    divergence is in the log already.
    """
    for test, (number, member) in itertools.product(job.tests, enumerate(job.members)):
        if member.name in job.monitor.diverged:
            continue
        prediction = _decisions(predictions[test.name][number], test).prediction
        count = int((prediction == inference.UNDECIDED).sum())
        if count:
            job.log(
                f"step {step}: seed {member.name}: no numbers on {test.name}, as its "
                f"logits are NaN or infinite for {count} of {len(prediction)} images"
            )


def rebuild_decisions(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> None:
    """Write the damaged or lost files of a step's decisions again, from the step's states.

    Does nothing if a stop is requested. Logs a line, which says if a new file's checksum
    differs from the recorded checksum.
    """
    predictions = _predict(job, stage, states)
    if predictions:
        new_sums = _write_decisions(job, step, predictions)
        old_sums = {**new_sums, **job.records.sums}
        differs = any(
            old_sums[name] not in (checksum, checksum[1])
            for name, checksum in new_sums.items()
        )
        difference = ", equal only within tolerance to those lost" if differs else ""
        job.log(
            f"decisions of step {step} were lost: made anew from its states{difference}"
        )
        job.records.sums |= new_sums


def net_only(state: train_step.State) -> train_step.State:
    """Return the state with only the network that evaluations use, and no optimiser state."""
    net = train_step.net_of(state)
    return train_step.State(
        step=state.step,
        params={"net": net["params"]},
        stats={"net": net["stats"]},
        opt=(),
    )


def _predict(
    job: RunContext, stage: Stage, states: PackedStates
) -> dict[str, list[Any]] | None:
    """Return the decisions about each data set by its name; None if a stop was requested.

    Decisions are a list with one entry per member: an array of classes, or
    `inference.ScoredDecisions`. Consecutive sets with images of one size share batches, so
    that only the last batch is padded.
    """
    run, layout = job.config["run"], stage.layout
    score = stage.scorer(run)
    predictions = {test.name: [] for test in job.tests}
    for wave, trees in enumerate(states):
        nets = layout.to_device(tuple(map(train_step.net_of, trees)), wave)
        last_log_time, num_done = time.monotonic(), 0
        for _, group in itertools.groupby(job.tests, lambda test: test.shape):
            tests = list(group)
            decisions_by_set = inference.decide_sets(
                score,
                nets,
                _batches(job, [test.images for test in tests]),
                rules=[_decision_rule(job, test) for test in tests],
                split=functools.partial(layout.split_wave, number=wave),
                halt=job.stop_requested,
                fetch=functools.partial(mesh.fetch, mesh=job.devices),
            )
            for test, wave_decisions in zip(tests, decisions_by_set):
                predictions[test.name] += wave_decisions
                num_done += 1
                if time.monotonic() - last_log_time > run["log_seconds"]:
                    last_log_time = time.monotonic()
                    job.log(
                        f"evaluated {test.name}, {num_done} of {len(job.tests)} sets ..."
                    )
    is_complete = all(
        len(of_set) == len(job.members) for of_set in predictions.values()
    )
    return predictions if is_complete else None


def _decision_rule(job: RunContext, test: splits.TestSet) -> inference.DecisionRule:
    """Return the rule that turns logits into decisions about a data set.

    The rule has labels only if decisions are stored (config.run.decisions) or shape bias is
    measured, and cues only if shape bias is measured.
    """
    needs_ranks = "shape_bias" in test.measures
    needs_labels = needs_ranks or job.config["run"]["decisions"]
    return inference.DecisionRule(
        n=len(test.images),
        matrix=mesh.replicate(test.matrix, job.devices),
        aggregate=test.aggregate,
        label=np.asarray(test.columns["label"]) if needs_labels else None,
        cues=cue_conflict.cues_of(test.columns) if needs_ranks else {},
    )


def _fold_differences(
    job: RunContext, stage: Stage, states: PackedStates
) -> list[float]:
    """Return a list with the largest change of a logit by folded batch norms, per member.

    The change is the absolute difference between the logits with folded and with exact
    batch norms; the maximum is over all classes and the images of the first batch of the
    validation set. NaN if logits are not finite. Empty if evaluations do not fold.
    """
    if not stage.folds_norms(job.config["run"]):
        return []
    images, layout, differences = job.tests[0].images, stage.layout, []
    images = images[: _batch_size(job)]
    for wave, trees in enumerate(states):
        nets = layout.to_device(tuple(map(train_step.net_of, trees)), wave)
        (batch,) = _batches(job, [images])
        no_arguments = ((),) * len(nets)
        wave_differences = inference.largest_differences(
            stage.score_folded(nets, no_arguments, batch, None),
            stage.score(nets, no_arguments, batch, None),
            count=len(images),
        )
        on_host = mesh.fetch(wave_differences, job.devices)
        differences += map(float, layout.split_wave(on_host, wave))
    return differences


def _measure_folding(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> list[float]:
    """Return, per member, the largest change of a logit if batch norms are folded.

    Empty if evaluations do not fold or memory is too small. The largest value is logged at
    the first evaluation after a start.
    """
    try:
        differences = _fold_differences(job, stage, states)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not messages.lacks_memory(error):
            raise
        job.log(
            f"step {step}: no folding_difference is recorded, as memory is too small for "
            "the exact and the folded network together"
        )
        return []
    finite = [x for x in differences if np.isfinite(x)]
    if finite and job.evaluation.step < 0:
        job.log(
            f"step {step}: {stage.foldable_norms} batch norms are folded into convolutions "
            f"in evaluation: logits differ by {max(finite):.2g} at most from exact ones "
            "(config.run.eval_norm)"
        )
    return differences


def _batch_size(job: RunContext) -> int:
    """Return the number of images per batch, over all devices (config.run.eval_batch)."""
    shards = job.devices.shape["data"]
    return -(-job.config["run"]["eval_batch"] // shards) * shards


def _batches(job: RunContext, images: Sequence[Any]) -> Iterator[jax.Array]:
    """Yield batches, on the devices, of the concatenated images of several data sets.

    All batches have `_batch_size` images; the last batch is padded. images: one array or
    reader per data set. If one process cannot read its share of a batch, all processes raise
    the error.
    """
    size = _batch_size(job)
    reading = stages.reader_options(job.config["run"]["loading"], job.devices)
    reads_files = any(isinstance(of_set, loader.EncodedImages) for of_set in images)
    host_batches = loader.local_batches(images, size, reading)
    place = mesh.split if reading.parts == 1 else mesh.assemble
    while True:
        with job.team.raise_together("images to evaluate", reads_files):
            share = next(host_batches, None)
        if share is None:
            return
        yield place(share, job.devices)


def _write_decisions(
    job: RunContext, step: int, predictions: dict[str, list]
) -> dict[str, Any]:
    """Write a step's files of decisions; return the checksums of the written files by name.

    A name is the file's path in the workdir. A file that matches its recorded checksum is
    not written again. Only process 0 writes; the other processes return {}.

    predictions: as `_predict` returns them.
    """
    job.check_lock()
    new_sums = {}
    branches = job.branches if job.team.is_main else ()
    for test, branch in itertools.product(job.tests, branches):
        path = job.workdir / branch.folder / f"decisions/{test.name}/{step}.parquet"
        name = evaluations.relative_name(job.workdir, path)
        if not checksums.damage(path, job.records.sums.get(name)):
            continue
        by_seed = {
            member.seed: _decisions(prediction, test)
            for member, prediction in zip(
                job.members, predictions[test.name], strict=True
            )
            if member.branch == branch
        }
        with files.translate_os_errors(str(path)):
            new_sums[name] = decision_files.write(path, by_seed)
    return new_sums


def _decisions(prediction: Any, test: splits.TestSet) -> evals.Decisions:
    """Return one seed's decisions about a data set, with the set's columns.

    prediction: an array of classes, or `inference.ScoredDecisions`, whose probabilities and
    ranks become further columns.
    """
    if not isinstance(prediction, inference.ScoredDecisions):
        return evals.Decisions(prediction, test.columns)
    columns = prediction.columns
    return evals.Decisions(columns.pop("prediction"), {**test.columns, **columns})


# Metrics that are recorded but not part of the log's line about an evaluation.
_UNLOGGED_METRICS = (
    "group_accuracy",
    "group_balanced_accuracy",
    "class_balanced_accuracy",
    "class_accuracy",
    "mrr_shape",
    "mrr_texture",
    "mrr_relative",
)


def _summarise(dataset: str, metric: str, values: list[float]) -> str:
    """Return a metric's name and its mean over seeds as text, such as "valid 91.3".

    values: one fraction per seed. Accuracies are written in percent, other metrics as
    fractions, such as "shape bias 0.31".
    """
    if metric in ("accuracy", "worst_group_accuracy"):
        name = dataset if metric == "accuracy" else "worst group"
        return f"{name} {100 * _mean(values):.1f}"
    return f"{metric.replace('_', ' ')} {_mean(values):.2f}"


def _values_by_metric(
    records: list[results.Record],
) -> dict[tuple[str, str], list[float]]:
    """Return the values of each metric in the log's line, by (data set, metric).

    Records without a value (diverged seeds, logits that are not finite) are left out. Metrics of
    training and `_UNLOGGED_METRICS` are also left out.
    """
    values = {}
    for record in records:
        is_logged = record.metric not in _UNLOGGED_METRICS and record.value is not None
        if record.dataset != results.TRAIN and is_logged:
            key = record.dataset, record.metric
            values.setdefault(key, []).append(record.value)
    return values


def _mean(values: Iterable[float]) -> float:
    """Return the mean; NaN without values."""
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def _records(
    job: RunContext,
    stage: Stage,
    *,
    step: int,
    member: run_spec.Member,
    decisions_by_set: list[evals.Decisions],
    difference: float | None = None,
) -> Iterator[results.Record]:
    """Yield the records of one seed's evaluation at a step.

    Records of the data set "train": the mean of each metric since the previous evaluation,
    and `difference` if it is finite. Instead of these records, a diverged seed has a record
    "diverged", whose value is the step at which the seed diverged. Each rollback in this stage
    so far has a record "rolled_back", whose value is the factor on the learning rate.

    Records of other data sets: the measures of the set. If the seed diverged or the logits of
    any image of the set are not finite, value and count are None and the status is "diverged".

    decisions_by_set: one entry per set of `job.tests`. difference: the member's entry of
      `_fold_differences`; None: batch norms are not folded, or the difference is unknown.
    """
    epochs = [(s.last - s.first) / s.order.steps_per_epoch for s in job.stages]
    stage_epoch = (step - stage.first) / stage.order.steps_per_epoch
    epoch = round(sum(epochs[: stage.number]) + stage_epoch, 4)

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
        fields = {"condition": "", **fields}
        return record(dataset=results.TRAIN, metric=metric, value=value, **fields)

    diverged_step = job.monitor.diverged.get(member.name)
    if diverged_step:
        yield train_record("diverged", diverged_step, status="diverged")
    else:
        for name, value in job.monitor.means(member.name).items():
            yield train_record(name, value)
        if difference is not None and np.isfinite(difference):
            yield train_record("folding_difference", difference)
    for failed_step in job.monitor.rolled_back.get(member.name, ()):
        if stage.first < failed_step <= step:
            target, scale = job.rollback(member.name, failed_step)
            condition = f"at step {failed_step} to step {target}"
            yield train_record("rolled_back", scale, condition=condition)
    for test, set_decisions in zip(job.tests, decisions_by_set, strict=True):
        is_undecided = (set_decisions.prediction == inference.UNDECIDED).any()
        for name in test.measures:
            for measurement in evals.find_measure(name)(set_decisions):
                fields = measurement._asdict()
                if diverged_step or is_undecided:
                    fields |= {"value": None, "count": None, "status": "diverged"}
                yield record(dataset=test.name, **fields)


def follow(
    workdir: epath.PathLike, *, interval: float, once: bool = False, devices: int = 0
) -> None:
    """Evaluate the saved steps of a run that another process trains, until the run ends.

    workdir: workdir of the run. interval: seconds between two reads of the list of checkpoints.
    once: whether to return after the steps that are saved already. devices: number of this
      machine's devices to use; 0: all.

    ValueError if there is no run in the workdir (`_await_config`), or if another process
    evaluates the run. ValueError or OSError if a step cannot be evaluated; finished evaluations are
    not deleted, and a second call evaluates the remaining steps.
    """
    workdir = files.resolve(workdir, "--follow")
    config = _await_config(workdir, interval, once)
    log = console.logger(workdir, config["run"].get("log", console.LOG_FORMATS[0]))
    with contextlib.ExitStack() as stack:
        stack.callback(console.flush, workdir)
        claim = stack.enter_context(workdirs.claim_evaluation(workdir, log))
        stack.enter_context(extensions.naming_files(config))

        @functools.cache
        def open_job() -> RunContext:
            """Return the context of the run; open the run in the first call only."""
            job = _open_followed(workdir, config, log=log, devices=devices, claim=claim)
            stack.callback(job.writers.close)
            telemetry.open_loggers(job, 0, alone=False)
            return job

        damaged_steps = iter(evaluations.damaged_steps(workdir, log))
        while True:
            # Checked first: steps saved before the end are pending below.
            is_last_look = once or (workdir / "done").exists()
            for step in itertools.chain(damaged_steps, evaluations.pending(workdir)):
                _evaluate_step(open_job(), step)
            if is_last_look:
                count = len(status.evaluated_steps(workdir))
                evaluates_itself = config["run"].get("evaluate") == "here"
                hint = "; the run evaluates by itself" if evaluates_itself else ""
                log(
                    f"{workdir}: evaluated all that was due, {count} steps in all{hint}"
                )
                return
            open_job()
            time.sleep(interval)


def _await_config(workdir: epath.Path, interval: float, once: bool) -> dict[str, Any]:
    """Wait until the workdir has a run's config, and return the config.

    interval: seconds between two checks. once: do not wait. ValueError if there is no config,
    and either `once` is True or no process is starting a run there. ValueError also if the config
    lacks an entry, or if `run_spec.check_trusted` refuses the config.
    """
    has_logged = False
    while not (workdir / "provenance.json").exists():
        if once or not status.is_running(workdir):
            raise ValueError(
                f"--follow: {workdir} is no run (no provenance.json); start its "
                "training first, or name its workdir"
            )
        if not has_logged:
            console.logger(None)(f"waiting until the run in {workdir} is opened ...")
        has_logged = True
        time.sleep(interval)
    needed = (key for key in run_spec.KEYS if key not in run_spec.OPTIONAL_KEYS)
    config = trained.read_json(workdir / "config.json", (*needed, "run.devices"))
    return run_spec.check_trusted(config, workdir)


def _open_followed(
    workdir: epath.Path,
    config: dict[str, Any],
    *,
    log: Callable[[str], None],
    devices: int,
    claim: lock.Lock,
) -> RunContext:
    """Return the context for this process to evaluate a run that another process trains.

    config: config of the run; its strategy and its options of devices and memory are not
    used. log: receives log lines. devices: number of devices to use; 0: all. claim: the lock
    for evaluation, checked before each write.
    """
    log(f"following {workdir}")
    run_options = {
        **config["run"],
        "spread": 0,
        "together": 0,
        "memory": 0.0,
        "strategy": "auto",
        "devices": devices,
    }
    spec = run_spec.RunSpec.from_config({**config, "run": run_options})
    setup.check_names(spec)
    job = setup.open_run(spec, workdir, log, follows=True, guard=claim.check)
    free = memory.free_bytes(job.devices)
    for number, stage in enumerate(job.stages):
        together = 0  # All nets at the same time, if free memory is unknown.
        if free is not None:
            # Nets fill at most half of the memory.
            net_bytes = memory.tree_bytes(train_step.net_of(stage.state_shape))
            together = max(1, free // 2 // net_bytes) * job.devices.shape["seed"]
        job.stages[number] = stages.fit_to_devices(
            stage, job.devices, together=together
        )
    return job


def _evaluate_step(job: RunContext, step: int) -> None:
    """Evaluate the checkpoint of a step exactly as the run itself would.

    Does nothing if the checkpoint was deleted meanwhile. ValueError if the checkpoint cannot be
    read; errors of the machine, such as OSError, and `seals.ForeignError` are raised unchanged.
    """
    folder = job.workdir / "checkpoints"
    try:
        states, info = checkpoints.read(
            folder, step, job.state_shapes, job.seal.differences
        )
    except (*checkpoints.MACHINE_ERRORS, PermissionError, seals.ForeignError):
        raise
    # For damaged files, and for a step that is deleted meanwhile, orbax raises any error.
    except Exception as error:
        if step not in checkpoints.steps(folder):
            return
        reason = messages.shorten(error)
        raise ValueError(
            f"checkpoint: {folder / str(step)} cannot be read ({reason}); if it "
            "is damaged, delete it, and this evaluation is never made"
        ) from error
    job.config["run"].update(info["left"])
    job.monitor.load(info["watch"])
    stage = job.stages[info["stage"]]
    nets = stage.layout.pack(map(net_only, states))
    del states
    evaluate(job, stage, nets, step)
