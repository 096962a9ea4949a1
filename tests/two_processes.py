"""One of two processes that share a stream; writes the images of its device.

    python -m tests.two_processes folder port number

`folder` has the configs, <name>.json; the process writes <name>-<number>.npz: for five steps
of seed 1, the images of its share of each batch, or of the shared window.
"""

import json
import pathlib
import sys

import jax
import numpy as np

from jbias import run_spec
from jbias.runtime import mesh
from jbias.training import input_pipeline, input_plan, setup, stages


def main(folder: str, port: str, number: str) -> None:
    jax.distributed.initialize(f"localhost:{port}", 2, int(number))
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        spec = run_spec.RunSpec.from_config(json.loads(path.read_text()))
        plans = input_plan.plan_stages(spec.stages, setup.open_train_sets(spec))
        (stage,) = stages.build_stages(spec, plans, {}, mesh.make())
        arrays = {}
        for step in range(5):
            window, batch = (
                stage.feed.shared(step)["train"],
                stage.feed.batch(1, step)["train"],
            )
            rows = batch if isinstance(batch, dict) else window
            for name, x in rows.items():
                x = x.rows if isinstance(x, input_pipeline.FlatImages) else x
                shards = [np.asarray(shard.data) for shard in x.addressable_shards]
                whole = shards[0] if x.is_fully_replicated else np.concatenate(shards)
                arrays[f"{step}/{name}"] = whole
        stage.feed.close()
        np.savez(path.with_name(f"{path.stem}-{number}.npz"), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
