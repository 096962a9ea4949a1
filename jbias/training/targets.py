"""Devices to compile for without having them, and what each of them offers.

The compiler for TPUs comes with libtpu, that for GPUs with jax's CUDA plugin; both are in
the extra `plan`, and neither needs a device or NVIDIA's libraries.
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
    """A generation of devices; figures of one device as jax counts them.

    From the vendors' data sheets. A chip of v2, v3 and tpu7x is two devices.
    """

    platform: str
    name: str  # Part of its `device_kind`.
    gib: float  # Of its own memory.
    flops: float  # A second, dense products in bfloat16.
    bytes: float  # A second, of its memory.
    hertz: float = 0.0  # Cycles a second that a TPU's compiler counts in.
    axes: int = 0  # Of a TPU's topology.
    cores: int = 1  # That one device counts as in names such as v4-32.
    between: float = 0.0  # Bytes a second from a device to its neighbours, all links.


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
    """What the compiler for GPUs asks of one; openxla/xla, target_config/specs."""

    capability: int
    cores: int
    fpus: int  # A core.
    shared: int  # Bytes a core,
    block: int  # and a block, if it asks.
    l2: int  # Bytes.
    gigahertz: float


_A_MACHINE, _A_HOST = 8, 4  # GPUs, and a TPU's chips.
_GPUS = {
    "a100": GpuConfig(8, 108, 64, 167936, 166912, 41943040, 1.41),
    "h100": GpuConfig(9, 132, 128, 233472, 232448, 52428800, 1.98),
    "h200": GpuConfig(9, 132, 128, 233472, 232448, 52428800, 1.98),
    "b200": GpuConfig(10, 148, 128, 233472, 232448, 132644864, 1.965),
}


class Target(NamedTuple):
    """So many devices of a kind, such as v5e:4x4 or h100x8."""

    name: str
    generation: str  # A key of KINDS; "cpu" is this machine.
    shape: tuple[int, ...]  # Of a TPU's topology in chips; else (count,).

    @property
    def kind(self) -> DeviceKind | None:
        return KINDS.get(self.generation)

    @property
    def platform(self) -> str:
        return self.kind.platform if self.kind else "cpu"


def parse(text: str, where: str = "--on") -> Target:
    """Reads v5e:4x4, v5e-16, v4-32 (cores, as clouds name it), h100x8, h200, cpu."""
    found = re.fullmatch(r"([a-z]+\d*[a-z]*?)(?::([\dx]+)|[x-](\d+))?", text.lower())
    generation = found[1] if found else ""
    if generation == "cpu" and not (found[2] or found[3]):
        return Target(text, "cpu", (1,))
    kind = KINDS.get(generation)
    if kind is None:
        raise ValueError(
            f"{where}: must be cpu or one of {', '.join(KINDS)} with a topology or a "
            f"count, such as v5e:4x4, v5e-16 or h100x8, got {text!r}"
        )
    if kind.platform == "gpu":
        count = 0 if found[2] else int(found[3] or 1)
        whole = count <= _A_MACHINE or count % _A_MACHINE == 0
        shape, usual = (count * whole,), f"{generation}x8, up to 8 GPUs or a multiple"
    else:
        cores = 2 if generation in ("v2", "v3") else kind.cores  # Of a chip.
        shape = tuple(map(int, filter(None, (found[2] or "").split("x"))))
        count = int(found[3] or cores)
        shape = shape or _shape(0 if count % cores else count // cores, kind.axes)
        sides = "x".join("2" * kind.axes)
        usual = f"{generation}:{sides} or {generation}-{4 * cores}, powers of two"
    if len(shape) != (kind.axes or 1) or not math.prod(shape):
        raise ValueError(f"{where}: must be such as {usual}, got {text!r}")
    return Target(text, generation, shape)


def _shape(chips: int, axes: int) -> tuple[int, ...]:
    """The topology of so many chips: powers of two, as even as can be."""
    sides = [1] * axes
    for _ in range(max(0, chips.bit_length() - 1)):
        sides[sides.index(min(sides))] *= 2
    return tuple(sorted(sides)) if math.prod(sides) == chips else (0,) * axes


def from_device_kind(kind: str, count: int) -> Target:
    """The target that so many devices of a `device_kind` are; ValueError if none is."""
    names = [name for name, one in KINDS.items() if one.name in kind]
    if kind == "cpu" or not names:
        return parse(kind, "device")
    name = max(names, key=lambda name: len(KINDS[name].name))
    gpu = KINDS[name].platform == "gpu"
    return parse(f"{name}x{count}" if gpu else f"{name}-{count * KINDS[name].cores}")


# What brings a platform's compiler, and how messages name it.
_COMPILERS = {
    "tpu": ("libtpu", "the compiler for TPUs, libtpu"),
    "gpu": ("jax_cuda13_plugin", "the compiler for GPUs, jax's CUDA plugin"),
}


def devices(target: Target) -> list:
    """The target's devices, which need not be here. ValueError where none can be had."""
    if target.platform == "cpu":
        return jax.devices("cpu")
    package, compiler = _COMPILERS[target.platform]
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{target.name}: needs {compiler}; pip install 'jbias[plan]'")
    xla.quiet_absent_backends()
    count, sides = math.prod(target.shape), "x".join(map(str, target.shape))
    if target.platform == "tpu":
        asked, options = (f"{target.generation}:{sides}", "tpu"), {}
        if count < _A_HOST:  # Chips; else the compiler wants whole hosts.
            options["chips_per_host_bounds"] = (*target.shape, 1)[:3]
        elif target.generation in ("v5e", "v6e") and target.shape == (2, 4):
            options["chips_per_host_bounds"] = (2, 4, 1)  # A host of its own.
        if target.generation == "v4":  # One device a chip, as jax has them.
            options["chip_config_name"] = "megacore"
    else:
        machines = count // _A_MACHINE if count % _A_MACHINE == 0 else 1
        asked = (target.generation, "cuda")
        options = {"target_config": _config(target.generation)}
        options["topology"] = f"1x{machines}x{count // machines}"
    try:
        return topologies.get_topology_desc(*asked, **options).devices
    except (NotImplementedError, jax.errors.JaxRuntimeError) as error:
        why = f"{compiler}, cannot compile for it: {str(error).splitlines()[0]}"
        raise ValueError(f"{target.name}: {why}") from error


# Without a version of the driver XLA keeps convolutions out of CUDA graphs.
_CUDA = "13.0.0"


def _config(generation: str) -> str:
    """A GpuTargetConfigProto as text."""
    gpu, kind = _GPUS[generation], KINDS[generation]
    accelerated = "feature_extension: ACCELERATED_FEATURES" * (gpu.capability > 8)
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
