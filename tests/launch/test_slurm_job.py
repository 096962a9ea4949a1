"""A job of several processes is queued again after the loss of a process."""

import os
import pathlib

import pytest

from jbias.launch import local, slurm
from jbias.runtime import signals
from tests import cases


def job_that(
    tmp_path: pathlib.Path, monkeypatch, does: str, **variables: str
) -> slurm.Job:
    """Return a job that runs a shell command, with a scontrol that records its calls."""
    fake = tmp_path / "bin" / "scontrol"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/asked"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    for name in ("JOB_ID", "PROCID", "RESTART_COUNT"):
        monkeypatch.delenv(f"SLURM_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    log = tmp_path / "logs" / "x.log"
    return slurm.Job(["sh", "-c", does], tmp_path / "x", log, 1.0, again=2)


@pytest.mark.slow
@cases.each(
    ("code", "variables", "calls"),
    [
        (signals.EXIT_LOST, dict(JOB_ID="7"), ["requeue 7"]),
        (
            signals.EXIT_LOST,
            dict(JOB_ID="7", PROCID="1", RESTART_COUNT="1"),
            ["requeue 7"],
        ),
        (signals.EXIT_LOST, dict(JOB_ID="7", RESTART_COUNT="2"), []),
        (signals.EXIT_LOST, {}, []),
        (143, dict(JOB_ID="7"), []),
    ],
)
def test_a_job_that_lost_a_process_is_requeued(
    code, variables, calls, tmp_path, monkeypatch
):
    assert job_that(tmp_path, monkeypatch, f"exit {code}", **variables)() == code
    recorded = tmp_path / "asked"
    assert (recorded.read_text().splitlines() if recorded.exists() else []) == calls


@pytest.mark.slow
@pytest.mark.parametrize("number", ["0", "1"])
def test_process_0_alone_writes_into_the_workdir(number, tmp_path, monkeypatch):
    job = job_that(tmp_path, monkeypatch, "kill -9 $$", JOB_ID="7", PROCID=number)
    with pytest.raises(RuntimeError, match="ended by SIGKILL"):
        job()
    log = tmp_path / "x" / "log.txt"
    assert not (tmp_path / "asked").exists()
    if number == "0":
        assert log.read_text() == "jbias: ended by SIGKILL (out of memory?)\n"
    assert log.exists() == (tmp_path / "logs" / "x.log").exists() == (number == "0")


@pytest.mark.slow
def test_the_end_of_a_run_with_damaged_records_is_logged(tmp_path):
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "5.jsonl").write_bytes(b"\xff{half")
    local.log_exit(tmp_path, -9, tmp_path / "none.log", 0)
    log = (tmp_path / "log.txt").read_text()
    assert log == "jbias: ended by SIGKILL (out of memory?)\n"
