"""The records of a run on disk: which steps have them; written, and put back."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etils import epath

from jbias import checkpoint, results
from jbias import config as jc
from jbias.store import disk
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
    checkpoints = workdir / "checkpoints"
    for step in checkpoint.steps(checkpoints):
        if not written(workdir, step) and checkpoint.left(checkpoints, step):
            yield step


def written(workdir: epath.Path, step: int) -> bool:
    """Whether a step is evaluated, in every branch."""
    return all(path_of(folder, step).exists() for folder in _folders(workdir))


def all_written(workdir: epath.Path) -> list[int]:
    """The steps that are evaluated, in order."""
    paths = _folders(workdir)[0].glob("evals/*.jsonl")
    return [
        step for step in sorted(int(p.stem) for p in paths) if written(workdir, step)
    ]


def _folders(workdir: epath.Path) -> list[epath.Path]:
    """Where the records of a run are: its branches' folders, if its settings vary."""
    return sorted((workdir / "vary").glob("*")) or [workdir]


def is_valid(r: results.Record) -> bool:
    """Whether it is a seed's validation accuracy."""
    return (r.dataset, r.metric, r.status) == (results.VALID, "accuracy", "ok")


def write(
    job: Job, step: int, records: Sequence[results.Record], *, again: bool = True
) -> None:
    """Writes each branch's records; those that are there whole stay, unless `again`."""
    job.guard()
    for branch in job.branches if job.team.first else ():
        path = path_of(job.workdir / branch.folder, step)
        name = jc.run_name(branch.config)
        text = results.dumps(record for record in records if record.run == name)
        known = zlib.crc32(text.encode())
        if again or _sum(path) != known:
            with disk.writing(str(path)):
                results.write_text(path, text)
        job.sums[_named(job, path)] = known  # Only now: what is saved may rely on it.


def mend(job: Job, position: Callable[[int], dict[str, Any]]) -> None:
    """Puts records back that are not as they were written, from the step's checkpoint.

    `position` gives what stands beside a checkpoint; ValueError where there is none.
    """
    for name, held in [*job.sums.items()] if job.team.first else ():
        path = job.workdir / name
        found = _sum(path)
        if found == held:
            continue
        what = "is gone" if found is None else "is damaged"
        try:
            text = position(int(path.stem))["records"]
            records = results.loads(text, where=f"the checkpoint of step {path.stem}")
        # Of a step that went, and of a damaged one, orbax raises anything.
        except Exception as error:
            raise ValueError(
                f"results: {path} {what}, and no checkpoint holds its records; restore "
                "it, or begin anew in another --workdir: the numbers are the same"
            ) from error
        job.say(f"{path} {what}: written anew from the checkpoint of its step")
        write(job, int(path.stem), records, again=False)


def _named(job: Job, path: epath.Path) -> str:
    return path.relative_to(job.workdir).as_posix()


def _sum(path: epath.Path) -> int | None:
    """What a file's content is known by; None where there is none."""
    return zlib.crc32(path.read_bytes()) if path.exists() else None
