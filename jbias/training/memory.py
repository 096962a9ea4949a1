"""How many seeds fit onto the devices at once, by the compiler's own count."""

import contextlib
import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jbias.runtime import console, mesh, messages, xla
from jbias.training import seed_axis, stages

_USED = 0.9  # Of the memory; the rest is the evaluation's, and lost between buffers.
_REMEDIES = (
    "--config.train.accumulate=2, a smaller --config.train.batch, or model.remat=True "
    "in a config of your own (ResNets and ViTs)"
)

_HOST_REMEDIES = (
    "a smaller --config.run.loading.gib, fewer --config.run.loading.workers"
)
_LACKING = re.compile("RESOURCE_EXHAUSTED|[Oo]ut of memory|bad_alloc")


@contextlib.contextmanager
def explain_lack() -> Iterator[None]:
    """Raise an OSError of one line, with what to do, for want of memory inside.

    Notes on the error, such as which step is saved, stay with it.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError):
            where, remedy = "this machine", f"{_HOST_REMEDIES}, or {_REMEDIES}"
        elif _LACKING.search(str(error)):
            where, remedy = "a device", f"--config.run.together=1, {_REMEDIES}"
        else:
            raise
        reason = messages.shorten(error) or type(error).__name__
        refused = OSError(f"memory: {where} has too little ({reason}); take {remedy}")
        for note in messages.notes(error):
            refused.add_note(note)
        raise refused from error


class Need(NamedTuple):
    """Bytes of each device that a program of a step takes, of its seeds there."""

    state: int  # Kept from step to step.
    work: int  # While the step runs.

    def times(self, count: int, strategy: seed_axis.Strategy) -> int:
        """Of so many such programs, as the strategy runs them."""
        threaded = strategy.dispatch == "threaded"
        running = seed_axis.thread_count(count) if threaded else 1
        return count * self.state + running * self.work


class Fit(NamedTuple):
    """How many seeds of a stage are on the devices at once, and bytes of each device."""

    count: int  # 0: not even one.
    wanted: int  # Seeds that should be,
    needed: int  # and what these need;
    least: int  # what is needed by one seed on each device.


@dataclasses.dataclass(frozen=True)
class Placement:
    """The stages of a run on some devices, and how many seeds of each fit there."""

    devices: jax.sharding.Mesh
    stages: list[stages.Stage]
    run: Mapping[str, Any]  # The entries of config.run.
    free: int | None  # Bytes of each device that may be used; None: nobody says.
    fits: dict[seed_axis.Strategy, list[Fit]]  # As far as they are known.
    crowded: bool = False  # Whether fewer shares of the devices, or seeds, must do.

    def fits_by(self, strategy: str) -> list[Fit]:
        """How many seeds of each stage fit by this strategy."""
        known = seed_axis.resolve_strategy(strategy, self.devices)
        if known not in self.fits:
            asked = self.devices, {**self.run, "strategy": strategy}, self.free
            self.fits[known] = [fit(self.stages, x, *asked) for x in self.stages]
        return self.fits[known]

    def lay_out(self, strategy: str, say: Callable[[str], None]) -> list[stages.Stage]:
        """The stages with as many seeds at once as fit; tells if not all do."""
        fits, laid = self.fits_by(strategy), []
        if not all(one.count for one in fits):
            raise ValueError(
                f"memory: {strategy}, which this run was begun with, does not fit here; "
                "take --config.run.strategy=looped"
            )
        count = len(self.stages[0].members)
        for stage, one in zip(self.stages, fits, strict=True):
            if one.count < one.wanted:
                say(
                    f"{count} seeds in waves of at most {one.count}: {one.wanted} "
                    f"together need {_gib(one.needed)} of each device, which has "
                    f"{_gib(self.free)}"
                )
            laid.append(
                stages.fit_to_devices(
                    stage,
                    self.devices,
                    strategy=strategy,
                    together=one.count,
                    scanned=scanned_steps(self.run),
                )
            )
        size = self.devices.size
        if count > 1 or size > 1:
            if strategy == "auto":
                strategy = seed_axis.default_strategy(xla.platform(), size)
            at_once, shares = fits[0].count, self.devices.shape["seed"]
            turns = "all at once" if at_once >= count else f"waves of at most {at_once}"
            kind = self.devices.devices.flat[0].device_kind
            where = f"{count} seeds on {size} x {kind}: {shares} share(s)"
            say(f"{where} with seeds of their own, {strategy}, {turns}")
        return laid


def scanned_steps(run: Mapping[str, Any]) -> int:
    """Return the number of steps that are one program, by config.run; 0: none are."""
    return 0 if xla.platform() == "cpu" else run["steps_per_dispatch"]


def candidate_stages(
    make: Callable[[jax.sharding.Mesh], list[stages.Stage]],
    run: Mapping[str, Any],
    count: int,
    *,
    devices: Sequence[jax.Device] = (),
    fewer: bool = True,
) -> Iterator[tuple[jax.sharding.Mesh, list[stages.Stage]]]:
    """The stages that `make` builds of `count` seeds, on meshes that may be tried.

    On as many shares of the devices as can be, and unless `run["spread"]` says how many,
    on `fewer`, but for those among which the batch cannot be shared out.
    """
    on = functools.partial(mesh.make, run["devices"], count, devices=devices)
    first = on(run["spread"], run["together"]).shape["seed"]
    less = range(first - 1, 0, -1) if fewer and not run["spread"] else ()
    for spread in (first, *(k for k in less if first % k == 0)):
        try:
            here = on(spread)
            built = make(here)
        except ValueError:
            if spread == first:
                raise
            continue
        yield here, built
        del built


def fit_stages(
    make: Callable[[jax.sharding.Mesh], list[stages.Stage]],
    count: int,
    run: Mapping[str, Any],
    say: Callable[[str], None],
    least: Callable[[int | None], int | None] = lambda free: free,
) -> Placement:
    """The stages of a run on as many shares of the devices as fit.

    `make` builds them for a mesh, of `count` seeds, and `least` makes of the bytes that
    are free here those that every process has.
    Where not one seed fits on each device of the mesh's axis "seed", fewer shares of
    the devices are tried, unless `run["spread"]` says how many. ValueError where none
    fits; but where a CPU's machine only seems to have too little left, that is told and
    one seed at a time is trained.
    """
    here = mesh.make(run["devices"], count, run["spread"], run["together"])
    first, lacking = here.shape["seed"], ""
    free = least(free_bytes(here, run["memory"]))
    free = None if count == 1 and not run["memory"] else free
    guessed = here.local_devices[0].platform == "cpu" and not run["memory"]
    told = "compiling a step of one seed, to see how many fit"
    announced = functools.partial(console.announce_slow, say, told)
    for devices, built in candidate_stages(make, run, count, fewer=not guessed):
        with contextlib.nullcontext() if free is None else announced():
            fits = [fit(built, one, devices, run, free) for one in built]
        if all(one.count for one in fits):
            break
        needed = _gib(max(one.least for one in fits))
        lacking = f"one seed needs {needed} of each device, which has {_gib(free)}"
        if guessed:
            say(f"memory: {lacking}; one at a time is tried, or take {_REMEDIES}")
            fits = [one._replace(count=one.count or first) for one in fits]
            break
        built = None  # The sets that they hold leave the devices.
    else:
        spread = "--config.run.spread=1, " * (run["spread"] > 1)
        raise ValueError(f"memory: {lacking}; take {spread}{_REMEDIES}")
    if lacking and not guessed:
        spread = devices.shape["seed"]
        say(f"seeds spread over {spread} shares of the devices, not {first}: {lacking}")
    known = {seed_axis.resolve_strategy(run["strategy"], devices): fits}
    return Placement(devices, built, run, free, known, crowded=bool(lacking))


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"


def fit(
    stages: Sequence[stages.Stage],
    stage: stages.Stage,
    devices: jax.sharding.Mesh,
    run: Mapping[str, Any],
    free: int | None,
    of_program: Callable[..., Need] | None = None,
) -> Fit:
    """How many seeds of one of the stages fit into `free` bytes; None: all asked for.

    `of_program` takes the place of `step_need`.
    """
    spread, seeds = devices.shape["seed"], len(stage.members)
    strategy = seed_axis.resolve_strategy(run["strategy"], devices)
    asked = min(run["together"] or seeds, seeds) // spread * spread
    if free is None:
        return Fit(asked, asked, 0, 0)
    shapes, of_program = stage.shapes, of_program or step_need
    compiled = (stage.program.step, strategy, shapes, devices)
    program = functools.cache(lambda count: of_program(*compiled, count))

    def needed(count: int) -> int:
        if strategy.stacked or strategy.dispatch == "unrolled":  # Side by side.
            return shared + program(count).times(1, strategy)
        return shared + program(1).times(count, strategy)

    # The batches of all seeds for the steps of one dispatch while the last one's run.
    batches = 2 * run["steps_per_dispatch"] * (seeds // spread)
    shared = sum(input_bytes(one, stage) for one in stages)
    shared += batches * tree_bytes(shapes.batch) // devices.shape["data"]
    limit = asked // spread
    count = largest_fitting(needed, limit, free)
    return Fit(spread * count, asked, needed(limit), needed(1) if not count else 0)


def largest_fitting(needed: Callable[[int], int], count: int, free: int) -> int:
    """The largest number up to `count` that needs no more than `free`; 0: none.

    Each guess is smaller in proportion: what is needed has a part that all share, so
    none is too small. A guess may cost a compilation.
    """
    while count > 0 and (need := needed(count)) > free:
        count = min(count - 1, count * free // need)
    return max(0, count)


def input_bytes(stage: stages.Stage, now: stages.Stage) -> int:
    """Bytes of training sets that a stage holds on each device while `now` is trained.

    A set that is there as a whole is there in all stages. Of windows there are two
    while one takes the other's place.
    """
    total, steps = 0, stage.last - stage.first
    for one in stage.pipelines.values():
        _, rows = one.shapes()
        if not one.streams:
            total += tree_bytes(rows)
        elif stage is now:
            total += tree_bytes(rows) * (2 if one.next_change(0) < steps else 1)
    return total


def tree_bytes(tree: PyTree) -> int:
    """Bytes."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def step_need(*of_step: Any) -> Need:
    """Compiles the step of `count` seeds on each device of the mesh's axis "seed".

    Where all seeds fit, this is the program that runs later, or the body of its loop
    (`seed_axis.scan_steps`). Arguments are those of `lower_step`.
    """
    *_, given, _, count = of_step
    return program_need(lower_step(*of_step).compile(), given.state, count)


def program_need(program: jax.stages.Compiled, state: PyTree, count: int) -> Need:
    """What such a program takes, by the shapes of a seed's state."""
    counted = program.memory_analysis()
    made = counted.output_size_in_bytes - counted.alias_size_in_bytes
    return Need(state=count * tree_bytes(state), work=counted.temp_size_in_bytes + made)


def lower_step(
    one: seed_axis.SeedFunction,
    strategy: seed_axis.Strategy,
    given: stages.StepShapes,
    devices: jax.sharding.Mesh,
    count: int,
) -> jax.stages.Lowered:
    """The program of `step_need` before it is compiled."""
    wave = count * devices.shape["seed"]
    layout = seed_axis.SeedLayout(devices, (wave,), strategy.stacked)
    width = layout.width(0)
    lead, by_seed = ((width,), ("seed",)) if width else ((), ())

    def placed(tree: Any, lead: tuple[int, ...], *axes: str) -> PyTree:
        place = NamedSharding(devices, PartitionSpec(*axes))
        shape = functools.partial(jax.ShapeDtypeStruct, sharding=place)
        return jax.tree.map(lambda x: shape((*lead, *x.shape), x.dtype), tree)

    state = placed(given.state, lead, *by_seed)
    arg = placed(given.seed_argument, lead, *by_seed)
    arg = arg, placed(given.batch, lead, *by_seed, "data")
    if strategy.dispatch == "unrolled":
        program = seed_axis.map_seeds(one, strategy, layout, donate=True)
        state, arg = ((x,) * (wave // (width or 1)) for x in (state, arg))
    else:
        kept = dict(static_argnums=3, donate_argnums=0)
        kept["compiler_options"] = xla.compiler_options(layout.kind)
        program = jax.jit(seed_axis.map_tree(one, layout, strategy), **kept)
    return program.lower(state, arg, placed(given.shared, ()), given.static)


def free_bytes(devices: jax.sharding.Mesh, gib: float = 0.0) -> int | None:
    """Bytes of each device that a run may use; `gib` of them if given.

    Asked before the run holds anything there. None where nobody says. Devices of a CPU
    share what its machine has left.
    """
    if gib:
        return round(gib * 2**30)
    device = devices.local_devices[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return round(_USED * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    free = _of_host() if device.platform == "cpu" else None
    return free and round(_USED * free / len(devices.local_devices))


# Of a container, by version: its folder, limit, use, and where its files are counted,
# which are in use until others need the room.
_GROUPS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _of_host(meminfo="/proc/meminfo", groups="/sys/fs/cgroup") -> int | None:
    """Bytes that this machine, or the container that this runs in, has left."""
    try:
        lines = pathlib.Path(meminfo).read_text("utf-8").splitlines()
        known = [int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvail")]
    except (OSError, ValueError):
        return None
    for folder, limit, used, files in _GROUPS:
        group = pathlib.Path(groups) / folder
        # No container may be of this version, or one without a limit.
        with contextlib.suppress(OSError, ValueError):
            left = int((group / limit).read_text("utf-8")) - int(
                (group / used).read_text("utf-8")
            )
            stats = (group / "memory.stat").read_text("utf-8").split()
            known.append(left + int(stats[stats.index(files) + 1]))
    return min(known, default=None)
