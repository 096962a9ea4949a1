"""XLA's flags, compiler options and compilation cache; what the user set stays."""

import contextlib
import contextvars
import glob
import os
from collections.abc import Iterator, Mapping, MutableMapping

from jbias.runtime import files

_target = contextvars.ContextVar("_target", default="")

# Only GPUs know them. Sums between GPUs run beside the computation: recommended by
# https://docs.jax.dev/en/latest/gpu_performance_tips.html, and set in NVIDIA's images
# (https://docs.nvidia.com/jax-toolbox/environment-variables).
FLAGS: Mapping[str, str] = {"xla_gpu_enable_latency_hiding_scheduler": "true"}

# How much of a core's vector memory, 128 MiB on these TPUs, one operation may take: by
# the compiler's estimate a ResNet-50's step is 3 % faster than with its 16 MiB.
_VMEM: Mapping[str, str] = {"xla_tpu_scoped_vmem_limit_kib": "32768"}
_ROOMY = ("TPU v5 lite", "TPU v6")

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
    """Keeps compiled programs on disk, so that a second start does not wait."""
    import jax  # Late: flags are set before.

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(files.cache_path("xla")))


def compiler_options(kind: str) -> dict[str, str] | None:
    """Of the compiler of steps for a `device_kind`; what the user set stays."""
    given = os.environ.get("LIBTPU_INIT_ARGS", "")
    ours = _VMEM if kind.startswith(_ROOMY) else {}
    return {k: v for k, v in ours.items() if k not in given} or None


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
