"""Tests of steps as whole CUDA graphs; the graph itself needs a GPU and is replaced here."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.runtime import cuda_graphs, mesh, xla
from jbias.training import seed_axis, strategies


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Fixture: this process appears to have a GPU, and no program has failed yet."""
    monkeypatch.setattr(xla, "platform", lambda: "gpu")
    monkeypatch.setattr(cuda_graphs, "failures", [])
    monkeypatch.setattr(cuda_graphs, "_are_options_known", lambda: True)
    monkeypatch.setattr(cuda_graphs, "_listener", None)
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return monkeypatch


def test_a_step_is_one_graph_by_default(gpu):
    assert cuda_graphs.are_requested()
    options = cuda_graphs.LOOP_OPTIONS
    assert cuda_graphs.compiler_options(options) == options
    operations = options["xla_gpu_enable_command_buffer"].split(",")
    assert "CONVOLUTION" in operations
    assert cuda_graphs.describe() == "whole steps"


def test_flags_of_the_user_decide(gpu):
    """A user whose driver crashes when it captures can avoid the trial."""
    gpu.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
    assert not cuda_graphs.are_requested()
    assert cuda_graphs.describe() == "as XLA_FLAGS says"


def test_other_flags_of_the_user_stay(gpu):
    gpu.setenv("XLA_FLAGS", "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE")
    options = cuda_graphs.LOOP_OPTIONS
    assert set(cuda_graphs.compiler_options(options)) == set(options) - {
        "xla_gpu_command_buffer_scheduling_mode"
    }


@pytest.mark.parametrize("strategy", ["looped", "unrolled"])
def test_kernels_run_side_by_side_in_loops_only(gpu, strategy):
    """Steps that are dispatched one by one were slower with it than by XLA's default."""
    options_of_programs = []

    def record(function, *, options, **more):
        options_of_programs.append(options)
        return function

    gpu.setattr(cuda_graphs, "jit", record)
    layout = seed_axis.SeedLayout(mesh.make(1), (2,))

    def step(state, argument, shared, static):
        return state, None

    seed_axis.multi_step(step, strategies.STRATEGIES[strategy], layout)
    assert options_of_programs == [cuda_graphs.STEP_OPTIONS]
    options_of_programs.clear()
    seed_axis.multi_step(step, strategies.STRATEGIES[strategy], layout, scanned=8)
    assert options_of_programs == [cuda_graphs.LOOP_OPTIONS]


def test_several_devices_take_the_default(gpu):
    """One device whose capture fails would leave the others waiting for it."""
    assert not cuda_graphs.are_requested(num_devices=2)
    assert cuda_graphs.describe(num_devices=2) == "XLA's default"
    with xla.compiling_for("gpu"):
        assert not cuda_graphs.are_requested(num_devices=2)


def test_a_compiler_that_lacks_an_option_takes_the_default(gpu):
    gpu.undo()
    known = cuda_graphs._are_options_known.__wrapped__
    assert known()
    gpu.setattr(cuda_graphs, "LOOP_OPTIONS", {"xla_no_such_option": "1"})
    assert not known()


def test_a_cpu_has_no_graphs():
    assert not cuda_graphs.are_requested()
    with xla.compiling_for("gpu"):
        assert cuda_graphs.are_requested()


def _add(states, argument, static):
    return tuple(state + argument * static for state in states)


class FailingGraph:
    """A replacement of a graph that fails with a message after it consumed its states.

    notes: names of the notes of captures while it ran. calls: number of calls.
    """

    def __init__(self, error: BaseException):
        self.error = error
        self.notes: list[str] = []
        self.calls = 0

    def __call__(self, states, *args):
        self.calls += 1
        self.notes = [path.name for path in cuda_graphs.notes_folder().glob("*")]
        for state in states:
            state.delete()
        raise self.error

    def lower(self, *args):
        return jax.jit(_add, static_argnums=2).lower(*args)


FAILED = jax.errors.JaxRuntimeError("UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED\nin x")
NO_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")


def _add(states, argument, static):
    return tuple(state + argument * static for state in states)


class Recorded:
    """A jitted function that donates its states and appends its name to `calls`."""

    def __init__(self, name: str, calls: list[str]):
        self.name, self.calls = name, calls
        self.jitted = jax.jit(_add, static_argnums=2, donate_argnums=0)

    def __call__(self, states, *args):
        self.calls.append(f"{self.name} {states[0].size}")
        return self.jitted(states, *args)

    def lower(self, *args):
        return self.jitted.lower(*args)


def test_the_first_call_of_each_program_is_the_default():
    """cuDNN must have run a program's convolutions before they are captured."""
    calls = []
    function = cuda_graphs.CapturedFunction(
        Recorded("default", calls), Recorded("graph", calls)
    )
    wide, narrow = (jnp.zeros(4),), (jnp.zeros(3),)  # Waves of four and of three seeds.
    for _ in range(3):
        wide = function(wide, 1.0, 1)
        narrow = function(narrow, 1.0, 1)
    wide = function(wide, 1.0, 2)  # Another static argument.
    for size in (4, 3):
        own_calls = [call.split()[0] for call in calls if call.endswith(str(size))]
        assert own_calls[:3] == ["default", "graph", "graph"]
    assert calls[6:] == ["default 4"]
    np.testing.assert_array_equal(wide[0], [5] * 4)
    np.testing.assert_array_equal(narrow[0], [3] * 3)


def test_a_graph_that_fails_costs_no_state(gpu):
    """The states are those of the default, though the graph has consumed its copy."""
    calls = []
    graph = FailingGraph(FAILED)
    function = cuda_graphs.CapturedFunction(Recorded("default", calls), graph)
    states = function((jnp.zeros(2),), 1.0, 1)
    with pytest.warns(UserWarning, match="CUDA graphs: .*EXECUTION_FAILED in x"):
        states = function(states, 1.0, 1)
    states = function(states, 1.0, 1)
    assert calls == ["default 2"] * 3 and graph.calls == 1
    assert graph.notes == [str(os.getpid())]
    np.testing.assert_array_equal(states[0], [3, 3])
    assert "EXECUTION_FAILED" in cuda_graphs.describe()


def test_after_a_failure_no_other_program_is_captured(gpu):
    """A capture that fails can leave cuDNN unusable in its process."""
    calls = []
    function = cuda_graphs.CapturedFunction(
        Recorded("default", calls), FailingGraph(FAILED)
    )
    other = cuda_graphs.CapturedFunction(
        Recorded("default", calls), Recorded("graph", calls)
    )
    states = function((jnp.zeros(2),), 1.0, 1)
    other_states = other((jnp.zeros(3),), 1.0, 1)
    with pytest.warns(UserWarning):
        function(states, 1.0, 1)
    for _ in range(3):
        other_states = other(other_states, 1.0, 1)
    assert "graph 3" not in calls
    cuda_graphs.failures.clear()  # As in the next process.
    assert not cuda_graphs.are_requested()
    assert str(cuda_graphs.notes_folder()) in cuda_graphs.describe()


def test_a_failure_is_reported_to_the_listener(gpu):
    lines = []
    cuda_graphs.set_listener(lines.append)
    function = cuda_graphs.CapturedFunction(
        Recorded("default", []), FailingGraph(FAILED)
    )
    states = function((jnp.zeros(2),), 1.0, 1)
    function(states, 1.0, 1)
    assert lines == [cuda_graphs.describe()] and "EXECUTION_FAILED" in lines[0]


def test_a_lack_of_memory_does_not_stop_later_runs_from_capturing(gpu):
    graph = FailingGraph(NO_MEMORY)
    function = cuda_graphs.CapturedFunction(Recorded("default", []), graph)
    states = function((jnp.zeros(2),), 1.0, 1)
    with pytest.warns(UserWarning, match="memory does not suffice"):
        states = function(states, 1.0, 1)
    states = function(states, 1.0, 1)
    np.testing.assert_array_equal(states[0], [3, 3])
    assert graph.calls == 1 and graph.notes and cuda_graphs.are_requested()


def test_an_interrupted_capture_is_no_failure(gpu):
    function = cuda_graphs.CapturedFunction(
        Recorded("default", []), FailingGraph(KeyboardInterrupt())
    )
    states = function((jnp.zeros(2),), 1.0, 1)
    with pytest.raises(KeyboardInterrupt):
        function(states, 1.0, 1)
    assert cuda_graphs.are_requested()


def test_errors_of_the_default_are_its_own(gpu):
    """A lack of memory without a graph reaches the caller as jax raises it."""

    def fail(states, *args):
        raise NO_MEMORY

    function = cuda_graphs.CapturedFunction(fail, FailingGraph(FAILED))
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        function((jnp.zeros(2),), 1.0, 1)
    assert not cuda_graphs.failures


def test_a_process_that_died_in_a_capture_is_the_last_to_try(gpu):
    folder = cuda_graphs.notes_folder()
    folder.mkdir(parents=True)
    note = folder / str(os.getppid())
    note.touch()  # Of a process that is still there, so may be capturing just now.
    assert cuda_graphs.are_requested()
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        check=True,
        capture_output=True,
        text=True,
    )
    note.rename(folder / ended.stdout.strip())
    assert not cuda_graphs.are_requested()
