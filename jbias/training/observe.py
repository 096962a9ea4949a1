"""Evaluates all seeds on all sets, and writes what came out as records."""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jbias import config as jc
from jbias import evals
from jbias import step as train_step
from jbias.data import loader, splits
from jbias.evals import decisions, predict
from jbias.runs import checksums, results
from jbias.runtime import console, files, heap, mesh
from jbias.strategies import layout as layouts
from jbias.training import build, recorded, signs, vary
from jbias.training.job import Job


def evaluate(job: Job, stage: build.Stage, states: layouts.Packed, step: int) -> None:
    """Measures every seed on every set; leaves records and `valid` in the job."""
    began = time.monotonic()
    if not (predicted := _all_predicted(job, stage, states)):
        return  # Asked to stop; this evaluation is made again on resuming.
    of_entries = {}
    for number, entry in enumerate(job.members):
        records = of_entries[entry.name] = list(_train_records(job, stage, step, entry))
        for test in job.tests:
            decided = _decisions(predicted[test.name][number], test)
            records += _test_records(job, stage, step, test, entry, decided)
    asked = job.config["run"]["decisions"]
    kept = _keep_decisions(job, step, predicted) if asked else {}
    records = [record for some in of_entries.values() for record in some]
    recorded.write(job, step, records)
    job.sums |= kept
    recorded.seal(job)
    signs.evaluated(job, step, records)
    job.records, job.evaluated = records, step
    job.valid = {
        name: r.value
        for name, some in of_entries.items()
        for r in some
        if recorded.is_valid(r)
    }
    job.monitor.reset()
    heap.trim()
    job.note = f" valid {100 * mean(job.valid.values()):.1f}"
    total, took = job.stages[-1].last, time.monotonic() - began
    seen = _summary(records) or "no seed is finite"
    line = f"step {step}/{total}: {seen} ({took:.1f} s)"
    told = dict(step=step, total=total, seconds=round(took, 3))
    means = {f"{d}/{m}": mean(values) for (d, m), values in _cells(records).items()}
    job.log(console.LogEvent(line, "evaluation", **told, means=means))


def decide(job: Job, stage: build.Stage, states: layouts.Packed, step: int) -> None:
    """Makes a step's decisions anew, those that are not as they were written."""
    if predicted := _all_predicted(job, stage, states):
        made = _keep_decisions(job, step, predicted, again=False)
        other = any({**made, **job.sums}[k] not in (v, v[1]) for k, v in made.items())
        then = ", equal only within tolerance to those lost" * other
        job.log(f"decisions of step {step} were lost: made anew from its states{then}")
        job.sums |= made


def template(job: Job) -> Callable[[int], tuple]:
    """The shapes of a stage's states, by its number, to read a checkpoint into."""
    return lambda number: build.template(job.stages[number], len(job.members))


def net_alone(state: train_step.State) -> train_step.State:
    """A state with nothing but the net to evaluate."""
    net = train_step.net_of(state)
    params, stats = {"net": net["params"]}, {"net": net["stats"]}
    return train_step.State(state.step, params, stats, ())


def _all_predicted(
    job: Job, stage: build.Stage, states: layouts.Packed
) -> dict[str, list] | None:
    """The decisions of all seeds by set; None where the job is to stop."""
    predicted = {test.name: [] for test in job.tests}
    for number, wave in enumerate(states):
        nets = tuple(train_step.net_of(tree) for tree in wave)
        for test, found in _predicted(job, stage, nets, number):
            predicted[test.name] += found
    whole = all(len(found) == len(job.members) for found in predicted.values())
    return predicted if whole else None


def _predicted(
    job: Job, stage: build.Stage, nets: layouts.Wave, wave: int
) -> Iterator[tuple[splits.TestSet, list]]:
    """The decisions of a wave's seeds, set by set; ends early where the job is to stop.

    Sets with images of one size share batches, so that only their last one is padded.
    """
    run, layout = job.config["run"], stage.layout
    reading = build.reading(run["loading"], job.devices)
    shards = job.devices.shape["data"]
    size = -(-run["eval_batch"] // shards) * shards
    nets, said, number = layout.to_device(nets, wave), time.monotonic(), 0
    for _, group in itertools.groupby(job.tests, lambda test: test.shape):
        tests = list(group)
        rules = [
            predict.Rule(
                len(test.images),
                mesh.replicate(test.matrix, job.devices),
                test.aggregate,
                np.asarray(test.columns["label"]) if run["decisions"] else None,
            )
            for test in tests
        ]
        images = (test.images for test in tests)
        batches = _batches(job, images, size, reading)
        found = predict.predict(
            stage.score,
            nets,
            batches,
            rules,
            split=lambda answers: layout.each(answers, wave),
            halt=job.stop_requested,
            fetch=functools.partial(mesh.fetch, mesh=job.devices),
        )
        for test, decided in zip(tests, found):
            number += 1
            if time.monotonic() - said > run["log_seconds"]:
                said = time.monotonic()
                job.log(f"evaluated {test.name}, {number} of {len(job.tests)} sets ...")
            yield test, decided


def _batches(
    job: Job, images: Iterator, size: int, reading: loader.ReaderOptions
) -> Iterator[jax.Array]:
    """Batches on the devices; where one process cannot read its share, none goes on."""
    several = list(images)
    files = any(isinstance(one, loader.EncodedImages) for one in several)
    coming = loader.local_batches(several, size, reading)
    while True:
        with job.team.raise_together("images to evaluate", files):
            share = next(coming, None)
        if share is None:
            return
        place = mesh.split if reading.parts == 1 else mesh.assemble
        yield place(share, job.devices)


def _keep_decisions(
    job: Job, step: int, predicted: dict[str, list], *, again: bool = True
) -> dict[str, Any]:
    """Writes decisions; unless `again`, those that were lost alone. Returns their sums."""
    job.check_lock()
    told = {}
    branches = job.branches if job.team.is_main else ()
    for test, branch in itertools.product(job.tests, branches):
        path = job.workdir / branch.folder / f"decisions/{test.name}/{step}.parquet"
        name = recorded.named(job.workdir, path)
        if not again and not checksums.damage(path, job.sums.get(name)):
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
    if not isinstance(found, predict.Confidence):
        return evals.Decisions(found, test.columns)
    told = {"confidence": found.confidence, "likelihood": found.likelihood}
    return evals.Decisions(found.prediction, {**test.columns, **told})


# What a line of progress leaves to the records.
_BY_GROUP = ("group_accuracy", "group_balanced_accuracy", "class_balanced_accuracy")


def _summary(records: list[results.Record]) -> str:
    """Accuracies in percent and shape biases, each a mean over the finite seeds."""
    return ", ".join(
        f"{name} {100 * mean(values):.1f}"
        if metric == "accuracy"
        else f"worst group {100 * mean(values):.1f}"
        if metric == "worst_group_accuracy"
        else f"{metric.replace('_', ' ')} {mean(values):.2f}"
        for (name, metric), values in _cells(records).items()
    )


def _cells(records: list[results.Record]) -> dict[tuple[str, str], list[float]]:
    """The finite seeds' values of each number that a line of progress has."""
    cells = {}
    for r in records:
        told = r.metric not in _BY_GROUP and r.value is not None
        if r.dataset != results.TRAIN and told:
            cells.setdefault((r.dataset, r.metric), []).append(r.value)
    return cells


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def _record(
    job: Job, stage: build.Stage, step: int, entry: vary.Entry, **fields: Any
) -> results.Record:
    config = entry.branch.config
    epochs = [(s.last - s.first) / s.order.steps_per_epoch for s in job.stages]
    here = (step - stage.first) / stage.order.steps_per_epoch
    return results.Record(
        run=jc.run_name(config),
        algorithm=jc.algorithm(config),
        variant=config["variant"],
        model=config["model"]["name"],
        train_data=jc.train_data(config),
        stage=stage.number,
        seed=entry.seed,
        step=step,
        epoch=round(sum(epochs[: stage.number]) + here, 4),
        **{"condition": "", **fields},
    )


def _train_records(
    job: Job, stage: build.Stage, step: int, entry: vary.Entry
) -> Iterator[results.Record]:
    """Losses and gradients since the evaluation before, or the step it diverged at.

    And where a seed was rolled back in this stage, until now: with what rate it goes on.
    """
    record = functools.partial(_record, job, stage, step, entry, dataset=results.TRAIN)
    at = job.monitor.diverged.get(entry.name)
    values = {"diverged": at} if at else job.monitor.means(entry.name)
    for name, value in values.items():
        yield record(metric=name, value=value, status="diverged" if at else "ok")
    for failed in job.monitor.rolled_back.get(entry.name, ()):
        if stage.first < failed <= step:
            to, scale = job.rollback(entry.name, failed)
            where = f"at step {failed} to step {to}"
            yield record(metric="rolled_back", condition=where, value=scale)


def _test_records(
    job: Job,
    stage: build.Stage,
    step: int,
    test: splits.TestSet,
    entry: vary.Entry,
    decided: evals.Decisions,
) -> Iterator[results.Record]:
    for measure in test.measures:
        for number in evals.MEASURES[measure](decided):
            fields = number._asdict()
            if entry.name in job.monitor.diverged:
                fields.update(value=None, count=None, status="diverged")
            yield _record(job, stage, step, entry, dataset=test.name, **fields)
