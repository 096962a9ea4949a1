"""Summarise a profile of training steps as a Markdown page of times by operation."""

import collections
import os
import pathlib
import re
import time
from collections.abc import Hashable, Mapping

import jax
from etils import epath

from jbias.runtime import files, messages
from jbias.training import placement, seed_axis, strategies
from jbias.training.tuning import hlo, memory_estimate, targets

_TABLE_ROWS = 20

# Devices that `jbias plan` does not know: GiB of memory, operations per second of dense
# products in bfloat16 (Volta and Turing: float16) and bytes of memory per second. From the
# vendors' data sheets.
_UNPLANNED_KINDS = (
    targets.DeviceKind("gpu", "H100 PCIe", 80, 756e12, 2000e9),
    targets.DeviceKind("gpu", "A100", 40, 312e12, 1555e9),
    targets.DeviceKind("gpu", "A100 80GB PCIe", 80, 312e12, 1935e9),
    targets.DeviceKind("tpu", "TPU v5e", 16, 197e12, 819e9),
    targets.DeviceKind("gpu", "L40S", 48, 362e12, 864e9),
    targets.DeviceKind("gpu", "L4", 24, 121e12, 300e9),
    targets.DeviceKind("gpu", "A10", 24, 125e12, 600e9),
    targets.DeviceKind("gpu", "V100", 32, 125e12, 900e9),
    targets.DeviceKind("gpu", "T4", 16, 65e12, 320e9),
)


def device_limits(kind: str) -> targets.DeviceKind | None:
    """Return the data sheet's limits of a device; None if they are not known.

    kind: jax's `device_kind`, such as "TPU v5e". If `kind` contains several known names, the
    longest name is used.
    """
    known = (*targets.KINDS.values(), *_UNPLANNED_KINDS)
    matches = [device for device in known if device.name in kind]
    return max(matches, key=lambda device: len(device.name), default=None)


def markdown_page(
    folder: os.PathLike,
    trained: placement.PlacedStage,
    static: Hashable,
    *,
    steps: int,
    seconds: float,
) -> str:
    """Return a Markdown summary of a trace of `steps` steps of a placed stage.

    folder: folder of the trace. static: static argument of the steps (`Stage.static`).
    seconds: measured time of all traced steps. Operations and bytes are the compiler's count
    for one seed's step. Times by operation are sums over all threads or streams, without
    waiting.
    """
    stage, count = trained.stage, len(trained.stage.members)
    program = memory_estimate.lower_step(
        stage.program.step,
        strategies.STRATEGIES["looped"],
        shapes=stage.shapes._replace(static=static),
        devices=trained.layout.devices,
        count=1,
    ).compile()
    cost, program_memory = program.cost_analysis(), program.memory_analysis()
    arguments = files.format_size(program_memory.argument_size_in_bytes)
    temporary = files.format_size(program_memory.temp_size_in_bytes)
    by_operation = time_by_operation(folder, label_operations(program.as_text()))
    by_kind = collections.Counter()
    for (kind, where), nanoseconds in by_operation.items():
        direction = "backward" if where.startswith("backward") else ""
        by_kind[kind, direction] += nanoseconds
    device = jax.devices()[0].device_kind
    seed_steps_per_second = steps * count / seconds
    images_per_second = seed_steps_per_second * stage.order.batch
    lines = [
        f"# {steps} steps of {count} seeds on {device}",
        "",
        (
            f"{1000 * seconds / steps:.2f} ms per step of all seeds, "
            f"{images_per_second:,.0f} images/s of all seeds together: elapsed time, with "
            "tracing. The tables below count only operations, summed over all threads or "
            "streams."
        ),
        "",
        "| | per step of a seed | per second, all seeds | of the device's limit |",
        "| --- | --- | --- | --- |",
        _limit_row(
            "operations",
            cost.get("flops", 0),
            rate=seed_steps_per_second,
            device=device,
            limit="flops",
        ),
        _limit_row(
            "bytes moved",
            cost.get("bytes accessed", 0),
            rate=seed_steps_per_second,
            device=device,
            limit="bytes",
        ),
        "",
        (
            f"Memory of one seed's step: {arguments} of arguments and {temporary} of "
            "temporary values."
        ),
        *_time_table("kind", by_kind, steps),
        *_time_table("operation", by_operation, steps),
    ]
    return "\n".join(lines) + "\n"


def _time_table(
    heading: str, spent: collections.Counter[tuple[str, str]], steps: int
) -> list[str]:
    """Return the lines of a Markdown table of the 20 longest times, after an empty line.

    The columns are kind, place, share of the total in percent, and milliseconds per step.
    heading: head of the first column, "kind" or "operation". spent: nanoseconds, summed over
    `steps` steps, by (kind, place) as in `label_operations`.
    """
    total = sum(spent.values()) or 1
    rows = [
        f"| {kind} | {where} | {100 * nanoseconds / total:.1f} % "
        f"| {nanoseconds / 1e6 / steps:.3f} |"
        for (kind, where), nanoseconds in spent.most_common(_TABLE_ROWS)
    ]
    head = f"| {heading} | where | share | ms per step |"
    return ["", head, "| --- | --- | --- | --- |", *rows]


def _limit_row(
    quantity: str, amount: float, *, rate: float, device: str, limit: str
) -> str:
    """Return the Markdown table row of an amount per step and its share of a limit.

    quantity: first cell, such as "operations". amount: per step of one seed. rate: steps of
    a seed per second. device: jax's `device_kind`. limit: "flops" or "bytes", the field of
    `targets.DeviceKind` with the device's maximum per second. The share is in percent, or
    "not known" for an unknown device.
    """
    share, limits = "not known", device_limits(device)
    if limits:
        share = f"{100 * amount * rate / getattr(limits, limit):.1f} %"
    return f"| {quantity} | {amount:.3g} | {amount * rate:.3g} | {share} |"


def label_operations(program: str) -> dict[str, tuple[str, str]]:
    """Return the label (kind, place) of each operation by its name in the trace.

    program: HLO text of a compiled program. A label is, for example,
    ("conv_general_dilated", "backward stage1_block0/conv1"): the place is "backward " in
    gradients, then the last two named modules. Operations without JAX's op_name are left
    out.
    """
    labels, control_flow = {}, ("body", "while", "cond")
    for operation in hlo.operations(program):
        if operation.scope:
            *path, kind = operation.scope.split("/")
            modules = [
                name
                for name in path
                if re.fullmatch(r"[a-z]\w*", name) and name not in control_flow
            ]
            direction = "backward " if hlo.is_backward(operation.scope) else ""
            labels[operation.name] = (kind, direction + "/".join(modules[-2:]))
    return labels


def time_by_operation(
    folder: os.PathLike, names: Mapping[str, tuple[str, str]]
) -> collections.Counter:
    """Return nanoseconds by label, summed over all threads and streams of a trace.

    folder: folder with traces, of which the latest is read; ValueError without a trace.
    names: label of each operation by its name, from `label_operations`; other operations
    are left out.
    """
    traces = [*pathlib.Path(folder).rglob("*.xplane.pb")]
    if not traces:
        raise ValueError(f"{folder}: must have a trace, *.xplane.pb; got none")
    latest = max(traces, key=lambda path: path.stat().st_mtime)
    nanoseconds = collections.Counter()
    for plane in jax.profiler.ProfileData.from_file(str(latest)).planes:
        for line in plane.lines:
            for event in line.events:
                name = dict(event.stats).get("hlo_op", event.name)
                if name in names:
                    nanoseconds[names[name]] += event.duration_ns
    return nanoseconds


class Profiler:
    """Runs a few steps under JAX's profiler, and writes the page profile.md to the workdir.

    is_done: True once the page is written.
    """

    def __init__(self, workdir: epath.Path, say: messages.Say):
        self.is_done = False
        self._workdir, self._say = workdir, say

    def advance(
        self,
        trained: placement.PlacedStage,
        states: seed_axis.PackedStates,
        steps: placement.Steps,
    ) -> tuple[seed_axis.PackedStates, list[seed_axis.PackedStates]]:
        """Run steps under the profiler; return (states, metrics per step), and write the page.

        Steps of a compiled loop are dispatched one by one, because the page has the operations of
        a single step; the first of these dispatches compiles the step and is not traced. Metrics
        are returned for all steps. A trace for TensorBoard and Perfetto is in the folder profile.
        """
        dispatches, metrics = [steps.arguments], []
        if 1 < len(steps.arguments) == trained.scanned:
            first, *later = ([argument] for argument in steps.arguments)
            states, metrics = trained.advance(states, steps._replace(arguments=first))
            dispatches = later
        jax.block_until_ready(states)
        folder, page = self._workdir / "profile", self._workdir / "profile.md"
        with jax.profiler.trace(str(folder)):
            start = time.perf_counter()
            for arguments in dispatches:
                states, outputs = trained.advance(
                    states, steps._replace(arguments=arguments)
                )
                metrics = [*metrics, *outputs]
            jax.block_until_ready(states)
            seconds = time.perf_counter() - start
        num_traced = sum(map(len, dispatches))
        text = markdown_page(
            folder, trained, steps.static, steps=num_traced, seconds=seconds
        )
        files.write(page, text)
        self.is_done = True
        self._say(f"profile of {num_traced} steps: {page}")
        return states, metrics
