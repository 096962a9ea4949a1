"""What "auto" is, by which evidence, and when it is looked for again."""

import dataclasses
import json
import math
import types

import jax
import numpy as np
import pytest

from jbias import config as jc
from jbias import run_spec, train
from jbias.runtime import mesh
from jbias.training import autotune, memory, seed_axis
from tests import smoke_runs


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A config and its stage, which counts as long enough, and nothing cached."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(autotune, "_MIN_STEPS", 1)
    monkeypatch.setattr(autotune, "_MAX_SAVING", math.inf)
    config = jc.to_dict(smoke_runs.small())
    return config, smoke_runs.stage(config)


def chosen(config, stage, kept=None, said=None, full=()):
    """`full`: strategies that do not fit any more."""
    devices = mesh.make(1)
    fits = {
        seed_axis.resolve_strategy(name, devices): [memory.Fit(count, 2, 0, 0)]
        for name in ("threaded", "looped")
        for count in [0 if name in full else 2]
    }
    members = run_spec.RunSpec.from_config(config).members
    stage = dataclasses.replace(stage, members=members)
    placed = memory.Placement(devices, [stage], config["run"], None, fits)
    say = (said if said is not None else []).append
    return autotune.choose_strategy(placed, kept, say)


@pytest.mark.slow
def test_first_steps_choose_and_are_taken_once(small, monkeypatch):
    """On a busy machine, too, both are looked at: there is no limit on the time."""
    monkeypatch.setattr(autotune, "_MAX_SECONDS", math.inf)
    monkeypatch.setattr(autotune, "_MAX_SAVING", math.inf)
    config, stage = small
    said = []
    found = chosen(config, stage, said=said)
    times = found["seconds"]
    assert set(times) == {"threaded", "looped"} and min(times.values()) > 0
    assert found["strategy"] == min(times, key=times.get)
    assert said[-1].startswith(f"auto: {found['strategy']}; seconds of a seed's step: ")
    monkeypatch.setattr(autotune, "measured_seconds", None)
    assert chosen(config, stage) == found


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["threaded", "looped"])
def test_what_takes_longer_is_not_chosen(small, monkeypatch, slow):
    monkeypatch.setattr(
        autotune, "measured_seconds", lambda *args, **more: 1 + (args[2] == slow)
    )
    found = chosen(*small)
    assert found["strategy"] != slow and found["seconds"][slow] == 2


def test_what_a_run_had_before_stays(small, monkeypatch):
    monkeypatch.setattr(autotune, "measured_seconds", None)
    kept = {"strategy": "looped", "seconds": {"looped": 1, "threaded": 2}}
    assert chosen(*small, kept=kept) == {"strategy": "looped"}
    begun_before_anything_was_chosen = {"spread": 1, "devices": 1}
    found = chosen(*small, kept=begun_before_anything_was_chosen)
    assert found == {"strategy": "threaded"}
    nothing_was_compared = {"strategy": "auto"}
    assert chosen(*small, kept=nothing_was_compared) == {"strategy": "threaded"}


class Clock:
    """A clock that stands still unless `cost` lets it go on."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def timed(small, monkeypatch):
    """A stage on a GPU, whose costs and seconds of looking at them a test sets."""
    clock, costs, seconds = Clock(), {}, {}

    def cost(placed, name, unit, *, is_first):
        clock.now += seconds[name]
        return costs[name]

    monkeypatch.setattr(autotune, "_MAX_SAVING", 0.5)
    monkeypatch.setattr(autotune.xla, "platform", lambda: "gpu")
    monkeypatch.setattr(autotune, "time", clock)
    monkeypatch.setattr(autotune, "_cost", cost)
    return small, costs, seconds


def test_a_run_that_ends_soon_compares_nothing_more(timed, monkeypatch, tmp_path):
    """Half of the run's time may be saved; looking at the other takes twice a lone step's."""
    (config, stage), costs, seconds = timed
    usual, other = seed_axis.AUTO_CANDIDATES["gpu"]
    assert len(config["seeds"]) == 2
    takes = 1.0
    costs.update({usual: takes / stage.last / 2, other: 1e-6})
    seconds.update({usual: 0.3, other: 0.6})
    said = []
    found = chosen(config, stage, said=said)
    assert found == {"strategy": usual, "seconds": {usual: costs[usual]}}
    assert said[1] == (
        f"auto: {other} left out: timing it would take about 1 s, and 0 s are left; "
        f"--config.run.strategy={other} takes it"
    )
    seconds[usual] = 0.2
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "empty"))
    assert chosen(config, stage)["strategy"] == other


def test_what_probably_takes_too_long_is_left_out_of_the_longest_run(
    timed, monkeypatch, tmp_path
):
    (config, stage), costs, seconds = timed
    usual, other = seed_axis.AUTO_CANDIDATES["gpu"]
    costs.update({usual: 1e6, other: 1.0})
    seconds.update({usual: autotune._MAX_SECONDS / 2 + 1, other: 1.0})
    assert chosen(config, stage)["strategy"] == usual
    seconds[usual] -= 2
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "empty"))
    assert chosen(config, stage) == {"strategy": other, "seconds": costs}


def test_what_was_left_out_is_looked_at_by_a_longer_run_alone(timed):
    """A run of as many steps or fewer takes what was chosen, and looks at nothing."""
    (config, stage), costs, seconds = timed
    usual, other = seed_axis.AUTO_CANDIDATES["gpu"]
    costs.update({usual: 0.01, other: 0.005})
    seconds.update({usual: 1e6, other: 1.0})
    first = chosen(config, stage)
    assert first["strategy"] == usual
    seconds[usual], said = 0.0, []
    assert chosen(config, stage, said=said) == first and not said
    shorter, longer = (
        dataclasses.replace(stage, last=stage.last + more) for more in (-1, 1)
    )
    assert chosen(config, shorter, said=said) == first and not said
    assert chosen(config, longer)["strategy"] == other
    assert chosen(config, stage, said=said)["strategy"] == other and not said


def test_a_default_that_compiles_too_long_is_taken_without_a_time(timed):
    """The seconds of its compilation are not recorded as those of a step."""
    (config, stage), costs, seconds = timed
    default, other = seed_axis.AUTO_CANDIDATES["gpu"]
    costs.update({default: None, other: 1e-6})
    seconds.update({default: 24.2, other: 1.0})
    lines = []
    choice = chosen(config, stage, said=lines)
    assert choice == {"strategy": default}
    (line,) = lines[1:]
    assert line == (
        f"auto: {default}, not compared: its first steps took 24 s with compilation; "
        f"--config.run.strategy={other} takes another"
    )
    lines.clear()  # A run of as many steps takes what the first one took.
    assert chosen(config, stage, said=lines) == choice and not lines


def test_the_usual_one_that_does_not_fit_gives_way(timed):
    (config, stage), costs, seconds = timed
    usual, other = seed_axis.AUTO_CANDIDATES["gpu"]
    costs.update({usual: math.inf, other: 0.125})
    seconds.update({usual: 1e6, other: 1e6})
    assert chosen(config, stage) == {"strategy": other, "seconds": {other: 0.125}}


def test_a_first_dispatch_that_takes_too_long_is_the_only_one(small, monkeypatch):
    _, stage = small
    dispatched = []

    class Laid:
        first, members = stage.first, stage.members

        def start(self):
            return ()

        def batches(self, step):
            return ["batch"]

        def advance(self, states, args, held, static):
            clock.now += autotune._MAX_SECONDS + 1
            dispatched.append(len(args))
            return states, ()

        wait = shared = static = lambda *args: None

    clock = Clock()
    monkeypatch.setattr(autotune, "time", clock)
    monkeypatch.setattr(autotune.stages, "fit_to_devices", lambda *args, **more: Laid())
    stopped = autotune.measured_seconds(
        stage, None, "looped", 2, scanned=3, may_stop=True
    )
    assert dispatched == [3]
    assert stopped is None
    # The first dispatch of another strategy compiles, and is not taken for its step.
    autotune.measured_seconds(stage, None, "looped", 2, scanned=3)
    assert dispatched == [3, 3, 3]


@pytest.mark.slow
def test_what_was_found_once_must_still_fit(small, monkeypatch):
    monkeypatch.setattr(
        autotune, "measured_seconds", lambda *args, **more: 1 + (args[2] == "threaded")
    )
    assert chosen(*small)["strategy"] == "looped"
    monkeypatch.setattr(
        autotune, "measured_seconds", lambda *args, **more: 1 + (args[2] == "looped")
    )
    assert chosen(*small)["strategy"] == "looped"
    assert chosen(*small, full=["looped"])["strategy"] == "threaded"


def test_several_processes_compare_nothing(small, monkeypatch):
    monkeypatch.setattr(autotune, "measured_seconds", None)
    here = mesh.make(1)
    assert len(autotune.candidates("auto", here, 2, steps=1)) == 2

    class Elsewhere:
        process_index = 1

    both = np.array([[here.devices.flat[0], Elsewhere()]])
    several = types.SimpleNamespace(devices=both, size=1, shape=here.shape)
    assert autotune.candidates("auto", several, 2, steps=1) == ("threaded",)


@pytest.mark.slow
def test_what_cannot_be_compiled_or_run_is_not_chosen(small, monkeypatch):
    """And it is tried another time: nothing is cached."""

    def full(*args, **more):
        if args[2] == "threaded":
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return 1.0

    monkeypatch.setattr(autotune, "measured_seconds", full)
    said = []
    found = chosen(*small, said=said)
    assert found == {"strategy": "looped", "seconds": {"looped": 1.0}}
    assert said[-1].endswith("threaded inf, looped 1")
    assert "auto: threaded: RESOURCE_EXHAUSTED: Out of memory" in said
    monkeypatch.setattr(
        autotune, "measured_seconds", lambda *args, **more: 1 + (args[2] == "looped")
    )
    assert chosen(*small)["strategy"] == "threaded"


@pytest.mark.slow
def test_a_cache_that_is_damaged_or_cannot_be_written_stops_nothing(
    small, monkeypatch, tmp_path
):
    monkeypatch.setattr(autotune, "measured_seconds", lambda *args, **more: 1.0)
    found = chosen(*small)
    (kept,) = (tmp_path / "cache" / "strategies").iterdir()
    kept.write_text("{")
    assert chosen(*small) == found
    monkeypatch.setenv("JBIAS_CACHE", str(kept))  # A file, no folder.
    assert chosen(*small) == found


def test_nothing_is_compared_where_nothing_can_be_gained(small, monkeypatch):
    """One seed; a run of few steps; a strategy that the user named."""
    config, stage = small
    monkeypatch.setattr(autotune, "measured_seconds", None)
    assert chosen({**config, "seeds": (0,)}, stage) == {"strategy": "threaded"}
    run = {**config["run"], "strategy": "vmapped"}
    assert chosen({**config, "run": run}, stage) == {"strategy": "vmapped"}
    monkeypatch.setattr(autotune, "_MIN_STEPS", stage.last + 1)
    assert chosen(config, stage) == {"strategy": "threaded"}


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_run_keeps_what_it_chose(tmp_path):
    train.run(smoke_runs.small(), tmp_path / "run")
    told = json.loads((tmp_path / "run" / "provenance.json").read_text())["chosen"]
    assert told["strategy"] in told["seconds"]


def test_candidates_are_strategies():
    for several in seed_axis.AUTO_CANDIDATES.values():
        assert set(several) <= set(seed_axis.STRATEGIES)
