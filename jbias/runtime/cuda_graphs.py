"""Run training steps on a GPU as whole CUDA graphs: one launch instead of hundreds.

By default XLA puts no convolution into a CUDA graph, so that each convolution needs its own
launch. With `STEP_OPTIONS` a whole step is one graph, and with `LOOP_OPTIONS` the body of a
loop over steps. On an H200, the capture of a convolution failed if cuDNN had not run the
convolution in the process before. This is the case when a program comes from the compilation cache.
After such a failure, cuDNN mostly failed in the rest of the process, too. `CapturedFunction`
therefore runs each program once by XLA's default before it captures the graph. Each process keeps a
note in a file during a capture. After a process has ended without removing its note, no process on
this machine captures graphs any more.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import socket
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jbias.runtime import files, messages, xla

# XLA's default operations, and convolutions.
STEP_OPTIONS: Mapping[str, str] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,DYNAMIC_SLICE_FUSION,"
        "CONVOLUTION"
    ),
    "xla_gpu_graph_min_graph_size": "1",
}
# CONCURRENT lets operations that do not depend on each other run side by side, such as those
# of several seeds; it takes 8 to 23 % more temporary memory. In steps that are dispatched one
# by one it is slower than XLA's default: benchmarks/results/gpu-h200.md.
LOOP_OPTIONS: Mapping[str, str] = {
    **STEP_OPTIONS,
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}

# Reasons of failed captures in this process, one line each.
failures: list[str] = []

# Called after a capture that failed, with a line about it; see `set_listener`.
_listener: Callable[[str], None] | None = None


def are_requested(num_devices: int = 1) -> bool:
    """Return True if steps on `num_devices` devices are compiled to whole graphs.

    Whole graphs are used only on a single GPU: with several GPUs, the capture could fail on one
    GPU while the other GPUs wait for it. Return False also if XLA_FLAGS sets the captured
    operations, if the compiler lacks an option, or if a capture failed in this process or
    earlier on this machine. The compiler's options and failed captures are not checked inside
    `xla.compiling_for`.
    """
    if xla.platform() != "gpu" or num_devices > 1 or _user_decides():
        return False
    if xla.is_compiling_for_target():
        return True
    return not (failures or _failed_before()) and _are_options_known()


def compiler_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of `options` that XLA_FLAGS does not set.

    options: `STEP_OPTIONS` or `LOOP_OPTIONS`.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in flags}


def describe(num_devices: int = 1) -> str:
    """Return a phrase about the part of the steps that runs as CUDA graphs.

    Examples are "whole steps" and "XLA's default"; the phrase includes the reason if a capture
    failed. Return "none" unless the platform is a GPU. num_devices: devices that run the steps.
    """
    if xla.platform() != "gpu":
        return "none"
    if _user_decides():
        return "as XLA_FLAGS says"
    if failures:
        return f"XLA's default, as a whole step failed: {failures[0]}"
    if are_requested(num_devices):
        return "whole steps"
    if _failed_before():
        return (
            f"XLA's default, as a capture failed; delete {notes_folder()} to try again"
        )
    return "XLA's default"


def set_listener(listener: Callable[[str], None] | None) -> None:
    """Set the function that is called with a line about each failed capture.

    listener: None for a Python warning instead of a call.
    """
    global _listener
    _listener = listener


def notes_folder() -> pathlib.Path:
    """Return the folder of the notes of captures on this machine and kind of GPU.

    A note is a file. Its name is the id of the process that captures, or "failed" after a
    failure. Another version of jax or of the driver has another folder.
    """
    device = jax.local_devices()[0]
    machine_and_versions = (
        socket.gethostname(),
        device.device_kind,
        jax.__version__,
        device.client.platform_version,
    )
    digest = hashlib.sha256("\n".join(machine_and_versions).encode()).hexdigest()[:16]
    return files.cache_path("cuda_graphs") / digest


def _failed_before() -> bool:
    """Return True if a capture failed on this machine, or a process ended during one."""
    for note in notes_folder().glob("*"):
        if note.name == "failed" or not note.name.isdigit():
            return True
        # A container that starts again often has the same process number.
        if int(note.name) == os.getpid() or not _is_running(int(note.name)):
            return True
    return False


def _is_running(process: int) -> bool:
    """Return True if there is a process of this number on the machine."""
    try:
        os.kill(process, 0)  # Sends no signal.
    except ProcessLookupError:
        return False
    except PermissionError:  # Another user's.
        return True
    return True


@functools.cache
def _are_options_known() -> bool:
    """Return True if the installed compiler knows all `LOOP_OPTIONS`."""
    options = compiler_options(LOOP_OPTIONS)
    try:
        jax.jit(lambda x: x + 1, compiler_options=options).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
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
    num_devices: int,
    options: Mapping[str, str],
) -> Callable[..., PyTree]:
    """Return a jitted function: on a GPU a `CapturedFunction`, if graphs are requested.

    function: (states, ..., static) -> outputs. static_argnums: index of the last argument.
    donate_argnums: (0,) or (). kind: jax's `device_kind`. num_devices: the number of devices of
    the arguments. options: `STEP_OPTIONS`, or `LOOP_OPTIONS` for a loop over steps.
    """

    def compile_lazily(extra_options: Mapping[str, str]) -> Callable[..., PyTree]:
        return xla.jit(
            function,
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
            kind=kind,
            extra_options=extra_options,
        )

    if not are_requested(num_devices):
        return compile_lazily({})
    return CapturedFunction(
        compile_lazily({}), compile_lazily(compiler_options(options))
    )


class CapturedFunction:
    """A function of states and further arguments that a GPU launches as one CUDA graph.

    The last argument is static. Each combination of the static argument's value and the shapes
    of the other arguments has its own program. The first call of a program runs
    what XLA compiles by default, the second call captures the graph on a copy of the states,
    and later calls launch the graph. After a failed capture in this process, programs without a
    graph stay with the default.
    """

    def __init__(
        self, default: Callable[..., PyTree], whole: Callable[..., PyTree]
    ) -> None:
        """Store two jitted versions of a function.

        default: jitted without options for graphs. whole: jitted with these options. Both may
        donate the states.
        """
        self._default, self._whole = default, whole
        # Programs that the default has run; programs whose graph was tried; programs whose graph
        # runs.
        self._seen: set[Hashable] = set()
        self._tried: set[Hashable] = set()
        self._captured: set[Hashable] = set()

    def __call__(self, states: PyTree, *args: Any) -> PyTree:
        """Return the function's outputs; the last of `args` is static."""
        program = _program_key((states, args[:-1]), args[-1])
        if program in self._captured:
            return self._whole(states, *args)
        if program not in self._seen:
            # Wait: an error is the default's, not the capture's.
            outputs = jax.block_until_ready(self._default(states, *args))
            self._seen.add(program)
            return outputs
        if not failures and program not in self._tried:
            self._tried.add(program)
            with contextlib.suppress(_NotCaptured):
                outputs = self._capture(states, *args)
                self._captured.add(program)
                return outputs
        return self._default(states, *args)

    def _capture(self, states: PyTree, *args: Any) -> PyTree:
        """Return the outputs of the graph on a copy of the states, once they are computed.

        Raises _NotCaptured if the capture fails, or if memory does not suffice for the copy.
        """
        jax.block_until_ready((states, args[:-1]))
        try:
            copied = jax.block_until_ready(jax.tree.map(jnp.copy, states))
            # Compile first: the note is only there while the graph is captured.
            self._whole.lower(copied, *args).compile()
            with _noted_capture():
                return jax.block_until_ready(self._whole(copied, *args))
        except jax.errors.JaxRuntimeError as error:
            reason = messages.shorten(error)
            if "RESOURCE_EXHAUSTED" in str(error):
                line = f"XLA's default, as memory does not suffice to capture: {reason}"
            else:
                failures.append(reason)
                line = describe()
            if _listener is not None:
                _listener(line)
            else:
                warnings.warn(messages.one_line(f"CUDA graphs: {line}"), stacklevel=3)
            raise _NotCaptured from error

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the lowered program of the graph; arguments as for a call."""
        return self._whole.lower(*args)


class _NotCaptured(Exception):
    """Raised if a program could not be captured; the states are unchanged."""


def _program_key(dynamic: PyTree, static: Hashable) -> Hashable:
    """Return a key of the program that jax compiles for these arguments."""
    leaves, structure = jax.tree.flatten(dynamic)
    shapes = tuple((np.shape(leaf), getattr(leaf, "dtype", None)) for leaf in leaves)
    return structure, shapes, static


@contextlib.contextmanager
def _noted_capture() -> Iterator[None]:
    """Keep a note with this process's id in `notes_folder` inside the context.

    A JaxRuntimeError, unless memory is full, also leaves the note "failed"; it is raised
    again. Notes that cannot be written are left out.
    """
    note = notes_folder() / str(os.getpid())
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            with contextlib.suppress(OSError):
                (notes_folder() / "failed").write_text(f"{error}\n", "utf-8")
        raise
    finally:
        with contextlib.suppress(OSError):
            note.unlink(missing_ok=True)
