"""Parse the names of devices to compile for, and list the limits of these devices.

The compiler for TPUs comes with libtpu, the compiler for GPUs with jax's CUDA plugin. Both
compilers are in the extra `plan`. Neither compiler needs a device or NVIDIA's libraries.
"""

import importlib.util
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import jax
from jax.experimental import topologies

from jbias.runtime import xla


class DeviceKind(NamedTuple):
    """A generation of devices, with the data sheet's figures of one jax device.

    A chip of TPU v2, v3 and tpu7x is two jax devices.
    """

    platform: str  # "tpu", "gpu" or "cpu".
    name: str  # A substring of jax's `device_kind`.
    gib: float  # Memory of the device.
    flops: float  # Operations per second of dense products in bfloat16.
    bytes: float  # Bytes of memory per second.
    hertz: float = 0.0  # Cycles per second; a TPU's compiler estimates cycles.
    axes: int = 0  # Number of axes of a TPU's topology.
    cores: int = 1  # Cores per device in names such as v4-32.
    between: float = 0.0  # Bytes per second to the neighbouring devices, all links.


KINDS: Mapping[str, DeviceKind] = {
    "v2": DeviceKind("tpu", "TPU v2", 8, 23e12, 350e9, 0.7e9, 2, 1, 62e9),
    "v3": DeviceKind("tpu", "TPU v3", 16, 61.5e12, 450e9, 0.94e9, 2, 1, 82e9),
    "v4": DeviceKind("tpu", "TPU v4", 32, 275e12, 1228e9, 1.05e9, 3, 2, 300e9),
    "v5e": DeviceKind("tpu", "TPU v5 lite", 16, 197e12, 819e9, 1.5e9, 2, 1, 200e9),
    "v5p": DeviceKind("tpu", "TPU v5", 95, 459e12, 2765e9, 1.75e9, 3, 2, 600e9),
    "v6e": DeviceKind("tpu", "TPU v6", 32, 918e12, 1640e9, 1.75e9, 2, 1, 400e9),
    "tpu7x": DeviceKind("tpu", "TPU7x", 96, 1153e12, 3690e9, 2.2e9, 3, 1, 600e9),
    "a100": DeviceKind("gpu", "A100-SXM4-80GB", 79.25, 312e12, 2039e9, between=300e9),
    "h100": DeviceKind("gpu", "H100", 79.1, 989e12, 3352e9, between=450e9),
    "h200": DeviceKind("gpu", "H200", 141, 989e12, 4800e9, between=450e9),
    "b200": DeviceKind("gpu", "B200", 178.4, 2250e12, 7672e9, between=900e9),
}


class GpuConfig(NamedTuple):
    """Figures of a GPU for XLA's compiler, from openxla/xla, target_config/specs."""

    capability: int  # Major compute capability.
    cores: int
    fpus: int  # Per core.
    shared: int  # Bytes of shared memory per core.
    block: int  # Bytes of shared memory per block, with opt-in.
    l2: int  # Bytes of the L2 cache.
    gigahertz: float


_GPUS_PER_MACHINE = 8
_CHIPS_PER_HOST = 4  # Chips per host of a TPU.
_GPUS = {
    "a100": GpuConfig(8, 108, 64, 167936, 166912, 41943040, 1.41),
    "h100": GpuConfig(9, 132, 128, 233472, 232448, 52428800, 1.98),
    "h200": GpuConfig(9, 132, 128, 233472, 232448, 52428800, 1.98),
    "b200": GpuConfig(10, 148, 128, 233472, 232448, 132644864, 1.965),
}


class Target(NamedTuple):
    """A number of devices of one kind, such as v5e:4x4 or h100x8."""

    name: str
    generation: str  # A key of KINDS, or "cpu": this machine.
    shape: tuple[int, ...]  # Chips along the axes of a TPU's topology; else (count,).

    @property
    def kind(self) -> DeviceKind | None:
        """The kind of the devices; None for "cpu"."""
        return KINDS.get(self.generation)

    @property
    def platform(self) -> str:
        """The platform of the devices: "tpu", "gpu" or "cpu"."""
        return self.kind.platform if self.kind else "cpu"


def parse(text: str, where: str = "--on") -> Target:
    """Return the Target with a name, such as v5e:4x4, v5e-16, h100x8, h200 or cpu.

    text: the name, in upper or lower case. After a colon, the name of a TPU has the number of
    chips along each axis. The number after a hyphen is the number of chips, except for v2 to v4
    and v5p, where it is the number of cores, two per chip; the most even topology is used. A
    name without a number means one chip or GPU. where: name of the flag, for messages.

    ValueError for an unknown kind, a wrong number of axes, a number of TPU chips after a hyphen
    that is not a power of two, and a number of GPUs above 8 that is not a multiple of 8.
    """
    pattern = r"([a-z]+\d*[a-z]*?)(?::(?P<topology>[\dx]+)|[x-](?P<count>\d+))?"
    match = re.fullmatch(pattern, text.lower())
    generation = match[1] if match else ""
    if generation == "cpu" and not (match["topology"] or match["count"]):
        return Target(text, "cpu", (1,))
    kind = KINDS.get(generation)
    if kind is None:
        raise ValueError(
            f"{where}: must be cpu or one of {', '.join(KINDS)} with a topology or a "
            f"count, such as v5e:4x4, v5e-16 or h100x8, got {text!r}"
        )
    if kind.platform == "gpu":
        count = 0 if match["topology"] else int(match["count"] or 1)
        is_valid = count <= _GPUS_PER_MACHINE or count % _GPUS_PER_MACHINE == 0
        shape = (count,) if is_valid else (0,)
        usual = f"{generation}x8, up to 8 GPUs or a multiple"
    else:
        chip_cores = 2 if generation in ("v2", "v3") else kind.cores
        shape = tuple(map(int, filter(None, (match["topology"] or "").split("x"))))
        cores = int(match["count"] or chip_cores)
        chips = 0 if cores % chip_cores else cores // chip_cores
        shape = shape or _topology(chips, kind.axes)
        sides = "x".join("2" * kind.axes)
        usual = f"{generation}:{sides} or {generation}-{4 * chip_cores}, powers of two"
    if len(shape) != (kind.axes or 1) or not math.prod(shape):
        raise ValueError(f"{where}: must be such as {usual}, got {text!r}")
    return Target(text, generation, shape)


def _topology(chips: int, axes: int) -> tuple[int, ...]:
    """Return the chips along each axis of the most even topology of `chips` chips.

    axes: number of axes. The result is all zeros unless `chips` is a power of two.
    """
    sides = [1] * axes
    for _ in range(max(0, chips.bit_length() - 1)):
        sides[sides.index(min(sides))] *= 2
    return tuple(sorted(sides)) if math.prod(sides) == chips else (0,) * axes


def from_device_kind(kind: str, count: int) -> Target:
    """Return the Target of `count` devices of a kind.

    kind: jax's `device_kind`, such as "NVIDIA H100 80GB HBM3"; for "cpu" the count is
    ignored. ValueError if the kind is unknown or `parse` refuses the count.
    """
    names = [name for name, device_kind in KINDS.items() if device_kind.name in kind]
    if kind == "cpu" or not names:
        return parse(kind, "device")
    name = max(names, key=lambda name: len(KINDS[name].name))
    if KINDS[name].platform == "gpu":
        return parse(f"{name}x{count}")
    return parse(f"{name}-{count * KINDS[name].cores}")


# By platform: the package with its compiler, and the compiler's name in messages.
_COMPILERS = {
    "tpu": ("libtpu", "the compiler for TPUs, libtpu"),
    "gpu": ("jax_cuda13_plugin", "the compiler for GPUs, jax's CUDA plugin"),
}


def devices(target: Target) -> list[jax.Device]:
    """Return the devices of a target, to compile for; this machine need not have them.

    ValueError if the compiler is missing or cannot compile for the target.
    """
    if target.platform == "cpu":
        return jax.devices("cpu")
    package, compiler = _COMPILERS[target.platform]
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{target.name}: needs {compiler}; pip install 'jbias[plan]'")
    xla.quiet_absent_backends()
    count, options = math.prod(target.shape), {}
    if target.platform == "tpu":
        sides = "x".join(map(str, target.shape))
        topology, platform = f"{target.generation}:{sides}", "tpu"
        # By default the compiler requires complete hosts.
        if count < _CHIPS_PER_HOST:
            options["chips_per_host_bounds"] = (*target.shape, 1)[:3]
        elif target.generation in ("v5e", "v6e") and target.shape == (2, 4):
            options["chips_per_host_bounds"] = (2, 4, 1)  # One host has all 8 chips.
        if target.generation == "v4":  # In jax, a chip is one device.
            options["chip_config_name"] = "megacore"
    else:
        has_whole_machines = count % _GPUS_PER_MACHINE == 0
        machines = count // _GPUS_PER_MACHINE if has_whole_machines else 1
        topology, platform = target.generation, "cuda"
        options["target_config"] = _gpu_target_config(target.generation)
        options["topology"] = f"1x{machines}x{count // machines}"
    try:
        return topologies.get_topology_desc(topology, platform, **options).devices
    except (NotImplementedError, jax.errors.JaxRuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{target.name}: {compiler}, cannot compile for this target: {reason}"
        ) from error


# Without a version of the driver XLA keeps convolutions out of CUDA graphs.
_CUDA = "13.0.0"


def _gpu_target_config(generation: str) -> str:
    """Return XLA's GpuTargetConfigProto of a GPU as text; generation: such as "h100"."""
    gpu, kind = _GPUS[generation], KINDS[generation]
    accelerated = ""
    if gpu.capability > 8:
        accelerated = "feature_extension: ACCELERATED_FEATURES"
    return f"""
    gpu_device_info {{
      threads_per_block_limit: 1024  threads_per_warp: 32
      shared_memory_per_block: 49152  shared_memory_per_core: {gpu.shared}
      shared_memory_per_block_optin: {gpu.block}  threads_per_core_limit: 2048
      core_count: {gpu.cores}  fpus_per_core: {gpu.fpus}
      block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
      thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
      memory_bandwidth: {kind.bytes:.0f}  l2_cache_size: {gpu.l2}
      clock_rate_ghz: {gpu.gigahertz}  device_memory_size: {round(kind.gib * 2**30)}
      registers_per_core_limit: 65536  registers_per_block_limit: 65536
      cuda_compute_capability {{ major: {gpu.capability} {accelerated} }}
      driver_version: "{_CUDA}"  runtime_version: "{_CUDA}"
      compile_time_toolkit_version: "{_CUDA}"
    }}
    platform_name: "CUDA"
    dnn_version_info {{ major: 9 minor: 10 }}
    device_description_str: "{kind.name}"
    """
