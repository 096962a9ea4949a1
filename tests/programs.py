"""The step of any algorithm on a tiny network, traced for some devices.

    python -m tests.programs erm sagnet,accumulate=4 erm,norm_group=8 ...

compiles them for the devices there are and prints, as JSON by algorithm, what their
collectives move, and what they may. With `tpu` as the first word these are eight TPUs,
which need not be there; libtpu must.

    python -m tests.programs v5e erm padain

compiles them for one device of that kind, of a set larger than its fast memory, and
prints what each operation is.
"""

import json
import math
import sys

import jax
import jax.numpy as jnp

from benchmarks import collectives, compiled_step
from jbias import algos, build
from jbias.models import resnet
from jbias.runtime import mesh, xla
from jbias.training import hlo, input_pipeline, optim, prng, stages, targets
from tests.methods import METHODS

CLASSES, SIZE, BATCH, HELD = 5, 16, 64, 128
MANY = 400_000  # Images: shapes alone, which cost nothing.


def traced(
    name: str,
    devices: jax.sharding.Mesh,
    *,
    norm_group: int = 0,
    accumulate: int = 1,
    held: int = HELD,
) -> jax.stages.Traced:
    """The whole step: gather, transform, learn, where the algorithm does its most."""
    algo, txs = _made(name, norm_group)
    block = math.lcm(algo.mix_group, norm_group or 1)
    inputs = build.transforms("inputs", METHODS[name].inputs)
    known = ("label", "attribute", "domain")
    rows = {name: jax.ShapeDtypeStruct((held,), jnp.int32) for name in known}
    rows["image"] = jax.ShapeDtypeStruct((held, SIZE, SIZE, 3), jnp.uint8)
    rows = jax.eval_shape(input_pipeline.flatten_images, rows)
    return collectives.trace_step(
        stages.make_seed_step(
            algo, lambda _: txs, inputs, CLASSES, accumulate=accumulate, block=block
        ),
        stages.make_initialiser(algo, txs, shape=(SIZE, SIZE), first=0, average=0.0),
        {"train": rows},
        BATCH,
        algo.static(0, 10),
        devices,
    )


def expected(name: str) -> dict[str, int]:
    """Bytes of one gradient and of all statistics, and how many losses are followed."""
    algo, txs = _made(name)
    draw = stages.make_initialiser(algo, txs, shape=(SIZE, SIZE), first=0, average=0.0)
    state = jax.eval_shape(draw, prng.key(0), None)
    norms = [x.size * 4 for x in jax.tree.leaves(state.stats) if len(x.shape) == 1]
    return {
        "gradients": collectives.gradient_bytes(algo, state.params),
        "statistics": sum(norms),
        "losses": len(algo.updates),
    }


def network(norm_group: int = 0) -> resnet.ResNet:
    return resnet.ResNet(
        CLASSES,
        depths=(1, 1, 1, 1),
        bottleneck=False,
        width=8,
        stem="small",
        norm_group=norm_group,
    )


def _made(name: str, norm_group: int = 0):
    net = network(norm_group)
    algo = algos.ALGOS[name](net, **METHODS[name].strong)
    sgd = optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=1e-3)
    return algo, (sgd,) * len(algo.updates)


def described(name: str, devices: jax.sharding.Mesh) -> dict:
    """What a step is on one device that holds a large set, and the sizes that it has."""
    compiled = traced(name, devices, held=MANY).lower().compile()
    return {
        "operations": hlo.operations(compiled.as_text()),
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
        **expected(name),
    }


def main(names: list[str]) -> None:
    if names[0] in targets.KINDS:
        aim, devices = compiled_step.make_mesh(names[0])
        with xla.compiling_for(aim.platform):
            print(json.dumps({name: described(name, devices) for name in names[1:]}))
        return
    devices, target = mesh.make(), "cpu"
    if names[0] == "tpu":
        target, names = "v5e:2x4", names[1:]
        _, devices = compiled_step.make_mesh(target)
    with xla.compiling_for(targets.parse(target).platform):
        print(json.dumps({one: _moved(one, devices) for one in names}))


def _moved(given: str, devices: jax.sharding.Mesh) -> dict:
    name, *options = given.split(",")
    options = {key: int(n) for key, n in (one.split("=") for one in options)}
    lowered = traced(name, devices, **options).lower()
    quickly = collectives.QUICKLY if xla.platform() == "cpu" else None
    moved = collectives.collective_outputs(lowered.compile(quickly).as_text())
    return {"moved": moved, **expected(name)}


if __name__ == "__main__":
    main(sys.argv[1:])
