"""The command: flags, defaults, one-line errors and exit codes."""

import json
import subprocess
import sys
import types

import pytest
from absl import flags

from jbias import main
from jbias.runtime import lock
from tests import cases, smoke_runs


def jbias(*args: str, cwd=smoke_runs.ROOT) -> subprocess.CompletedProcess:
    """Runs `jbias train` with these arguments."""
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
            "digits, such as 1000",
        ),
        (["--config=configs/erm.py", "--config.seeds=(0x10,)"], "got '0x10'"),
        (["--config=configs/erm.py:seeds=1_0"], "seeds must be a whole number"),
        (["--config=configs/erm.py", "--wrkdir=x"], "workdir"),
        (["--config=configs/erm.py", "extra"], "extra"),
        ([], "--config=jbias:erm"),
        (["--config=jbias:sagnt"], "no preset jbias:sagnt; did you mean 'sagnet'?"),
        (
            ["--config", "jbias:"],
            "--config: after jbias: name one of augmix, biasbed/debiased",
        ),
        (
            ["--config=configs/erm.py:data=folder,root=/nowhere/at/all"],
            "/nowhere/at/all",
        ),
    ],
    quick=("args11",),
)
def test_what_is_wrong_is_told_in_one_line(args, message, tmp_path):
    done = jbias(*args, f"--workdir={tmp_path}/run")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("jbias: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_arguments_that_name_the_config_are_recorded_of_a_run():
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


def test_help_answers():
    done = jbias("--help")
    assert done.returncode == 0
    assert "--config=configs/sagnet.py" in done.stdout
    assert "--workdir" in done.stdout


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_ends_a_run_is_in_its_log_in_both_forms(
    form, tmp_path, monkeypatch, capsys
):
    """People's line stays as it is; programs get an object with the exit code."""
    config = types.SimpleNamespace(value=types.SimpleNamespace(run={"log": form}))
    monkeypatch.setattr(main, "_CONFIG", config)
    for name in ("log.txt", *(["log.jsonl"] if form == "json" else [])):
        (tmp_path / name).touch()
    for code in (2, 143):
        assert main._fail(tmp_path, "disk\n full", code) == code
    assert (tmp_path / "log.txt").read_text() == "jbias: disk full\n" * 2
    said = capsys.readouterr().err
    if form == "text":
        assert said == "jbias: disk full\n" * 2
        assert not (tmp_path / "log.jsonl").exists()
        return
    assert (tmp_path / "log.jsonl").read_text() == said
    told = [json.loads(line) for line in said.splitlines()]
    kept = [(one["event"], one["level"], one["code"], one["message"]) for one in told]
    assert kept == [
        ("error", "error", 2, "jbias: disk full"),
        ("stop", "warning", 143, "jbias: disk full"),
    ]


def test_the_log_of_a_run_that_another_process_trains_is_its_own(tmp_path, monkeypatch):
    config = types.SimpleNamespace(value=types.SimpleNamespace(run={}))
    monkeypatch.setattr(main, "_CONFIG", config)
    (tmp_path / "log.txt").touch()
    monkeypatch.setattr(
        lock, "is_held_elsewhere", lambda path: path == tmp_path / "lock"
    )
    assert main._fail(tmp_path, "another is at work", 2) == 2
    assert (tmp_path / "log.txt").read_text() == ""
