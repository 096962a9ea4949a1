"""Estimate the time of a compiled step on a GPU from its kernels and launches.

XLA's compiler for GPUs estimates no times. Here the time of a kernel is the longest of three
times: the time to move its bytes, the time to compute its products, and the time of a small
kernel. The time of a gap is added after each kernel. A launch is a CUDA graph, a call of cuDNN
or a single kernel that the host starts. Times of kernels and launches are added, as if the
device waited for each launch; if the device does not wait, the sum is too large. Grouped
convolutions are slower than estimated.
"""

import collections
import itertools
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping

import jax

from jbias.training.tuning import hlo, targets

# The following four constants are assumed, not fitted to steps of jbias.
# Share of the data sheet's bandwidth that a kernel reaches: 2.9 TB/s on an H100.
BANDWIDTH_SHARE = 0.87
# Share of the peak that convolutions and matrix products reach: that of complete training
# in airbench96, 4.9 PFLOP in 34.7 s on an A100 of 312 Tflop/s
# (https://github.com/KellerJordan/cifar10-airbench).
PRODUCT_SHARE = 0.45
# Shortest time of a kernel, and time of starting a kernel outside a CUDA graph.
KERNEL_SECONDS = 2.5e-6
LAUNCH_SECONDS = 5e-6
# The least time of a convolution, and the time between two kernels of a CUDA graph, both as
# profiled on an H200 (benchmarks/results/gpu-h200.md): the mean of the convolutions of a
# ResNet-18 of width 16, and the step's time without its kernels, by kernel.
CONVOLUTION_KERNEL_SECONDS = 12e-6
GAP_SECONDS = 1.5e-6
# Solved from two measured figures, an H100 with XLA's default graphs: steps of one seed and
# of ten seeds (`unrolled_convolutions`), ResNet-18 of width 16, in
# benchmarks/results/gpu-h100.md. They include the host's work to start a step.
GRAPH_SECONDS = 39e-6
CONVOLUTION_SECONDS = 13e-6

# Accuracy of the estimate; benchmarks/results/plan_accuracy-gpu.md has all figures.
MEASURED = (
    "steps measured on an H100 and an H200 took 0.7 to 1.2 of the planned time "
    "(docs/plan.md#planned-and-measured)"
)
UNCOUNTED = (
    "launches are not counted, as this version of XLA does not write them: a step of a small "
    "network takes longer than planned"
)
GROUPED = (
    "convolutions in groups (vmapped seeds, depthwise layers) are slower than estimated: "
    "steps of ten vmapped seeds took 1.7 and 3.5 times as long on an H100"
)
_LAUNCHES = {"kCommandBuffer": GRAPH_SECONDS, "kConvolution": CONVOLUTION_SECONDS}
_SEQUENCES = ("*thunk_sequence_after_thunk_passes.txt", "*thunk_sequence.txt")
_LINE = re.compile(r"(?P<indent> *)\d+: (?P<kind>k\w+)")
_GROUPED = re.compile(r"feature_group_count=(?:[2-9]|\d\d).*__cudnn\$conv")


def compile_launches(
    program: jax.stages.Lowered,
) -> tuple[jax.stages.Compiled, dict[str, float]]:
    """Return the compiled program, and the number of launches in one run of the program.

    program: lowered for a GPU target. Launches are by XLA's kind, as `count_launches`
    returns them; {} if this version of XLA does not write them.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Without the GPU, candidate kernels cannot be timed (autotuning).
        options = {"xla_gpu_autotune_level": 0, "xla_dump_to": folder}
        compiled = program.compile(options)
        turns = hlo.loop_turns(compiled.as_text())
        return compiled, count_launches(read_sequence(folder), turns)


def read_sequence(folder: str | os.PathLike) -> str:
    """Return the text of the sequence of launches that XLA wrote into a folder.

    XLA writes a second sequence if its passes change the first, such as by forming CUDA graphs;
    then the second sequence is returned. "" if this version of XLA writes no sequence.
    """
    for pattern in _SEQUENCES:
        for path in pathlib.Path(folder).glob(pattern):
            return path.read_text(encoding="utf-8")
    return ""


def count_launches(sequence: str, turns: Iterable[float] = ()) -> dict[str, float]:
    """Return the mean number of launches in one run of a program, by XLA's kind of launch.

    sequence: one line per launch. Lines inside a CUDA graph, a loop or a branch are
      indented; launches inside a graph are not counted. kCommandBuffer is a graph,
      kConvolution a call of cuDNN. Both branches of a conditional are equally likely.
    turns: iterations of each loop, in the order of the sequence; 1 for further loops.
    """
    counts: dict[str, float] = collections.Counter()
    remaining = itertools.chain(turns, itertools.repeat(1.0))
    runs = [1.0]  # Runs of a launch by its depth; 0 inside a graph.
    for match in filter(None, map(_LINE.match, sequence.splitlines())):
        del runs[len(match["indent"]) // 4 + 1 :]
        kind, times = match["kind"], runs[-1]
        if times:
            counts[kind] += times
        if kind == "kCommandBuffer":
            inside = 0.0
        elif kind == "kWhile":
            inside = times * next(remaining)
        else:
            inside = times / 2 if kind == "kConditional" else times
        runs.append(inside)
    return dict(counts)


def kernel_seconds(operation: hlo.Operation, kind: targets.DeviceKind) -> float:
    """Return the estimated seconds of all runs of an operation, and of the gaps after the runs.

    kind: the GPU. Return 0.0 if the operation reads and writes no memory. Products of
    float32 run as TF32, at half the peak of bfloat16.
    """
    if not operation.bytes:
        return 0.0
    slowdown = max(1.0, operation.factor_bytes / 2)
    products = slowdown * operation.flops / (PRODUCT_SHARE * kind.flops)
    moving = operation.bytes / (BANDWIDTH_SHARE * kind.bytes)
    is_convolution = operation.target.startswith("__cudnn$conv")
    least = CONVOLUTION_KERNEL_SECONDS if is_convolution else KERNEL_SECONDS
    return operation.runs * (max(products, moving, least) + GAP_SECONDS)


def launch_seconds(launches: Mapping[str, float]) -> float:
    """Return the total seconds of launches, given as `count_launches` returns them."""
    return sum(
        count * _LAUNCHES.get(kind, LAUNCH_SECONDS) for kind, count in launches.items()
    )


def has_grouped_convolutions(text: str) -> bool:
    """Return True if a compiled program's HLO text has convolutions of several groups."""
    return any(_GROUPED.search(line) for line in text.splitlines())
