"""Full, failing and slow disks give errors of one line, and lose no results."""

import errno
import json
import os
import sys
import time
import types

import numpy as np
import pytest
from etils import epath

from jbias.runs import checkpoints, record_store, results, workdirs
from jbias.runtime import console, files, messages
from tests import cases
from tests.runs import test_checkpoints as saved


def raise_disk_full(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@cases.each("below", ["", "run"])
def test_the_error_names_a_workdir_behind_a_broken_link(below, tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with (
        pytest.raises(
            OSError, match="link is a link to nowhere, which does not"
        ) as error,
        files.translate_os_errors("workdir x"),
    ):
        (epath.Path(tmp_path) / "link" / below).mkdir(parents=True, exist_ok=True)
    assert "make room" not in str(error.value)


@cases.each(
    ("code", "remedy"),
    [
        (errno.ENAMETOOLONG, "shorten it"),
        (errno.EACCES, "change its permissions"),
        (errno.ENOTDIR, "name another path"),
        (errno.ENOSPC, "make room"),
    ],
)
def test_each_error_of_the_system_has_its_own_remedy(code, remedy, tmp_path):
    error = OSError(code, os.strerror(code), str(tmp_path / "x"))
    assert remedy in files.remedy(error)
    assert (remedy in files.describe_error(error)) == (code != errno.ENOSPC)


def test_the_error_names_a_file_name_of_256_letters(tmp_path):
    with (
        pytest.raises(OSError, match="File name too long.*shorten it: a name has"),
        files.translate_os_errors("workdir x"),
    ):
        (epath.Path(tmp_path) / ("a" * 256)).mkdir()


@cases.each("depth", [600, 2500])
def test_the_error_names_a_path_that_is_too_deep(depth, tmp_path):
    """Python's recursion limit is reached before the system's limit."""
    with pytest.raises(OSError) as error:
        files.resolve(tmp_path / ("a/" * depth))
    line = messages.one_line(error.value)
    assert line.endswith("bytes, a path 4,095 and 500 folders")
    assert "File name too long; shorten it: a name has at most 255 " in line


def test_the_error_names_letters_misread_by_the_locale():
    with pytest.raises(ValueError) as error:
        files.resolve("l\udcc3\udca4uf")
    line = messages.one_line(error.value)
    assert line.startswith("'l\\udcc3\\udca4uf': cannot be written as utf-8")
    assert line.endswith("set PYTHONUTF8=1")


def test_a_failed_write_keeps_the_old_file_and_leaves_no_partial_file(
    tmp_path, monkeypatch
):
    path = epath.Path(tmp_path / "told.json")
    files.write(path, "old")
    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with (
        pytest.raises(
            OSError, match=r"told: cannot be written \(No space left"
        ) as error,
        files.translate_os_errors("told"),
    ):
        files.write(path, "new")
    assert "run the same command again" in str(error.value)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["told.json"]


def test_a_full_disk_loses_log_lines_but_stops_no_run(tmp_path, monkeypatch, capsys):
    say = console.logger(epath.Path(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(type(epath.Path(tmp_path)), "open", raise_disk_full)
        say("one")
        say("two")
    say("three")
    lines = capsys.readouterr().err.splitlines()
    error = f"{tmp_path}/log.txt cannot be written (No space left on device)"
    assert lines == ["one", f"{error}; lines are lost", "two", "three"]
    assert (tmp_path / "log.txt").read_text().endswith("three\n")


def test_a_terminal_that_hangs_up_ends_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(write=raise_disk_full))
    console.logger(epath.Path(tmp_path))("one")
    assert (tmp_path / "log.txt").read_text().endswith("one\n")


@cases.each(
    ("name", "content", "remedy"),
    [
        ("config.json", "{", "restore it"),
        ("config.json", "[]", "restore it"),
        ("provenance.json", "", "restore it, or delete it"),
        ("provenance.json", "[" * 100_000, "restore it, or delete it"),
        ("provenance.json", '{"data": 3}', "restore it, or delete it"),
        ("provenance.json", '{"data": {"valid": 3}}', "restore it, or delete it"),
        ("provenance.json", '{"resumed": 3}', "restore it, or delete it"),
        ("costs.json", "{}", "restore it, or delete it"),
        ("costs.json", '{"starts": [{"at": 1}]}', "restore it, or delete it"),
        ("costs.json", '{"starts": [3]}', "restore it, or delete it"),
    ],
)
def test_damaged_facts_are_refused_by_name_before_anything_is_done(
    tmp_path, name, content, remedy
):
    workdir = epath.Path(tmp_path)
    workdirs.record_config(workdir, {"seeds": [0]})
    (workdir / name).write_text(content)
    with (
        pytest.raises(ValueError, match=f"{name} is .*; {remedy}"),
        workdirs.claim(workdir, {"seeds": [0]}),
    ):
        pytest.fail("claimed")
    assert (workdir / name).read_text() == content
    assert not (workdir / "lock").exists()


@cases.each("text", ["Event loop is closed", "another"])
def test_only_repeats_of_a_reported_error_are_silenced(monkeypatch, text):
    """tensorstore's threads repeat an error for each file."""
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", None)
    monkeypatch.setattr(sys, "__unraisablehook__", reports.append)
    console.silence_warnings()
    error = types.SimpleNamespace(exc_value=RuntimeError(text), object=None)
    sys.unraisablehook(error)
    assert reports == ([error] if text == "another" else [])


def test_a_failed_save_is_reported_when_the_store_closes(tmp_path):
    def full(*args):
        raise OSError(errno.EROFS, "Read-only file system", "4.orbax-checkpoint-tmp")

    store = checkpoints.CheckpointStore(tmp_path)
    store.folder.close()
    store.folder = types.SimpleNamespace(steps=lambda: [3], wait=full, close=full)
    with pytest.raises(
        OSError, match="^checkpoint: cannot save step .* Read-only file"
    ):
        store.close()


def record(step: int) -> results.Record:
    return results.Record(
        run="r",
        algorithm="erm",
        variant="",
        model="cnn",
        train_data="shapes",
        stage=0,
        seed=0,
        step=step,
        epoch=1.0,
        dataset="valid",
        condition="",
        metric="accuracy",
        value=0.5,
    )


@pytest.fixture
def store(tmp_path):
    """Return the records of a run at two steps, and the list of its log lines."""
    branch = types.SimpleNamespace(folder="", fields={"run": "r"})
    lines = []
    record_files = record_store.RecordStore(
        epath.Path(tmp_path), [branch], lines.append
    )
    for step in (4, 8):
        record_files.write(step, [record(step)])
    return record_files, lines


def in_checkpoint(step: int) -> dict:
    if step != 8:
        raise FileNotFoundError(step)
    return {"records": results.dumps([record(8)])}


@pytest.mark.parametrize("content", [None, "", "0.5", "flipped"])
def test_damaged_records_come_back_from_their_checkpoint(store, tmp_path, content):
    records, lines = store
    path = tmp_path / "evals" / "8.jsonl"
    original = path.read_text()
    records.restore(in_checkpoint)
    assert not lines
    if content is None:
        path.unlink()
    else:  # A digit may be another and still be JSON.
        path.write_text(
            original.replace("0.5", "0.7") if content == "flipped" else content
        )
    records.restore(in_checkpoint)
    assert path.read_text() == original
    assert ["written again" in line for line in lines] == [True]


def test_records_that_failed_to_write_have_no_checksums(store, monkeypatch):
    """The emergency save afterwards must not contain their checksums."""
    records, _ = store
    checksums_before = dict(records.sums)
    monkeypatch.setattr(results, "write_text", raise_disk_full)
    with pytest.raises(OSError, match="12.jsonl: cannot be written"):
        records.write(12, [record(12)])
    assert records.sums == checksums_before


def test_damaged_records_that_no_checkpoint_holds_are_refused(store, tmp_path):
    path = tmp_path / "evals" / "4.jsonl"
    path.write_text(path.read_text().replace("0.5", "0.7"))
    damaged = path.read_text()
    with pytest.raises(ValueError, match="4.jsonl is damaged, and no checkpoint"):
        store[0].restore(in_checkpoint)
    assert path.read_text() == damaged


@cases.each("jump", [-1e7, 1e7])
def test_a_clock_that_jumps_ends_no_save(tmp_path, monkeypatch, jump):
    """A save succeeds although the clock jumps by months."""
    began, real = time.monotonic(), time.time
    monkeypatch.setattr(
        time, "time", lambda: real() + jump * ((time.monotonic() - began) // 0.02 % 2)
    )
    saved.fill(tmp_path / "c", {1: None, 2: None, 3: None})
    assert saved.latest(tmp_path / "c")[1]["step"] == 3


def test_tensorstores_error_of_a_full_disk_keeps_its_reason(tmp_path):
    reason = 'RESOURCE_EXHAUSTED: Error writing "0.params"' + " in a database" * 40
    error = ValueError(f"{reason}: No space left [os_error_code='{errno.ENOSPC}']")
    line = "cannot save step 3 in .*: No space left on dev"
    with (
        pytest.raises(OSError, match=line),
        checkpoints._in_one_line(tmp_path, 3),
    ):
        raise error


def test_costs_are_summed_over_complete_starts(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"starts": 3}))
    with pytest.raises(ValueError, match="costs.json is damaged"):
        workdirs.record_cost(epath.Path(tmp_path), {"at": "now"})
    assert json.loads(path.read_text()) == {"starts": 3}


@cases.each(
    ("error", "text"),
    [
        (IsADirectoryError(errno.EISDIR, "Is a directory", "x"), "Is a directory: 'x'"),
        (OSError(errno.EXDEV, "Cross-device link", "a", None, "b"), ": 'a' -> 'b'"),
        (
            OSError("[Errno 2] Failed to open local file 'x'"),
            "Failed to open local file",
        ),
        (
            ValueError("no table: [errno 5] Input/output error"),
            "no table: Input/output",
        ),
        (MemoryError(), "not enough memory"),
        (EOFError(), "EOFError"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_errors_are_shown_by_reason_without_number(error, text):
    for message in (files.error_text(error), messages.one_line(error)):
        assert "rrno" not in message and message
    assert text in files.error_text(error)


@cases.each(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 bytes"),
        (1000, "1,000 bytes"),
        (1024, "1.00 KiB"),
        (12 * 2**10, "12.0 KiB"),
        (3 * 2**19, "1.50 MiB"),
        (2**30, "1.00 GiB"),
        (5 * 2**50, "5,120.0 TiB"),
    ],
)
def test_sizes_have_the_unit_that_shows_them(size, text):
    assert files.format_size(size) == text


def test_two_sizes_have_different_texts():
    """The needed and the free size must differ as text."""
    assert files.format_sizes(2**20, 2**20) == ["1.00 MiB", "1.00 MiB"]
    assert files.format_sizes(2**20 + 1, 2**20) == [
        "1,048,577 bytes",
        "1,048,576 bytes",
    ]


def test_the_error_names_a_folder_in_the_place_of_a_file(tmp_path):
    with pytest.raises(IsADirectoryError) as refused:
        tmp_path.read_text()
    expected = f"{tmp_path}: Is a directory; a folder is where a file must be"
    assert files.describe_error(refused.value).startswith(expected)


@cases.each(
    ("value", "text"),
    [
        (None, "None"),
        ({"a": 1}, "a single dict, no array"),
        (
            np.array([None, 1]),
            "an array of Python objects, not of numbers, of shape (2,)",
        ),
        (3.0, "a single float, no array"),
        (np.zeros((2, 3), np.int64), "int64 (2, 3)"),
    ],
)
def test_the_error_names_a_value_that_is_no_array_of_numbers(value, text):
    assert messages.describe_array(np.asarray(value)) == text
