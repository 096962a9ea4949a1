"""What "auto" is, by which evidence, and when it is looked for again."""

import json

import pytest

from jbias import config as jc
from jbias import mesh, seeds, train
from jbias.training import choose, vary
from tests import runs


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A config and its stage, which is long enough, and nothing cached."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choose, "_LEAST", 1)
    config = jc.plain(runs.small())
    return config, runs.stage(config)


def chosen(config, stage, kept=None, said=None):
    entries = vary.entries(config["seeds"], vary.branches(config))
    own = [one.own for one in entries]
    say = (said if said is not None else []).append
    return choose.strategy(config, own, kept, say, [stage], mesh.make(1), None)


def test_first_steps_choose_and_are_taken_once(small, monkeypatch):
    config, stage = small
    said = []
    found = chosen(config, stage, said=said)
    times = found["seconds"]
    assert set(times) == {"threaded", "looped"} and min(times.values()) > 0
    assert found["strategy"] == min(times, key=times.get)
    assert said[-1].startswith(f"auto: {found['strategy']}; seconds of a seed's step: ")
    monkeypatch.setattr(choose, "seconds", None)
    assert chosen(config, stage) == found


@pytest.mark.parametrize("slow", ["threaded", "looped"])
def test_what_takes_longer_is_not_chosen(small, monkeypatch, slow):
    monkeypatch.setattr(choose, "seconds", lambda *args: 1 + (args[4] == slow))
    found = chosen(*small)
    assert found["strategy"] != slow and found["seconds"][slow] == 2


def test_what_a_run_had_before_stays(small, monkeypatch):
    monkeypatch.setattr(choose, "seconds", None)
    kept = {"strategy": "looped", "seconds": {"looped": 1, "threaded": 2}}
    assert chosen(*small, kept=kept) == kept


def test_nothing_is_compared_where_nothing_can_be_gained(small, monkeypatch):
    """One seed; a run of few steps; a strategy that the user named."""
    config, stage = small
    monkeypatch.setattr(choose, "seconds", None)
    assert chosen({**config, "seeds": (0,)}, stage) == {"strategy": "threaded"}
    run = {**config["run"], "strategy": "vmapped"}
    assert chosen({**config, "run": run}, stage) == {"strategy": "vmapped"}
    monkeypatch.setattr(choose, "_LEAST", stage.last + 1)
    assert chosen(config, stage) == {"strategy": "threaded"}


@pytest.mark.usefixtures("small")
def test_a_run_keeps_what_it_chose(tmp_path):
    train.run(runs.small(), tmp_path / "run")
    told = json.loads((tmp_path / "run" / "provenance.json").read_text())["chosen"]
    assert told["strategy"] in told["seconds"]


def test_candidates_are_strategies():
    for several in seeds.CANDIDATES.values():
        assert set(several) <= set(seeds.STRATEGIES)
