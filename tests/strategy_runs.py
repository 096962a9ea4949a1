"""Trains small seeds by some strategies on some devices; prints what came out.

    python -m tests.strategy_runs '{"preset": "erm", "seeds": 2, "ways": [["looped", 8], ...],
        "change": {"model.norm_group": 4}}'

With "config", a whole config as JSON, that is trained and no preset. The output is JSON: for
each way the losses of two steps by seed, and the mesh. A way's third entry, if it has one,
draws by which signs each weight is moved by a unit of rounding first. With "moved": true it is what the first way's compiled step moves between devices, with
"held": true how many values each device holds while eight trees of four come and go.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import collectives, common
from jbias import config as jc
from jbias.runtime import mesh
from jbias.training import seed_axis, stages
from tests import smoke_runs


def moved(stage, which, strategy: str, devices) -> list:
    """All collectives of the step of the first tree of seeds."""
    stage = common.with_seeds(stage, which)
    laid = stages.fit_to_devices(stage, devices, strategy=strategy)
    layout, chosen = laid.layout, seed_axis.STRATEGIES[strategy]
    ((state, *_),) = laid.start()
    (((arg, *_),),) = laid.batches(0)
    arg = (arg[0], layout.place(arg[1]))
    step = jax.jit(
        seed_axis.map_tree(stage.program.step, layout, chosen), static_argnums=3
    )
    lowered = step.lower(state, arg, stage.shared(0), None)
    return collectives.collective_outputs(
        lowered.compile(collectives.QUICKLY).as_text()
    )


def held(devices) -> list[int]:
    """Values that each device holds at most, while eight trees of four are laid out."""
    layout = seed_axis.choose_layout(8, devices, stacked=False, together=8)
    most = [0] * devices.size

    def look() -> None:
        for i, device in enumerate(devices.devices.flat):
            shards = {
                shard.data.unsafe_buffer_pointer(): shard.data.size
                for array in jax.live_arrays()
                for shard in array.addressable_shards
                if shard.device == device
            }
            most[i] = max(most[i], sum(shards.values()))

    def drawn():
        for seed in range(8):
            yield {"w": jnp.full(4, seed)}
            look()

    packed = layout.pack(drawn())
    look()
    states = layout.unpack(packed)
    look()
    assert [tree["w"].tolist() for tree in states] == [[i] * 4 for i in range(8)]
    return most


def _config(asked: dict) -> dict:
    if "config" in asked:
        return asked["config"]
    config = smoke_runs.small(asked["preset"])
    config.train.batch = 64
    config.train.n = 128
    if asked["preset"] == "padain":
        config.algo.p = 0.3
    with config.unlocked():
        config.update_from_flattened_dict(asked["change"])
    return jc.to_dict(config)


def main(text: str) -> None:
    asked = json.loads(text)
    config, which = _config(asked), tuple(range(asked["seeds"]))
    found = []
    if asked.get("held"):
        assert mesh.make(8, 8, together=3).shape["seed"] == 2
        print(json.dumps(held(mesh.make(8, 8))))
        return
    for strategy, count, *rounded in asked["ways"]:
        devices = mesh.make(count, len(which))
        stage = smoke_runs.stage(config, devices)
        if asked.get("moved"):
            print(json.dumps(moved(stage, which, strategy, devices)))
            return
        options = dict(steps=2, devices=devices, rounded=rounded[0] if rounded else 0)
        states, seen = smoke_runs.trained(stage, which, strategy, **options)
        kernel = states[0].params["net"]["fc"]["kernel"]
        if devices.shape["seed"] == 1:
            assert len(kernel.sharding.device_set) == count
        else:
            assert isinstance(kernel, np.ndarray)
        losses = [
            [{k: float(v) for k, v in one.items()} for one in step] for step in seen
        ]
        found.append({"losses": losses, "mesh": dict(devices.shape)})
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
