"""Checkpoints through orbax: the training states of all seeds, their checksums, retention.

Kept are the latest `keep` steps, for each seed the step with its best validation accuracy,
and steps that another process has yet to evaluate. Checksums are taken of what is saved and
compared with what is read back, whatever lay between; a damaged checkpoint is moved aside
and the one before it is used.
"""

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import re
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jaxtyping import PyTree
from orbax.checkpoint import checkpoint_managers

from jbias import seals
from jbias.models import trained
from jbias.runtime import files, heap, messages, processes


class _Spec(dict):
    """Where a store is, as its own JSON."""

    to_json = dict.copy


# Tensorstore (seen in 0.1.69 to 0.1.86, the latest) never frees the JSON that it makes for
# Python: some 300 bytes for each array of each save, and its counters, which orbax logs.
# Of an orbax that asks elsewhere long runs would grow again; a test says so.
with contextlib.suppress(ImportError, AttributeError):
    from orbax.checkpoint._src.serialization import tensorstore_utils

    _freed = types.SimpleNamespace(**vars(tensorstore_utils.ts))
    _freed.experimental_collect_matching_metrics = lambda _: []
    _freed.KvStore = types.SimpleNamespace(open=_freed.KvStore.open, Spec=_Spec)
    tensorstore_utils.ts = _freed

# In what a checkpoint, by what stands beside its states, is not of a run: [] nothing.
Differences = Callable[[dict[str, Any]], list[str]]
# The validation accuracies at a step, by "stage/seed"; None while there are none yet.
ValidAt = Callable[[int], dict[str, float] | None]
Template = Callable[[int], tuple]  # The shapes of the states of a stage.
Found = tuple[tuple, dict[str, Any]]  # States, and what stands beside them.


@dataclasses.dataclass(frozen=True)
class LatestAndBest(checkpoint_managers.PreservationPolicy):
    """Keeps the latest steps, and each seed's first best by validation in each stage.

    Metrics are named "stage/seed". A step with none at all is evaluated elsewhere: it is
    kept until `valid_at` has its metrics.
    """

    keep: int
    valid_at: ValidAt

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        kept = set(range(len(checkpoints))[-self.keep :])
        best = {}
        for i, checkpoint in enumerate(checkpoints):
            metrics = checkpoint.metrics
            if metrics == {} and (metrics := self.valid_at(checkpoint.step)) is None:
                kept.add(i)
            for seed, accuracy in (metrics or {}).items():
                if seed not in best or accuracy > best[seed][0]:
                    best[seed] = (accuracy, i)
        kept |= {i for _, i in best.values()}
        return [i in kept for i in range(len(checkpoints))]


def _repair_metrics(directory: epath.Path) -> None:
    """Writes metrics anew that are damaged: orbax reads all, and fails at the first.

    What they say stands beside the states too, under a sum.
    """
    for path in directory.glob("*/metrics/metrics"):
        if not (checkpoint := path.parent.parent).name.isdecimal():
            continue  # Of a save that a kill ended.
        known, whole = (info_beside(checkpoint) or {}).get("valid"), False
        with contextlib.suppress(ValueError):
            held = files.read_json(path, dict, "")
            whole = all(isinstance(x, float | int) for x in held.values())
            whole = whole and known in (None, held)
        if not whole:
            files.write(path, json.dumps(known or {}))


def info_beside(checkpoint: epath.Path) -> dict[str, Any] | None:
    """What stands beside a checkpoint's states; None where nothing whole does."""
    try:
        return verified_info(
            json.loads((checkpoint / "info/metadata").read_text("utf-8"))
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


# Orbax counts seconds by the clock, which may jump; a disk may also just be slow. Its
# threads wait for folders by the clock, too: when it jumps a save would fail.
_UNTIMED = dict(timeout_secs=10**9, create_directories_asynchronously=False)
# What the system says of files that are not there, or are not what they were.
_OF_FILES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)


class CheckpointStore:
    """A run's checkpoints, which its first process writes and all read alike.

    step: the latest that was saved or read, -1 before; complete: whether its evaluation, if
    one was due, is in there. saving: whether a save has begun and not returned.
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
        """Open the checkpoints of a run; `keep` is at least 2, so that one may break.

        valid_at: returns the accuracies that `save` was not given, of what is evaluated
        elsewhere. seal: stored in each checkpoint, to tell other runs' from this run's.
        differences: returns in what a checkpoint, by its info, is not of this run.
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
        options, this = {}, jax.process_index()
        if jax.process_count() > 1:  # Orbax is to wait for no other: this alone calls.
            about = dict(primary_host=this, active_processes={this})
            about["barrier_sync_key_prefix"] = "alone"
            alone = ocp.options.MultiprocessingOptions(**about)
            options = {"multiprocessing_options": alone, "create": False}
        self.manager = _manager(
            self.directory,
            preservation_policy=LatestAndBest(keep, valid_at),
            best_fn=lambda metrics: float(np.mean(list(metrics.values()))),
            async_options=ocp.AsyncOptions(**_UNTIMED),
            **options,
        )
        # What a kill inside `_replace` left aside.
        if (aside := self.directory.parent / "replaced").exists():
            for path in aside.iterdir():
                there = self.directory / path.name
                if not files.is_saved(there):
                    there.rmtree(missing_ok=True)
                    files.move(path, there)
            aside.rmtree()
            self.manager.reload()

    def save(
        self, step: int, states: tuple, info: dict[str, Any], valid: dict | None = None
    ) -> None:
        """Saves in the background: states, the position and evaluations in `info`.

        `valid` has each seed's validation accuracy where this step was evaluated, by
        "stage/seed"; {} where its evaluation is left to another process. The latest step
        may be saved again: the one saved before goes once the new one stands. OSError
        where the disk does not take it; earlier steps stay as they are. ValueError where
        the processes no longer train the same weights.
        """
        self.saving, sums = True, [None]
        if self._team.count > 1:
            sums = self._team.all_gather("a checkpoint", states_checksum(states))
        if len(set(sums)) > 1:
            raise ValueError(
                f"processes: their weights differ at step {step} (sums {sums}), though all "
                "take the same steps; use machines, devices and packages of one kind, and "
                f"go on from the checkpoint of step {max(self.step, 0)}"
            )
        if self._team.is_main:
            write = self._replace if step == self.step else self._write
            stored = {**info, "valid": valid}
            if self._seal is not None:
                stored[seals.KEY] = self._seal
            write(step, states, stored, valid, sums[0])
        self.step, self.complete, self.saving = step, bool(info.get("records")), False

    def _write(self, step: int, states: tuple, info: dict, valid, known) -> None:
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(states))
        free = files.free_bytes(self.directory)
        if free is not None and free < needed:  # Before anything is half written.
            needed_size, free_size = files.format_sizes(needed, free)
            raise OSError(
                f"checkpoint: cannot save step {step} in {self.directory}: No space left "
                f"on device: {needed_size} needed, {free_size} free; " + files.REMEDY
            )
        sums = with_checksums(states, info, known)
        sums["nets"] = trained.nets_checksums(trained.nets_of(states))
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(states), info=ocp.args.JsonSave(sums)
        )
        with _in_one_line(self.directory, step):
            taken = self.manager.save(step, args=args, metrics=valid)
        assert taken, f"checkpoint: step {step} is not later than those saved"

    def _replace(self, step: int, *args: Any) -> None:
        aside = self.directory.parent / "replaced" / str(step)
        aside.parent.mkdir(exist_ok=True)
        files.move(self.directory / str(step), aside)
        self.manager.reload()
        self._write(step, *args)
        self.wait()
        aside.parent.rmtree()

    def wait(self) -> None:
        """Waits until what was saved stands on the disk."""
        self._in_main(lambda: self.manager.wait_until_finished())

    def _in_main(self, act: Callable[[], None]) -> None:
        if self._team.is_main:
            with _in_one_line(self.directory, self.manager.latest_step()):
                act()

    def close(self) -> None:
        """Waits until what was saved stands on the disk, and closes."""
        try:
            self.wait()
        finally:
            self._in_main(lambda: self.manager.close())

    def info(self, step: int) -> dict[str, Any]:
        """What stands beside a step's states; any error passes."""
        return _info(self.manager, step)[1]

    def restore(self, template: Template, say: Callable[[str], None]) -> Found | None:
        """Return (states, info) of the latest whole checkpoint, or None without any.

        `template` gives the shapes of a stage's states; `info["stage"]` says which. They
        come as arrays of the host. Damaged checkpoints are moved to `damaged/<step>` beside
        and told about through `say`; errors of `template` itself pass. ValueError where
        any of the checkpoints is another run's. Processes but the first get no records in
        `info`, only whether there are any.
        """
        found = self._in_all(template, lambda: self._latest(template, say))
        if found:
            self.step, self.complete = found[1]["step"], bool(found[1].get("records"))
        return found

    def restore_step(self, step: int, template: Template) -> Found | None:
        """As `restore`, of one step; None where it is damaged."""
        asked = (_state_and_info, self.manager, step, template)
        return self._in_all(template, lambda: _unless_damaged({}, step, *asked))

    def _in_all(self, template: Template, read: Callable) -> Found | None:
        """What the first process reads, in all."""
        if self._team.count == 1:
            return read()
        states, info = (read() if self._team.is_main else None) or (None, None)
        brief = info and {**info, "records": bool(info["records"]), "sums": {}}
        brief = self._team.broadcast("the checkpoint", brief)
        if brief is None:
            return None
        if states is None:
            shapes = template(brief["stage"])
            states = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        return tuple(map(self._team.broadcast_tree, states)), info or brief

    def _latest(self, template: Template, say: Callable[[str], None]) -> Found | None:
        """Return what `restore` says; move aside what is damaged or under a wrong number.

        Nothing is moved where no checkpoint is whole and under its own number.
        """
        self._refuse_foreign()
        misnamed = self._misnamed()
        damaged, manager = {}, self.manager
        for step in sorted({*manager.all_steps()} - misnamed.keys(), reverse=True):
            where = self.directory / str(step)
            if not (beside := _unless_damaged(damaged, step, _info, manager, step)):
                continue
            sealed, info = beside
            asked = (manager, step, template(info["stage"]), sealed)
            try:
                states = _unless_damaged(damaged, step, _states, *asked)
            except _Mismatch as error:
                text = f"holds another model ({error}); use another workdir"
                raise ValueError(f"checkpoint: {where} {text}") from error
            if step in damaged:
                continue
            for number, reason in damaged.items():
                self._move_aside(number)
                say(
                    f"checkpoint: step {number} is damaged ({reason}); moved to damaged/, "
                    f"falling back to step {step}"
                )
            for number, held_step in misnamed.items():
                say(self._move_misnamed(number, held_step))
            return states, info
        if misnamed:
            number, held_step = max(misnamed.items())
            raise ValueError(
                f"checkpoint: {self.directory / str(number)} holds step {held_step}: a "
                f"folder renamed or copied; rename it back to {held_step}, and run the "
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
        """Raise ValueError where a checkpoint that can be read is of another run."""
        for step in sorted(self.manager.all_steps(), reverse=True):
            checkpoint = self.directory / str(step)
            if (info := info_beside(checkpoint)) is None:
                continue  # Damaged: it is moved aside once it is to be read.
            if differing := self._differences(info):
                raise seals.foreign_error(checkpoint, differing)

    def _misnamed(self) -> dict[int, int]:
        """Return the folders whose number is not their step, with the step that they hold."""
        held_steps = {}
        for number in self.manager.all_steps():
            info = info_beside(self.directory / str(number)) or {}
            held_steps[number] = info.get("step", number)
        return {number: step for number, step in held_steps.items() if step != number}

    def _move_misnamed(self, number: int, held_step: int) -> str:
        """Move a checkpoint under a wrong number aside; return the line that says so."""
        aside = self._move_aside(number)
        proper = self.directory / str(held_step)
        remedy = f"to use it, stop, rename it back to {proper}, and start again"
        if files.is_saved(proper):
            remedy = f"{proper} is there, too"
        return (
            f"checkpoint: folder {number} holds step {held_step}, renamed or copied; moved to "
            f"{aside}; {remedy}"
        )

    def _move_aside(self, step: int) -> epath.Path:
        """Free the step's place: orbax would not save there again; return where it is now.

        What was moved aside earlier stays.
        """
        folder = self.directory.parent / "damaged"
        folder.mkdir(parents=True, exist_ok=True)
        names = itertools.chain(
            [str(step)], (f"{step}-{number}" for number in itertools.count(2))
        )
        aside = next(folder / name for name in names if not (folder / name).exists())
        files.move(self.directory / str(step), aside)
        self.manager.reload()
        return aside


def _unless_damaged(damaged: dict, step: int, read: Callable, *args: Any) -> Any:
    """What is read; None where it is damaged, which is noted.

    What the machine or the model is at fault for passes.
    """
    try:
        return read(*args)
    except (*MACHINE_ERRORS, _Mismatch):
        raise
    # Orbax and tensorstore raise bare Exceptions for damaged bytes.
    except Exception as error:
        code = error_number(error)
        if code is not None and code not in _OF_FILES:
            raise OSError(
                f"checkpoint: step {step} cannot be read now ({os.strerror(code)}); "
                "nothing was changed: bring the disk back, and run the same command again"
            ) from error
        damaged[step] = first_line(error)
    heap.collect_silently()
    return None


def latest_info(directory: epath.PathLike) -> dict[str, Any]:
    """What stands beside the latest states, read as it lies; empty where nothing does."""
    last = steps(directory)[-1:]
    return (last and info_beside(epath.Path(directory) / str(last[0]))) or {}


def check_seals(directory: epath.PathLike, config: Mapping[str, Any]) -> None:
    """Raise ValueError where a checkpoint that can be read is sealed by another config.

    Reads what stands beside the states, and changes nothing.
    """
    for step in reversed(steps(directory)):
        checkpoint = epath.Path(directory) / str(step)
        if differing := seals.differences(info_beside(checkpoint) or {}, config):
            raise seals.foreign_error(checkpoint, differing)


def steps(directory: epath.PathLike) -> list[int]:
    """The steps that stand there whole, while another process may be saving more."""
    directory = epath.Path(directory)
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    found = sorted(int(name) for name in names if name.isdecimal())
    return [step for step in found if files.is_saved(directory / str(step))]


def awaits_evaluation(directory: epath.PathLike, step: int) -> bool:
    """Whether a step was saved for another process to evaluate; `valid` was {}."""
    metrics = epath.Path(directory) / str(step) / "metrics" / "metrics"
    try:
        return metrics.exists() and json.loads(metrics.read_text("utf-8")) == {}
    except FileNotFoundError:
        return False  # It was evaluated and went, just now.


def read(
    directory: epath.PathLike,
    step: int,
    template: Template,
    differences: Differences = lambda info: [],
) -> Found:
    """Return (states, info) of one step, and change nothing; any error passes.

    ValueError where the checkpoint is another run's, by `differences`.
    """
    about = dict(read_only=True, create=False, save_interval_steps=0)
    with contextlib.closing(_manager(directory, **about)) as manager:
        sealed, info = _info(manager, step)
        if differing := differences(info):
            raise seals.foreign_error(epath.Path(directory) / str(step), differing)
        return _states(manager, step, template(info["stage"]), sealed), info


def _manager(directory: epath.PathLike, **about: Any) -> ocp.CheckpointManager:
    about = dict(options=ocp.CheckpointManagerOptions(**about))
    about["item_names"] = ("state", "info")
    return ocp.CheckpointManager(files.resolve(directory), **about)


def _state_and_info(manager, step: int, template: Template) -> Found:
    sealed, info = _info(manager, step)
    return _states(manager, step, template(info["stage"]), sealed), info


class _Mismatch(ValueError):
    """A whole checkpoint whose tree is not the one asked for."""


def _info(manager, step):
    items = ocp.args.Composite(info=ocp.args.JsonRestore())
    sealed = manager.restore(step, args=items)["info"]
    info = verified_info(sealed)
    seals.check_number(info, step)
    return sealed, info


def _states(manager, step, shapes, sealed):
    # Arrays of numpy ask for such, whatever their shape; those of a single number can
    # be compared in orbax's own errors.
    target = jax.tree.map(lambda x: np.zeros((), x.dtype), shapes)
    items = ocp.args.Composite(state=ocp.args.StandardRestore(target))
    try:
        states = manager.restore(step, args=items)["state"]
    except (ValueError, KeyError, TypeError) as error:
        # Damaged metadata, too, tell of another tree; but the seal told of this one.
        other = sealed.get("form") != structure_checksum(shapes)
        if other and ("structure" in str(error) or "shape" in str(error)):
            raise _Mismatch(first_line(error)) from error
        raise
    verify_states(sealed, states)
    pairs = zip(jax.tree.leaves_with_path(states), jax.tree.leaves(shapes), strict=True)
    for (path, one), other in pairs:
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise _Mismatch(
                f"{jax.tree_util.keystr(path)} has shape {one.shape} {one.dtype}, not "
                f"{other.shape} {other.dtype}"
            )
    return states


@contextlib.contextmanager
def _in_one_line(directory: epath.Path, step: int | None) -> Iterator[None]:
    """Turns what orbax raises when it cannot write into one OSError of one line."""
    try:
        yield
    except MemoryError:
        raise  # No disk is to blame.
    # Its writers' threads pass on whatever tensorstore raised.
    except Exception as error:
        raise OSError(
            f"checkpoint: cannot save step {step} in {directory}: "
            f"{system_message(error)}; {files.remedy(error)}"
        ) from error


def with_checksums(
    states: tuple, info: Mapping[str, Any], known: int | None = None
) -> dict[str, Any]:
    """What stands beside the states on the disk: `info`, and the sums.

    `known` is the states' own, where it is known already.
    """
    body, whole = json.dumps(info, sort_keys=True), structure_checksum(states)
    known = states_checksum(states) if known is None else known
    head = zlib.crc32(body.encode())
    return {"body": body, "head": head, "form": whole, "states": known}


def verified_info(sealed: Mapping[str, Any]) -> dict[str, Any]:
    """The `info` again; ValueError where it is damaged."""
    body = sealed["body"]
    if "head" in sealed and sealed["head"] != zlib.crc32(body.encode()):
        raise ValueError("its position does not match its sum")
    return json.loads(body)


def verify_states(sealed: Mapping[str, Any], states: tuple) -> None:
    """ValueError where states are not those that were sealed."""
    body = "" if "states" in sealed else sealed["body"]  # As checkpoints had it once.
    known = sealed["sum"] if body else sealed["states"]
    if states_checksum(states, body) != known:
        raise ValueError("its content does not match its sum")


def structure_checksum(states: tuple) -> int:
    """What a model's states are told from another's by: names, shapes and types."""
    leaves = jax.tree.leaves_with_path(states)
    structure = [(jax.tree_util.keystr(k), x.shape, str(x.dtype)) for k, x in leaves]
    return zlib.crc32(repr(structure).encode())


def states_checksum(states: PyTree, body: str = "") -> int:
    """A sum over the bytes of arrays, and of what stands beside them."""
    total = zlib.crc32(body.encode())
    for leaf in jax.tree.leaves(jax.device_get(states)):
        total = zlib.crc32(np.ascontiguousarray(leaf), total)
    return total


# Errors in reading that are the machine's fault, not the bytes'.
MACHINE_ERRORS = (MemoryError, jax.errors.JaxRuntimeError)


def system_message(error: Exception) -> str:
    """What the system said, which tensorstore tells last, in numbers too."""
    if isinstance(error, OSError):
        return files.system_message(error)
    known = error_number(error)
    return os.strerror(known) if known else messages.shorten(error)


def first_line(error: Exception) -> str:
    """The first line of what orbax says, which goes on for pages."""
    return messages.shorten(str(error).strip().partition("\n")[0])


def error_number(error: Exception) -> int | None:
    """The system's number of an error, which tensorstore has in its text; None: it has none."""
    if isinstance(error, OSError):
        return error.errno
    number = re.search(r"os_error_code='(\d+)'", str(error))
    return int(number[1]) if number else None
