"""Bytes that a training step moves between devices, read from its compiled program."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jbias.algos import base
from jbias.training.tuning import hlo

# For XLA_FLAGS: number of devices that a CPU emulates. Collectives are not combined, so
# each keeps the name of the operation that it serves.
HOST_DEVICES = (
    "--xla_force_host_platform_device_count={}"
    " --xla_disable_hlo_passes=cpu-all-reduce-combiner,all-reduce-combiner"
)
# Compiles in seconds instead of a minute, with the same sharding.
QUICKLY = {"xla_backend_optimization_level": 0}


def gradient_bytes(algo: base.Algo, params: Any, *, static: Any = None) -> int:
    """Return the bytes in float32 of one gradient of all weights that a step trains.

    static: the step's static argument, which selects its updates (Update.when); None: all.
    """
    trained = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if any(
            update.trains(tuple(str(entry.key) for entry in path))
            for update in algo.updates
            if update.is_applied(static)
        )
    ]
    return sum(4 * leaf.size for leaf in trained)


def trace_step(
    step: Any, init: Any, rows: Any, batch: int, static: Any, devices: jax.sharding.Mesh
) -> jax.stages.Traced:
    """Trace a seed's step with the shardings of a run; nothing is computed or placed.

    step: a seed_axis.SeedFunction. init: (key, None) -> state. rows: shapes of the data
    sets by stream; each device stores all of them. batch: images of a step, split over the
    devices. static: the step's static argument.
    """
    replicated = NamedSharding(devices, PartitionSpec())
    split = NamedSharding(devices, PartitionSpec("data"))

    def replicate(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated), tree
        )

    key = jax.random.key(0)
    indices = jax.ShapeDtypeStruct((batch,), "int32", sharding=split)
    arg = (key, {name: indices for name in rows})
    state = replicate(jax.eval_shape(init, key, None))
    program = jax.jit(step, static_argnums=3, donate_argnums=0)
    return program.trace(state, arg, replicate(rows), static)


class CollectiveOutput(NamedTuple):
    """An array that a collective of a program outputs.

    kind: name of the collective. bytes: of all `times` outputs, on one device. times:
    outputs in a run of the program; None in a loop whose length depends on the data.
    name: jax's name of the operation that the collective serves.
    """

    kind: str
    shape: tuple[int, ...]
    bytes: int
    times: float | None
    name: str

    @property
    def role(self) -> str:
        """Purpose: "scalars", "norm" (sums of a normalisation layer), or "other"."""
        if not self.shape:
            return "scalars"
        return "norm" if len(self.shape) == 1 and _in_norm(self.name) else "other"


def _in_norm(name: str) -> bool:
    return any(part.startswith(("bn", "norm")) for part in re.split(r"[/(:]", name))


def collective_outputs(text: str) -> list[CollectiveOutput]:
    """Return all outputs of the collectives of a compiled program.

    text: the program's HLO. A pair of start and done counts once, as does a collective in
    a loop whose length depends on the data. Every branch of a conditional counts.
    """
    outputs = []
    for operation in hlo.operations(text, branch_probability=None):
        kind = operation.code.removesuffix("-done")
        if kind not in hlo.COLLECTIVES:
            continue
        for shape, size in hlo.arrays(operation.out):
            output = CollectiveOutput(
                kind,
                shape,
                bytes=round(size * operation.runs),
                times=operation.times,
                name=operation.scope,
            )
            outputs.append(output)
    return outputs


def by_role(outputs: Iterable[CollectiveOutput]) -> dict[str, int]:
    """Return the bytes of all outputs, by role."""
    total = dict(scalars=0, norm=0, other=0)
    for output in outputs:
        total[output.role] += output.bytes
    return total
