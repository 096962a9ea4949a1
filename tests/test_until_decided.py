"""jbias train --until-decided: the loop, its refusals, and kills at random moments."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from jbias import config as jc
from jbias import run_spec, train, until_decided
from jbias.deciding import state_file
from jbias.runs import results
from jbias.runtime import signals
from tests import smoke_runs

# A config that trains four seeds in a second or two; with `rate=1e-9`, nothing is learned.
TINY = """
from jbias.configs import erm

def get_config(arg):
    c = erm.get_config(f"smoke,{arg}")
    c.model = dict(name="cnn", width=4, norm_group=0)
    c.epochs, c.eval_every, c.save_every = 8.0, "8 epochs", "2 epochs"
    c.train.n, c.train.batch, c.valid.n = 256, 16, 32
    c.tests = {"test": dict(data="shapes", split="test", n=64)}
    c.optim = dict(
        name="adam",
        rate=RATE,
        decay=0.0,
        schedule=dict(name="constant"),
        warmup="",
        average=0.0,
    )
    return c
"""


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Return an empty working directory with two configs: learns.py and fails.py."""
    monkeypatch.chdir(tmp_path)
    for name, rate in (("learns", "0.01"), ("fails", "1e-9")):
        (tmp_path / f"{name}.py").write_text(TINY.replace("RATE", rate))
    return tmp_path


def request(**changes) -> until_decided.Request:
    """Return a request as of the command line."""
    words = changes.pop("words", ("--config=learns.py:seeds=4",))
    config = jc.load(words[0].removeprefix("--config="), words[1:], flag="config")
    fields = {
        "spec": run_spec.RunSpec.from_config(config),
        "words": words,
        "reference": "fails.py",
        "metric": "accuracy",
        "dataset": "",
        "selection": "best_validation",
        "alpha": 0.05,
        "points": None,
        "quantity": "mean",
        "bounds": (0.0, 1.0),
        "max_seeds": 30,
        "max_hours": 1e9,
        "workdir": "c",
        **changes,
    }
    return until_decided.Request(**fields)


def run(**changes) -> int:
    """Carry out a request; return the exit code."""
    opened = until_decided.open_comparison(request(**changes))
    workdir = until_decided.workdir_of(request(**changes), opened)
    return until_decided.run(opened, workdir, signals.StopSignal())


def write_run(config, workdir, score):
    """Write the records of a finished run, with `score(seed)` on the test set."""
    config = jc.to_dict(config)
    records = [
        results.Record(
            run=jc.run_name(config),
            algorithm="erm",
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
            value=value,
        )
        for seed in config["seeds"]
        for dataset, value in (("valid", 0.5), ("test", score(seed)))
    ]
    path = pathlib.Path(workdir)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    results.write(path / "evals/1.jsonl", records)
    total = {"device_hours": 0.5}
    (path / "costs.json").write_text(json.dumps({"total": total}))
    (path / "done").write_text("finished\n")


@pytest.fixture
def trained(at, monkeypatch):
    """Replace training by writing records: learns.py has 0.8, fails.py 0.2; list the runs."""
    runs = []

    def write(spec, workdir, **_):
        is_better = spec.config["optim"]["rate"] == 0.01
        runs.append((pathlib.Path(workdir).name, spec.command))
        write_run(spec.config, workdir, lambda seed: 0.8 if is_better else 0.2)
        return True

    monkeypatch.setattr(train, "run", write)
    return runs


def test_batches_are_trained_until_the_comparison_is_decided(trained, at, capfd):
    """Ten pairs of 0.8 and 0.2 decide; a decided comparison trains nothing again."""
    assert run() == 0
    first = ["erm-seeds-0-3", "erm-reference-seeds-0-3"]
    assert [name for name, _ in trained[:2]] == first
    words = "--config=learns.py:seeds=4 --config.seeds=(0,1,2,3)"
    assert trained[0][1] == words
    num_runs = len(trained)
    assert num_runs == 6
    lines = capfd.readouterr().err
    assert "comparison after 4 seeds: erm - erm-reference +60.0 points" in lines
    assert "decided after 10 pairs: erm is higher" in lines
    plan = state_file.read("c").comparison
    assert plan.scores["erm"] == dict.fromkeys(range(12), 0.8)
    assert run() == 0
    assert len(trained) == num_runs


def test_limits_end_the_comparison_and_raised_limits_continue_it(trained, at, capfd):
    assert run(max_seeds=8) == until_decided.UNDECIDED
    assert "the limit of 8 seeds is reached" in capfd.readouterr().err
    assert run(max_hours=2.0) == until_decided.UNDECIDED
    assert "2 device hours is reached; raise --max-hours" in capfd.readouterr().err
    assert len(trained) == 4
    assert run() == 0
    assert len(trained) == 6


def test_runs_as_a_reference_get_further_seeds_by_their_config(trained, at):
    """The pairs are the seeds of the reference in order, then their successors."""
    config = jc.load("fails.py", flag="config")
    for name, seeds in (("a", (3,)), ("b", (0, 2))):
        config.seeds = seeds
        write_run(config, at / "reference" / name, lambda seed: 0.2)
    assert run(reference="reference") == 0
    names = [name for name, _ in trained]
    assert names[:3] == [
        "erm-seeds-0-4",
        "erm-reference-seeds-4-4",
        "erm-seeds-5-8",
    ]
    plan = state_file.read("c").comparison
    assert list(plan.scores["erm"]) == list(plan.scores["erm-reference"])
    assert list(plan.scores["erm"])[:6] == [0, 2, 3, 4, 5, 6]
    # Seeds that are added to the reference later change no pair.
    config.seeds = (1,)
    write_run(config, at / "reference/c", lambda seed: 0.9)
    num_runs = len(trained)
    assert run(reference="reference") == 0
    assert len(trained) == num_runs


REFUSALS = {
    "selection": (
        {"selection": "last_n:1"},
        "comparison.selection: 'best_validation' != 'last_n:1'",
    ),
    "points": ({"points": 5.0}, "comparison.points: None != 5.0"),
    "alpha": ({"alpha": 0.1}, "comparison.alpha: 0.05 != 0.1"),
    "config": (
        {"words": ("--config=learns.py:seeds=4", "--config.epochs=2.0")},
        "config.erm.epochs: 8.0 != 2.0",
    ),
    "own code": ({"reference": "other.py"}, "rate: 1e-09 != 1e-08"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_changed_settings_are_refused(trained, at, name):
    changes, message = REFUSALS[name]
    (at / "other.py").write_text(TINY.replace("RATE", "1e-8"))
    run(max_seeds=8)
    num_runs = len(trained)
    with pytest.raises(ValueError, match="another --workdir starts anew") as raised:
        run(**changes)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(trained) == num_runs


WRONG = {
    "too few seeds": ({"max_seeds": 6}, "--max-seeds: must be at least 7"),
    "no such set": ({"dataset": "tset"}, "did you mean 'test'"),
    "explicit seeds": (
        {"words": ("--config=learns.py", "--config.seeds=(5,6)")},
        "config.seeds: --until-decided trains the seeds of the reference",
    ),
    "branches": (
        {"words": ("--config=learns.py:vary=optim.rate=0.1+0.2",)},
        "config.vary",
    ),
    "itself": ({"reference": "learns.py"}, "compared with itself"),
    "no config": ({"reference": "fals.py"}, "--until-decided: no file 'fals.py'"),
    "no run": ({"reference": "nowhere"}, "--until-decided: nowhere: no such folder"),
    "bounds": ({"bounds": (1.0, 0.0)}, "bounds: must be two numbers"),
    "bounds of a share": ({"bounds": (40.0, 60.0)}, "because accuracy is a share"),
    "no such metric": (
        {"metric": "acuracy"},
        "no test set has 'acuracy'; did you mean 'accuracy'",
    ),
    "hours": ({"max_hours": -1.0}, "--max-hours: must be positive"),
    "no hours": ({"max_hours": float("nan")}, "--max-hours: must be positive"),
    "points": ({"points": 200.0}, "points: must be between 0 and 100"),
    "selection": ({"selection": "last"}, "did you mean 'last_n'"),
    "remote": ({"workdir": "gs://b/c"}, "--workdir: must be a local directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_before_anything_is_written(at, name):
    changes, message = WRONG[name]
    with pytest.raises(ValueError, match=message.replace("(", r"\(")) as raised:
        run(**changes)
    assert "\n" not in str(raised.value)
    assert not (at / "c").exists()


def test_references_must_have_ended_and_be_of_one_method(trained, at):
    config = jc.load("fails.py:seeds=1", flag="config")
    write_run(config, at / "reference/a", lambda seed: 0.2)
    config.seeds, config.epochs = (1,), 3.0
    write_run(config, at / "reference/b", lambda seed: 0.2)
    with pytest.raises(ValueError, match=r"differ: epochs: 8.0 != 3.0; name fewer"):
        run(reference="reference")
    (at / "reference/b/done").unlink()
    with pytest.raises(ValueError, match=r"reference/b has not ended"):
        run(reference="reference")


def test_without_a_workdir_the_name_depends_on_the_configs_only(at):
    """A comparison that is repeated with another rule is therefore refused."""
    names = set()
    for changes in ({}, {"selection": "last_n:1"}, {"points": 5.0}):
        wanted = request(workdir="", **changes)
        names.add(
            until_decided.workdir_of(wanted, until_decided.open_comparison(wanted))
        )
    assert len(names) == 1
    assert names.pop().startswith("runs/erm-shapes-")


COMMAND = [
    sys.executable,
    "-m",
    "jbias.main",
    "--config=learns.py:seeds=4",
    "--until-decided=fails.py",
    "--quantity=wins",
]


def start(workdir) -> subprocess.Popen:
    """Start the command in a new process."""
    return subprocess.Popen(
        [*COMMAND, f"--workdir={workdir}"],
        env={**os.environ, "PYTHONPATH": str(smoke_runs.ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def written(workdir: pathlib.Path) -> dict[str, bytes]:
    """Return the records, configs and ends of all batches, and the plan, by path."""
    paths = [workdir / state_file.NAME]
    for pattern in ("*/evals/*.jsonl", "*/config.json", "*/done"):
        paths += workdir.glob(pattern)
    return {str(path.relative_to(workdir)): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_twenty_kills_change_nothing_and_train_no_seed_twice(at):
    """The decision and the records are those of an uninterrupted comparison, to the byte."""
    straight = start("straight")
    began = time.monotonic()
    _, text = straight.communicate()
    seconds = time.monotonic() - began
    assert straight.returncode == 0, text
    assert "decided after" in text
    rng = random.Random(0)
    ends: dict[pathlib.Path, int] = {}
    for _ in range(20):
        process = start("killed")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.uniform(0.05, 0.35) * seconds)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        for path in at.glob("killed/*/done"):
            # A run that has ended is not started again.
            assert ends.setdefault(path, path.stat().st_mtime_ns) == (
                path.stat().st_mtime_ns
            )
    last = start("killed")
    _, text = last.communicate()
    assert last.returncode == 0, text
    assert "decided after" in text
    assert written(at / "killed") == written(at / "straight")
    seeds = [
        (path.parent.name.partition("-seeds-")[0], seed)
        for path in at.glob("killed/*/config.json")
        for seed in json.loads(path.read_text())["seeds"]
    ]
    assert len(seeds) == len(set(seeds))
    # A batch that is lost after a look is neither trained again nor left out.
    shutil.rmtree(at / "killed/erm-seeds-0-3")
    again = start("killed")
    _, text = again.communicate()
    assert again.returncode == 0, text
    assert not (at / "killed/erm-seeds-0-3").exists()
