"""A thousand trials with four workers: no trial is lost or repeated after kills."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from jbias.launch import search, study, sweep
from tests import smoke_runs

COUNT, STEPS = 1000, 2
# The launcher, with a stand-in for the training, that looks at it oftener.
LAUNCHER = """
import json, sys
from jbias.launch import local, sweep, trials
def command(trial, python=sys.executable, runs=""):
    what = json.dumps({{"curve": {curve}, "seconds": 0.01}})
    return (sys.executable, "tests/launch/fake_main.py", what, f"--workdir={{trial.workdir}}")
trials.command, local.Executor.poll_seconds = command, 0.05
sys.exit(sweep.main(sys.argv[1:]))
"""


def children(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [*map(int, text.split())]


def until(holds, process: subprocess.Popen) -> None:
    while not holds():
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_none_is_lost_and_none_is_doubled(sampler, tmp_path, monkeypatch):
    monkeypatch.chdir(smoke_runs.ROOT)
    monkeypatch.setenv("PYTHONPATH", str(smoke_runs.ROOT))
    count = COUNT if sampler == "random" else COUNT // 10
    code = LAUNCHER.format(curve=[0.1] * STEPS)
    arguments = [
        "run",
        "--config=configs/erm.py:smoke,seeds=1",
        f"--workdir={tmp_path}",
    ]
    arguments += ["--config.optim.rate=log_uniform(1e-4, 1)", f"--sampler={sampler}"]
    arguments += [f"--trials={count}", "--on=local:devices=0+1+2+3", "--every=30"]
    command = ["nice", sys.executable, "-c", code, *arguments]

    def done() -> int:
        return len([*tmp_path.glob("*/done")])

    launcher = subprocess.Popen(command)
    until(lambda: done() > count // 4 and children(launcher.pid), launcher)
    os.kill(children(launcher.pid)[0], signal.SIGKILL)
    until(lambda: done() > count // 2, launcher)
    launcher.kill()
    launcher.wait()
    between = done()
    assert count // 2 < between < count
    assert subprocess.run(command, check=False).returncode == 0
    table = pd.read_csv(tmp_path / "trials.csv")
    assert [*table.state] == ["done"] * count and table.trial.is_unique
    runs = [
        path for path in tmp_path.iterdir() if path.name[0] != "." and path.is_dir()
    ]
    assert {path.name for path in runs} == {*table.trial}
    killed = 0
    for run in runs:
        lines = (run / "log.txt").read_text().splitlines()
        steps = [line for line in lines if line.startswith("at step")]
        assert steps == [f"at step {i + 1}/{STEPS}" for i in range(STEPS)]
        killed += any("SIGKILL" in line for line in lines)
    assert killed <= 1  # It may have been done already, or not begun.
    args = sweep.parser().parse_args(["status", f"--workdir={tmp_path}"])
    args.changes = []
    known = study.open_study(
        search.resolve(args, tmp_path), tmp_path, keep=False
    ).trials
    states = collections.Counter(trial.state.name for trial in known)
    assert states["COMPLETE"] == count and not states["RUNNING"] + states["WAITING"]
    assert len({trial.user_attrs.get("run") for trial in known} - {None}) == count
    values = [
        trial.params["optim.rate"] for trial in known if trial.state.name == "COMPLETE"
    ]
    assert len({*values}) == count
