"""Two processes that stream a set get the results of one, and read each image once."""

import collections
import pathlib
import re

import numpy as np
import pytest

from jbias.data import config_sets
from tests.runtime import test_processes
from tests.test_resume import saved
from tests.training import test_input_plan

pytestmark = pytest.mark.slow

# Of seed 3 a unit of rounding in the weights moves the momentum by 4e-4: two values tie.
SEED, BATCH, STEPS = 5, 16, 8
TRAINED, VALID = BATCH * STEPS, 69 * 2  # Images that a single process reads per set.


def config(root: str, **cut):
    """Return a config of eight steps and two evaluations; all images are streamed."""
    c = test_input_plan.config(root, **cut)
    c.update(seeds=(SEED,), epochs=2.0, save_every="3 steps")
    c.optim.rate, c.run.devices, c.run.steps_per_dispatch = 0.003, 0, 1
    c.run.eval_batch, c.run.loading.gib, c.run.loading.threads = 32, 0.0, 1
    return c


def count_reads(process, folder: pathlib.Path) -> collections.Counter:
    """Return the number of images that a process has opened, by split."""
    paths = (folder / str(process.pid)).read_text().splitlines()
    return collections.Counter(pathlib.Path(path).parts[-3] for path in paths)


@test_input_plan.cuts
def test_two_processes_read_a_share_each_and_train_like_one_process(tmp_path, cut):
    root = tmp_path / "photos"
    root.mkdir()
    c = config(test_input_plan.draw(root), **cut)
    reads = {}
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        started = test_processes.start_all(
            folder, count, entry=c.to_dict(), READS=str(folder)
        )
        ended = test_processes.wait_for_all(started)
        assert [code for code, _ in ended] == [0] * count, ended
        reads[count] = [count_reads(process, folder) for process in started]
    test_processes.assert_close_runs(tmp_path / "2" / "run", tmp_path / "1" / "run")
    (single,) = reads[1]
    assert single["train"] >= TRAINED and single["valid"] == VALID
    for counts in reads[2]:  # Each process reads the shape of an image first.
        assert 0 <= counts["train"] - single["train"] // 2 <= 2, reads
    shares = [counts["valid"] for counts in reads[2]]  # Of batches of 32, 32 and 5.
    assert shares == [2 * (16 + 16 + 5), 2 * (16 + 16)]


@test_input_plan.cuts
def test_seeds_are_spread_over_processes(tmp_path, monkeypatch, cut):
    """A process has whole shares of the devices, or a part of one share."""
    root = tmp_path / "photos"
    root.mkdir()
    c = config(test_input_plan.draw(root), **cut)
    c.seeds, c.run.spread = (3, 4), 2
    for processes, devices in ((1, 4), (2, 2), (4, 1)):
        folder = tmp_path / str(processes)
        folder.mkdir()
        flags = f"--xla_force_host_platform_device_count={devices}"
        monkeypatch.setenv("XLA_FLAGS", flags)
        started = test_processes.start_all(folder, processes, entry=c.to_dict())
        ended = test_processes.wait_for_all(started)
        assert [code for code, _ in ended] == [0] * processes, ended
        assert "2 share(s) with seeds of their own" in ended[0][1]
        test_processes.assert_close_runs(folder / "run", tmp_path / "1" / "run")


@test_input_plan.cuts
def test_an_image_that_one_process_cannot_read_stops_both_with_its_name(tmp_path, cut):
    root = tmp_path / "photos"
    root.mkdir()
    c = config(test_input_plan.draw(root), **cut)
    path = root / "train" / late_file_of_process_1(c)
    content = path.read_bytes()
    path.write_bytes(content[:200].ljust(len(content), b"-"))
    lines = []
    for code, output in test_processes.wait_for_all(
        test_processes.start_all(tmp_path, 2, entry=c.to_dict())
    ):
        assert code == 2, output
        (line,) = [x for x in output.splitlines() if x.startswith("jbias: ")]
        assert str(path) in line and "Traceback" not in output
        lines.append(line)
    (step,) = {int(re.search(r"step (\d) is saved", line)[1]) for line in lines}
    assert saved(tmp_path / "run")[0] == step >= 2
    path.write_bytes(content)
    ended = test_processes.wait_for_all(
        test_processes.start_all(tmp_path, 2, entry=c.to_dict())
    )
    assert [code for code, _ in ended] == [0, 0], ended
    assert f"resuming {c.algo.name}" in ended[0][1]
    assert saved(tmp_path / "run")[0] == STEPS


def late_file_of_process_1(c) -> str:
    """Return a file that only process 1 reads, after at least two steps."""
    stage = test_input_plan.stage(c)
    order, crops_on_host = stage.order, c.train.crop == "host"
    source = config_sets.train_set("config.train", c.train.to_dict(), c.size).sources[0]
    if crops_on_host:
        batches = [order.index(SEED, step) for step in range(STEPS)]
        half = BATCH // 2
        of_process_1 = np.concatenate([batch[half:] for batch in batches[2:4]])
        excluded = np.concatenate(
            [*batches[:2], *(batch[:half] for batch in batches[2:])]
        )
    else:
        of_process_1, excluded = order.members(1)[BATCH:], order.members(0)
    stage.feed.close()
    return source.files[min({*of_process_1.tolist()} - {*excluded.tolist()})]
