"""Make a run's device mesh, place arrays on it and gather them; choose the compute dtype."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import DTypeLike, PyTree

from jbias.runtime import xla


def make(
    count: int = 0,
    seeds: int = 1,
    spread: int = 0,
    together: int = 0,
    *,
    devices: Sequence[jax.Device] = (),
) -> jax.sharding.Mesh:
    """Return a mesh with the axes "seed" and "data".

    The devices are divided into `spread` shares along the axis "seed", and a batch's
    examples are divided among the devices of a share along "data". Shares train equal
    numbers of seeds, without traffic between shares.

    count: number of devices, the first of `devices`; 0: all.
    seeds: number of seeds that train on the mesh.
    spread: number of shares; 0: the largest number, within `together`, that divides both seeds
      and devices. With several processes, each share must also be within one process or consist
      of whole processes.
    together: the largest number of seeds in memory at a time; 0: no limit.
    devices: default: `jax.devices()`.
    ValueError if `count` or `spread` does not fit the devices, or `spread` exceeds `together`.
    """
    devices = list(devices) or jax.devices()
    processes = len({device.process_index for device in devices})
    if count and processes > 1:
        raise ValueError(
            f"mesh: run.devices must be 0, all, where {processes} processes "
            f"train together, got {count}; give --config.run.devices=0"
        )
    if not 0 <= count <= len(devices):
        raise ValueError(
            f"mesh: run.devices must be 0 to {len(devices)}, the devices here, "
            f"got {count}"
        )
    devices = devices[:count] if count else devices
    common_divisor = math.gcd(seeds, len(devices))
    process_devices = len(devices) // processes

    def fits(shares: int) -> bool:
        """Return True if `shares` divides seeds and devices, and fits the processes; see `make`."""
        if common_divisor % shares != 0:
            return False
        share_devices = len(devices) // shares
        return (
            process_devices % share_devices == 0 or share_devices % process_devices == 0
        )

    if together and spread > together:
        raise ValueError(
            f"config.run.together: must be 0 or at least config.run.spread, {spread}, as "
            f"each share of the devices has a seed, got {together}"
        )
    limit = min(common_divisor, together or common_divisor)
    spread = spread or max(filter(fits, range(1, limit + 1)))
    if not fits(spread):
        condition = (
            ", with whole processes per share or whole shares per process"
            if processes > 1
            else ""
        )
        raise ValueError(
            f"config.run.spread: must divide {common_divisor}, the greatest common divisor "
            f"of {seeds} seeds and {len(devices)} devices in {processes} "
            f"process(es){condition}, got {spread}; config.run.devices sets the number of "
            "devices"
        )
    shape, axes = (spread, len(devices) // spread), ("seed", "data")
    types = (AxisType.Auto, AxisType.Auto)
    if processes > 1:
        # Devices of one process must be neighbours in the mesh.
        devices = sorted(devices, key=lambda device: (device.process_index, device.id))
        grid = np.reshape(np.array(devices), shape)
        return jax.sharding.Mesh(grid, axes, axis_types=types)
    return jax.make_mesh(shape, axes, axis_types=types, devices=devices)


def put(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Return the tree's arrays as jax arrays, placed on devices by a sharding.

    tree: arrays with the full values, equal in every process.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda x: _put(x, sharding), tree)


def _put(x: Any, sharding: NamedSharding) -> jax.Array:
    """Place one array, which may have random keys, on devices by a sharding; see `put`."""
    # jax.device_put would first compare the values of all processes.
    if isinstance(x, jax.Array):
        if not x.is_fully_addressable:
            return jax.device_put(x, sharding)
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = _put(np.asarray(jax.random.key_data(x)), sharding)
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def fetch(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Return the arrays of a tree, sharded or not, as full numpy arrays on the host."""
    return jax.device_get(everywhere(tree, mesh))


def everywhere(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Return the tree with all values readable in this process.

    Leaves that are partly on devices of other processes are replicated; other leaves are
    unchanged.
    """

    def replicate_leaf(x: Any) -> Any:
        is_local = not isinstance(x, jax.Array) or x.is_fully_addressable
        return x if is_local or x.is_fully_replicated else _replicator(mesh)(x)

    return jax.tree.map(replicate_leaf, tree)


def replicate(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Return the tree with a full copy of every array on every device."""
    return put(tree, NamedSharding(mesh, PartitionSpec()))


def split(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Return arrays whose leading axis (examples) is divided among the devices along "data".

    tree: arrays with the full values, equal in every process.
    """
    return put(tree, NamedSharding(mesh, PartitionSpec("data")))


def assemble(
    tree: PyTree, mesh: jax.sharding.Mesh, axes: str | tuple[str, ...] = "data"
) -> PyTree:
    """Return global arrays, assembled from the processes' parts along the leading axis.

    tree: this process's part of the arrays. axes: mesh axes that divide the leading axis.
    """
    sharding = NamedSharding(mesh, PartitionSpec(axes))
    return jax.tree.map(
        lambda x: jax.make_array_from_process_local_data(sharding, x), tree
    )


def gather(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Return the processes' parts concatenated along the leading axis, on all devices.

    tree: this process's part of the arrays.
    """
    if jax.process_count() == 1:
        return replicate(tree, mesh)
    return _replicator(mesh)(assemble(tree, mesh, mesh.axis_names))


@functools.cache
def _replicator(mesh: jax.sharding.Mesh) -> Callable[[PyTree], PyTree]:
    """Return a compiled function that replicates a tree on all devices of the mesh."""
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.jit(lambda tree: tree, out_shardings=sharding)


class LocalPart(NamedTuple):
    """The part of the examples that a process reads."""

    index: int  # Number of the part, from 0 on.
    count: int  # Number of parts.
    num_devices: int  # Number of device positions along the axes in a part.


def local_part(mesh: jax.sharding.Mesh, axes: Sequence[str] = ("data",)) -> LocalPart:
    """Return this process's part of the examples, which are divided along mesh axes.

    axes: names of the mesh axes. ValueError if the devices of a process are not neighbours
    in the mesh, because its examples would not be contiguous.
    """
    owners = [device.process_index for device in mesh.devices.flat]
    processes = list(dict.fromkeys(owners))
    process_devices = len(owners) // len(processes)
    expected = [process for process in processes for _ in range(process_devices)]
    if owners != expected:
        raise ValueError(
            "mesh: all processes must have equal numbers of devices, which are neighbours "
            f"in the mesh, got devices of the processes {owners}"
        )
    num_positions = math.prod(mesh.shape[axis] for axis in axes)
    # A process with whole shares reads all examples.
    part_devices = min(process_devices, num_positions)
    first_position = processes.index(jax.process_index()) * part_devices % num_positions
    return LocalPart(
        index=first_position // part_devices,
        count=num_positions // part_devices,
        num_devices=part_devices,
    )


def check_batch(
    batch: int,
    mix_group: int,
    mesh: jax.sharding.Mesh,
    *,
    norm_group: int = 0,
    accumulate: int = 1,
    block: int = 1,
) -> None:
    """Raise ValueError for a batch whose examples would have to move between devices.

    A device's share is the part of the batch on one position of the mesh axis "data".

    batch: number of examples; must be a multiple of the number of shares.
    mix_group: examples that an augmentation mixes; must divide a device's share.
    norm_group: examples that batch norm averages over, 0: the batch. Must divide the batch,
      and must divide a device's share or be a multiple of it, so that only sums move between
      devices.
    accumulate, block: with accumulate > 1, a device's share must be a multiple of
      accumulate blocks of `block` examples.
    """
    shards = mesh.shape["data"]
    if batch % shards or (batch // shards) % mix_group:
        raise ValueError(
            f"config.train.batch: must be a multiple of {shards} device(s) x mix_group "
            f"{mix_group} = {shards * mix_group}, got {batch}; or take fewer devices"
        )
    share, group = batch // shards, norm_group or batch
    if batch % group or (share % group and group % share):
        valid_groups = [
            size
            for size in range(1, batch + 1)
            if batch % size == 0 and (share % size == 0 or size % share == 0)
        ]
        nearest = [size for size in valid_groups if size < group][-1:]
        nearest += [size for size in valid_groups if size > group][:1]
        raise ValueError(
            f"config.model.norm_group: must divide the batch, {batch}, and divide or be a "
            f"multiple of a device's share of it, {share}, got {group}; try "
            f"{' or '.join(map(str, nearest))}"
        )
    if accumulate > 1 and share % (accumulate * block):
        raise ValueError(
            f"config.train.batch: must be a multiple of {shards} devices x accumulate "
            f"{accumulate} x {block} examples that stay together (mix_group, norm_group) "
            f"= {shards * accumulate * block}, got {batch}; lower accumulate or norm_group, "
            "or take a larger batch"
        )


def dtype(precision: str) -> DTypeLike:
    """Return the dtype of computations; ValueError for an unknown `precision`.

    precision: "float32", "bfloat16", or "auto": bfloat16 on accelerators, float32 on CPU.
    """
    if precision == "auto":
        return jnp.float32 if xla.platform() == "cpu" else jnp.bfloat16
    if precision not in ("float32", "bfloat16"):
        raise ValueError(
            f"config.precision: must be auto, float32 or bfloat16, got {precision!r}"
        )
    return jnp.dtype(precision)
