"""The phase of a run, from the files that real runs leave."""

import fcntl

import pytest

from jbias.runs import results, status
from tests import cases

RECORD = results.Record(
    *("a-b-1", "erm", "", "cnn", "shapes"),
    stage=0,
    seed=0,
    step=4,
    epoch=1.0,
    dataset="valid",
    condition="",
    metric="accuracy",
    value=0.5,
    count=2,
    n=4,
)
LOST = RECORD._replace(seed=1, value=None, count=None, status="diverged")


def log(workdir, *lines: str) -> None:
    """Append to the run's log."""
    workdir.mkdir(exist_ok=True)
    with (workdir / "log.txt").open("a") as file:
        file.writelines(line + "\n" for line in lines)


def test_an_empty_folder_is_not_started(tmp_path):
    assert status.read(tmp_path / "none") == status.RunStatus("not started")
    assert status.read(tmp_path).phase == "not started"


def test_a_file_is_no_workdir(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(ValueError, match="must be the workdir of a run, got a file"):
        status.read(tmp_path / "x")


@cases.each(
    ("last", "word", "reason"),
    [
        ("jbias: out of disk; free some", "failed", "out of disk; free some"),
        (
            "jbias: SIGTERM at step 8: saved; the same command resumes",
            "interrupted",
            "SIGTERM at step 8: saved; the same command resumes",
        ),
        (
            "jbias: SIGUSR1 before a step was taken: begin anew",
            "interrupted",
            "SIGUSR1 before a step was taken: begin anew",
        ),
        (
            "jbias: process 1 of 2 was lost; it goes on from the latest checkpoint",
            "interrupted",
            "process 1 of 2 was lost; it goes on from the latest checkpoint",
        ),
        (
            "jbias: process 1 of 2 was lost; start to resume from the latest checkpoint",
            "interrupted",
            "process 1 of 2 was lost; start to resume from the latest checkpoint",
        ),
        (
            "jbias: ended by SIGKILL (out of memory?)",
            "failed",
            "ended by SIGKILL (out of memory?)",
        ),
        (
            "2026-01-01 00:00:00 step 9/16: valid 50.0",
            "interrupted",
            "unknown reason; killed, or its machine went down",
        ),
    ],
)
def test_the_phase_follows_the_last_line_of_the_log(tmp_path, last, word, reason):
    log(tmp_path, "jbias: an older end", "2026-01-01 00:00:00 step 8/16, x", last, "")
    run_status = status.read(tmp_path)
    assert run_status[:2] == (word, reason)
    assert run_status.from_log == last.startswith("jbias: ")
    assert (run_status.step, run_status.steps) == (9 if "step 9" in last else 8, 16)


@pytest.mark.parametrize("kind", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_a_held_lock_means_running(tmp_path, kind):
    log(tmp_path, "jbias: an older end")
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, kind)
        at_work = "running" if kind == fcntl.LOCK_EX else "failed"
        assert status.read(tmp_path).phase == at_work
    assert status.read(tmp_path).phase == "failed"


@pytest.mark.parametrize(
    ("ending", "phase"), [("finished", "done"), ("diverged", "diverged")]
)
def test_a_done_file_takes_precedence(tmp_path, ending, phase):
    log(tmp_path, "jbias: something")
    (tmp_path / status.STOPPED_FILE).write_text('{"reason": "worse"}')
    assert status.read(tmp_path)[:2] == ("stopped", "worse")
    (tmp_path / "done").write_text(ending + "\n")
    assert status.read(tmp_path).phase == phase


@cases.each("text", ["{", "[" * 10**5, "{}", "1"])
def test_a_damaged_stop_is_named(tmp_path, text):
    (tmp_path / status.STOPPED_FILE).write_text(text)
    with pytest.raises(ValueError, match=r"stopped\.json: must be JSON with a reason"):
        status.read(tmp_path)


def test_accuracy_is_of_the_last_evaluation(tmp_path):
    other = RECORD._replace(dataset="edge", value=1.0, count=4)
    for step, value in ((4, 0.5), (12, 0.75), (8, 0.25)):
        valid = RECORD._replace(step=step, value=value, count=int(4 * value))
        lost = LOST._replace(step=step)
        records = [valid, lost, other._replace(step=step)]
        results.write(tmp_path / f"evals/{step}.jsonl", records)
    for name in ("16.jsonl.part", "².jsonl", "x.jsonl"):
        (tmp_path / "evals" / name).touch()
    run_status = status.read(tmp_path)
    assert run_status.evaluated == run_status.step == 12
    assert run_status.accuracy == 0.75
    assert run_status.diverged == (1,)
    assert status.validation_curve(tmp_path) == {4: 0.25, 8: 0.125, 12: 0.375}


def test_a_number_of_a_megabyte_is_no_step(tmp_path):
    log(tmp_path, f"step {'9' * 10**4}/12", "step 3/12", f"step 4/{'9' * 10**4}")
    assert status.read(tmp_path).step == 3


def test_the_accuracy_of_branches_is_their_mean(tmp_path):
    for name, value in (("a", 0.25), ("b", 0.75)):
        record = RECORD._replace(run=name, value=value, count=int(4 * value))
        results.write(tmp_path / f"vary/{name}/evals/4.jsonl", [record])
    results.write(tmp_path / "vary/a/evals/8.jsonl", [RECORD._replace(step=8)])
    assert status.read(tmp_path).accuracy == 0.5
    assert status.validation_curve(tmp_path) == {4: 0.5}
