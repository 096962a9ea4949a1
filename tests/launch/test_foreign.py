"""Searches of other users run no code of theirs, and every lost trial is reported."""

import contextlib
import json
import sys

import pytest

from jbias.launch import local, sweep, trials
from jbias.report import status as report_status
from jbias.runs import status
from jbias.runtime import cli
from tests import cases, smoke_runs

SMOKE = "--config=configs/erm.py:smoke,seeds=1"
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(smoke_runs.ROOT)
    monkeypatch.delenv("JBIAS_OWN_CODE", raising=False)


def planned(*changes: str, folder) -> int:
    return sweep.main(["run", SMOKE, *changes, f"--workdir={folder}", "--dry-run"])


def test_code_named_by_a_foreign_folder_is_not_run(tmp_path, monkeypatch, capsys):
    evil, ran = tmp_path / "evil.py", tmp_path / "RAN"
    evil.write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    (tmp_path / ".sweep").mkdir()
    settings = {"config": [str(evil)], "changes": []}
    (tmp_path / ".sweep/search.json").write_text(json.dumps(settings))
    for action in ("status", "retry", "run"):
        assert sweep.main([action, f"--workdir={tmp_path}"]) == 2
        assert "was not written by you on this machine" in capsys.readouterr().err
    assert not ran.exists()
    monkeypatch.setenv("JBIAS_OWN_CODE", "1")
    assert sweep.main(["status", f"--workdir={tmp_path}"]) == 2
    assert "must define get_config" in capsys.readouterr().err
    assert ran.exists()


@cases.each(
    "text", ["[1]", '{"config": 5, "changes": []}', '{"config": []}', "[" * 200_000]
)
def test_a_damaged_search_is_reported_in_one_line(tmp_path, capsys, text):
    (tmp_path / ".sweep").mkdir()
    (tmp_path / ".sweep/search.json").write_text(text)
    assert sweep.main(["status", f"--workdir={tmp_path}"]) == 2
    assert "must be the JSON of a search" in capsys.readouterr().err


def test_two_trials_of_one_hash_are_refused(tmp_path, capsys):
    """Two trials whose hashes collide (found by search) are refused."""
    axis = "--config.optim.rate=[0.011875,0.023987]"
    sweep.main(
        [
            "run",
            "--config=configs/erm.py:smoke",
            axis,
            f"--workdir={tmp_path}",
            "--dry-run",
        ]
    )
    assert "have the same hash" in capsys.readouterr().err


def test_an_axis_that_decides_no_number_is_refused(tmp_path, capsys):
    assert planned("--config.run.strategy=[looped,unrolled]", folder=tmp_path) == 2
    assert "are the same run" in capsys.readouterr().err


def test_nothing_is_written_into_the_log_of_a_run_at_work(tmp_path, monkeypatch):
    (tmp_path / "log.txt").write_text("2026-01-01 00:00:00 step 1/4\n")
    monkeypatch.setattr(status, "is_running", lambda workdir: True)
    local.log_exit(tmp_path, 2, tmp_path / "output", 0)
    assert (tmp_path / "log.txt").read_text().count("\n") == 1


def test_control_characters_are_shown_as_codes(tmp_path):
    run = tmp_path / "a\x1b]0;owned\x07"
    (run / "evals").mkdir(parents=True)
    (run / "config.json").write_text("[" * 200_000)
    (run / "log.txt").write_text("2026-01-01 00:00:00 jbias: no \x1b[31mroom\n")
    heartbeat = {"devices": "\x1b[2J", "step": 10**400, "doing": "stepping"}
    (run / "progress.json").write_text(json.dumps(heartbeat))
    text = report_status.as_text(report_status.rows([str(run)]), width=300)
    assert "\x1b" not in text
    assert "\\x1b" in text


def test_a_closed_pipe_gives_no_traceback(monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            pass

        def fileno(self):
            return spare.fileno()

    with open("/dev/null", "w") as spare:
        monkeypatch.setattr("sys.stdout", Gone())
        assert cli.print_lines("x", lambda: ["a"]) == 0


def test_an_error_leaves_no_run_behind(tmp_path, monkeypatch):
    words = (sys.executable, "-c", "import time; time.sleep(600)")
    monkeypatch.setattr(trials, "command", lambda trial: words)
    executor = local.Executor(local.slots(), print)
    with pytest.raises(ValueError, match="damaged"), contextlib.closing(executor):
        executor.start([trials.Trial("a", tmp_path / "a", (), {}, {})])
        raise ValueError("damaged")
    assert not executor.active_trials()
    assert "SIGTERM before there was" in (tmp_path / "a/log.txt").read_text()


@cases.each(
    "value",
    [
        "{evil}:make",
        "['erm', '{evil}:make']",
        "choice('erm', '{evil}:make')",
        "'{stem}\\x2epy:make'",
        r"""['erm', "'{stem}\\x2epy:make'"]""",
        "['erm', '{stem}.p' 'y:make']",
        "{{'name': '{stem}.p' 'y:make'}}",
        "[[({{'algo': {{'name': '{stem}.p' 'y:make'}}}},)]]",
    ],
)
def test_code_that_a_change_names_is_not_run_either(tmp_path, capsys, value):
    """A package config whose algorithm is another user's file is refused."""
    (tmp_path / ".sweep").mkdir()
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit\n")
    text = value.format(evil=evil, stem=evil.with_suffix(""))
    changes = [f"--config.algo.name={text}"]
    search = {"config": ["jbias:erm:smoke"], "changes": changes}
    (tmp_path / ".sweep/search.json").write_text(json.dumps(search))
    for command in ("status", "retry", "run"):
        assert sweep.main([command, f"--workdir={tmp_path}"]) == 2
        message = capsys.readouterr().err
        assert "names code that would be run: --config.algo.name=" in message


def test_code_that_the_arguments_of_a_config_name_is_not_run(tmp_path, capsys):
    (tmp_path / ".sweep").mkdir()
    search = {"config": [f"jbias:erm:model={tmp_path}/evil.py:make"], "changes": []}
    (tmp_path / ".sweep/search.json").write_text(json.dumps(search))
    assert sweep.main(["retry", f"--workdir={tmp_path}"]) == 2
    assert "names code that would be run: jbias:erm:model=" in capsys.readouterr().err


def test_a_storage_that_a_foreign_folder_names_is_not_opened(tmp_path, capsys):
    (tmp_path / ".sweep").mkdir()
    settings = {"config": ["jbias:erm"], "changes": [], "storage": "sqlite:///own.db"}
    (tmp_path / ".sweep/search.json").write_text(json.dumps(settings))
    assert sweep.main(["status", f"--workdir={tmp_path}"]) == 2
    assert "was not written by you on this machine" in capsys.readouterr().err
