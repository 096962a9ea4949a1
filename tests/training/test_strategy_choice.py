"""The strategy "auto": how it is chosen, cached, and when it is chosen again."""

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
from jbias.training import placement, strategies
from jbias.training.tuning import memory_estimate, strategy_choice
from tests import smoke_runs


@pytest.fixture
def small_stage(monkeypatch, tmp_path):
    """Return a config and its stage, long enough for a comparison, with an empty cache."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(strategy_choice, "_MIN_STEPS", 1)
    monkeypatch.setattr(strategy_choice, "_MAX_SAVING", math.inf)
    config = jc.to_dict(smoke_runs.small())
    return config, smoke_runs.stage(config)


def choose(config, stage, recorded=None, lines=None, too_large=()):
    """Choose a strategy; those in `too_large` do not fit into memory.

    recorded: the choice that the run has recorded earlier. lines: receives log messages.
    """
    devices = mesh.make(1)
    fits = {
        strategies.resolve_strategy(name, devices): [
            memory_estimate.Fit(count, 2, 0, 0)
        ]
        for name in ("threaded", "looped")
        for count in [0 if name in too_large else 2]
    }
    spec = run_spec.RunSpec.from_config(config)
    stage = dataclasses.replace(stage, members=spec.members)
    placement = memory_estimate.Placement(devices, [stage], spec.run, None, fits)
    log = (lines if lines is not None else []).append
    return strategy_choice.choose_strategy(placement, recorded, log)


@pytest.mark.slow
def test_the_faster_strategy_is_chosen_and_cached(small_stage, monkeypatch):
    """Both strategies are timed once, without a limit on the time; the choice is cached."""
    monkeypatch.setattr(strategy_choice, "_MAX_SECONDS", math.inf)
    monkeypatch.setattr(strategy_choice, "_MAX_SAVING", math.inf)
    config, stage = small_stage
    lines = []
    choice = choose(config, stage, lines=lines)
    times = choice["seconds"]
    assert set(times) == {"threaded", "looped"} and min(times.values()) > 0
    assert choice["strategy"] == min(times, key=times.get)
    assert lines[-1].startswith(
        f"auto: {choice['strategy']}; seconds of a seed's step: "
    )
    monkeypatch.setattr(strategy_choice, "measured_seconds", None)
    assert choose(config, stage) == choice


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["threaded", "looped"])
def test_the_slower_strategy_is_not_chosen(small_stage, monkeypatch, slow):
    config, stage = small_stage
    monkeypatch.setattr(
        strategy_choice,
        "measured_seconds",
        lambda *args, **options: 1 + (args[2] == slow),
    )
    choice = choose(config, stage)
    assert choice["strategy"] != slow and choice["seconds"][slow] == 2


def test_a_resumed_run_keeps_its_strategy(small_stage, monkeypatch):
    config, stage = small_stage
    monkeypatch.setattr(strategy_choice, "measured_seconds", None)
    recorded = {"strategy": "looped", "seconds": {"looped": 1, "threaded": 2}}
    assert choose(config, stage, recorded=recorded) == {"strategy": "looped"}
    without_strategy = {"spread": 1, "devices": 1}
    choice = choose(config, stage, recorded=without_strategy)
    assert choice == {"strategy": "threaded"}
    not_compared = {"strategy": "auto"}
    assert choose(config, stage, recorded=not_compared) == {"strategy": "threaded"}


class Clock:
    """A clock that advances only when a test adds to `seconds`."""

    seconds = 0.0

    def perf_counter(self):
        return self.seconds


@pytest.fixture
def timed(small_stage, monkeypatch):
    """Return a stage on a GPU, and the costs and timing seconds of strategies, for tests to set."""
    clock, costs, seconds = Clock(), {}, {}

    def cost(placement, name, unit, *, is_first):
        clock.seconds += seconds[name]
        return costs[name]

    monkeypatch.setattr(strategy_choice, "_MAX_SAVING", 0.5)
    monkeypatch.setattr(strategy_choice.xla, "platform", lambda: "gpu")
    monkeypatch.setattr(strategy_choice, "time", clock)
    monkeypatch.setattr(strategy_choice, "_cost", cost)
    return small_stage, costs, seconds


def test_a_short_run_compares_no_further_strategy(timed, monkeypatch, tmp_path):
    """A second strategy is timed only if that takes less than half of the run's time."""
    (config, stage), costs, seconds = timed
    default, other = strategies.AUTO_CANDIDATES["gpu"]
    assert len(config["seeds"]) == 2
    run_seconds = 1.0
    costs.update({default: run_seconds / stage.last / 2, other: 1e-6})
    seconds.update({default: 0.3, other: 0.6})
    lines = []
    choice = choose(config, stage, lines=lines)
    assert choice == {"strategy": default, "seconds": {default: costs[default]}}
    assert lines[1] == (
        f"auto: {other} left out: timing it would take about 1 s, and 0 s are left; "
        f"--config.run.strategy={other} takes it"
    )
    seconds[default] = 0.2
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "empty"))
    assert choose(config, stage)["strategy"] == other


def test_a_comparison_beyond_the_time_limit_is_left_out(timed, monkeypatch, tmp_path):
    (config, stage), costs, seconds = timed
    default, other = strategies.AUTO_CANDIDATES["gpu"]
    costs.update({default: 1e6, other: 1.0})
    seconds.update({default: strategy_choice._MAX_SECONDS / 2 + 1, other: 1.0})
    assert choose(config, stage)["strategy"] == default
    seconds[default] -= 2
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "empty"))
    assert choose(config, stage) == {"strategy": other, "seconds": costs}


def test_only_a_longer_run_times_a_strategy_that_was_left_out(timed):
    """A run of as many steps or fewer takes the cached choice, and times nothing."""
    (config, stage), costs, seconds = timed
    default, other = strategies.AUTO_CANDIDATES["gpu"]
    costs.update({default: 0.01, other: 0.005})
    seconds.update({default: 1e6, other: 1.0})
    first = choose(config, stage)
    assert first["strategy"] == default
    seconds[default], lines = 0.0, []
    assert choose(config, stage, lines=lines) == first and not lines
    shorter, longer = (
        dataclasses.replace(stage, last=stage.last + added) for added in (-1, 1)
    )
    assert choose(config, shorter, lines=lines) == first and not lines
    assert choose(config, longer)["strategy"] == other
    assert choose(config, stage, lines=lines)["strategy"] == other and not lines


def test_a_default_that_compiles_too_long_is_taken_without_a_time(timed):
    """The seconds of its compilation are not recorded as those of a step."""
    (config, stage), costs, seconds = timed
    default, other = strategies.AUTO_CANDIDATES["gpu"]
    costs.update({default: None, other: 1e-6})
    seconds.update({default: 24.2, other: 1.0})
    lines = []
    choice = choose(config, stage, lines=lines)
    assert choice == {"strategy": default}
    (line,) = lines[1:]
    assert line == (
        f"auto: {default}, not compared: its first steps took 24 s with compilation; "
        f"--config.run.strategy={other} takes another"
    )
    lines.clear()  # A run of as many steps takes what the first one took.
    assert choose(config, stage, lines=lines) == choice and not lines


def test_a_default_that_does_not_fit_is_replaced(timed):
    (config, stage), costs, seconds = timed
    default, other = strategies.AUTO_CANDIDATES["gpu"]
    costs.update({default: math.inf, other: 0.125})
    seconds.update({default: 1e6, other: 1e6})
    assert choose(config, stage) == {"strategy": other, "seconds": {other: 0.125}}


def test_a_first_dispatch_that_takes_too_long_is_the_only_one(small_stage, monkeypatch):
    _, stage = small_stage
    dispatched = []

    class SlowStage:
        def __init__(self, stage):
            self.stage = stage

        def start(self):
            return ()

        def take(self, step, count):
            return placement.Steps(["batch"], {}, None, None)

        def advance(self, states, steps):
            clock.seconds += strategy_choice._MAX_SECONDS + 1
            dispatched.append(len(steps.arguments))
            return states, ()

    clock = Clock()
    monkeypatch.setattr(strategy_choice, "time", clock)
    monkeypatch.setattr(
        placement, "fit_to_devices", lambda stage, *_, **__: SlowStage(stage)
    )
    stopped = strategy_choice.measured_seconds(
        stage, None, "looped", 2, scanned=3, may_stop=True
    )
    assert dispatched == [3]
    assert stopped is None
    # The first dispatch of another strategy compiles, and is not taken for its step.
    strategy_choice.measured_seconds(stage, None, "looped", 2, scanned=3)
    assert dispatched == [3, 3, 3]


@pytest.mark.slow
def test_a_cached_choice_must_still_fit(small_stage, monkeypatch):
    config, stage = small_stage
    monkeypatch.setattr(
        strategy_choice,
        "measured_seconds",
        lambda *args, **options: 1 + (args[2] == "threaded"),
    )
    assert choose(config, stage)["strategy"] == "looped"
    monkeypatch.setattr(
        strategy_choice,
        "measured_seconds",
        lambda *args, **options: 1 + (args[2] == "looped"),
    )
    assert choose(config, stage)["strategy"] == "looped"
    assert choose(config, stage, too_large=["looped"])["strategy"] == "threaded"


def test_several_processes_compare_nothing(small_stage, monkeypatch):
    monkeypatch.setattr(strategy_choice, "measured_seconds", None)
    local_mesh = mesh.make(1)
    assert len(strategy_choice.candidates("auto", local_mesh, 2, steps=1)) == 2

    class RemoteDevice:
        process_index = 1

    devices = np.array([[local_mesh.devices.flat[0], RemoteDevice()]])
    two_processes = types.SimpleNamespace(
        devices=devices, size=1, shape=local_mesh.shape
    )
    assert strategy_choice.candidates("auto", two_processes, 2, steps=1) == (
        "threaded",
    )


@pytest.mark.slow
def test_a_strategy_that_fails_is_not_chosen(small_stage, monkeypatch):
    """A choice after a failure is not cached: the strategy is tried again."""

    config, stage = small_stage

    def fail_if_threaded(*args, **options):
        if args[2] == "threaded":
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return 1.0

    monkeypatch.setattr(strategy_choice, "measured_seconds", fail_if_threaded)
    lines = []
    choice = choose(config, stage, lines=lines)
    assert choice == {"strategy": "looped", "seconds": {"looped": 1.0}}
    assert lines[-1].endswith("threaded inf, looped 1")
    assert "auto: threaded: RESOURCE_EXHAUSTED: Out of memory" in lines
    monkeypatch.setattr(
        strategy_choice,
        "measured_seconds",
        lambda *args, **options: 1 + (args[2] == "looped"),
    )
    assert choose(config, stage)["strategy"] == "threaded"


@pytest.mark.slow
def test_a_cache_that_is_damaged_or_cannot_be_written_stops_nothing(
    small_stage, monkeypatch, tmp_path
):
    config, stage = small_stage
    monkeypatch.setattr(
        strategy_choice, "measured_seconds", lambda *args, **options: 1.0
    )
    choice = choose(config, stage)
    (cached_file,) = (tmp_path / "cache" / "strategies").iterdir()
    cached_file.write_text("{")
    assert choose(config, stage) == choice
    monkeypatch.setenv("JBIAS_CACHE", str(cached_file))  # A file, no folder.
    assert choose(config, stage) == choice


def test_nothing_is_compared_without_a_possible_gain(small_stage, monkeypatch):
    """One seed; a run of few steps; a strategy that the user named."""
    config, stage = small_stage
    monkeypatch.setattr(strategy_choice, "measured_seconds", None)
    assert choose({**config, "seeds": (0,)}, stage) == {"strategy": "threaded"}
    run = {**config["run"], "strategy": "vmapped"}
    assert choose({**config, "run": run}, stage) == {"strategy": "vmapped"}
    monkeypatch.setattr(strategy_choice, "_MIN_STEPS", stage.last + 1)
    assert choose(config, stage) == {"strategy": "threaded"}


@pytest.mark.slow
@pytest.mark.usefixtures("small_stage")
def test_a_run_records_its_choice(tmp_path):
    train.run(smoke_runs.small(), tmp_path / "run")
    choice = json.loads((tmp_path / "run" / "provenance.json").read_text())["chosen"]
    assert choice["strategy"] in choice["seconds"]


def test_candidates_are_strategies():
    for candidates in strategies.AUTO_CANDIDATES.values():
        assert set(candidates) <= set(strategies.STRATEGIES)
