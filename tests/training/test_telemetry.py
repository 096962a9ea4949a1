"""A real run that died and was resumed, as all that hears of it saw it."""

import collections
import contextlib
import io
import json

import pytest

from jbias import train
from jbias.runs import status
from jbias.training import divergence
from tests import cases, smoke_runs, wandb_files

EVENTS = {
    "start": {"run", "seeds", "total", "step"},
    "resume": {"step", "total"},
    "compile": {"step"},
    "compiled": {"step", "seconds"},
    "progress": {"step", "total", "rate", "images", "eta_seconds"},
    "evaluation": {"step", "total", "seconds", "means"},
    "checkpoint": {"step"},
    "diverged": {"step", "seed"},
    "finished": {"step", "fate"},
    "note": set(),
}


class Died(BaseException):
    """Ends a run at once."""


def config():
    """24 steps, an evaluation each eighth, a line of progress after each dispatch."""
    c = smoke_runs.small(
        epochs=6.0, seeds=(3, 5), eval_every="8 steps", save_every="8 steps"
    )
    c.run.update(steps_per_dispatch=1, log_seconds=1e-3, log="json")
    c.run.write = "tensorboard+wandb"
    return c


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A workdir whose run died at step 22, its sign of life then, and what was said."""
    workdir = tmp_path_factory.mktemp("signs") / "run"
    left, add = 22, divergence.Monitor.add

    def counted(self, *args):
        nonlocal left
        left -= 1
        if not left:
            raise Died
        return add(self, *args)

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divergence.Monitor, "add", counted)
        with pytest.raises(Died), contextlib.redirect_stderr(said):
            train.run(config(), workdir)
    was, first = status.read_heartbeat(workdir), said.getvalue()
    with contextlib.redirect_stderr(said):
        assert train.run(config(), workdir)
    return workdir, was, said.getvalue().removeprefix(first)


@pytest.mark.slow
def test_sign_of_life_says_how_far_it_was(run):
    workdir, was, _ = run
    assert (was["doing"], was["step"], was["total"]) == ("stepping", 21, 24)
    now = status.read_heartbeat(workdir)
    assert (now["doing"], now["step"], now["total"]) == ("finished", 24, 24)
    assert now["diverged"] == {} and now["rate"] > 0 and now["eta_seconds"] >= 0


def expected(workdir, seed=None):
    """By tag and step: what the records have of a seed, or their means over seeds."""
    found = collections.defaultdict(list)
    for r in smoke_runs.records(workdir):
        if seed in (None, r["seed"]) and r["value"] is not None:
            tag = "/".join(filter(None, (r["dataset"], r["metric"], r["condition"])))
            found[tag, r["step"]].append(r["value"])
    return {key: sum(values) / len(values) for key, values in found.items()}


@pytest.mark.slow
@cases.each("seed", [3, 5, None])
def test_tensorboard_has_the_records_once(run, seed):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator

    folder = run[0] / "tensorboard" / (f"seed-{seed}" if seed else "")
    board = event_accumulator.EventAccumulator(str(folder), {"scalars": 0}).Reload()
    told = [
        ((tag, one.step), one.value)
        for tag in board.Tags()["scalars"]
        for one in board.Scalars(tag)
    ]
    assert len(dict(told)) == len(told)  # The steps done twice are there once.
    records = expected(run[0], seed)
    found = {key: value for key, value in told if key in records}
    assert found == pytest.approx(records, rel=1e-6)
    others = {tag for (tag, _), _ in told} - {tag for tag, _ in records}
    speed = {"speed/steps", "speed/images"} if seed is None else set()
    shown = {"progress/loss_class", "progress/gradient_norm_class"}
    assert others == shown | speed
    # What the killed process said after the checkpoint that was resumed is void.
    steps = [step for (tag, step), _ in told if tag == "progress/loss_class"]
    assert steps == sorted(steps) and steps[-1] == 24


@pytest.mark.slow
def test_wandb_has_the_records_once(run):
    pytest.importorskip("wandb")
    files = sorted(run[0].glob("wandb/offline-run-*/*.wandb"))
    first = wandb_files.history(files[0])
    second = wandb_files.history(files[1])
    assert len(files) == 2 and not set(first) & set(second)
    rows = {**first, **second}
    for of, seed in (("seed-3", 3), ("seed-5", 5), ("mean", None)):
        found = {
            (tag, step): rows[step][f"{tag}/{of}"]
            for tag, step in expected(run[0], seed)
        }
        assert found == pytest.approx(expected(run[0], seed), rel=1e-6)


@pytest.mark.slow
def test_each_line_of_the_log_is_an_object(run):
    workdir, _, said = run
    lines = (workdir / "log.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    for one in told:
        assert {"time", "level", "event", "message"} <= set(one)
        fields = set(one) - {"time", "level", "event", "message"}
        assert fields == EVENTS[one["event"]], one
    assert {one["event"] for one in told} == set(EVENTS) - {"diverged"}
    assert [one["time"] for one in told] == sorted(one["time"] for one in told)
    # The second start said the same on standard error, and nothing else.
    own = [json.loads(line) for line in said.splitlines()]
    assert own == told[-len(own) :] and own[-1]["event"] == "finished"
    resumed = next(one for one in own if one["event"] == "resume")
    assert (resumed["step"], resumed["total"]) == (16, 24)
    evaluated = [one for one in own if one["event"] == "evaluation"]
    assert [one["step"] for one in evaluated] == [24]
    means = expected(workdir)
    assert evaluated[-1]["means"]["edge/accuracy"] == means["edge/accuracy", 24]


@pytest.mark.slow
def test_people_read_the_same_in_text(run):
    text = (run[0] / "log.txt").read_text()
    assert "saved step" not in text and '"event"' not in text
    assert "resuming erm-shapes-" in text and "step 8/24: valid" in text
