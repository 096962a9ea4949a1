"""How many seeds fit onto the devices at once, by the compiler's own count."""

import pathlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jbias import build, seeds
from jbias import layout as layouts

_USED = 0.9  # Of the memory; the rest is the evaluation's, and lost between buffers.


class Need(NamedTuple):
    """Bytes of each device that a step of one seed takes."""

    state: int  # Kept from step to step, with the seed's batch.
    work: int  # While the step runs.
    shared: int  # By all seeds: what is held of the training set.

    def of(self, count: int, strategy: seeds.Strategy) -> int:
        """Of so many seeds on the same device."""
        running = count
        if strategy == seeds.STRATEGIES["looped"]:
            running = 1
        elif strategy.dispatch == "threaded":
            running = seeds.at_once(count)
        return self.shared + count * self.state + running * self.work

    def fitting(self, count: int, strategy: seeds.Strategy, room: int) -> int:
        """The largest number up to `count` that needs no more than `room`; 0: none."""
        fits = (k for k in range(count, 0, -1) if self.of(k, strategy) <= room)
        return next(fits, 0)


def together(
    stage: build.Stage,
    own: Sequence[Any],
    devices: jax.sharding.Mesh,
    run: Mapping[str, Any],
    say: Callable[[str], None],
) -> int:
    """How many seeds to have on the devices at once; tells if not all.

    `own` is what each has of its own in every step: its key, and perhaps more.

    At most `run["together"]`, if given. ValueError where not even one of them fits.
    """
    spread = devices.shape["seed"]
    limit = min(run["together"] or len(own), len(own))
    free = room(devices, run["memory"])
    if free is None or len(own) == 1 and not run["memory"]:
        return limit
    shapes = {name: one.shapes() for name, one in stage.feeds.items()}
    need = of_step(
        stage.one,
        jax.eval_shape(stage.draw, seeds.key(0), None),
        jax.eval_shape(lambda: own[0]),
        {name: taken for name, (taken, _) in shapes.items()},
        {name: held for name, (_, held) in shapes.items()},
        stage.static(stage.first),
        devices,
    )
    strategy = seeds.strategy(run["strategy"], devices)
    fits = spread * need.fitting(max(1, limit // spread), strategy, free)
    if not fits:
        raise ValueError(
            f"memory: one seed needs {_gib(need.of(1, strategy))} of each device, which "
            f"has {_gib(free)}; take config.train.accumulate=2, "
            "config.model.remat=True or a smaller config.train.batch"
        )
    if fits < limit:
        whole = need.of(len(own) // spread, strategy)
        say(
            f"{len(own)} seeds in waves of at most {fits}: together they need "
            f"{_gib(whole)} of each device, which has {_gib(free)}"
        )
    return fits


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"


def of_step(
    one: seeds.One,
    state: PyTree,
    own: PyTree,
    taken: PyTree,
    held: PyTree,
    static: Hashable,
    devices: jax.sharding.Mesh,
) -> Need:
    """Compiles one seed's step for shapes of a state and all else that it is given.

    Where the seeds are dispatched one by one, this is the program that runs later.
    """

    def placed(tree: Any, *axes: str) -> PyTree:
        place = NamedSharding(devices, PartitionSpec(*axes))
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree
        )

    layout = layouts.Layout(devices, (devices.shape["seed"],))
    looped = seeds.STRATEGIES["looped"]
    axes = ("data",)
    if width := layout.width(0):
        state, own, taken = jax.tree.map(
            lambda x: _wider(x, width), (state, own, taken)
        )
        state, own, axes = placed(state, "seed"), placed(own, "seed"), ("seed", "data")
    else:
        state, own = placed(state), placed(own)
    arg = (own, placed(taken, *axes))
    held = placed(held)
    program = jax.jit(
        seeds.of_tree(one, layout, looped), static_argnums=3, donate_argnums=0
    )
    counted = program.lower(state, arg, held, static).compile().memory_analysis()
    shared = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(held))
    return Need(
        state=counted.argument_size_in_bytes - shared,
        work=counted.temp_size_in_bytes
        + counted.output_size_in_bytes
        - counted.alias_size_in_bytes,
        shared=shared,
    )


def _wider(x: jax.ShapeDtypeStruct, width: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((width, *x.shape), x.dtype)


def room(devices: jax.sharding.Mesh, gib: float = 0.0) -> int | None:
    """Bytes of each device that a run may use; `gib` of them if given.

    None where nobody says. Devices of a CPU share what its machine has left.
    """
    if gib:
        return round(gib * 2**30)
    device = devices.local_devices[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return round(_USED * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    free = _of_host() if device.platform == "cpu" else None
    return free and round(_USED * free / len(devices.local_devices))


def _of_host() -> int | None:
    """Bytes that this machine, or the container that this runs in, has left."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        known = [int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvail")]
    except (OSError, ValueError):
        return None
    group = pathlib.Path("/sys/fs/cgroup")
    try:
        limit, used = (
            (group / name).read_text().strip()
            for name in ("memory.max", "memory.current")
        )
        known.append(int(limit) - int(used))
    except (OSError, ValueError):
        pass  # No container, or one without a limit.
    return min(known, default=None)
