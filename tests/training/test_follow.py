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
from jbias.runtime import lock, mesh, xla
from jbias.training import divergence, evaluator, memory
from tests import cases, smoke_runs
from tests.test_resume import assert_same_end


def config(where: str):
    """Eight steps; three of four evaluations fall between saves that were due anyway."""
    made = smoke_runs.small(eval_every="2 steps", save_every="50 %")
    made.model = {"name": "cnn", "width": 4}
    made.run.evaluate, made.run.decisions = where, True
    return made


def measured(workdir) -> dict[str, bytes]:
    """All that evaluations wrote."""
    files = [*workdir.glob("evals/*"), *workdir.glob("decisions/*/*")]
    return {str(path.relative_to(workdir)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A run that evaluated itself."""
    workdir = tmp_path_factory.mktemp("here") / "run"
    assert train.run(config("here"), workdir)
    assert len(measured(workdir)) == 4 + 4 * 3
    return workdir


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that left all evaluations, broken off right after it left one."""
    workdir = tmp_path_factory.mktemp("elsewhere") / "run"
    add = divergence.Monitor.add

    def broken(self, step, metrics, split):
        if step == 6:
            raise InterruptedError
        return add(self, step, metrics, split)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divergence.Monitor, "add", broken)
        with pytest.raises(InterruptedError):
            train.run(config("elsewhere"), workdir)
    assert train.run(config("elsewhere"), workdir)
    assert not measured(workdir)
    return workdir


@pytest.fixture
def elsewhere(trained, tmp_path):
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.slow
def test_steps_left_to_evaluate_are_kept(trained):
    """Though `keep` is two."""
    assert checkpoints.steps(trained / "checkpoints") == [2, 4, 6, 8]


@pytest.mark.slow
def test_a_follower_writes_what_the_run_itself_would_have(here, elsewhere, capsys):
    told = json.loads((elsewhere / "config.json").read_text())
    told["run"].update(write="tensorboard", log="json")
    (elsewhere / "config.json").write_text(json.dumps(told))
    (elsewhere / "sums.json").unlink()  # It knows of another config.
    assert evaluate.main([f"--follow={elsewhere}", "--interval=0.1"]) == 0
    assert measured(elsewhere) == measured(here)
    assert {*checksums.read(elsewhere, checksums.FOLLOWER)} == {*measured(here)}
    said = capsys.readouterr().err
    assert "step 6/8: valid" in said
    events = [json.loads(line)["event"] for line in said.splitlines()]
    assert events.count("evaluation") == 4
    assert [*elsewhere.glob("tensorboard/seed-*/elsewhere/events.out.tfevents.*")]
    assert "evaluated all that was due, 4 steps" in said
    table = selection.best_validation(results.read([elsewhere]))
    assert table.equals(
        selection.best_validation(results.read([here])).assign(workdir=str(elsewhere))
    )


@pytest.fixture(scope="module")
def followed(trained, tmp_path_factory):
    """A run that a follower has evaluated."""
    workdir = shutil.copytree(trained, tmp_path_factory.mktemp("followed") / "run")
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    return workdir


@pytest.mark.slow
@cases.each("name", ["evals/4.jsonl", "decisions/valid/6.parquet"])
@cases.each("how", ["damaged", "gone"])
def test_a_followers_files_that_are_lost_are_evaluated_again(
    here, followed, tmp_path, capsys, monkeypatch, name, how
):
    workdir = shutil.copytree(followed, tmp_path / "run")
    path, evaluated, observed = workdir / name, [], evaluator.evaluate
    whole = path.read_bytes()
    path.write_bytes(
        whole.replace(b'"seed": 1', b'"seed": 7') + b"\0" * ("dec" in name)
    )
    if how == "gone":
        path.unlink()
    if path.suffix == ".jsonl" and how == "damaged":
        with pytest.raises(ValueError, match=r"delete evaluate.sums.json to accept"):
            results.read([workdir])
    line = f"{name} is {how}; jbias evaluate --follow writes files again whose"
    assert train.run(config("elsewhere"), workdir)
    assert f"{line} checkpoint is kept: steps [{path.stem}]" in capsys.readouterr().err
    monkeypatch.setattr(
        evaluator,
        "evaluate",
        lambda *args: evaluated.append(args[3]) or observed(*args),
    )
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    assert line in capsys.readouterr().err
    assert evaluated == [int(path.stem)]
    assert measured(workdir) == measured(here)
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    assert "anew" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_followers_files_whose_checkpoint_went_are_told(followed, tmp_path, capsys):
    """They stay as they are."""
    workdir = shutil.copytree(followed, tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "4")
    path = workdir / "evals" / "4.jsonl"
    path.write_text("damaged")
    assert evaluate.main([f"--follow={workdir}", "--once"]) == 0
    assert "evals/4.jsonl is damaged; " in (said := capsys.readouterr().err)
    assert "whose checkpoint is kept: steps none" in said
    assert path.read_text() == "damaged"


@pytest.mark.slow
def test_a_killed_follower_goes_on(here, elsewhere, monkeypatch):
    """Whatever it had written of an evaluation, that one is made again, and no other."""
    write, evaluated, observed = results.write_text, [], evaluator.evaluate

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
        evaluator,
        "evaluate",
        lambda *args: evaluated.append(args[3]) or observed(*args),
    )
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 0
    assert evaluated == [6, 8]
    assert measured(elsewhere) == measured(here)
    assert len(json.loads((elsewhere / "evaluate.json").read_text())) == 2


@pytest.mark.slow
def test_a_resumed_run_may_evaluate_for_itself(here, elsewhere):
    """What it had left to others it leaves; the step that it stands at is its own."""
    (elsewhere / "done").unlink()
    shutil.rmtree(elsewhere / "checkpoints" / "8")
    assert train.run(config("here"), elsewhere)
    ours = measured(here)
    names = {f"evals/{step}.jsonl" for step in (6, 8)}
    written = measured(elsewhere)
    assert {name for name in written if "evals" in name} == names
    assert written.items() <= ours.items()
    assert {2, 4, 8} <= set(checkpoints.steps(elsewhere / "checkpoints"))
    evaluator.follow(elsewhere, interval=0.1)
    assert measured(elsewhere) == ours


@pytest.mark.slow
def test_a_second_follower_is_refused(elsewhere, capsys):
    with workdirs.claim_evaluation(elsewhere):
        assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 2
    assert "another process evaluates" in capsys.readouterr().err
    assert not measured(elsewhere)


@pytest.mark.slow
def test_other_data_is_refused(elsewhere, capsys):
    path = elsewhere / "provenance.json"
    facts = json.loads(path.read_text())
    facts["data"]["edge"]["fingerprint"] = "another"
    path.write_text(json.dumps(facts))
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 2
    assert "begun with other data or code" in capsys.readouterr().err


@pytest.mark.slow
def test_a_damaged_step_is_named(elsewhere, capsys):
    for path in (elsewhere / "checkpoints" / "4" / "info").rglob("metadata"):
        path.write_text("{}")
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 2
    said = capsys.readouterr().err
    assert "checkpoints/4 cannot be read" in said
    assert set(measured(elsewhere)) >= {"evals/2.jsonl"}


def test_no_run_is_told_in_one_line(tmp_path, capsys):
    assert evaluate.main([f"--follow={tmp_path / 'nowhere'}"]) == 2
    said = capsys.readouterr().err
    assert "nowhere is no run" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()


@cases.each("once", [(), ("--once",)])
@cases.each("held", ["{}", "[]", "{", '{"run": {}}'])
def test_a_config_that_is_no_runs_is_told_in_one_line(tmp_path, capsys, once, held):
    (tmp_path / "provenance.json").write_text("{}")
    (tmp_path / "config.json").write_text(held)
    assert evaluate.main([f"--follow={tmp_path}", *once]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"jbias: {tmp_path / 'config.json'}: must be ")


def test_a_lock_that_nobody_holds_is_not_waited_for(tmp_path, capsys, monkeypatch):
    """A killed opening leaves its file behind."""
    (tmp_path / "lock").touch()

    class Waited(Exception):
        pass

    def waits(seconds):
        raise Waited

    monkeypatch.setattr(evaluator.time, "sleep", waits)
    assert evaluate.main([f"--follow={tmp_path}"]) == 2
    assert "is no run" in capsys.readouterr().err
    with workdirs.claim(tmp_path, {}), pytest.raises(Waited):
        evaluate.main([f"--follow={tmp_path}"])


def test_who_looks_at_a_lock_does_not_take_it(tmp_path):
    with lock.acquire(tmp_path / "lock", "is at work"):
        assert status.is_running(tmp_path)
    assert not status.is_running(tmp_path)
    with lock.acquire(tmp_path / "lock", "is at work"):
        pass


@pytest.mark.slow
def test_the_devices_are_the_followers_own(here, elsewhere, monkeypatch):
    """Not those of the run, by which its batch was divided."""
    path = elsewhere / "config.json"
    held = json.loads(path.read_text())
    held["run"].update(devices=64, spread=2, together=1, memory=1e-9)
    path.write_text(json.dumps(held))
    monkeypatch.setattr(mesh, "check_batch", pytest.fail)
    assert evaluate.main([f"--follow={elsewhere}", "--once", "--devices=1"]) == 0
    assert measured(elsewhere) == measured(here)


@pytest.mark.slow
def test_too_many_devices_are_refused(elsewhere, capsys):
    assert evaluate.main([f"--follow={elsewhere}", "--once", "--devices=999"]) == 2
    assert "the devices here, got 999" in capsys.readouterr().err


@pytest.mark.slow
def test_where_memory_is_short_nets_wait_on_the_host(here, elsewhere, monkeypatch):
    """And optimisers do not come to the devices at all."""
    observed, waves = evaluator.evaluate, []

    def seen(job, stage, states, step):
        waves.append([len(wave) for wave in states])
        for wave in states:
            assert all(state.opt == () for state in wave)
            assert all(state.params.keys() == {"net"} for state in wave)
        observed(job, stage, states, step)

    monkeypatch.setattr(memory, "free_bytes", lambda devices: 1)
    monkeypatch.setattr(evaluator, "evaluate", seen)
    assert evaluate.main([f"--follow={elsewhere}", "--once"]) == 0
    assert waves == [[1, 1]] * 4
    assert measured(elsewhere) == measured(here)


def test_flags_of_xla_are_set_as_main_does(tmp_path, monkeypatch):
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
def test_both_at_once_and_both_killed(here, tmp_path):
    """A run and its follower in processes of their own; each is killed once."""
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
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 0, said
    _, said = second.communicate(timeout=600)
    assert second.returncode == 0, said
    assert measured(workdir) == measured(here)
    assert_same_end(here, workdir)


def test_a_follower_records_that_it_folds_batch_norms(tmp_path):
    """As the run itself does: their number, and how far that moves a logit."""
    workdir = tmp_path / "run"
    made = config("elsewhere")
    made.epochs, made.run.eval_norm = 1.0, "folded"
    assert train.run(made, workdir)
    evaluator.follow(workdir, interval=0.1, once=True)
    (start,) = json.loads((workdir / "evaluate.json").read_text())
    assert start["layout"] == {"folded_norms": 2} and not start["differing"]
    layout = json.loads((workdir / "provenance.json").read_text())["layout"]
    assert layout["folded_norms"] == 2
    metrics = [row["metric"] for row in smoke_runs.records(workdir)]
    assert "folding_difference" in metrics


def test_a_follower_says_that_it_folds_other_than_the_run(here):
    """As where a CPU evaluates what an accelerator trains."""
    workdir = epath.Path(here)
    facts = {"config": json.loads((here / "config.json").read_text())}
    differing = workdirs.record_follower(workdir, facts, layout={"folded_norms": 2})
    (workdir / "evaluate.json").unlink()
    assert "layout.folded_norms: absent != 2" in differing
