"""A run's evaluations: writing records, finding evaluated steps and damaged files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from jbias import run_spec, seals
from jbias.runs import checkpoints, checksums, results
from jbias.runtime import files


def records_path(workdir: epath.Path, step: int) -> epath.Path:
    """Return the path of a step's file of records."""
    return workdir / "evals" / f"{step}.jsonl"


class RecordStore:
    """The record files of a run, and the checksums of record files and other files.

    sums: checksums of the intact files of records and decisions, by name.
    facts: checksums of config.json and provenance.json, by name; empty before `add_facts`.
    branches: the run's branches (one, without config.vary); empty in a process that writes
    nothing.
    say: logs a line. check_lock: raises an error if this process lost the lock of the workdir.
    follower: True if this process evaluates a run that another process trains.

    Intact files of records are never overwritten: if a step is evaluated again, the files stay,
    and a checkpoint with other records is rejected.
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
            self.sums = _intact_sums(workdir)

    def add_facts(self) -> None:
        """Add the checksums of config.json and provenance.json to `facts`.

        The files are in the workdir and in the branches' folders, which must exist. Nothing
        is added without branches.
        """
        if not self._branches:
            return
        for folder in {"", *(branch.folder for branch in self._branches)}:
            for name in checksums.FACTS:
                path = self._workdir / folder / name
                checksum = checksums.checksum(path.read_bytes())
                self.facts[relative_name(self._workdir, path)] = checksum

    def write(
        self, step: int, records: Sequence[results.Record]
    ) -> Sequence[results.Record]:
        """Write the records of an evaluation to the branches' files.

        Returns the records that are then in the files, branch by branch: an intact file of an
        earlier evaluation, for example on other devices, is not replaced. Without branches,
        nothing is written, and `records` are returned.
        """
        self._check_lock()
        valid_records: list[results.Record] = [] if self._branches else [*records]
        follower_sums = {}
        if self._branches and not self._follower:
            follower_sums = checksums.read(self._workdir, checksums.FOLLOWER)
        for file in self._record_files(step, records):
            checksum = checksums.checksum(file.text.encode())
            old_checksum = self.sums.get(file.name, follower_sums.get(file.name))
            branch_records = file.records
            if old_checksum is None or checksums.damage(file.path, old_checksum):
                self._write_text(file.path, file.text)
                self.sums[file.name] = checksum
            elif not checksums.is_same(old_checksum, checksum):
                self._say(
                    f"{file.path}: was evaluated before, with other numbers (on other "
                    "devices or packages?); the first records are kept"
                )
                text = file.path.read_text("utf-8")
                branch_records = results.loads(text, where=str(file.path))
            valid_records += branch_records
        return valid_records

    def write_again(self, step: int, records: Sequence[results.Record]) -> None:
        """Write the records in a step's checkpoint to missing and damaged files.

        A line is logged for each file that is written, and `sums` is updated. ValueError if an
        intact file has other records.
        """
        self._check_lock()
        for file in self._record_files(step, records):
            checksum = checksums.checksum(file.text.encode())
            problem = checksums.damage(file.path, checksum)
            if problem:
                old_checksum = self.sums.get(file.name, checksum)
                if not checksums.damage(file.path, old_checksum):
                    raise seals.ForeignError(_contradiction(file.path, step))
                self._say(
                    f"{file.path} {problem}: written again from the checkpoint of its step"
                )
                self._write_text(file.path, file.text)
            # After the write, because a later save stores the checksums.
            self.sums[file.name] = checksum

    def _record_files(
        self, step: int, records: Sequence[results.Record]
    ) -> Iterator["_RecordFile"]:
        """Yield the _RecordFile of each branch, with the branch's records of a step."""
        for branch in self._branches:
            path = records_path(self._workdir / branch.folder, step)
            run = branch.fields["run"]
            branch_records = [record for record in records if record.run == run]
            yield _RecordFile(
                path=path,
                name=relative_name(self._workdir, path),
                records=branch_records,
                text=results.dumps(branch_records),
            )

    def _write_text(self, path: epath.Path, text: str) -> None:
        with files.translate_os_errors(str(path)):
            results.write_text(path, text)

    def sums_until(self, step: int) -> dict[str, Any]:
        """Return the checksums, by name, of the files of all steps up to `step`."""
        return {
            name: checksum
            for name, checksum in self.sums.items()
            if _step(name) <= step
        }

    def contradictions(self, info: Mapping[str, Any]) -> list[str]:
        """Return a line for each intact file of records that differs from a checkpoint's records.

        info: the checkpoint's info. Empty if all files agree.
        """
        checkpoint_sums = dict(info.get("sums") or {})
        text = info.get("records")
        if text:
            records = results.loads(text, where="the checkpoint's records")
            for file in self._record_files(info["step"], records):
                checksum = checksums.checksum(file.text.encode())
                checkpoint_sums.setdefault(file.name, checksum)
        return [
            f"{name}: other numbers != those with their checksum in {checksums.NAME}"
            for name, checksum in sorted(checkpoint_sums.items())
            if checksums.is_record(name)
            and name in self.sums
            and not checksums.is_same(checksum, self.sums[name])
        ]

    def restore(self, info_at: Callable[[int], dict[str, Any]]) -> None:
        """Rewrite damaged and missing files of records from the steps' checkpoints.

        info_at: returns the info of a step's checkpoint. ValueError if the checkpoint of a
        file's step cannot be read.
        """
        if not self._branches:
            return
        sums = {k: v for k, v in self.sums.items() if checksums.is_record(k)}
        for name, problem in checksums.find_damaged(self._workdir, sums):
            path, step = self._workdir / name, _step(name)
            try:
                text = info_at(step)["records"]
                records = results.loads(text, where=f"the checkpoint of step {step}")
            # Orbax raises any type of error for a missing or damaged checkpoint.
            except Exception as error:
                raise lost_error(path, problem) from error
            self.write_again(step, records)

    def seal(self, lost: Iterable[str] = ()) -> None:
        """Write the checksums of all files to the workdir.

        A follower writes `sums` to evaluate.sums.json; a run with branches writes `facts` and
        `sums` to sums.json; otherwise nothing is written.

        lost: names of files that could not be restored; a line is logged if some are still
        damaged.
        """
        self._check_lock()
        lost_sums = {name: self.sums[name] for name in lost}
        still_damaged = dict(checksums.find_damaged(self._workdir, lost_sums))
        if still_damaged:
            self._say(describe_lost(self._workdir, still_damaged))
        if self._follower:
            checksums.write(self._workdir, self.sums, checksums.FOLLOWER)
        elif self._branches:
            checksums.write(self._workdir, {**self.facts, **self.sums})


class _RecordFile(NamedTuple):
    """A branch's file of records of one step."""

    path: epath.Path
    name: str  # In the checksums.
    records: list[results.Record]
    text: str  # The records as JSON lines.


def _intact_sums(workdir: epath.Path) -> dict[str, Any]:
    """Return the checksums of a run's intact files of records and decisions, by name."""
    sums = {
        name: checksum
        for name, checksum in checksums.read(workdir).items()
        if not checksums.is_fact(name)
    }
    damaged = dict(checksums.find_damaged(workdir, sums))
    return {name: checksum for name, checksum in sums.items() if name not in damaged}


def _contradiction(path: epath.Path, step: int) -> str:
    """Return the message that a step's checkpoint and the file `path` have different records."""
    return (
        f"checkpoint: step {step} has other numbers than {path}, which matches its checksum "
        f"in {checksums.NAME}; move that checkpoint out of the workdir, and run the same "
        "command again"
    )


def validation_at(workdir: epath.Path, step: int) -> dict[str, float] | None:
    """Return the validation accuracies of a step, fractions by "<stage>/<member>".

    A member is a seed of a branch, named as by `run_spec.member_name`; seeds that diverged are
    left out. None unless every branch has records of the step.
    """
    if not is_evaluated(workdir, step):
        return None
    accuracies = {}
    for folder in results.branch_folders(workdir):
        path = records_path(folder, step)
        branch = "" if folder == workdir else folder.name
        for record in results.loads(path.read_text("utf-8"), where=str(path)):
            if is_valid(record):
                member = run_spec.member_name(record.seed, branch)
                accuracies[f"{record.stage}/{member}"] = record.value
    return accuracies


def pending(workdir: epath.Path) -> Iterator[int]:
    """Yield the saved steps that wait for an evaluation by another process, in order."""
    folder = workdir / "checkpoints"
    for step in checkpoints.steps(folder):
        is_done = is_evaluated(workdir, step)
        if not is_done and checkpoints.awaits_evaluation(folder, step):
            yield step


def is_evaluated(workdir: epath.Path, step: int) -> bool:
    """Return True if a step has records in every branch."""
    folders = results.branch_folders(workdir)
    return all(records_path(folder, step).exists() for folder in folders)


def is_valid(record: results.Record) -> bool:
    """Return True if a record is the validation accuracy of a seed that has not diverged."""
    fields = (record.dataset, record.metric, record.status)
    return fields == (results.VALID, "accuracy", "ok")


def lost_error(path: epath.Path, problem: str) -> ValueError:
    """Return the error for a file of records that no checkpoint can restore.

    problem: "is gone" or "is damaged".
    """
    return ValueError(
        f"results: {path} {problem}, and no checkpoint has its records; restore it, or "
        "train again in another --workdir, which gives the same numbers"
    )


def needs_restoring(
    workdir: epath.Path, *, decisions: bool, say: Callable[[str], None]
) -> bool:
    """Return True if a finished run has damaged files that its checkpoints can restore.

    decisions: config.run.decisions. say: logs a line about files that cannot be restored.
    ValueError for damaged records that no checkpoint has.
    """
    damaged_steps(workdir, say)  # Only logs files of `jbias evaluate --follow`.
    folder = workdir / "checkpoints"
    sums = checksums.read(workdir) or checkpoints.latest_info(folder).get("sums", {})
    lost, steps = find_damaged(workdir, sums, decisions=decisions)
    for name, problem in lost.items():
        if checksums.is_record(name) and _step(name) not in steps:
            raise lost_error(workdir / name, problem)
    if lost and not steps:
        say(describe_lost(workdir, lost))
    return bool(steps)


def damaged_steps(workdir: epath.Path, say: Callable[[str], None]) -> list[int]:
    """Return the steps whose damaged files `jbias evaluate --follow` can write again.

    Only files of `jbias evaluate --follow` count, and only steps with a checkpoint that was saved
    for an evaluation by another process. The steps are in ascending order.

    say: logs a line about damaged files of `jbias evaluate --follow`.
    """
    sums = checksums.read_folder(workdir, follower=True)
    lost, steps = find_damaged(workdir, sums, decisions=True)
    folder = workdir / "checkpoints"
    pending_steps = [
        step for step in steps if checkpoints.awaits_evaluation(folder, step)
    ]
    if lost:
        say(
            f"{workdir}: {checksums.summarize(lost.items())}; jbias evaluate --follow "
            f"writes files again whose checkpoint is kept: steps {pending_steps or 'none'}"
        )
    return pending_steps


def find_damaged(
    workdir: epath.Path, sums: checksums.Checksums, *, decisions: bool
) -> tuple[dict[str, str], list[int]]:
    """Return (problems, steps): the damaged files, and the steps that can be restored.

    Problems are "is gone" or "is damaged" by name of the file. Steps have damaged files and
    a checkpoint to restore them from.

    sums: checksums by name. decisions: config.run.decisions; without it files of decisions cannot
    be restored.
    """
    lost = dict(checksums.find_damaged(workdir, sums))
    kept_steps = checkpoints.steps(workdir / "checkpoints") if lost else []
    names = [name for name in lost if checksums.is_record(name) or decisions]
    return lost, sorted({*map(_step, names)} & {*kept_steps})


def describe_lost(workdir: epath.Path, lost: Mapping[str, str]) -> str:
    """Return a line about damaged files that cannot be restored; lost: problems by name."""
    return (
        f"{workdir}: {checksums.summarize(lost.items())}, and cannot be written again: no "
        "checkpoint of the step is kept, or config.run.decisions is off; the records are "
        "complete; restore the files from a copy, or train again in another --workdir"
    )


def _step(name: str) -> int:
    """Return the step of a file of records or decisions; -1 for other files."""
    stem = epath.Path(name).stem
    return int(stem) if stem.isdecimal() else -1


def relative_name(workdir: epath.Path, path: epath.Path) -> str:
    """Return the name of a file in the checksums: its path in the workdir."""
    return path.relative_to(workdir).as_posix()
