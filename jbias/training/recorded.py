"""The records of a run on disk: which steps have them; written, and put back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from jbias import config as jc
from jbias.runs import checkpoints, checksums, results
from jbias.runtime import files
from jbias.training import vary
from jbias.training.job import Job


def path_of(workdir: epath.Path, step: int) -> epath.Path:
    return workdir / "evals" / f"{step}.jsonl"


def valid_at(workdir: epath.Path, step: int) -> dict[str, float] | None:
    """The validation accuracies of a step by "stage/entry"; None before it is evaluated."""
    if not written(workdir, step):
        return None
    found = {}
    for folder in _folders(workdir):
        path = path_of(folder, step)
        for r in results.loads(path.read_text(), where=str(path)):
            if is_valid(r):
                name = vary.name(r.seed, "" if folder == workdir else folder.name)
                found[f"{r.stage}/{name}"] = r.value
    return found


def left(workdir: epath.Path) -> Iterator[int]:
    """The steps saved for another process to evaluate, while nobody has, in order."""
    folder = workdir / "checkpoints"
    for step in checkpoints.steps(folder):
        if not written(workdir, step) and checkpoints.awaits_evaluation(folder, step):
            yield step


def written(workdir: epath.Path, step: int) -> bool:
    """Whether a step is evaluated, in every branch."""
    return all(path_of(folder, step).exists() for folder in _folders(workdir))


def all_written(workdir: epath.Path) -> list[int]:
    """The steps that are evaluated, in order."""
    paths = _folders(workdir)[0].glob("evals/*.jsonl")
    steps = sorted(int(path.stem) for path in paths)
    return [step for step in steps if written(workdir, step)]


def _folders(workdir: epath.Path) -> list[epath.Path]:
    """Where the records of a run are: its branches' folders, if its settings vary."""
    return sorted((workdir / "vary").glob("*")) or [workdir]


def is_valid(r: results.Record) -> bool:
    """Whether it is a seed's validation accuracy."""
    return (r.dataset, r.metric, r.status) == (results.VALID, "accuracy", "ok")


def write(
    job: Job, step: int, records: Sequence[results.Record], *, again: bool = True
) -> None:
    """Writes each branch's records; those that are there whole stay, unless `again`.

    Of others it says so: they come from the checkpoint of their step.
    """
    job.check_lock()
    for branch in job.branches if job.team.is_main else ():
        path = path_of(job.workdir / branch.folder, step)
        name = jc.run_name(branch.config)
        text = results.dumps(record for record in records if record.run == name)
        known = checksums.checksum(text.encode())
        what = "" if again else checksums.damage(path, known)
        if what:
            job.log(f"{path} {what}: written anew from the checkpoint of its step")
        if again or what:
            with files.translate_os_errors(str(path)):
                results.write_text(path, text)
        # Only now: what is saved may rely on it.
        job.sums[named(job.workdir, path)] = known


def mend(job: Job, position: Callable[[int], dict[str, Any]]) -> None:
    """Puts records back that are not as they were written, from the step's checkpoint.

    `position` gives what stands beside a checkpoint; ValueError where there is none.
    """
    held = {k: v for k, v in job.sums.items() if checksums.is_record(k)}
    for name, what in (
        checksums.find_damaged(job.workdir, held) if job.team.is_main else ()
    ):
        path = job.workdir / name
        try:
            text = position(int(path.stem))["records"]
            records = results.loads(text, where=f"the checkpoint of step {path.stem}")
        # Of a step that went, and of a damaged one, orbax raises anything.
        except Exception as error:
            raise _lost(path, what) from error
        write(job, int(path.stem), records, again=False)


def _lost(path: epath.Path, what: str) -> ValueError:
    return ValueError(
        f"results: {path} {what}, and no checkpoint holds its records; restore "
        "it, or begin anew in another --workdir: the numbers are the same"
    )


def to_mend(
    workdir: epath.Path, run: Mapping[str, Any], say: Callable[[str], None]
) -> bool:
    """Whether a run that is done can make files anew; tells of those that are lost.

    ValueError for records that no checkpoint holds.
    """
    to_evaluate(workdir, say)  # Not by this process: it says so.
    folder = workdir / "checkpoints"
    held = checksums.read(workdir) or checkpoints.latest_info(folder).get("sums", {})
    lost, steps = astray(workdir, held, run)
    for name, what in lost.items():
        if checksums.is_record(name) and _step(name) not in steps:
            raise _lost(workdir / name, what)
    if lost and not steps:
        say(_told_lost(workdir, lost))
    return bool(steps)


def to_evaluate(workdir: epath.Path, say: Callable[[str], None]) -> list[int]:
    """The steps whose files are not as a follower wrote them, and can be made anew by it."""
    held = checksums.read_folder(workdir, follower=True)
    lost, steps = astray(workdir, held, {"decisions": True})
    again = [
        one
        for one in steps
        if checkpoints.awaits_evaluation(workdir / "checkpoints", one)
    ]
    if lost:
        then = "jbias.evaluate --follow makes anew what a checkpoint is kept of: steps"
        say(f"{workdir}: {checksums.summarize(lost.items())}; {then} {again or 'none'}")
    return again


def astray(
    workdir: epath.Path, held: checksums.Checksums, run: Mapping[str, Any]
) -> tuple[dict[str, str], list[int]]:
    """The files that are not as sealed, and the steps whose files can be made anew."""
    lost = dict(checksums.find_damaged(workdir, held))
    kept = checkpoints.steps(workdir / "checkpoints") if lost else []
    made = (
        _step(name) for name in lost if checksums.is_record(name) or run["decisions"]
    )
    return lost, sorted({*made} & {*kept})


def seal(job: Job, lost: Iterable[str] = ()) -> None:
    """Seals what is written; tells which of the `lost` files still are."""
    job.check_lock()
    if still := dict(
        checksums.find_damaged(job.workdir, {k: job.sums[k] for k in lost})
    ):
        job.log(_told_lost(job.workdir, still))
    if job.manager is not None:
        checksums.write(job.workdir, {**job.facts, **job.sums})
    elif job.team.is_main:
        checksums.write(job.workdir, job.sums, checksums.FOLLOWER)


def _told_lost(workdir: epath.Path, lost: Mapping[str, str]) -> str:
    return (
        f"{workdir}: {checksums.summarize(lost.items())}, not to be made anew: no checkpoint of the "
        "step is kept, or config.run.decisions is off; the records stand; restore from a "
        "copy, or train again in another --workdir"
    )


def _step(name: str) -> int:
    """The step that a file of records or decisions is of; -1 for others."""
    stem = epath.Path(name).stem
    return int(stem) if stem.isdecimal() else -1


def named(workdir: epath.Path, path: epath.Path) -> str:
    """How the sums call a file."""
    return path.relative_to(workdir).as_posix()
