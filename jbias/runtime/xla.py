"""Set XLA's flags, options and compilation cache, and jax settings that affect results.

The user's XLA flags stay, and are recorded with the results. `fixed_settings` overrides
the user's jax settings that affect results.
"""

import contextlib
import contextvars
import enum
import glob
import os
import re
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from jbias.runtime import files

_target = contextvars.ContextVar("_target", default="")
# The caller's values of the settings that `fixed_settings` has overridden.
_callers: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "_callers", default=types.MappingProxyType({})
)

# For GPUs only: overlaps sums between GPUs with computation. Recommended by
# https://docs.jax.dev/en/latest/gpu_performance_tips.html, and set in NVIDIA's images
# (https://docs.nvidia.com/jax-toolbox/environment-variables).
FLAGS: Mapping[str, str] = {"xla_gpu_enable_latency_hiding_scheduler": "true"}

# The part of a core's vector memory (128 MiB on these TPUs) that one operation may use. By
# the compiler's estimate, a step of ResNet-50 is 3 % faster than with the default, 16 MiB.
_VMEM: Mapping[str, str] = {"xla_tpu_scoped_vmem_limit_kib": "32768"}
_LARGE_VMEM_TPUS = ("TPU v5 lite", "TPU v6")

# No kernels that sum in varying order, and no choice of kernels by measured speed
# (https://github.com/openxla/xla/pull/12520).
DETERMINISTIC: Mapping[str, str] = {"xla_gpu_deterministic_ops": "true"}

# Without an accelerator, its compiler prints warnings when jax starts. libtpu also queries
# the cloud for the type of machine, and allows only one process at a time.
_NO_TPU: Mapping[str, str] = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
_NO_GPU: Mapping[str, str] = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}


# Settings of jax that affect random numbers, dtypes or rounding, or that stop a run when a
# seed diverges. A run uses these values, not those of the environment or of jax.config.
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
# Settings of jax, and environment variables, that may change the last bits of results;
# they are recorded with the results.
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
# Flags of XLA that change no result: dumps, profiles, and devices, recorded elsewhere.
_IRRELEVANT_FLAGS = (
    "xla_dump",
    "xla_force_host_platform_device_count",
    "xla_hlo_profile",
)


def quiet_absent_backends(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set variables that silence the compilers of accelerators that this machine lacks.

    environment: the variables to change; variables that are already set stay. Call this
    before jax starts.
    """
    for device_files, variables in (
        (("/dev/accel*", "/dev/vfio/[0-9]*"), _NO_TPU),
        (("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg"), _NO_GPU),
    ):
        if not any(map(glob.glob, device_files)):
            for key, value in variables.items():
                environment.setdefault(key, value)


def set_flags(
    environment: MutableMapping[str, str] = os.environ, *, deterministic: bool = False
) -> None:
    """Add jbias's flags to XLA_FLAGS; flags that the user set stay.

    Also calls `quiet_absent_backends`. environment: the variables to change. deterministic:
    whether to add the flags for bitwise reproducible results on GPUs.
    """
    quiet_absent_backends(environment)
    user_flags = environment.get("XLA_FLAGS", "")
    user_names = {flag.lstrip("-").partition("=")[0] for flag in user_flags.split()}
    flags = {**FLAGS, **(DETERMINISTIC if deterministic else {})}
    added = [f"--{name}={x}" for name, x in flags.items() if name not in user_names]
    environment["XLA_FLAGS"] = " ".join(filter(None, (user_flags, *added)))


def cache_programs() -> None:
    """Keep compiled programs on disk, so that later starts do not compile again.

    The folder is JAX_COMPILATION_CACHE_DIR, or "xla" in jbias's cache. ValueError, which names
    the environment variable, if jax cannot be imported because the value of this variable is
    invalid, such as JAX_ENABLE_X64=maybe.
    """
    with naming_variables():
        import jax  # Late: XLA_FLAGS must be set first.

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(files.cache_path("xla")))


_VARIABLE_IN_ERROR = re.compile(r"JAX flag (\w+)|environment '(\w+)'")


@contextlib.contextmanager
def naming_variables() -> Iterator[None]:
    """Raise a ValueError that names the environment variable for which jax's import failed.

    Errors in the context that jax did not raise for a variable are raised unchanged.
    """
    try:
        yield
    except ValueError as error:
        match = _VARIABLE_IN_ERROR.search(str(error))
        if match is None:
            raise
        name = (match[1] or match[2]).upper()
        raise ValueError(
            f"{name}: must be a value that jax knows, got {os.environ.get(name, '')!r}; "
            "correct it, or leave it unset"
        ) from error


@contextlib.contextmanager
def fixed_settings() -> Iterator[list[str]]:
    """Set jax's settings to `SETTINGS` in the context, and restore them afterwards.

    Yields log lines: one line that names the overridden settings of the caller, or none.
    Settings of the process and of the calling thread are overridden, because the caller may
    be inside a context such as jax.enable_x64(True).
    """
    import jax  # Late: XLA_FLAGS must be set first.

    # jax has no public access to the process's value apart from the thread's value.
    from jax._src import config as jax_config

    all_states = jax_config.config_states
    # Other versions of jax may lack some settings.
    states = {name: all_states[name] for name in SETTINGS if name in all_states}
    caller_settings = {name: state.value for name, state in states.items()}
    lines = _overridden(caller_settings)
    with contextlib.ExitStack() as stack:
        for name, state in states.items():
            process_value = state.get_global()
            if _plain(process_value) != SETTINGS[name]:
                stack.callback(jax.config.update, name, process_value)
                jax.config.update(name, SETTINGS[name])
            stack.enter_context(state(SETTINGS[name]))
        # Without lines nothing was overridden; a nested context must not change `_callers`.
        if lines:
            stack.callback(_callers.reset, _callers.set(caller_settings))
        with _refusing_backends():
            yield lines


_NO_BACKEND = "Unable to initialize backend"


@contextlib.contextmanager
def _refusing_backends() -> Iterator[None]:
    """Raise a ValueError of one line if jax cannot use the devices of JAX_PLATFORMS."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(_NO_BACKEND):
            raise
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split()).partition(" (set JAX_PLATFORMS=")[0]
        raise ValueError(
            f"JAX_PLATFORMS: must name devices of this machine, such as cpu, got "
            f"{platforms!r} ({reason}); correct it, or leave it unset"
        ) from error


def _overridden(caller_settings: Mapping[str, Any]) -> list[str]:
    """Return a list of one line that names the settings that differ from `SETTINGS`.

    caller_settings: the caller's values by name. Empty if none differs.
    """
    differing = [
        f"{name.upper()}={_plain(value)}"
        for name, value in caller_settings.items()
        if _plain(value) != SETTINGS[name]
    ]
    if not differing:
        return []
    names = ", ".join(differing)
    return [
        f"settings: {names}: overridden, so that results do not depend on jax's settings"
    ]


@contextlib.contextmanager
def callers_settings() -> Iterator[None]:
    """Restore the settings from before `fixed_settings`, in this thread and context.

    The user's own code runs inside this context.
    """
    from jax._src import config as jax_config  # As in `fixed_settings`.

    with contextlib.ExitStack() as stack:
        for name, value in _callers.get().items():
            stack.enter_context(jax_config.config_states[name](value))
        yield


def _plain(value: Any) -> Any:
    """Return a setting in the form of `SETTINGS`: for an enum member, its lower-case name."""
    return value.name.lower() if isinstance(value, enum.Enum) else value


def recorded_settings(
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Return the flags, variables and settings that may change the last bits of results.

    The keys are "XLA_FLAGS" (its value is a sorted list, without flags that cannot change
    results), the names of environment variables that are set, and the names of jax's settings
    (with values as text).
    """
    import jax  # Late: XLA_FLAGS must be set first.

    flags = environment.get("XLA_FLAGS", "").split()
    flags = [
        flag for flag in flags if not flag.lstrip("-").startswith(_IRRELEVANT_FLAGS)
    ]
    settings: dict[str, Any] = {"XLA_FLAGS": sorted(flags)}
    for variable in _VARIABLES:
        if environment.get(variable):
            settings[variable] = environment[variable]
    for name in _RECORDED:
        if name in jax.config.values:
            settings[name] = str(_plain(jax.config.values[name]))
    return settings


def compiler_options(kind: str) -> dict[str, str] | None:
    """Return jbias's compiler options by name, without options that the user has set.

    kind: jax's `device_kind`, such as "TPU v6". None if there are no options. A GPU's options
    for CUDA graphs are in `cuda_graphs`.
    """
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    options = _VMEM if kind.startswith(_LARGE_VMEM_TPUS) else {}
    return {name: x for name, x in options.items() if name not in flags} or None


def jit(
    function: Callable[..., Any],
    *,
    static_argnums: int,
    donate_argnums: Sequence[int],
    kind: str,
    extra_options: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """Return the function jitted with `compiler_options(kind)` and extra options.

    static_argnums, donate_argnums: see `jax.jit`. kind: jax's `device_kind`. extra_options:
    further compiler options by name.
    """
    import jax  # Late: XLA_FLAGS must be set first.

    options = {**(compiler_options(kind) or {}), **(extra_options or {})}
    return jax.jit(
        function,
        static_argnums=static_argnums,
        donate_argnums=donate_argnums,
        compiler_options=options or None,
    )


def platform() -> str:
    """Return "cpu", "gpu" or "tpu": the target of `compiling_for`, else jax's backend."""
    import jax  # Late: XLA_FLAGS must be set first.

    return _target.get() or jax.default_backend()


def is_compiling_for_target() -> bool:
    """Return True inside `compiling_for`: compiled programs will not run on this machine."""
    return bool(_target.get())


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Make `xla.platform` return `platform` in the context, to compile without devices."""
    token = _target.set(platform)
    try:
        yield
    finally:
        _target.reset(token)
