"""Several processes on this machine train what one trains, and end as one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest
from jax._src import clusters

from jbias import config as jc
from jbias.runs import checkpoints
from jbias.runtime import coordinator, processes
from tests import cases, smoke_runs
from tests.test_resume import saved

# A config of eight steps; as DIE=signal:count says, one comes after so many. Signal 0
# stands for what jax's own service, not this process, hears of a preemption. In a folder
# named by READS each process keeps which images it has opened.
CONFIG = """
import atexit, datetime, itertools, os, sys
import ml_collections
from jax._src import distributed
from jbias.training import divergence

def die(number):
    if number:
        return os.kill(os.getpid(), number)
    now = datetime.datetime.now(datetime.UTC).isoformat()
    client = distributed.global_state.client
    client.key_value_set("RECEIVED_PREEMPTION_NOTICE", now)

def keep(folder):
    opened = []

    def hook(event, args):
        if event == "open" and str(args[0]).endswith(".png"):
            opened.append(str(args[0]))

    def write():
        with open(os.path.join(folder, str(os.getpid())), "w") as file:
            file.write("\\n".join(opened))

    sys.addaudithook(hook)
    atexit.register(write)

def get_config(arg=""):
    if "READS" in os.environ:
        keep(os.environ["READS"])
    if "DIE" in os.environ:
        number, count = map(int, os.environ["DIE"].split(":"))
        add, steps = divergence.Monitor.add, itertools.count(1)

        def counted(self, *args):
            if next(steps) == count:
                die(number)
            return add(self, *args)

        divergence.Monitor.add = counted
    return ml_collections.ConfigDict({config!r})
"""


def config(**entries) -> dict:
    """Rounding grows with the rate: at this one it stays small for eight steps."""
    c = smoke_runs.small(seeds=(3,), epochs=2.0, save_every="3 steps", **entries)
    c.optim.rate, c.run.devices = 0.003, 0
    c.model, c.run.steps_per_dispatch = dict(name="cnn", width=4), 1
    return c.to_dict()


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(folder, number=0, count=1, at=0, *args, of=None, name="config", **env):
    """Starts one of `count` processes of a run in folder/run."""
    path = folder / f"{name}.py"
    path.write_text(CONFIG.format(config=of or config()))
    flags = [f"--coordinator=localhost:{at}", f"--processes={count}"]
    flags = [*flags, f"--process={number}"] if count > 1 else []
    command = [sys.executable, "-m", "jbias.main", f"--config={path}"]
    paths = os.pathsep.join([str(smoke_runs.ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*command, f"--workdir={folder}/run", *flags, *args],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def several(folder, count: int, *args, dies=None, **options) -> list:
    """Starts all; `dies` is (who, by which signal, after how many steps)."""
    at, started = port(), []
    for number in range(count):
        mine = dies and dies[0] == number
        env = {"DIE": f"{int(dies[1])}:{dies[2]}"} if mine else {}
        started.append(start(folder, number, count, at, *args, **options, **env))
    return started


def ended(started: list) -> list[tuple[int, str]]:
    """Exit codes, and what was said."""
    said = [process.communicate(timeout=600)[1] for process in started]
    return [(process.returncode, one) for process, one in zip(started, said)]


@pytest.fixture(scope="module")
def lone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lone")
    [(code, said)] = ended([start(folder)])
    assert code == 0, said
    return folder / "run"


def assert_alike(workdir, lone) -> None:
    """The order of sums alone differs, and what it does to images on a border."""
    (step, tree), (other_step, other) = saved(workdir), saved(lone)
    assert step == other_step == 8
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), tree, other
    )
    ours, theirs = smoke_runs.records(workdir), smoke_runs.records(lone)
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        if one["metric"] != "shape_bias":
            assert one["value"] == pytest.approx(other["value"], rel=1e-3, abs=0.02)
        if one["metric"] == "accuracy":
            assert abs(one["count"] - other["count"]) <= 1
        for result in ("value", "count"):
            one.pop(result), other.pop(result)
        assert one == other


@pytest.mark.slow
def test_a_signal_to_one_of_two_stops_both_and_four_go_on(lone, tmp_path):
    started = several(tmp_path, 2, dies=(1, signal.SIGTERM, 5))
    (code, said), (other, _) = ended(started)
    assert (code, other) == (143, 143), said
    assert 5 <= saved(tmp_path / "run")[0] <= 7
    assert "SIGTERM at step" in said
    done = ended(several(tmp_path, 4))
    assert [code for code, _ in done] == [0, 0, 0, 0], done
    assert "resuming" in done[0][1]
    assert done[1][1] == told_by_0(1, 4) + "\n"
    assert_alike(tmp_path / "run", lone)
    text = (tmp_path / "run" / "provenance.json").read_text()
    first = json.loads(text)
    assert first["device"]["processes"] == 2 and first["device"]["count"] == 2
    assert "device.processes: 2 != 4" in first["resumed"][0]["differing"]


@pytest.mark.slow
def test_a_preemption_that_jax_tells_of_stops_both_at_one_step(lone, tmp_path):
    """What `reached_preemption` of orbax asks for, also in its own saves."""
    found = ended(several(tmp_path, 2, dies=(1, 0, 3)))
    assert [code for code, _ in found] == [143, 143], found
    said = [[x for x in one.splitlines() if "jbias: " in x] for _, one in found]
    (step,) = {re.search(r"preemption notice at step (\d):", x)[1] for [x] in said}
    assert 4 <= int(step) == saved(tmp_path / "run")[0] <= 8
    [(code, said)] = ended([start(tmp_path)])
    assert code == 0 and "resuming" in said, said
    assert_alike(tmp_path / "run", lone)


def told_by_0(number: int, count: int) -> str:
    """What another process than the first says."""
    return f"process {number} of {count}: it is process 0 that says how far the run is"


@pytest.mark.slow
def test_a_lost_process_ends_the_other_and_one_goes_on(lone, tmp_path):
    """Each of the two is lost once: process 0 has jax's service with it."""
    for who, steps in ((1, 5), (0, 3)):
        began = time.monotonic()
        started = several(tmp_path, 2, dies=(who, signal.SIGKILL, steps))
        started[who].wait(600)
        lost = time.monotonic()
        found = ended(started)
        assert time.monotonic() - lost < 10 + (lost - began) / 10
        assert found[who][0] == -signal.SIGKILL, found
        code, said = found[1 - who]
        assert code == coordinator.EXIT_LOST == 69, said
        (line,) = [one for one in said.splitlines() if one.startswith("jbias: ")]
        assert f"process {who} of 2" in line and "was lost; start all again" in line
        assert "Traceback" not in said and "***" not in said
    assert said == f"{told_by_0(1, 2)}\n{line}\n"  # Process 1 has nothing else to say.
    [(code, said)] = ended([start(tmp_path)])
    assert code == 0 and "resuming" in said, said
    assert_alike(tmp_path / "run", lone)


@pytest.mark.slow
def test_different_commands_are_refused_by_name(tmp_path):
    at = port()
    other = config(eval_every="1 epoch", variant="other")
    started = [
        start(tmp_path, 0, 2, at),
        start(tmp_path, 1, 2, at, of=other, name="other"),
    ]
    found = ended(started)
    for code, said in found:
        assert code == 2, found
        assert "config.variant: '' != 'other'" in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@cases.each(
    ("args", "message"),
    [
        (("h:1", 2, None), "got no --process"),
        (("h:1", None, None), "got no --processes and no --process"),
        ((None, 2, 0), "got no --coordinator"),
        (("h", 2, 0), "--coordinator must be HOST:PORT"),
        (("h:x", 2, 0), "--coordinator must be HOST:PORT"),
        (("h:1", 2, 2), "--process must be 0 to 1 of --processes=2, got 2"),
        (("h:1", 0, 0), "--process must be 0 to 0 of --processes=0, got 0"),
    ],
)
def test_flags_that_do_not_fit_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        processes.identify(*args)


SLURM = dict(
    SLURM_JOB_ID="4097",
    SLURM_STEP_NODELIST="gpu[07-09],login",
    SLURM_NTASKS="3",
    SLURM_PROCID="2",
    SLURM_LOCALID="1",
)


def test_slurm_is_found_and_can_be_set_aside(monkeypatch):
    assert processes.identify(None, None, None).count == 1
    for key, value in SLURM.items():
        monkeypatch.setenv(key, value)
    found = processes.identify(None, None, None)
    assert found == ("gpu07:61441", 3, 2, [1])
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "0,1")  # Then jax looks there.
    assert processes.identify(None, None, None) == ("gpu07:61441", 3, 2, None)
    assert processes.identify(None, 1, None).count == 1
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert processes.identify(None, None, None).count == 1


@cases.each(
    ("found", "message"),
    [
        (RuntimeError("no such pod"), "does not say which .* there are .*no such pod."),
        (("h:1", 2, 2, None), "must say 0 to 1 for a process of 2, got 2"),
        (AttributeError("no such name"), f"jax {jax.__version__}: no such name"),
    ],
)
def test_what_a_cluster_says_wrongly_is_told(monkeypatch, found, message):
    """With the version of jax, which may be one that has another way to ask."""

    def detect(**_):
        if isinstance(found, Exception):
            raise found
        return found

    name = "auto_detect_unset_distributed_params"
    monkeypatch.setattr(clusters.ClusterEnv, name, detect)
    with pytest.raises(ValueError, match=message):
        processes.identify(None, None, None)


def test_cores_that_two_tasks_share_are_paid_once():
    cores = [("a", [0, 1]), ("a", [1, 2]), ("b", [0])]
    joined = object.__new__(processes.JoinedGroup)
    joined._facts = [{"host": host, "cores": some} for host, some in cores]
    assert joined.cores == 4


def test_the_others_are_told_of_a_checkpoint_without_its_records(tmp_path, monkeypatch):
    """Records grow with the run; who writes none needs none."""
    told, info = [], {"stage": 0, "records": "x" * 9999, "sums": {"a": 1}, "step": 3}
    first = types.SimpleNamespace(
        is_main=True, count=2, broadcast_tree=lambda tree: tree
    )
    first.broadcast = lambda what, value: told.append(value) or value
    store = checkpoints.CheckpointStore(tmp_path, first)
    monkeypatch.setattr(store, "_latest", lambda *_: ((1,), info))
    assert store.restore(None, print) == ((1,), info)
    store.close()
    assert told == [{**info, "records": True, "sums": {}}]


def test_nobody_at_the_address_is_told_in_time():
    where = processes.ProcessId(f"localhost:{port()}", 2, 1)
    message = "process 0 of 2 did not come: nothing answers"
    with (
        pytest.raises(ValueError, match=message),
        processes.join(where, dict, print, differing=jc.diff, wait=1.0),
    ):
        pass
