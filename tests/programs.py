"""The training step of any algorithm on a tiny network, traced for given devices.

    python -m tests.programs erm sagnet,accumulate=4 erm,norm_group=8 ...

compiles the steps for the available devices, and prints as JSON, by algorithm, the sizes of
their collectives and the expected sizes. With `tpu` as the first word the devices are eight
TPUs, which need not be present; libtpu must be installed. The options after a comma are the
keyword arguments of `traced`, such as step=1 and radius=0.05.

    python -m tests.programs v5e erm padain

compiles the steps for one device of that kind, with a data set larger than its fast memory,
and prints the kind of each operation.
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
from jbias.training import input_pipeline, optim, prng, stages
from jbias.training.averaging import averages
from jbias.training.perturbing import sharpness
from jbias.training.tuning import hlo, targets
from tests.methods import METHODS

CLASSES, SIZE, BATCH, NUM_IMAGES = 5, 16, 64, 128
NUM_STEPS = 10
NUM_IMAGES_OF_LARGE_SET = (
    400_000  # Images; only shapes are used, so they need no memory.
)


def traced(
    name: str,
    devices: jax.sharding.Mesh,
    *,
    norm_group: int = 0,
    accumulate: int = 1,
    num_images: int = NUM_IMAGES,
    step: int = 0,
    radius: float = 0.0,
    average: str = "",
) -> jax.stages.Traced:
    """Trace the whole step: gather, transform and update, with the algorithm at full strength.

    step: number of the step, counted from 0, of NUM_STEPS. radius: of SAM; 0: no second pass.
    average: name of an average of weights; "": none.
    """
    algo, txs = _algorithm_and_optimisers(name, norm_group)
    block = math.lcm(algo.mix_group, norm_group or 1)
    inputs = build.transforms("inputs", METHODS[name].inputs)
    known = ("label", "attribute", "domain")
    rows = {name: jax.ShapeDtypeStruct((num_images,), jnp.int32) for name in known}
    rows["image"] = jax.ShapeDtypeStruct((num_images, SIZE, SIZE, 3), jnp.uint8)
    rows = jax.eval_shape(input_pipeline.flatten_images, rows)
    kept_average = averages.from_options(
        {"name": average} if average else 0.0,
        averages.Steps(total=NUM_STEPS, per_epoch=5, per_evaluation=5),
    )
    return collectives.trace_step(
        stages.make_seed_step(
            algo,
            lambda _: txs,
            inputs,
            CLASSES,
            accumulate=accumulate,
            block=block,
            sharpness=sharpness.from_options({"radius": radius}),
            average=kept_average,
        ),
        stages.make_initialiser(
            algo, txs, shape=(SIZE, SIZE), first=0, average=kept_average
        ),
        {"train": rows},
        BATCH,
        algo.static(step, NUM_STEPS),
        devices,
    )


def first_steps(name: str) -> tuple[int, ...]:
    """Return the first step of each compiled program of an algorithm, in a run of NUM_STEPS."""
    algo, _ = _algorithm_and_optimisers(name)
    first_by_static = {}
    for step in range(NUM_STEPS):
        first_by_static.setdefault(algo.static(step, NUM_STEPS), step)
    return tuple(first_by_static.values())


def expected(name: str, *, step: int = 0) -> dict[str, int]:
    """Return the bytes of one gradient and of all statistics, and the number of losses.

    The gradient and the losses are those of the updates that the step applies.
    """
    algo, txs = _algorithm_and_optimisers(name)
    static = algo.static(step, NUM_STEPS)
    draw = stages.make_initialiser(algo, txs, shape=(SIZE, SIZE), first=0)
    state = jax.eval_shape(draw, prng.key(0), None)
    norms = [x.size * 4 for x in jax.tree.leaves(state.stats) if len(x.shape) == 1]
    return {
        "gradients": collectives.gradient_bytes(algo, state.params, static=static),
        "statistics": sum(norms),
        "losses": sum(update.is_applied(static) for update in algo.updates),
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


def _algorithm_and_optimisers(name: str, norm_group: int = 0):
    net = network(norm_group)
    algo = algos.ALGOS[name](net, **METHODS[name].strong)
    sgd = optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=1e-3)
    return algo, (sgd,) * len(algo.updates)


def described(name: str, devices: jax.sharding.Mesh) -> dict:
    """Return the operations and sizes of a step on one device that stores a large set."""
    compiled = (
        traced(name, devices, num_images=NUM_IMAGES_OF_LARGE_SET).lower().compile()
    )
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
        print(json.dumps({name: _collectives(name, devices) for name in names}))


def _collectives(text: str, devices: jax.sharding.Mesh) -> dict:
    name, *options = text.split(",")
    options = {key: _number(n) for key, n in (option.split("=") for option in options)}
    lowered = traced(name, devices, **options).lower()
    quickly = collectives.QUICKLY if xla.platform() == "cpu" else None
    outputs = collectives.collective_outputs(lowered.compile(quickly).as_text())
    return {"moved": outputs, **expected(name, step=options.get("step", 0))}


def _number(text: str) -> float | str:
    """Return the number that a text is, an int if it can be; other texts unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


if __name__ == "__main__":
    main(sys.argv[1:])
