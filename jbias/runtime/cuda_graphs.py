"""Steps of a GPU as whole CUDA graphs: one launch in place of hundreds.

By default XLA puts no convolution into a CUDA graph, so that each is a launch of its own.
With `OPTIONS` a whole step is one graph. Capturing a convolution fails if cuDNN has not run
it in this process before, as is the case when a program comes from the compilation cache;
afterwards cuDNN may fail in the rest of the process, too. `CapturedFunction` therefore runs
each program once by XLA's default before it captures the graph. A file notes that a capture
is under way, so that a process that dies of it is the last one to try.
"""

import contextlib
import hashlib
import os
import pathlib
import socket
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jbias.runtime import files, messages, xla

# XLA's default operations, and convolutions. CONCURRENT lets operations that do not depend on
# each other run side by side, such as those of several seeds; it takes 8 to 23 % more
# temporary memory. benchmarks/results/gpu-h200.md has the steps measured with it.
OPTIONS: Mapping[str, str] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,DYNAMIC_SLICE_FUSION,"
        "CONVOLUTION"
    ),
    "xla_gpu_graph_min_graph_size": "1",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}

# Why captures of this process failed, one line each.
failures: list[str] = []


def are_requested() -> bool:
    """Return True if steps are compiled to whole graphs.

    True on a GPU, unless XLA_FLAGS sets the captured operations, a capture failed on this
    machine before (`note_path`), or the run has several processes: a capture could fail in
    one process only.
    """
    if xla.platform() != "gpu" or _user_decides():
        return False
    if xla.is_compiling_for_target():
        return True
    return jax.process_count() == 1 and not (failures or _failed_before())


def options() -> dict[str, str]:
    """Return the compiler options for whole graphs, without those that XLA_FLAGS sets."""
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in OPTIONS.items() if name not in flags}


def describe() -> str:
    """Return a phrase that says which part of a GPU's steps runs as CUDA graphs."""
    if _user_decides():
        return "as XLA_FLAGS says"
    if failures:
        return f"XLA's default, as a whole step failed: {failures[0]}"
    if are_requested():
        return "whole steps"
    if _failed_before():
        return f"XLA's default, as a capture failed; delete {note_path()} to try again"
    return "XLA's default"


def note_path() -> pathlib.Path:
    """Return the path of the note of a capture on this kind of GPU.

    The file exists during a capture, and after a capture that failed. Its name depends on
    the versions of jax and of the driver.
    """
    device = jax.local_devices()[0]
    versions = (
        f"{device.device_kind} {jax.__version__} {device.client.platform_version}"
    )
    digest = hashlib.sha256(versions.encode()).hexdigest()[:16]
    return files.cache_path("cuda_graphs") / f"{digest}.txt"


def _failed_before() -> bool:
    """Return True if the note of a capture exists and its process has ended."""
    try:
        host, process = note_path().read_text("utf-8").split()
        # A container that starts again has the same host and often the same process number.
        if host == socket.gethostname() and int(process) != os.getpid():
            os.kill(
                int(process), 0
            )  # Sends nothing; an error if there is no such process.
            return False
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return True


def _user_decides() -> bool:
    """Return True if the user's XLA_FLAGS set the operations that are captured."""
    return "xla_gpu_enable_command_buffer" in os.environ.get("XLA_FLAGS", "")


def jit(
    function: Callable[..., PyTree],
    *,
    static_argnums: int,
    donate_argnums: Sequence[int],
    kind: str,
) -> Callable[..., PyTree]:
    """Return a jitted function: on a GPU a `CapturedFunction`, if graphs are requested.

    function: (states, ..., static) -> outputs. static_argnums: index of the last argument.
    donate_argnums: (0,) or (). kind: jax's `device_kind`.
    """

    def compile_lazily(extra_options: Mapping[str, str]) -> Callable[..., PyTree]:
        """Return the jitted function with extra compiler options by name."""
        return xla.jit(
            function,
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
            kind=kind,
            extra_options=extra_options,
        )

    if not are_requested():
        return compile_lazily({})
    return CapturedFunction(compile_lazily({}), compile_lazily(options()))


class CapturedFunction:
    """A function of states and further arguments that a GPU launches as one CUDA graph.

    The last argument is static. For each static argument and structure of the states, the
    first call runs the program that XLA compiles by default, the second call the graph on a
    copy of the states, and later calls the graph. If the graph fails, this and later calls
    run the default.
    """

    def __init__(
        self, default: Callable[..., PyTree], whole: Callable[..., PyTree]
    ) -> None:
        """Wrap two jitted versions of one function, which may donate the states.

        default: compiled without `OPTIONS`. whole: compiled with `OPTIONS`, as one graph.
        """
        self._default, self._whole = default, whole
        # The function of the next call, by structure of the states and static argument.
        self._next: dict[Hashable, Callable[..., PyTree]] = {}

    def __call__(self, states: PyTree, *args: Any) -> PyTree:
        """Return the function's outputs; the last of `args` is static."""
        program = jax.tree.structure(states), args[-1]
        function = self._next.get(program)
        if function is None:
            self._next[program] = self._capture
            return self._default(states, *args)
        if function != self._capture:
            return function(states, *args)
        try:
            outputs = self._capture(states, *args)
        except jax.errors.JaxRuntimeError as error:
            self._next[program] = self._default
            failures.append(messages.shorten(error))
            line = f"CUDA graphs: {describe()}"
            warnings.warn(messages.one_line(line), stacklevel=2)
            return self._after_failure(states, *args)
        self._next[program] = self._whole
        return outputs

    def _capture(self, states: PyTree, *args: Any) -> PyTree:
        """Capture the graph; return its outputs on a copy of the states, fully computed."""
        copied = jax.block_until_ready(jax.tree.map(jnp.copy, states))
        note = note_path()
        with contextlib.suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"{socket.gethostname()} {os.getpid()}", "utf-8")
        try:
            outputs = jax.block_until_ready(self._whole(copied, *args))
        except jax.errors.JaxRuntimeError as error:
            # A lack of memory is this run's, not the driver's.
            if "RESOURCE_EXHAUSTED" in str(error):
                _remove(note)
            raise
        _remove(note)
        return outputs

    def _after_failure(self, states: PyTree, *args: Any) -> PyTree:
        """Return the outputs of the default program after a capture has failed.

        RuntimeError if cuDNN fails in the default program, too.
        """
        try:
            return jax.block_until_ready(self._default(states, *args))
        except jax.errors.JaxRuntimeError as error:
            raise RuntimeError(
                f"CUDA graphs: {messages.shorten(error)}; start again: the next start does "
                "not capture whole steps"
            ) from error

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the lowered program of the graph; args: the arguments of a call."""
        return self._whole.lower(*args)


def _remove(note: pathlib.Path) -> None:
    """Remove the note of a capture; ignore errors."""
    with contextlib.suppress(OSError):
        note.unlink(missing_ok=True)
