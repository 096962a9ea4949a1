"""Checkpoints through orbax: the training states of all seeds, their checksums, retention.

Kept are the latest `keep` steps, for each seed the step with its best validation accuracy,
and steps that another process has yet to evaluate. Checksums are taken of what is saved and
compared with what is read back, whatever lay between; a damaged checkpoint is moved aside
and the one before it is used.
"""

import contextlib
import dataclasses
import errno
import json
import os
import re
import textwrap
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

from jbias.runtime import files, heap


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

# The validation accuracies at a step, by "stage/seed"; None while there are none yet.
ValidAt = Callable[[int], dict[str, float] | None]


@dataclasses.dataclass(frozen=True)
class LatestAndBest(checkpoint_managers.PreservationPolicy):
    """Keeps the latest steps, and each seed's first best by validation in each stage.

    Metrics are named "stage/seed". A step with none at all is evaluated elsewhere: it is
    kept until `valid_at` has its metrics.
    """

    keep: int
    valid_at: ValidAt

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        del context
        kept = set(range(len(checkpoints))[-self.keep :])
        best = {}
        for i, checkpoint in enumerate(checkpoints):
            metrics = checkpoint.metrics
            if metrics == {}:
                metrics = self.valid_at(checkpoint.step)
                kept |= {i} if metrics is None else set()
            for seed, accuracy in (metrics or {}).items():
                if seed not in best or accuracy > best[seed][0]:
                    best[seed] = (accuracy, i)
        kept |= {i for _, i in best.values()}
        return [i in kept for i in range(len(checkpoints))]


def repair_metrics(directory: epath.Path) -> None:
    """Writes metrics anew that are damaged: orbax reads all, and fails at the first.

    What they say stands beside the states too, under a sum.
    """
    for path in directory.glob("*/metrics/metrics"):
        step = path.parent.parent.name
        if not step.isdecimal():
            continue  # Of a save that a kill ended.
        known = (info_beside(path.parent.parent) or {}).get("valid")
        try:
            held = files.read_json(path, dict, "")
            whole = all(isinstance(x, float | int) for x in held.values())
        except ValueError:
            held, whole = None, False
        if not whole or known is not None and held != known:
            files.write(path, json.dumps(known or {}))


def info_beside(checkpoint: epath.Path) -> dict[str, Any] | None:
    """What stands beside a checkpoint's states; None where nothing whole does."""
    try:
        return verified_info(json.loads((checkpoint / "info/metadata").read_text()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


# Seconds. Orbax counts by the clock, which may jump; a disk may also just be slow.
_NEVER = 10**9
# What the system says of files that are not there, or are not what they were.
_OF_FILES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)


def open(
    directory: epath.PathLike, *, keep: int = 2, valid_at: ValidAt = lambda step: None
) -> ocp.CheckpointManager:
    """Opens the checkpoints of a run; `keep` is at least 2, so that one may break.

    `valid_at` has the accuracies that `save` was not given, of what is evaluated
    elsewhere.
    """
    if keep < 2:
        raise ValueError(f"config.run.keep: must be at least 2, got {keep}")
    epath.Path(directory).mkdir(parents=True, exist_ok=True)
    repair_metrics(epath.Path(directory))
    manager = _manager(
        directory,
        preservation_policy=LatestAndBest(keep, valid_at),
        best_fn=lambda metrics: float(np.mean(list(metrics.values()))),
        # Else its threads wait for folders by the clock: when it jumps a save would fail.
        async_options=ocp.AsyncOptions(
            timeout_secs=_NEVER, create_directories_asynchronously=False
        ),
        **_single_process_options(),
    )
    _put_back(manager)
    return manager


def save(
    manager: ocp.CheckpointManager,
    step: int,
    states: tuple,
    info: dict[str, Any],
    valid: dict[str, float] | None = None,
    known: int | None = None,
) -> None:
    """Saves in the background: states, the position and evaluations in `info`.

    `valid` has each seed's validation accuracy where this step was evaluated, by
    "stage/seed"; {} where its evaluation is left to another process. `known` is the
    states' sum, if it is known.
    OSError where the disk does not take it; earlier steps stay as they are.
    """
    _check_room(manager, step, states)
    args = ocp.args.Composite(
        state=ocp.args.StandardSave(states),
        info=ocp.args.JsonSave(with_checksums(states, {**info, "valid": valid}, known)),
    )
    with _in_one_line(manager, step):
        taken = manager.save(step, args=args, metrics=valid)
    assert taken, f"checkpoint: step {step} is not later than those saved"


def replace(manager: ocp.CheckpointManager, step: int, *args: Any) -> None:
    """Saves a step again; the one saved before goes once the new one stands."""
    aside = manager.directory.parent / "replaced" / str(step)
    aside.parent.mkdir(exist_ok=True)
    files.move(manager.directory / str(step), aside)
    manager.reload()
    save(manager, step, *args)
    with _in_one_line(manager, step):
        manager.wait_until_finished()
    aside.parent.rmtree()


def _put_back(manager: ocp.CheckpointManager) -> None:
    """Restores what a kill inside `replace` left aside."""
    aside = manager.directory.parent / "replaced"
    if not aside.exists():
        return
    for path in aside.iterdir():
        there = manager.directory / path.name
        if not files.is_saved(there):
            there.rmtree(missing_ok=True)
            files.move(path, there)
    aside.rmtree()
    manager.reload()


def wait(manager: ocp.CheckpointManager) -> None:
    """Waits until what was saved stands on the disk."""
    with _in_one_line(manager, manager.latest_step()):
        manager.wait_until_finished()


def finish(manager: ocp.CheckpointManager) -> None:
    """Waits until what was saved stands on the disk, and closes."""
    try:
        wait(manager)
    finally:
        with _in_one_line(manager, manager.latest_step()):
            manager.close()


def restore(
    manager: ocp.CheckpointManager,
    template: Callable[[int], tuple],
    say: Callable[[str], None],
) -> tuple[tuple, dict[str, Any]] | None:
    """Reads the latest whole checkpoint: (states, info), or None where there is none.

    `template` gives the shapes of a stage's states; `info["stage"]` says which. They
    come as arrays of the host. Damaged checkpoints are moved to `damaged/<step>` beside
    and told about through `say`; errors of `template` itself pass.
    """
    damaged = {}
    for step in sorted(manager.all_steps(), reverse=True):
        with _noting_damage(damaged, step):
            sealed, info = _info(manager, step)
        if step in damaged:
            continue
        shapes = template(info["stage"])
        try:
            with _noting_damage(damaged, step):
                states = _states(manager, step, shapes, sealed)
        except _Mismatch as error:
            raise ValueError(
                f"checkpoint: {manager.directory / str(step)} holds another model "
                f"({error}); use another workdir"
            ) from error
        if step in damaged:
            continue
        for number, reason in damaged.items():
            _move_aside(manager, number)
            say(
                f"checkpoint: step {number} is damaged ({reason}); moved to damaged/, "
                f"falling back to step {step}"
            )
        return states, info
    if damaged:
        step, reason = max(damaged.items())
        raise ValueError(
            f"checkpoint: none in {manager.directory} can be read (step {step}: "
            f"{reason}); if they are damaged, delete that directory to begin anew"
        )
    return None


@contextlib.contextmanager
def _noting_damage(damaged: dict[int, str], step: int) -> Iterator[None]:
    """Notes why a step cannot be read, unless the machine or the model is at fault."""
    try:
        yield
        return
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


def restore_step(
    manager: ocp.CheckpointManager, step: int, template: Callable[[int], tuple]
) -> tuple[tuple, dict[str, Any]] | None:
    """As `restore`, of one step; None where it is damaged."""
    with _noting_damage({}, step):
        return _state_and_info(manager, step, template)
    return None


def latest_info(directory: epath.PathLike) -> dict[str, Any]:
    """What stands beside the latest states, read as it lies; empty where nothing does."""
    last = steps(directory)[-1:]
    return (last and info_beside(epath.Path(directory) / str(last[0]))) or {}


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
        return metrics.exists() and json.loads(metrics.read_text()) == {}
    except FileNotFoundError:
        return False  # It was evaluated and went, just now.


def read(
    directory: epath.PathLike, step: int, template: Callable[[int], tuple]
) -> tuple[tuple, dict[str, Any]]:
    """As `restore`, of one step, where nothing is changed; any error passes."""
    about = dict(read_only=True, create=False, save_interval_steps=0)
    with contextlib.closing(_manager(directory, **about)) as manager:
        return _state_and_info(manager, step, template)


def _manager(directory: epath.PathLike, **about: Any) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(**about)
    return ocp.CheckpointManager(
        files.resolve(directory), options=options, item_names=("state", "info")
    )


def _state_and_info(
    manager: ocp.CheckpointManager, step: int, template: Callable[[int], tuple]
) -> tuple[tuple, dict[str, Any]]:
    sealed, info = _info(manager, step)
    return _states(manager, step, template(info["stage"]), sealed), info


def _move_aside(manager: ocp.CheckpointManager, step: int) -> None:
    """Frees the step's place: orbax would not save there again."""
    aside = manager.directory.parent / "damaged" / str(step)
    aside.parent.mkdir(parents=True, exist_ok=True)
    if aside.exists():
        aside.rmtree()
    files.move(manager.directory / str(step), aside)
    manager.reload()


def read_info(manager: ocp.CheckpointManager, step: int) -> dict[str, Any]:
    """What stands beside a step's states; any error passes."""
    return _info(manager, step)[1]


class _Mismatch(ValueError):
    """A whole checkpoint whose tree is not the one asked for."""


def _info(manager, step):
    items = ocp.args.Composite(info=ocp.args.JsonRestore())
    sealed = manager.restore(step, args=items)["info"]
    return sealed, verified_info(sealed)


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
    for (path, one), other in zip(
        jax.tree.leaves_with_path(states), jax.tree.leaves(shapes), strict=True
    ):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            where = jax.tree_util.keystr(path)
            raise _Mismatch(
                f"{where} has shape {one.shape} {one.dtype}, not {other.shape} "
                f"{other.dtype}"
            )
    return states


def _check_room(manager: ocp.CheckpointManager, step: int, states: tuple) -> None:
    """Refuses before anything is half written."""
    directory = manager.directory
    needed = sum(leaf.nbytes for leaf in jax.tree.leaves(states))
    free = files.free_bytes(directory)
    if free is not None and free < needed:
        raise OSError(
            f"checkpoint: cannot save step {step} in {directory}: No space left on "
            f"device: {needed / 2**20:.0f} MiB needed, {free / 2**20:.0f} MiB free; "
            + files.REMEDY
        )


@contextlib.contextmanager
def _in_one_line(manager: ocp.CheckpointManager, step: int | None) -> Iterator[None]:
    """Turns what orbax raises when it cannot write into one OSError of one line."""
    try:
        yield
    # Its writers' threads pass on whatever tensorstore raised.
    except Exception as error:
        raise OSError(
            f"checkpoint: cannot save step {step} in {manager.directory}: "
            f"{system_message(error)}; {files.remedy(error)}"
        ) from error


def with_checksums(
    states: tuple, info: Mapping[str, Any], known: int | None = None
) -> dict[str, Any]:
    """What stands beside the states on the disk: `info`, and the sums.

    `known` is the states' own, where it is known already.
    """
    body = json.dumps(info, sort_keys=True)
    return {
        "body": body,
        "head": zlib.crc32(body.encode()),
        "form": structure_checksum(states),
        "states": states_checksum(states) if known is None else known,
    }


def verified_info(sealed: Mapping[str, Any]) -> dict[str, Any]:
    """The `info` again; ValueError where it is damaged."""
    body = sealed["body"]
    if "head" in sealed and sealed["head"] != zlib.crc32(body.encode()):
        raise ValueError("its position does not match its sum")
    return json.loads(body)


def verify_states(sealed: Mapping[str, Any], states: tuple) -> None:
    """ValueError where states are not those that were sealed."""
    if "states" in sealed:
        same = states_checksum(states) == sealed["states"]
    else:  # As checkpoints had it once.
        same = states_checksum(states, sealed["body"]) == sealed["sum"]
    if not same:
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
    return os.strerror(known) if known else _shorten(str(error))


def first_line(error: Exception) -> str:
    """The first line of what orbax says, which goes on for pages."""
    return _shorten(str(error).strip().partition("\n")[0])


def _shorten(text: str) -> str:
    return textwrap.shorten(text, 200, placeholder=" …")


def error_number(error: Exception) -> int | None:
    """The system's number of an error, which tensorstore has in its text; None: it has none."""
    if isinstance(error, OSError):
        return error.errno
    number = re.search(r"os_error_code='(\d+)'", str(error))
    return int(number[1]) if number else None


def _single_process_options() -> dict[str, Any]:
    """Options with which orbax waits for no other process: the first one alone calls."""
    if jax.process_count() == 1:
        return {}
    this = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=this, active_processes={this}, barrier_sync_key_prefix="alone"
    )
    return {"multiprocessing_options": options, "create": False}
