"""The status of runs: a row for each run in any state, within 80 columns."""

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from jbias.report import cli
from jbias.report import status as report_status
from jbias.runs import results, status
from tests import cases

RECORD = results.Record(
    *("erm-shapes-1", "erm", "", "cnn", "shapes"),
    stage=0,
    seed=0,
    step=40,
    epoch=1.0,
    dataset="valid",
    condition="",
    metric="accuracy",
    value=0.5,
    count=2,
    n=4,
)
LOST = RECORD._replace(seed=1, value=None, count=None, status="diverged")
CONFIG = {"seeds": [0, 1], "valid": {"data": "shapes", "split": "valid"}}


def make_run(workdir, *lines, age_seconds=0.0, **heartbeat):
    """Make the folder of a run with log, config and heartbeat, `age_seconds` ago."""
    workdir.mkdir(parents=True)
    (workdir / "lock").touch()
    (workdir / "config.json").write_text(json.dumps(CONFIG))
    (workdir / "log.txt").write_text("".join(f"{line}\n" for line in lines))
    if heartbeat:
        sign = status.Heartbeat(workdir, pytest.fail)
        sign.update(**{"step": 42, "total": 100, "log_seconds": 10.0, **heartbeat})
    timestamp = time.time() - age_seconds
    for path in workdir.iterdir():
        os.utime(path, (timestamp, timestamp))
    return workdir


def write_records(workdir, *records):
    results.write(workdir / "evals" / "40.jsonl", records)


@pytest.fixture
def hold_lock():
    """Return a function that locks the folder of a run like the process of the run."""
    files = []

    def hold(workdir):
        files.append((workdir / "lock").open("w"))
        fcntl.flock(files[-1], fcntl.LOCK_EX)

    yield hold
    for file in files:
        file.close()


STEPPING = dict(doing="stepping", rate=2.0, images=256.0, eta_seconds=29.0)
LINE = "2026-01-01 00:00:00 step 40/100: valid 50.0"


@pytest.fixture
def folder(tmp_path, hold_lock):
    """Return a study with runs in all states."""
    run = make_run(tmp_path / "a" / "one", LINE, devices="4 x H200", **STEPPING)
    write_records(run, RECORD, LOST)
    hold_lock(run)
    hold_lock(make_run(tmp_path / "a" / "two", LINE, doing="compiling"))
    hold_lock(make_run(tmp_path / "b" / "hung", LINE, age_seconds=3000, **STEPPING))
    done = make_run(tmp_path / "b" / "deep" / "est" / "done", LINE, **STEPPING)
    (done / "done").write_text("finished\n")
    write_records(done, RECORD, RECORD._replace(seed=1, value=1.0, count=4))
    lost = make_run(tmp_path / "lost", LINE)
    (lost / "done").write_text("diverged\n")
    make_run(tmp_path / "failed", LINE, "jbias: out of disk; make room", **STEPPING)
    make_run(tmp_path / "killed", LINE, **STEPPING)
    broken = make_run(tmp_path / "broken", LINE)
    (broken / "evals").mkdir()
    (broken / "evals" / "40.jsonl").write_text('{"run": "erm-sh')
    (tmp_path / "no run").mkdir()
    return tmp_path


def by_name(folder):
    return {
        os.path.relpath(r.workdir, folder): r for r in report_status.rows([str(folder)])
    }


def test_every_run_has_its_state(folder):
    rows = by_name(folder)
    assert {name: (row.state, row.doing) for name, row in rows.items()} == {
        "a/one": ("running", "stepping"),
        "a/two": ("running", "compiling"),
        "b/hung": ("stale", "stepping"),
        "b/deep/est/done": ("done", ""),
        "lost": ("diverged", ""),
        "failed": ("failed", ""),
        "killed": ("interrupted", ""),
        "broken": ("damaged", ""),
    }
    assert rows["failed"].reason == "out of disk; make room"
    assert "evals/40.jsonl:1" in rows["broken"].reason
    assert "has written nothing for 50 minutes" in rows["b/hung"].reason


def test_a_running_row_has_progress_and_rates(folder):
    row = by_name(folder)["a/one"]
    assert (row.step, row.total, row.rate, row.images_rate) == (42, 100, 2.0, 256.0)
    assert 20 < row.eta_seconds <= 29 and row.age_seconds < 9
    assert (row.accuracy, row.accuracy_on, row.evaluated) == (0.5, "shapes/valid", 40)
    assert (row.seeds, row.diverged, row.devices) == (2, (1,), "4 x H200")
    done = by_name(folder)["b/deep/est/done"]
    assert (done.accuracy, done.rate, done.eta_seconds) == (0.75, None, None)


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"step": 1', "\x00\xff", '{"step": "far", "total": null}']
)
def test_a_damaged_heartbeat_leaves_the_row_of_the_run(tmp_path, hold_lock, content):
    run = make_run(tmp_path / "run", LINE)
    (run / status.HEARTBEAT_FILE).write_text(content)
    (run / "config.json").write_text('{"seeds": 3, "valid": []}')
    hold_lock(run)
    row = report_status.row(run)
    assert (row.state, row.doing, row.step, row.total) == (
        "running",
        "",
        40,
        100,
    )


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_fits_the_terminal(folder, width):
    text = report_status.as_text(report_status.rows([str(folder)]), width)
    assert max(map(len, text.splitlines())) <= width
    assert "deep/est/done" in text and "make room" in " ".join(text.split())
    assert ("4 x H200" in text) == (width > 100)


def test_the_table_has_counts_columns_and_rows(folder):
    text = report_status.as_text(report_status.rows([str(folder / "a")]), 80)
    *head, _, names, first, second = text.splitlines()
    assert " ".join(head).replace(" ", "").endswith("2running")
    assert names == names.rstrip() and names.split("  ")[0] == "run"
    for name in ("state", "step", "%", "steps/s", "ETA", "valid %", "lost", "age"):
        assert name in names
    assert first.split()[:5] == ["one", "running", "42/100", "42", "2"]
    assert "50.0" in first and "1/2" in first
    assert second.split()[:2] == ["two", "compiling"]


def test_json_output_matches_the_rows(folder, capsys):
    assert cli.main(["--status", "--json", f"--runs={folder}"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["counts"]["running"] == 2 and len(tree["runs"]) == 8
    rows = [entry._asdict() for entry in report_status.rows([str(folder)])]
    keys = ("workdir", "state", "step", "accuracy", "reason")
    assert [[entry[key] for key in keys] for entry in tree["runs"]] == [
        [entry[key] for key in keys] for entry in rows
    ]


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    for flag in (f"--runs={tmp_path}", f"--runs={tmp_path}/x*"):
        assert cli.main(["--status", flag]) == 2
        assert "--runs: no workdir of a run in " in capsys.readouterr().err


@cases.each("arguments", [["--watch"], ["--json"], ["--status", "--out=x"], ["y"]])
def test_arguments_that_do_not_go_together_are_refused(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["--runs=x", *arguments])
    assert "error: " in capsys.readouterr().err


def test_watching_repeats_the_table_without_jax(folder):
    code = (
        # A shell that runs tests in the background may ignore SIGINT.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import sys; from jbias.report import cli; code = cli.main(sys.argv[1:]); "
        "sys.exit(code or 'jax' in sys.modules)"
    )
    argv = ["--status", f"--runs={folder}", "--watch=0.1"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *argv], stdout=subprocess.PIPE, text=True
    )
    heads = 0
    for line in process.stdout:
        heads += line.startswith("8 runs in ")
        if heads == 2:
            break
    process.send_signal(2)
    process.communicate(timeout=60)
    assert heads == 2 and process.returncode == 0


def test_unwritable_heartbeats_are_reported_once(tmp_path):
    messages = []
    heartbeat = status.Heartbeat(tmp_path / "gone", messages.append)
    heartbeat.update("stepping", step=1)
    heartbeat.update("stepping", step=2)
    assert len(messages) == 1 and "progress.json cannot be written" in messages[0]
    assert status.read_heartbeat(tmp_path / "gone") == {}


def test_shortened_names_stay_distinct():
    names = [f"/runs/{study}/erm-shapes-0123456789abcdef" for study in ("a", "b")]
    rows = [report_status.RunProgress(name, "done", step=1, total=1) for name in names]
    labels = [
        line.split()[0] for line in report_status.as_text(rows, 20).split("\n")[-2:]
    ]
    assert labels == ["a/" + names[0][8:], "b/" + names[1][8:]]
    alone = report_status.as_text([*rows[:1], rows[0]._replace(workdir="/runs/x")], 20)
    assert "…" in alone  # Names that differ without the folder are shortened.


def test_cpu_devices_are_shown_as_cores():
    rows = [
        report_status.RunProgress("/runs/a", "done", devices=devices_text)
        for devices_text in ("16 x cpu", "2 x H200")
    ]
    text = report_status.as_text(rows, 120)
    assert "hardware" in text and "devices" not in text
    assert "16 CPU cores" in text and "2 x H200" in text
