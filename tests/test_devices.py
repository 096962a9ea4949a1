"""The device law: 1, 2 or 8 devices give the same numbers, up to the order of sums."""

import json
import os
import subprocess
import sys

import jax
import pytest

from jbias import config as jc
from jbias import mesh, parts
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


@pytest.mark.slow
@pytest.mark.parametrize("norm_group", [4, 16])
def test_groups_and_micro_batches_are_the_same_on_any_number(norm_group, tmp_path):
    """Groups of 16 span two of eight devices, and the batch is not cut then."""
    config = runs.small("sagnet")
    config.train.batch, config.algo.mix_group = 64, 4
    config.train.accumulate = 2 if norm_group == 4 else 1
    config.model.norm_group = norm_group
    one, *more = (losses(config, n, tmp_path / f"{n}.json") for n in (1, 2, 8))
    for many in more:
        for a, b, rel in zip(one, many, (1e-5, 1e-3), strict=True):
            assert a == pytest.approx(b, rel=rel)


def emulated(devices: int) -> jax.sharding.AbstractMesh:
    return jax.sharding.AbstractMesh((1, devices), ("seed", "data"))


@pytest.mark.parametrize("norm_group", [0, 2, 4, 8, 16, 64])
def test_norm_groups_lie_in_a_share_or_span_whole_ones(norm_group):
    mesh.check_batch(64, 4, emulated(8), norm_group=norm_group)


@pytest.mark.parametrize(("norm_group", "near"), [(8, 4), (32, 4), (36, 12)])
def test_refuses_norm_groups_that_cut_a_share(norm_group, near):
    with pytest.raises(ValueError, match=f"norm_group: .*, 12, got .*; try {near}$"):
        mesh.check_batch(96, 4, emulated(8), norm_group=norm_group)


def test_a_norm_group_counts_images_whatever_the_views():
    config = jc.plain(runs.small())
    assert parts.network(config, 5).norm_group == 0
    config["model"]["norm_group"] = 8
    assert parts.network(config, 5, 3).norm_group == 24
    (made,) = parts.transforms("inputs", [{"name": "augmix"}])
    assert made.views == 3
    stage = runs.stage({**config, "inputs": [{"name": "views", "views": 2}]})
    assert stage.algo.net.norm_group == 16


def test_the_norm_group_is_of_a_runs_identity():
    config = jc.plain(runs.small())
    grouped = {**config, "model": {**config["model"], "norm_group": 8}}
    assert jc.digest(grouped) != jc.digest(config)
    assert jc.differing(config, grouped) == ["model.norm_group: 0 != 8"]
