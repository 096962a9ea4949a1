"""Heartbeat, loggers and logs of a run that was killed and resumed."""

import collections
import contextlib
import io
import json

import pytest

from jbias import train
from jbias.runs import status
from jbias.training import monitoring
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
    """The error that ends a run without any clean-up of the run."""


def config():
    """Return a config of 24 steps, evaluated every 8, with progress after each dispatch."""
    c = smoke_runs.small(
        epochs=6.0, seeds=(3, 5), eval_every="8 steps", save_every="8 steps"
    )
    c.run.update(steps_per_dispatch=1, log_seconds=1e-3, log="json")
    c.run.write = "tensorboard+wandb"
    return c


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(workdir, heartbeat when the run died at step 22, stderr of the resumed run)."""
    workdir = tmp_path_factory.mktemp("signs") / "run"
    steps_left, add = 22, monitoring.Monitor.add

    def add_or_die(self, *args):
        nonlocal steps_left
        steps_left -= 1
        if not steps_left:
            raise Died
        return add(self, *args)

    stderr = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitoring.Monitor, "add", add_or_die)
        with pytest.raises(Died), contextlib.redirect_stderr(stderr):
            train.run(config(), workdir)
    heartbeat, first_output = status.read_heartbeat(workdir), stderr.getvalue()
    with contextlib.redirect_stderr(stderr):
        assert train.run(config(), workdir)
    return workdir, heartbeat, stderr.getvalue().removeprefix(first_output)


@pytest.mark.slow
def test_the_heartbeat_has_the_step_at_the_kill_and_at_the_end(run):
    workdir, killed, _ = run
    assert (killed["doing"], killed["step"], killed["total"]) == ("stepping", 21, 24)
    ended = status.read_heartbeat(workdir)
    assert (ended["doing"], ended["step"], ended["total"]) == ("finished", 24, 24)
    assert ended["diverged"] == {} and ended["rate"] > 0 and ended["eta_seconds"] >= 0


def expected(workdir, seed=None):
    """Return a seed's values in the records by (tag, step); None: means over seeds."""
    values_of = collections.defaultdict(list)
    for r in smoke_runs.records(workdir):
        if seed in (None, r["seed"]) and r["value"] is not None:
            tag = "/".join(filter(None, (r["dataset"], r["metric"], r["condition"])))
            values_of[tag, r["step"]].append(r["value"])
    return {key: sum(values) / len(values) for key, values in values_of.items()}


@pytest.mark.slow
@cases.each("seed", [3, 5, None])
def test_tensorboard_has_the_records_once(run, seed):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator

    folder = run[0] / "tensorboard" / (f"seed-{seed}" if seed else "")
    board = event_accumulator.EventAccumulator(str(folder), {"scalars": 0}).Reload()
    scalars = [
        ((tag, scalar.step), scalar.value)
        for tag in board.Tags()["scalars"]
        for scalar in board.Scalars(tag)
    ]
    assert len(dict(scalars)) == len(scalars)  # Repeated steps are there once.
    records = expected(run[0], seed)
    logged_records = {key: value for key, value in scalars if key in records}
    assert logged_records == pytest.approx(records, rel=1e-6)
    further_tags = {tag for (tag, _), _ in scalars} - {tag for tag, _ in records}
    speed = {"speed/steps", "speed/images"} if seed is None else set()
    progress = {"progress/loss_class", "progress/gradient_norm_class"}
    assert further_tags == progress | speed
    # Numbers that the killed process logged after the resumed checkpoint are replaced.
    steps = [step for (tag, step), _ in scalars if tag == "progress/loss_class"]
    assert steps == sorted(steps) and steps[-1] == 24


@pytest.mark.slow
def test_wandb_has_the_records_once(run):
    pytest.importorskip("wandb")
    files = sorted(run[0].glob("wandb/offline-run-*/*.wandb"))
    first = wandb_files.history(files[0])
    second = wandb_files.history(files[1])
    assert len(files) == 2 and not set(first) & set(second)
    rows = {**first, **second}
    for suffix, seed in (("seed-3", 3), ("seed-5", 5), ("mean", None)):
        logged = {
            (tag, step): rows[step][f"{tag}/{suffix}"]
            for tag, step in expected(run[0], seed)
        }
        assert logged == pytest.approx(expected(run[0], seed), rel=1e-6)


@pytest.mark.slow
def test_each_line_of_the_log_is_an_object(run):
    workdir, _, stderr = run
    lines = (workdir / "log.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        assert {"time", "level", "event", "message"} <= set(event)
        fields = set(event) - {"time", "level", "event", "message"}
        assert fields == EVENTS[event["event"]], event
    assert {event["event"] for event in events} == set(EVENTS) - {"diverged"}
    times = [event["time"] for event in events]
    assert times == sorted(times)
    # The second start wrote the same to standard error, and nothing else.
    printed = [json.loads(line) for line in stderr.splitlines()]
    assert printed == events[-len(printed) :] and printed[-1]["event"] == "finished"
    resumed = next(event for event in printed if event["event"] == "resume")
    assert (resumed["step"], resumed["total"]) == (16, 24)
    evaluated = [event for event in printed if event["event"] == "evaluation"]
    assert [event["step"] for event in evaluated] == [24]
    means = expected(workdir)
    assert evaluated[-1]["means"]["edge/accuracy"] == means["edge/accuracy", 24]


@pytest.mark.slow
def test_the_text_log_has_resume_and_evaluations_but_no_saves(run):
    text = (run[0] / "log.txt").read_text()
    assert "saved step" not in text and '"event"' not in text
    assert "resuming erm-shapes-" in text and "step 8/24: valid" in text
