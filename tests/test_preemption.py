"""Stop signals and unexpected errors lose no completed step."""

import contextlib
import inspect
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
from jbias.training import evaluator, monitoring, placement, run_log, seed_axis, setup
from tests import cases, smoke_runs, test_resume

OWN_ALGORITHM = pathlib.Path(__file__).parent / "own_algorithm.py"


def make_config(**entries):
    config = smoke_runs.small(**entries)
    config.run.steps_per_dispatch = 1
    config.tests, config.model = {}, dict(name="cnn", width=2, norm_group=0)
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("finished") / "run"
    assert train.run(make_config(), workdir)
    return workdir


def run_before(function, act, *, at: int = 0):
    """Return a function that calls `act` before its call number `at`, counted from 0."""
    calls_left = [at]

    def called(*args, **options):
        calls_left[0] -= 1
        if calls_left[0] == -1:
            act()
        return function(*args, **options)

    return called


def stop(name: str = "SIGTERM") -> None:
    signal.raise_signal(signal.Signals[name])


@cases.each("name", ["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGINT"])
def test_while_data_are_opened_there_is_nothing_to_save(
    tmp_path, monkeypatch, request, name
):
    # Background jobs of a shell ignore SIGINT and SIGQUIT, so handlers are set here.
    plain = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    earlier = signal.signal(signal.Signals[name], plain)
    request.addfinalizer(lambda: signal.signal(signal.Signals[name], earlier))
    handlers = [signal.getsignal(number) for number in signals.STOP_SIGNALS]
    stopping_open_run = run_before(setup.open_run, lambda: stop(name))
    monkeypatch.setattr(setup, "open_run", stopping_open_run)
    with pytest.raises(signals.Interrupted, match=f"{name} before a step") as stopped:
        train.run(make_config(), tmp_path / "run")
    assert signals.exit_code(stopped.value) == (130 if name == "SIGINT" else 143)
    assert not (tmp_path / "run").exists()
    assert handlers == [signal.getsignal(number) for number in signals.STOP_SIGNALS]


def test_a_stop_while_the_config_is_read_has_its_code(tmp_path):
    """Without the package's handlers SIGUSR1 would end Python with another exit code."""
    (path := tmp_path / "config.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "jbias.main", f"--config={path}"],
        check=False,
        cwd=smoke_runs.ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.returncode == 143, process.stderr
    assert process.stderr.startswith("jbias: SIGUSR1 before a step was taken")
    assert process.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_stop_signal_that_other_code_suppresses_is_not_lost(tmp_path, monkeypatch):
    open_run = setup.open_run

    def open_run_and_suppress(*args, **options):
        with contextlib.suppress(BaseException):
            stop()
        with pytest.raises(signals.Interrupted), contextlib.suppress(Exception):
            raise signals.Interrupted
        stop()  # A second signal changes nothing.
        return open_run(*args, **options)

    monkeypatch.setattr(setup, "open_run", open_run_and_suppress)
    with pytest.raises(signals.Interrupted, match="SIGTERM at step 0: saved"):
        train.run(make_config(), tmp_path / "run")


@cases.each(
    ("module", "name", "saved"),
    [
        (evaluator.Evaluator, "_report_undecided", 4),
        (run_log.RunLog, "compiling", 1),
        (checkpoints.CheckpointStore, "restore", 0),
    ],
)
def test_a_stop_is_saved_and_the_same_command_ends_the_same(
    finished, tmp_path, monkeypatch, module, name, saved
):
    """The stop comes after an evaluation, while the step is compiled, or at the start."""
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(module, name, run_before(getattr(module, name), stop))
        with pytest.raises(
            signals.Interrupted, match=f"SIGTERM at step {saved}: saved"
        ):
            train.run(make_config(), workdir)
    assert checkpoints.steps(workdir / "checkpoints")[-1] == saved
    assert train.run(make_config(), workdir)
    test_resume.assert_same_end(finished, workdir)


@pytest.mark.slow
def test_a_stop_while_the_last_checkpoint_is_written_changes_nothing(
    finished, tmp_path, monkeypatch
):
    store = checkpoints.CheckpointStore
    monkeypatch.setattr(store, "close", run_before(store.close, stop))
    assert train.run(make_config(), tmp_path / "run")
    test_resume.assert_same_end(finished, tmp_path / "run")


def test_a_study_starts_no_other_run_after_a_stop(monkeypatch, tmp_path, capsys):
    started = []

    def stop_and_finish(config, workdir, *, stop_signal):
        stop_signal.run = types.SimpleNamespace(received="")
        started.append(workdir)
        stop("SIGUSR1")
        return True

    monkeypatch.setattr(train, "run", stop_and_finish)
    planned = [study.ShiftRun(None, tmp_path / name) for name in "ab"]
    monkeypatch.setattr(study, "plan_runs", lambda *_: (planned, []))
    args = types.SimpleNamespace(dry_run=False, workdir=tmp_path)
    assert study.run(args, ()) == 143
    assert started == [tmp_path / "a"]
    assert "the remaining runs have not started" in capsys.readouterr().err


def raise_bug() -> None:
    raise RuntimeError("a bug")


def test_an_unexpected_error_is_reported_and_the_last_step_is_saved(
    finished, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(RuntimeError) as error_info:
        update = run_before(console.Progress.update, raise_bug, at=2)
        patch.setattr(console.Progress, "update", update)
        train.run(make_config(), workdir)
    assert checkpoints.steps(workdir / "checkpoints") == [3]
    message = messages.describe_crash(error_info.value)
    assert message.startswith("RuntimeError: a bug (")
    assert "test_preemption.py" in message
    assert "step 3 is saved" in message
    assert "in raise_bug" in (workdir / "traceback.txt").read_text()
    assert train.run(make_config(), workdir)
    test_resume.assert_same_end(finished, workdir)


@pytest.mark.slow
def test_deleted_states_are_not_saved(finished, tmp_path, monkeypatch):
    workdir, multi_step = tmp_path / "run", seed_axis.multi_step

    def make_failing_step(*args, **options):
        def delete_states_and_fail(states, *args):
            jax.tree.map(lambda x: x.delete(), states)
            raise_bug()

        advance = multi_step(*args, **options)
        calls = iter([advance] * 6 + [delete_states_and_fail])
        return lambda *args: next(calls)(*args)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError) as error_info:
        patch.setattr(seed_axis, "multi_step", make_failing_step)
        train.run(make_config(), workdir)
    message = messages.describe_error(error_info.value)
    assert "the error came during a step" in message
    assert "the latest checkpoint is of step 4" in message
    assert train.run(make_config(), workdir)
    test_resume.assert_same_end(finished, workdir)


@pytest.mark.slow
def test_a_seed_rolled_back_in_a_run_stopped_anywhere_ends_the_same(
    tmp_path, monkeypatch
):
    """Records name the step of the failure, the step rolled back to, and the rate."""
    config = make_config(
        algo={"name": f"{OWN_ALGORITHM}:make", "chance": 0.15},
        rollback=dict(times=2, factor=0.5, every="3 steps"),
        save_every="4 steps",
        epochs=3.0,
    )
    config.seeds = (0, 1, 2)
    assert train.run(config, tmp_path / "whole")
    rollbacks = [
        r
        for r in smoke_runs.records(tmp_path / "whole")
        if r["metric"] == "rolled_back"
    ]
    assert rollbacks
    assert {r["status"] for r in rollbacks} == {"ok"}
    first = min(rollbacks, key=lambda r: r["step"])
    words = first["condition"].split()  # at step 7 to step 6
    failed, target = int(words[2]), int(words[5])
    assert target == (failed - 1) // 3 * 3
    for at in (failed - 1, 0, 0):
        with monkeypatch.context() as patch:
            update = run_before(console.Progress.update, stop, at=at)
            patch.setattr(console.Progress, "update", update)
            with pytest.raises(signals.Interrupted):
                train.run(config, tmp_path / "run")
    assert train.run(config, tmp_path / "run")
    test_resume.assert_same_end(tmp_path / "whole", tmp_path / "run")
    step, tree = test_resume.saved(tmp_path / "run")
    assert step == 12
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


@pytest.mark.slow
def test_a_stopped_run_of_diverging_seeds_ends_like_an_uninterrupted_run(
    tmp_path, monkeypatch
):
    config = make_config(seeds=(0,))
    config.optim.rate = 1e30
    assert not train.run(config, tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        batches = run_before(placement.PlacedStage.batches, stop, at=3)
        patch.setattr(placement.PlacedStage, "batches", batches)
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
    """The process ends even if threads of XLA still compile."""

    class ProcessLeft(BaseException):
        pass

    def run(work, *, flags_parser):
        del flags_parser
        with contextlib.suppress(signals.Interrupted):
            stop_signal = inspect.getclosurevars(work).nonlocals["stop_signal"]
            stop_signal.handle(signal.SIGINT)
        raise SystemExit(130)

    def leave(code):
        raise ProcessLeft(code)

    monkeypatch.setattr(main.app, "run", run)
    monkeypatch.setattr(main.os, "_exit", leave)
    with pytest.raises(ProcessLeft, match="130"):
        main.command()


def test_hangups_that_nohup_ignores_stay_ignored():
    earlier_handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.listen() as stop_signal:
            signal.raise_signal(signal.SIGHUP)
            assert stop_signal.name == ""
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, earlier_handler)


@cases.each(
    ("error", "word"),
    [
        (MemoryError(), "this machine has too little"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB"), "a device has too"),
    ],
)
def test_running_out_of_memory_gives_one_line_with_the_remedy(
    finished, tmp_path, monkeypatch, error, word
):
    """The message names the checkpoint, and the same command resumes."""
    workdir, add = tmp_path / "run", monitoring.Monitor.add

    def raise_at_step_7(self, step, *args):
        if step == 7:
            raise error
        return add(self, step, *args)

    with monkeypatch.context() as patch:
        patch.setattr(monitoring.Monitor, "add", raise_at_step_7)
        with pytest.raises(OSError, match=f"memory: {word}.*accumulate") as error_info:
            train.run(make_config(), workdir)
    line = messages.describe_error(error_info.value)
    assert "\n" not in line and "checkpoint" in line
    assert train.run(make_config(), workdir)
    test_resume.assert_same_end(finished, workdir)


def test_a_closed_output_stream_does_not_change_the_exit_code():
    """Otherwise Python would exit with code 120."""
    code = (
        "import sys; from jbias.runtime import console; sys.stdout.write('x'); "
        "console.flush_streams(); sys.exit(3)"
    )
    read, write = os.pipe()
    os.close(read)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, check=False, stdout=write, env=environment)
    os.close(write)
    assert process.returncode == 3
