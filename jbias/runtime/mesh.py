"""The device mesh of a run: placing and gathering arrays, and the compute dtype."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

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
    """A mesh over the first `count` devices (0: all), axes "seed" and "data".

    `seeds` of them train there: each of `spread` shares of the devices has as many,
    which costs no traffic at all, and examples are shared out among the devices of a
    share. 0 shares: as many as divide both seeds and devices, and of several processes
    lie each within one or have whole ones. At most `together` seeds, if given, are on
    them at once.
    `devices` are taken in the place of those here.
    ValueError where there are no such devices or shares.
    """
    devices = list(devices) or jax.devices()
    processes = len({one.process_index for one in devices})
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
    possible = math.gcd(seeds, len(devices))
    own = len(devices) // processes  # Of each process.

    def fits(shares: int) -> bool:
        each = len(devices) // shares
        return possible % shares == 0 and (own % each == 0 or each % own == 0)

    if together and spread > together:
        raise ValueError(
            f"config.run.together: must be 0 or at least config.run.spread, {spread}, as "
            f"each share of the devices has a seed, got {together}"
        )
    limit = min(possible, together or possible)
    spread = spread or max(filter(fits, range(1, limit + 1)))
    if not fits(spread):
        whole = " in whole processes, or whole shares in each" if processes > 1 else ""
        raise ValueError(
            f"config.run.spread: must divide {possible}, what {seeds} seeds and "
            f"{len(devices)} devices in {processes} process(es) have in "
            f"common{whole}, got {spread}; config.run.devices says how many are used"
        )
    shape, axes = (spread, len(devices) // spread), ("seed", "data")
    types = (AxisType.Auto, AxisType.Auto)
    if processes > 1:
        # Each process's side by side, wherever they lie in the machine.
        devices = sorted(devices, key=lambda one: (one.process_index, one.id))
        grid = np.reshape(np.array(devices), shape)
        return jax.sharding.Mesh(grid, axes, axis_types=types)
    return jax.make_mesh(shape, axes, axis_types=types, devices=devices)


def put(tree: PyTree, place: NamedSharding) -> PyTree:
    """Lays what every process has whole out on the devices of all."""
    if jax.process_count() == 1:
        return jax.device_put(tree, place)
    return jax.tree.map(lambda x: _put(x, place), tree)


def _put(x: Any, place: NamedSharding) -> jax.Array:
    # jax.device_put would first compare the values that the processes have.
    if isinstance(x, jax.Array):
        if not x.is_fully_addressable:
            return jax.device_put(x, place)
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = _put(np.asarray(jax.random.key_data(x)), place)
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, place, lambda index: x[index])


def fetch(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Brings arrays to the host, whole, wherever their parts are."""
    return jax.device_get(everywhere(tree, mesh))


def everywhere(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """What this process could not read otherwise, whole on every device, leaf by leaf."""

    def whole(x: Any) -> Any:
        there = not isinstance(x, jax.Array) or x.is_fully_addressable
        return x if there or x.is_fully_replicated else _everywhere(mesh)(x)

    return jax.tree.map(whole, tree)


def replicate(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Puts the whole tree on every device."""
    return put(tree, NamedSharding(mesh, PartitionSpec()))


def split(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Shares the leading axis, that of examples, out among the devices."""
    return put(tree, NamedSharding(mesh, PartitionSpec("data")))


def assemble(
    tree: PyTree, mesh: jax.sharding.Mesh, axes: str | tuple[str, ...] = "data"
) -> PyTree:
    """As `split`, where each process has its own part of the leading axis alone."""
    place = NamedSharding(mesh, PartitionSpec(axes))
    whole = functools.partial(jax.make_array_from_process_local_data, place)
    return jax.tree.map(whole, tree)


def gather(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
    """Puts the parts that each process has together, whole, on every device."""
    if jax.process_count() == 1:
        return replicate(tree, mesh)
    return _everywhere(mesh)(assemble(tree, mesh, mesh.axis_names))


@functools.cache
def _everywhere(mesh: jax.sharding.Mesh) -> Callable[[PyTree], PyTree]:
    place = NamedSharding(mesh, PartitionSpec())
    return jax.jit(lambda tree: tree, out_shardings=place)


def local_part(
    mesh: jax.sharding.Mesh, axes: Sequence[str] = ("data",)
) -> tuple[int, int, int]:
    """Which part of the examples is this process's: its number, of how many, devices.

    Examples are shared out along these axes. ValueError where the devices of a process
    are not neighbours in the mesh: its part would not be one stretch of them.
    """
    owners = [device.process_index for device in mesh.devices.flat]
    parts = list(dict.fromkeys(owners))
    each = len(owners) // len(parts)
    if owners != [owner for owner in parts for _ in range(each)]:
        raise ValueError(
            "mesh: each process must have as many devices as any other, side by side, "
            f"got devices of the processes {owners}"
        )
    along = math.prod(mesh.shape[axis] for axis in axes)
    each = min(each, along)  # A process with whole shares has all examples.
    return parts.index(jax.process_index()) * each % along // each, along // each, each


def check_batch(
    batch: int,
    mix_group: int,
    mesh: jax.sharding.Mesh,
    *,
    norm_group: int = 0,
    accumulate: int = 1,
    block: int = 1,
) -> None:
    """Refuses a batch of which examples, or activations, would cross devices.

    Groups of mixing examples lie inside one device's share. Groups that batch norm takes
    together do, too, or span whole shares: then their sums alone move. With `accumulate`
    > 1 every device has that many blocks of `block` examples, or a multiple.
    """
    shards = mesh.shape["data"]
    if batch % shards or (batch // shards) % mix_group:
        raise ValueError(
            f"config.train.batch: must be a multiple of {shards} device(s) x mix_group "
            f"{mix_group} = {shards * mix_group}, got {batch}; or take fewer devices"
        )
    share, group = batch // shards, norm_group or batch
    if batch % group or (share % group and group % share):
        every = range(1, batch + 1)
        fit = [n for n in every if not (batch % n or share % n and n % share)]
        around = [n for n in fit if n < group][-1:] + [n for n in fit if n > group][:1]
        near = " or ".join(map(str, around))
        raise ValueError(
            f"config.model.norm_group: must divide the batch, {batch}, and divide or be a "
            f"multiple of a device's share of it, {share}, got {group}; try {near}"
        )
    if accumulate > 1 and share % (accumulate * block):
        raise ValueError(
            f"config.train.batch: must be a multiple of {shards} devices x accumulate "
            f"{accumulate} x {block} examples that stay together (mix_group, norm_group) "
            f"= {shards * accumulate * block}, got {batch}; lower accumulate or norm_group, "
            "or take a larger batch"
        )


def dtype(precision: str) -> DTypeLike:
    """The compute type; "auto" is bfloat16 on accelerators, float32 on CPU."""
    if precision == "auto":
        return jnp.float32 if xla.platform() == "cpu" else jnp.bfloat16
    if precision not in ("float32", "bfloat16"):
        raise ValueError(
            f"config.precision: must be auto, float32 or bfloat16, got {precision!r}"
        )
    return jnp.dtype(precision)
