"""Evaluates all seeds on all sets and writes the records, in the run or beside it.

`follow` evaluates the checkpoints of a run that another process trains, as they come. That
run is one with config.run.evaluate="elsewhere": it saves where it would evaluate, with all
that the records need, and keeps what is saved until evals/<step>.jsonl is there.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from etils import epath

from jbias import evals, extensions, run_spec, seals
from jbias.data import loader, splits
from jbias.evals import cue_conflict, decisions, inference
from jbias.models import trained
from jbias.runs import checkpoints, checksums, evaluations, results, status, workdirs
from jbias.runtime import console, files, heap, lock, mesh, messages
from jbias.training import memory, setup, stages, telemetry
from jbias.training import step as train_step
from jbias.training.context import Evaluation, RunContext
from jbias.training.seed_axis import PackedStates
from jbias.training.stages import Stage


def evaluate(job: RunContext, stage: Stage, states: PackedStates, step: int) -> None:
    """Measures every seed on every set; leaves the evaluation in the job."""
    began, records, valid = time.monotonic(), [], {}
    with _refusing_full_memory(step):
        predicted = _predict(job, stage, states)
    if not predicted:
        return  # Asked to stop; this evaluation is made again on resuming.
    _report_undecided(job, predicted, step)
    differences = _measure_folding(job, stage, states, step)
    for number, entry in enumerate(job.members):
        decided = [_decisions(predicted[test.name][number], test) for test in job.tests]
        difference = differences[number] if differences else None
        for r in _records(job, stage, step, entry, decided, difference=difference):
            records.append(r)
            if evaluations.is_valid(r):
                valid[entry.name] = r.value
    asked = job.config["run"]["decisions"]
    kept = _keep_decisions(job, step, predicted) if asked else {}
    records = job.records.write(step, records)
    job.records.sums |= kept
    job.records.seal()
    telemetry.log_evaluation(job, step, records)
    job.evaluation = Evaluation(step, records, valid)
    job.monitor.reset()
    heap.trim()
    job.note = f" valid {100 * _mean(valid.values()):.1f}"
    total, took, cells = job.stages[-1].last, time.monotonic() - began, _cells(records)
    seen = ", ".join(map(_summary, cells.items())) or "no seed is finite"
    line = f"step {step}/{total}: {seen} ({took:.1f} s)"
    told = dict(step=step, total=total, seconds=round(took, 3))
    means = {f"{d}/{m}": _mean(values) for (d, m), values in cells.items()}
    job.log(console.LogEvent(line, "evaluation", **told, means=means))


@contextlib.contextmanager
def _refusing_full_memory(step: int) -> Iterator[None]:
    """Raise ValueError, with what to do, where memory is full; checkpoints stay as they are."""
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


def _report_undecided(job: RunContext, predicted: dict[str, list], step: int) -> None:
    """Log which seeds have no numbers on a set as their logits are NaN or infinite.

    Seeds that are known to have diverged have been told of.
    """
    for test, (number, entry) in itertools.product(job.tests, enumerate(job.members)):
        if entry.name in job.monitor.diverged:
            continue
        decided = _decisions(predicted[test.name][number], test)
        count = int((decided.prediction == inference.UNDECIDED).sum())
        if count:
            job.log(
                f"step {step}: seed {entry.name}: no numbers on {test.name}, as its logits "
                f"are NaN or infinite for {count} of {len(decided.prediction)} images"
            )


def rebuild_decisions(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> None:
    """Makes a step's decisions anew, those that are not as they were written."""
    if predicted := _predict(job, stage, states):
        made = _keep_decisions(job, step, predicted)
        before = {**made, **job.records.sums}
        other = any(before[name] not in (sums, sums[1]) for name, sums in made.items())
        then = ", equal only within tolerance to those lost" * other
        job.log(f"decisions of step {step} were lost: made anew from its states{then}")
        job.records.sums |= made


def net_only(state: train_step.State) -> train_step.State:
    """A state with nothing but the net to evaluate."""
    net = train_step.net_of(state)
    params, stats = {"net": net["params"]}, {"net": net["stats"]}
    return train_step.State(state.step, params, stats, ())


def _predict(job: RunContext, stage: Stage, states: PackedStates) -> dict | None:
    """The decisions of all seeds by set; None where the job is to stop.

    Sets with images of one size share batches, so that only their last one is padded.
    """
    run, layout = job.config["run"], stage.layout
    score = stage.scorer(run)
    predicted = {test.name: [] for test in job.tests}
    for wave, trees in enumerate(states):
        nets = layout.to_device(tuple(map(train_step.net_of, trees)), wave)
        said, number = time.monotonic(), 0
        for _, group in itertools.groupby(job.tests, lambda test: test.shape):
            tests = list(group)
            found = inference.decide_sets(
                score,
                nets,
                _batches(job, [test.images for test in tests]),
                [_rule(job, test) for test in tests],
                split=functools.partial(layout.each, number=wave),
                halt=job.stop_requested,
                fetch=functools.partial(mesh.fetch, mesh=job.devices),
            )
            for test, decided in zip(tests, found):
                predicted[test.name] += decided
                number += 1
                if time.monotonic() - said > run["log_seconds"]:
                    said, many = time.monotonic(), len(job.tests)
                    job.log(f"evaluated {test.name}, {number} of {many} sets ...")
    whole = all(len(found) == len(job.members) for found in predicted.values())
    return predicted if whole else None


def _rule(job: RunContext, test: splits.TestSet) -> inference.DecisionRule:
    """How networks answer a set."""
    ranks = "shape_bias" in test.measures
    asked = ranks or job.config["run"]["decisions"]
    label = np.asarray(test.columns["label"]) if asked else None
    cues = cue_conflict.cues_of(test.columns) if ranks else {}
    matrix = mesh.replicate(test.matrix, job.devices)
    return inference.DecisionRule(len(test.images), matrix, test.aggregate, label, cues)


def _fold_differences(
    job: RunContext, stage: Stage, states: PackedStates
) -> list[float]:
    """Return by member how far folding batch norms moves a logit; empty where none folds.

    The largest absolute difference between logits of the folded and of the exact network,
    over all classes and the images of the first batch of the validation set. NaN where
    these are not finite.
    """
    if not stage.folds_norms(job.config["run"]):
        return []
    images, layout, differences = job.tests[0].images, stage.layout, []
    images = images[: _batch_size(job)]
    for wave, trees in enumerate(states):
        nets = layout.to_device(tuple(map(train_step.net_of, trees)), wave)
        (batch,) = _batches(job, [images])
        inputs = nets, ((),) * len(nets), batch, None
        moved = inference.largest_differences(
            stage.score_folded(*inputs), stage.score(*inputs), count=len(images)
        )
        differences += map(float, layout.each(mesh.fetch(moved, job.devices), wave))
    return differences


def _measure_folding(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> list[float]:
    """Return `_fold_differences`, empty where memory is full; log the largest once a start."""
    try:
        differences = _fold_differences(job, stage, states)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not messages.lacks_memory(error):
            raise
        job.log(
            f"step {step}: no folding_difference is recorded, as the exact network does not "
            "fit into memory beside the folded one"
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
    """Return how many images are evaluated together, of all devices."""
    shards = job.devices.shape["data"]
    return -(-job.config["run"]["eval_batch"] // shards) * shards


def _batches(job: RunContext, images: list) -> Iterator[jax.Array]:
    """Batches on the devices; where one process cannot read its share, none goes on."""
    size = _batch_size(job)
    reading = stages.reader_options(job.config["run"]["loading"], job.devices)
    files = any(isinstance(one, loader.EncodedImages) for one in images)
    coming = loader.local_batches(images, size, reading)
    place = mesh.split if reading.parts == 1 else mesh.assemble
    while True:
        with job.team.raise_together("images to evaluate", files):
            share = next(coming, None)
        if share is None:
            return
        yield place(share, job.devices)


def _keep_decisions(
    job: RunContext, step: int, predicted: dict[str, list]
) -> dict[str, Any]:
    """Write decisions, and return the sums of the files that were written.

    A file that is as it was sealed is never written over.
    """
    job.check_lock()
    told = {}
    branches = job.branches if job.team.is_main else ()
    for test, branch in itertools.product(job.tests, branches):
        path = job.workdir / branch.folder / f"decisions/{test.name}/{step}.parquet"
        name = evaluations.relative_name(job.workdir, path)
        if not checksums.damage(path, job.records.sums.get(name)):
            continue
        of_branch = {
            entry.seed: _decisions(one, test)
            for entry, one in zip(job.members, predicted[test.name], strict=True)
            if entry.branch == branch
        }
        with files.translate_os_errors(str(path)):
            told[name] = decisions.write(path, of_branch)
    return told


def _decisions(found: Any, test: splits.TestSet) -> evals.Decisions:
    """What a seed decided, with probabilities where they were asked for."""
    if not isinstance(found, inference.ScoredDecisions):
        return evals.Decisions(found, test.columns)
    told = found.columns
    return evals.Decisions(told.pop("prediction"), {**test.columns, **told})


# What a line of progress leaves to the records.
_LEFT_OUT = ("group_accuracy", "group_balanced_accuracy", "class_balanced_accuracy")
_LEFT_OUT += ("class_accuracy", "mrr_shape", "mrr_texture", "mrr_relative")


def _summary(cell: tuple[tuple[str, str], list[float]]) -> str:
    """Accuracies in percent and shape biases, each a mean over the finite seeds."""
    (dataset, metric), values = cell
    if metric in ("accuracy", "worst_group_accuracy"):
        name = dataset if metric == "accuracy" else "worst group"
        return f"{name} {100 * _mean(values):.1f}"
    return f"{metric.replace('_', ' ')} {_mean(values):.2f}"


def _cells(records: list[results.Record]) -> dict[tuple[str, str], list[float]]:
    """The finite seeds' values of each number that a line of progress has."""
    cells = {}
    for r in records:
        told = r.metric not in _LEFT_OUT and r.value is not None
        if r.dataset != results.TRAIN and told:
            cells.setdefault((r.dataset, r.metric), []).append(r.value)
    return cells


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def _records(
    job: RunContext,
    stage: Stage,
    step: int,
    entry: run_spec.Member,
    decided: list,
    *,
    difference: float | None = None,
) -> Iterator[results.Record]:
    """What is recorded of a seed that decided so about each set.

    difference: of `_fold_differences`; None: nothing is folded, or it is not known.

    Without a number, as diverged, on sets where its logits of any image decide nothing.
    Losses and gradients since the evaluation before, or the step it diverged at; and where
    it was rolled back in this stage, until now: with what rate it goes on.
    """
    epochs = [(s.last - s.first) / s.order.steps_per_epoch for s in job.stages]
    here = (step - stage.first) / stage.order.steps_per_epoch
    about = dict(entry.branch.fields, stage=stage.number, seed=entry.seed, step=step)
    about["epoch"] = round(sum(epochs[: stage.number]) + here, 4)
    record = functools.partial(results.Record, **about)
    train = functools.partial(record, dataset=results.TRAIN, condition="")
    at = job.monitor.diverged.get(entry.name)
    values = {"diverged": at} if at else job.monitor.means(entry.name)
    for name, value in values.items():
        yield train(metric=name, value=value, status="diverged" if at else "ok")
    if difference is not None and np.isfinite(difference) and not at:
        yield train(metric="folding_difference", value=difference, status="ok")
    for failed in job.monitor.rolled_back.get(entry.name, ()):
        if stage.first < failed <= step:
            to, scale = job.rollback(entry.name, failed)
            where = f"at step {failed} to step {to}"
            yield train(metric="rolled_back", condition=where, value=scale)
    for test, of in zip(job.tests, decided, strict=True):
        lost = {}
        if at or (of.prediction == inference.UNDECIDED).any():
            lost = dict(value=None, count=None, status="diverged")
        found = (evals.find_measure(measure)(of) for measure in test.measures)
        for number in itertools.chain.from_iterable(found):
            yield record(dataset=test.name, **{**number._asdict(), **lost})


def follow(
    workdir: epath.PathLike, *, interval: float, once: bool = False, devices: int = 0
) -> None:
    """Evaluates each step that is due until the run is done; `once`: those there are.

    interval: seconds between looks at the checkpoints. devices: how many to use of those
    here, whatever the run has; 0: all. ValueError or OSError where that cannot be; what
    was evaluated stands, and the same call goes on.
    """
    workdir = files.resolve(workdir, "--follow")
    config = _await_config(workdir, interval, once)
    say = console.logger(workdir, config["run"].get("log", console.LOG_FORMATS[0]))
    with contextlib.ExitStack() as ends:
        ends.callback(console.flush, workdir)
        held = ends.enter_context(workdirs.claim_evaluation(workdir, say))
        ends.enter_context(extensions.naming_files(config))

        @functools.cache
        def opened() -> RunContext:
            job = _open_followed(workdir, config, say, devices, held)
            ends.callback(job.writers.close)
            telemetry.open_loggers(job, 0, alone=False)
            return job

        again = iter(evaluations.damaged_steps(workdir, say))
        while True:
            over = once or (workdir / "done").exists()
            for step in itertools.chain(again, evaluations.pending(workdir)):
                _evaluate_step(opened(), step)
            if over:
                count = len(status.evaluated_steps(workdir))
                own = config["run"].get("evaluate") == "here"
                by = "; the run evaluates by itself" if own else ""
                say(f"{workdir}: evaluated all that was due, {count} steps in all{by}")
                return
            opened()
            time.sleep(interval)


def _await_config(workdir: epath.Path, interval: float, once: bool) -> dict[str, Any]:
    """The config of a run, once that is opened; ValueError where there is none."""
    told = False
    while not (workdir / "provenance.json").exists():
        if once or not status.is_running(workdir):
            raise ValueError(
                f"--follow: {workdir} is no run (no provenance.json); start its "
                "training first, or name its workdir"
            )
        if not told:
            console.logger(None)(f"waiting until the run in {workdir} is opened ...")
        told = True
        time.sleep(interval)
    needed = (key for key in run_spec.KEYS if key not in run_spec.OPTIONAL_KEYS)
    config = trained.read_json(workdir / "config.json", (*needed, "run.devices"))
    return run_spec.check_trusted(config, workdir)


def _open_followed(
    workdir: epath.Path, config: dict, say: Callable, devices: int, held: lock.Lock
) -> RunContext:
    """The run's data and networks, laid out for the devices of this process."""
    say(f"following {workdir}")
    here = dict(spread=0, together=0, memory=0.0, strategy="auto", devices=devices)
    spec = run_spec.RunSpec.from_config({**config, "run": {**config["run"], **here}})
    setup.check_names(spec)
    job = setup.open_run(spec, workdir, say, follows=True, guard=held.check)
    free = memory.free_bytes(job.devices)
    for number, stage in enumerate(job.stages):
        together = 0  # All nets on the devices at once; or as fill half of the memory.
        if free is not None:
            each = memory.tree_bytes(train_step.net_of(stage.state_shape))
            together = max(1, free // 2 // each) * job.devices.shape["seed"]
        laid = stages.fit_to_devices(stage, job.devices, together=together)
        job.stages[number] = laid
    return job


def _evaluate_step(job: RunContext, step: int) -> None:
    """Makes one evaluation as the run itself would have made it."""
    folder = job.workdir / "checkpoints"
    try:
        differences = job.seal.differences
        states, info = checkpoints.read(folder, step, job.state_shapes, differences)
    except (*checkpoints.MACHINE_ERRORS, PermissionError, seals.ForeignError):
        raise
    # Of damaged bytes, and of a step that goes meanwhile, orbax raises anything.
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
