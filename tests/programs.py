"""The step of any algorithm on a tiny network, traced for some devices.

    python -m tests.programs erm sagnet,accumulate=4 erm,norm_group=8 ...

compiles them for the devices there are and prints, as JSON by algorithm, what their
collectives move, and what they may. With `tpu` as the first word these are eight TPUs,
which need not be there; libtpu must.
"""

import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies

from benchmarks import collectives
from jbias import algos, mesh, optim, seeds
from jbias.models import resnet
from jbias.training import hlo, parts, trainer
from tests.methods import METHODS

CLASSES, SIZE, BATCH, HELD = 5, 16, 64, 128


def traced(
    name: str, devices: jax.sharding.Mesh, *, norm_group: int = 0, accumulate: int = 1
) -> jax.stages.Traced:
    """The whole step: gather, transform, learn, where the algorithm does its most."""
    algo, txs = _made(name, norm_group)
    block = math.lcm(algo.mix_group, norm_group or 1)
    inputs = parts.transforms("inputs", METHODS[name].inputs)
    image = jax.ShapeDtypeStruct((HELD, SIZE, SIZE, 3), jnp.uint8)
    known = ("label", "attribute", "domain")
    rows = {name: jax.ShapeDtypeStruct((HELD,), jnp.int32) for name in known}
    rows["image"] = image
    return collectives.traced(
        trainer.make(
            algo, lambda _: txs, inputs, CLASSES, accumulate=accumulate, block=block
        ),
        trainer.initialiser(algo, txs, (SIZE, SIZE), 0, 0.0),
        {"train": rows},
        BATCH,
        algo.static(0, 10),
        devices,
    )


def expected(name: str) -> dict[str, int]:
    """Bytes of one gradient and of all statistics, and how many losses are followed."""
    algo, txs = _made(name)
    draw = trainer.initialiser(algo, txs, (SIZE, SIZE), 0, 0.0)
    state = jax.eval_shape(draw, seeds.key(0), None)
    norms = [x.size * 4 for x in jax.tree.leaves(state.stats) if len(x.shape) == 1]
    return {
        "gradients": collectives.gradient_bytes(algo, state.params),
        "statistics": sum(norms),
        "losses": len(algo.updates),
    }


def _made(name: str, norm_group: int = 0):
    net = resnet.ResNet(
        CLASSES,
        depths=(1, 1, 1, 1),
        bottleneck=False,
        width=8,
        stem="small",
        norm_group=norm_group,
    )
    algo = algos.ALGOS[name](net, **METHODS[name].strong)
    sgd = optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=1e-3)
    return algo, (sgd,) * len(algo.updates)


def _tpus() -> jax.sharding.Mesh:
    there = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    return jax.sharding.Mesh(np.reshape(there.devices, (1, -1)), ("seed", "data"))


def main(names: list[str]) -> None:
    devices, found = mesh.make(), {}
    if names[0] == "tpu":
        devices, names = _tpus(), names[1:]
        jax.default_backend = lambda: "tpu"  # What steps ask for is what they run on.
    for given in names:
        name, *options = given.split(",")
        options = {key: int(n) for key, n in (one.split("=") for one in options)}
        lowered = traced(name, devices, **options).lower()
        quickly = collectives.QUICKLY if jax.default_backend() == "cpu" else None
        moved = hlo.moved(lowered.compile(quickly).as_text())
        found[given] = {"moved": moved, **expected(name)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
