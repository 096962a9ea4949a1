"""Searches started by the command line, with a replacement of the training."""

import fcntl
import itertools
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest

from jbias import config as jc
from jbias.launch import local, search, study, sweep, trials
from jbias.runs import status
from tests import cases, smoke_runs

FAKE = smoke_runs.ROOT / "tests/launch/fake_main.py"
SMOKE = "--config=configs/erm.py:smoke,seeds=1"
# ml_collections still calls what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(smoke_runs.ROOT)
    monkeypatch.setenv("PYTHONPATH", str(smoke_runs.ROOT))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def replace_training(monkeypatch, by_rate: dict) -> None:
    """Let trials run the replacement, which behaves according to the step size."""

    def command(trial, python=sys.executable, runs=""):
        del python, runs
        behaviour = json.dumps(by_rate[float(trial.values["optim.rate"])])
        return (sys.executable, str(FAKE), behaviour, f"--workdir={trial.workdir}")

    monkeypatch.setattr(trials, "command", command)


def run_sweep(folder: pathlib.Path, rates, *flags: str, action: str = "run") -> int:
    """Run a search over these step sizes."""
    axis = f"--config.optim.rate={[*rates]!r}"
    words = [action, SMOKE, axis, f"--workdir={folder}", "--every=1", *flags]
    return sweep.main(words)


def table(folder: pathlib.Path) -> pd.DataFrame:
    return pd.read_csv(folder / "trials.csv").set_index("optim.rate")


def test_all_trials_run_and_the_best_is_chosen_by_validation(
    tmp_path, monkeypatch, capsys
):
    by_rate = {0.1: dict(curve=[0.2, 0.3]), 0.2: dict(curve=[0.5, 0.1])}
    replace_training(monkeypatch, by_rate)
    assert run_sweep(tmp_path / "x", by_rate) == 0
    trials_table = table(tmp_path / "x")
    assert [*trials_table.state] == ["done", "done"]
    assert trials_table.loc[0.2, ["valid", "valid_step"]].tolist() == [0.5, 1]
    messages = capsys.readouterr().err
    assert (
        f"best in validation: 50.00 at step 1, {trials_table.workdir[0.2]}" in messages
    )
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "x").rglob("*.jsonl")}
    assert run_sweep(tmp_path / "x", by_rate) == 0
    later_times = {p: p.stat().st_mtime_ns for p in (tmp_path / "x").rglob("*.jsonl")}
    assert times == later_times
    assert "0 of 2 trials to run" in capsys.readouterr().err


def test_a_damaged_trial_is_reported_and_other_trials_run(
    tmp_path, monkeypatch, capsys
):
    by_rate = {0.1: dict(curve=[0.9, 0.8]), 0.2: dict(curve=[0.5])}
    replace_training(monkeypatch, by_rate)
    assert run_sweep(tmp_path, by_rate) == 0
    first = pathlib.Path(table(tmp_path).workdir[0.1])
    (first / "evals/1.jsonl").write_text("{half")
    by_rate[0.3] = dict(curve=[0.1])
    assert run_sweep(tmp_path, by_rate) == 1
    messages = capsys.readouterr().err
    assert (
        f"best in validation: 50.00 at step 1, {table(tmp_path).workdir[0.2]}"
        in messages
    )
    assert "3 trials: 1 damaged, 2 done" in messages
    assert [*table(tmp_path).state] == ["damaged", "done", "done"]
    assert f"{first}/evals/1.jsonl:1: " in table(tmp_path).reason[0.1]
    assert sweep.main(["status", f"--workdir={tmp_path}"]) == 0
    status_text = capsys.readouterr().out
    assert f"damaged     {first.name}" in status_text
    assert "1 damaged: neither run again nor compared" in status_text
    assert sweep.main(["retry", f"--workdir={tmp_path}"]) == 1
    messages = capsys.readouterr().err
    assert "restore the file or remove it and resume the run" in messages
    assert "1 damaged: neither run again nor compared" in messages


@pytest.mark.slow
def test_no_device_has_two_jobs_at_a_time(tmp_path, monkeypatch):
    rates = [0.1, 0.2, 0.3, 0.4]
    replace_training(
        monkeypatch, {rate: dict(curve=[0.1], seconds=1.0) for rate in rates}
    )
    assert run_sweep(tmp_path, rates, "--on=local:devices=3+5") == 0
    jobs = [json.loads(p.read_text()) for p in tmp_path.glob("*/seen.json")]
    assert {job["devices"] for job in jobs} == {"3", "5"}
    for device in ("3", "5"):
        spans = sorted(
            (job["began"], job["ended"]) for job in jobs if job["devices"] == device
        )
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    overlaps = sorted((job["began"], job["ended"]) for job in jobs)
    assert overlaps[1][0] < overlaps[0][1]  # Both places work at the same time.


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_jobs_without_devices_share_the_cores(tmp_path, monkeypatch):
    replace_training(
        monkeypatch, {rate: dict(curve=[0.1], seconds=0.3) for rate in (0.1, 0.2)}
    )
    all_cores = os.sched_getaffinity(0)
    assert run_sweep(tmp_path, [0.1, 0.2], "--on=local:jobs=2") == 0
    assert os.sched_getaffinity(0) == all_cores
    cores = [json.loads(p.read_text())["cores"] for p in tmp_path.glob("*/seen.json")]
    assert sorted(cores[0] + cores[1]) == sorted(all_cores)


@pytest.mark.slow
@cases.each(
    ("dies", "reason"),
    [
        ({"signal": int(signal.SIGSEGV)}, "ended by SIGSEGV"),
        (
            {"code": 1, "words": "Traceback ...\nKeyError: 'x'"},
            "exit code 1: KeyError: 'x'",
        ),
        (
            {"code": 2, "words": "jbias: workdir: full; empty it"},
            "workdir: full; empty it",
        ),
    ],
)
def test_a_failed_trial_says_why_and_is_run_again_by_retry(
    tmp_path, monkeypatch, capsys, dies, reason
):
    replace_training(
        monkeypatch, {0.1: dict(curve=[0.1, 0.2], dies=dies), 0.2: dict(curve=[0.1])}
    )
    assert run_sweep(tmp_path, [0.1, 0.2]) == 1
    messages = capsys.readouterr().err
    assert reason in messages
    assert f"jbias sweep retry --workdir={tmp_path}" in messages
    trials_table = table(tmp_path)
    assert (trials_table.state[0.1], trials_table.reason[0.1]) == ("failed", reason)
    assert trials_table.state[0.2] == "done"
    assert run_sweep(tmp_path, [0.1, 0.2]) == 1  # `run` leaves it alone.
    assert sweep.main(["retry", f"--workdir={tmp_path}"]) == 0
    assert [*table(tmp_path).state] == ["done", "done"]
    assert [*table(tmp_path).step] == [2, 1]


@pytest.mark.slow
def test_a_signal_saves_all_trials_and_the_same_command_resumes(
    tmp_path, monkeypatch, capfd
):
    slow = dict(curve=[0.1] * 20, seconds=0.1)
    replace_training(monkeypatch, {0.1: slow, 0.2: slow})

    def stop():
        while not [*tmp_path.glob("*/evals/2.jsonl")]:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert run_sweep(tmp_path, [0.1, 0.2]) == 143
    assert sorted(table(tmp_path).state) == ["interrupted", "not started"]
    assert run_sweep(tmp_path, [0.1, 0.2]) == 0
    assert [*table(tmp_path).step] == [20, 20]
    logs = "".join(p.read_text() for p in tmp_path.glob("*/log.txt"))
    assert logs.count("saved; the same command resumes") == 1
    steps = re.findall(r"at step (\d+)/", logs)
    assert sorted(steps) == sorted(2 * [str(i) for i in range(1, 21)])
    assert "SIGTERM: saving after" in capfd.readouterr().err


def planned(workdir: pathlib.Path, *changes: str, config=(SMOKE[9:],)) -> list:
    settings = search.Search([*config], [*changes])
    return [*study.plan(settings, workdir).values()]


def test_running_trials_of_a_killed_launcher_are_waited_for(tmp_path, monkeypatch):
    slow = dict(curve=[0.1] * 10, seconds=0.1)
    replace_training(monkeypatch, {0.1: slow})
    (trial,) = planned(tmp_path, "--config.optim.rate=[0.1]")
    process = subprocess.Popen(trials.command(trial))
    while status.read(trial.workdir).phase != "running":
        time.sleep(0.05)
    assert run_sweep(tmp_path, [0.1]) == 0
    assert process.wait() == 0
    assert [*table(tmp_path).state] == ["done"]


def test_a_killed_process_is_restarted_once(tmp_path, monkeypatch, capsys):
    dies = {"signal": int(signal.SIGKILL)}
    replace_training(monkeypatch, {0.1: dict(curve=[0.1, 0.2], dies=dies)})
    assert run_sweep(tmp_path, [0.1]) == 0
    assert [*table(tmp_path).step] == [2]
    log = pathlib.Path(table(tmp_path).workdir[0.1], "log.txt").read_text()
    assert log.count("jbias: ended by SIGKILL (out of memory?)") == 1
    assert capsys.readouterr().err.count("starting erm-shapes") == 2
    monkeypatch.setattr(local, "MAX_RETRIES", 0)
    replace_training(monkeypatch, {0.2: dict(curve=[0.1, 0.2], dies=dies)})
    assert run_sweep(tmp_path, [0.2]) == 1
    assert "ended by SIGKILL (out of memory?)" in table(tmp_path).reason[0.2]


def test_two_launchers_do_not_run_one_search(tmp_path, monkeypatch, capsys):
    replace_training(monkeypatch, {0.1: dict(curve=[0.1])})
    (tmp_path / ".sweep").mkdir()
    with (tmp_path / ".sweep/lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run_sweep(tmp_path, [0.1]) == 2
    assert "another process runs this search" in capsys.readouterr().err
    assert run_sweep(tmp_path, [0.1]) == 0


@pytest.mark.slow
def test_the_median_rule_stops_bad_trials_for_good(tmp_path, monkeypatch, capsys):
    good, bad = dict(curve=[0.5, 0.6, 0.7]), dict(curve=[0.1] * 40, seconds=0.1)
    by_rate = {0.1: good, 0.2: good, 0.3: good, 0.4: bad, 0.5: good}
    replace_training(monkeypatch, by_rate)
    assert run_sweep(tmp_path, by_rate, "--stop=median") == 0
    trials_table = table(tmp_path)
    assert [*trials_table.state] == ["done", "done", "done", "stopped", "done"]
    assert trials_table.reason[0.4].startswith(
        "median: its validation accuracy at step"
    )
    assert trials_table.step[0.4] < 40
    assert run_sweep(tmp_path, by_rate, "--stop=median") == 0
    assert table(tmp_path).step[0.4] == trials_table.step[0.4]
    capsys.readouterr()
    assert sweep.main(["status", f"--workdir={tmp_path}"]) == 0
    assert "5 trials: 1 stopped, 4 done" in capsys.readouterr().out
    assert sweep.main(["retry", f"--workdir={tmp_path}", "--stop=never"]) == 0
    assert [*table(tmp_path).state] == ["done"] * 5
    assert table(tmp_path).step[0.4] == 40


def test_a_dry_run_shows_commands_and_leaves_nothing(tmp_path, capsys):
    assert run_sweep(tmp_path / "x", [0.1, 0.2], "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, rate in zip(lines, ("0.1", "0.2"), strict=True):
        python, *words, workdir = shlex.split(line)
        assert python == sys.executable
        assert words == ["-m", "jbias.main", SMOKE, f"--config.optim.rate={rate}"]
        assert workdir.startswith(f"--workdir={tmp_path}/x/erm-shapes-")
    assert not (tmp_path / "x").exists()


@cases.each(
    "changes",
    [
        ["--config.optim.rate=1"],
        ["--config.optim.rate=1e-3", "--config.optim.nesterov=True"],
        ["--config.optim.schedule.name=cosine", "--config.seeds=(3, 4)"],
        ["--config.variant=it's a $(label)"],
    ],
)
def test_a_trial_has_the_name_and_command_of_its_run(changes, tmp_path):
    (trial,) = planned(tmp_path, *changes)
    config = jc.load(SMOKE[9:], changes, flag="config")
    assert trial.name == jc.run_name(config)
    assert trials.command(trial)[3:-1] == (SMOKE, *changes)


def test_a_dry_run_runs_no_code_of_the_user(tmp_path, capsys):
    """A dry run requires the file of the user's algorithm, but does not run it."""
    algorithm = tmp_path / "own.py"
    algorithm.write_text("raise SystemExit\n")
    change = f"--config.algo.name={algorithm}:make"
    words = ["run", SMOKE, change, f"--workdir={tmp_path}/x", "--dry-run"]
    assert sweep.main(words) == 0
    assert change in capsys.readouterr().out


def test_equal_trials_are_one(tmp_path):
    assert len(planned(tmp_path, config=(SMOKE[9:], f"{SMOKE[9:]},"))) == 1


@pytest.mark.slow
def test_planning_takes_no_device():
    code = (
        "import pathlib, jax\n"
        "from jbias.launch import search, study\n"
        f"s = search.Search([{SMOKE[9:]!r}], [])\n"
        "study.plan(s, pathlib.Path('x'))\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"  # Refused once there are any.
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@cases.each("name", ["rates", "rates:config=padain,trials=3", "eight"])
def test_the_files_of_sweeps_are_understood(name, tmp_path, capsys):
    path, colon, arg = name.partition(":")
    named = f"--sweep=configs/sweeps/{path}.py{colon}{arg}"
    assert sweep.main(["run", named, f"--workdir={tmp_path}/x", "--dry-run"]) == 0
    count = {"rates": 12, "eight": 8}.get(name, 3)
    assert len(capsys.readouterr().out.splitlines()) == count


@cases.each(
    ("arguments", "message"),
    [
        ([SMOKE, "--config.optim.rat=[1, 2]"], "optim.rat"),
        ([SMOKE, "--config.optim.rate=[]"], "must list different values"),
        ([SMOKE, "--config.optim.rate=uniform(0, 1)"], "take --sampler=random, or tpe"),
        ([SMOKE, "--config.epochs=[soon]"], "epochs"),
        ([f"{SMOKE},vary=optim.rate=1+2"], "got vary; use axes instead"),
        (["--config=configs/emr.py"], "did you mean 'erm.py'"),
        (["--sweep=configs/sweeps/rats.py"], "--sweep: no file"),
        ([SMOKE, "--config.optim.rate=[0.1, -1]"], "optim.rate: must be positive"),
        ([], "has no search; describe a search"),
        ([SMOKE, "--workdir=gs://b/x"], "must be a directory on this machine"),
        ([SMOKE, "--search=random", "--trials=2"], "about 1 different combinations"),
        ([SMOKE, "--on=local:jobs=9999"], "jobs must be 1 to"),
        ([SMOKE, "--on=sky:bucket=gs://x"], "needs SkyPilot; pip install"),
    ],
)
def test_errors_are_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sweep.main(["run", f"--workdir={tmp_path}/x", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not [*tmp_path.glob("x/erm*")]


def test_a_stop_is_recorded_and_cleared(tmp_path):
    trials.mark_stopped(tmp_path, "worse")
    assert status.read(tmp_path)[:2] == ("stopped", "worse")
    assert [p.name for p in tmp_path.iterdir()] == [status.STOPPED_FILE]
    trials.clear_stopped(tmp_path)
    assert status.read(tmp_path).phase == "not started"


def test_the_remaining_time_follows_from_the_rate_so_far(tmp_path):
    (tmp_path / "log.txt").write_text("at step 3/4\n")
    statuses = [trials.read_status(trials.Trial("a", tmp_path, (), {}, {}))]
    assert "ETA 0:00:10; " not in trials.progress(statuses, 0.0, 30.0)
    assert trials.progress(statuses, 0.0, 30.0).endswith("ETA 0:00:10")
    assert "ETA" not in trials.progress(statuses, 0.75, 30.0)


def test_an_exit_reason_in_the_log_is_not_written_twice(tmp_path):
    """An older reason in the log does not count for a new process."""
    output, log = tmp_path / "output", tmp_path / "log.txt"
    output.write_text('{"json": "of the error"}\n')
    log.write_text("jbias: an older end\n")
    size = local.log_size(tmp_path)
    local.log_exit(tmp_path, 2, output, size)
    assert status.read(tmp_path).reason == 'exit code 2: {"json": "of the error"}'
    with log.open("a") as file:
        file.write("jbias: its own word\n")
    local.log_exit(tmp_path, 2, output, size)
    assert status.read(tmp_path).reason == "its own word"
    local.log_exit(tmp_path, -int(signal.SIGTERM), output, local.log_size(tmp_path))
    assert status.read(tmp_path).phase == "interrupted"


def test_help_waits_for_nothing():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['sweep', '--help']\n"
        "try:\n"
        "    runpy.run_module('launch.sweep', run_name='__main__')\n"
        "except SystemExit as ended:\n"
        "    sys.exit(ended.code or bool({'jax', 'pandas'} & set(sys.modules)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_real_runs_one_of_which_fails(tmp_path):
    """One run is done, and the failed run succeeds once its cause is removed."""
    command = [sys.executable, "-m", "launch.sweep", "run", SMOKE]
    command += ["--config.model.width=4", "--config.train.batch=[32, 100000]"]
    command += [f"--workdir={tmp_path}"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 1, completed.stderr
    trials_table = pd.read_csv(tmp_path / "trials.csv").set_index("train.batch")
    assert [*trials_table.state] == ["done", "failed"]
    assert "batch" in trials_table.reason[100000]
