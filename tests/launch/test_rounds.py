"""Searches with --until-decided: rounds, decisions, failures, kills and refusals.

A replacement of the executor writes the records of finished runs, with scores that depend on the
step size and the seed.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from jbias import config as jc
from jbias.deciding import state_file
from jbias.launch import runner, sweep
from jbias.runs import results
from jbias.stats import sequential
from tests import cases, smoke_runs

METHOD = "--config=configs/erm.py:smoke,seeds=4"
REFERENCE = "configs/padain.py:smoke"
# Scores of the methods on the test set by step size and seed; the reference always has 0.1.
SCORES = {
    0.1: lambda seed: 0.9,
    0.2: lambda seed: (0.3, 0.9)[seed % 2],
    0.4: lambda seed: 0.11,
}
# ml_collections still calls what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


class KilledError(Exception):
    """Raised where the launcher would be killed."""


class Executor:
    """Replacement of `local.Executor`.

    started: names of the started trials. failing: names of trials that fail. kill_at: number of the
    start at which the launcher is killed, before the trial ends.
    """

    poll_seconds, stop = 0.0, ""

    def __init__(self):
        self.started, self.failing, self.kill_at = [], set(), -1

    def active_trials(self):
        return {}

    def num_free(self):
        return 2

    def start(self, todo):
        for trial in todo:
            planned = state_file.read(trial.workdir.parent).comparison.batches
            assert trial.name in [batch.folder for batch in planned]
            self.started.append(trial.name)
            if len(self.started) == self.kill_at:
                raise KilledError
            trial.workdir.mkdir(exist_ok=True)
            if trial.name in self.failing:
                (trial.workdir / "log.txt").write_text("jbias: disk: full; empty it\n")
            else:
                write_run(trial.config, trial.workdir)

    def close(self):
        pass


def write_run(config, workdir: pathlib.Path, diverged=()) -> None:
    """Write the records of a finished run with the scores of `SCORES`."""
    is_reference = config["algo"]["name"] == "padain"
    score = (lambda _: 0.1) if is_reference else SCORES[config["optim"]["rate"]]
    records = [
        results.Record(
            run=jc.run_name(config),
            algorithm=jc.algorithm_name(config),
            variant="",
            model="cnn",
            train_data="shapes",
            stage=0,
            seed=seed,
            step=1,
            epoch=1.0,
            dataset=dataset,
            condition="",
            metric="accuracy",
            value=None if seed in diverged else value,
            status="diverged" if seed in diverged else "ok",
        )
        for seed in config["seeds"]
        for dataset, value in (("valid", 0.5), ("edge", score(seed)))
    ]
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps(config))
    results.write(workdir / "evals/1.jsonl", records)
    costs = {"total": {"device_hours": 0.5}}
    (workdir / "costs.json").write_text(json.dumps(costs))
    (workdir / "done").write_text("finished\n")


@pytest.fixture
def executor(monkeypatch):
    """Return the replacement that the searches of a test use."""
    monkeypatch.chdir(smoke_runs.ROOT)
    replacement = Executor()
    monkeypatch.setattr(runner.local, "Executor", lambda slots, say: replacement)
    return replacement


def run(folder, flags=(), rates=(0.1, 0.2), reference=REFERENCE) -> int:
    """Run a search over step sizes until it is decided; return the exit code."""
    words = ["run", METHOD, f"--config.optim.rate={[*rates]!r}"]
    words += [f"--workdir={folder}", f"--until-decided={reference}", "--dataset=edge"]
    return sweep.main([*words, *flags])


def table(folder) -> pd.DataFrame:
    return pd.read_csv(folder / "comparisons.csv").set_index("optim.rate")


@pytest.mark.slow
def test_methods_are_trained_until_each_is_decided(executor, tmp_path, capsys):
    """The decisions are those of `sequential.compare` at alpha / 2 on the same scores."""
    assert run(tmp_path, ["--max-seeds=40"]) == 0
    comparisons = table(tmp_path)
    for rate in (0.1, 0.2):
        expected = sequential.compare(
            [SCORES[rate](seed) for seed in range(40)], [0.1] * 40, alpha=0.025
        )
        assert comparisons.decided_after[rate] == expected.stopped_at
        assert comparisons.decision[rate] == comparisons.method[rate]
        # A decided method gets no further batch of four seeds.
        num_seeds = 4 * -(-expected.stopped_at // 4)
        assert comparisons.seeds[rate] == num_seeds
        prefix = f"{comparisons.method[rate]}-seeds-"
        assert len([*tmp_path.glob(f"{prefix}*")]) == num_seeds // 4
    assert comparisons.seeds[0.2] > comparisons.seeds[0.1]
    assert len({*executor.started}) == len(executor.started)
    assert {*pd.read_csv(tmp_path / "trials.csv").trial} == {*executor.started}
    num_started = len(executor.started)
    assert run(tmp_path, ["--max-seeds=40"]) == 0
    assert len(executor.started) == num_started
    capsys.readouterr()
    assert sweep.main(["status", f"--workdir={tmp_path}"]) == 0
    text = capsys.readouterr().out
    assert (
        "accuracy on edge: 2 comparisons with padain, each at the level 0.025" in text
    )
    for rate in (0.1, 0.2):
        row = next(x for x in text.splitlines() if f" {rate} " in x)
        assert f"decided after {comparisons.decided_after[rate]:.0f} pairs" in row


@pytest.mark.slow
def test_undecided_methods_have_an_exit_code_and_continue_with_more_seeds(
    executor, tmp_path, capsys
):
    assert run(tmp_path, ["--max-seeds=8"], rates=(0.1, 0.4)) == 4
    assert "the limit of 8 seeds is reached" in capsys.readouterr().err
    assert [*table(tmp_path).seeds] == [8, 8]
    num_started = len(executor.started)
    assert sweep.main(["retry", f"--workdir={tmp_path}", "--max-seeds=12"]) == 4
    assert len(executor.started) == num_started + 3
    assert [*table(tmp_path).seeds] == [12, 12]
    assert table(tmp_path).decision.notna().tolist() == [True, False]
    (stored,) = tmp_path.glob(".sweep/search.json")
    assert json.loads(stored.read_text())["until_decided"]["max_seeds"] == 12


def test_hours_end_the_search(executor, tmp_path, capsys):
    """Three batches of half an hour are a round."""
    assert run(tmp_path, ["--max-hours=1"]) == 4
    assert len(executor.started) == 3
    assert "the limit of 1 device hours is reached" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_killed_at_any_start_has_the_same_result(executor, tmp_path):
    """No seed is trained twice, and the plan, the scores and the decisions are the same."""
    assert run(tmp_path / "whole") == 0
    whole = [*executor.started]
    expected = (tmp_path / "whole/comparison.json").read_bytes()
    for number in range(1, len(whole) + 1):
        folder = tmp_path / str(number)
        executor.started, executor.kill_at = [], number
        with pytest.raises(KilledError):
            run(folder)
        killed = executor.started.pop()
        executor.kill_at = -1
        assert run(folder) == 0
        assert killed in executor.started
        assert sorted(executor.started) == sorted(whole)
        assert (folder / "comparison.json").read_bytes() == expected
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_failed_trial_holds_back_its_method_until_it_is_retried(
    executor, tmp_path, capsys
):
    """The other method continues, and the retried search decides as one without failure."""
    assert run(tmp_path / "whole") == 0
    expected = table(tmp_path / "whole")
    first = expected.method[0.1]
    executor.failing = {f"{first}-seeds-4-7"}
    folder = tmp_path / "failing"
    assert run(folder) == 1
    assert f"jbias sweep retry --workdir={folder}" in capsys.readouterr().err
    comparisons = table(folder)
    assert comparisons.seeds[0.1] == 4
    assert comparisons.loc[0.2].equals(expected.loc[0.2])
    num_started = len(executor.started)
    assert run(folder) == 1  # `run` leaves the trial alone.
    assert len(executor.started) == num_started
    executor.failing = set()
    assert sweep.main(["retry", f"--workdir={folder}"]) == 0
    pd.testing.assert_frame_equal(table(folder), expected)


@pytest.mark.slow
def test_a_failed_trial_of_the_reference_holds_back_all_methods(
    executor, tmp_path, capsys
):
    executor.failing = {"padain-seeds-4-7"}
    assert run(tmp_path) == 1
    assert [*table(tmp_path).seeds] == [4, 4]
    executor.failing = set()
    assert sweep.main(["retry", f"--workdir={tmp_path}"]) == 0


def test_diverged_seeds_are_left_out_and_counted(executor, tmp_path, monkeypatch):
    plain_write = write_run
    monkeypatch.setitem(
        globals(),
        "write_run",
        lambda config, workdir: plain_write(config, workdir, diverged=(1, 6)),
    )
    assert run(tmp_path, rates=[0.1]) == 0
    comparisons = table(tmp_path)
    expected = sequential.compare([0.9] * 20, [0.1] * 20)
    assert comparisons.decided_after[0.1] == expected.stopped_at
    assert comparisons.diverged[0.1] == 2


def test_runs_as_a_reference_get_further_seeds_by_their_own_config(executor, tmp_path):
    """The pairs are the seeds of the runs in ascending order, then their successors."""
    config = jc.to_dict(jc.load(REFERENCE, ["--config.seeds=(2, 5)"]))
    write_run(config, tmp_path / "old")
    folder = tmp_path / "new"
    assert run(folder, rates=[0.1], reference=f"{tmp_path}/old") == 0
    plan = state_file.read(folder).comparison
    assert plan.first_seeds == (2, 5)
    method = [batch.seeds for batch in plan.batches if batch.method == "erm"]
    reference = [batch.seeds for batch in plan.batches if batch.method == "padain"]
    assert method[:2] == [(2, 5, 6, 7), (8, 9, 10, 11)]
    assert reference[:2] == [(6, 7), (8, 9, 10, 11)]
    commands = pd.read_csv(folder / "trials.csv").set_index("trial").command
    argument = f"--config={folder}/.sweep/reference.py"
    assert argument in commands["padain-seeds-6-7"]
    assert "--config.seeds=(6,7)" in commands["padain-seeds-6-7"]
    written = jc.load(argument.removeprefix("--config="), ["--config.seeds=(2,5)"])
    assert jc.to_dict(written) == config


def test_a_dry_run_prints_the_next_round_and_writes_nothing(tmp_path, executor, capsys):
    assert run(tmp_path / "x", ["--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all("--config.seeds=(0,1,2,3)" in line for line in lines)
    assert not (tmp_path / "x").exists()


CHANGED = {
    "alpha": ["--alpha=0.1"],
    "points": ["--points=5"],
    "a method more": ["--config=configs/sagnet.py:smoke"],
    "an entry": ["--config.epochs=3.0"],
}


@cases.each(("name", "flags"), CHANGED.items(), quick=("an entry",))
def test_settings_of_a_started_comparison_do_not_change(
    name, flags, executor, tmp_path, capsys
):
    assert run(tmp_path, ["--max-seeds=8"]) == 4
    stored = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    num_started = len(executor.started)
    assert run(tmp_path, flags) == 2, name
    assert "holds another comparison" in capsys.readouterr().err
    assert len(executor.started) == num_started
    assert stored == {path: path.read_bytes() for path in stored}


def test_a_search_without_a_reference_does_not_use_the_workdir(
    executor, tmp_path, capsys
):
    assert run(tmp_path, ["--max-seeds=8"]) == 4
    assert sweep.main(["run", METHOD, f"--workdir={tmp_path}"]) == 2
    assert "holds a comparison with a reference" in capsys.readouterr().err


REFUSED = [
    (["--sampler=tpe"], "use --sampler=grid or random"),
    (["--pruner=median"], "needs all seeds; leave out --pruner"),
    (["--on=sky:bucket=gs://b"], "use local or slurm"),
    (["--on=xpk:runs=r,cluster=c,zone=z,project=p,image=i"], "use local or slurm"),
    (["--on=tpu_pod:runs=gs://b,zone=z"], "use local or slurm"),
    (["--importance"], "leave out --importance"),
    (["--config.seeds=[1, 2]"], "config.seeds"),
    (["--config.seeds=(3, 4)"], "trains the seeds of the reference"),
    (["--max-seeds=3"], "--max-seeds: must be at least"),
    (["--points=100"], "points: must be between 0 and 100"),
    (["--bounds=1"], "--bounds: must be two numbers"),
    (["--selection=last"], "--selection: unknown 'last'; did you mean 'last_n'"),
    (["--selection=best_on:edge"], "selects on the compared data set"),
    (["--dataset=edges"], "did you mean 'edge'"),
    (["--dataset=", "--metric=accuracy"], "--dataset is missing"),
    (["--metric=shape_bias"], "has no shape_bias on edge"),
    (["--bounds=0,2"], "--bounds: must be from 0 to 1, because accuracy is a share"),
    (["--until-decided=jbias:emr"], "--until-decided: no preset jbias:emr"),
    (["--until-decided=runs/nothing"], "--until-decided: "),
    (
        ["--until-decided=configs/erm.py:smoke", "--config.optim.rate=[0.1]"],
        "given twice",
    ),
]


@cases.each(("flags", "message"), REFUSED)
def test_searches_that_cannot_be_decided_are_refused(
    flags, message, executor, tmp_path, capsys
):
    assert run(tmp_path / "x", flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_method_is_not_compared_with_itself(executor, tmp_path, capsys):
    assert run(tmp_path / "x", reference="configs/erm.py:smoke") == 2
    assert "every seed would be compared with itself" in capsys.readouterr().err


def test_options_need_a_reference(executor, tmp_path, capsys):
    words = ["run", METHOD, f"--workdir={tmp_path}/x", "--max-seeds=9"]
    assert sweep.main(words) == 2
    assert "--max-seeds: needs --until-decided=REFERENCE" in capsys.readouterr().err


# A config that trains a few seeds in a second or two; with a tiny step size nothing is learned.
TINY = """
from jbias.configs import erm

def get_config(arg):
    c = erm.get_config(f"smoke,{arg}")
    c.model = dict(name="cnn", width=4, norm_group=0)
    c.size, c.epochs, c.eval_every = 32, 8.0, "8 epochs"
    c.train.n, c.train.batch, c.valid.n = 256, 16, 32
    c.tests = {"test": dict(data="shapes", split="test", n=64)}
    c.optim = dict(
        name="adam",
        rate=1e-9,
        decay=0.0,
        schedule=dict(name="constant"),
        warmup="",
        average=0.0,
    )
    return c
"""


def children(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [*map(int, text.split())]


@pytest.mark.slow
def test_real_runs_killed_several_times_have_the_same_result(tmp_path, monkeypatch):
    """SIGKILL ends the launcher, and every second time its trial as well."""
    monkeypatch.setenv("PYTHONPATH", str(smoke_runs.ROOT))
    monkeypatch.chdir(tmp_path)
    pathlib.Path("tiny.py").write_text(TINY)
    command = [sys.executable, "-m", "jbias.launch.sweep", "run"]
    command += ["--config=tiny.py:seeds=4", "--config.optim.rate=[0.01, 2e-9]"]
    command += ["--until-decided=tiny.py", "--max-seeds=8", "--on=local:jobs=1"]
    code = subprocess.run([*command, "--workdir=whole"], check=False).returncode
    assert code in (0, 4)
    rng = random.Random(0)
    is_over, num_kills = False, 0
    while not is_over:
        launcher = subprocess.Popen([*command, "--workdir=killed"])
        try:
            # Kill 0 to 20 seconds after the launcher started its first trial.
            while not children(launcher.pid) and launcher.poll() is None:
                time.sleep(0.05)
            launcher.wait(rng.uniform(0, 20) if num_kills < 6 else None)
            is_over = True
        except subprocess.TimeoutExpired:
            num_kills += 1
            trial_processes = children(launcher.pid)
            launcher.kill()
            if num_kills % 2:
                for pid in trial_processes:
                    os.kill(pid, signal.SIGKILL)
            launcher.wait()
    assert num_kills > 2
    assert launcher.returncode == code
    whole, killed = pathlib.Path("whole"), pathlib.Path("killed")
    name = state_file.NAME
    assert (killed / name).read_bytes() == (whole / name).read_bytes()
    for folder in whole.glob("*-seeds-*"):
        evaluations = [*folder.glob("evals/*.jsonl")]
        assert evaluations
        for path in evaluations:
            other = killed / path.relative_to(whole)
            assert other.read_bytes() == path.read_bytes()
    names = [{path.name for path in x.glob("*-seeds-*")} for x in (whole, killed)]
    assert names[0] == names[1]
