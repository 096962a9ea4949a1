"""Evaluations by another process than the one that trains: the same files to the bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from etils import epath

from jbias import evaluate, train
from jbias.runs import checkpoints, checksums, results, selection, status, workdirs
from jbias.runtime import mesh, workdir_lock, xla
from jbias.training import evaluator, follow, monitoring
from jbias.training.tuning import memory_estimate
from tests import cases, smoke_runs
from tests.test_resume import assert_same_end


def config(where: str):
    """Return a config of eight steps, evaluated every 2 steps and saved every 4.

    where: config.run.evaluate, "here" or "elsewhere".
    """
    c = smoke_runs.small(eval_every="2 steps", save_every="50 %")
    c.model = {"name": "cnn", "width": 4}
    c.run.evaluate, c.run.decisions = where, True
    return c


def measured(workdir) -> dict[str, bytes]:
    """Return the contents of all files that evaluations wrote, by path."""
    files = [*workdir.glob("evals/*"), *workdir.glob("decisions/*/*")]
    return {str(path.relative_to(workdir)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def run_here(tmp_path_factory):
    """Return the workdir of a run that evaluated itself."""
    workdir = tmp_path_factory.mktemp("here") / "run"
    assert train.run(config("here"), workdir)
    assert len(measured(workdir)) == 4 + 4 * 3
    return workdir


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a resumed run whose evaluations are still missing."""
    workdir = tmp_path_factory.mktemp("elsewhere") / "run"
    add = monitoring.Monitor.add

    def broken(self, step, metrics, split):
        if step == 6:
            raise InterruptedError
        return add(self, step, metrics, split)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitoring.Monitor, "add", broken)
        with pytest.raises(InterruptedError):
            train.run(config("elsewhere"), workdir)
    assert train.run(config("elsewhere"), workdir)
    assert not measured(workdir)
    return workdir


@pytest.fixture
def elsewhere(trained, tmp_path):
    """Return a copy of `trained`."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.slow
def test_checkpoints_that_are_not_evaluated_yet_are_kept(trained):
    """Checkpoints before evaluation are kept, also with config.run.keep = 2."""
    assert checkpoints.steps(trained / "checkpoints") == [2, 4, 6, 8]


@pytest.mark.slow
def test_a_follower_writes_the_same_files_as_the_run(run_here, elsewhere, capsys):
    config = json.loads((elsewhere / "config.json").read_text())
    config["run"].update(write="tensorboard", log="json")
    (elsewhere / "config.json").write_text(json.dumps(config))
    (elsewhere / "sums.json").unlink()  # It has the checksum of the old config.
    assert evaluate.main([f"--follow={elsewhere}", "--interval=0.1"]) == 0
    assert measured(elsewhere) == measured(run_here)
    assert {*checksums.read(elsewhere, checksums.FOLLOWER)} == {*measured(run_here)}
    stderr = capsys.readouterr().err
    assert "step 6/8: valid" in stderr
    events = [json.loads(line)["event"] for line in stderr.splitlines()]
    assert events.count("evaluation") == 4
    assert [*elsewhere.glob("tensorboard/seed-*/elsewhere/events.out.tfevents.*")]
    assert "evaluated all that was due, 4 steps" in stderr
    table = selection.best_validation(results.read([elsewhere]))
    assert table.equals(
        selection.best_validation(results.read([run_here])).assign(
            workdir=str(elsewhere)
        )
    )


@pytest.fixture(scope="module")
def followed(trained, tmp_path_factory):
    """Return a run that a follower has evaluated."""
    workdir = shutil.copytree(trained, tmp_path_factory.mktemp("followed") / "run")
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    return workdir


@pytest.mark.slow
@cases.each("name", ["evals/4.jsonl", "decisions/valid/6.parquet"])
@cases.each("fault", ["damaged", "gone"])
def test_lost_files_of_a_follower_are_evaluated_again(
    run_here, followed, tmp_path, capsys, monkeypatch, name, fault
):
    workdir = shutil.copytree(followed, tmp_path / "run")
    path, evaluated, evaluate_step = workdir / name, [], evaluator.Evaluator.evaluate
    damaged = path.read_bytes().replace(b'"seed": 1', b'"seed": 7')
    if path.suffix == ".parquet":
        damaged += b"\0"
    path.write_bytes(damaged)
    if fault == "gone":
        path.unlink()
    if path.suffix == ".jsonl" and fault == "damaged":
        with pytest.raises(ValueError, match=r"delete evaluate.sums.json to accept"):
            results.read([workdir])
    line = f"{name} is {fault}; jbias evaluate --follow writes files again whose"
    assert train.run(config("elsewhere"), workdir)
    assert f"{line} checkpoint is kept: steps [{path.stem}]" in capsys.readouterr().err
    monkeypatch.setattr(
        evaluator.Evaluator,
        "evaluate",
        lambda *args: evaluated.append(args[3]) or evaluate_step(*args),
    )
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    assert line in capsys.readouterr().err
    assert evaluated == [int(path.stem)]
    assert measured(workdir) == measured(run_here)
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    assert "anew" not in capsys.readouterr().err


@pytest.mark.slow
def test_damaged_files_without_a_checkpoint_are_reported_and_unchanged(
    followed, tmp_path, capsys
):
    workdir = shutil.copytree(followed, tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "4")
    path = workdir / "evals" / "4.jsonl"
    path.write_text("damaged")
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    stderr = capsys.readouterr().err
    assert "evals/4.jsonl is damaged; " in stderr
    assert "whose checkpoint is kept: steps none" in stderr
    assert path.read_text() == "damaged"


@pytest.mark.slow
def test_a_killed_follower_resumes(run_here, elsewhere, monkeypatch):
    """Only the incomplete evaluation is repeated."""
    write, evaluated, evaluate_step = (
        results.write_text,
        [],
        evaluator.Evaluator.evaluate,
    )

    def killed(path, text):
        if path.name == "6.jsonl":
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(results, "write_text", killed)
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 130
    assert {name for name in measured(elsewhere) if "evals" in name} == {
        "evals/2.jsonl",
        "evals/4.jsonl",
    }
    monkeypatch.setattr(results, "write_text", write)
    monkeypatch.setattr(
        evaluator.Evaluator,
        "evaluate",
        lambda *args: evaluated.append(args[3]) or evaluate_step(*args),
    )
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 0
    assert evaluated == [6, 8]
    assert measured(elsewhere) == measured(run_here)
    assert len(json.loads((elsewhere / "evaluate.json").read_text())) == 2


@pytest.mark.slow
def test_a_resumed_run_may_evaluate_itself(run_here, elsewhere):
    """It evaluates from its latest step on; earlier steps are left to a follower."""
    (elsewhere / "done").unlink()
    shutil.rmtree(elsewhere / "checkpoints" / "8")
    assert train.run(config("here"), elsewhere)
    expected = measured(run_here)
    names = {f"evals/{step}.jsonl" for step in (6, 8)}
    written = measured(elsewhere)
    assert {name for name in written if "evals" in name} == names
    assert written.items() <= expected.items()
    assert {2, 4, 8} <= set(checkpoints.steps(elsewhere / "checkpoints"))
    follow.follow(elsewhere, interval=0.1)
    assert measured(elsewhere) == expected


@pytest.mark.slow
def test_a_second_follower_is_refused(elsewhere, capsys):
    with workdirs.claim_evaluation(elsewhere):
        assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 2
    assert "another process evaluates" in capsys.readouterr().err
    assert not measured(elsewhere)


@pytest.mark.slow
def test_other_data_is_refused(elsewhere, capsys):
    path = elsewhere / "provenance.json"
    provenance = json.loads(path.read_text())
    provenance["data"]["edge"]["fingerprint"] = "another"
    path.write_text(json.dumps(provenance))
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 2
    assert "begun with other data or code" in capsys.readouterr().err


@pytest.mark.slow
def test_a_damaged_step_is_named(elsewhere, capsys):
    for path in (elsewhere / "checkpoints" / "4" / "info").rglob("metadata"):
        path.write_text("{}")
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 2
    stderr = capsys.readouterr().err
    assert "checkpoints/4 cannot be read" in stderr
    assert set(measured(elsewhere)) >= {"evals/2.jsonl"}


def test_a_workdir_without_a_run_is_refused_in_one_line(tmp_path, capsys):
    assert evaluate.main([f"--follow={tmp_path / 'nowhere'}"]) == 2
    stderr = capsys.readouterr().err
    assert "nowhere is no run" in stderr
    assert stderr.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()


@cases.each("once", [(), ("--once",)])
@cases.each("content", ["{}", "[]", "{", '{"run": {}}'])
def test_a_wrong_config_is_refused_in_one_line(tmp_path, capsys, once, content):
    (tmp_path / "provenance.json").write_text("{}")
    (tmp_path / "config.json").write_text(content)
    assert evaluate.main([f"--follow={tmp_path}", *once]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"jbias: {tmp_path / 'config.json'}: must be ")


def test_a_follower_waits_only_for_a_lock_that_is_in_use(tmp_path, capsys, monkeypatch):
    """A run that is killed while it opens leaves its lock file behind."""
    (tmp_path / "lock").touch()

    class Waited(Exception):
        pass

    def sleep(seconds):
        raise Waited

    monkeypatch.setattr(follow.time, "sleep", sleep)
    assert evaluate.main([f"--follow={tmp_path}"]) == 2
    assert "is no run" in capsys.readouterr().err
    with workdirs.claim(tmp_path, {}), pytest.raises(Waited):
        evaluate.main([f"--follow={tmp_path}"])


def test_checking_a_lock_does_not_acquire_it(tmp_path):
    with workdir_lock.acquire(tmp_path / "lock", "is at work"):
        assert status.is_running(tmp_path)
    assert not status.is_running(tmp_path)
    with workdir_lock.acquire(tmp_path / "lock", "is at work"):
        pass


@pytest.mark.slow
def test_a_follower_uses_its_own_number_of_devices(run_here, elsewhere, monkeypatch):
    """The run's devices, which divide its batches, do not matter."""
    path = elsewhere / "config.json"
    config = json.loads(path.read_text())
    config["run"].update(devices=64, spread=2, together=1, memory=1e-9)
    path.write_text(json.dumps(config))
    monkeypatch.setattr(mesh, "check_batch", pytest.fail)
    assert evaluate.main([f"--follow={elsewhere}", "--once", "--devices=1"]) == 0
    assert measured(elsewhere) == measured(run_here)


@pytest.mark.slow
def test_too_many_devices_are_refused(elsewhere, capsys):
    assert evaluate.main([f"--follow={elsewhere}", "--once", "--devices=999"]) == 2
    assert "the devices here, got 999" in capsys.readouterr().err


@pytest.mark.slow
def test_with_little_memory_networks_wait_on_the_host(run_here, elsewhere, monkeypatch):
    """The optimisers' states are never on the devices."""
    evaluate_step, waves = evaluator.Evaluator.evaluate, []

    def check_states(self, trained, states, step):
        waves.append([len(wave) for wave in states])
        for wave in states:
            assert all(state.opt == () for state in wave)
            assert all(state.params.keys() == {"net"} for state in wave)
        return evaluate_step(self, trained, states, step)

    monkeypatch.setattr(memory_estimate, "free_bytes", lambda devices: 1)
    monkeypatch.setattr(evaluator.Evaluator, "evaluate", check_states)
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 0
    assert waves == [[1, 1]] * 4
    assert measured(elsewhere) == measured(run_here)


def test_a_follower_sets_the_xla_flags_of_training(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert evaluate.main([f"--follow={tmp_path}"]) == 2
    assert os.environ["XLA_FLAGS"] == " ".join(
        f"--{k}={v}" for k, v in xla.FLAGS.items()
    )


@pytest.mark.slow
def test_branches_are_followed(tmp_path, capsys):
    c = config("elsewhere")
    c.epochs, c.eval_every, c.seeds = 1.0, "2 steps", (0,)
    c.vary = (dict(key="optim.rate", values=(0.1, 0.2)),)
    assert train.run(c, tmp_path / "run")
    assert evaluate.main([f"--follow={tmp_path / 'run'}", "--once"]) == 0
    assert "evaluated all that was due, 2 steps in all" in capsys.readouterr().err
    for rate in (0.1, 0.2):
        branch = tmp_path / "run" / "vary" / f"optim.rate={rate}"
        assert {r["step"] for r in smoke_runs.records(branch)} == {2, 4}


@pytest.mark.slow
def test_a_run_and_its_follower_may_both_be_killed(run_here, tmp_path):
    """They run at the same time in two processes; each process is killed once."""
    workdir = tmp_path / "run"
    command = [sys.executable, "-m", "jbias.evaluate", f"--follow={workdir}"]

    def follower():
        return subprocess.Popen(
            [*command, "--interval=0.2"],
            cwd=smoke_runs.ROOT,
            stderr=subprocess.PIPE,
            env=dict(os.environ),
            text=True,
        )

    run = smoke_runs.start(config("elsewhere"), workdir, "step", "5")
    while not (workdir / "provenance.json").exists():
        assert run.poll() is None
        time.sleep(0.05)
    first = follower()
    run.communicate(timeout=600)
    assert run.returncode == -signal.SIGKILL
    while not list(workdir.glob("evals/*.jsonl")):
        assert first.poll() is None
        time.sleep(0.01)
    first.kill()
    first.communicate(timeout=600)
    second, run = follower(), smoke_runs.start(config("elsewhere"), workdir)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    _, stderr = second.communicate(timeout=600)
    assert second.returncode == 0, stderr
    assert measured(workdir) == measured(run_here)
    assert_same_end(run_here, workdir)


@pytest.mark.slow
def test_a_follower_records_that_it_folds_batch_norms(tmp_path):
    """It records their number and the largest change of a logit, like a run."""
    workdir = tmp_path / "run"
    c = config("elsewhere")
    c.epochs, c.run.eval_norm = 1.0, "folded"
    assert train.run(c, workdir)
    follow.follow(workdir, interval=0.1, once=True)
    (start,) = json.loads((workdir / "evaluate.json").read_text())
    assert start["layout"] == {"folded_norms": 2} and not start["differing"]
    layout = json.loads((workdir / "provenance.json").read_text())["layout"]
    assert layout["folded_norms"] == 2
    metrics = [row["metric"] for row in smoke_runs.records(workdir)]
    assert "folding_difference" in metrics


@pytest.mark.slow
def test_a_follower_records_that_it_folds_differently_from_the_run(run_here):
    """Such as a CPU that evaluates the run of an accelerator."""
    workdir = epath.Path(run_here)
    entries = {"config": json.loads((run_here / "config.json").read_text())}
    differing = workdirs.record_follower(workdir, entries, layout={"folded_norms": 2})
    (workdir / "evaluate.json").unlink()
    assert "layout.folded_norms: absent != 2" in differing
