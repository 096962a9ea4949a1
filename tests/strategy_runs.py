"""Train small seeds with several strategies on several devices; print the losses.

    python -m tests.strategy_runs '{"preset": "erm", "seeds": 2, "ways": [["looped", 8], ...],
        "change": {"model.norm_group": 4}}'

"config", a complete config as JSON, replaces the preset. The output is JSON: for each entry of
"ways" the losses of two steps by seed, and the mesh. The third entry of a way, if any, is the
seed of random signs, by which each weight is first changed by one unit of rounding. With
"moved": true the output is the list of collectives of the first way's compiled step, and with
"held": true the largest number of values on each device while eight trees of four are placed.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import collectives, common
from jbias import config as jc
from jbias.runtime import mesh
from jbias.training import placement, seed_axis, strategies
from tests import smoke_runs


def collectives_of_step(stage, which, strategy: str, devices) -> list:
    """Return all collectives of the step of the first tree of seeds."""
    stage = common.with_seeds(stage, which)
    placed = placement.fit_to_devices(stage, devices, strategy=strategy)
    layout, chosen = placed.layout, strategies.STRATEGIES[strategy]
    ((state, *_),) = placed.start()
    (((arg, *_),),) = placed.batches(0)
    arg = (arg[0], layout.place(arg[1]))
    step = jax.jit(
        seed_axis.map_tree(stage.program.step, layout, chosen), static_argnums=3
    )
    lowered = step.lower(state, arg, stage.feed.shared(0), None)
    return collectives.collective_outputs(
        lowered.compile(collectives.QUICKLY).as_text()
    )


def largest_sizes(devices) -> list[int]:
    """Return the largest number of values on each device while eight trees are placed."""
    layout = seed_axis.choose_layout(8, devices, stacked=False, together=8)
    largest = [0] * devices.size

    def update_largest() -> None:
        for i, device in enumerate(devices.devices.flat):
            shards = {
                shard.data.unsafe_buffer_pointer(): shard.data.size
                for array in jax.live_arrays()
                for shard in array.addressable_shards
                if shard.device == device
            }
            largest[i] = max(largest[i], sum(shards.values()))

    def drawn():
        for seed in range(8):
            yield {"w": jnp.full(4, seed)}
            update_largest()

    packed = layout.pack(drawn())
    update_largest()
    states = layout.unpack(packed)
    update_largest()
    assert [tree["w"].tolist() for tree in states] == [[i] * 4 for i in range(8)]
    return largest


def _config(request: dict) -> dict:
    if "config" in request:
        return request["config"]
    config = smoke_runs.small(request["preset"])
    config.train.batch = 64
    config.train.n = 128
    if request["preset"] == "padain":
        config.algo.p = 0.3
    with config.unlocked():
        config.update_from_flattened_dict(request["change"])
    return jc.to_dict(config)


def main(text: str) -> None:
    request = json.loads(text)
    config, which = _config(request), tuple(range(request["seeds"]))
    results = []
    if request.get("held"):
        assert mesh.make(8, 8, together=3).shape["seed"] == 2
        print(json.dumps(largest_sizes(mesh.make(8, 8))))
        return
    for strategy, count, *rounded in request["ways"]:
        devices = mesh.make(count, len(which))
        stage = smoke_runs.stage(config, devices)
        if request.get("moved"):
            print(json.dumps(collectives_of_step(stage, which, strategy, devices)))
            return
        options = dict(steps=2, devices=devices, rounded=rounded[0] if rounded else 0)
        states, metrics = smoke_runs.trained(stage, which, strategy, **options)
        kernel = states[0].params["net"]["fc"]["kernel"]
        if devices.shape["seed"] == 1:
            assert len(kernel.sharding.device_set) == count
        else:
            assert isinstance(kernel, np.ndarray)
        losses = [
            [
                {k: float(v) for k, v in metrics_of_seed.items()}
                for metrics_of_seed in step
            ]
            for step in metrics
        ]
        results.append({"losses": losses, "mesh": dict(devices.shape)})
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
