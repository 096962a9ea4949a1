"""Estimates of a run's memory and time on other devices, without the devices or images.

The programs of a run are compiled for the devices from shapes only. Memory is the
compiler's own count. Time on TPUs is the compiler's estimate; time on GPUs is estimated from
the program's kernels and launches (`gpu_time`); time on a CPU is a lower bound, from the
highest rates that this machine reaches (the roofline).
"""

import collections
import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import os
import re
import timeit
import types
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jbias import build, data, errors, numerals, run_spec
from jbias.data import base, config_sets, decoding, sources, tables
from jbias.data.forms import listing
from jbias.runs import results, workdirs
from jbias.runtime import console, xla
from jbias.training import (
    input_pipeline,
    input_plan,
    samplers,
    schedule,
    seed_axis,
    setup,
    stages,
    strategies,
)
from jbias.training import step as train_step
from jbias.training.stages import Stage
from jbias.training.tuning import (
    gpu_time,
    hlo,
    memory_estimate,
    strategy_choice,
    targets,
)


class UnknownSize(ValueError):
    """Raised for a missing data set whose size is neither published nor given by the user."""


class AssumedSize(NamedTuple):
    """The user's assumptions about missing data sets of unpublished size."""

    images: int = 0  # Number of images; 0: unknown.
    classes: int = 0  # Number of classes; 0: unknown.


NOTHING_ASSUMED = AssumedSize()


class _AbsentStore(NamedTuple):
    """The store of a missing data set, which has only a length."""

    names: range


def open_source(
    where: str,
    options: Mapping[str, Any],
    size: int,
    assumed: AssumedSize = NOTHING_ASSUMED,
) -> base.Source:
    """Return the source of a data set, or a source without images if the set is missing.

    where: start of error messages. options: options of the data set, such as config.train. size:
    side of the images in pixels. assumed: numbers of images and classes of a missing set whose
    numbers are not published. UnknownSize, a ValueError, if these numbers are needed and not given;
    ValueError for other errors than missing files, and for a missing set of a user's own or with
    images that are not square.
    """
    try:
        return config_sets.open_source(where, options, size)
    except ValueError as error:
        name, is_missing = (
            options.get("data"),
            isinstance(error.__cause__, base.Missing),
        )
        is_known = name in data.DATASETS
        if not (is_missing and is_known) or data.DATASETS[name].aspect != (1, 1):
            raise
        split = listing.parse_split(where, options["split"])
        spec, images = data.DATASETS[name], assumed.images
        if spec.classes and isinstance(spec.images, Mapping):
            images = spec.images.get(split.base, images)
        classes = spec.classes or assumed.classes
        if not images or not classes:
            raise UnknownSize(f"{error}; or give --images=N and --classes=K") from error
    first, stop = (listing.cut_index(images, cut) for cut in (split.start, split.stop))
    num_images, wnids = stop - first, tables.wnids()
    is_imagenet = classes == len(wnids)
    return sources.EncodedSource(
        store=_AbsentStore(range(num_images)),
        transform=decoding.preprocess(options.get("size", size)),
        name=f"{name}/{options['split']}",
        classes=wnids if is_imagenet else tuple(f"class {i}" for i in range(classes)),
        space="wnid" if is_imagenet else "names",
        columns={"label": (np.arange(num_images) % classes).astype(np.int32)},
        measures=(),
        fingerprint="",
        cite="",
        note=f"not there: {num_images:,} images are assumed",
    )


@dataclasses.dataclass(frozen=True)
class _Shapes(input_pipeline.InputPipeline):
    """An input pipeline without images: only the shapes of batches and of rows that seeds share."""

    order: samplers.Sampler
    batch_shape: PyTree
    rows_shape: PyTree
    streams: bool = True

    def shapes(self) -> tuple[PyTree, PyTree]:
        return self.batch_shape, self.rows_shape

    def next_change(self, step: int) -> int:
        return self.order.next_change(step)


def pipeline_shapes(plan: input_plan.InputPlan, **_: Any) -> _Shapes:
    """Return an input pipeline that has the shapes of a plan's batches, but no images.

    `batch_shape` and `rows_shape` are trees of jax.ShapeDtypeStruct: the indices of a batch, and
    the rows that seeds share. If the host crops the images of a stream, `batch_shape` is the rows
    of a batch, and `rows_shape` is {}. Further arguments of `input_plan.make_pipeline` are accepted
    and ignored.
    """
    (height, width), stream, order = plan.source.shape, plan.stream, plan.order
    columns = dict(plan.columns)
    if stream is not None:
        columns["index"] = np.zeros(1, np.int32)
        height = width = stream.canvas or stream.size
        if stream.canvas:
            columns["aspect"] = np.zeros(1, np.float32)

    def rows(count):
        image = jax.ShapeDtypeStruct((count, height, width, 3), np.uint8)
        return {"image": image, **input_pipeline.rows_shape(columns, count)}

    if stream is not None and stream.crop == "host":
        return _Shapes(order, rows(order.batch), {})
    count = order.span if stream else sum(map(len, plan.sources.values()))
    return _Shapes(
        order,
        input_pipeline.index_shape(order),
        rows_shape=jax.eval_shape(input_pipeline.flatten_images, rows(count)),
        streams=stream is not None,
    )


def open_or_assume(
    spec: run_spec.RunSpec, assumed: AssumedSize
) -> tuple[list[config_sets.TrainSet], dict[str, base.Source], list[str]]:
    """Return a run's training sets per stage, its test sets, and notes on missing sets.

    Test sets are by name and include the validation set, as in `setup.test_options`.
    assumed: sizes of missing training sets. A training set of unknown size raises UnknownSize; a
    missing test set without a published size is left out, with a note.
    """
    setup.check_names(spec)
    size, tests, omitted = spec.config["size"], {}, []
    train = setup.open_train_sets(spec, functools.partial(open_source, assumed=assumed))
    for name, where, options in setup.test_options(spec.config):
        try:
            tests[name] = config_sets.open_test_source(
                where, options, size, open_source
            )
        except UnknownSize as error:
            omitted.append(f"left out of evaluation: {error}")
    all_sources = [
        source for train_set in train for source in train_set.named(0).values()
    ]
    all_sources += tests.values()
    notes = [f"{source.name}: {source.note}" for source in all_sources if source.note]
    return train, tests, list(dict.fromkeys([*notes, *omitted]))


_USABLE_SHARE = 0.9  # Of a device's memory, as in a run.
# Environment variables with the share of a GPU's memory that jax takes, and jax's default.
_GPU_SHARE_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_GPU_SHARE = 0.75
# The compiler's message about a program that is larger than the device's memory.
_OUT_OF_MEMORY = re.compile(
    r"(?s)RESOURCE_EXHAUSTED.*?(Used |temporaries \()([\d.]+)([KMGT])"
)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class PlanRequest(NamedTuple):
    """A run to plan, its data sets and the target devices."""

    spec: run_spec.RunSpec
    target: targets.Target
    devices: Sequence[jax.Device]  # All devices of the target.
    train: Sequence[config_sets.TrainSet]  # One per stage.
    tests: Mapping[str, base.Source]  # By name, with the validation set.
    log: Callable[[str], None]  # Receives lines about the progress.

    @property
    def run(self) -> run_spec.RunOptions:
        """The entries of config.run."""
        return self.spec.run


class Program(NamedTuple):
    """A compiled program, with its memory and operations per device."""

    compiled: jax.stages.Compiled | None  # None: it does not fit into memory.
    need: memory_estimate.Need
    flops: float  # Operations per run of the program.
    # Launches per run of the program by XLA's kind, on a GPU.
    launches: Mapping[str, float] = types.MappingProxyType({})


class CompiledStages(NamedTuple):
    """The stages of a run on a target, with compiled programs and the seeds that fit.

    The devices are divided into shares, and each share trains some of the seeds.
    """

    devices: jax.sharding.Mesh
    stages: list[Stage]
    fits: list[memory_estimate.Fit]  # One per stage.
    # Per stage, by the number of seeds in a program: the programs of its steps by their
    # compile-time argument (`Stage.steps_by_static`).
    programs: list[dict[int, dict[Hashable, Program]]]
    free: int  # Usable bytes per device.
    strategy_name: str
    not_compared: tuple[str, ...] = ()  # Strategies that only a run would compare.

    @property
    def strategy(self) -> strategies.Strategy:
        """The strategy with which the programs are compiled."""
        return strategies.STRATEGIES[self.strategy_name]

    def cycles(self) -> float:
        """Return the estimated cycles of a seed's step in the first stage, a mean over its steps.

        The result is infinite if no seed fits into memory.
        """
        count = self.seeds_per_program(self.resident_seeds(self.fits[0]))
        stage, programs = self.stages[0], self.programs[0][count]
        compiled = {static: program.compiled for static, program in programs.items()}
        if not self.does_fit or None in compiled.values():
            return math.inf
        cycles = sum(
            num_steps * strategy_choice.estimated_cycles(compiled[static], stage, count)
            for static, num_steps in stage.steps_by_static.items()
        )
        return cycles / (stage.last - stage.first)

    @property
    def does_fit(self) -> bool:
        """True if at least one seed fits in each stage."""
        return all(fit.count for fit in self.fits)

    @property
    def per_stage(
        self,
    ) -> Iterator[
        tuple[Stage, memory_estimate.Fit, dict[int, dict[Hashable, Program]]]
    ]:
        """The stages, each with its memory fit and its programs."""
        return zip(self.stages, self.fits, self.programs, strict=True)

    @property
    def seeds(self) -> int:
        """Number of seeds that are trained together."""
        return len(self.stages[0].members)

    @property
    def seeds_per_share(self) -> int:
        """Number of seeds that each share of the devices trains."""
        return self.seeds // self.devices.shape["seed"]

    def resident_seeds(self, fit: memory_estimate.Fit) -> int:
        """Return the number of seeds on the devices of a share at a time; at least 1.

        fit: the stage's memory fit.
        """
        return max(1, fit.count // self.devices.shape["seed"])

    def seeds_per_program(self, count: int) -> int:
        """Return the number of seeds that one compiled program computes.

        count: number of seeds on the devices of a share.
        """
        is_unrolled = self.strategy.dispatch == "unrolled"
        return count if self.strategy.stacked or is_unrolled else 1


def compile_stages(request: PlanRequest) -> CompiledStages:
    """Return the compiled stages of a run, on as many shares of the devices as fit.

    Shares are chosen as by `memory_estimate.fit_stages`. If no seed fits, the result has `does_fit`
    False. On TPUs, the strategies that a run would compare are compared by their estimated cycles.
    """
    run, target, compiled = request.run, request.target, None
    plans = input_plan.plan_stages(request.spec.stages, request.train)
    num_seeds = len(request.spec.members)
    gib = run.memory or (target.kind.gib * _USABLE_SHARE if target.kind else 0.0)
    if target.platform == "gpu" and not run.memory:
        gib *= _gpu_share()

    def build_stages(devices: jax.sharding.Mesh) -> list[Stage]:
        return stages.build_stages(request.spec, plans, {}, devices, pipeline_shapes)

    meshes = memory_estimate.candidate_stages(
        build_stages, run, num_seeds, devices=request.devices
    )
    for devices, built_stages in meshes:
        free = memory_estimate.free_bytes(devices, gib) or 2**62  # No limit if unknown.
        candidates = strategy_choice.candidates(
            run.strategy, devices, num_seeds, built_stages[-1].last
        )
        is_compared = target.platform == "tpu" and not compiled
        names = candidates if is_compared else candidates[:1]
        by_strategy = [
            _compile_with(
                request, name, devices=devices, built_stages=built_stages, free=free
            )
            for name in names
        ]
        compiled = by_strategy[0]
        if len(by_strategy) > 1:
            compiled = min(by_strategy, key=CompiledStages.cycles)
        if target.platform == "gpu":
            compiled = compiled._replace(not_compared=candidates[1:])
        if compiled.does_fit:
            break
    return compiled


def _note_not_compared(compiled: CompiledStages) -> list[str]:
    """Return a list of one note on the strategies that only a run would time, or [].

    compiled: the plan's compiled stages.
    """
    if not compiled.not_compared:
        return []
    names = " and ".join(compiled.not_compared)
    return [
        (
            f"planned with {compiled.strategy_name}; a run times {names}, too, and takes "
            "the fastest, so the run may be cheaper than this plan: ten small networks took "
            "0.4 to 0.6 of the time on an H100; "
            f"--config.run.strategy={compiled.not_compared[0]} plans that"
        )
    ]


def _compile_with(
    request: PlanRequest,
    strategy_name: str,
    *,
    devices: jax.sharding.Mesh,
    built_stages: list[Stage],
    free: int,
) -> CompiledStages:
    """Return all stages compiled with one strategy, with the `memory_estimate.Fit` of each stage.

    strategy_name: key of `strategies.STRATEGIES`. devices: mesh for which the stages were
    built. free: usable bytes per device.
    """
    programs, fits = [], []
    run = dataclasses.replace(request.run, strategy=strategy_name)
    for stage in built_stages:
        stage_programs: dict[int, dict[Hashable, Program]] = {}

        def compile_step(
            step, strategy, shapes, devices, count, stage_programs=stage_programs
        ) -> memory_estimate.Need:
            """Compile the step, store the program, and return its `memory_estimate.Need`.

            step, strategy, shapes, devices, count: see `memory_estimate.lower_step`.
            stage_programs: the programs of the stage by number of seeds and compile-time argument,
            to which the program is added.
            """
            program = _compile_program(
                request,
                "the step",
                step=step,
                strategy=strategy,
                shapes=shapes,
                devices=devices,
                count=count,
            )
            stage_programs.setdefault(count, {})[shapes.static] = program
            return program.need

        programs.append(stage_programs)
        fits.append(
            memory_estimate.fit(built_stages, stage, devices, run, free, compile_step)
        )
    return CompiledStages(
        devices,
        built_stages,
        fits=fits,
        programs=programs,
        free=free,
        strategy_name=strategy_name,
    )


def _compile_program(
    request: PlanRequest,
    activity: str,
    *,
    step: seed_axis.SeedFunction,
    strategy: strategies.Strategy,
    shapes: stages.StepShapes,
    devices: jax.sharding.Mesh,
    count: int,
) -> Program:
    """Return a program that is compiled for the target, with its memory and operations.

    If the program is too large for the compiler, `compiled` has the value None, and the memory is
    from the compiler's message. activity: name of the program in the log. step, strategy, shapes,
    devices, count: see `memory_estimate.lower_step`.
    """
    on_gpu, flops, launches = request.target.platform == "gpu", 0.0, {}
    of_seeds = f" of {count} seeds" if count > 1 else ""
    line = f"{request.target.name}: compiling {activity}{of_seeds}"
    with console.announce_slow(request.log, line), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About memory that cannot be reused.
        lowered = memory_estimate.lower_step(step, strategy, shapes, devices, count)
        if on_gpu:  # The compiler for GPUs does not count operations.
            cpu = np.reshape(np.array(jax.devices("cpu")[:1]), (1, 1))
            cpu_mesh = jax.sharding.Mesh(cpu, devices.axis_names)
            on_cpu = memory_estimate.lower_step(step, strategy, shapes, cpu_mesh, 1)
            flops = count * on_cpu.cost_analysis()["flops"] / devices.shape["data"]
        try:
            if on_gpu:
                compiled, launches = gpu_time.compile_launches(lowered)
            else:
                compiled = lowered.compile()
            need = memory_estimate.program_need(compiled, shapes.state, count)
            flops = flops or compiled.cost_analysis().get("flops", 0.0)
        except jax.errors.JaxRuntimeError as error:
            match = _OUT_OF_MEMORY.search(str(error))
            if match is None:
                raise
            compiled, state = None, count * memory_estimate.tree_bytes(shapes.state)
            work = round(float(match[2]) * _UNITS[match[3]])
            # "Used" counts the state, "temporaries" does not.
            work -= state if match[1] == "Used " else 0
            need = memory_estimate.Need(state, max(0, work))
    return Program(compiled, need, flops=flops, launches=launches)


def _gpu_share() -> float:
    """Return the fraction of a GPU's memory that jax takes.

    Read from the environment variables _GPU_SHARE_VARIABLES; ValueError if the value is
    invalid.
    """
    for name in _GPU_SHARE_VARIABLES:
        text = os.environ.get(name)
        if text:
            with contextlib.suppress(ValueError):
                share = numerals.real(text)
                if 0 < share <= 1:
                    return share
            errors.refuse(name, "be a share from 0 to 1", text)
    return _GPU_SHARE


class ProgramCost(NamedTuple):
    """The cost of one run of a program, per device."""

    parts: Mapping[str, float]  # Seconds by part of the step.
    bound: (
        float  # Least seconds for the products and bytes, at the device's peak rates.
    )
    moved: float  # Bytes from other devices.
    notes: list[str]

    @property
    def seconds(self) -> float:
        """Estimated time of the whole program."""
        return sum(self.parts.values())


def program_cost(
    program: Program,
    kind: targets.DeviceKind,
    shards: int,
    *,
    loops: int = 1,
    branch_probability: float | None = 0.5,
    seeds: int = 1,
) -> ProgramCost:
    """Return the estimated cost of one run of a program.

    program: a program that fits into memory. kind: the target's devices. shards: number of devices
    that divide a batch. loops: iterations of the loop with the convolutions and matrix
    products. branch_probability, seeds: see `hlo.operations`.
    """
    text, notes = program.compiled.as_text(), []
    operations = hlo.operations(text, branch_probability, seeds)

    def memory_seconds(operation: hlo.Operation) -> float:
        return operation.bytes * operation.runs / kind.bytes

    moving = hlo.by_part(operations, memory_seconds)
    products = loops * program.flops / kind.flops
    if kind.hertz:
        cycles = hlo.by_part(operations)
        seconds = {name: value / kind.hertz for name, value in cycles.items()}
        unestimated = hlo.unestimated(operations)
        if unestimated:
            names = ", ".join(f"{name} x{n:g}" for name, n in unestimated.items())
            notes.append(f"no time is estimated of {names}, which is not in the step")
    elif kind.platform == "gpu":
        kernel_seconds = functools.partial(gpu_time.kernel_seconds, kind=kind)
        seconds = hlo.by_part(operations, kernel_seconds)
        seconds["launches"] = gpu_time.launch_seconds(program.launches)
        notes.append(gpu_time.MEASURED if program.launches else gpu_time.UNCOUNTED)
        if gpu_time.has_grouped_convolutions(text):
            notes.append(gpu_time.GROUPED)
    else:
        heavy = ("convolutions", "convolutions backwards")
        slowdown = max(1, products / (sum(moving[name] for name in heavy) or 1))
        seconds = {**moving, **{name: slowdown * moving[name] for name in heavy}}
    if any(
        operation.times is None and operation.cycles + operation.bytes
        for operation in operations
    ):
        notes.append("loops whose length the data decides are counted with one turn")
    moved = sum(_collective_bytes(operation, shards) for operation in operations)
    if kind.between:
        seconds["collectives"] += moved / kind.between
    return ProgramCost(
        seconds, bound=max(products, sum(moving.values())), moved=moved, notes=notes
    )


def _collective_bytes(operation: hlo.Operation, shards: int) -> float:
    """Return the bytes that each device receives in a collective operation, around a ring.

    shards: number of devices that take part. 0 for other operations, and with one device.
    """
    code = operation.code.removesuffix("-start")
    if code not in hlo.COLLECTIVES or shards == 1:
        return 0.0
    out = sum(size for _, size in hlo.arrays(operation.out)) * operation.runs
    is_asynchronous = operation.code != code
    if is_asynchronous and operation.out.startswith("(") and code != "all-reduce":
        out /= 2  # The output is a pair: the operand and the result.
    if code == "collective-permute":
        return out
    turns = {"all-reduce": 2, "reduce-scatter": shards}.get(code, 1)
    return out * turns * (shards - 1) / shards


@functools.cache
def this_machine() -> targets.DeviceKind:
    """Return the peak rates of this machine's CPU, measured by two short computations.

    `flops` of the result are operations per second, and `bytes` are bytes per second; `gib` is 0.
    The rates are measured at the first call only.
    """

    def seconds(function: Callable, *args: Any) -> float:
        """Return the shortest duration of several calls of `function` with `args`."""
        return min(timeit.repeat(lambda: function(*args).block_until_ready(), number=1))

    cpu = jax.devices("cpu")[0]
    matrix = jax.device_put(np.ones((1024, 1024), np.float32), cpu)
    vector = jax.device_put(np.ones(2**18, np.float32), cpu)  # Fits into caches.
    flops = 2 * 1024**3 / seconds(jax.jit(jnp.matmul), matrix, matrix)
    moved = 2 * vector.nbytes / seconds(jax.jit(jnp.negative), vector)
    return targets.DeviceKind("cpu", "cpu", gib=0, flops=flops, bytes=moved)


def plan(
    config: Mapping[str, Any],
    target: targets.Target,
    say: Callable[[str], None],
    assumed: AssumedSize = NOTHING_ASSUMED,
    *,
    remedies: bool = True,
) -> dict[str, Any]:
    """Return the estimated memory, time and cost of a run on a target, by name.

    The names are the keys that `jbias plan --json` prints. Bytes are per device; a step is
    one step of all seeds. Times are None if a step does not fit into memory. "remedy" exists only
    if no seed fits and `remedies` is true: a text, or None without a suitable change.

    say: receives lines about the progress. assumed: sizes of missing data sets. remedies:
    whether to search for a change of the config with which a seed fits, if no seed fits.
    ValueError if the run could not start, or the target's compiler is missing.
    """
    spec = run_spec.RunSpec.from_config(config)
    train, tests, notes = open_or_assume(spec, assumed)
    request = PlanRequest(
        spec,
        target,
        devices=targets.devices(target),
        train=train,
        tests=tests,
        log=say,
    )
    with xla.compiling_for(target.platform):
        compiled = compile_stages(request)
        notes += _note_not_compared(compiled)
        times = _times(request, compiled, notes)
        estimates = {
            "target": target.name,
            **_memory(request, compiled),
            **times,
            "notes": notes,
        }
        if not compiled.does_fit and remedies:
            estimates["remedy"] = _remedy(request, compiled)
    return {**estimates, "predicted": True}


def _memory(request: PlanRequest, compiled: CompiledStages) -> dict[str, Any]:
    """Return the entries of the plan on devices and memory, by name.

    devices, hosts: numbers. spread: number of groups of devices that train different seeds.
    strategy: its name. fits: True if at least one seed fits in each stage. seeds: number of
    seeds trained in all. seeds_at_once: number that fits at once in every stage. memory_gib,
    capacity_gib, usable_gib: per device, of the stage that needs most. memory_by_part_gib: a dict
    by part: state, work, sets and batches. compiled: the compiled stages of the request's run.
    """
    gib, kind = 2**30, request.target.kind
    spread, strategy = compiled.devices.shape["seed"], compiled.strategy
    stage_bytes = []
    for stage, fit, programs in compiled.per_stage:
        wanted, resident = fit.wanted // spread, compiled.resident_seeds(fit)
        wanted_program = compiled.seeds_per_program(wanted)
        wanted_need = _largest_need(programs[wanted_program])
        shared = fit.needed - wanted_need.times(wanted // wanted_program, strategy)
        sets = sum(
            memory_estimate.input_bytes(other, stage) for other in compiled.stages
        )
        program_seeds = compiled.seeds_per_program(resident)
        need = _largest_need(programs[program_seeds])
        num_programs = resident // program_seeds
        state = num_programs * need.state
        stage_bytes.append(
            {
                "state": state,
                "work": need.times(num_programs, strategy) - state,
                "sets": sets,
                "batches": shared - sets,
            }
        )
    largest = max(stage_bytes, key=lambda by_part: sum(by_part.values()))
    capacity = kind.gib * gib if kind else compiled.free / _USABLE_SHARE
    hosts = {device.process_index for device in compiled.devices.devices.flat}
    return {
        "devices": compiled.devices.size,
        "hosts": len(hosts),
        "spread": spread,
        "strategy": compiled.strategy_name,
        "fits": compiled.does_fit,
        "seeds": compiled.seeds,
        "seeds_at_once": min(fit.count for fit in compiled.fits),
        "memory_gib": sum(largest.values()) / gib,
        "capacity_gib": capacity / gib,
        "usable_gib": compiled.free / gib,
        "memory_by_part_gib": {name: size / gib for name, size in largest.items()},
    }


def _largest_need(programs: Mapping[Hashable, Program]) -> memory_estimate.Need:
    """Return the memory that suffices for each of the programs of a stage's steps."""
    return memory_estimate.Need(
        state=max(program.need.state for program in programs.values()),
        work=max(program.need.work for program in programs.values()),
    )


_ESTIMATES = {"tpu": "cycles", "gpu": "kernels", "cpu": "roofline"}
_TIMES = (
    "steps",
    "step_ms",
    "roofline_ms",
    "images_per_second",
    "epoch_s",
    "evaluations",
    "evaluation_s",
    "average_hours",
    "run_hours",
    "run_device_hours",
    "input_bytes_per_second",
    "input_images_per_second",
    "moved_bytes_per_step",
    "by_part",
)


def _times(
    request: PlanRequest, compiled: CompiledStages, notes: list[str]
) -> dict[str, Any]:
    """Return the estimated times by name, over all stages: "estimate" and the names in _TIMES.

    compiled: the compiled stages of the request's run. notes: a list to which notes are
    added. "by_part": milliseconds of a step, by part. All entries but "estimate" are None if a step
    does not fit into memory.
    """
    spec, kind = request.spec, request.target.kind or this_machine()
    times = {"estimate": _ESTIMATES[kind.platform], **dict.fromkeys(_TIMES)}
    total = compiled.stages[-1].last
    sums, seconds_by_part = collections.Counter(), {}
    host_rates = []
    for stage, fit, programs in compiled.per_stage:
        count = compiled.seeds_per_program(compiled.resident_seeds(fit))
        num_steps = stage.last - stage.first
        if any(program.compiled is None for program in programs[count].values()):
            return times
        config = spec.stages[stage.number].config
        stage_seconds = 0.0
        for static, num_steps_of_program in stage.steps_by_static.items():
            cost = program_cost(
                programs[count][static],
                kind,
                shards=compiled.devices.shape["data"],
                loops=config["train"].get("accumulate", 1),
                branch_probability=strategy_choice.gate_probability(config),
                seeds=count,
            )
            runs = num_steps_of_program * compiled.seeds_per_share / count
            stage_seconds += runs * cost.seconds
            sums["bound"] += runs * cost.bound
            sums["moved"] += runs * cost.moved
            for name, value in cost.parts.items():
                seconds_by_part[name] = seconds_by_part.get(name, 0.0) + runs * value
            notes += [note for note in cost.notes if note not in notes]
        sums["seconds"] += stage_seconds
        sums["images"] += num_steps * stage.order.batch * compiled.seeds
        sums["epochs"] += num_steps / stage.order.steps_per_epoch
        stage_schedule = _schedule(stage, spec.config, total)
        sums["evaluations"] += stage_schedule.num_evaluations
        step_seconds = stage_seconds / num_steps
        host_rates.append(_host_rates(stage, compiled.seeds, step_seconds))
    evaluations = sums["evaluations"] if request.run.evaluate == "here" else 0
    passes = _average_passes(request, compiled)
    evaluation, average_hours = 0.0, 0.0
    if evaluations or passes:
        scoring = _scoring_cost(request, compiled, kind)
        tests = _images_by_shape(request.tests.values()) if evaluations else {}
        evaluation = compiled.seeds_per_share * scoring.seconds(tests)
        average_hours = compiled.seeds_per_share * scoring.seconds(passes) / 3600
    hours = (sums["seconds"] + evaluations * evaluation) / 3600 + average_hours
    return times | {
        "steps": total,
        "step_ms": 1000 * sums["seconds"] / total,
        "roofline_ms": 1000 * sums["bound"] / total,
        "images_per_second": sums["images"] / sums["seconds"],
        "epoch_s": sums["seconds"] / sums["epochs"],
        "evaluations": evaluations,
        "evaluation_s": evaluation,
        "average_hours": average_hours,
        "run_hours": hours,
        "run_device_hours": hours * workdirs.billed_devices(compiled.devices).count,
        "input_bytes_per_second": max(rates.bytes for rates in host_rates),
        "input_images_per_second": max(rates.images for rates in host_rates),
        "moved_bytes_per_step": sums["moved"] / total,
        "by_part": {
            name: 1000 * value / total for name, value in seconds_by_part.items()
        },
    }


class _HostRates(NamedTuple):
    """The rates at which hosts must deliver training data."""

    bytes: float  # Per second.
    images: float  # Images to decode per second.


def _host_rates(stage: Stage, num_seeds: int, step_seconds: float) -> _HostRates:
    """Return the rates at which hosts must deliver data while a stage is trained.

    num_seeds: seeds that train together. step_seconds: duration of a step of all of them.
    """
    num_bytes, num_images = 0.0, 0.0
    for pipeline in stage.feed.pipelines.values():
        batch, rows = pipeline.shapes()
        num_bytes += num_seeds * memory_estimate.tree_bytes(batch)
        if pipeline.streams:
            window_steps = min(pipeline.next_change(0), pipeline.order.steps_per_epoch)
            num_bytes += memory_estimate.tree_bytes(rows) / window_steps
            # Without shared rows, each seed reads its own images.
            num_images += pipeline.order.batch * (1 if rows else num_seeds)
    return _HostRates(num_bytes / step_seconds, num_images / step_seconds)


def _schedule(stage: Stage, config: Mapping[str, Any], total: int) -> schedule.Schedule:
    """Return the evaluations and saves of a stage; total: the run's last step."""
    return schedule.of_stage(
        config,
        first=stage.first,
        last=stage.last,
        steps_per_epoch=stage.order.steps_per_epoch,
        total=total,
    )


_ImagesByShape = Mapping[tuple[int, int], int]  # Numbers, by height and width.


def _images_by_shape(sources: Iterable[base.Source]) -> _ImagesByShape:
    """Return the number of images of data sets by their (height, width)."""
    counts = collections.Counter()
    for source in sources:
        counts[tuple(source.shape)] += len(source)
    return counts


def _average_passes(request: PlanRequest, compiled: CompiledStages) -> _ImagesByShape:
    """Return the images of the forward passes for averages of weights, of one seed.

    At each evaluation SWAD measures the loss of the validation set, until the stretch of
    training that it averages has ended: the number is the largest possible. Averages with
    recomputed batch norms read training batches at each evaluation and each save.
    """
    counts, total = collections.Counter(), compiled.stages[-1].last
    valid = request.tests.get(results.VALID)
    for stage in compiled.stages:
        average = stage.average
        if average is None:
            continue
        stage_schedule = _schedule(stage, request.spec.config, total)
        if average.valley is not None and valid is not None:
            counts[tuple(valid.shape)] += stage_schedule.num_evaluations * len(valid)
        if average.batches:
            side = request.spec.config["size"]
            batches = average.batches * _count_events(stage_schedule)
            counts[side, side] += batches * stage.order.batch
    return counts


def _count_events(stage_schedule: schedule.Schedule) -> int:
    """Return the number of steps of a stage with an evaluation or a save."""
    step, count = stage_schedule.first, 0
    while step < stage_schedule.last:
        step = stage_schedule.next_event(step)
        count += 1
    return count


class _ScoringCost(NamedTuple):
    """The time in which a share of the devices computes one seed's logits of a batch."""

    batch_seconds: float
    batch: int
    pixels: int  # Of an image of the batch.

    def seconds(self, images_by_shape: _ImagesByShape) -> float:
        """Return the time for numbers of images, by their (height, width).

        A batch of images of another size takes time in proportion to the pixels.
        """
        batch_pixels = sum(
            -(-count // self.batch) * height * width
            for (height, width), count in images_by_shape.items()
        )
        return self.batch_seconds * batch_pixels / self.pixels


def _scoring_cost(
    request: PlanRequest, compiled: CompiledStages, kind: targets.DeviceKind
) -> _ScoringCost:
    """Return the estimated time of a batch of the evaluation.

    The images have the most frequent size of the test sets. The time is 0 without test sets,
    or if the program does not fit into memory. kind: the target's devices.
    """
    shards, stage = compiled.devices.shape["data"], compiled.stages[-1]
    batch = -(-request.run.eval_batch // shards) * shards
    images_by_shape = _images_by_shape(request.tests.values())
    if not images_by_shape:
        return _ScoringCost(0.0, batch, pixels=1)
    height, width = max(images_by_shape, key=images_by_shape.get)

    logits = stage.program.logits
    if stage.folds_norms(request.run.eval_norm):
        logits = stage.program.folded_logits

    def score(net, arg, shared, static):
        return logits(net, None, arg[1], static)

    program = _compile_program(
        request,
        "evaluation",
        step=score,
        strategy=strategies.STRATEGIES["looped"],
        shapes=stages.StepShapes(
            state=jax.eval_shape(train_step.net_of, stage.state_shape),
            seed_argument=jax.eval_shape(
                lambda: stages.seed_argument(stage.members[0])
            ),
            batch=jax.ShapeDtypeStruct((batch, height, width, 3), np.uint8),
            shared={},
            static=None,
        ),
        devices=compiled.devices,
        count=1,
    )
    seconds = 0.0
    if program.compiled is not None:
        seconds = program_cost(program, kind, shards).seconds
    return _ScoringCost(seconds, batch, pixels=height * width)


def _remedy(request: PlanRequest, compiled: CompiledStages) -> str | None:
    """Return the mildest change of the config with which one seed fits, as text.

    An example is "--config.train.accumulate=2". None if no change suffices.
    """
    config = request.spec.config
    for change in _changes(config):
        if not _may_fit(compiled, change.work_share):
            continue
        changed = copy.deepcopy(config)
        for stage_config in (changed, *changed["stages"]):
            if change.entry in stage_config:
                stage_config[change.entry].update(change.options)
        request.log(f"{request.target.name}: trying {change.description}")
        try:
            spec = run_spec.RunSpec.from_config(changed)
            if compile_stages(request._replace(spec=spec)).does_fit:
                return change.description
        except ValueError as error:
            request.log(f"{change.description}: {error}")
    return None


class _Change(NamedTuple):
    """A change of the config that lowers the memory of a step."""

    description: str
    entry: str  # Of the config, such as "train".
    options: dict[str, Any]  # New options of the entry.
    work_share: float  # Least share of the step's working memory that remains.


def _changes(config: Mapping[str, Any]) -> Iterator[_Change]:
    """Yield changes of a config that may make one seed fit, mildest first.

    The changes are 2 to 16 times as many accumulated parts of a batch; recomputed activations
    (remat), if the network has this option; and a half to a sixteenth of the batch, where
    divisible.
    """
    accumulate = config["train"].get("accumulate", 1)
    batch = config["train"]["batch"]
    make_model, _ = build.lookup("config.model", config["model"], build.MODELS)
    for k in (2, 4, 8, 16):
        yield _Change(
            f"--config.train.accumulate={accumulate * k}",
            entry="train",
            options={"accumulate": accumulate * k},
            work_share=1 / k,
        )
    if "remat" in inspect.signature(make_model).parameters:
        yield _Change(
            "model.remat=True in a config of your own",
            entry="model",
            options={"remat": True},
            work_share=0.0,
        )
    for k in (2, 4, 8, 16):
        if batch % k == 0:
            yield _Change(
                f"--config.train.batch={batch // k}",
                entry="train",
                options={"batch": batch // k},
                work_share=1 / k,
            )


def _may_fit(compiled: CompiledStages, work_share: float) -> bool:
    """Return False if a stage cannot fit even with less working memory.

    work_share: fraction of the step's working memory that would remain.
    """
    for _, fit, programs in compiled.per_stage:
        work = max(program.need.work for program in programs.values())
        if fit.least - (1 - work_share) * work > compiled.free:
            return False
    return True
