"""The resume law: killed anywhere and started again, a run ends with the same bits."""

import json
import os
import random
import signal
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jbias.runs import checkpoints, costs
from tests import smoke_runs


def saved(workdir) -> tuple[int, dict]:
    """The latest checkpoint's step and raw tree."""
    manager = checkpoints.CheckpointStore(workdir / "checkpoints").manager
    step = manager.latest_step()
    args = ocp.args.Composite(state=ocp.args.StandardRestore())
    tree = manager.restore(step, args=args)["state"]
    manager.close()
    return step, jax.tree.map(np.asarray, tree)


def assert_same_end(a, b):
    """The same latest weights, statistics and optimisers, and the same records, once."""
    (step, tree), (other_step, other) = saved(a), saved(b)
    assert step == other_step
    jax.tree.map(np.testing.assert_array_equal, tree, other)
    assert smoke_runs.records(a) == smoke_runs.records(b)
    keys = [
        tuple(r[k] for k in ("stage", "seed", "step", "dataset", "condition", "metric"))
        for r in smoke_runs.records(a)
    ]
    assert len(keys) == len(set(keys))
    assert (a / "done").read_text() == (b / "done").read_text() == "finished\n"


def finish(config, workdir) -> str:
    """Runs to the end; returns what it said."""
    process = smoke_runs.start(config, workdir)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def sagnet():
    """Twelve steps; saves do not fall together with evaluations."""
    return smoke_runs.small("sagnet", epochs=3.0, save_every="3 steps")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("unbroken") / "run"
    finish(sagnet(), workdir)
    return workdir


@pytest.mark.slow
def test_killed_in_save_rename_and_step_ends_the_same(unbroken, tmp_path):
    workdir = tmp_path / "run"
    for what, number in (("step", 5), ("save", 3), ("rename", 3)):
        process = smoke_runs.start(sagnet(), workdir, what, str(number))
        said, _ = process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL, said
    said = finish(sagnet(), workdir)
    assert "resuming" in said
    assert_same_end(unbroken, workdir)
    one, several = (
        json.loads((w / "costs.json").read_text()) for w in (unbroken, workdir)
    )
    assert one["total"]["starts"] == 1 < several["total"]["starts"]
    steps = [start["step"] for start in several["starts"]]
    assert steps == sorted(set(steps)) and steps[-1] == one["starts"][0]["step"] == 12
    assert several["total"] == costs.total(several["starts"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_leaves_with_a_message(unbroken, tmp_path, name):
    """A cluster may send it twice."""
    workdir = tmp_path / "run"
    process = smoke_runs.start(sagnet(), workdir)
    while not (workdir / "evals" / "4.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for _ in range(2):
        process.send_signal(signal.Signals[name])
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 143, said
    assert f"{name} at step" in said
    assert "Traceback" not in said
    step = int(said.split(f"{name} at step ")[1].split(":")[0])
    assert saved(workdir)[0] == step
    finish(sagnet(), workdir)
    assert_same_end(unbroken, workdir)


@pytest.mark.slow
def test_a_lost_evaluation_is_put_back_from_its_checkpoint(unbroken, tmp_path):
    config, workdir = sagnet(), tmp_path / "run"
    process = smoke_runs.start(config, workdir, "step", "9")
    process.communicate(timeout=600)
    (workdir / "evals" / "8.jsonl").unlink()
    finish(config, workdir)
    assert_same_end(unbroken, workdir)


@pytest.mark.slow
def test_spread_seeds_in_waves_killed_go_on_to_the_same_end(tmp_path):
    """Four seeds over two devices; the run goes on without waves."""
    config = smoke_runs.small(
        "erm", seeds=(0, 1, 2, 3), epochs=2.0, save_every="3 steps"
    )
    flags = os.environ.get("XLA_FLAGS", "")
    two = {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2"}

    def ended(workdir, *death) -> str:
        process = smoke_runs.start(config, workdir, *death, JAX_PLATFORMS="cpu", **two)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == (-signal.SIGKILL if death else 0), said
        return said

    ended(tmp_path / "unbroken")
    config.run.together = 2
    ended(tmp_path / "run", "step", "6")
    config.run.together = 0
    assert "resuming" in ended(tmp_path / "run")
    assert_same_end(tmp_path / "unbroken", tmp_path / "run")


@pytest.mark.slow
def test_ten_kills_at_random_moments_end_the_same(unbroken, tmp_path):
    """Two of them inside a save and inside a rename."""
    workdir, moments = tmp_path / "run", random.Random(0)
    for kill in range(10):
        death = {3: ("save", "2"), 6: ("rename", "2")}.get(kill, ())
        process = smoke_runs.start(sagnet(), workdir, *death)
        if not death:
            time.sleep(moments.uniform(2.0, 14.0))
            process.kill()
        process.communicate(timeout=600)
    finish(sagnet(), workdir)
    assert_same_end(unbroken, workdir)


@pytest.mark.slow
def test_killed_in_a_later_stage_and_at_its_border_ends_the_same(tmp_path):
    """ERM for an epoch, then SagNet on the net that it left."""
    algo = sagnet().algo.to_dict()
    stages = ({"epochs": 1.0}, {"algo": algo, "epochs": 1.0})
    config = smoke_runs.small("erm", stages=stages, save_every="3 steps")
    finish(config, tmp_path / "unbroken")
    # After the fourth step, which ends the first stage, and two steps later.
    for number in ("4", "2"):
        process = smoke_runs.start(config, tmp_path / "run", "step", number)
        process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL
    finish(config, tmp_path / "run")
    assert_same_end(tmp_path / "unbroken", tmp_path / "run")
