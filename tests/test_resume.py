"""A run that is killed anywhere and resumed ends with the same bits."""

import json
import os
import random
import signal
import time

import jax
import numpy as np
import pytest

from jbias.runs import checkpoints, costs
from jbias.runtime import checkpoint_files
from tests import smoke_runs


def saved(workdir) -> tuple[int, dict]:
    """Return the latest checkpoint's step and raw tree."""
    step = checkpoints.steps(workdir / "checkpoints")[-1]
    checkpoint = workdir / "checkpoints" / str(step)
    return step, checkpoint_files.read_stored_states(checkpoint)


def assert_same_end(a, b):
    """Assert equal latest weights, statistics, optimisers and records, without duplicates."""
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
    """Train to the end; return the output."""
    process = smoke_runs.start(config, workdir)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def sagnet():
    """Return a config of twelve steps, which saves at other steps than it evaluates."""
    return smoke_runs.small("sagnet", epochs=3.0, save_every="3 steps")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("unbroken") / "run"
    finish(sagnet(), workdir)
    return workdir


@pytest.mark.slow
def test_killed_in_save_rename_and_step_ends_the_same(unbroken, tmp_path):
    workdir = tmp_path / "run"
    for trigger, number in (("step", 5), ("save", 3), ("rename", 3)):
        process = smoke_runs.start(sagnet(), workdir, trigger, str(number))
        output, _ = process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL, output
    output = finish(sagnet(), workdir)
    assert "resuming" in output
    assert_same_end(unbroken, workdir)
    costs_unbroken, costs_killed = (
        json.loads((w / "costs.json").read_text()) for w in (unbroken, workdir)
    )
    assert costs_unbroken["total"]["starts"] == 1 < costs_killed["total"]["starts"]
    steps = [start["step"] for start in costs_killed["starts"]]
    assert (
        steps == sorted(set(steps))
        and steps[-1] == costs_unbroken["starts"][0]["step"] == 12
    )
    assert costs_killed["total"] == costs.total(costs_killed["starts"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_stops_with_a_message(unbroken, tmp_path, name):
    """The run stops with exit code 143, also if a cluster sends the signal twice."""
    workdir = tmp_path / "run"
    process = smoke_runs.start(sagnet(), workdir)
    while not (workdir / "evals" / "4.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for _ in range(2):
        process.send_signal(signal.Signals[name])
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 143, output
    assert f"{name} at step" in output
    assert "Traceback" not in output
    step = int(output.split(f"{name} at step ")[1].split(":")[0])
    assert saved(workdir)[0] == step
    finish(sagnet(), workdir)
    assert_same_end(unbroken, workdir)


@pytest.mark.slow
def test_a_lost_evaluation_is_repeated_from_its_checkpoint(unbroken, tmp_path):
    config, workdir = sagnet(), tmp_path / "run"
    process = smoke_runs.start(config, workdir, "step", "9")
    process.communicate(timeout=600)
    (workdir / "evals" / "8.jsonl").unlink()
    finish(config, workdir)
    assert_same_end(unbroken, workdir)


@pytest.mark.slow
def test_seeds_in_waves_on_two_devices_killed_end_the_same(tmp_path):
    """Four seeds on two devices, killed in waves, are resumed without waves."""
    config = smoke_runs.small(
        "erm", seeds=(0, 1, 2, 3), epochs=2.0, save_every="3 steps"
    )
    flags = os.environ.get("XLA_FLAGS", "")
    two_devices = {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2"}

    def run_to_end(workdir, *death) -> str:
        process = smoke_runs.start(
            config, workdir, *death, JAX_PLATFORMS="cpu", **two_devices
        )
        output, _ = process.communicate(timeout=600)
        assert process.returncode == (-signal.SIGKILL if death else 0), output
        return output

    run_to_end(tmp_path / "unbroken")
    config.run.together = 2
    run_to_end(tmp_path / "run", "step", "6")
    config.run.together = 0
    assert "resuming" in run_to_end(tmp_path / "run")
    assert_same_end(tmp_path / "unbroken", tmp_path / "run")


@pytest.mark.slow
def test_ten_kills_at_random_moments_end_the_same(unbroken, tmp_path):
    """Two of the ten kills are inside a save and inside a rename."""
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
    """ERM for an epoch, then SagNet on the net that ERM trained."""
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
