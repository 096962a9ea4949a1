"""Builds and compiles a run for devices and sets that need not be here, and reads it.

What compilers say of a program is a prediction: of its memory always, of its time where
it is TPUs' compiler. Elsewhere the time is bounded from below, by what a device can do.
"""

import collections
import copy
import functools
import inspect
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jbias import config as jc
from jbias import data, feed, mesh, models, results, seeds, xla
from jbias import step as train_step
from jbias.data import (
    celeba,
    cifar,
    geirhos,
    imagenet,
    listing,
    mnist,
    office_home,
    pacs,
    sources,
    spec,
    transforms,
    wordnet,
)
from jbias.feeding import sets
from jbias.terminal import waits
from jbias.training import build, checks, hlo, memory, supply, targets, vary

# Images by split, and classes, of sets that may lie elsewhere.
_PUBLISHED: Mapping[str, tuple[Mapping[str, int], int]] = {
    **dict.fromkeys(("imagenet", "stylized_imagenet"), (imagenet.COUNTS, 1000)),
    "deepaugment": (dict.fromkeys(("cae", "edsr"), imagenet.COUNTS["train"]), 1000),
    "imagenet_sketch": ({"sketch": 50_889}, 1000),
    "tiny_imagenet": ({"train": 100_000, "val": 10_000}, 200),
    **{f"cifar{k}": (cifar.COUNTS, k) for k in (10, 100)},
    **dict.fromkeys(("mnist", "fashion_mnist"), (mnist.COUNTS, 10)),
    "pacs": (pacs.COUNTS, 7),
    "office_home": (office_home.COUNTS, 65),
    "celeba": (celeba.COUNTS, 2),
    "geirhos": (geirhos.COUNTS, 16),
}
_USED = 0.9  # Of a device's memory, as in a run.
# How a compiler says that a program is larger than the device.
_FULL = re.compile(
    r"RESOURCE_EXHAUSTED.*?(Used |temporaries \()([\d.]+)([KMGT])", re.DOTALL
)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Nothing can be timed while it compiles for a GPU that is not here.
_OPTIONS = {"gpu": {"xla_gpu_autotune_level": 0}}


class Unknown(ValueError):
    """A set that is not there, and of which nobody says how large it is."""


class Given(NamedTuple):
    """What a user says of sets that are not there."""

    images: int = 0  # 0: not said.
    classes: int = 0


UNSAID = Given()


class _Unread(NamedTuple):
    """The store of a set that is not there."""

    names: range


def source(
    where: str, options: Mapping[str, Any], size: int, given: Given = UNSAID
) -> spec.Source:
    """Opens a set; one that is not there has as many images as was published, or given."""
    try:
        return sets.source(where, options, size)
    except ValueError as error:
        name, missing = options.get("data"), isinstance(error.__cause__, spec.Missing)
        if not missing or data.DATASETS[name].aspect != (1, 1):
            raise
        part = listing.parse_split(where, options["split"])
        counts, known = _PUBLISHED.get(name, ({}, 0))
        images, classes = counts.get(part.base, given.images), known or given.classes
        if not images or not classes:
            raise Unknown(f"{error}; or give --images=N and --classes=K") from error
    left = listing.cut(images, part.stop) - listing.cut(images, part.start)
    names, wnids = [f"class {i}" for i in range(classes)], wordnet.wnids()
    return sources.EncodedSource(
        store=_Unread(range(left)),
        transform=transforms.preprocess(options.get("size", size)),
        name=f"{name}/{options['split']}",
        classes=wnids if known == len(wnids) else tuple(names),
        space="wnid" if known == len(wnids) else "names",
        columns={"label": (np.arange(left) % classes).astype(np.int32)},
        measures=(),
        fingerprint="",
        cite="",
        note=f"not there: {left:,} images are assumed",
    )


class _Resident(feed.Resident):
    """As that, with shapes in the place of rows."""

    def shapes(self) -> tuple[PyTree, PyTree]:
        return feed.places(self.order), self.rows


class _Streamed(NamedTuple):
    """Shapes of what a streamed set gives."""

    order: Any
    taken: PyTree
    rows: PyTree

    def shapes(self) -> tuple[PyTree, PyTree]:
        return self.taken, self.rows

    def until(self, step: int) -> int:
        return self.order.until(step)


def fed(plan: supply.Plan, **_: Any) -> feed.Resident | _Streamed:
    """Shapes of what feeds the steps, as `supply.make` has it."""
    (height, width), stream = next(iter(plan.opened.values())).shape, plan.stream
    columns = dict(plan.columns)
    if stream is not None:
        columns["index"] = np.zeros(1, np.int32)
        height = width = stream.canvas or stream.size
    if stream is not None and stream.canvas:
        columns["aspect"] = np.zeros(1, np.float32)

    def rows(count):
        image = jax.ShapeDtypeStruct((count, height, width, 3), np.uint8)
        return {"image": image, **feed.longer(columns, count)}

    if stream is None:
        count = sum(map(len, plan.opened.values()))
        return _Resident(plan.order, jax.eval_shape(feed.flat, rows(count)))
    if stream.crop == "host":
        return _Streamed(plan.order, rows(plan.order.batch), {})
    held = jax.eval_shape(feed.flat, rows(plan.order.span))
    return _Streamed(plan.order, feed.places(plan.order), held)


class Program(NamedTuple):
    """A compiled program, and what it takes of each device."""

    compiled: jax.stages.Compiled | None  # None: it does not fit.
    need: memory.Need
    flops: float


class Built(NamedTuple):
    """The stages of a run on a target, and what was compiled of each."""

    devices: jax.sharding.Mesh
    stages: list[build.Stage]
    fits: list[memory.Fit]
    programs: list[dict[int, Program]]  # By how many seeds are in one.
    own: list[Any]
    free: int

    @property
    def fit(self) -> bool:
        return all(one.count for one in self.fits)


def built(
    config: Mapping[str, Any],
    target: targets.Target,
    here: Sequence[jax.Device],
    train: Sequence[sets.TrainSet],
    say: Callable[[str], None],
) -> Built:
    """Compiles the step of each stage, laid out as `memory.laid_out` would."""
    run, found = config["run"], None
    own = [one.own for one in vary.entries(config["seeds"], vary.branches(config))]
    asked = functools.partial(mesh.make, run["devices"], len(own), devices=here)
    first = asked(run["spread"], run["together"]).shape["seed"]
    fewer = () if run["spread"] else range(first - 1, 0, -1)
    for spread in (first, *(k for k in fewer if first % k == 0)):
        devices = asked(spread)
        try:
            stages = build.stages(config, train, {}, devices, fed)
        except ValueError:
            if found is None:
                raise
            continue  # The batch cannot be shared out among so many.
        free, programs = room(config, target, devices), [{} for _ in stages]
        doing = f"{target.name}: compiling the step"
        fits = [
            memory.fit(
                *(stages, stage, own, devices, run, free),
                functools.partial(_program, made, target, say, doing),
            )
            for stage, made in zip(stages, programs, strict=True)
        ]
        found = Built(devices, stages, fits, programs, own, free)
        if found.fit:
            break
    return found


def room(
    config: Mapping[str, Any], target: targets.Target, devices: jax.sharding.Mesh
) -> int:
    """Bytes of each device that a run may use."""
    gib = config["run"]["memory"]
    if target.kind is None:
        return memory.room(devices, gib) or 2**62  # Where nobody says.
    return round((gib or _USED * target.kind.gib) * 2**30)


def _program(
    made: dict[int, Program],
    target: targets.Target,
    say: Callable[[str], None],
    doing: str,
    *asked: Any,
) -> memory.Need:
    """Compiles what `memory.of_step` is asked for, and keeps it."""
    *_, state, _, _, _, _, devices, count = asked
    several = f" of {count} seeds" if count > 1 else ""
    with waits.told(say, f"{doing}{several}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of memory that could not be used again.
        lowered = memory.lowered(*asked)
        flops = 0.0
        if target.platform == "gpu":  # Whose compiler does not count them.
            alone = jax.sharding.Mesh(
                np.reshape(jax.devices("cpu")[:1], (1, 1)), devices.axis_names
            )
            whole = memory.lowered(*asked[:-2], alone, 1).cost_analysis()
            flops = count * whole["flops"] / devices.shape["data"]
        try:
            compiled = lowered.compile(_OPTIONS.get(target.platform))
            need = memory.need(compiled, state, count)
        except jax.errors.JaxRuntimeError as error:
            full = _FULL.search(str(error))
            if full is None:
                raise
            compiled, kept = None, count * _bytes(state)
            work = round(float(full[2]) * _UNITS[full[3]])
            work -= kept if full[1] == "Used " else 0
            need = memory.Need(kept, max(0, work))
    if compiled and target.platform != "gpu":
        flops = compiled.cost_analysis().get("flops", 0.0)
    made[count] = Program(compiled, need, flops)
    return need


def _bytes(tree: PyTree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


class Spent(NamedTuple):
    """What one run of a program costs each device."""

    parts: Mapping[str, float]  # Seconds.
    bound: float  # Seconds that its products and its memory need at least.
    moved: float  # Bytes from other devices.
    unestimated: Mapping[str, float]  # Operations of which no time is known.
    open: bool  # Whether it has loops whose length the data decides.

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def spent(
    program: Program, kind: targets.Kind, shards: int, *, taken: float, loops: int
) -> Spent:
    """Reads a program whose heavy part runs in a loop of so many turns.

    taken: the chance of its gates (hlo.operations).
    """
    found = hlo.operations(program.compiled.as_text(), taken=taken)
    touched = hlo.by_part(found, lambda one: one.bytes * one.runs / kind.bytes)
    products = loops * program.flops / kind.flops
    parts, unknown = dict(touched), {}
    if kind.hertz:
        cycles, unknown = hlo.by_part(found), hlo.unestimated(found)
        parts = {name: value / kind.hertz for name, value in cycles.items()}
    else:
        names = ("convolutions", "convolutions backwards")
        slower = max(1, products / (sum(touched[name] for name in names) or 1))
        parts |= {name: slower * touched[name] for name in names}
    moved = sum(_moved(one, shards) for one in found)
    if kind.between:
        parts["collectives"] += moved / kind.between
    bound = max(products, sum(touched.values()))
    endless = any(one.times is None and one.code != "parameter" for one in found)
    return Spent(parts, bound, moved, unknown, endless)


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
def this_machine() -> targets.Kind:
    """What this machine's CPU does at most, timed now."""
    on = jax.devices("cpu")[0]
    side = jax.device_put(np.ones((1024, 1024), np.float32), on)
    much = jax.device_put(np.ones(2**18, np.float32), on)  # In its caches.
    product = _fastest(jax.jit(jnp.matmul), side, side)
    copy_ = _fastest(jax.jit(jnp.negative), much)
    flops, moved = 2 * 1024**3 / product, 2 * much.nbytes / copy_
    return targets.Kind("cpu", "cpu", 0, flops, moved)


def _fastest(of: Callable, *given: Any) -> float:
    found = []
    for _ in range(6):
        began = time.perf_counter()
        of(*given).block_until_ready()
        found.append(time.perf_counter() - began)
    return min(found)


class Opened(NamedTuple):
    """The sets of a run, and what is assumed of those that are not there."""

    train: list[sets.TrainSet]
    tests: list[spec.Source]
    notes: list[str]


def opened(config: Mapping[str, Any], given: Given) -> Opened:
    """Opens what a config names, there or not."""
    checks.whole(config)
    open_ = functools.partial(source, given=given)
    train = [
        sets.train_set(
            f"config.stages[{number}].train" if number else "config.train",
            part["train"],
            config["size"],
            open_,
        )
        for number, part in enumerate(jc.stages(config))
    ]
    tests, notes = [], []
    for name, options in {results.VALID: config["valid"], **config["tests"]}.items():
        where = f"config.tests.{name}" if name in config["tests"] else "config.valid"
        try:
            tests.append(sets.watched(where, options, config["size"], source))
        except Unknown as error:
            notes.append(f"left out of evaluation: {error}")
    there = [one for part in train for one in part.named(0).values()] + tests
    notes = [f"{one.name}: {one.note}" for one in there if one.note] + notes
    return Opened(train, tests, list(dict.fromkeys(notes)))


def plan(
    config: Mapping[str, Any],
    target: targets.Target,
    say: Callable[[str], None],
    *,
    given: Given = UNSAID,
    remedies: bool = True,
) -> dict[str, Any]:
    """What a run of the config would take on the target; ValueError if it cannot be.

    Bytes and times are of each device; a step is one of all seeds.
    """
    found, here = opened(config, given), targets.devices(target)
    with xla.compiling_for(target.platform):
        made = built(config, target, here, found.train, say)
        told = {**_memory(config, target, made), "notes": found.notes}
        told |= _times(config, target, made, found.tests, say, told["notes"])
        if not made.fit and remedies:
            told["remedy"] = _remedy(config, target, here, made, found, say)
    return {"target": target.name, **told, "predicted": True}


def _memory(
    config: Mapping[str, Any], target: targets.Target, made: Built
) -> dict[str, Any]:
    """Of the stage that needs the most."""
    gib, parts = 2**30, []
    spread = made.devices.shape["seed"]
    strategy = seeds.strategy(config["run"]["strategy"], made.devices)
    for stage, fit, programs in zip(made.stages, made.fits, made.programs, strict=True):
        limit, count = fit.asked // spread, max(1, fit.count // spread)
        whole, some = _within(strategy, limit), _within(strategy, count)
        shared = fit.needed - programs[whole].need.times(limit // whole, strategy)
        need, held = (
            programs[some].need,
            sum(memory.held(x, stage) for x in made.stages),
        )
        running = need.times(count // some, strategy)
        state = count // some * need.state
        of = {"state": state, "work": running - state}
        parts.append({**of, "sets": held, "batches": shared - held})
    most = max(parts, key=lambda one: sum(one.values()))
    kind = target.kind
    return {
        "devices": made.devices.size,
        "hosts": len({one.process_index for one in made.devices.devices.flat}),
        "spread": spread,
        "fits": made.fit,
        "seeds": len(made.own),
        "seeds_at_once": min(fit.count for fit in made.fits),
        "memory_gib": sum(most.values()) / gib,
        "capacity_gib": kind.gib
        if kind
        else (memory.room(made.devices) or made.free) / _USED / gib,
        "usable_gib": made.free / gib,
        "memory_by_part_gib": {name: size / gib for name, size in most.items()},
    }


def _within(strategy: seeds.Strategy, count: int) -> int:
    """How many of so many seeds are in one program."""
    side_by_side = strategy.stacked or strategy.dispatch == "unrolled"
    return count if side_by_side else 1


_TIMES = (
    *("step_ms", "roofline_ms", "images_per_second", "epoch_s", "evaluation_s"),
    *("run_hours", "run_device_hours", "input_bytes_per_second"),
    *("input_images_per_second", "moved_bytes_per_step", "by_part"),
)


def _times(
    config: Mapping[str, Any],
    target: targets.Target,
    made: Built,
    tests: Sequence[spec.Source],
    say: Callable[[str], None],
    notes: list[str],
) -> dict[str, Any]:
    kind = target.kind or this_machine()
    told = {"estimate": "cycles" if kind.hertz else "roofline", **dict.fromkeys(_TIMES)}
    spread, shards = (made.devices.shape[axis] for axis in ("seed", "data"))
    strategy = seeds.strategy(config["run"]["strategy"], made.devices)
    rows, total = len(made.own) // spread, made.stages[-1].last
    steps, shown, trained, evaluations, epochs = 0, 0, 0.0, 0, 0.0
    parts, sums = collections.Counter(), collections.Counter()
    inputs = []
    for stage, fit, programs in zip(made.stages, made.fits, made.programs, strict=True):
        count = _within(strategy, max(1, fit.count // spread))
        if programs[count].compiled is None:
            return {**told, "evaluations": None, "steps": total}
        part, here = jc.stages(config)[stage.number], stage.last - stage.first
        chance = part["algo"].get("p", 0.5)
        one = spent(
            *(programs[count], kind, shards),
            taken=chance if isinstance(chance, float) else 0.5,
            loops=part["train"].get("accumulate", 1),
        )
        turns = here * rows / count
        steps += here
        trained += turns * one.seconds
        shown += here * stage.order.batch * len(made.own)
        epochs += here / stage.order.steps_per_epoch
        every = jc.steps(
            config["eval_every"],
            steps_per_epoch=stage.order.steps_per_epoch,
            total=total,
        )
        evaluations += -(-here // every)
        for name, value in one.parts.items():
            parts[name] += turns * value
        sums["bound"] += turns * one.bound
        sums["moved"] += turns * one.moved
        inputs.append(_input(stage, len(made.own), rows / count * one.seconds))
        notes += _open_questions(one)
    if config["run"]["evaluate"] == "elsewhere":
        evaluations = 0
    one, last = 0.0, made.stages[-1]
    if evaluations:
        one = rows * _evaluation(config, target, kind, made, last, tests, say)
    hours = (trained + evaluations * one) / 3600
    return told | {
        "steps": steps,
        "step_ms": 1000 * trained / steps,
        "roofline_ms": 1000 * sums["bound"] / steps,
        "images_per_second": shown / trained,
        "epoch_s": trained / epochs,
        "evaluations": evaluations,
        "evaluation_s": one,
        "run_hours": hours,
        "run_device_hours": hours * made.devices.size,
        "input_bytes_per_second": max(bytes_ for bytes_, _ in inputs),
        "input_images_per_second": max(images for _, images in inputs),
        "moved_bytes_per_step": sums["moved"] / steps,
        "by_part": {name: 1000 * value / steps for name, value in parts.items()},
    }


def _open_questions(one: Spent) -> Iterator[str]:
    if one.unestimated:
        many = ", ".join(f"{name} x{n:g}" for name, n in one.unestimated.items())
        yield f"the compiler estimates no time of {many}, which is not in the step"
    if one.open:
        yield "loops whose length the data decides are counted with one turn"


def _input(stage: build.Stage, count: int, seconds: float) -> tuple[float, float]:
    """Bytes and images a second that hosts deliver while a stage trains."""
    moved, images = 0.0, 0.0
    for one in stage.feeds.values():
        taken, rows = one.shapes()
        moved += count * _bytes(taken)
        if not isinstance(one, feed.Resident):
            window = min(one.until(0), one.order.steps_per_epoch)
            moved += _bytes(rows) / window
            images += one.order.batch * (1 if rows else count)
    return moved / seconds, images / seconds


def _evaluation(
    config: Mapping[str, Any],
    target: targets.Target,
    kind: targets.Kind,
    made: Built,
    stage: build.Stage,
    tests: Sequence[spec.Source],
    say: Callable[[str], None],
) -> float:
    """Seconds in which the seeds of one share of the devices see all test images."""
    shards = made.devices.shape["data"]
    batch = -(-config["run"]["eval_batch"] // shards) * shards
    pixels = collections.Counter()
    for test in tests:
        pixels[tuple(test.shape)] += len(test)
    if not pixels:
        return 0.0
    (height, width), _ = pixels.most_common(1)[0]
    state = jax.eval_shape(stage.draw, seeds.key(0), None)
    net = jax.eval_shape(train_step.net_of, state)
    image = jax.ShapeDtypeStruct((batch, height, width, 3), np.uint8)

    def score(net, arg, shared, static):
        return stage.score_one(net, None, arg[1], static)

    programs: dict[int, Program] = {}
    own = jax.eval_shape(lambda: made.own[0])
    strategy = seeds.STRATEGIES["looped"]
    _program(
        *(programs, target, say, f"{target.name}: compiling evaluation"),
        *(score, strategy, net, own, image, {}, None, made.devices, 1),
    )
    if programs[1].compiled is None:
        return 0.0
    one = spent(programs[1], kind, shards, taken=0.5, loops=1).seconds
    batches = (
        -(-n // batch) * h * w / (height * width) for (h, w), n in pixels.items()
    )
    return one * sum(batches)


def _remedy(
    config: Mapping[str, Any],
    target: targets.Target,
    here: Sequence[jax.Device],
    made: Built,
    found: Opened,
    say: Callable[[str], None],
) -> str | None:
    """The first change with which one seed fits on each device; None: none was found."""
    for words, changed, share in _changes(config):
        if not share or _may_fit(made, share):
            say(f"{target.name}: trying {words}")
            try:
                if built(changed, target, here, found.train, say).fit:
                    return words
            except ValueError as error:
                say(f"{words}: {error}")
    return None


def _may_fit(made: Built, share: float) -> bool:
    """Whether it may do with so much of the work's memory."""
    for fit, programs in zip(made.fits, made.programs, strict=True):
        work = max(one.need.work for one in programs.values())
        if fit.least - (1 - share) * work > made.free:
            return False
    return True


def _changes(config: Mapping[str, Any]) -> Iterator[tuple[str, dict, float]]:
    """What may help: in words, the config with it, and the share of work that is left."""
    batch = config["train"]["batch"]
    now = config["train"].get("accumulate", 1)
    for k in (2, 4, 8, 16):
        entry = {"accumulate": now * k}
        words = f"--config.train.accumulate={now * k}"
        yield words, _changed(config, "train", entry), 1 / k
    make = models.MODELS[config["model"]["name"]]
    if "remat" in inspect.signature(make).parameters:
        yield (
            "model.remat=True, in a config of your own",
            _changed(config, "model", {"remat": True}),
            0,
        )
    for k in (2, 4, 8, 16):
        if batch % k == 0:
            words = f"--config.train.batch={batch // k}"
            yield words, _changed(config, "train", {"batch": batch // k}), 1 / k


def _changed(config: Mapping[str, Any], room: str, entries: Mapping) -> dict[str, Any]:
    made = copy.deepcopy(dict(config))
    for part in (made, *made["stages"]):
        if room in part:
            part[room].update(entries)
    return made
