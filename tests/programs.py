"""The step of any algorithm on a tiny network, traced for some devices.

    python -m tests.programs erm sagnet ...

compiles them for the devices there are and prints, as JSON by algorithm, what their
collectives move, and what they may.
"""

import json
import sys

import jax
import jax.numpy as jnp

from benchmarks import collectives
from jbias import algos, build, mesh, optim, parts, seeds
from jbias.models import resnet
from tests.methods import METHODS

CLASSES, SIZE, BATCH, HELD = 5, 16, 64, 128


def traced(name: str, devices: jax.sharding.Mesh) -> jax.stages.Traced:
    """The whole step: gather, transform, learn, where the algorithm does its most."""
    algo, txs = _made(name)
    inputs = parts.transforms("inputs", METHODS[name].inputs)
    image = jax.ShapeDtypeStruct((HELD, SIZE, SIZE, 3), jnp.uint8)
    rows = {"image": image, "label": jax.ShapeDtypeStruct((HELD,), jnp.int32)}
    return collectives.traced(
        build.trainer(algo, txs, inputs, CLASSES),
        build.initialiser(algo, txs, SIZE, 0, 0.0),
        {"train": rows},
        BATCH,
        algo.static(0, 10),
        devices,
    )


def expected(name: str) -> dict[str, int]:
    """Bytes of one gradient and of all statistics, and how many losses are followed."""
    algo, txs = _made(name)
    draw = build.initialiser(algo, txs, SIZE, 0, 0.0)
    state = jax.eval_shape(draw, seeds.key(0), None)
    norms = [x.size * 4 for x in jax.tree.leaves(state.stats) if len(x.shape) == 1]
    return {
        "gradients": collectives.gradient_bytes(algo, state.params),
        "statistics": sum(norms),
        "losses": len(algo.updates),
    }


def _made(name: str):
    net = resnet.ResNet(
        CLASSES, depths=(1, 1, 1, 1), bottleneck=False, width=8, stem="small"
    )
    algo = algos.ALGOS[name](net, **METHODS[name].strong)
    sgd = optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=1e-3)
    return algo, (sgd,) * len(algo.updates)


def main(names: list[str]) -> None:
    devices, found = mesh.make(), {}
    for name in names:
        compiled = traced(name, devices).lower().compile(collectives.QUICKLY)
        moved = collectives.parse(compiled.as_text())
        found[name] = {"moved": moved, **expected(name)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
