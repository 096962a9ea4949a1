"""Checkpoints through orbax: the train states of all seeds, and what stands beside.

Kept are the latest `keep` steps, for each seed the step that was best by validation,
and those whose evaluation is left to another process until it is there. Everything read
back is checked against a sum made when it was saved; a damaged checkpoint is moved aside
and the one before is used.
"""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from jbias import reads
from jbias.multihost import team as teams
from jbias.rundir import orbax_errors, retention, seal
from jbias.store import disk

# Seconds. Orbax counts by the clock, which may jump; a disk may also just be slow.
_NEVER = 10**9
# What the system says of files that are not there, or are not what they were.
_OF_FILES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)


def open(
    directory: epath.PathLike,
    *,
    keep: int = 2,
    valid_at: retention.Valid = lambda step: None,
) -> ocp.CheckpointManager:
    """Opens the checkpoints of a run; `keep` is at least 2, so that one may break.

    `valid_at` has the accuracies that `save` was not given, of what is evaluated
    elsewhere.
    """
    if keep < 2:
        raise ValueError(f"config.run.keep: must be at least 2, got {keep}")
    epath.Path(directory).mkdir(parents=True, exist_ok=True)
    options = ocp.CheckpointManagerOptions(
        preservation_policy=retention.LatestAndBest(keep, valid_at),
        best_fn=lambda metrics: float(np.mean(list(metrics.values()))),
        # Else its threads wait for folders by the clock: when it jumps a save would fail.
        async_options=ocp.AsyncOptions(
            timeout_secs=_NEVER, create_directories_asynchronously=False
        ),
        **teams.checkpoints_alone(),
    )
    retention.mend(epath.Path(directory))
    manager = ocp.CheckpointManager(
        disk.place(directory), options=options, item_names=("state", "info")
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
        info=ocp.args.JsonSave(seal.sealed(states, {**info, "valid": valid}, known)),
    )
    taken = _guarded(
        manager, step, lambda: manager.save(step, args=args, metrics=valid)
    )
    assert taken, f"checkpoint: step {step} is not later than those saved"


def replace(manager: ocp.CheckpointManager, step: int, *args: Any) -> None:
    """Saves a step again; the one saved before goes once the new one stands."""
    aside = _aside(manager, "replaced") / str(step)
    aside.parent.mkdir(exist_ok=True)
    disk.move(manager.directory / str(step), aside)
    manager.reload()
    save(manager, step, *args)
    _guarded(manager, step, manager.wait_until_finished)
    aside.parent.rmtree()


def _put_back(manager: ocp.CheckpointManager) -> None:
    """Restores what a kill inside `replace` left aside."""
    aside = _aside(manager, "replaced")
    if not aside.exists():
        return
    for path in aside.iterdir():
        there = manager.directory / path.name
        if not disk.is_saved(there):
            there.rmtree(missing_ok=True)
            disk.move(path, there)
    aside.rmtree()
    manager.reload()


def _aside(manager: ocp.CheckpointManager, name: str) -> epath.Path:
    return manager.directory.parent / name


def wait(manager: ocp.CheckpointManager) -> None:
    """Waits until what was saved stands on the disk."""
    _guarded(manager, manager.latest_step(), manager.wait_until_finished)


def finish(manager: ocp.CheckpointManager) -> None:
    """Likewise, and closes."""
    try:
        wait(manager)
    finally:
        _guarded(manager, manager.latest_step(), manager.close)


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
    except (*orbax_errors.OF_THE_MACHINE, _Mismatch):
        raise
    # Orbax and tensorstore raise bare Exceptions for damaged bytes.
    except Exception as error:
        code = orbax_errors.number(error)
        if code is not None and code not in _OF_FILES:
            raise OSError(
                f"checkpoint: step {step} cannot be read now ({os.strerror(code)}); "
                "nothing was changed: bring the disk back, and run the same command again"
            ) from error
        damaged[step] = orbax_errors.first_line(error)
    reads.forget()


def at(
    manager: ocp.CheckpointManager, step: int, template: Callable[[int], tuple]
) -> tuple[tuple, dict[str, Any]] | None:
    """As `restore`, of one step; None where it is damaged."""
    with _noting_damage({}, step):
        sealed, info = _info(manager, step)
        return _states(manager, step, template(info["stage"]), sealed), info
    return None


def told(directory: epath.PathLike) -> dict[str, Any]:
    """What stands beside the latest states, read as it lies; empty where nothing does."""
    last = steps(directory)[-1:]
    return (last and retention.told(epath.Path(directory) / str(last[0]))) or {}


def steps(directory: epath.PathLike) -> list[int]:
    """The steps that stand there whole, while another process may be saving more."""
    directory = epath.Path(directory)
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    found = sorted(int(name) for name in names if name.isdecimal())
    return [step for step in found if disk.is_saved(directory / str(step))]


def left(directory: epath.PathLike, step: int) -> bool:
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
    with contextlib.closing(_looking(directory)) as manager:
        sealed, info = _info(manager, step)
        return _states(manager, step, template(info["stage"]), sealed), info


def _looking(directory: epath.PathLike) -> ocp.CheckpointManager:
    """A manager that changes nothing."""
    options = ocp.CheckpointManagerOptions(
        read_only=True, create=False, save_interval_steps=0
    )
    return ocp.CheckpointManager(
        disk.place(directory), options=options, item_names=("state", "info")
    )


def _move_aside(manager: ocp.CheckpointManager, step: int) -> None:
    """Frees the step's place: orbax would not save there again."""
    aside = _aside(manager, "damaged") / str(step)
    aside.parent.mkdir(parents=True, exist_ok=True)
    if aside.exists():
        aside.rmtree()
    disk.move(manager.directory / str(step), aside)
    manager.reload()


def position(manager: ocp.CheckpointManager, step: int) -> dict[str, Any]:
    """What stands beside a step's states; any error passes."""
    return _info(manager, step)[1]


class _Mismatch(ValueError):
    """A whole checkpoint whose tree is not the one asked for."""


def _info(manager, step):
    items = ocp.args.Composite(info=ocp.args.JsonRestore())
    sealed = manager.restore(step, args=items)["info"]
    return sealed, seal.opened(sealed)


def _states(manager, step, shapes, sealed):
    # Arrays of numpy ask for such, whatever their shape; those of a single number can
    # be compared in orbax's own errors.
    target = jax.tree.map(lambda x: np.zeros((), x.dtype), shapes)
    items = ocp.args.Composite(state=ocp.args.StandardRestore(target))
    try:
        states = manager.restore(step, args=items)["state"]
    except (ValueError, KeyError, TypeError) as error:
        # Damaged metadata, too, tell of another tree; but the seal told of this one.
        other = sealed.get("form") != seal.form(shapes)
        if other and ("structure" in str(error) or "shape" in str(error)):
            raise _Mismatch(orbax_errors.first_line(error)) from error
        raise
    seal.check(sealed, states)
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
    free = disk.free(directory)
    if free is not None and free < needed:
        raise OSError(
            f"checkpoint: cannot save step {step} in {directory}: No space left on "
            f"device: {needed / 2**20:.0f} MiB needed, {free / 2**20:.0f} MiB free; "
            + disk.REMEDY
        )


def _guarded(manager, step, action):
    """Turns what orbax raises when it cannot write into one OSError of one line."""
    try:
        return action()
    # Its writers' threads pass on whatever tensorstore raised.
    except Exception as error:
        raise OSError(
            f"checkpoint: cannot save step {step} in {manager.directory}: "
            f"{orbax_errors.gist(error)}; {disk.remedy(error)}"
        ) from error
