"""Flags of XLA, set before jax looks at the devices; what the user set stays."""

import os
import types
from collections.abc import Mapping, MutableMapping

# Only GPUs know them. Sums between GPUs run beside the computation: recommended by
# https://docs.jax.dev/en/latest/gpu_performance_tips.html, and set in NVIDIA's images
# (https://docs.nvidia.com/jax-toolbox/environment-variables).
FLAGS: Mapping[str, str] = types.MappingProxyType(
    {"xla_gpu_enable_latency_hiding_scheduler": "true"}
)


# No kernel whose sums come in any order, and no choice of kernels by how fast they were
# just now (https://github.com/openxla/xla/pull/12520).
DETERMINISTIC: Mapping[str, str] = types.MappingProxyType(
    {"xla_gpu_deterministic_ops": "true"}
)


def set_flags(
    environment: MutableMapping[str, str] = os.environ, *, deterministic: bool = False
) -> None:
    """Adds our flags to XLA_FLAGS; one that stands there already is left as it is."""
    given = environment.get("XLA_FLAGS", "")
    known = {flag.lstrip("-").partition("=")[0] for flag in given.split()}
    ours = {**FLAGS, **(DETERMINISTIC if deterministic else {})}
    added = [f"--{k}={v}" for k, v in ours.items() if k not in known]
    environment["XLA_FLAGS"] = " ".join(filter(None, (given, *added)))
