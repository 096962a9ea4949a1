"""A checkpoint of another run or step is refused, and never trained on."""

import json
import shutil

import pytest

from jbias import models, seals, train
from jbias.evals import networks
from jbias.runs import checkpoints, checksums
from jbias.training import evaluator, follow, monitoring
from tests import cases, smoke_runs


def config(**entries):
    """Return a config of eight steps, evaluated at every fourth and saved at every third."""
    c = smoke_runs.small(eval_every="4 steps", save_every="3 steps", **entries)
    c.model, c.inputs = {"name": "cnn", "width": 2}, ()
    c.epochs, c.valid.n = 2.0, 16
    c.tests = {"edge": dict(data="shapes", split="edge", n=16)}
    c.run.steps_per_dispatch = 1
    return c


def other_config():
    """Return a config with another rate and states of the same shapes."""
    c = config()
    c.optim.rate = 0.5
    return c


def start_and_stop(run_config, workdir):
    """Start a run that stops at its seventh step; the run has checkpoints 4 and 6."""
    add = monitoring.Monitor.add

    def broken(self, step, metrics, split):
        if step == 7:
            raise InterruptedError
        return add(self, step, metrics, split)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitoring.Monitor, "add", broken)
        with pytest.raises(InterruptedError):
            train.run(run_config, workdir)
    assert {4, 6} <= {*checkpoints.steps(workdir / "checkpoints")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a stopped run, its final result, and runs of another rate and other seeds."""
    folder = tmp_path_factory.mktemp("seals")
    start_and_stop(config(), folder / "run")
    shutil.copytree(folder / "run", folder / "whole")
    assert train.run(config(), folder / "whole")
    start_and_stop(other_config(), folder / "rate")
    start_and_stop(config(seeds=(2, 3)), folder / "seeds")
    return folder


@pytest.fixture
def workdir(folder, tmp_path):
    return shutil.copytree(folder / "run", tmp_path / "run")


def records(workdir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in workdir.glob("evals/*")}


def copy_folder(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def without_seals(workdir):
    """Remove the seals, as in checkpoints of older versions."""
    for path in workdir.glob("checkpoints/*/info/metadata"):
        stored = json.loads(path.read_text())
        info = json.loads(stored["body"])
        del info[seals.KEY]
        body = json.dumps(info, sort_keys=True)
        stored |= {"body": body, "head": seals_head(body)}
        path.write_text(json.dumps(stored))


def seals_head(body: str) -> int:
    return checkpoints.with_checksums((), json.loads(body))["head"]


@cases.each("name, key", [("rate", "optim.rate: 0.5 != 0.1"), ("seeds", "seeds: ")])
def test_a_checkpoint_of_another_run_is_refused_by_its_differing_keys(
    folder, workdir, name, key
):
    copy_folder(folder / name / "checkpoints", workdir / "checkpoints")
    records_before = records(workdir)
    with pytest.raises(ValueError, match="6 is of another run") as refused:
        train.run(config(), workdir)
    assert key in str(refused.value)
    assert records(workdir) == records_before


def test_a_foreign_checkpoint_that_is_not_the_latest_is_refused_too(folder, workdir):
    """Its validation accuracy would affect which step is best."""
    copy_folder(folder / "rate/checkpoints/4", workdir / "checkpoints/4")
    with pytest.raises(ValueError, match="checkpoints/4 is of another run"):
        train.run(config(), workdir)


@cases.each("step", [4, 6])
def test_a_done_run_with_a_foreign_checkpoint_is_refused_too(
    folder, tmp_path, step, capsys
):
    workdir = tmp_path / "run"
    copy_folder(folder / "whole", workdir)
    assert train.run(config(), workdir)
    assert "is done: nothing to do" in capsys.readouterr().err
    copy_folder(folder / f"rate/checkpoints/{step}", workdir / f"checkpoints/{step}")
    with pytest.raises(ValueError, match=f"checkpoints/{step} is of another run"):
        train.run(config(), workdir)
    assert "nothing to do" not in capsys.readouterr().err


def test_checkpoints_without_a_seal_are_resumed_to_the_same_bits(folder, workdir):
    without_seals(workdir)
    assert train.run(config(), workdir)
    assert records(workdir) == records(folder / "whole")


@cases.each("name", ["rate", "seeds"])
def test_a_foreign_checkpoint_without_a_seal_is_detected_by_its_records(
    folder, workdir, name
):
    copy_folder(folder / name / "checkpoints", workdir / "checkpoints")
    without_seals(workdir)
    records_before = records(workdir)
    with pytest.raises(ValueError, match="is of another run"):
        train.run(config(), workdir)
    assert records(workdir) == records_before


@cases.each("number", [7, 999, 3])
def test_a_renamed_checkpoint_is_moved_aside_and_the_one_before_is_used(
    folder, tmp_path, number, capsys
):
    """The folder's number differs from its step; the line says how to use it."""
    workdir = tmp_path / "run"
    copy_folder(folder / "run", workdir)
    (workdir / "checkpoints/6").rename(workdir / f"checkpoints/{number}")
    copy_folder(
        folder / "run/checkpoints/4", workdir / f"damaged/{number}"
    )  # Of earlier.
    assert train.run(config(), workdir)
    assert records(workdir) == records(folder / "whole")
    line = (
        f"folder {number} holds step 6, renamed or copied; moved to "
        f"{workdir}/damaged/{number}-2; to use it, stop, rename it back to "
        f"{workdir}/checkpoints/6, and start again"
    )
    assert line in capsys.readouterr().err
    for name, step in ((f"{number}-2", 6), (str(number), 4)):
        beside = checkpoints.read_info(
            checkpoints.epath.Path(workdir / "damaged" / name)
        )
        assert beside["step"] == step


def test_a_run_with_renamed_checkpoints_only_is_refused(workdir):
    for step in checkpoints.steps(workdir / "checkpoints"):
        folder = workdir / "checkpoints" / str(step)
        folder.rename(folder.with_name(str(step + 50)))
    steps_before = checkpoints.steps(workdir / "checkpoints")
    with pytest.raises(
        ValueError, match="56 holds step 6.*rename it back to 6"
    ) as info:
        train.run(config(), workdir)
    assert "delete" not in str(info.value)
    assert checkpoints.steps(workdir / "checkpoints") == steps_before


def test_a_renamed_checkpoint_is_kept_if_all_other_checkpoints_are_damaged(workdir):
    (workdir / "checkpoints/6").rename(workdir / "checkpoints/7")
    for path in (workdir / "checkpoints/4/state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    steps_before = checkpoints.steps(workdir / "checkpoints")
    with pytest.raises(ValueError, match="7 holds step 6.*rename it back to 6") as info:
        train.run(config(), workdir)
    assert "delete" not in str(info.value)
    assert checkpoints.steps(workdir / "checkpoints") == steps_before
    for step in steps_before:
        if step < 6:
            (workdir / f"checkpoints/{step}").rename(workdir / f"moved-{step}")
    (workdir / "checkpoints/7").rename(workdir / "checkpoints/6")
    assert train.run(config(), workdir)


@cases.each("reader", ["load", "from_run", "init"])
@cases.each("kind", ["foreign", "renamed"])
def test_readers_refuse_foreign_and_renamed_checkpoints(folder, tmp_path, reader, kind):
    workdir = tmp_path / "run"
    copy_folder(folder / "run", workdir)
    if kind == "foreign":
        copy_folder(folder / "rate/checkpoints", workdir / "checkpoints")
    else:
        (workdir / "checkpoints/6").rename(workdir / "checkpoints/7")
    with pytest.raises(ValueError, match="another run|holds step 6"):
        if reader == "load":
            models.load(workdir, "cnn", seed=0, step="latest")
        elif reader == "from_run":
            list(networks.from_run(str(workdir), step="latest"))
        else:
            train.run(config(init=str(workdir)), tmp_path / "begun")


def test_a_run_may_start_from_another_runs_checkpoint(folder, tmp_path):
    """The checkpoint of `init` is checked against the seal of its own workdir."""
    assert train.run(config(init=str(folder / "rate")), tmp_path / "begun")


@pytest.mark.slow
def test_a_follower_evaluates_no_foreign_checkpoint(tmp_path):
    elsewhere, other = config(), other_config()
    elsewhere.run.evaluate = other.run.evaluate = "elsewhere"
    start_and_stop(elsewhere, tmp_path / "run")
    start_and_stop(other, tmp_path / "other")
    copy_folder(tmp_path / "other/checkpoints", tmp_path / "run/checkpoints")
    with pytest.raises(ValueError, match="of another run"):
        follow.follow(tmp_path / "run", interval=1.0, once=True)
    assert not records(tmp_path / "run")


def test_a_repeated_evaluation_does_not_change_sealed_records(
    folder, workdir, monkeypatch, capsys
):
    """On other devices the numbers differ; the run continues with a message."""
    shutil.rmtree(workdir / "checkpoints")
    records_before, make_records = records(workdir), evaluator.Evaluator._records

    def shifted(*args, **options):
        for record in make_records(*args, **options):
            value = record.value
            yield record._replace(value=value if record.count else (value or 0) + 1)

    monkeypatch.setattr(evaluator.Evaluator, "_records", shifted)
    assert train.run(config(), workdir)
    assert {name: records(workdir)[name] for name in records_before} == records_before
    assert (
        "4.jsonl: was evaluated before, with other numbers" in capsys.readouterr().err
    )
    assert "4.jsonl" not in dict(
        checksums.find_damaged(workdir, checksums.read(workdir))
    )


def test_sealed_records_later_than_the_checkpoint_stay_sealed(workdir):
    """A start that is stopped before their step keeps their checksums."""
    shutil.rmtree(workdir / "checkpoints")
    checksum_before = checksums.read(workdir)["evals/4.jsonl"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitoring.Monitor, "add", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train.run(config(), workdir)
    assert checksums.read(workdir)["evals/4.jsonl"] == checksum_before


def test_a_checkpoint_that_contradicts_sealed_records_is_refused(folder, workdir):
    """Even if nothing else shows that it belongs to another run."""
    path = workdir / "evals/4.jsonl"
    path.write_text(path.read_text().replace('"epoch": 1.0', '"epoch": 1.5'))
    sums = checksums.read(workdir)
    sums["evals/4.jsonl"] = checksums.checksum(path.read_bytes())
    checksums.write(workdir, sums)
    records_before = records(workdir)
    with pytest.raises(ValueError, match=r"evals/4.jsonl: other numbers != those"):
        train.run(config(), workdir)
    assert records(workdir) == records_before
