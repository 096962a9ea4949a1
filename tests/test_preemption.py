"""What asks a run to stop, and errors that nobody foresaw, lose nothing."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

from jbias import main, study, train
from jbias.runs import checkpoints
from jbias.runtime import console, messages, signals
from jbias.training import divergence, evaluator, seed_axis, setup, stages, telemetry
from tests import cases, smoke_runs, test_resume

MINE = pathlib.Path(__file__).parent / "own_algorithm.py"


def asked(**entries):
    config = smoke_runs.small(**entries)
    config.run.steps_per_dispatch = 1
    config.tests, config.model = {}, dict(name="cnn", width=2, norm_group=0)
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("finished") / "run"
    assert train.run(asked(), workdir)
    return workdir


def before(function, act, *, at: int = 0):
    """The function, which does something before its call of that number."""
    left = [at]

    def called(*args, **options):
        left[0] -= 1
        if left[0] == -1:
            act()
        return function(*args, **options)

    return called


def stop(name: str = "SIGTERM") -> None:
    signal.raise_signal(signal.Signals[name])


@cases.each("name", ["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGINT"])
def test_while_data_are_opened_there_is_nothing_to_save(
    tmp_path, monkeypatch, request, name
):
    # A shell's jobs in the background ignore SIGINT and SIGQUIT, which would be respected.
    plain = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    earlier = signal.signal(signal.Signals[name], plain)
    request.addfinalizer(lambda: signal.signal(signal.Signals[name], earlier))
    handlers = [signal.getsignal(number) for number in signals.STOP_SIGNALS]
    job = before(setup.open_run, lambda: stop(name))
    monkeypatch.setattr(setup, "open_run", job)
    with pytest.raises(signals.Interrupted, match=f"{name} before a step") as stopped:
        train.run(asked(), tmp_path / "run")
    assert signals.exit_code(stopped.value) == (130 if name == "SIGINT" else 143)
    assert not (tmp_path / "run").exists()
    assert handlers == [signal.getsignal(number) for number in signals.STOP_SIGNALS]


def test_a_stop_while_the_config_is_read_has_its_code(tmp_path):
    """Before this package's handlers SIGUSR1 would end Python with another."""
    (path := tmp_path / "config.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "jbias.main", f"--config={path}"],
        check=False,
        cwd=smoke_runs.ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 143, ended.stderr
    assert ended.stderr.startswith("jbias: SIGUSR1 before a step was taken")
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_stop_that_somebody_took_for_an_error_is_not_lost(tmp_path, monkeypatch):
    real = setup.open_run

    def deaf(*args, **options):
        with contextlib.suppress(BaseException):
            stop()
        with pytest.raises(signals.Interrupted), contextlib.suppress(Exception):
            raise signals.Interrupted
        stop()  # Twice does no harm.
        return real(*args, **options)

    monkeypatch.setattr(setup, "open_run", deaf)
    with pytest.raises(signals.Interrupted, match="SIGTERM at step 0: saved"):
        train.run(asked(), tmp_path / "run")


@cases.each(
    ("module", "name", "saved"),
    [
        (evaluator, "_decisions", 5),
        (telemetry, "compiling", 1),
        (checkpoints.CheckpointStore, "restore", 0),
    ],
)
def test_a_stop_is_saved_and_the_same_command_ends_the_same(
    finished, tmp_path, monkeypatch, module, name, saved
):
    """After an evaluation, while the step is compiled, and before all."""
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(module, name, before(getattr(module, name), stop))
        with pytest.raises(
            signals.Interrupted, match=f"SIGTERM at step {saved}: saved"
        ):
            train.run(asked(), workdir)
    assert checkpoints.steps(workdir / "checkpoints")[-1] == saved
    assert train.run(asked(), workdir)
    test_resume.assert_same_end(finished, workdir)


@pytest.mark.slow
def test_a_stop_while_the_last_checkpoint_is_written_changes_nothing(
    finished, tmp_path, monkeypatch
):
    store = checkpoints.CheckpointStore
    monkeypatch.setattr(store, "close", before(store.close, stop))
    assert train.run(asked(), tmp_path / "run")
    test_resume.assert_same_end(finished, tmp_path / "run")


def test_no_other_run_of_a_study_is_begun_then(monkeypatch, tmp_path, capsys):
    begun = []

    def finishes(config, workdir, *, stop_signal):
        stop_signal.job = types.SimpleNamespace(stop="")
        begun.append(workdir)
        stop("SIGUSR1")
        return True

    monkeypatch.setattr(train, "run", finishes)
    planned = [study.ShiftRun(None, tmp_path / name) for name in "ab"]
    monkeypatch.setattr(study, "plan_runs", lambda *_: (planned, []))
    args = types.SimpleNamespace(dry_run=False, workdir=tmp_path)
    assert study.run(args, ()) == 143
    assert begun == [tmp_path / "a"]
    assert "the remaining runs have not started" in capsys.readouterr().err


def fail() -> None:
    raise RuntimeError("a bug")


def test_an_error_is_told_and_what_was_trained_is_saved(
    finished, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(RuntimeError) as failed:
        update = before(console.Progress.update, fail, at=2)
        patch.setattr(console.Progress, "update", update)
        train.run(asked(), workdir)
    assert checkpoints.steps(workdir / "checkpoints") == [3]
    said = messages.describe_crash(failed.value)
    assert said.startswith("RuntimeError: a bug (")
    assert "test_preemption.py" in said
    assert "step 3 is saved" in said
    assert "in fail" in (workdir / "traceback.txt").read_text()
    assert train.run(asked(), workdir)
    test_resume.assert_same_end(finished, workdir)


@pytest.mark.slow
def test_states_that_are_gone_do_not_become_a_checkpoint(
    finished, tmp_path, monkeypatch
):
    workdir, stepper = tmp_path / "run", seed_axis.multi_step

    def gone(*args):
        def advance(states, *rest):
            jax.tree.map(lambda x: x.delete(), states)
            fail()

        whole = stepper(*args)
        calls = iter([whole] * 6 + [advance])
        return lambda *args: next(calls)(*args)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError) as failed:
        patch.setattr(seed_axis, "multi_step", gone)
        train.run(asked(), workdir)
    assert "the error came during a step" in messages.describe_error(failed.value)
    assert "the latest checkpoint is of step 4" in messages.describe_error(failed.value)
    assert train.run(asked(), workdir)
    test_resume.assert_same_end(finished, workdir)


@pytest.mark.slow
def test_a_seed_rolled_back_in_a_run_stopped_anywhere_ends_the_same(
    tmp_path, monkeypatch
):
    """Its records say where it failed, where it went, and with what rate."""
    config = asked(
        algo={"name": f"{MINE}:make", "chance": 0.15},
        rollback=dict(times=2, factor=0.5, every="3 steps"),
        save_every="4 steps",
        epochs=3.0,
    )
    config.seeds = (0, 1, 2)
    assert train.run(config, tmp_path / "whole")
    told = [
        r
        for r in smoke_runs.records(tmp_path / "whole")
        if r["metric"] == "rolled_back"
    ]
    assert told
    assert {r["status"] for r in told} == {"ok"}
    first = min(told, key=lambda r: r["step"])
    words = first["condition"].split()  # at step 7 to step 6
    failed, target = int(words[2]), int(words[5])
    assert target == (failed - 1) // 3 * 3
    for at in (failed - 1, 0, 0):
        with monkeypatch.context() as patch:
            update = before(console.Progress.update, stop, at=at)
            patch.setattr(console.Progress, "update", update)
            with pytest.raises(signals.Interrupted):
                train.run(config, tmp_path / "run")
    assert train.run(config, tmp_path / "run")
    test_resume.assert_same_end(tmp_path / "whole", tmp_path / "run")
    step, tree = test_resume.saved(tmp_path / "run")
    assert step == 12
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


@pytest.mark.slow
def test_where_all_diverge_a_stopped_run_ends_at_the_step_of_one_never_stopped(
    tmp_path, monkeypatch
):
    config = asked(seeds=(0,))
    config.optim.rate = 1e30
    assert not train.run(config, tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        batches = before(stages.Stage.batches, stop, at=3)
        patch.setattr(stages.Stage, "batches", batches)
        with pytest.raises(signals.Interrupted):
            train.run(config, tmp_path / "run")
    assert not train.run(config, tmp_path / "run")
    ends = [
        (
            max(checkpoints.steps(tmp_path / name / "checkpoints")),
            sorted(path.name for path in (tmp_path / name / "evals").iterdir()),
        )
        for name in ("unbroken", "run")
    ]
    assert ends[0] == ends[1]


def test_a_stop_before_the_run_waits_for_no_compiler(monkeypatch):
    """XLA's threads may be at work still: the process ends without them."""

    class Left(BaseException):
        pass

    def run(work, *, flags_parser):
        del flags_parser
        with contextlib.suppress(signals.Interrupted):
            work.keywords["stop_signal"].handle(signal.SIGINT)
        raise SystemExit(130)

    def leave(code):
        raise Left(code)

    monkeypatch.setattr(main.app, "run", run)
    monkeypatch.setattr(main.os, "_exit", leave)
    with pytest.raises(Left, match="130"):
        main.command()


def test_hangups_that_nohup_ignores_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.listen() as stop_signal:
            signal.raise_signal(signal.SIGHUP)
            assert stop_signal.name == ""
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@cases.each(
    ("error", "word"),
    [
        (MemoryError(), "this machine has too little"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB"), "a device has too"),
    ],
)
def test_want_of_memory_is_one_line_with_what_to_do(
    finished, tmp_path, monkeypatch, error, word
):
    """What is saved stays, and is said; the same command goes on."""
    workdir, add = tmp_path / "run", divergence.Monitor.add

    def lacking(self, step, *args):
        if step == 7:
            raise error
        return add(self, step, *args)

    with monkeypatch.context() as patch:
        patch.setattr(divergence.Monitor, "add", lacking)
        with pytest.raises(OSError, match=f"memory: {word}.*accumulate") as refused:
            train.run(asked(), workdir)
    line = messages.describe_error(refused.value)
    assert "\n" not in line and "checkpoint" in line
    assert train.run(asked(), workdir)
    test_resume.assert_same_end(finished, workdir)


def test_streams_that_nobody_reads_any_more_end_no_program():
    """Python would end with exit code 120 in place of the run's own."""
    code = (
        "import sys; from jbias.runtime import console; sys.stdout.write('x'); "
        "console.flush_streams(); sys.exit(3)"
    )
    read, write = os.pipe()
    os.close(read)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, check=False, stdout=write, env=environment)
    os.close(write)
    assert ended.returncode == 3
