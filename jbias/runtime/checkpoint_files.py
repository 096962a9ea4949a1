"""Save and read the files of checkpoints; the only module that imports orbax and tensorstore.

A folder of checkpoints has one folder per step, with the states, the info (a JSON object) and
the validation accuracies. The module uses orbax's API V0 (`orbax.checkpoint`). The calls of
API V1 (`orbax.checkpoint.v1`; in orbax 0.12 `orbax.checkpoint.experimental.v1`), which reads
these files as well, are:

- `open_for_writing`: `training.Checkpointer(folder, preservation_policy=...,
  save_decision_policy=FixedIntervalPolicy(1), context=...)`. The context has the options of
  processes and timeouts.
- `open_for_reading`: `training.Checkpointer(folder)`.
- `Folder.save`: `save_checkpointables_async(step, {"state": ..., "info": ...}, metrics=...)`.
- `Folder.wait`, `reload` and `close`: the methods with these names.
- `Folder.steps`: the steps of `checkpoints`.
- `Folder.read_info`: `load_checkpointables(step, {"info": None})["info"]`.
- `Folder.read_states`: `load_checkpointables(step, {"state": shapes})["state"]`.
- `read_stored_states`: `load(checkpoint, checkpointable_name="state")`.
- `_Arrays`: a `LeafHandler` in the `leaf_handler_registry` of `handlers.PyTreeHandler`.
- `info_file`: V1 writes `info/data.json`, and reads `info/metadata`, too.
"""

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore
from etils import epath
from jaxtyping import PyTree
from orbax.checkpoint import checkpoint_managers

from jbias.runtime import files

# Orbax's timeouts use the system's clock, which may jump, and disks may be slow. Its
# threads that create folders wait by the clock, too, so a jump would fail a save.
_TIMEOUT_SECONDS = 10**9
# Arrays of this size share no description, because orbax divides large arrays into chunks.
_LARGE_BYTES = 2**26


class Saved(NamedTuple):
    """A saved checkpoint: its step, and its validation accuracies as given to `Folder.save`."""

    step: int
    metrics: Mapping[str, float] | None


# Returns a bool per checkpoint, in order of the steps: True to keep the checkpoint.
Preserve = Callable[[Sequence[Saved]], Sequence[bool]]


@dataclasses.dataclass(frozen=True)
class _Policy(checkpoint_managers.PreservationPolicy):
    """Orbax's form of a function that chooses the checkpoints to keep."""

    preserve: Preserve

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> Sequence[bool]:
        """Return a bool per checkpoint, in order; orbax deletes the checkpoints with False."""
        return self.preserve([Saved(c.step, c.metrics) for c in checkpoints])


class _Arrays(ocp.type_handlers.NumpyHandler):
    """Writes and reads NumPy arrays as orbax does, with one description of the files per call.

    Orbax describes the files for each array, with a conversion to JSON that tensorstore (0.1.69
    to 0.1.86) never frees: about 300 bytes per array and save. Here orbax describes the
    files for the first array, and the other descriptions are copies with another name. So
    the lost memory does not depend on the number of arrays.
    """

    async def serialize(
        self, values: Sequence[np.ndarray], infos: Sequence, args: Any = None
    ) -> Sequence[ocp.future.Future]:
        """Copy the arrays, and return the future of their writing in the background."""
        copies = [np.array(value) for value in values]
        return [
            ocp.future.CommitFutureAwaitingContractedSignals(self._write(copies, infos))
        ]

    async def _write(self, arrays: Sequence[np.ndarray], infos: Sequence) -> None:
        """Write arrays to the places that orbax's infos describe."""
        shared, specs = None, []
        for array, info in zip(arrays, infos, strict=True):
            await info.await_path_creation()
            is_whole = shared is None or array.nbytes >= _LARGE_BYTES
            spec = ocp.type_handlers.get_json_tspec_write(
                info,
                use_ocdbt=is_whole,
                global_shape=array.shape,
                local_shape=array.shape,
                dtype=array.dtype,
                process_index=jax.process_index(),
            )
            shared = shared or spec["kvstore"]
            specs.append({**spec, "kvstore": {**shared, "path": info.name}})
        await _wait_for_all(
            _write_array(array, spec, info.ts_context)
            for array, spec, info in zip(arrays, specs, infos, strict=True)
        )

    async def deserialize(
        self, infos: Sequence, args: Sequence[ocp.RestoreArgs] | None = None
    ) -> Sequence[np.ndarray]:
        """Return the arrays at the places that orbax's infos describe."""
        if not all(info.is_ocdbt_checkpoint for info in infos):
            return await super().deserialize(infos, args)
        shared, specs = None, []
        for info, arg in zip(infos, args or [None] * len(infos), strict=True):
            await info.await_path_creation()
            spec = ocp.type_handlers.get_json_tspec_read(
                info,
                use_ocdbt=shared is None,
                raise_array_data_missing_error=info.raise_array_data_missing_error,
            )
            shared = shared or spec["kvstore"]
            spec = {**spec, "kvstore": {**shared, "path": info.name}}
            if arg is not None:
                spec = ocp.type_handlers.get_cast_tspec_deserialize(spec, arg)
            specs.append(spec)
        arrays = await _wait_for_all(
            _open(spec, info.ts_context)
            for spec, info in zip(specs, infos, strict=True)
        )
        return await _wait_for_all(array.read() for array in arrays)


async def _wait_for_all(awaitables: Iterable[Awaitable]) -> list[Any]:
    """Return the results of all, in order; raise the first error after all have ended.

    Otherwise asyncio would log the errors of the others as never retrieved.
    """
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        task.exception()  # Retrieved, so that asyncio does not log it.
    return [task.result() for task in tasks]


async def _write_array(array: np.ndarray, spec: dict, context: Any) -> None:
    """Write an array to the place that tensorstore's `spec` describes."""
    store = await _open(spec, context, create=True)
    await store.write(array, can_reference_source_data_indefinitely=True)


async def _open(spec: dict, context: Any, **options: Any) -> tensorstore.TensorStore:
    """Return the stored array that tensorstore's `spec` describes."""
    spec = tensorstore.Spec(spec)
    return await tensorstore.open(spec, open=True, context=context, **options)


def _states_handler(**options: Any) -> ocp.handlers.PyTreeCheckpointHandler:
    """Return orbax's writer and reader of states. options: see orbax."""
    registry = ocp.type_handlers.create_type_handler_registry(
        (np.ndarray, _Arrays()),
        # Describes the arrays of checkpoints of earlier versions.
        (jax.Array, ocp.type_handlers.ArrayHandler()),
    )
    return ocp.handlers.PyTreeCheckpointHandler(
        type_handler_registry=registry, **options
    )


def _restore_args(target: PyTree) -> ocp.args.PyTreeRestore:
    """Return orbax's arguments that read NumPy arrays.

    target: arrays of any shape with the expected names and dtypes.
    """
    # Orbax restores numpy arrays of the stored shapes for numpy arrays of any shape.
    # Scalars, because orbax's error messages compare the values.
    blank = jax.tree.map(lambda x: np.zeros((), x.dtype), target)
    args = ocp.checkpoint_utils.construct_restore_args(blank)
    return ocp.args.PyTreeRestore(blank, restore_args=args)


class Folder:
    """An open folder of checkpoints.

    Errors of reads and saves are of any type, because orbax and tensorstore raise bare
    Exceptions. A failed save in the background raises its error in the next `save` or `wait`.
    """

    def __init__(self, path: epath.PathLike, options: ocp.CheckpointManagerOptions):
        """Open a folder. options: orbax's options."""
        processes = options.multiprocessing_options
        self._manager = ocp.CheckpointManager(
            files.resolve(path),
            options=options,
            item_names=("state", "info"),
            item_handlers={"state": _states_handler(multiprocessing_options=processes)},
        )

    def save(
        self,
        step: int,
        states: PyTree,
        *,
        info: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
    ) -> bool:
        """Save a step in the background; return False if a later step is saved already.

        Waits for the previous save. The arrays may be changed or donated after the call.

        states: JAX or NumPy arrays. info: a JSON object. metrics: validation accuracies, for
        `Preserve`; None to store none.
        """
        states = jax.tree.map(np.asarray, jax.device_get(states))
        args = ocp.args.Composite(
            state=ocp.args.PyTreeSave(states), info=ocp.args.JsonSave(info)
        )
        return self._manager.save(step, args=args, metrics=metrics)

    def wait(self) -> None:
        """Wait until all saves are complete on the disk."""
        self._manager.wait_until_finished()

    def steps(self) -> list[int]:
        """Return the steps with complete checkpoints, as of the last save or `reload`."""
        return sorted(self._manager.all_steps())

    def read_info(self, step: int) -> dict[str, Any]:
        """Return the info of a step."""
        items = ocp.args.Composite(info=ocp.args.JsonRestore())
        return self._manager.restore(step, args=items)["info"]

    def read_states(self, step: int, shapes: PyTree) -> PyTree:
        """Return the states of a step as NumPy arrays of the stored shapes.

        shapes: arrays or shapes with the expected names and dtypes. If the names differ,
        ValueError, KeyError or TypeError with the word "structure" or "shape".
        """
        items = ocp.args.Composite(state=_restore_args(shapes))
        return self._manager.restore(step, args=items)["state"]

    def reload(self) -> None:
        """Read the list of checkpoints again, after a change of the folder by others."""
        self._manager.reload()

    def close(self) -> None:
        """Wait until all saves are complete on the disk, and close orbax."""
        self._manager.close()


def open_for_writing(path: epath.PathLike, preserve: Preserve | None = None) -> Folder:
    """Return an open folder, which is created if needed, for this process only.

    preserve: chooses the checkpoints to keep after each save; None to keep all, and to store no
    metrics.
    """
    path = files.resolve(path)
    path.mkdir(parents=True, exist_ok=True)
    options = {"create": False}
    if preserve is not None:
        options["preservation_policy"] = _Policy(preserve)
        # Orbax stores no metrics without this function.
        options["best_fn"] = lambda metrics: float(np.mean(list(metrics.values())))
    if jax.process_count() > 1:
        # Only this process calls orbax, which must not wait for the other processes.
        process = jax.process_index()
        options["multiprocessing_options"] = ocp.options.MultiprocessingOptions(
            primary_host=process,
            active_processes={process},
            barrier_sync_key_prefix="alone",
        )
    async_options = ocp.AsyncOptions(
        timeout_secs=_TIMEOUT_SECONDS, create_directories_asynchronously=False
    )
    return Folder(
        path, ocp.CheckpointManagerOptions(async_options=async_options, **options)
    )


def open_for_reading(path: epath.PathLike) -> Folder:
    """Return an open folder that is never changed."""
    options = ocp.CheckpointManagerOptions(
        read_only=True, create=False, save_interval_steps=0
    )
    return Folder(path, options)


def read_stored_states(checkpoint: str | os.PathLike) -> Any:
    """Return the states of a checkpoint as stored: NumPy arrays in dicts and lists.

    checkpoint: the folder of one step. Errors are of any type.
    """
    path = epath.Path(checkpoint) / "state"
    # A checkpointer would warn that the folder is not inside a step.
    with contextlib.closing(_states_handler()) as reader:
        return reader.restore(path, args=_restore_args(reader.metadata(path).tree))


def info_file(checkpoint: epath.Path) -> epath.Path:
    """Return the path of the JSON file with the info. checkpoint: the folder of one step."""
    return checkpoint / "info" / "metadata"


def metrics_file(checkpoint: epath.Path) -> epath.Path:
    """Return the path of the JSON file with the metrics; `info_file` describes the argument."""
    return checkpoint / "metrics" / "metrics"
