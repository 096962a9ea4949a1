"""Where the time of a step goes: a trace, and a page that sums it up."""

import collections
import os
import pathlib
import re
from collections.abc import Hashable, Mapping

import jax

from jbias.runtime import files
from jbias.training import hlo, memory, seed_axis, stages, targets

_ROWS = 20  # Of each table.

# Nothing is planned for these: dense products in bfloat16 (Volta and Turing: float16) and
# bytes of memory, a second. From the vendors' data sheets.
_OTHERS = (
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
    """What is known of a device of this `device_kind`."""
    fitting = [x for x in (*targets.KINDS.values(), *_OTHERS) if x.name in kind]
    return max(fitting, key=lambda one: len(one.name), default=None)


def markdown_page(
    folder: os.PathLike,
    stage: stages.Stage,
    static: Hashable,
    *,
    steps: int,
    count: int,
    seconds: float,
) -> str:
    """Sums a trace of `steps` steps of `count` seeds up, as Markdown.

    `static` is that of these steps.

    Operations and bytes are the compiler's count for one seed's step. Time by operation
    is that of all threads or streams together, without what waits for another.
    """
    looped, shapes = seed_axis.STRATEGIES["looped"], stage.shapes
    asked = looped, shapes._replace(static=static), stage.layout.devices, 1
    program = memory.lower_step(stage.program.step, *asked).compile()
    cost, taken = program.cost_analysis(), program.memory_analysis()
    arguments, temporary = map(
        files.format_size, (taken.argument_size_in_bytes, taken.temp_size_in_bytes)
    )
    spent = time_by_operation(folder, label_operations(program.as_text()))
    kinds = collections.Counter()  # By kind and direction alone.
    for (kind, where), nanoseconds in spent.items():
        kinds[kind, "backward" * where.startswith("backward")] += nanoseconds
    device, rate = jax.devices()[0].device_kind, steps * count / seconds
    lines = [
        f"# {steps} steps of {count} seeds on {device}",
        "",
        (
            f"{1000 * seconds / steps:.2f} ms a step of all seeds, "
            f"{rate * stage.order.batch:,.0f} images/s in all, by the clock and traced. "
            "Below, ms a step are of operations alone, on all threads or streams together."
        ),
        "",
        "| | a seed's step | a second, all seeds | of the device's limit |",
        "| --- | --- | --- | --- |",
        _limit("operations", cost.get("flops", 0), rate, device, "flops"),
        _limit("bytes moved", cost.get("bytes accessed", 0), rate, device, "bytes"),
        "",
        (f"Memory of one seed's step: {arguments} of arguments, {temporary} beside."),
        *_table("kind", kinds, steps),
        *_table("operation", spent, steps),
    ]
    return "\n".join(lines) + "\n"


def _table(title: str, spent: collections.Counter, steps: int) -> list[str]:
    total = sum(spent.values()) or 1
    rows = [
        f"| {kind} | {where} | {100 * nanoseconds / total:.1f} % "
        f"| {nanoseconds / 1e6 / steps:.3f} |"
        for (kind, where), nanoseconds in spent.most_common(_ROWS)
    ]
    head = f"| {title} | where | share | ms a step |"
    return ["", head, "| --- | --- | --- | --- |", *rows]


def _limit(what: str, amount: float, rate: float, device: str, which: str) -> str:
    share, known = "not known", device_limits(device)
    if known:
        share = f"{100 * amount * rate / getattr(known, which):.1f} %"
    return f"| {what} | {amount:.3g} | {amount * rate:.3g} | {share} |"


def label_operations(program: str) -> dict[str, tuple[str, str]]:
    """What each operation of a program is, and which part of the step it is of.

    Such as ("conv_general_dilated", "backward stage1_block0/conv1"): the direction, and
    the last named modules.
    """
    found, inner = {}, ("body", "while", "cond")
    for one in hlo.operations(program):
        if one.scope:
            *path, kind = one.scope.split("/")
            named = [x for x in path if re.fullmatch(r"[a-z]\w*", x) and x not in inner]
            back = "backward " * hlo.is_backward(one.scope)
            found[one.name] = (kind, back + "/".join(named[-2:]))
    return found


def time_by_operation(
    folder: os.PathLike, names: Mapping[str, tuple[str, str]]
) -> collections.Counter:
    """Nanoseconds of each kind of operation, over all lines of the latest trace."""
    found = pathlib.Path(folder).rglob("*.xplane.pb")
    latest = max(found, key=lambda path: path.stat().st_mtime)
    planes = jax.profiler.ProfileData.from_file(str(latest)).planes
    spent = collections.Counter()
    for event in (e for plane in planes for line in plane.lines for e in line.events):
        name = dict(event.stats).get("hlo_op", event.name)
        if name in names:
            spent[names[name]] += event.duration_ns
    return spent
