"""What a compiled program moves between devices: every collective, with its bytes."""

import collections
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jbias.algos import base

# For XLA_FLAGS: devices that a CPU emulates, and, so that each collective keeps the name
# of what it is for, none of them put together.
HOST_DEVICES = (
    "--xla_force_host_platform_device_count={}"
    " --xla_disable_hlo_passes=cpu-all-reduce-combiner,all-reduce-combiner"
)
# Seconds instead of a minute; what is shared out among devices, and how, stays the same.
QUICKLY = {"xla_backend_optimization_level": 0}

_KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
_MOVES = re.compile(
    rf"\s(?P<out>\(.*?\)|\S+) (?P<kind>{_KINDS}|collective-broadcast)(-done)?\("
)
_ARRAY = re.compile(r"\b([a-z]+)(\d*)(?:e\d\w*)?\[([\d,]*)\]")
_NAME = re.compile(r'op_name="([^"]*)"')
_HEAD = re.compile(r"^(ENTRY )?%?(?P<name>[\w.-]+) \(.*\{$")
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|true_computation|false_computation)=%?([\w.-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Moved(NamedTuple):
    """One array that a collective brings out, and how often a run of the program."""

    kind: str
    shape: tuple[int, ...]
    bytes: int  # Of all `times` together, on one device.
    times: int | None  # None: in a loop whose length depends on the data.
    name: str  # Of what asked for it, as jax calls it.

    @property
    def role(self) -> str:
        """What it is for: "scalars", "norm" (sums of a normalisation), or "other"."""
        if not self.shape:
            return "scalars"
        return "norm" if len(self.shape) == 1 and _in_norm(self.name) else "other"


def _in_norm(name: str) -> bool:
    return any(part.startswith(("bn", "norm")) for part in re.split(r"[/(:]", name))


def parse(text: str) -> list[Moved]:
    """All that the collectives of a compiled program's HLO text bring out.

    A pair of start and done counts once. What lies in a loop counts as often as it turns,
    and once where that depends on the data. Of branches each counts, though one is taken.
    """
    found, calls, where, entry = [], collections.defaultdict(list), None, None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            where = head["name"]
            entry = where if head[1] else entry
            continue
        calls[where] += _called(line)
        if moves := _MOVES.search(line):
            name = _NAME.search(line)
            for shape, size in _arrays(moves["out"]):
                one = Moved(moves["kind"], shape, size, 1, name[1] if name else "")
                found.append((where, one))
    times = _times(calls, entry)
    return [
        one._replace(bytes=one.bytes * (times[where] or 1), times=times[where])
        for where, one in found
    ]


def _arrays(out: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Shapes and bytes of an instruction's output, an array or a tuple of them."""
    for kind, bits, sides in _ARRAY.findall(out):
        shape = tuple(int(side) for side in sides.split(",") if side)
        width = max(1, int(bits) // 8) if bits else 1  # `pred` has none.
        if kind != "token":
            yield shape, width * math.prod(shape)


def _called(line: str) -> Iterator[tuple[str, int | None]]:
    """Computations that a line calls, and how often; None where it does not say."""
    turns = _TRIPS.search(line)
    for how, name in _CALLED.findall(line):
        yield name, (int(turns[1]) if turns else None) if how == "body" else 1
    if branches := _BRANCHES.search(line):
        for name in branches[1].split(","):
            yield name.strip().lstrip("%"), 1


def _times(calls: dict, entry: str | None) -> dict[str, int | None]:
    """How often each computation runs; callers stand after what they call."""
    times = collections.defaultdict(int, {entry: 1})
    for caller in reversed([*calls]):
        for name, turns in calls[caller]:
            if times[caller] is None or turns is None:
                times[name] = None
            elif times[name] is not None:
                times[name] += times[caller] * turns
    return times


def by_role(moved: Iterable[Moved]) -> dict[str, int]:
    """Bytes of each role."""
    found = dict(scalars=0, norm=0, other=0)
    for one in moved:
        found[one.role] += one.bytes
    return found


def gradient_bytes(algo: base.Algo, params: Any) -> int:
    """Bytes of one gradient of all weights that some update trains, in float32."""
    trained = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if any(
            update.trains(tuple(str(entry.key) for entry in path))
            for update in algo.updates
        )
    ]
    return sum(4 * leaf.size for leaf in trained)


def traced(
    step: Any, draw: Any, rows: Any, batch: int, static: Any, devices: jax.sharding.Mesh
) -> jax.stages.Traced:
    """A seed's step, traced as a run shares it out; nothing is computed or placed.

    step: a seeds.One. draw: (key, None) -> state. rows: shapes of what is held, by stream,
    of which each device has all; of the batch each has its part.
    """
    whole = NamedSharding(devices, PartitionSpec())
    part = NamedSharding(devices, PartitionSpec("data"))

    def placed(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), tree
        )

    key = jax.random.key(0)
    taken = jax.ShapeDtypeStruct((batch,), "int32", sharding=part)
    arg = (key, {name: taken for name in rows})
    state = placed(jax.eval_shape(draw, key, None))
    program = jax.jit(step, static_argnums=3, donate_argnums=0)
    return program.trace(state, arg, placed(rows), static)
