"""Fit seeds into the memory of the devices, by the compiler's count of bytes."""

import contextlib
import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jbias import run_spec
from jbias.runtime import console, cuda_graphs, mesh, messages, xla
from jbias.training import placement, seed_axis, stages, strategies

# The usable share of memory: the rest is for the evaluation and gaps between buffers.
_USED = 0.9
_REMEDIES = (
    "--config.train.accumulate=2, a smaller --config.train.batch, or model.remat=True "
    "in a config of your own (ResNets and ViTs)"
)

_HOST_REMEDIES = (
    "a smaller --config.run.loading.gib, fewer --config.run.loading.workers"
)
_OUT_OF_MEMORY = re.compile("RESOURCE_EXHAUSTED|[Oo]ut of memory|bad_alloc")


@contextlib.contextmanager
def explain_lack() -> Iterator[None]:
    """Turn an out-of-memory error inside the context into an OSError with a remedy.

    The message is one line. The new error has the same notes, such as the saved step. Other
    errors pass.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError):
            where, remedy = "this machine", f"{_HOST_REMEDIES}, or {_REMEDIES}"
        elif _OUT_OF_MEMORY.search(str(error)):
            where, remedy = "a device", f"--config.run.together=1, {_REMEDIES}"
        else:
            raise
        reason = messages.shorten(error) or type(error).__name__
        refused = OSError(f"memory: {where} has too little ({reason}); take {remedy}")
        for note in messages.notes(error):
            refused.add_note(note)
        raise refused from error


class Need(NamedTuple):
    """Bytes per device that a compiled step needs for the seeds that the device computes."""

    state: int  # Needed during and between steps.
    work: int  # Needed only while the step runs.

    def times(self, count: int, strategy: strategies.Strategy) -> int:
        """Return the bytes of `count` programs with this need, run by the strategy."""
        is_threaded = strategy.dispatch == "threaded"
        num_running = seed_axis.thread_count(count) if is_threaded else 1
        return count * self.state + num_running * self.work


class Fit(NamedTuple):
    """The number of seeds of a stage that fit on the devices together, and bytes per device."""

    count: int  # Seeds that fit; 0: not even one.
    wanted: int  # Seeds that config.run asks for.
    needed: int  # Bytes per device for the wanted seeds.
    least: int  # Bytes for one seed per device; 0 if a seed fits.


@dataclasses.dataclass(frozen=True)
class Placement:
    """The stages of a run on some devices, and the number of seeds that fit on the devices."""

    devices: jax.sharding.Mesh
    stages: list[stages.Stage]
    run: run_spec.RunOptions  # The entries of config.run.
    free: int | None  # Usable bytes per device; None: unknown.
    fits: dict[strategies.Strategy, list[Fit]]  # Per stage; filled by `fits_by`.
    # True if memory forces fewer shares of the devices, or one seed at a time.
    crowded: bool = False

    def fits_by(self, strategy: str) -> list[Fit]:
        """Return the fit of each stage under a strategy; the result is cached.

        Compiles the steps of each stage if the free memory is known. strategy: a name, see
        `strategies.resolve_strategy`, also for errors.
        """
        resolved = strategies.resolve_strategy(strategy, self.devices)
        if resolved not in self.fits:
            self.fits[resolved] = [
                fit(
                    self.stages,
                    stage,
                    devices=self.devices,
                    run=dataclasses.replace(self.run, strategy=strategy),
                    free=self.free,
                )
                for stage in self.stages
            ]
        return self.fits[resolved]

    def lay_out(
        self, strategy: str, say: Callable[[str], None]
    ) -> list[placement.PlacedStage]:
        """Return the stages, laid out on the devices with as many seeds at a time as fit.

        strategy: "auto" or a name in `strategies.STRATEGIES`. say: receives log lines. ValueError
        if a stage does not fit.
        """
        fits, laid_out = self.fits_by(strategy), []
        if not all(stage_fit.count for stage_fit in fits):
            raise ValueError(
                f"memory: {strategy}, which this run was begun with, does not fit here; "
                "take --config.run.strategy=looped"
            )
        num_seeds = len(self.stages[0].members)
        for stage, stage_fit in zip(self.stages, fits, strict=True):
            if stage_fit.count < stage_fit.wanted:
                say(
                    f"{num_seeds} seeds in waves of at most {stage_fit.count}: "
                    f"{stage_fit.wanted} together need {_gib(stage_fit.needed)} of each "
                    f"device, which has {_gib(self.free)}"
                )
            laid_out.append(
                placement.fit_to_devices(
                    stage,
                    self.devices,
                    strategy=strategy,
                    together=stage_fit.count,
                    scanned=scanned_steps(self.run),
                )
            )
        size = self.devices.size
        if num_seeds > 1 or size > 1:
            if strategy == "auto":
                strategy = strategies.default_strategy(xla.platform(), size)
            together, shares = fits[0].count, self.devices.shape["seed"]
            waves = "all at once"
            if together < num_seeds:
                waves = f"waves of at most {together}"
            kind = self.devices.devices.flat[0].device_kind
            say(
                f"{num_seeds} seeds on {size} x {kind}: {shares} share(s) with seeds of "
                f"their own, {strategy}, {waves}"
            )
        return laid_out


def scanned_steps(run: run_spec.RunOptions) -> int:
    """Return the number of steps in one compiled loop; 0: no loop. run: config.run."""
    return 0 if xla.platform() == "cpu" else run.steps_per_dispatch


def candidate_stages(
    build: Callable[[jax.sharding.Mesh], list[stages.Stage]],
    run: run_spec.RunOptions,
    count: int,
    *,
    devices: Sequence[jax.Device] = (),
    fewer: bool = True,
) -> Iterator[tuple[jax.sharding.Mesh, list[stages.Stage]]]:
    """Yield (mesh, stages) for each mesh on which the seeds may be tried.

    The devices of a mesh form shares, each with seeds of its own; the number of shares is
    the length of the mesh axis "seed". The first mesh has as many shares as possible, later
    meshes have divisors of this number, in descending order. Later meshes are left out if
    `build` raises ValueError, as for a batch that cannot be divided among the devices; for
    the first mesh this error is raised.

    build: builds the stages of `count` seeds for a mesh. run: config.run. devices: the
      devices to use; default: all. fewer: also yield meshes with fewer shares, unless
      run.spread is set.
    """

    def make_mesh(spread: int, together: int = 0) -> jax.sharding.Mesh:
        return mesh.make(run.devices, count, spread, together, devices=devices)

    most = make_mesh(run.spread, run.together).shape["seed"]
    spreads = [most]
    if fewer and not run.spread:
        spreads += [spread for spread in range(most - 1, 0, -1) if most % spread == 0]
    for spread in spreads:
        try:
            candidate_mesh = make_mesh(spread)
            built = build(candidate_mesh)
        except ValueError:
            if spread == most:
                raise
            continue
        yield candidate_mesh, built
        del built


def fit_stages(
    build: Callable[[jax.sharding.Mesh], list[stages.Stage]],
    count: int,
    run: run_spec.RunOptions,
    say: Callable[[str], None],
    all_min: Callable[[int | None], int | None] = lambda free: free,
) -> Placement:
    """Return the `Placement` of a run's stages with the most shares that fit into memory.

    A share is a part of the devices with seeds of its own; see `candidate_stages`.
    build: builds the stages of `count` seeds for a mesh. run: config.run. say: receives log
      lines. all_min: maps the free bytes of this process to the minimum over processes.

    If not one seed fits on each device of the mesh axis "seed", fewer shares of the devices
    are tried, unless run.spread is set. ValueError if no number of shares fits. A single
    seed is not checked, unless run.memory is set. On CPU the free memory is only an
    estimate: if the estimate is too small, a line is logged and one seed at a time is trained.
    """
    widest_mesh = mesh.make(run.devices, count, run.spread, run.together)
    most_shares, problem = widest_mesh.shape["seed"], ""
    free = all_min(free_bytes(widest_mesh, run.memory))
    if count == 1 and not run.memory:
        free = None
    is_estimate = widest_mesh.local_devices[0].platform == "cpu" and not run.memory
    for devices, built in candidate_stages(build, run, count, fewer=not is_estimate):
        with contextlib.ExitStack() as stack:
            if free is not None:
                progress = "compiling a step of one seed, to see how many fit"
                stack.enter_context(console.announce_slow(say, progress))
            fits = [
                fit(built, stage, devices=devices, run=run, free=free)
                for stage in built
            ]
        if all(stage_fit.count for stage_fit in fits):
            break
        needed = _gib(max(stage_fit.least for stage_fit in fits))
        problem = f"one seed needs {needed} of each device, which has {_gib(free)}"
        if is_estimate:
            say(f"memory: {problem}; one at a time is tried, or take {_REMEDIES}")
            fits = [
                stage_fit._replace(count=stage_fit.count or most_shares)
                for stage_fit in fits
            ]
            break
        built = None  # Frees the training sets on the devices.
    else:
        spread = "--config.run.spread=1, " if run.spread > 1 else ""
        raise ValueError(f"memory: {problem}; take {spread}{_REMEDIES}")
    if problem and not is_estimate:
        shares = devices.shape["seed"]
        say(
            f"seeds spread over {shares} shares of the devices, not {most_shares}: "
            f"{problem}"
        )
    return Placement(
        devices=devices,
        stages=built,
        run=run,
        free=free,
        fits={strategies.resolve_strategy(run.strategy, devices): fits},
        crowded=bool(problem),
    )


def _gib(count: int) -> str:
    """Return a number of bytes as text in GiB."""
    return f"{count / 2**30:.3g} GiB"


def fit(
    stages: Sequence[stages.Stage],
    stage: stages.Stage,
    devices: jax.sharding.Mesh,
    run: run_spec.RunOptions,
    free: int | None,
    measure_need: Callable[..., Need] | None = None,
) -> Fit:
    """Return the number of seeds of a stage that fit on the devices, and bytes per device.

    The number counts the seeds on all devices together, and is a multiple of the length of the mesh
    axis "seed". stages: all stages of the run; the data of all stages are in memory. stage: the
    stage to fit.
    run: config.run. free: usable bytes per device; None: unknown, all seeds fit.
    measure_need: a function like `step_need`, which is the default.
    """
    spread, num_seeds = devices.shape["seed"], len(stage.members)
    strategy = strategies.resolve_strategy(run.strategy, devices)
    wanted = min(run.together or num_seeds, num_seeds) // spread * spread
    if free is None:
        return Fit(wanted, wanted, needed=0, least=0)
    shapes, measure_need = stage.shapes, measure_need or step_need

    @functools.cache
    def program_need_of(count: int) -> Need:
        """Return the largest need of the programs of the stage's steps."""
        needs = []
        for static in stage.steps_by_static:
            program_shapes = shapes._replace(static=static)
            needs.append(
                measure_need(
                    stage.program.step, strategy, program_shapes, devices, count
                )
            )
        return Need(
            state=max(need.state for need in needs),
            work=max(need.work for need in needs),
        )

    def needed(count: int) -> int:
        """Return the bytes per device for `count` seeds on each device."""
        if strategy.stacked or strategy.dispatch == "unrolled":  # One program.
            return shared + program_need_of(count).times(1, strategy)
        return shared + program_need_of(1).times(count, strategy)

    # The batches of two consecutive dispatches are on the devices together.
    num_batches = 2 * run.steps_per_dispatch * (num_seeds // spread)
    shared = sum(input_bytes(other, stage) for other in stages)
    shared += num_batches * tree_bytes(shapes.batch) // devices.shape["data"]
    limit = wanted // spread
    count = largest_fitting(needed, limit, free)
    return Fit(
        count=spread * count,
        wanted=wanted,
        needed=needed(limit),
        least=0 if count else needed(1),
    )


def largest_fitting(needed: Callable[[int], int], count: int, free: int) -> int:
    """Return the largest number of seeds, at most `count`, that fit into `free` bytes.

    Return 0 if not even one seed fits. needed: maps a number of seeds to bytes; may compile
    a program. A number that does not fit is reduced in proportion to the bytes that it needs.
    The reduced number is never too small, because part of the bytes does not depend on the
    number of seeds.
    """
    while count > 0:
        need = needed(count)
        if need <= free:
            break
        count = min(count - 1, count * free // need)
    return max(0, count)


def input_bytes(stage: stages.Stage, trained: stages.Stage) -> int:
    """Return the bytes per device of a stage's training sets during another stage.

    stage: the stage with the training sets. trained: the stage that is trained at the time; may
    be the same stage. A set that is completely in memory is on the devices during all stages.
    A windowed set counts only during its own stage: two windows, because a window is loaded
    while another is used, or one if the first window lasts for the whole stage. A streamed set
    without windows counts 0 bytes.
    """
    total, num_steps = 0, stage.last - stage.first
    for pipeline in stage.feed.pipelines.values():
        _, rows = pipeline.shapes()
        if not pipeline.streams:
            total += tree_bytes(rows)
        elif stage is trained:
            num_windows = 2 if pipeline.next_change(0) < num_steps else 1
            total += num_windows * tree_bytes(rows)
    return total


def tree_bytes(tree: PyTree) -> int:
    """Return the total bytes of all arrays and jax.ShapeDtypeStruct in a tree."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def step_need(
    step: seed_axis.SeedFunction,
    strategy: strategies.Strategy,
    shapes: stages.StepShapes,
    devices: jax.sharding.Mesh,
    count: int,
) -> Need:
    """Compile the step of `count` seeds per device; return the bytes that the step needs.

    If all seeds fit, the run uses the compiled program, alone or as the body of a loop
    (`seed_axis.scan_steps`). Arguments: see `lower_step`.
    """
    program = lower_step(step, strategy, shapes, devices, count).compile()
    return program_need(program, shapes.state, count)


def program_need(program: jax.stages.Compiled, state: PyTree, count: int) -> Need:
    """Return the bytes per device that a compiled step of `count` seeds needs.

    count: seeds that the program computes on each device. state: one seed's state, as arrays or
    jax.ShapeDtypeStructs. On a GPU that captures CUDA graphs, a copy of the states is needed,
    too, while the graph is captured.
    """
    analysis = program.memory_analysis()
    new_outputs = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    state_bytes = count * tree_bytes(state)
    copy_bytes = state_bytes if cuda_graphs.are_requested() else 0
    return Need(
        state=state_bytes,
        work=analysis.temp_size_in_bytes + new_outputs + copy_bytes,
    )


def lower_step(
    step: seed_axis.SeedFunction,
    strategy: strategies.Strategy,
    shapes: stages.StepShapes,
    devices: jax.sharding.Mesh,
    count: int,
) -> jax.stages.Lowered:
    """Return the lowered program of a step, not yet compiled.

    step: the step of one seed. strategy: for the seeds of one tree. shapes: one seed's
    arguments, as jax.ShapeDtypeStructs. devices: mesh with the axes "seed" and "data". count:
    number of seeds that the program computes per device of the axis "seed".
    """
    num_seeds = count * devices.shape["seed"]
    layout = seed_axis.SeedLayout(devices, (num_seeds,), strategy.stacked)
    width = layout.width(0)
    seed_shape, seed_axes = ((width,), ("seed",)) if width else ((), ())

    def with_sharding(tree: Any, leading: tuple[int, ...], *axes: str) -> PyTree:
        """Return a tree's jax.ShapeDtypeStructs with leading axes, sharded over mesh axes."""
        sharding = NamedSharding(devices, PartitionSpec(*axes))
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                (*leading, *x.shape), x.dtype, sharding=sharding
            ),
            tree,
        )

    state = with_sharding(shapes.state, seed_shape, *seed_axes)
    seed_argument = with_sharding(shapes.seed_argument, seed_shape, *seed_axes)
    batch = with_sharding(shapes.batch, seed_shape, *seed_axes, "data")
    argument = seed_argument, batch
    if strategy.dispatch == "unrolled":
        program = seed_axis.map_seeds(
            step,
            strategy,
            layout,
            donate=True,
            graph_options=cuda_graphs.LOOP_OPTIONS,
        )
        num_trees = num_seeds // (width or 1)
        state, argument = (state,) * num_trees, (argument,) * num_trees
    else:
        program = cuda_graphs.jit(
            seed_axis.map_tree(step, layout, strategy),
            static_argnums=3,
            donate_argnums=(0,),
            kind=layout.kind,
            num_devices=devices.size,
            options=cuda_graphs.LOOP_OPTIONS,
        )
    shared = with_sharding(shapes.shared, ())
    return program.lower(state, argument, shared, shapes.static)


def free_bytes(devices: jax.sharding.Mesh, gib: float = 0.0) -> int | None:
    """Return the bytes per device that a run may use; None if they are unknown.

    gib: config.run.memory, in GiB per device, returned in bytes; 0: return 90 % of the free
    memory. Call this before the run places anything on the devices. The devices of a CPU divide
    the free memory of the machine.
    """
    if gib:
        return round(gib * 2**30)
    device = devices.local_devices[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return round(_USED * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    free = _free_host_bytes() if device.platform == "cpu" else None
    return free and round(_USED * free / len(devices.local_devices))


class _ControlGroup(NamedTuple):
    """The files of a version of Linux's control groups, which limit containers."""

    folder: str  # Folder of the memory controller, in the folder of all control groups.
    limit: str  # Name of the file with the limit in bytes.
    usage: str  # Name of the file with the used bytes.
    file_cache: str  # Entry of memory.stat: used, but released on demand.


_CONTROL_GROUPS = (
    _ControlGroup("", "memory.max", "memory.current", "inactive_file"),
    _ControlGroup(
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def _free_host_bytes(
    meminfo: str = "/proc/meminfo", groups: str = "/sys/fs/cgroup"
) -> int | None:
    """Return the free bytes of this machine or container; None if they are unknown.

    meminfo: path of the kernel's file of memory statistics. groups: folder of the control
    groups, whose limits also reduce the result.
    """
    try:
        lines = pathlib.Path(meminfo).read_text("utf-8").splitlines()
        free = [int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvail")]
    except (OSError, ValueError):
        return None
    for group in _CONTROL_GROUPS:
        folder = pathlib.Path(groups) / group.folder
        # The files are absent under the other version, and contain "max" without a limit.
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / group.limit).read_text("utf-8"))
            usage = int((folder / group.usage).read_text("utf-8"))
            stats = (folder / "memory.stat").read_text("utf-8").split()
            file_cache = int(stats[stats.index(group.file_cache) + 1])
            free.append(limit - usage + file_cache)
    return min(free, default=None)
