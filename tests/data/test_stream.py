"""Processes that read ahead survive the signals that stop a run, and end with the run."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from jbias.data import loader
from tests import smoke_runs

PROGRAM = """
import os, sys
import numpy as np
from jbias.data import loader

def read(number):
    return {"pid": np.array([os.getpid()])}

if __name__ == "__main__":
    for piece in loader.prefetch(read, 0, 10**6, 1, workers=1):
        print(int(piece["pid"][0]), flush=True)
        sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_worker_survives_a_schedulers_signals_but_not_its_parent(tmp_path):
    """SLURM signals every process of a job; a worker ignores signals from its start on."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, path],
        env={**os.environ, "PYTHONPATH": str(smoke_runs.ROOT), "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            worker = find_worker(parent.pid)
            send_stop_signals(worker)
            assert int(parent.stdout.readline()) == worker
            for _ in range(20):  # More than the batches read ahead.
                send_stop_signals(worker)
                print(file=parent.stdin, flush=True)
                assert int(parent.stdout.readline()) == worker
        finally:
            parent.kill()
    until = time.monotonic() + 20
    while pathlib.Path(f"/proc/{worker}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not pathlib.Path(f"/proc/{worker}").exists()


def send_stop_signals(worker: int) -> None:
    for number in loader.STOPPING:
        os.kill(worker, number)


def find_worker(parent: int) -> int:
    """Return the id of the first process that a program spawns to read for it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for path in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            for child in path.read_text().split():
                if b"spawn_main" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    raise AssertionError("no worker came")
