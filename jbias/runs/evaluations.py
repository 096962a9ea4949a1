"""A run's evaluations: writing them, which there are, and whose files are damaged."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from jbias import run_spec, seals
from jbias.runs import checkpoints, checksums, results
from jbias.runtime import files


def records_path(workdir: epath.Path, step: int) -> epath.Path:
    return workdir / "evals" / f"{step}.jsonl"


class RecordStore:
    """Writes a run's records, and seals the checksums of these and other files.

    sums: of records and decisions, by file, of those that stand as they were sealed;
    facts: of what says what the run is. A process that does not write has no branches.
    `follower`: in one that evaluates what another trains.

    Records that are as they were sealed are never written over: a checkpoint that says
    others is refused, and an evaluation that is made again leaves them as they are.
    """

    def __init__(
        self,
        workdir: epath.Path,
        branches: Sequence[run_spec.Branch],
        say: Callable[[str], None],
        *,
        check_lock: Callable[[], None] = lambda: None,
        follower: bool = False,
    ):
        self._workdir, self._say, self._check_lock = workdir, say, check_lock
        self._branches, self._follower = branches, follower
        self.facts: dict[str, Any] = {}
        self.sums: dict[str, Any] = {}
        if follower:
            self.sums = checksums.read(workdir, checksums.FOLLOWER)
        elif branches:
            self.sums = _standing(workdir)

    def add_facts(self) -> None:
        """Takes the sums of what says what the run is, as it stands there."""
        folders = {"", *(branch.folder for branch in self._branches)}
        for folder in folders if self._branches else ():
            for path in (self._workdir / folder / name for name in checksums.FACTS):
                found = checksums.checksum(path.read_bytes())
                self.facts[relative_name(self._workdir, path)] = found

    def write(
        self, step: int, records: Sequence[results.Record]
    ) -> Sequence[results.Record]:
        """Write each branch's records of an evaluation; return the records that stand.

        A file that is as it was sealed stays: where a start before this one evaluated the
        step, on other devices say, the numbers that were seen first count.
        """
        self._check_lock()
        standing: list[results.Record] = [] if self._branches else [*records]
        elsewhere = {}  # Sums of what a follower evaluated.
        if self._branches and not self._follower:
            elsewhere = checksums.read(self._workdir, checksums.FOLLOWER)
        for branch, path, name, text in self._texts(step, records):
            sum_ = checksums.checksum(text.encode())
            sealed = self.sums.get(name, elsewhere.get(name))
            own = [record for record in records if record.run == branch.fields["run"]]
            if sealed is None or checksums.damage(path, sealed):
                self._write_text(path, text)
                self.sums[name] = sum_
            elif not checksums.is_same(sealed, sum_):
                self._say(
                    f"{path}: was evaluated before, with other numbers (on other devices "
                    "or packages?); the records stand as they were sealed"
                )
                own = results.loads(path.read_text("utf-8"), where=str(path))
            standing += own
        return standing

    def write_again(self, step: int, records: Sequence[results.Record]) -> None:
        """Write records of a step's checkpoint where the files are gone or damaged.

        ValueError where a file is as it was sealed, and says other numbers.
        """
        self._check_lock()
        for _, path, name, text in self._texts(step, records):
            sum_ = checksums.checksum(text.encode())
            if damage := checksums.damage(path, sum_):
                sealed = self.sums.get(name, sum_)
                if not checksums.damage(path, sealed):
                    raise seals.ForeignError(_contradiction(path, step))
                then = "written anew from the checkpoint of its step"
                self._say(f"{path} {damage}: {then}")
                self._write_text(path, text)
            # Only now: what is saved may rely on it.
            self.sums[name] = sum_

    def _texts(
        self, step: int, records: Sequence[results.Record]
    ) -> Iterator[tuple[run_spec.Branch, epath.Path, str, str]]:
        """Yield each branch, its file of the step, how sums call the file, its content."""
        for branch in self._branches:
            path = records_path(self._workdir / branch.folder, step)
            run = branch.fields["run"]
            text = results.dumps(record for record in records if record.run == run)
            yield branch, path, relative_name(self._workdir, path), text

    def _write_text(self, path: epath.Path, text: str) -> None:
        with files.translate_os_errors(str(path)):
            results.write_text(path, text)

    def sums_until(self, step: int) -> dict[str, Any]:
        """Return the sums of the files of steps up to this one, for its checkpoint."""
        return {name: sum_ for name, sum_ in self.sums.items() if _step(name) <= step}

    def contradictions(self, info: Mapping[str, Any]) -> list[str]:
        """Return the records of which a checkpoint says others than those sealed here.

        `info` is what stands beside its states.
        """
        claimed = dict(info.get("sums") or {})
        if text := info.get("records"):
            step, where = info["step"], "the checkpoint's records"
            for _, _, name, own in self._texts(step, results.loads(text, where=where)):
                claimed.setdefault(name, checksums.checksum(own.encode()))
        return [
            f"{name}: other numbers != those that are as sealed in {checksums.NAME}"
            for name, sum_ in sorted(claimed.items())
            if checksums.is_record(name)
            and name in self.sums
            and not checksums.is_same(sum_, self.sums[name])
        ]

    def restore(self, info_at: Callable[[int], dict[str, Any]]) -> None:
        """Puts records back that are not as they were written, from the step's checkpoint.

        `info_at` gives what stands beside a checkpoint; ValueError where there is none.
        """
        held = {k: v for k, v in self.sums.items() if checksums.is_record(k)}
        damaged = checksums.find_damaged(self._workdir, held)
        for name, what in damaged if self._branches else ():
            path, step = self._workdir / name, _step(name)
            try:
                text = info_at(step)["records"]
                records = results.loads(text, where=f"the checkpoint of step {step}")
            # Of a step that went, and of a damaged one, orbax raises anything.
            except Exception as error:
                raise lost_error(path, what) from error
            self.write_again(step, records)

    def seal(self, lost: Iterable[str] = ()) -> None:
        """Seals what is written; tells which of the `lost` files still are."""
        self._check_lock()
        held = {name: self.sums[name] for name in lost}
        if still := dict(checksums.find_damaged(self._workdir, held)):
            self._say(describe_lost(self._workdir, still))
        if self._follower:
            checksums.write(self._workdir, self.sums, checksums.FOLLOWER)
        elif self._branches:
            checksums.write(self._workdir, {**self.facts, **self.sums})


def _standing(workdir: epath.Path) -> dict[str, Any]:
    """Return the sums of the records and decisions that are as they were sealed."""
    sums = checksums.read(workdir)
    sealed = {name: sum_ for name, sum_ in sums.items() if not checksums.is_fact(name)}
    damaged = dict(checksums.find_damaged(workdir, sealed))
    return {name: sum_ for name, sum_ in sealed.items() if name not in damaged}


def _contradiction(path: epath.Path, step: int) -> str:
    return (
        f"checkpoint: step {step} says other numbers than {path}, which is as it was "
        f"sealed in {checksums.NAME}; move that checkpoint out of the workdir, and run the "
        "same command again"
    )


def validation_at(workdir: epath.Path, step: int) -> dict[str, float] | None:
    """The validation accuracies of a step by "stage/entry"; None before it is evaluated."""
    if not is_evaluated(workdir, step):
        return None
    found = {}
    for folder in results.branch_folders(workdir):
        path = records_path(folder, step)
        branch = "" if folder == workdir else folder.name
        for r in filter(
            is_valid, results.loads(path.read_text("utf-8"), where=str(path))
        ):
            found[f"{r.stage}/{run_spec.member_name(r.seed, branch)}"] = r.value
    return found


def pending(workdir: epath.Path) -> Iterator[int]:
    """The steps saved for another process to evaluate, while nobody has, in order."""
    folder = workdir / "checkpoints"
    for step in checkpoints.steps(folder):
        done = is_evaluated(workdir, step)
        if not done and checkpoints.awaits_evaluation(folder, step):
            yield step


def is_evaluated(workdir: epath.Path, step: int) -> bool:
    """Whether a step is evaluated, in every branch."""
    folders = results.branch_folders(workdir)
    return all(records_path(folder, step).exists() for folder in folders)


def is_valid(r: results.Record) -> bool:
    """Whether it is a seed's validation accuracy."""
    return (r.dataset, r.metric, r.status) == (results.VALID, "accuracy", "ok")


def lost_error(path: epath.Path, what: str) -> ValueError:
    return ValueError(
        f"results: {path} {what}, and no checkpoint holds its records; restore "
        "it, or begin anew in another --workdir: the numbers are the same"
    )


def needs_restoring(
    workdir: epath.Path, run: Mapping[str, Any], say: Callable[[str], None]
) -> bool:
    """Whether a run that is done can make files anew; tells of those that are lost.

    ValueError for records that no checkpoint holds.
    """
    damaged_steps(workdir, say)  # Not by this process: it says so.
    folder = workdir / "checkpoints"
    held = checksums.read(workdir) or checkpoints.latest_info(folder).get("sums", {})
    lost, steps = find_damaged(workdir, held, run)
    for name, what in lost.items():
        if checksums.is_record(name) and _step(name) not in steps:
            raise lost_error(workdir / name, what)
    if lost and not steps:
        say(describe_lost(workdir, lost))
    return bool(steps)


def damaged_steps(workdir: epath.Path, say: Callable[[str], None]) -> list[int]:
    """The steps whose files are not as a follower wrote them, and can be made anew by it."""
    held = checksums.read_folder(workdir, follower=True)
    lost, steps = find_damaged(workdir, held, {"decisions": True})
    folder = workdir / "checkpoints"
    again = [one for one in steps if checkpoints.awaits_evaluation(folder, one)]
    if lost:
        then = "jbias evaluate --follow makes anew what a checkpoint is kept of: steps"
        say(f"{workdir}: {checksums.summarize(lost.items())}; {then} {again or 'none'}")
    return again


def find_damaged(
    workdir: epath.Path, held: checksums.Checksums, run: Mapping[str, Any]
) -> tuple[dict[str, str], list[int]]:
    """The files that are not as sealed, and the steps whose files can be made anew."""
    lost = dict(checksums.find_damaged(workdir, held))
    kept = checkpoints.steps(workdir / "checkpoints") if lost else []
    names = [name for name in lost if checksums.is_record(name) or run["decisions"]]
    return lost, sorted({*map(_step, names)} & {*kept})


def describe_lost(workdir: epath.Path, lost: Mapping[str, str]) -> str:
    return (
        f"{workdir}: {checksums.summarize(lost.items())}, not to be made anew: no "
        "checkpoint of the step is kept, or config.run.decisions is off; the records "
        "stand; restore from a copy, or train again in another --workdir"
    )


def _step(name: str) -> int:
    """The step that a file of records or decisions is of; -1 for others."""
    stem = epath.Path(name).stem
    return int(stem) if stem.isdecimal() else -1


def relative_name(workdir: epath.Path, path: epath.Path) -> str:
    """How the sums call a file."""
    return path.relative_to(workdir).as_posix()
