"""Turns a config into what a run works with: sets, network, algorithm, stages."""

import hashlib
import importlib.util
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Float, Int, PyTree, UInt8

from jbias import algos, augment, console, data, feed, mesh, models, optim, seeds
from jbias import config as jc
from jbias import step as train_step
from jbias.algos import base
from jbias.data import labels, pipeline, spec
from jbias.evals import predict


class TestSet(NamedTuple):
    """A set to evaluate on, in the space of the network's decisions."""

    name: str
    images: UInt8[np.ndarray, "n h w c"]
    columns: Mapping[str, Int[np.ndarray, "n"]]
    matrix: Float[np.ndarray, "k d"] | None
    measures: tuple[str, ...]


class Stage(NamedTuple):
    """What holds from step `first` to step `last` of a run."""

    number: int
    first: int
    last: int
    algo: base.Algo
    txs: tuple
    order: feed.Order
    data: feed.Resident
    draw: Callable  # (key, net of the stage before or None) -> a seed's state,
    init: Callable  # and the same, compiled.
    advance: seeds.Advance  # The step of every seed, its args (key, index).
    decide: seeds.Many


def named(where: str, options: Mapping[str, Any], known: Mapping[str, Callable]):
    """Looks `options.name` up; returns the callable and the options beside the name."""
    options = dict(options)
    name = options.pop("name")
    if name not in known:
        raise ValueError(f"{where}.name: unknown {name!r}; {jc.nearest(name, known)}")
    return known[name], options


def call(where: str, make: Callable, *args: Any, **options: Any) -> Any:
    """Calls `make`; an option it does not take is refused by name."""
    accepted = inspect.signature(make).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        kinds = (
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        names = [n for n, p in list(accepted.items())[len(args) :] if p.kind in kinds]
        for option in options:
            if option not in names:
                raise ValueError(
                    f"{where}: unknown option {option!r}; {jc.nearest(option, names)}"
                )
    return make(*args, **options)


def algorithm(options: Mapping[str, Any], net: nn.Module) -> base.Algo:
    """The algorithm of ours, or the one at `path/to/file.py:function`."""
    path, colon, function = options["name"].rpartition(":")
    if not colon:
        make, options = named("config.algo", options, algos.ALGOS)
        return call("config.algo", make, net, **options)
    if not pathlib.Path(path).is_file():
        raise ValueError(
            f"config.algo.name: no file {path!r}; give path/to/file.py:make"
        )
    found = importlib.util.spec_from_file_location(
        f"own_algorithm_{pathlib.Path(path).stem}", path
    )
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # Dataclasses look their module up.
    found.loader.exec_module(module)
    if function not in vars(module):
        raise ValueError(f"config.algo.name: {path} has no function {function!r}")
    options = {key: value for key, value in options.items() if key != "name"}
    return call("config.algo", vars(module)[function], net, **options)


def own_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the users' own algorithm files, which no commit of ours covers."""
    names = {part["algo"]["name"] for part in jc.stages(config)}
    paths = sorted(name.rpartition(":")[0] for name in names if ":" in name)
    return {
        path: hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]
        for path in paths
    }


def source(where: str, options: Mapping[str, Any], size: int) -> spec.Source:
    """Opens a set; `batch` belongs to training, not to the set."""
    options = {key: value for key, value in options.items() if key != "batch"}
    name, split = options.pop("data"), options.pop("split")
    try:
        return data.load(name, split, **{"size": size, **options})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def test_set(
    name: str, test: spec.Source, train: spec.Source, images, say: Callable
) -> TestSet:
    """Brings a set into the network's decision space.

    Images of classes that the network has no answer for are left out, and told about.
    """
    try:
        classes = labels.match(train.classes, train.space, test.classes, test.space)
    except ValueError as error:
        raise ValueError(f"config.tests.{name}: {error}") from error
    columns = {
        key: classes.relabel[column] if key in ("label", "texture") else column
        for key, column in test.columns.items()
    }
    kept = columns["label"] >= 0
    if not kept.all():
        absent = np.unique(np.asarray(test.columns["label"])[~kept])
        say(
            f"{name}: {(~kept).sum()} of {len(kept)} images left out, the training "
            f"set has none of {', '.join(test.classes[i] for i in absent)}"
        )
    if not kept.any():
        raise ValueError(
            f"config.tests.{name}: no class in common with the training set"
        )
    columns = {key: column[kept] for key, column in columns.items()}
    return TestSet(name, images[kept], columns, classes.matrix, test.measures)


def network(config: Mapping[str, Any], classes: int) -> nn.Module:
    """The plain backbone that the config names."""
    make, options = named("config.model", config["model"], models.MODELS)
    return call(
        "config.model", make, classes, dtype=mesh.dtype(config["precision"]), **options
    )


def transforms(inputs: Iterable[Mapping[str, Any]]) -> list[tuple[str, Callable]]:
    """The batch transforms in order, each with the name of its random stream."""
    made = []
    for i, options in enumerate(inputs):
        make, rest = named(f"config.inputs[{i}]", options, augment.AUGMENTS)
        before = sum(other["name"] == options["name"] for other in inputs[:i])
        transform = call(f"config.inputs[{i}]", make, **rest)
        made.append((f"{options['name']}/{before}", transform))
    return made


def trainer(algo: base.Algo, txs: tuple, inputs: list, classes: int) -> seeds.One:
    """The whole step of one seed: gather, transform, learn."""
    take = train_step.make(algo, txs)

    def one(state, arg, resident, static):
        key, index = arg
        batch = feed.gather(resident, index, classes)
        augment_key = jax.random.fold_in(seeds.stream(key, "augment"), state.step)
        for name, transform in inputs:
            batch = transform(batch, seeds.stream(augment_key, name))
        return take(state, batch, key, static)

    return one


def stages(
    config: Mapping[str, Any],
    train_sets: list[tuple[spec.Source, UInt8[np.ndarray, "n h w c"]]],
    devices: jax.sharding.Mesh,
) -> list[Stage]:
    """Builds the stages, each from the config with that stage's own entries in it."""
    built, first = [], 0
    for number, (part, (train, images)) in enumerate(
        zip(jc.stages(config), train_sets)
    ):
        if train.classes != train_sets[0][0].classes:
            raise ValueError(
                f"config.stages[{number}].train: must have the classes of the first "
                f"stage's {train_sets[0][0].name}, got those of {train.name}"
            )
        where = "config.train" if not number else f"config.stages[{number}].train"
        batch, strategy = part["train"]["batch"], config["run"]["strategy"]
        try:
            order = feed.Order(len(train), batch, "order" + f"/{number}" * (number > 0))
        except ValueError as error:
            raise ValueError(f"{where}.batch: {error}") from error
        total = max(1, round(part["epochs"] * order.steps_per_epoch))
        algo = algorithm(part["algo"], network(config, len(train.classes)))
        mesh.check_batch(batch, algo.mix_group, devices)
        txs = tuple(
            optimiser(part["optim"], update.clip, total, order.steps_per_epoch)
            for update in algo.updates
        )
        draw = initialiser(algo, txs, config["size"], first)
        one = trainer(algo, txs, transforms(part["inputs"]), len(train.classes))
        columns = {name: np.asarray(c, np.int32) for name, c in train.columns.items()}
        built.append(
            Stage(
                number=number,
                first=first,
                last=first + total,
                algo=algo,
                txs=txs,
                order=order,
                draw=draw,
                init=_quickly_compiled(draw),
                data=mesh.replicate(feed.resident(images, columns), devices),
                advance=seeds.stepper(one, strategy),
                decide=seeds.over(predict.decider(algo.net), strategy),
            )
        )
        first += total
    return built


def optimiser(
    options: Mapping[str, Any], clip: float | None, total: int, steps_per_epoch: int
):
    """One update's optimiser with its schedule over `total` steps."""
    options = dict(options)
    warmup = options.pop("warmup")
    if warmup:
        warmup = jc.steps(
            warmup,
            steps_per_epoch=steps_per_epoch,
            total=total,
            where="config.optim.warmup",
        )
    make, shape = named(
        "config.optim.schedule", options.pop("schedule"), optim.SCHEDULES
    )
    rate, left = options.pop("rate"), total - (warmup or 0)
    schedule = call("config.optim.schedule", make, rate, left, **shape)
    make, rest = named("config.optim", options, optim.OPTIMISERS)
    tx = call("config.optim", make, optim.warmed(schedule, rate, warmup or 0), **rest)
    return optim.clipped(tx, clip)


def initialiser(algo: base.Algo, txs: tuple, size: int, first: int) -> Callable:
    """Draws a seed's state for step `first`; one program for all seeds."""

    def init(key, net):
        image = jnp.zeros((1, size, size, 3))
        state = train_step.init(algo, txs, key, image, net)
        return state._replace(step=jnp.asarray(first, jnp.int32))

    return init


def _quickly_compiled(init: Callable) -> Callable:
    """Compiles what runs once a seed without optimising it: seconds instead of a dozen.

    On CPU the random bits of every weight's shape are optimised for half a second.
    """
    quick = {"xla_backend_optimization_level": 0}
    on_cpu = jax.default_backend() == "cpu"
    return jax.jit(init, compiler_options=quick if on_cpu else None)


def start(
    stage: Stage, seed: int, net: Mapping[str, PyTree] | None = None
) -> train_step.State:
    """A seed's state at the start of a stage, from the net of the stage before."""
    key = seeds.stream(seeds.key(seed), "init")
    if stage.number:
        key = seeds.stream(key, f"stage/{stage.number}")
    return stage.init(key, net)


def load_images(
    opened: Mapping[str, spec.Source], say: Callable, *, gib: float, workers: int
) -> dict[str, UInt8[np.ndarray, "n h w c"]]:
    """Decodes all sets into memory, `gib` at most; with a bar where it takes a while."""
    needed = sum(pipeline.nbytes(source) for source in opened.values()) / 2**30
    if needed > gib:
        raise ValueError(
            f"data: the sets take {needed:.1f} GiB in memory, more than "
            f"config.run.loading.gib={gib:g}; raise it or choose a smaller config.size"
        )
    images = {}
    for name, source in opened.items():
        with console.bar(f"reading {source.name}", len(source)) as progress:
            images[name] = pipeline.resident(source, workers=workers, progress=progress)
        say(
            f"{name}: {len(source)} images of {source.name}, {source.preprocessing}"
            + (f" ({source.note})" if source.note else "")
        )
    return images


def describe(source: spec.Source) -> dict[str, Any]:
    """What provenance says of a set."""
    return {
        "name": source.name,
        "n": len(source),
        "classes": len(source.classes),
        "note": source.note,
        "preprocessing": source.preprocessing,
        "fingerprint": source.fingerprint,
        "cite": source.cite,
    }
