"""Two processes that read a streamed set train what one does, and read no more."""

import collections
import pathlib
import re

import numpy as np
import pytest

from jbias.data import splits
from tests.runtime import test_processes
from tests.test_resume import saved
from tests.training import test_input_plan

pytestmark = pytest.mark.slow

# Of seed 3 a unit of rounding in the weights moves the momentum by 4e-4: two values tie.
SEED, BATCH, STEPS = 5, 16, 8
TRAINED, VALID = BATCH * STEPS, 69 * 2  # Images that one process reads, of either set.


def config(root: str, **cut):
    """Eight steps and two evaluations, of which all is read from files."""
    c = test_input_plan.config(root, **cut)
    c.update(seeds=(SEED,), epochs=2.0, save_every="3 steps")
    c.optim.rate, c.run.devices, c.run.steps_per_dispatch = 0.003, 0, 1
    c.run.eval_batch, c.run.loading.gib, c.run.loading.threads = 32, 0.0, 1
    return c


def read(process, folder: pathlib.Path) -> collections.Counter:
    """How often a process has opened images, of either set."""
    paths = (folder / str(process.pid)).read_text().splitlines()
    return collections.Counter(pathlib.Path(path).parts[-3] for path in paths)


@test_input_plan.cuts
def test_two_processes_read_a_share_each_and_train_what_one_does(tmp_path, cut):
    (root := tmp_path / "photos").mkdir()
    c = config(test_input_plan.draw(root), **cut)
    found = {}
    for count in (1, 2):
        (folder := tmp_path / str(count)).mkdir()
        options = dict(entry=c.to_dict(), READS=str(folder))
        started = test_processes.start_all(folder, count, **options)
        ended = test_processes.wait_for_all(started)
        assert [code for code, _ in ended] == [0] * count, ended
        found[count] = [read(process, folder) for process in started]
    test_processes.assert_close_runs(tmp_path / "2" / "run", tmp_path / "1" / "run")
    (alone,) = found[1]
    assert alone["train"] >= TRAINED and alone["valid"] == VALID
    for one in found[2]:  # Each looks at the shape of an image first.
        assert 0 <= one["train"] - alone["train"] // 2 <= 2, found
    shares = [one["valid"] for one in found[2]]  # Of batches of 32, 32 and 5.
    assert shares == [2 * (16 + 16 + 5), 2 * (16 + 16)]


@test_input_plan.cuts
def test_seeds_are_spread_over_processes(tmp_path, monkeypatch, cut):
    """As over the devices of one: each process has a share of them, or a part of one."""
    (root := tmp_path / "photos").mkdir()
    c = config(test_input_plan.draw(root), **cut)
    c.seeds, c.run.spread = (3, 4), 2
    for processes, devices in ((1, 4), (2, 2), (4, 1)):
        (folder := tmp_path / str(processes)).mkdir()
        here = f"--xla_force_host_platform_device_count={devices}"
        monkeypatch.setenv("XLA_FLAGS", here)
        started = test_processes.start_all(folder, processes, entry=c.to_dict())
        ended = test_processes.wait_for_all(started)
        assert [code for code, _ in ended] == [0] * processes, ended
        assert "2 share(s) with seeds of their own" in ended[0][1]
        test_processes.assert_close_runs(folder / "run", tmp_path / "1" / "run")


@test_input_plan.cuts
def test_a_damaged_image_of_one_ends_both_with_its_name(tmp_path, cut):
    (root := tmp_path / "photos").mkdir()
    c = config(test_input_plan.draw(root), **cut)
    bad = root / "train" / late(c)
    whole = bad.read_bytes()
    bad.write_bytes(whole[:200].ljust(len(whole), b"-"))
    lines = []
    for code, said in test_processes.wait_for_all(
        test_processes.start_all(tmp_path, 2, entry=c.to_dict())
    ):
        assert code == 2, said
        (line,) = [x for x in said.splitlines() if x.startswith("jbias: ")]
        assert str(bad) in line and "Traceback" not in said
        lines.append(line)
    (step,) = {int(re.search(r"step (\d) is saved", line)[1]) for line in lines}
    assert saved(tmp_path / "run")[0] == step >= 2
    bad.write_bytes(whole)
    ended = test_processes.wait_for_all(
        test_processes.start_all(tmp_path, 2, entry=c.to_dict())
    )
    assert [code for code, _ in ended] == [0, 0], ended
    assert f"resuming {c.algo.name}" in ended[0][1]
    assert saved(tmp_path / "run")[0] == STEPS


def late(c) -> str:
    """A file that process 1 alone reads, after two steps at least."""
    stage = test_input_plan.stage(c)
    order, host = stage.order, c.train.crop == "host"
    source = splits.train_set("config.train", c.train.to_dict(), c.size).sources[0]
    if host:
        rows = [order.index(SEED, step) for step in range(STEPS)]
        mine = np.concatenate([one[BATCH // 2 :] for one in rows[2:4]])
        early = np.concatenate([*rows[:2], *(one[: BATCH // 2] for one in rows[2:])])
    else:
        mine, early = order.members(1)[BATCH:], order.members(0)
    stage.close()
    return source.files[min({*mine.tolist()} - {*early.tolist()})]
