"""XLA's flags, compiler options and compilation cache; settings that decide the numbers.

XLA's flags that the user set stay, and are recorded with the numbers. jax's own settings on
which numbers depend are jbias's: `fixed_settings` overrides them.
"""

import contextlib
import contextvars
import enum
import functools
import glob
import os
import re
import types
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from jbias.runtime import files, messages

_target = contextvars.ContextVar("_target", default="")
# Settings that `fixed_settings` has overridden, as its caller had them.
_callers: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "_callers", default=types.MappingProxyType({})
)

# Only GPUs know them. Sums between GPUs run beside the computation: recommended by
# https://docs.jax.dev/en/latest/gpu_performance_tips.html, and set in NVIDIA's images
# (https://docs.nvidia.com/jax-toolbox/environment-variables).
FLAGS: Mapping[str, str] = {"xla_gpu_enable_latency_hiding_scheduler": "true"}

# How much of a core's vector memory, 128 MiB on these TPUs, one operation may take: by
# the compiler's estimate a ResNet-50's step is 3 % faster than with its 16 MiB.
_VMEM: Mapping[str, str] = {"xla_tpu_scoped_vmem_limit_kib": "32768"}
_ROOMY = ("TPU v5 lite", "TPU v6")

# A step as one CUDA graph: what XLA captures by default, and convolutions, without which
# every convolution is a launch of its own and cuts the step in pieces. For an H100 a step of
# a ResNet-18 of width 16 compiles to one launch in place of 125.
GRAPHS: Mapping[str, str] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,DYNAMIC_SLICE_FUSION,"
        "CONVOLUTION"
    ),
    "xla_gpu_graph_min_graph_size": "1",
}

# No kernel whose sums come in any order, and no choice of kernels by how fast they were
# just now (https://github.com/openxla/xla/pull/12520).
DETERMINISTIC: Mapping[str, str] = {"xla_gpu_deterministic_ops": "true"}

# Compilers for what is not here complain of that whenever jax starts; libtpu also asks the
# cloud what machine this is, and lets one process at a time in.
_NO_TPU: Mapping[str, str] = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
_NO_GPU: Mapping[str, str] = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}


# Settings of jax that change random numbers, types, roundings, or end a run whose seed
# diverges: a run has these, whatever the environment or the caller's own jax.config says.
SETTINGS: Mapping[str, Any] = {
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_threefry_gpu_kernel_lowering": False,
    "jax_random_seed_offset": 0,
    "jax_high_dynamic_range_gumbel": False,
    "jax_enable_custom_prng": False,
    "jax_legacy_prng_key": "allow",
    "jax_enable_x64": False,
    "jax_explicit_x64_dtypes": "warn",
    "jax_numpy_dtype_promotion": "standard",
    "jax_default_matmul_precision": None,
    "jax_allow_f16_reductions": True,
    "jax_softmax_custom_jvp": False,
    "jax_disable_jit": False,
    "jax_debug_nans": False,
    "jax_debug_infs": False,
    "jax_debug_key_reuse": False,
    "jax_check_tracer_leaks": False,
    "jax_no_tracing": False,
    "jax_no_execution": False,
    "jax_use_magma": "auto",
    "jax_transfer_guard": None,
    "jax_transfer_guard_host_to_device": None,
    "jax_transfer_guard_device_to_device": None,
    "jax_transfer_guard_device_to_host": None,
}
# Settings of jax, and variables, that may change the last bits: recorded with the numbers.
_RECORDED = (
    "jax_compiler_enable_remat_pass",
    "jax_disable_most_optimizations",
    "eager_constant_folding",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_memory_fitting_level",
    "jax_optimization_level",
    "jax_remat3",
    "jax_scan3",
    "jax_use_direct_linearize",
    "jax_use_shardy_partitioner",
)
_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "LIBTPU_INIT_ARGS",
    "NVIDIA_TF32_OVERRIDE",
    "TF_CUDNN_DETERMINISTIC",
    "TF_DETERMINISTIC_OPS",
    "TF_XLA_FLAGS",
)
# Flags of XLA that change no number: what is written, and devices, which are recorded.
_SILENT_FLAGS = ("xla_dump", "xla_force_host_platform_device_count", "xla_hlo_profile")


def quiet_absent_backends(environment: MutableMapping[str, str] = os.environ) -> None:
    """Quietens the compilers of accelerators that this machine has not.

    Before jax starts. They stay in the way of no accelerator that is here.
    """
    for here, quiet in (
        (("/dev/accel*", "/dev/vfio/[0-9]*"), _NO_TPU),
        (("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg"), _NO_GPU),
    ):
        if not any(map(glob.glob, here)):
            for key, value in quiet.items():
                environment.setdefault(key, value)


def set_flags(
    environment: MutableMapping[str, str] = os.environ, *, deterministic: bool = False
) -> None:
    """Adds our flags to XLA_FLAGS; one that stands there already is left as it is."""
    quiet_absent_backends(environment)
    given = environment.get("XLA_FLAGS", "")
    known = {flag.lstrip("-").partition("=")[0] for flag in given.split()}
    ours = {**FLAGS, **(DETERMINISTIC if deterministic else {})}
    added = [f"--{k}={v}" for k, v in ours.items() if k not in known]
    environment["XLA_FLAGS"] = " ".join(filter(None, (given, *added)))


def cache_programs() -> None:
    """Keep compiled programs on disk, so that a second start does not wait.

    ValueError names a variable such as JAX_ENABLE_X64=maybe, with which jax does not start.
    """
    with naming_variables():
        import jax  # Late: flags are set before.

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(files.cache_path("xla")))


_OF_VARIABLE = re.compile(r"JAX flag (\w+)|environment '(\w+)'")


@contextlib.contextmanager
def naming_variables() -> Iterator[None]:
    """Raise ValueError that names the variable where one keeps jax from being imported."""
    try:
        yield
    except ValueError as error:
        match = _OF_VARIABLE.search(str(error))
        if match is None:
            raise
        name = (match[1] or match[2]).upper()
        raise ValueError(
            f"{name}: must be a value that jax knows, got {os.environ.get(name, '')!r}; "
            "correct it, or leave it unset"
        ) from error


@contextlib.contextmanager
def fixed_settings() -> Iterator[list[str]]:
    """Give jax the `SETTINGS` inside the context, and the caller's own after it.

    Yields a line that names the settings of the caller that are overridden; no line where
    there are none. Both the process's settings and those of the calling thread are
    overridden, as a caller may stand in a context such as jax.enable_x64(True).
    """
    import jax  # Late: flags are set before.

    # Nothing public tells the process's own values from those of the thread.
    from jax._src import config as jax_config

    holders = jax_config.config_states
    # Another jax may lack some.
    known = {name: holders[name] for name in SETTINGS if name in holders}
    of_caller = {name: holder.value for name, holder in known.items()}
    lines = _overridden(of_caller)
    with contextlib.ExitStack() as ends:
        for name, holder in known.items():
            process_wide = holder.get_global()
            if _plain(process_wide) != SETTINGS[name]:
                ends.callback(jax.config.update, name, process_wide)
                jax.config.update(name, SETTINGS[name])
            ends.enter_context(holder(SETTINGS[name]))
        if (
            lines
        ):  # Else the caller has nothing to restore, or is such a context itself.
            ends.callback(_callers.reset, _callers.set(of_caller))
        with _refusing_backends():
            yield lines


_NO_BACKEND = "Unable to initialize backend"


@contextlib.contextmanager
def _refusing_backends() -> Iterator[None]:
    """Raise ValueError, one line, where jax cannot use the devices of JAX_PLATFORMS."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(_NO_BACKEND):
            raise
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split()).partition(" (set JAX_PLATFORMS=")[0]
        raise ValueError(
            f"JAX_PLATFORMS: must name devices that are here, such as cpu, got "
            f"{platforms!r} ({reason}); correct it, or leave it unset"
        ) from error


def _overridden(of_caller: Mapping[str, Any]) -> list[str]:
    """Return a line that names the caller's settings that differ from `SETTINGS`."""
    differing = [
        f"{name.upper()}={_plain(value)}"
        for name, value in of_caller.items()
        if _plain(value) != SETTINGS[name]
    ]
    if not differing:
        return []
    names = ", ".join(differing)
    return [
        f"settings: {names}: overridden, so that no number depends on jax's settings"
    ]


@contextlib.contextmanager
def callers_settings() -> Iterator[None]:
    """Give jax what the caller of `fixed_settings` had, in this thread: for code of theirs."""
    from jax._src import config as jax_config  # As in `fixed_settings`.

    with contextlib.ExitStack() as ends:
        for name, value in _callers.get().items():
            ends.enter_context(jax_config.config_states[name](value))
        yield


def _plain(value: Any) -> Any:
    """Return a setting as `SETTINGS` has it: members of an enumeration by their value."""
    return value.name.lower() if isinstance(value, enum.Enum) else value


def recorded_settings(
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Return the flags, variables and settings on which the last bits may depend.

    Variables that are not set are left out.
    """
    import jax  # Late: flags are set before.

    flags = environment.get("XLA_FLAGS", "").split()
    flags = [flag for flag in flags if not flag.lstrip("-").startswith(_SILENT_FLAGS)]
    found: dict[str, Any] = {"XLA_FLAGS": sorted(flags)}
    found |= {name: environment[name] for name in _VARIABLES if environment.get(name)}
    values = jax.config.values
    found |= {name: str(_plain(values[name])) for name in _RECORDED if name in values}
    return found


def describe_graphs() -> str:
    """Return which part of a GPU's steps are CUDA graphs, in words."""
    failure = graph_failure()
    if failure:
        return f"without convolutions, as this GPU does not capture them ({failure})"
    flags = os.environ.get("XLA_FLAGS", "")
    if any(name in flags for name in GRAPHS):
        return "as XLA_FLAGS says"
    return "whole steps"


def compiler_options(kind: str) -> dict[str, str] | None:
    """Return the compiler's options for steps on a `device_kind`; the user's flags stay."""
    if platform() == "gpu":
        flags = os.environ.get("XLA_FLAGS", "")
        options = {} if graph_failure() else GRAPHS
    else:
        flags = os.environ.get("LIBTPU_INIT_ARGS", "")
        options = _VMEM if kind.startswith(_ROOMY) else {}
    return {name: x for name, x in options.items() if name not in flags} or None


def graph_failure() -> str:
    """Return why this machine's GPU cannot run steps as whole CUDA graphs; "" if it can.

    Trains a small network for three steps with `GRAPHS`, once in a process: drivers differ
    in which operations they capture. Nothing is tried for a target that is not here, or
    where XLA_FLAGS say what is captured: a driver that crashes then needs only the flag.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _target.get() or "xla_gpu_enable_command_buffer" in flags:
        return ""
    return _graph_failure()


@functools.cache
def _graph_failure() -> str:
    import jax  # Late: flags are set before.
    import jax.numpy as jnp

    def loss(kernel, images):
        maps = jax.lax.conv_general_dilated(
            images,
            kernel,
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return jnp.mean(jax.nn.relu(maps) ** 2)

    step = jax.jit(
        lambda kernel, images: kernel - jax.grad(loss)(kernel, images),
        compiler_options=dict(GRAPHS),
    )
    try:
        with jax.default_device(jax.local_devices()[0]):
            kernel, images = jnp.ones((3, 3, 8, 8)), jnp.ones((4, 16, 16, 8))
            for _ in range(3):  # A graph is captured in one of the first, then updated.
                kernel = step(kernel, images)
            kernel.block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        return messages.shorten(error)
    return ""


def platform() -> str:
    """What is compiled for: "cpu", "gpu" or "tpu", of a target or of the devices here."""
    import jax  # Late: flags are set before.

    return _target.get() or jax.default_backend()


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Traces and lowers for devices of this platform, which need not be here."""
    token = _target.set(platform)
    try:
        yield
    finally:
        _target.reset(token)
