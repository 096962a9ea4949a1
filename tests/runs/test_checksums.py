"""Changed files of a run are detected by a resumed run, a finished run and a report."""

import dataclasses
import json
import pathlib
import shutil
import threading

import pytest

from jbias import train
from jbias.report import options
from jbias.report.pages.benchmark import inputs
from jbias.runs import checksums, results
from jbias.runtime import files, signals
from jbias.training import decision_writer, evaluator, monitoring
from tests import cases, smoke_runs


def config(**run):
    """Return a config of eight steps, evaluated and saved at every second step."""
    c = smoke_runs.small(seeds=(0,), eval_every="2 steps", save_every="2 steps")
    c.model = {"name": "cnn", "width": 2}
    c.epochs, c.valid.n = 2.0, 16
    c.tests = {"edge": dict(data="shapes", split="edge", n=16)}
    c.inputs = ()
    c.run.update(decisions=True, **run)
    return c


def broken_at(step: int, workdir: pathlib.Path, **run) -> None:
    add = monitoring.Monitor.add

    def broken(self, at, metrics, split):
        if at == step:
            raise InterruptedError
        return add(self, at, metrics, split)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitoring.Monitor, "add", broken)
        with pytest.raises(InterruptedError):
            train.run(config(**run), workdir)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a run stopped after step 6, and its result; step 2 has no states."""
    folder = tmp_path_factory.mktemp("sealed")
    broken_at(7, folder / "broken")
    shutil.rmtree(folder / "broken/checkpoints/2", ignore_errors=True)
    shutil.copytree(folder / "broken", folder / "done")
    assert train.run(config(), folder / "done")
    return folder


@pytest.fixture(params=["broken", "done"])
def workdir(folder, tmp_path, request):
    return shutil.copytree(folder / request.param, tmp_path / "run")


@pytest.fixture
def done(folder, tmp_path):
    return shutil.copytree(folder / "done", tmp_path / "run")


def results_by_file(workdir) -> dict[str, bytes]:
    """Return the content of all records and decisions."""
    paths = [*workdir.glob("evals/*"), *workdir.glob("decisions/*/*")]
    return {p.relative_to(workdir).as_posix(): p.read_bytes() for p in paths}


def kept_steps(workdir) -> list[int]:
    """Return the steps of a run's checkpoints."""
    return sorted(int(p.name) for p in (workdir / "checkpoints").glob("[0-9]*"))


def damage_file(path: pathlib.Path, damage: str) -> None:
    """Delete a file, cut it in half, or flip a bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        half = content[: len(content) // 2]
        path.write_bytes(half if damage == "half" else content)


@cases.each("damage", ["gone", "half", "flipped"], quick=("gone",))
def test_lost_decisions_are_computed_again_from_their_checkpoint(
    folder, workdir, damage, capsys
):
    step = kept_steps(workdir)[-1]
    damage_file(workdir / f"decisions/edge/{step}.parquet", damage)
    assert train.run(config(), workdir)
    error_text = capsys.readouterr().err
    assert (
        f"decisions of step {step} were lost: made anew from its states\n" in error_text
    )
    assert results_by_file(workdir) == results_by_file(folder / "done")
    assert train.run(config(), workdir)
    assert "were lost" not in capsys.readouterr().err


def test_recomputed_decisions_with_other_bits_are_reported(
    workdir, monkeypatch, capsys
):
    """Decisions written again with other bits, as on another device, are reported."""
    write, path = (
        decision_writer.decision_files.write,
        f"edge/{kept_steps(workdir)[-1]}.parquet",
    )

    def write_other_bits(to, by_seed):
        if str(to).endswith(path):
            by_seed = {
                seed: dataclasses.replace(
                    decisions, prediction=(decisions.prediction + 1) % 2
                )
                for seed, decisions in by_seed.items()
            }
        return write(to, by_seed)

    original = (workdir / "decisions" / path).read_bytes()
    damage_file(workdir / "decisions" / path, "gone")
    monkeypatch.setattr(decision_writer.decision_files, "write", write_other_bits)
    assert train.run(config(), workdir)
    assert (workdir / "decisions" / path).read_bytes() != original
    error_text = capsys.readouterr().err
    assert (
        "made anew from its states, equal only within tolerance to those" in error_text
    )


def test_a_stopped_start_does_not_report_decisions_as_lost(
    folder, tmp_path, monkeypatch, capsys
):
    workdir = shutil.copytree(folder / "broken", tmp_path / "run")
    shutil.rmtree(workdir / "decisions/edge")

    def stopped(self, trained, states):
        self._stop.agreed = "SIGTERM"

    with monkeypatch.context() as patch:
        patch.setattr(evaluator.Evaluator, "decide", stopped)
        with pytest.raises(signals.Interrupted):
            train.run(config(), workdir)
    error_text = capsys.readouterr().err
    assert "made anew" not in error_text
    assert train.run(config(), workdir)
    assert "were lost: made anew from its states" in capsys.readouterr().err


@pytest.mark.slow
def test_deleted_decisions_are_recomputed_or_reported(folder, workdir, capsys):
    """The report repeats the message; an intact run has none."""
    lost = [
        f"decisions/{name}/{path.stem}.parquet"
        for name in ("edge", "valid")
        for path in workdir.glob("evals/*")
        if int(path.stem) not in kept_steps(workdir)
    ]
    shutil.rmtree(workdir / "decisions")
    assert train.run(config(), workdir)
    (line,) = [
        x for x in capsys.readouterr().err.splitlines() if "cannot be written" in x
    ]
    assert f"is gone (and {len(lost) - 1} more), and cannot be written again" in line
    assert set(results_by_file(folder / "done")) - set(results_by_file(workdir)) == set(
        lost
    )
    for run, note in (
        (workdir, "2.parquet is gone"),
        (folder / "done", ""),
    ):
        study = inputs.from_runs([str(run)], options.Options())
        notes = [line for line in study.notes if "decisions" in line]
        assert len(notes) == bool(note) and note in "".join(notes)


@pytest.mark.quick("flipped--1", "flipped--2", "half--2")
@pytest.mark.parametrize(
    ("damage", "at"), [("gone", -2), ("half", -2), ("flipped", -2), ("flipped", -1)]
)
def test_records_of_a_finished_run_are_restored(folder, done, damage, at, capsys):
    step = kept_steps(done)[at]
    damage_file(done / f"evals/{step}.jsonl", damage)
    with pytest.raises(ValueError, match=rf"evals/{step}.jsonl"):
        results.read(done)
    assert train.run(config(), done)
    assert (
        f"{step}.jsonl {damage_word(damage)}: written again" in capsys.readouterr().err
    )
    assert results_by_file(done) == results_by_file(folder / "done")
    assert train.run(config(), done)
    assert "written again" not in capsys.readouterr().err


def damage_word(damage: str) -> str:
    return "is gone" if damage == "gone" else "is damaged"


@pytest.mark.parametrize("without", ["checkpoints", "sums.json", ""])
def test_damaged_records_of_a_finished_run_without_checkpoint_are_refused(
    done, without
):
    """Nothing is trained again over existing files."""
    path = done / "evals/2.jsonl"
    other = path.read_text().replace('"epoch": 0.5', '"epoch": 0.6')
    assert other != path.read_text()
    path.write_text(other)
    if without == "checkpoints":
        shutil.rmtree(done / without)
    elif without:
        (done / without).unlink()
    files_before = results_by_file(done)
    with pytest.raises(ValueError, match=r"2.jsonl is damaged, and no checkpoint has"):
        train.run(config(), done)
    assert results_by_file(done) == files_before


@pytest.mark.parametrize("name", ["config.json", "provenance.json"])
def test_changed_config_and_provenance_are_refused_by_start_and_report(workdir, name):
    """This includes changes that no comparison of configs detects."""
    content = json.loads((workdir / name).read_text())
    (content["run"] if name == "config.json" else content)["added"] = 1
    (workdir / name).write_text(json.dumps(content))
    for act in (lambda: train.run(config(), workdir), lambda: results.read(workdir)):
        with pytest.raises(ValueError, match=f"{name} is damaged: .*delete sums.json"):
            act()


@pytest.mark.parametrize("name", ["config.json", "provenance.json"])
def test_missing_config_and_provenance_are_refused_by_start_and_report(
    folder, workdir, name
):
    files_before = results_by_file(workdir)
    (workdir / name).unlink()
    for act in (lambda: train.run(config(), workdir), lambda: results.read(workdir)):
        with pytest.raises(ValueError, match=f"{name} is gone: .*delete sums.json"):
            act()
    assert results_by_file(workdir) == files_before and not (workdir / name).exists()
    (workdir / checksums.NAME).unlink()
    results.read(workdir)
    if name == "provenance.json":  # Without a config it is no run.
        assert train.run(config(), workdir)
        assert results_by_file(workdir) == results_by_file(folder / "done")


def test_a_changed_config_is_reported_as_damaged(workdir):
    content = json.loads((workdir / "config.json").read_text())
    content["optim"]["rate"] *= 2
    (workdir / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"config.json is damaged: .*\(sums.json\)"):
        train.run(config(), workdir)


def test_files_rewritten_by_a_concurrent_start_are_not_damaged(tmp_path, monkeypatch):
    """A reader may have read the checksums of the old files."""
    amiss, path = checksums.find_damaged, tmp_path / "provenance.json"
    path.write_text("before")
    checksums.write(tmp_path, {path.name: checksums.checksum(b"before")})

    def late(*args):
        monkeypatch.setattr(checksums, "find_damaged", amiss)
        checksums.write(tmp_path, {})
        path.write_text("now")
        return amiss(*args)

    monkeypatch.setattr(checksums, "find_damaged", late)
    checksums.check(tmp_path, checksums.is_fact)
    checksums.write(tmp_path, {path.name: checksums.checksum(b"before")})
    with pytest.raises(ValueError, match=r"provenance.json is damaged"):
        checksums.check(tmp_path, checksums.is_fact)


def test_the_folder_of_a_run_may_be_called_vary(done, tmp_path):
    workdir = shutil.copytree(done, tmp_path / "vary" / "x")
    path = workdir / "evals/6.jsonl"
    path.write_text(path.read_text().replace('"epoch": 1.5', '"epoch": 1.6'))
    with pytest.raises(ValueError, match=r"x/evals/6.jsonl is damaged"):
        results.read(workdir)


def test_a_branch_is_checked_by_the_checksums_of_its_run(tmp_path):
    (tmp_path / "vary" / "x").mkdir(parents=True)
    checksums.write(
        tmp_path, {"vary/x/evals/2.jsonl": [1, 2], "vary/y/evals/2.jsonl": 3}
    )
    assert checksums.read_folder(tmp_path / "vary" / "x") == {"evals/2.jsonl": [1, 2]}


def test_evaluations_of_the_run_replace_its_followers(tmp_path):
    checksums.write(
        tmp_path, {"evals/2.jsonl": 1, "evals/4.jsonl": 2}, checksums.FOLLOWER
    )
    checksums.write(tmp_path, {"evals/4.jsonl": 3})
    assert checksums.read_folder(tmp_path, follower=True) == {"evals/2.jsonl": 1}
    assert checksums.read_folder(tmp_path) == {"evals/2.jsonl": 1, "evals/4.jsonl": 3}


def test_in_a_store_files_are_checked_in_parallel_and_decisions_by_size(
    tmp_path, monkeypatch
):
    states = {
        tmp_path / "evals/2.jsonl": "damaged",
        tmp_path / "evals/4.jsonl": "whole",
        tmp_path / "decisions/edge/2.parquet": "flipped",
        tmp_path / "decisions/edge/4.parquet": "cut",
    }
    sums = {
        str(path.relative_to(tmp_path)): checksums.checksum(b"1234") for path in states
    }
    contents = {"damaged": "1235", "whole": "1234", "flipped": "1235", "cut": "123"}
    for path, state in states.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents[state])
    real_checksum, barrier = checksums.checksum, threading.Barrier(2, timeout=60)

    def together(content):
        barrier.wait()  # A single reader would time out.
        return real_checksum(content)

    monkeypatch.setattr(checksums, "checksum", together)
    monkeypatch.setattr(files, "is_remote", lambda path: True)
    assert dict(checksums.find_damaged(tmp_path, sums)) == {
        "evals/2.jsonl": "is damaged",
        "decisions/edge/4.parquet": "is damaged",
    }


def test_damaged_sums_are_refused(workdir):
    path = workdir / checksums.NAME
    path.write_text(path.read_text().replace("evals/2", "evals/3"))
    for act in (lambda: train.run(config(), workdir), lambda: results.read(workdir)):
        with pytest.raises(
            ValueError, match="sums.json is damaged; restore it, or del"
        ):
            act()


def test_a_run_without_checksums_resumes_and_is_reported(folder, workdir):
    """Runs of earlier versions have no checksums."""
    (workdir / checksums.NAME).unlink()
    results.read(workdir)
    assert train.run(config(), workdir)
    assert results_by_file(workdir) == results_by_file(folder / "done")


@pytest.mark.slow
def test_files_after_the_latest_checkpoint_do_not_block_a_start(folder, tmp_path):
    """A run killed right after an evaluation, or while it writes one again, resumes."""
    workdir = shutil.copytree(folder / "broken", tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "6")
    damage_file(workdir / "evals/6.jsonl", "half")
    broken_at(5, workdir)
    assert "evals/6.jsonl" not in checksums.read(workdir)
    assert train.run(config(), workdir)
    assert results_by_file(workdir) == results_by_file(folder / "done")
