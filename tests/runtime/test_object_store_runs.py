"""Real runs in an object store: killed, started twice, damaged, cut off, evaluated."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from jbias.report import cli
from jbias.runtime import files
from tests import gcs_server, smoke_runs

pytestmark = pytest.mark.slow
PROGRAM = """
import sys
import jbias.runtime.workdir_lock
from jbias import main
jbias.runtime.workdir_lock.PATIENCE_SECONDS = 4.0
jbias.runtime.workdir_lock.BEAT_SECONDS = 0.5
main.command()
"""
ARGUMENTS = (
    "--config=configs/erm.py:smoke,seeds=2",
    *("--config.model.width=4", "--config.train.n=128", "--config.train.batch=32"),
    *("--config.valid.n=64", "--config.epochs=3.0", "--config.save_every=3 steps"),
)


@pytest.fixture
def store(monkeypatch):
    with gcs_server.serving() as store:
        for name, value in store.env.items():
            monkeypatch.setenv(name, value)
        files.resolve("gs://bucket/runs/x")
        yield store


def start(workdir) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *ARGUMENTS, f"--workdir={workdir}"],
        cwd=smoke_runs.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_exit(process: subprocess.Popen, code: int) -> str:
    output, _ = process.communicate(timeout=900)
    assert process.returncode == code, output
    return output


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return the records of an uninterrupted run on a disk, by file."""
    workdir = tmp_path_factory.mktemp("unbroken") / "run"
    wait_for_exit(start(workdir), 0)
    return {p.name: p.read_bytes() for p in workdir.glob("evals/*.jsonl")}


def assert_ended(store, unbroken):
    assert store.content("runs/x/done") == b"finished\n"
    names = store.names("runs/x/evals/")
    records = {name.rpartition("/")[2]: store.content(name) for name in names}
    assert records == unbroken and len(unbroken) == 3
    assert "runs/x/lock" not in store.names()


@contextlib.contextmanager
def at(store, method: str, name: str, act):
    """Call a function before the store answers the first matching request."""
    done = []

    def act_once(request_method: str, request_name: str) -> None:
        if request_method == method and re.search(name, request_name) and not done:
            done.append(request_name)
            act()

    store.stored.before_request = act_once
    yield
    store.stored.before_request = lambda method, name: None
    assert done, f"never asked: {method} {name}"


MOMENTS = (
    ("POST", r"evals/4\.jsonl$"),
    ("POST", r"checkpoints/4/commit_success\.txt$"),
    ("POST", r"checkpoints/6/state/.*/d/"),
    ("POST", r"costs\.json$"),
)


@pytest.mark.slow
def test_a_run_killed_at_any_request_gives_the_bits_of_a_run_on_disk(store, unbroken):
    for method, name in MOMENTS:
        process = start("gs://bucket/runs/x")
        with at(store, method, name, process.kill):
            wait_for_exit(process, -signal.SIGKILL)
    output = wait_for_exit(start("gs://bucket/runs/x"), 0)
    assert "took over the lock of process" in output
    assert "resuming" in output
    assert_ended(store, unbroken)
    log = store.content("runs/x/log.txt").decode()
    assert len(re.findall("took over the lock", log)) == len(MOMENTS)
    assert log.rstrip().endswith("kWh")
    costs = json.loads(store.content("runs/x/costs.json"))
    assert costs["total"]["starts"] > 1


@pytest.mark.slow
def test_of_two_jobs_on_one_workdir_the_second_is_refused(store, unbroken):
    first = start("gs://bucket/runs/x")
    deadline = time.monotonic() + 120
    while "runs/x/lock" not in store.names() and time.monotonic() < deadline:
        time.sleep(0.1)
    output = wait_for_exit(start("gs://bucket/runs/x"), 2)
    line = output.splitlines()[-1]
    assert line.startswith("jbias: workdir: another process is at work in gs://bucket/")
    assert f"process {first.pid} on " in line
    wait_for_exit(first, 0)
    assert_ended(store, unbroken)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_moved_aside(store, unbroken):
    wait_for_exit(start("gs://bucket/runs/x"), 0)
    store.stored.delete_file("bucket", "runs/x/done")
    *_, latest = sorted(
        {int(name.split("/")[3]) for name in store.names("runs/x/checkpoints/")}
    )
    names = store.names(f"runs/x/checkpoints/{latest}/state/")
    name = max(names, key=lambda name: len(store.content(name)))
    content = bytearray(store.content(name))
    content[len(content) // 2] ^= 255
    files.write(f"gs://bucket/{name}", bytes(content))
    output = wait_for_exit(start("gs://bucket/runs/x"), 0)
    assert re.search(
        f"step {latest} is damaged .*moved to damaged/, falling back", output
    )
    assert store.names(f"runs/x/damaged/{latest}/state/")
    assert_ended(store, unbroken)


@pytest.mark.slow
def test_a_network_failure_of_seconds_is_waited_for(store, unbroken):
    def away():
        store.stop()
        time.sleep(8)
        store.start()

    def go():
        threading.Thread(target=away).start()
        time.sleep(0.5)
        raise ConnectionError

    process = start("gs://bucket/runs/x")
    with at(store, "POST", r"evals/4\.jsonl$", go):
        output = wait_for_exit(process, 0)
    assert "Traceback" not in output
    assert_ended(store, unbroken)


@pytest.mark.slow
def test_a_lost_network_ends_the_run_in_one_line(store, unbroken):
    def gone():
        threading.Thread(target=store.stop).start()
        time.sleep(0.5)
        raise ConnectionError

    process = start("gs://bucket/runs/x")
    with at(store, "POST", r"evals/8\.jsonl$", gone):
        output = wait_for_exit(process, 2)
    assert "Traceback" not in output
    line = output.splitlines()[-1]
    assert line.startswith("jbias: ")
    assert "gs://bucket/runs/x" in line and "cannot be written (" in line
    assert "check the network" in line and "run the same command again" in line
    store.start()
    output = wait_for_exit(start("gs://bucket/runs/x"), 0)
    assert "resuming" in output
    assert_ended(store, unbroken)


@pytest.mark.slow
def test_a_run_in_a_store_can_be_evaluated(store, unbroken, tmp_path, capsys):
    wait_for_exit(start("gs://bucket/runs/x"), 0)
    assert cli.main(["--status", "--runs", "gs://bucket/runs"]) == 0
    assert re.search(r"x +done +12/12", capsys.readouterr().out)
    command = (
        *(sys.executable, "-m", "jbias.evaluate", "--checkpoint=gs://bucket/runs/*"),
        *("--suite=configs/suites/biases.py:images=8", "--only=shape_bias"),
        f"--out={tmp_path / 'measured'}",
    )
    done = subprocess.run(
        command,
        cwd=smoke_runs.ROOT,
        env={**os.environ},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
