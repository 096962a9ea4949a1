"""Tests of steps as whole CUDA graphs; the graph itself needs a GPU and is replaced here."""

import os
import socket

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.runtime import cuda_graphs, xla


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Fixture: this process appears to have a GPU, and no program has failed yet."""
    monkeypatch.setattr(xla, "platform", lambda: "gpu")
    monkeypatch.setattr(cuda_graphs, "failures", [])
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return monkeypatch


def test_a_step_is_one_graph_by_default(gpu):
    assert cuda_graphs.are_requested()
    assert cuda_graphs.options() == cuda_graphs.OPTIONS
    operations = cuda_graphs.OPTIONS["xla_gpu_enable_command_buffer"].split(",")
    assert "CONVOLUTION" in operations
    assert cuda_graphs.describe() == "whole steps"


def test_flags_of_the_user_decide(gpu):
    """A user whose driver crashes when it captures can avoid the trial."""
    gpu.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
    assert not cuda_graphs.are_requested()
    assert cuda_graphs.describe() == "as XLA_FLAGS says"


def test_other_flags_of_the_user_stay(gpu):
    gpu.setenv("XLA_FLAGS", "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE")
    assert set(cuda_graphs.options()) == set(cuda_graphs.OPTIONS) - {
        "xla_gpu_command_buffer_scheduling_mode"
    }


def test_several_processes_take_the_default(gpu):
    """One process whose capture fails would leave the others waiting for it."""
    gpu.setattr(jax, "process_count", lambda: 2)
    assert not cuda_graphs.are_requested()
    assert cuda_graphs.describe() == "XLA's default"


def test_a_cpu_has_no_graphs():
    assert not cuda_graphs.are_requested()
    with xla.compiling_for("gpu"):
        assert cuda_graphs.are_requested()


def _add(states, argument, static):
    return tuple(state + argument * static for state in states)


class Capture:
    """A replacement of a graph that fails with a message after it consumed its states."""

    def __init__(self, message: str):
        self.message = message
        self.note_was_there = False

    def __call__(self, states, *args):
        self.note_was_there = cuda_graphs.note_path().exists()
        for state in states:
            state.delete()
        raise jax.errors.JaxRuntimeError(self.message)


def _recording(name: str, calls: list[str], function=_add):
    """Return a jitted function that donates its states and appends its name to `calls`."""
    jitted = jax.jit(function, static_argnums=2, donate_argnums=0)

    def call(states, *args):
        calls.append(name)
        return jitted(states, *args)

    return call


def test_the_first_call_of_each_program_is_the_default():
    """cuDNN must have run a program's convolutions before they are captured."""
    calls = []
    function = cuda_graphs.CapturedFunction(
        _recording("default", calls), _recording("graph", calls)
    )
    single_seed, two_seeds = (jnp.zeros(2),), (jnp.zeros(2), jnp.ones(2))
    for _ in range(4):
        single_seed = function(single_seed, 1.0, 1)
    assert calls == ["default", "graph", "graph", "graph"]
    two_seeds = function(two_seeds, 1.0, 1)  # Another number of seeds.
    single_seed = function(single_seed, 1.0, 2)  # Another static argument.
    assert calls[4:] == ["default", "default"]
    np.testing.assert_array_equal(single_seed[0], [6, 6])
    np.testing.assert_array_equal(two_seeds[1], [2, 2])


def test_a_graph_that_fails_costs_no_state(gpu):
    """The states are those of the default, though the graph has consumed its copy."""
    calls = []
    capture = Capture("UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED\nin x")
    function = cuda_graphs.CapturedFunction(_recording("default", calls), capture)
    states = (jnp.zeros(2),)
    states = function(states, 1.0, 1)
    with pytest.warns(UserWarning, match="CUDA graphs: .*EXECUTION_FAILED in x"):
        states = function(states, 1.0, 1)
    states = function(states, 1.0, 1)
    assert calls == ["default"] * 3
    np.testing.assert_array_equal(states[0], [3, 3])
    assert "EXECUTION_FAILED" in cuda_graphs.describe()


def test_the_next_process_does_not_repeat_a_failed_capture(gpu):
    """A capture that fails can leave cuDNN unusable in its process."""
    capture = Capture("UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED")

    def default(states, *args):
        if capture.note_was_there:
            raise jax.errors.JaxRuntimeError("UNKNOWN: <unknown cudnn status: 5003>")
        return states

    function = cuda_graphs.CapturedFunction(default, capture)
    states = function((jnp.zeros(2),), 1.0, 1)
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="start again"):
        function(states, 1.0, 1)
    cuda_graphs.failures.clear()  # As in the next process.
    assert not cuda_graphs.are_requested()
    cuda_graphs.note_path().write_text("another-host 1")
    assert not cuda_graphs.are_requested()
    # A process that is still there may be capturing just now.
    cuda_graphs.note_path().write_text(f"{socket.gethostname()} {os.getppid()}")
    assert cuda_graphs.are_requested()
    cuda_graphs.note_path().write_text(f"{socket.gethostname()} {os.getpid()}")
    assert str(cuda_graphs.note_path()) in cuda_graphs.describe()
    cuda_graphs.note_path().unlink()
    assert cuda_graphs.are_requested()


def test_a_lack_of_memory_does_not_stop_later_runs_from_capturing(gpu):
    capture = Capture("RESOURCE_EXHAUSTED: Out of memory")
    function = cuda_graphs.CapturedFunction(_recording("default", []), capture)
    states = function((jnp.zeros(2),), 1.0, 1)
    with pytest.warns(UserWarning, match="RESOURCE_EXHAUSTED"):
        function(states, 1.0, 1)
    assert capture.note_was_there and not cuda_graphs.note_path().exists()


def test_an_installed_compiler_that_lacks_an_option_takes_the_default(gpu):
    """An unknown compiler option fails like a driver that cannot capture."""
    gpu.setattr(cuda_graphs, "OPTIONS", {"xla_no_such_option": "1"})
    function = cuda_graphs.jit(_add, static_argnums=2, donate_argnums=(0,), kind="x")
    states = (jnp.zeros(2),)
    states = function(states, 1.0, 1)
    with pytest.warns(UserWarning, match="xla_no_such_option"):
        states = function(states, 1.0, 1)
    np.testing.assert_array_equal(states[0], [2, 2])
