"""Whether a run would fit on devices, and what it would take there.

Its programs are compiled for devices that need not be here, from shapes of images that need
not be here either. What compilers say of a program is a prediction: of its memory always,
of its time where it is TPUs' compiler. That of GPUs is estimated from the program's kernels and
launches (`gpu_time`); that of a CPU is bounded from below, by what it can do.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jbias import build, data, numerals, run_spec
from jbias import config as jc
from jbias.data import base, decoding, sources, splits, tables
from jbias.data.forms import listing
from jbias.runs import workdirs
from jbias.runtime import console, xla
from jbias.training import (
    autotune,
    gpu_time,
    hlo,
    input_pipeline,
    input_plan,
    memory,
    samplers,
    seed_axis,
    setup,
    stages,
    targets,
)
from jbias.training import step as train_step
from jbias.training.stages import Stage


class UnknownSize(ValueError):
    """A set that is not there, and of which nobody says how large it is."""


class AssumedSize(NamedTuple):
    """What a user says of sets that are not there."""

    images: int = 0  # 0: not said.
    classes: int = 0


NOTHING_ASSUMED = AssumedSize()


class _AbsentStore(NamedTuple):
    """The store of a set that is not there."""

    names: range


def open_source(
    where: str, options: Mapping, size: int, given: AssumedSize = NOTHING_ASSUMED
) -> base.Source:
    """Opens a set; one that is not there has as many images as was published, or given."""
    try:
        return splits.open_source(where, options, size)
    except ValueError as error:
        name, missing = options.get("data"), isinstance(error.__cause__, base.Missing)
        ours = name in data.DATASETS
        if not (missing and ours) or data.DATASETS[name].aspect != (1, 1):
            raise
        part = listing.parse_split(where, options["split"])
        spec, images = data.DATASETS[name], given.images
        if spec.classes and isinstance(spec.images, Mapping):
            images = spec.images.get(part.base, images)
        classes = spec.classes or given.classes
        if not images or not classes:
            raise UnknownSize(f"{error}; or give --images=N and --classes=K") from error
    left = listing.cut_index(images, part.stop) - listing.cut_index(images, part.start)
    known = classes == len(wnids := tables.wnids())
    return sources.EncodedSource(
        store=_AbsentStore(range(left)),
        transform=decoding.preprocess(options.get("size", size)),
        name=f"{name}/{options['split']}",
        classes=wnids if known else tuple(f"class {i}" for i in range(classes)),
        space="wnid" if known else "names",
        columns={"label": (np.arange(left) % classes).astype(np.int32)},
        measures=(),
        fingerprint="",
        cite="",
        note=f"not there: {left:,} images are assumed",
    )


@dataclasses.dataclass(frozen=True)
class _Shapes(input_pipeline.InputPipeline):
    """Shapes of what a set gives that is not read."""

    order: samplers.Sampler
    taken: PyTree
    rows: PyTree
    streams: bool = True

    def shapes(self) -> tuple[PyTree, PyTree]:
        return self.taken, self.rows

    def next_change(self, step: int) -> int:
        return self.order.next_change(step)


def pipeline_shapes(plan: input_plan.InputPlan, **_: Any) -> _Shapes:
    """Shapes of what feeds the steps, as `input_plan.make_pipeline` has it."""
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
    held = jax.eval_shape(input_pipeline.flatten_images, rows(count))
    return _Shapes(order, input_pipeline.index_shape(order), held, stream is not None)


def open_or_assume(
    spec: run_spec.RunSpec, given: AssumedSize
) -> tuple[list[splits.TrainSet], list[base.Source], list[str]]:
    """What a run trains and tests on, there or not, and what is assumed of it."""
    setup.check_names(spec)
    size, tests, lost = spec.config["size"], [], []
    train = setup.open_train_sets(spec, functools.partial(open_source, given=given))
    for _, where, options in setup.test_options(spec.config):
        try:
            tests.append(splits.open_test_source(where, options, size, open_source))
        except UnknownSize as error:
            lost.append(f"left out of evaluation: {error}")
    every = [one for part in train for one in part.named(0).values()] + tests
    notes = [f"{one.name}: {one.note}" for one in every if one.note]
    return train, tests, list(dict.fromkeys([*notes, *lost]))


_USED = 0.9  # Of a device's memory, as in a run.
# They say which share of a GPU's memory jax takes; it takes three quarters otherwise.
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
# How a compiler says that a program is larger than the device.
_FULL = re.compile(r"(?s)RESOURCE_EXHAUSTED.*?(Used |temporaries \()([\d.]+)([KMGT])")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class PlanRequest(NamedTuple):
    """What is planned, and whom to tell what takes a while."""

    spec: run_spec.RunSpec
    target: targets.Target
    devices: Sequence[jax.Device]
    train: Sequence[splits.TrainSet]
    tests: Sequence[base.Source]
    log: Callable[[str], None]

    @property
    def run(self) -> Mapping[str, Any]:
        return self.spec.config["run"]


class Program(NamedTuple):
    """A compiled program, and what it takes of each device."""

    compiled: jax.stages.Compiled | None  # None: it does not fit.
    need: memory.Need
    flops: float
    launches: Mapping[str, float] = types.MappingProxyType({})  # A run, on a GPU.


class CompiledStages(NamedTuple):
    """The stages of a run on a target, and what was compiled of each."""

    devices: jax.sharding.Mesh
    stages: list[Stage]
    fits: list[memory.Fit]
    programs: list[dict[int, Program]]  # By how many seeds are in one.
    free: int  # Bytes of each device that a run may use.
    name: str  # Of the strategy.
    not_compared: tuple[str, ...] = ()  # Strategies that a run would time, too.

    @property
    def strategy(self) -> seed_axis.Strategy:
        return seed_axis.STRATEGIES[self.name]

    def cycles(self) -> float:
        """Of a seed's step in the first stage; infinite where it does not fit."""
        count = self.within(self.count(self.fits[0]))
        program = self.programs[0][count].compiled
        if not self.fit or program is None:
            return math.inf
        return autotune.estimated_cycles(program, self.stages[0], count)

    @property
    def fit(self) -> bool:
        return all(one.count for one in self.fits)

    @property
    def each(self) -> Iterator[tuple[Stage, memory.Fit, dict[int, Program]]]:
        return zip(self.stages, self.fits, self.programs, strict=True)

    @property
    def seeds(self) -> int:
        """That are trained side by side."""
        return len(self.stages[0].members)

    @property
    def rows(self) -> int:
        """Seeds of each share of the devices."""
        return self.seeds // self.devices.shape["seed"]

    def count(self, fit: memory.Fit) -> int:
        """So many of these are on the devices at once; one where none fits."""
        return max(1, fit.count // self.devices.shape["seed"])

    def within(self, count: int) -> int:
        """How many of so many seeds are in one program."""
        several = self.strategy.stacked or self.strategy.dispatch == "unrolled"
        return count if several else 1


def compile_stages(asked: PlanRequest) -> CompiledStages:
    """Compiles the step of each stage, laid out as `memory.fit_stages` would."""
    run, target, found = asked.run, asked.target, None
    plans = input_plan.plan_stages(asked.spec.stages, asked.train)
    seeds = len(asked.spec.members)
    gib = run["memory"] or (target.kind.gib * _USED if target.kind else 0.0)
    if target.platform == "gpu" and not run["memory"]:
        gib *= _gpu_share()

    def make(devices: jax.sharding.Mesh) -> list[Stage]:
        return stages.build_stages(asked.spec, plans, {}, devices, pipeline_shapes)

    meshes = memory.candidate_stages(make, run, seeds, devices=asked.devices)
    for devices, planned in meshes:
        free = memory.free_bytes(devices, gib) or 2**62  # Where nobody says.
        candidates = autotune.candidates(
            run["strategy"], devices, seeds, planned[-1].last
        )
        is_compared = target.platform == "tpu" and not found
        several = candidates if is_compared else candidates[:1]
        each = [_compile_by(asked, name, devices, planned, free) for name in several]
        found = min(each, key=CompiledStages.cycles) if each[1:] else each[0]
        if target.platform == "gpu":
            found = found._replace(not_compared=candidates[1:])
        if found.fit:
            break
    return found


def _note_not_compared(made: CompiledStages) -> list[str]:
    """Return the note on the strategies that a run would time and the plan leaves out."""
    if not made.not_compared:
        return []
    names = " and ".join(made.not_compared)
    return [
        (
            f"planned with {made.name}; a run times {names}, too, and takes the faster, so the "
            "plan may be too dear: ten small networks took 0.4 to 0.6 of the time on an H100; "
            f"--config.run.strategy={made.not_compared[0]} plans that"
        )
    ]


def _compile_by(asked: PlanRequest, name: str, devices, built, free) -> CompiledStages:
    """What is compiled by one strategy."""
    programs, run, fits = [], {**asked.run, "strategy": name}, []
    for stage in built:
        programs.append({})
        compiled = functools.partial(_program, asked, programs[-1], "the step")
        fits.append(memory.fit(built, stage, devices, run, free, compiled))
    return CompiledStages(devices, built, fits, programs, free, name)


def _program(
    asked: PlanRequest, made: dict[int, Program], what: str, *of_step: Any
) -> memory.Need:
    """Compiles what `memory.step_need` is asked for, and keeps it."""
    *_, given, devices, count = of_step
    on_gpu, flops, launches = asked.target.platform == "gpu", 0.0, {}
    several = f" of {count} seeds" * (count > 1)
    doing = f"{asked.target.name}: compiling {what}{several}"
    with console.announce_slow(asked.log, doing), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of memory that could not be used again.
        lowered = memory.lower_step(*of_step)
        if on_gpu:  # Whose compiler counts nothing.
            alone = np.reshape(np.array(jax.devices("cpu")[:1]), (1, 1))
            alone = jax.sharding.Mesh(alone, devices.axis_names)
            whole = memory.lower_step(*of_step[:-2], alone, 1).cost_analysis()
            flops = count * whole["flops"] / devices.shape["data"]
        try:
            if on_gpu:
                compiled, launches = gpu_time.compile_launches(lowered)
            else:
                compiled = lowered.compile()
            need = memory.program_need(compiled, given.state, count)
            flops = flops or compiled.cost_analysis().get("flops", 0.0)
        except jax.errors.JaxRuntimeError as error:
            if (full := _FULL.search(str(error))) is None:
                raise
            compiled, kept = None, count * memory.tree_bytes(given.state)
            work = round(float(full[2]) * _UNITS[full[3]])
            work -= kept if full[1] == "Used " else 0
            need = memory.Need(kept, max(0, work))
    made[count] = Program(compiled, need, flops, launches)
    return need


def _gpu_share() -> float:
    for name in _FRACTIONS:
        if text := os.environ.get(name):
            with contextlib.suppress(ValueError):
                if 0 < numerals.real(text) <= 1:
                    return numerals.real(text)
            jc.refuse(name, "be a share from 0 to 1", text)
    return 0.75


class Cost(NamedTuple):
    """What one run of a program costs each device."""

    parts: Mapping[str, float]  # Seconds.
    bound: float  # Seconds that its products and its memory need at least.
    moved: float  # Bytes from other devices.
    notes: list[str]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def program_cost(
    program: Program, kind: targets.DeviceKind, shards: int, loops: int = 1, **chances
) -> Cost:
    """Reads a program whose products lie in a loop of so many turns.

    chances: of its gates (hlo.operations).
    """
    text, notes = program.compiled.as_text(), []
    found = hlo.operations(text, **chances)
    touched = hlo.by_part(found, lambda one: one.bytes * one.runs / kind.bytes)
    products = loops * program.flops / kind.flops
    if kind.hertz:
        cycles = hlo.by_part(found)
        parts = {name: value / kind.hertz for name, value in cycles.items()}
        if unknown := hlo.unestimated(found):
            many = ", ".join(f"{name} x{n:g}" for name, n in unknown.items())
            notes.append(f"no time is estimated of {many}, which is not in the step")
    elif kind.platform == "gpu":
        seconds = functools.partial(gpu_time.kernel_seconds, kind=kind)
        parts = hlo.by_part(found, seconds)
        parts["launches"] = gpu_time.launch_seconds(program.launches)
        notes.append(gpu_time.MEASURED if program.launches else gpu_time.UNCOUNTED)
        if gpu_time.has_grouped_convolutions(text):
            notes.append(gpu_time.GROUPED)
    else:
        heavy = ("convolutions", "convolutions backwards")
        slower = max(1, products / (sum(touched[name] for name in heavy) or 1))
        parts = {**touched, **{name: slower * touched[name] for name in heavy}}
    if any(one.times is None and one.cycles + one.bytes for one in found):
        notes.append("loops whose length the data decides are counted with one turn")
    moved = sum(_moved(one, shards) for one in found)
    if kind.between:
        parts["collectives"] += moved / kind.between
    return Cost(parts, max(products, sum(touched.values())), moved, notes)


def _moved(one: hlo.Operation, shards: int) -> float:
    """Bytes that a collective brings each device, around a ring."""
    code = one.code.removesuffix("-start")
    if code not in hlo.COLLECTIVES or shards == 1:
        return 0.0
    out = sum(size for _, size in hlo.arrays(one.out)) * one.runs
    if one.code != code and one.out.startswith("(") and code != "all-reduce":
        out /= 2  # What is given stands beside it.
    if code == "collective-permute":
        return out
    turns = {"all-reduce": 2, "reduce-scatter": shards}.get(code, 1)
    return out * turns * (shards - 1) / shards


@functools.cache
def this_machine() -> targets.DeviceKind:
    """What this machine's CPU does at most, timed now."""

    def fastest(of: Callable, *given: Any) -> float:
        return min(timeit.repeat(lambda: of(*given).block_until_ready(), number=1))

    on = jax.devices("cpu")[0]
    side = jax.device_put(np.ones((1024, 1024), np.float32), on)
    much = jax.device_put(np.ones(2**18, np.float32), on)  # In its caches.
    flops = 2 * 1024**3 / fastest(jax.jit(jnp.matmul), side, side)
    moved = 2 * much.nbytes / fastest(jax.jit(jnp.negative), much)
    return targets.DeviceKind("cpu", "cpu", 0, flops, moved)


def plan(
    config: Mapping[str, Any],
    target: targets.Target,
    say: Callable[[str], None],
    given: AssumedSize = NOTHING_ASSUMED,
    *,
    remedies: bool = True,
) -> dict[str, Any]:
    """What a run of the config would take on the target; ValueError if it cannot be.

    Bytes and times are of each device; a step is one of all seeds.
    """
    spec = run_spec.RunSpec.from_config(config)
    train, tests, notes = open_or_assume(spec, given)
    asked = PlanRequest(spec, target, targets.devices(target), train, tests, say)
    with xla.compiling_for(target.platform):
        made = compile_stages(asked)
        notes += _note_not_compared(made)
        times = _times(asked, made, notes)
        told = {"target": target.name, **_memory(asked, made), **times, "notes": notes}
        if not made.fit and remedies:
            told["remedy"] = _remedy(asked, made)
    return {**told, "predicted": True}


def _memory(asked: PlanRequest, made: CompiledStages) -> dict[str, Any]:
    """Of the stage that needs the most."""
    gib, parts, kind = 2**30, [], asked.target.kind
    spread, strategy = made.devices.shape["seed"], made.strategy
    for stage, fit, programs in made.each:
        limit, count = fit.wanted // spread, made.count(fit)
        whole, some = made.within(limit), made.within(count)
        shared = fit.needed - programs[whole].need.times(limit // whole, strategy)
        held = sum(memory.input_bytes(one, stage) for one in made.stages)
        need = programs[some].need
        of = {"state": count // some * need.state}
        of["work"] = need.times(count // some, strategy) - of["state"]
        parts.append({**of, "sets": held, "batches": shared - held})
    most = max(parts, key=lambda one: sum(one.values()))
    whole = kind.gib * gib if kind else made.free / _USED
    return {
        "devices": made.devices.size,
        "hosts": len({one.process_index for one in made.devices.devices.flat}),
        "spread": spread,
        "strategy": made.name,
        "fits": made.fit,
        "seeds": made.seeds,
        "seeds_at_once": min(fit.count for fit in made.fits),
        "memory_gib": sum(most.values()) / gib,
        "capacity_gib": whole / gib,
        "usable_gib": made.free / gib,
        "memory_by_part_gib": {name: size / gib for name, size in most.items()},
    }


_ESTIMATES = {"tpu": "cycles", "gpu": "kernels", "cpu": "roofline"}
_TIMES = (
    *("steps", "step_ms", "roofline_ms", "images_per_second", "epoch_s"),
    *("evaluations", "evaluation_s", "run_hours", "run_device_hours"),
    *("input_bytes_per_second", "input_images_per_second", "moved_bytes_per_step"),
    "by_part",
)


def _times(asked: PlanRequest, made: CompiledStages, notes: list) -> dict[str, Any]:
    """Sums over the stages; nothing is known where a program does not fit."""
    spec, kind = asked.spec, asked.target.kind or this_machine()
    told = {"estimate": _ESTIMATES[kind.platform], **dict.fromkeys(_TIMES)}
    total, sums, parts = made.stages[-1].last, collections.Counter(), {}
    inputs, every = [], spec.config["eval_every"]
    for stage, fit, programs in made.each:
        count, steps = made.within(made.count(fit)), stage.last - stage.first
        if programs[count].compiled is None:
            return told
        part, epoch = spec.stages[stage.number].config, stage.order.steps_per_epoch
        loops = part["train"].get("accumulate", 1)
        given = (programs[count], kind, made.devices.shape["data"], loops)
        one = program_cost(
            *given, branch_probability=autotune.gate_probability(part), seeds=count
        )
        turns = steps * made.rows / count
        sums["seconds"] += turns * one.seconds
        sums["bound"] += turns * one.bound
        sums["moved"] += turns * one.moved
        sums["images"] += steps * stage.order.batch * made.seeds
        sums["epochs"] += steps / epoch
        each = jc.to_steps(every, steps_per_epoch=epoch, total=total)
        sums["evaluations"] += -(-steps // each)
        for name, value in one.parts.items():
            parts[name] = parts.get(name, 0.0) + turns * value
        inputs.append(_input(stage, made.seeds, made.rows / count * one.seconds))
        notes += [note for note in one.notes if note not in notes]
    evaluations = sums["evaluations"] if asked.run["evaluate"] == "here" else 0
    evaluation = made.rows * _evaluation(asked, made, kind) if evaluations else 0.0
    hours = (sums["seconds"] + evaluations * evaluation) / 3600
    moved, images = map(max, zip(*inputs, strict=True))
    return told | {
        "steps": total,
        "step_ms": 1000 * sums["seconds"] / total,
        "roofline_ms": 1000 * sums["bound"] / total,
        "images_per_second": sums["images"] / sums["seconds"],
        "epoch_s": sums["seconds"] / sums["epochs"],
        "evaluations": evaluations,
        "evaluation_s": evaluation,
        "run_hours": hours,
        "run_device_hours": hours * workdirs.billed_devices(made.devices).count,
        "input_bytes_per_second": moved,
        "input_images_per_second": images,
        "moved_bytes_per_step": sums["moved"] / total,
        "by_part": {name: 1000 * value / total for name, value in parts.items()},
    }


def _input(stage: Stage, count: int, seconds: float) -> tuple[float, float]:
    """Bytes and images a second that hosts deliver while a stage trains."""
    moved, images = 0.0, 0.0
    for one in stage.pipelines.values():
        taken, rows = one.shapes()
        moved += count * memory.tree_bytes(taken)
        if one.streams:
            steps = min(one.next_change(0), one.order.steps_per_epoch)
            moved += memory.tree_bytes(rows) / steps
            images += one.order.batch * (1 if rows else count)
    return moved / seconds, images / seconds


def _evaluation(
    asked: PlanRequest, made: CompiledStages, kind: targets.DeviceKind
) -> float:
    """Seconds in which one seed on each share of the devices sees all test images."""
    shards, stage = made.devices.shape["data"], made.stages[-1]
    batch = -(-asked.run["eval_batch"] // shards) * shards
    shown, programs = collections.Counter(), {}
    for test in asked.tests:
        shown[tuple(test.shape)] += len(test)
    if not shown:
        return 0.0
    (height, width), _ = shown.most_common(1)[0]
    net = jax.eval_shape(train_step.net_of, stage.state_shape)
    own = jax.eval_shape(lambda: stages.seed_argument(stage.members[0]))
    image = jax.ShapeDtypeStruct((batch, height, width, 3), np.uint8)

    logits = stage.program.logits
    if stage.folds_norms(asked.run):
        logits = stage.program.folded_logits

    def score(net, arg, shared, static):
        return logits(net, None, arg[1], static)

    alone = stages.StepShapes(net, own, image, {}, None)
    looped = seed_axis.STRATEGIES["looped"]
    _program(asked, programs, "evaluation", score, looped, alone, made.devices, 1)
    if programs[1].compiled is None:
        return 0.0
    one = program_cost(programs[1], kind, shards).seconds
    # Others take as many more batches, and pixels.
    sizes = ((-(-n // batch), h * w) for (h, w), n in shown.items())
    return one * sum(batches * pixels for batches, pixels in sizes) / (height * width)


def _remedy(asked: PlanRequest, made: CompiledStages) -> str | None:
    """The first change with which one seed fits on each device; None: none was found."""
    config = asked.spec.config
    for words, room, entries, share in _changes(config):
        if not _may_fit(made, share):
            continue
        changed = copy.deepcopy(config)
        for part in (changed, *changed["stages"]):
            if room in part:
                part[room].update(entries)
        asked.log(f"{asked.target.name}: trying {words}")
        try:
            spec = run_spec.RunSpec.from_config(changed)
            if compile_stages(asked._replace(spec=spec)).fit:
                return words
        except ValueError as error:
            asked.log(f"{words}: {error}")
    return None


def _changes(config: Mapping[str, Any]) -> Iterator[tuple[str, str, dict, float]]:
    """What may help: words, the config's part and entries, the share of work left."""
    now, batch = config["train"].get("accumulate", 1), config["train"]["batch"]
    make, _ = build.lookup("config.model", config["model"], build.MODELS)
    of = "--config.train"
    for k in (2, 4, 8, 16):
        yield f"{of}.accumulate={now * k}", "train", {"accumulate": now * k}, 1 / k
    if "remat" in inspect.signature(make).parameters:
        yield "model.remat=True in a config of your own", "model", {"remat": True}, 0.0
    for k in (2, 4, 8, 16):
        if batch % k == 0:
            yield f"{of}.batch={batch // k}", "train", {"batch": batch // k}, 1 / k


def _may_fit(made: CompiledStages, share: float) -> bool:
    """Whether it may do with so much of the work's memory."""
    for _, fit, programs in made.each:
        work = max(one.need.work for one in programs.values())
        if fit.least - (1 - share) * work > made.free:
            return False
    return True
