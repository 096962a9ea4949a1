"""What a step should move between devices, and the step as a run shares it out."""

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jbias.algos import base

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
