"""The device law: 1, 2 or 8 devices give the same numbers, up to the order of sums."""

import json
import os
import subprocess
import sys

import pytest

from tests import runs

CODE = """
import json, sys
import jax, numpy as np
from jbias import build, mesh, seeds
from tests import runs
devices = mesh.make(int(sys.argv[2]))
stage = runs.stage(json.load(open(sys.argv[1])), int(sys.argv[2]))
states = mesh.replicate((build.start(stage, 0),), devices)
seen = []
for step in range(2):
    args = [((seeds.key(0), mesh.split(stage.take(0, step), devices)),)]
    states, [(metrics,)] = stage.advance(states, args, stage.held(stage.first), None)
    seen.append({k: float(v) for k, v in metrics.items()})
    assert len(states[0].params["net"]["fc"]["kernel"].sharding.device_set) == int(sys.argv[2])
print(json.dumps(seen))
"""


def losses(config, devices: int, path) -> list[dict]:
    """The losses of the first steps on that many devices."""
    path.write_text(json.dumps(config.to_dict()))
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(path), str(devices)],
        cwd=runs.ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("preset", ["padain", "sagnet"])
def test_eight_devices_give_what_one_gives(preset, tmp_path):
    config = runs.small(preset)
    config.train.batch = 64
    if preset == "padain":
        config.algo.p = 0.3
    one = losses(config, 1, tmp_path / "one.json")
    eight = losses(config, 8, tmp_path / "eight.json")
    # The order of sums at first; then a step of rate 0.1 has magnified it.
    for a, b, rel in zip(one, eight, (1e-5, 1e-3), strict=True):
        assert a == pytest.approx(b, rel=rel)
