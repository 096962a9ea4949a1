"""Loggers receive each number once, and never stop a run."""

import asyncio
import contextlib
import importlib.util
import pathlib
import sys
import time
import types

import pytest
from etils import epath

from jbias.runs import loggers
from tests import cases, wandb_files

CONFIG = {"seeds": [0, 1], "optim": {"rate": 0.3}, "run": {}}
BRANCHES = {"optim.rate=0.1": {**CONFIG, "optim": {"rate": 0.1}}}


@pytest.fixture
def begin():
    """Open loggers of a run that starts or resumes at a step; close them afterwards."""
    with contextlib.ExitStack() as stack:

        def fails(line):
            raise AssertionError(line)

        def open_loggers(names, workdir, step=0, *, alone=True, say=fails):
            path = epath.Path(workdir)
            run = loggers.RunInfo(path, "erm-shapes-1", CONFIG, step, alone, BRANCHES)
            opened = stack.enter_context(contextlib.closing(loggers.Loggers(say)))
            opened.begin(names, run)
            return opened

        yield open_loggers


def numbers(value):
    return {
        "mean": {"valid/accuracy": value},
        "seed-0": {"valid/accuracy": value + 0.25},
        "optim.rate=0.1/seed-1": {"valid/accuracy": value - 0.25},
        "optim.rate=0.1/mean": {"valid/accuracy": value - 0.5},
    }


def points(folder: pathlib.Path, tag="valid/accuracy") -> dict[int, float]:
    """Return the points that TensorBoard's own reader finds in a folder."""
    scalars = board(folder).Scalars(tag)
    assert len({scalar.step for scalar in scalars}) == len(scalars)
    return {scalar.step: scalar.value for scalar in scalars}


def board(folder: pathlib.Path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator

    guidance = {"scalars": 0, "tensors": 0}
    return event_accumulator.EventAccumulator(str(folder), guidance).Reload()


def test_tensorboard_reads_the_logged_numbers(tmp_path, begin):
    pytest.importorskip("tensorboardX")
    opened = begin(["tensorboard"], tmp_path)
    opened.scalars(2, numbers(0.5))
    opened.scalars(4, numbers(0.75))
    root = tmp_path / "tensorboard"
    # Not closed yet: numbers can be read during the run.
    assert points(root) == {2: 0.5, 4: 0.75}
    assert points(root / "seed-0") == {2: 0.75, 4: 1.0}
    assert points(root / "optim.rate=0.1" / "seed-1") == {2: 0.25, 4: 0.5}
    assert points(root / "optim.rate=0.1") == {2: 0.0, 4: 0.25}
    opened.close()
    text = board(root).Tensors("config/text_summary")[0].tensor_proto.string_val[0]
    assert b'"rate": 0.3' in text


def test_tensorboard_has_the_settings_of_each_seed(tmp_path, begin):
    """The settings are those of the seed's branch in a run with branches."""
    pytest.importorskip("tensorboardX")
    begin(["tensorboard"], tmp_path).scalars(2, numbers(0.5))
    pytest.importorskip("tensorboard")
    from tensorboard.plugins.hparams import metadata

    for folder, rate, seed in (("seed-0", 0.3, 0), ("optim.rate=0.1/seed-1", 0.1, 1)):
        events = board(tmp_path / "tensorboard" / folder)
        start = metadata.parse_session_start_info_plugin_data(
            events.PluginTagToContent(metadata.PLUGIN_NAME)[
                metadata.SESSION_START_INFO_TAG
            ]
        )
        assert start.hparams["optim.rate"].number_value == rate
        assert start.hparams["seed"].number_value == seed
        assert start.hparams["seeds"].string_value == "[0, 1]"


def test_tensorboard_drops_numbers_after_the_resumed_step(tmp_path, begin):
    """This also holds for folders that receive no more numbers."""
    pytest.importorskip("tensorboardX")
    first_start = begin(["tensorboard"], tmp_path)
    for step in range(1, 8):
        first_start.scalars(step, numbers(0.5))
    resumed = begin(["tensorboard"], tmp_path, step=4)
    for step in (4, 5):
        resumed.scalars(step, {"mean": {"valid/accuracy": 0.75}})
    root = tmp_path / "tensorboard"
    assert points(root) == {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.75, 5: 0.75}
    assert points(root / "seed-0") == dict.fromkeys((1, 2, 3), 0.75)


def test_an_evaluating_process_writes_its_own_files(tmp_path, begin):
    pytest.importorskip("tensorboardX")
    lines = []
    training = begin(["tensorboard"], tmp_path)
    training.scalars(1, {"seed-0": {"speed": 1.0}})
    evaluating = begin(
        ["tensorboard", "wandb"], tmp_path, alone=False, say=lines.append
    )
    evaluating.scalars(2, numbers(0.5))
    assert lines == ["wandb: left to the process that trains"]
    folder = tmp_path / "tensorboard" / "seed-0"
    assert points(folder, "speed") == {1: 1.0}
    assert points(folder / "elsewhere") == {2: 0.75}


def test_wandb_files_have_each_step_once_under_one_id(tmp_path, begin, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "online")  # The config says offline.
    first_start = begin(["wandb"], tmp_path)
    for step in range(1, 8):
        first_start.scalars(step, {"seed-0": {"progress/loss_class": 1.0}})
        first_start.scalars(step, numbers(step / 8))
    first_start.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert len(wandb_files.history(file)) == 7  # Waits until it is whole.
    resumed = begin(["wandb"], tmp_path, step=4)
    for step in range(5, 10):
        resumed.scalars(step, numbers(step / 8))
    resumed.scalars(8, {"seed-1": {"late": 1.0}})  # A late number of an earlier step.
    resumed.close()
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    first, second = map(wandb_files.history, files)
    assert (list(first), list(second)) == ([1, 2, 3, 4, 5, 6, 7], [8, 9])
    assert first[3] == {
        "progress/loss_class/seed-0": 1.0,
        "valid/accuracy/mean": 0.375,
        "valid/accuracy/seed-0": 0.625,
        "valid/accuracy/optim.rate=0.1/seed-1": 0.125,
        "valid/accuracy/optim.rate=0.1/mean": -0.125,
    }
    assert second[9]["valid/accuracy/mean"] == 1.125
    run_records = [
        record.run
        for path in files
        for record in wandb_files.read(path)
        if record.WhichOneof("record_type") == "run"
    ]
    assert len({run.run_id for run in run_records}) == 1
    assert run_records[0].run_id.startswith("erm-shapes-1-")
    assert {run.display_name for run in run_records} == {"erm-shapes-1"}
    settings = {
        setting.key: setting.value_json for setting in run_records[0].config.update
    }
    assert settings["optim"] == '{"rate":0.3}'


class Full:
    """A writer on a full disk."""

    def scalars(self, step, numbers):
        raise OSError(28, "No space left on device")


def test_a_failing_logger_is_reported_once_and_dropped(tmp_path, begin, monkeypatch):
    pytest.importorskip("tensorboardX")
    lines = []
    (tmp_path / "wandb").write_text("a file where a folder is needed")
    opened = begin(["tensorboard", "wandb"], tmp_path, say=lines.append)
    assert len(lines) == 1 and lines[0].startswith("wandb: stopped logging")
    assert "Not a directory" in lines[0] or "File exists" in lines[0]
    opened.scalars(1, numbers(0.5))
    monkeypatch.setitem(opened._open, "tensorboard", Full())
    for step in (2, 3):
        opened.scalars(step, numbers(0.5))
    opened.close()
    assert len(lines) == 2 and "No space left on device" in lines[1]
    assert points(tmp_path / "tensorboard") == {1: 0.5}


def test_missing_packages_are_refused_with_the_command(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "wandb" else find(name),
    )
    with pytest.raises(ValueError, match=r"pip install 'jbias\[wandb\]'"):
        loggers.check("wandb", {})
    loggers.check("", {})


@cases.each(
    ("run", "message"),
    [
        ({"write": "tensorbord"}, "config.run.write: must be of tensorboard, wandb"),
        ({"write": "wandb+wandb"}, "config.run.write: .* each once"),
        ({"wandb": {"mode": "on"}}, "config.run.wandb.mode: must be one of offline"),
        ({"wandb": {"projet": "x"}}, "config.run.wandb: unknown 'projet'"),
    ],
)
def test_bad_logger_options_are_refused(run, message):
    with pytest.raises(ValueError, match=message):
        loggers.check(run.get("write", ""), run.get("wandb", {}))


class Broken:
    """A logger that fails in a chosen way, also when it is closed."""

    def __init__(self, fail):
        self.fail = fail

    def scalars(self, step, numbers):
        self.fail()

    def close(self):
        self.fail()


def _raise(error):
    raise error


def _recurse():
    _recurse()


FAILURES = {
    "SystemExit 0": lambda: sys.exit(0),
    "SystemExit done": lambda: sys.exit("done"),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "StopIteration": lambda: _raise(StopIteration()),
    "maximum recursion depth exceeded": _recurse,
    "no answer within 0.2 seconds": lambda: time.sleep(30),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_a_logger_is_dropped_after_any_failure(reason, tmp_path, monkeypatch):
    """Failures on opening, logging and closing each give one line."""
    module = types.ModuleType("broken_logger")
    kind = loggers.LoggerKind("broken_logger", (), shareable=True)
    monkeypatch.setitem(sys.modules, "broken_logger", module)
    monkeypatch.setitem(loggers.LOGGERS, "broken", kind)
    run = loggers.RunInfo(epath.Path(tmp_path), "erm-shapes-1", CONFIG, 0)
    lines = []
    opened = loggers.Loggers(lines.append, patience=0.2)
    module.open = lambda run: FAILURES[reason]()
    opened.begin(["broken"], run)
    module.open = lambda run: Broken(FAILURES[reason])
    opened.begin(["broken"], run)
    opened.scalars(1, numbers(0.5))
    opened.scalars(2, numbers(0.5))
    opened.begin(["broken"], run)
    opened.close()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("broken: stopped logging") and reason in line
