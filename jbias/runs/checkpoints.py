"""Checkpoints of a run: the training states of all seeds, with checksums.

A checkpoint has the states, and an `info`: a JSON object with the position in training, the
records of the step and their checksums. The run keeps the checkpoints of the latest `keep` steps,
of each seed's best step by validation accuracy, and of steps that another process has yet to
evaluate. Checksums are computed when a checkpoint is saved, and compared when it is read. A damaged
checkpoint is moved aside, and the previous checkpoint is used.
"""

import contextlib
import errno
import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from etils import epath
from jaxtyping import PyTree

from jbias import seals
from jbias.models import trained
from jbias.runtime import checkpoint_files, files, heap, messages, processes

# Returns the differences between a checkpoint's run, by its info, and this run.
Differences = Callable[[dict[str, Any]], list[str]]
# Returns the validation accuracies at a step, by "stage/seed"; None if not yet evaluated.
ValidAt = Callable[[int], dict[str, float] | None]
Template = Callable[[int], tuple]  # Returns the shapes of the states of a stage.


class Checkpoint(NamedTuple):
    """The content of a checkpoint.

    states: the states of the seeds of all branches. info: see the module.
    """

    states: tuple
    info: dict[str, Any]


def latest_and_best(
    saved: Sequence[checkpoint_files.Saved], *, keep: int, valid_at: ValidAt
) -> list[bool]:
    """Return True for the latest steps, and for each seed's best step in each stage.

    Best is the first maximum of the validation accuracy. Metrics are named "stage/seed". A
    step without metrics is evaluated by another process: its checkpoint is kept until `valid_at`
    returns its metrics.

    saved: the checkpoints, in order of their steps. keep: number of latest steps.
    """
    kept_indices = set(range(len(saved))[-keep:])
    best = {}
    for i, checkpoint in enumerate(saved):
        metrics = checkpoint.metrics
        if metrics == {}:
            metrics = valid_at(checkpoint.step)
            if metrics is None:
                kept_indices.add(i)
        for seed, accuracy in (metrics or {}).items():
            if seed not in best or accuracy > best[seed][0]:
                best[seed] = (accuracy, i)
    kept_indices |= {i for _, i in best.values()}
    return [i in kept_indices for i in range(len(saved))]


def _repair_metrics(directory: epath.Path) -> None:
    """Rewrite damaged metrics files of the checkpoints in a folder, from their infos.

    Orbax fails to open a folder that has a damaged metrics file. The info of a checkpoint
    has the same metrics, with a checksum. If the info is damaged, too, the new file is {}.
    """
    for path in directory.glob("*/metrics/metrics"):
        checkpoint = path.parent.parent
        if not checkpoint.name.isdecimal():
            continue  # A save that a kill interrupted.
        expected, is_valid = (read_info(checkpoint) or {}).get("valid"), False
        with contextlib.suppress(ValueError):
            metrics = files.read_json(path, dict, "")
            is_numeric = all(isinstance(x, float | int) for x in metrics.values())
            is_valid = is_numeric and expected in (None, metrics)
        if not is_valid:
            files.write(path, json.dumps(expected or {}))


def read_info(checkpoint: epath.Path) -> dict[str, Any] | None:
    """Return the info in a checkpoint's folder; None if the info is missing or damaged."""
    try:
        path = checkpoint_files.info_file(checkpoint)
        return verified_info(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


# Error codes for files that are missing or of another type.
_FILE_ERRORS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EINVAL,
)


class CheckpointStore:
    """A run's checkpoints; process 0 reads and writes files, and sends states to other processes.

    step: step of the checkpoint that was saved or read last; -1 without such a checkpoint.
    complete: True if that checkpoint has the records of the step's evaluation.
    saving: True while a save is in progress.
    """

    def __init__(
        self,
        directory: epath.PathLike,
        team: processes.ProcessGroup = processes.ALONE,
        *,
        keep: int = 2,
        valid_at: ValidAt = lambda step: None,
        seal: Mapping[str, Any] | None = None,
        differences: Differences = lambda info: [],
    ):
        """Open the checkpoints of a run in a folder, which is created if needed.

        Only process 0 opens the folder. team: the processes of the run. keep: number of latest
        checkpoints to keep; ValueError for fewer than 2, because one checkpoint may be damaged.
        valid_at: returns the accuracies of steps that another process evaluates.
        seal: identity of the run, stored in each checkpoint.
        differences: returns the differences between a checkpoint's run and this run.
        """
        if keep < 2:
            raise ValueError(f"config.run.keep: must be at least 2, got {keep}")
        self.directory = files.resolve(directory)
        self.step, self.complete, self.saving = -1, True, False
        self._team, self._seal, self._differences = team, seal, differences
        if not team.is_main:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        _repair_metrics(self.directory)

        def preserve(saved: Sequence[checkpoint_files.Saved]) -> list[bool]:
            return latest_and_best(saved, keep=keep, valid_at=valid_at)

        self.folder = checkpoint_files.open_for_writing(self.directory, preserve)
        self._finish_replacements()

    def _finish_replacements(self) -> None:
        """Finish calls of `_replace` that a kill interrupted, and delete the folder `replaced`.

        An old checkpoint in that folder is moved back unless the new checkpoint is complete.
        """
        replaced = self.directory.parent / "replaced"
        if not replaced.exists():
            return
        for old_checkpoint in replaced.iterdir():
            checkpoint = self.directory / old_checkpoint.name
            if not files.is_saved(checkpoint):
                checkpoint.rmtree(missing_ok=True)
                files.move(old_checkpoint, checkpoint)
        replaced.rmtree()
        self.folder.reload()

    def save(
        self, step: int, states: tuple, info: dict[str, Any], valid: dict | None = None
    ) -> None:
        """Save states and info of a step in the background.

        states: states of the seeds of all branches. info: a JSON object, see the module. valid: the
        validation accuracies of the step by "stage/seed"; None if the step was not evaluated, {} if
        another process evaluates it.
        The latest step may be saved again; the old checkpoint is then deleted once the new
        checkpoint is complete. OSError if the disk fails; earlier checkpoints stay. ValueError if
        the processes have different weights.
        """
        self.saving, sums = True, [None]
        if self._team.count > 1:
            sums = self._team.all_gather("a checkpoint", states_checksum(states))
        if len(set(sums)) > 1:
            raise ValueError(
                f"processes: their weights differ at step {step} (sums {sums}), though all "
                "take the same steps; use machines, devices and packages of one kind, and "
                f"resume from the checkpoint of step {max(self.step, 0)}"
            )
        if self._team.is_main:
            write = self._replace if step == self.step else self._write
            full_info = {**info, "valid": valid}
            if self._seal is not None:
                full_info[seals.KEY] = self._seal
            write(step, states, info=full_info, valid=valid, checksum=sums[0])
        self.step, self.complete, self.saving = step, bool(info.get("records")), False

    def _write(
        self,
        step: int,
        states: tuple,
        *,
        info: dict[str, Any],
        valid: dict | None,
        checksum: int | None,
    ) -> None:
        """Start to save a step in the background. Arguments: see `save`.

        checksum: checksum of the states; None to compute it. OSError if the disk has too little
        space.
        """
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(states))
        free = files.free_bytes(self.directory)
        # Checked first, so that no checkpoint is half written.
        if free is not None and free < needed:
            needed_size, free_size = files.format_sizes(needed, free)
            raise OSError(
                f"checkpoint: cannot save step {step} in {self.directory}: No space left "
                f"on device: {needed_size} needed, {free_size} free; " + files.REMEDY
            )
        stored = with_checksums(states, info, checksum=checksum)
        stored["nets"] = trained.nets_checksums(trained.nets_of(states))
        with _in_one_line(self.directory, step):
            is_saved = self.folder.save(step, states, info=stored, metrics=valid)
        assert is_saved, f"checkpoint: step {step} is not later than those saved"

    def _replace(
        self,
        step: int,
        states: tuple,
        *,
        info: dict[str, Any],
        valid: dict | None,
        checksum: int | None,
    ) -> None:
        """Save a step again, wait until it is complete, and delete its old checkpoint.

        Arguments: see `_write`.
        """
        old_checkpoint = self.directory.parent / "replaced" / str(step)
        old_checkpoint.parent.mkdir(exist_ok=True)
        files.move(self.directory / str(step), old_checkpoint)
        self.folder.reload()
        self._write(step, states, info=info, valid=valid, checksum=checksum)
        self.wait()
        old_checkpoint.parent.rmtree()

    def wait(self) -> None:
        """Wait until all saves are complete on the disk."""
        self._in_main(lambda: self.folder.wait())

    def _in_main(self, act: Callable[[], None]) -> None:
        """Call `act` in process 0 only; an error becomes an OSError of one line."""
        if self._team.is_main:
            with _in_one_line(self.directory, max(self.folder.steps(), default=None)):
                act()

    def close(self) -> None:
        """Wait until all saves are complete on the disk, and close the folder."""
        try:
            self.wait()
        finally:
            self._in_main(lambda: self.folder.close())

    def info(self, step: int) -> dict[str, Any]:
        """Return the info of a step's checkpoint; raise any error of the read."""
        return _info(self.folder, step)[1]

    def restore(
        self, template: Template, say: Callable[[str], None]
    ) -> Checkpoint | None:
        """Return the latest complete checkpoint; None if there are no checkpoints.

        The states are numpy arrays. In processes other than 0, the info has only a bool for
        the records, and no checksums. Damaged checkpoints are moved to the folder `damaged` of
        the workdir.

        template: returns the shapes of the states of `info["stage"]`; its errors are raised.
        say: logs a line about each damaged checkpoint.
        ValueError if a checkpoint is of another run, or no checkpoint can be read.
        """
        checkpoint = self._share(template, lambda: self._latest(template, say))
        if checkpoint:
            self.step = checkpoint.info["step"]
            self.complete = bool(checkpoint.info.get("records"))
        return checkpoint

    def restore_step(self, step: int, template: Template) -> Checkpoint | None:
        """Return the checkpoint of one step, as `restore` does; None if it is missing or damaged.

        Damaged checkpoints are not moved, and `step` and `complete` do not change. The run of the
        checkpoint is not compared.

        template: returns the shapes of the states of a stage. In process 0, its errors count as
        damage (None), such as an IndexError for an unknown stage; MACHINE_ERRORS are raised.
        ValueError if the states have other shapes or dtypes; OSError if the disk fails.
        """

        def read_step() -> Checkpoint:
            stored, info = _info(self.folder, step)
            states = _states(self.folder, step, template(info["stage"]), stored)
            return Checkpoint(states, info)

        return self._share(template, lambda: _unless_damaged({}, step, read_step))

    def _share(
        self, template: Template, read_checkpoint: Callable[[], Checkpoint | None]
    ) -> Checkpoint | None:
        """Return, in all processes, the checkpoint that process 0 reads; None without a checkpoint.

        In processes other than 0, the info is shortened, as `restore` describes. template: see
        `restore`. read_checkpoint: called in process 0 only.
        """
        if self._team.count == 1:
            return read_checkpoint()
        states, info = None, None
        if self._team.is_main:
            states, info = read_checkpoint() or (None, None)
        # Records are long, and only process 0 needs them.
        short_info = info and {**info, "records": bool(info["records"]), "sums": {}}
        short_info = self._team.broadcast("the checkpoint", short_info)
        if short_info is None:
            return None
        if states is None:
            shapes = template(short_info["stage"])
            states = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        states = tuple(map(self._team.broadcast_tree, states))
        return Checkpoint(states, info or short_info)

    def _latest(
        self, template: Template, say: Callable[[str], None]
    ) -> Checkpoint | None:
        """Return the latest complete checkpoint; None if there are no checkpoints.

        Process 0 only. ValueError if checkpoints exist but none can be read, or if they are of
        another run or model. Arguments: see `restore`.

        Damaged checkpoints, and folders whose number is not their step, are moved aside,
        but only if there is a complete checkpoint.
        """
        self._refuse_foreign()
        misnamed = self._misnamed()
        damaged, folder = {}, self.folder
        for step in sorted({*folder.steps()} - misnamed.keys(), reverse=True):
            stored_and_info = _unless_damaged(
                damaged, step, lambda step=step: _info(folder, step)
            )
            if not stored_and_info:
                continue
            stored, info = stored_and_info
            shapes = template(info["stage"])
            try:
                states = _unless_damaged(
                    damaged,
                    step,
                    lambda step=step, shapes=shapes, stored=stored: _states(
                        folder, step, shapes, stored
                    ),
                )
            except _Mismatch as error:
                raise ValueError(
                    f"checkpoint: {self.directory / str(step)} holds another model "
                    f"({error}); use another workdir"
                ) from error
            if step in damaged:
                continue
            for number, reason in damaged.items():
                self._move_aside(number)
                say(
                    f"checkpoint: step {number} is damaged ({reason}); moved to damaged/, "
                    f"falling back to step {step}"
                )
            for number, stored_step in misnamed.items():
                say(self._move_misnamed(number, stored_step))
            return Checkpoint(states, info)
        if misnamed:
            number, stored_step = max(misnamed.items())
            raise ValueError(
                f"checkpoint: {self.directory / str(number)} holds step {stored_step}: a "
                f"folder renamed or copied; rename it back to {stored_step}, and run the "
                "same command again"
            )
        if damaged:
            step, reason = max(damaged.items())
            raise ValueError(
                f"checkpoint: none in {self.directory} can be read (step {step}: "
                f"{reason}); if they are damaged, delete that directory to begin anew"
            )
        return None

    def _refuse_foreign(self) -> None:
        """Raise ValueError if a readable checkpoint belongs to another run."""
        for step in reversed(self.folder.steps()):
            checkpoint = self.directory / str(step)
            info = read_info(checkpoint)
            if info is None:
                continue  # Damaged checkpoints are moved aside when they are read.
            differing = self._differences(info)
            if differing:
                raise seals.foreign_error(checkpoint, differing)

    def _misnamed(self) -> dict[int, int]:
        """Return the stored step by folder number, for folders whose number is not their step.

        Folders without a readable info are left out.
        """
        stored_steps = {}
        for number in self.folder.steps():
            info = read_info(self.directory / str(number)) or {}
            stored_steps[number] = info.get("step", number)
        return {number: step for number, step in stored_steps.items() if step != number}

    def _move_misnamed(self, number: int, stored_step: int) -> str:
        """Move the folder `number`, with a checkpoint of `stored_step`, to the folder `damaged`.

        Returns a log line.
        """
        target = self._move_aside(number)
        proper = self.directory / str(stored_step)
        remedy = f"to use it, stop, rename it back to {proper}, and start again"
        if files.is_saved(proper):
            remedy = f"{proper} exists, too"
        return (
            f"checkpoint: folder {number} holds step {stored_step}, renamed or copied; moved "
            f"to {target}; {remedy}"
        )

    def _move_aside(self, step: int) -> epath.Path:
        """Move a step's folder to a new name in `damaged`, and return the new path.

        Orbax would not save the step again while its folder exists.
        """
        folder = self.directory.parent / "damaged"
        folder.mkdir(parents=True, exist_ok=True)
        names = itertools.chain(
            [str(step)], (f"{step}-{number}" for number in itertools.count(2))
        )
        target = next(folder / name for name in names if not (folder / name).exists())
        files.move(self.directory / str(step), target)
        self.folder.reload()
        return target


def _unless_damaged(damaged: dict[int, str], step: int, read: Callable[[], Any]) -> Any:
    """Return `read()`, or None if the checkpoint of a step is damaged.

    damaged: reasons by step; a damaged step is added with its reason. MACHINE_ERRORS, and _Mismatch
    for a checkpoint of another model, are raised. An error with an errno that is not in
    _FILE_ERRORS is raised as an OSError. Any other error means damage.
    """
    try:
        return read()
    except (*MACHINE_ERRORS, _Mismatch):
        raise
    # Orbax and tensorstore raise bare Exceptions for damaged bytes.
    except Exception as error:
        code = error_number(error)
        if code is not None and code not in _FILE_ERRORS:
            raise OSError(
                f"checkpoint: step {step} cannot be read now ({os.strerror(code)}); "
                "nothing was changed: bring the disk back, and run the same command again"
            ) from error
        damaged[step] = first_line(error)
    heap.collect_silently()
    return None


def latest_info(directory: epath.PathLike) -> dict[str, Any]:
    """Return the info of the latest checkpoint in a folder; {} if missing or damaged."""
    directory, last = epath.Path(directory), steps(directory)[-1:]
    return (read_info(directory / str(last[0])) if last else None) or {}


def check_seals(directory: epath.PathLike, config: Mapping[str, Any]) -> None:
    """Raise ValueError if a readable checkpoint was written by a run of another config.

    Reads only the infos, and changes nothing. Damaged checkpoints are ignored.
    """
    for step in reversed(steps(directory)):
        checkpoint = epath.Path(directory) / str(step)
        differing = seals.differences(read_info(checkpoint) or {}, config)
        if differing:
            raise seals.foreign_error(checkpoint, differing)


def steps(directory: epath.PathLike) -> list[int]:
    """Return the steps with complete checkpoints, in ascending order; [] without the folder.

    directory: folder of the checkpoints.
    """
    directory = epath.Path(directory)
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return [step for step in numbers if files.is_saved(directory / str(step))]


def awaits_evaluation(directory: epath.PathLike, step: int) -> bool:
    """Return True if a step was saved for another process to evaluate (valid={} in `save`).

    False, too, if the step has no checkpoint. directory: folder of the checkpoints.
    """
    metrics = checkpoint_files.metrics_file(epath.Path(directory) / str(step))
    try:
        return metrics.exists() and json.loads(metrics.read_text("utf-8")) == {}
    except FileNotFoundError:
        return False  # The step was evaluated and deleted meanwhile.


def read(
    directory: epath.PathLike,
    step: int,
    template: Template,
    differences: Differences = lambda info: [],
) -> Checkpoint:
    """Return the checkpoint of one step without changing anything; raise any error.

    directory: folder of the checkpoints. template: returns the shapes of the states of a
    stage.
    ValueError if `differences` finds that the checkpoint belongs to another run.
    """
    with contextlib.closing(checkpoint_files.open_for_reading(directory)) as folder:
        stored, info = _info(folder, step)
        differing = differences(info)
        if differing:
            raise seals.foreign_error(epath.Path(directory) / str(step), differing)
        states = _states(folder, step, template(info["stage"]), stored)
        return Checkpoint(states, info)


class _Mismatch(ValueError):
    """Raised for a complete checkpoint whose states have other shapes than the template."""


def _info(
    folder: checkpoint_files.Folder, step: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the stored object of a step, as `with_checksums` returns it, and the info inside.

    ValueError if the info is damaged or of another step; other errors of the read are raised.
    """
    stored = folder.read_info(step)
    info = verified_info(stored)
    seals.check_number(info, step)
    return stored, info


def _states(
    folder: checkpoint_files.Folder,
    step: int,
    shapes: PyTree,
    stored: Mapping[str, Any],
) -> PyTree:
    """Return the states of a step as numpy arrays, with verified checksums.

    shapes: the expected shapes and dtypes; _Mismatch if the shapes or dtypes of the states differ.
    stored: as `_info` returns it. ValueError if the states are damaged.
    """
    try:
        states = folder.read_states(step, shapes)
    except (ValueError, KeyError, TypeError) as error:
        # Damaged metadata may look like another structure; the checksum decides.
        has_other_structure = stored.get("form") != structure_checksum(shapes)
        is_structure_error = "structure" in str(error) or "shape" in str(error)
        if has_other_structure and is_structure_error:
            raise _Mismatch(first_line(error)) from error
        raise
    verify_states(stored, states)
    pairs = zip(jax.tree.leaves_with_path(states), jax.tree.leaves(shapes), strict=True)
    for (path, array), expected in pairs:
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            raise _Mismatch(
                f"{jax.tree_util.keystr(path)} has shape {array.shape} {array.dtype}, not "
                f"{expected.shape} {expected.dtype}"
            )
    return states


@contextlib.contextmanager
def _in_one_line(directory: epath.Path, step: int | None) -> Iterator[None]:
    """Raise errors of a save inside the context as an OSError with a message of one line.

    A MemoryError is raised unchanged. step: the step that is saved, for the message.
    """
    try:
        yield
    except MemoryError:
        raise
    # Orbax's threads raise whatever tensorstore raises.
    except Exception as error:
        raise OSError(
            f"checkpoint: cannot save step {step} in {directory}: "
            f"{system_message(error)}; {files.remedy(error)}"
        ) from error


def with_checksums(
    states: PyTree, info: Mapping[str, Any], *, checksum: int | None = None
) -> dict[str, Any]:
    """Return the JSON object to store with the states: the info as text, and checksums.

    Keys: "body" (the info), "head" (CRC-32 of the body), "form" (`structure_checksum`) and
    "states" (`states_checksum`). checksum: checksum of the states; None to compute it.
    """
    body = json.dumps(info, sort_keys=True)
    return {
        "body": body,
        "head": zlib.crc32(body.encode()),
        "form": structure_checksum(states),
        "states": states_checksum(states) if checksum is None else checksum,
    }


def verified_info(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the info inside an object of `with_checksums`; ValueError if damaged.

    Objects of old checkpoints have no checksum of the info, and are not checked.
    """
    body = stored["body"]
    if "head" in stored and stored["head"] != zlib.crc32(body.encode()):
        raise ValueError("its position does not match its sum")
    return json.loads(body)


def verify_states(stored: Mapping[str, Any], states: PyTree) -> None:
    """Raise ValueError unless the states have the checksum in an object of `with_checksums`.

    stored: the object.
    """
    # Old checkpoints have one checksum of the info and the states.
    body = "" if "states" in stored else stored["body"]
    expected = stored["sum"] if body else stored["states"]
    if states_checksum(states, body) != expected:
        raise ValueError("its content does not match its sum")


def structure_checksum(states: PyTree) -> int:
    """Return a CRC-32 of the names, shapes and dtypes of all arrays in a model's states."""
    leaves = jax.tree.leaves_with_path(states)
    structure = [(jax.tree_util.keystr(k), x.shape, str(x.dtype)) for k, x in leaves]
    return zlib.crc32(repr(structure).encode())


def states_checksum(states: PyTree, body: str = "") -> int:
    """Return the CRC-32 of a text, followed by the bytes of all arrays in a tree."""
    total = zlib.crc32(body.encode())
    for leaf in jax.tree.leaves(jax.device_get(states)):
        total = zlib.crc32(np.ascontiguousarray(leaf), total)
    return total


# Errors of reads that do not mean that the file is damaged.
MACHINE_ERRORS = (MemoryError, jax.errors.JaxRuntimeError)


def system_message(error: Exception) -> str:
    """Return the operating system's text for an error, or the error's shortened text.

    error: an error of Python or tensorstore, such as "No space left on device".
    """
    if isinstance(error, OSError):
        return files.system_message(error)
    code = error_number(error)
    return os.strerror(code) if code else messages.shorten(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, shortened, because orbax writes long texts."""
    return messages.shorten(str(error).strip().partition("\n")[0])


def error_number(error: Exception) -> int | None:
    """Return the errno of an error of Python or tensorstore; None if the error has no errno."""
    if isinstance(error, OSError):
        return error.errno
    number = re.search(r"os_error_code='(\d+)'", str(error))
    return int(number[1]) if number else None
