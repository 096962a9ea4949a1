"""Evaluates all seeds on all sets, and writes what came out as records."""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from jbias import build, checkpoint, evals, feed, mesh, results, sets
from jbias import config as jc
from jbias import step as train_step
from jbias.evals import decisions, predict
from jbias.job import Job


def evaluate(job: Job, stage: build.Stage, states: tuple, step: int) -> None:
    """Measures every seed on every set; leaves records and `valid` in the job."""
    began = time.monotonic()
    variables = tuple(train_step.net_of(state) for state in states)
    records = list(_train_records(job, stage, step))
    said, number = began, 0
    for test, predicted in _predicted(job, stage, variables):
        by_seed = {
            seed: evals.Decisions(one, test.columns)
            for seed, one in zip(job.seeds, predicted)
        }
        records += _test_records(job, stage, step, test, by_seed)
        if job.config["run"]["decisions"]:
            name = f"decisions/{test.name}/{step}.parquet"
            decisions.write(job.workdir / name, by_seed)
        number += 1
        if time.monotonic() - said > job.config["run"]["log_seconds"]:
            said = time.monotonic()
            job.say(f"evaluated {test.name}, {number} of {len(job.tests)} sets ...")
    if number < len(job.tests):
        return  # Asked to stop; this evaluation is made again on resuming.
    results.write(records_path(job.workdir, step), records)
    job.records, job.evaluated = records, step
    job.valid = {str(r.seed): r.value for r in records if _is_valid(r)}
    job.watch.reset()
    job.note = f" valid {100 * mean(job.valid.values()):.1f}"
    job.say(
        f"step {step}/{job.stages[-1].last}: {_summary(records)} "
        f"({time.monotonic() - began:.1f} s)"
    )


def _predicted(
    job: Job, stage: build.Stage, variables: tuple
) -> Iterator[tuple[sets.TestSet, list]]:
    """The decisions of all seeds, set by set; ends early where the job is to stop.

    Sets of one size share batches, so that only their last one is padded.
    """
    run = job.config["run"]
    reading = build.reading(run["loading"], job.devices)
    for _, group in itertools.groupby(job.tests, lambda test: test.side):
        tests = list(group)
        rules = [
            predict.Rule(
                len(test.images),
                mesh.replicate(test.matrix, job.devices),
                test.aggregate,
            )
            for test in tests
        ]
        images = (test.images for test in tests)
        batches = (
            mesh.split(one, job.devices)
            for one in feed.batches(images, run["eval_batch"], reading)
        )
        yield from zip(
            tests,
            predict.predict(
                stage.score, variables, batches, rules, halt=lambda: bool(job.stop)
            ),
        )


def valid_at(workdir: epath.Path, step: int) -> dict[str, float] | None:
    """The validation accuracies of a step by "stage/seed"; None before it is evaluated."""
    path = records_path(workdir, step)
    if not path.exists():
        return None
    records = results.loads(path.read_text(), where=str(path))
    return {f"{r.stage}/{r.seed}": r.value for r in records if _is_valid(r)}


def left(workdir: epath.Path) -> Iterator[int]:
    """The steps saved for another process to evaluate, while nobody has, in order."""
    checkpoints = workdir / "checkpoints"
    for step in checkpoint.steps(checkpoints):
        evaluated = records_path(workdir, step).exists()
        if not evaluated and checkpoint.left(checkpoints, step):
            yield step


def _is_valid(r: results.Record) -> bool:
    return (r.dataset, r.metric, r.status) == (results.VALID, "accuracy", "ok")


def _summary(records: list[results.Record]) -> str:
    """Accuracies in percent and shape biases, each a mean over the finite seeds."""
    cells = {}
    for r in records:
        if r.dataset != results.TRAIN and r.value is not None:
            cells.setdefault((r.dataset, r.metric), []).append(r.value)
    return ", ".join(
        f"{name} {100 * mean(values):.1f}"
        if metric == "accuracy"
        else f"{metric.replace('_', ' ')} {mean(values):.2f}"
        for (name, metric), values in cells.items()
    )


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def _record(job: Job, stage: build.Stage, step: int, **fields: Any) -> results.Record:
    config = job.config
    epochs = [(s.last - s.first) / s.order.steps_per_epoch for s in job.stages]
    here = (step - stage.first) / stage.order.steps_per_epoch
    return results.Record(
        run=job.name,
        algorithm=jc.algorithm(config),
        variant=config["variant"],
        model=config["model"]["name"],
        train_data=jc.train_data(config),
        stage=stage.number,
        step=step,
        epoch=round(sum(epochs[: stage.number]) + here, 4),
        **{"condition": "", **fields},
    )


def _train_records(job: Job, stage: build.Stage, step: int) -> Iterator[results.Record]:
    """Mean losses since the evaluation before, or the step a seed diverged at."""
    for seed in job.seeds:
        common = {"seed": seed, "dataset": results.TRAIN}
        if seed in job.watch.diverged:
            yield _record(
                job,
                stage,
                step,
                **common,
                metric="diverged",
                value=job.watch.diverged[seed],
                status="diverged",
            )
            continue
        for name, value in job.watch.means(seed).items():
            yield _record(job, stage, step, **common, metric=name, value=value)


def _test_records(
    job: Job, stage: build.Stage, step: int, test: sets.TestSet, by_seed: Mapping
) -> Iterator[results.Record]:
    for seed, decided in by_seed.items():
        lost = seed in job.watch.diverged
        for measure in test.measures:
            for number in evals.MEASURES[measure](decided):
                fields = number._asdict()
                if lost:
                    fields.update(value=None, count=None, status="diverged")
                yield _record(job, stage, step, seed=seed, dataset=test.name, **fields)


def records_path(workdir: epath.Path, step: int) -> epath.Path:
    return workdir / "evals" / f"{step}.jsonl"
