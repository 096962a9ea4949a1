"""Processes that read ahead go on while the run is told to stop, and end with it."""

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
def test_a_worker_outlives_what_a_scheduler_sends_but_not_its_parent(tmp_path):
    """From its first moment on: SLURM sends to every process of a job."""
    (path := tmp_path / "program.py").write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, path],
        env={**os.environ, "PYTHONPATH": str(smoke_runs.ROOT), "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            worker = born(parent.pid)
            tell(worker)
            assert int(parent.stdout.readline()) == worker
            for _ in range(20):  # More than were made ahead.
                tell(worker)
                print(file=parent.stdin, flush=True)
                assert int(parent.stdout.readline()) == worker
        finally:
            parent.kill()
    until = time.monotonic() + 20
    while pathlib.Path(f"/proc/{worker}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not pathlib.Path(f"/proc/{worker}").exists()


def tell(worker: int) -> None:
    for number in loader.STOPPING:
        os.kill(worker, number)


def born(parent: int) -> int:
    """The first process that a program spawns to read for it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for path in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            for child in path.read_text().split():
                if b"spawn_main" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    raise AssertionError("no worker came")
