"""An array in a real SLURM, whose jobs run a replacement of the training.

The eight algorithms themselves are trained there by `python -m qa.slurm`.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
import submitit  # Imported in a test it would close what pytest captures.

from jbias.launch import search, slurm, study, sweep
from qa import slurm_cluster
from tests import smoke_runs
from tests.launch.test_sweep import replace_training, run_sweep, table
from tests.runtime import test_processes

ARGS = sweep.parser().parse_args(["status", "--workdir=x"])
ARGS.changes = []
MISSING = slurm_cluster.missing()
assert submitit.__version__
pytestmark = [
    pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"needs Debian's slurm-wlm and munge, for {', '.join(MISSING)}",
    ),
]
SLOW = dict(curve=[0.1] * 30, seconds=0.3)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Fixture: a SLURM cluster of two nodes with two cores each."""
    monkeypatch.chdir(smoke_runs.ROOT)
    monkeypatch.setenv("PYTHONPATH", str(smoke_runs.ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    with slurm_cluster.started(tmp_path / "slurm", cores=2) as environment:
        monkeypatch.setenv("PATH", environment["PATH"])
        monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        yield tmp_path / "runs"


def call(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def until(holds, seconds: float = 120.0) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        time.sleep(0.2)


def job_of(folder, rate: float) -> str:
    """Return the job of the trial with this step size, from the study."""
    sweep.main(["status", f"--workdir={folder}"])
    settings = search.resolve(ARGS, folder)
    opened = study.open_study(settings, folder, keep=False)
    return slurm.active(opened)[table(folder).trial[rate]][1]


@pytest.mark.slow
def test_an_array_is_submitted_saved_drained_and_resumed(cluster, monkeypatch, capsys):
    bad = dict(curve=[0.1], dies={"code": 2, "words": "jbias: disk: full; empty it"})
    by_rate = {0.1: dict(curve=[0.3]), 0.2: bad, 0.3: SLOW, 0.4: SLOW, 0.5: SLOW}
    replace_training(monkeypatch, by_rate)
    cluster_flag = "--on=slurm:minutes=10,warn=20"
    assert run_sweep(cluster, by_rate, cluster_flag) == 0
    assert "5 of 5 trials to run, 0 are queued already" in capsys.readouterr().err
    signalled, drained = job_of(cluster, 0.3), job_of(cluster, 0.4)
    assert "queued" in capsys.readouterr().out
    for rate in (0.3, 0.4):
        workdir = cluster / table(cluster).trial[rate]
        until(lambda workdir=workdir: len([*workdir.glob("evals/*.jsonl")]) > 2)
    call("scancel", "--signal=USR1", signalled)
    node = call("squeue", "--noheader", f"--jobs={drained}", "--format=%N").strip()
    call("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    call("scontrol", "requeue", drained)
    assert run_sweep(cluster, by_rate, cluster_flag) == 0
    assert not re.search(r"job \d", capsys.readouterr().err)  # All are there.
    assert run_sweep(cluster, by_rate, cluster_flag, "--wait") == 1
    trials_table = table(cluster)
    assert [*trials_table.state] == ["done", "failed", "done", "done", "done"]
    assert trials_table.reason[0.2] == "disk: full; empty it"
    for rate, name in ((0.3, "SIGUSR1"), (0.4, "SIGTERM"), (0.5, "")):
        log = (cluster / trials_table.trial[rate] / "log.txt").read_text()
        assert log.count("saved; the same command resumes") == bool(name)
        assert name in log
        steps = [int(step) for step in re.findall(r"at step (\d+)/30", log)]
        assert steps == [*range(1, 31)]
    call("scontrol", "update", f"nodename={node}", "state=resume")
    assert sweep.main(["retry", f"--workdir={cluster}", cluster_flag, "--wait"]) == 0
    assert [*table(cluster).state] == ["done"] * 5


# Process 1 kills itself after five steps of the first start.
FIRST = """
import os

if (os.environ.get("SLURM_PROCID"), os.environ.get("SLURM_RESTART_COUNT")) == ("1", None):
    os.environ["DIE"] = "9:5"
"""


@pytest.mark.slow
def test_two_nodes_train_a_run_and_resume_after_the_loss_of_a_process(
    cluster, tmp_path
):
    path = tmp_path / "config.py"
    path.write_text(
        FIRST + test_processes.CONFIG.format(config=test_processes.config())
    )
    cluster_flag = "--on=slurm:nodes=2,minutes=20,warn=20"
    run = ["run", f"--config={path}", f"--workdir={cluster}", cluster_flag, "--wait"]
    assert sweep.main(run) == 0
    (done,) = cluster.glob("*/done")
    log = (done.parent / "log.txt").read_text()
    assert re.search(r"jbias: processes: process 1 of 2 .* was lost; start all", log)
    assert "resuming" in log
    provenance = json.loads((done.parent / "provenance.json").read_text())
    assert provenance["device"]["processes"] == provenance["device"]["count"] == 2
    lone = tmp_path / "lone" / done.parent.name
    main = (sys.executable, "-m", "jbias.main", f"--config={path}")
    call(*main, f"--workdir={lone}")
    test_processes.assert_close_runs(done.parent, lone)


@pytest.mark.slow
def test_the_median_rule_cancels_jobs(cluster, monkeypatch):
    good = dict(curve=[0.5] * 200, seconds=0.01)
    by_rate = {0.1: good, 0.2: good, 0.3: good, 0.4: dict(SLOW, curve=[0.1] * 200)}
    replace_training(monkeypatch, by_rate)
    monkeypatch.setattr(slurm.Executor, "poll_seconds", 0.5)
    code = run_sweep(
        cluster, by_rate, "--on=slurm:minutes=10", "--stop=median", "--wait"
    )
    assert code == 0
    assert [*table(cluster).state] == ["done"] * 3 + ["stopped"]
    assert table(cluster).step[0.4] < 200


@pytest.mark.slow
def test_an_array_of_more_jobs_than_the_cluster_takes(
    tmp_path, monkeypatch, capsys, cluster
):
    """Seven trials run although arrays have at most three jobs."""
    call("scontrol", "update", "partitionname=all", "state=up")
    conf = pathlib.Path(os.environ["SLURM_CONF"])
    conf.write_text(conf.read_text() + "MaxArraySize=3\n")
    call("scontrol", "reconfigure")
    until(lambda: "MaxArraySize            = 3" in call("scontrol", "show", "config"))
    rates = [round(0.1 * i, 1) for i in range(1, 8)]
    replace_training(monkeypatch, {rate: dict(curve=[rate]) for rate in rates})
    assert run_sweep(cluster, rates, "--on=slurm:minutes=10", "--wait") == 0
    jobs = re.findall(r"job (\d+)(?:_\d)?:", capsys.readouterr().err)
    assert sorted(jobs.count(job) for job in {*jobs}) == [1, 3, 3]
    assert [*table(cluster).state] == ["done"] * 7
    assert [*table(cluster).step] == [1] * 7


@pytest.mark.slow
def test_errors_of_slurm_are_reported(cluster, monkeypatch, capsys):
    replace_training(monkeypatch, {0.1: {}, 0.2: {}})
    assert run_sweep(cluster, [0.1, 0.2], "--on=slurm:partition=none") == 2
    error = capsys.readouterr().err
    assert "--on=slurm: the array was not submitted: " in error
    assert "invalid partition" in error
    assert error.count("jbias: ") == 1
