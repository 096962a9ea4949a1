"""What a step moves between devices and should, and the step as a run shares it out."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jbias.algos import base
from jbias.training import hlo

# For XLA_FLAGS: devices that a CPU emulates, and, so that each collective keeps the name
# of what it is for, none of them put together.
HOST_DEVICES = (
    "--xla_force_host_platform_device_count={}"
    " --xla_disable_hlo_passes=cpu-all-reduce-combiner,all-reduce-combiner"
)
# Seconds instead of a minute; what is shared out among devices, and how, stays the same.
QUICKLY = {"xla_backend_optimization_level": 0}


def gradient_bytes(algo: base.Algo, params: Any) -> int:
    """Bytes of one gradient of all weights that some update trains, in float32."""
    trained = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if any(
            update.trains(tuple(str(entry.key) for entry in path))
            for update in algo.updates
        )
    ]
    return sum(4 * leaf.size for leaf in trained)


def traced(
    step: Any, draw: Any, rows: Any, batch: int, static: Any, devices: jax.sharding.Mesh
) -> jax.stages.Traced:
    """A seed's step, traced as a run shares it out; nothing is computed or placed.

    step: a seeds.One. draw: (key, None) -> state. rows: shapes of what is held, by stream,
    of which each device has all; of the batch each has its part.
    """
    whole = NamedSharding(devices, PartitionSpec())
    part = NamedSharding(devices, PartitionSpec("data"))

    def placed(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), tree
        )

    key = jax.random.key(0)
    taken = jax.ShapeDtypeStruct((batch,), "int32", sharding=part)
    arg = (key, {name: taken for name in rows})
    state = placed(jax.eval_shape(draw, key, None))
    program = jax.jit(step, static_argnums=3, donate_argnums=0)
    return program.trace(state, arg, placed(rows), static)


class CollectiveOutput(NamedTuple):
    """One array that a collective brings out, and how often a run of the program."""

    kind: str
    shape: tuple[int, ...]
    bytes: int  # Of all `times` together, on one device.
    times: float | None  # None: in a loop whose length depends on the data.
    name: str  # Of what asked for it, as jax calls it.

    @property
    def role(self) -> str:
        """What it is for: "scalars", "norm" (sums of a normalisation), or "other"."""
        if not self.shape:
            return "scalars"
        return "norm" if len(self.shape) == 1 and _in_norm(self.name) else "other"


def _in_norm(name: str) -> bool:
    return any(part.startswith(("bn", "norm")) for part in re.split(r"[/(:]", name))


def collective_outputs(text: str) -> list[CollectiveOutput]:
    """All that the collectives of a compiled program bring out.

    A pair of start and done counts once, and once what lies in a loop whose length depends
    on the data. Of branches each counts, though one is taken, unless chances are named.
    """
    found = []
    for one in hlo.operations(text, taken=None):
        kind = one.code.removesuffix("-done")
        for shape, size in hlo.arrays(one.out) if kind in hlo.COLLECTIVES else ():
            size = round(size * one.runs)
            found.append(CollectiveOutput(kind, shape, size, one.times, one.scope))
    return found


def by_role(found: Iterable[CollectiveOutput]) -> dict[str, int]:
    """Bytes of each role."""
    total = dict(scalars=0, norm=0, other=0)
    for one in found:
        total[one.role] += one.bytes
    return total
