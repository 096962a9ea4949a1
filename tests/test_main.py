"""The command: flags, defaults, one-line errors and exit codes."""

import json
import subprocess
import sys
import types

import pytest
from absl import flags

from jbias import main
from jbias.runtime import workdir_lock
from tests import cases, smoke_runs


def jbias(*args: str, cwd=smoke_runs.ROOT) -> subprocess.CompletedProcess:
    """Run `jbias train` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "jbias.main", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@cases.each(
    ("args", "message"),
    [
        (["--config=configs/erm.py:sedes=3"], "did you mean 'seeds'?"),
        (["--config=configs/erm.py:data=shape"], "did you mean 'shapes'?"),
        (["--config=configs/erm.py:data=pacs"], "data=pacs needs root=<directory>"),
        (["--config=configs/erm.py:root=/x"], "'root' is not used with data=shapes"),
        (["--config=configs/erm.py:seeds=many"], "seeds must be a whole number"),
        (
            ["--config=configs/emr.py"],
            "no file 'configs/emr.py'; did you mean 'erm.py'",
        ),
        (["--config=erm:smoke"], "no file 'erm'; the preset of this name is jbias:erm"),
        (["--config=nowhere/erm.py"], "no file 'nowhere/erm.py'; no such folder"),
        (
            ["--config=configs/erm.py", "--config.optim.rat=1"],
            "'rat'; did you mean 'rate'?",
        ),
        (
            ["--config=configs/padain.py", "--config.algo.site=stage7"],
            "no such entry 'site'; Known: mix_group, name, p; flags change only what the config file has",
        ),
        (
            ["--config=configs/erm.py", "--config.epochs.x=1"],
            "epochs has no entries, it is",
        ),
        (
            ["--config=configs/erm.py", "--config.inputs[9].x=1"],
            "no such entry 9; it has",
        ),
        (["--config=configs/erm.py", "--config.epochs=soon"], "epochs"),
        (
            ["--config=configs/erm.py", "--config.optim.rate=1_0"],
            "such as 0.001 or 1e-3, without _",
        ),
        (["--config=configs/erm.py", "--config.seeds=(0x10,)"], "got '0x10'"),
        (["--config=configs/erm.py:seeds=1_0"], "seeds must be a whole number"),
        (["--config=configs/erm.py", "--wrkdir=x"], "workdir"),
        (["--config=configs/erm.py", "extra"], "extra"),
        ([], "--config=jbias:erm"),
        (["--config=jbias:sagnt"], "no preset jbias:sagnt; did you mean 'sagnet'?"),
        (
            ["--config", "jbias:"],
            "--config: after jbias: name one of asam, augmix, biasbed",
        ),
        (
            ["--config=configs/erm.py:data=folder,root=/nowhere/at/all"],
            "/nowhere/at/all",
        ),
    ],
    quick=("args11",),
)
def test_errors_are_one_line(args, message, tmp_path):
    completed = jbias(*args, f"--workdir={tmp_path}/run")
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    assert completed.stderr.startswith("jbias: ")
    assert completed.stderr.count("\n") == 1
    assert completed.stdout == ""


def test_the_arguments_of_the_config_are_recorded():
    words = []
    argv = [
        "jbias",
        "--config",
        "jbias:erm:smoke",
        "--config.epochs=0.5",
        "--workdir=x",
    ]
    try:
        main._parse(argv, words)
    finally:
        flags.FLAGS.unparse_flags()
    assert words == ["--config=jbias:erm:smoke", "--config.epochs=0.5"]


def test_help_lists_flags():
    completed = jbias("--help")
    assert completed.returncode == 0
    assert "--config=configs/sagnet.py" in completed.stdout
    assert "--workdir" in completed.stdout


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_final_error_is_logged_as_text_and_json(
    form, tmp_path, monkeypatch, capsys
):
    """The line for people is the same; the JSON log has an object with the exit code."""
    config = types.SimpleNamespace(value=types.SimpleNamespace(run={"log": form}))
    monkeypatch.setattr(main, "_CONFIG", config)
    for name in ("log.txt", *(["log.jsonl"] if form == "json" else [])):
        (tmp_path / name).touch()
    for code in (2, 143):
        assert main._fail(tmp_path, "disk\n full", code) == code
    assert (tmp_path / "log.txt").read_text() == "jbias: disk full\n" * 2
    stderr = capsys.readouterr().err
    if form == "text":
        assert stderr == "jbias: disk full\n" * 2
        assert not (tmp_path / "log.jsonl").exists()
        return
    assert (tmp_path / "log.jsonl").read_text() == stderr
    events = [json.loads(line) for line in stderr.splitlines()]
    fields = [
        (event["event"], event["level"], event["code"], event["message"])
        for event in events
    ]
    assert fields == [
        ("error", "error", 2, "jbias: disk full"),
        ("stop", "warning", 143, "jbias: disk full"),
    ]


def test_the_log_of_a_run_of_another_process_is_unchanged(tmp_path, monkeypatch):
    config = types.SimpleNamespace(value=types.SimpleNamespace(run={}))
    monkeypatch.setattr(main, "_CONFIG", config)
    (tmp_path / "log.txt").touch()
    monkeypatch.setattr(
        workdir_lock, "is_held_elsewhere", lambda path: path == tmp_path / "lock"
    )
    assert main._fail(tmp_path, "another is at work", 2) == 2
    assert (tmp_path / "log.txt").read_text() == ""
