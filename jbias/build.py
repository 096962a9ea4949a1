"""Turns a config into what a run works with: network, algorithm, inputs, stages."""

import functools
import hashlib
import importlib.util
import inspect
import math
import pathlib
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Int, PyTree, UInt8

from jbias import algos, augment, feed, mesh, models, optim, seeds, sets
from jbias import config as jc
from jbias import step as train_step
from jbias.algos import base
from jbias.data import spec
from jbias.evals import predict


class Input(NamedTuple):
    """A batch transform, its random stream, and how many examples it mixes."""

    stream: str
    apply: Callable  # (batch, key) -> batch
    mix_group: int


class Stage(NamedTuple):
    """What holds from step `first` to step `last` of a run."""

    number: int
    first: int
    last: int
    algo: base.Algo
    orders: dict[str, feed.Order | feed.Shares]  # "train", and "other" if there is one.
    data: dict[str, feed.Resident]  # The same.
    draw: Callable  # (key, net of the stage before or None) -> a seed's state,
    init: Callable  # and the same, compiled.
    one: seeds.One  # The step of one seed, its arg (key, index),
    advance: seeds.Advance  # and of every seed.
    decide: seeds.Many

    @property
    def order(self) -> feed.Order | feed.Shares:
        return self.orders["train"]

    def static(self, step: int) -> Hashable:
        """What the compiler must know about a step of the run."""
        return self.algo.static(step - self.first, self.last - self.first)

    def index(self, seed: int, step: int) -> dict[str, Int[np.ndarray, "b"]]:
        """The examples of a seed's batch at a step of the run."""
        return {
            name: order.index(seed, step - self.first)
            for name, order in self.orders.items()
        }


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
        options = with_networks("config.algo", options)
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


def network(config: Mapping[str, Any], classes: int) -> nn.Module:
    """The plain backbone that the config names."""
    make, options = named("config.model", config["model"], models.MODELS)
    return call(
        "config.model", make, classes, dtype=mesh.dtype(config["precision"]), **options
    )


def with_networks(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces what names a network that an algorithm or transform calls by it."""
    options = dict(options)
    if isinstance(options.get("transfer"), Mapping):
        where = f"{where}.transfer"
        make, rest = named(where, options["transfer"], models.TRANSFERS)
        options["transfer"] = call(where, make, **rest)
    return options


def transforms(where: str, inputs: Iterable[Mapping[str, Any]]) -> list[Input]:
    """The batch transforms, in order."""
    made, inputs = [], list(inputs)
    for i, options in enumerate(inputs):
        here = f"{where}[{i}]"
        make, rest = named(here, with_networks(here, options), augment.AUGMENTS)
        before = sum(other["name"] == options["name"] for other in inputs[:i])
        default = inspect.signature(make).parameters.get("mix_group")
        group = rest.get("mix_group", default.default if default else 1)
        made.append(
            Input(f"{options['name']}/{before}", call(here, make, **rest), group)
        )
    return made


def trainer(
    algo: base.Algo,
    txs: tuple,
    inputs: Iterable[Input],
    classes: int,
    *,
    other: Iterable[Input] = (),
    average: float = 0.0,
    first: int = 0,
) -> seeds.One:
    """The whole step of one seed: gather, transform, learn."""
    take = train_step.make(algo, txs, average=average, first=first)

    def transformed(batch, key, step, through):
        now = jax.random.fold_in(key, step)
        for stream, apply, _ in through:
            batch["once"] = seeds.stream(key, f"once/{stream}")
            batch = apply(batch, seeds.stream(now, stream))
        return batch

    def one(state, arg, resident, static):
        key, index = arg
        batch = feed.gather(resident["train"], index["train"], classes)
        stream = seeds.stream(key, "augment")
        if "other" in resident:
            beside = feed.gather(resident["other"], index["other"], None)
            apart = seeds.stream(key, "augment/other")
            batch["other"] = transformed(beside, apart, state.step, other)
        batch = transformed(batch, stream, state.step, inputs)
        return take(state, batch, key, static)

    return one


def stages(
    config: Mapping[str, Any],
    train_sets: Sequence[sets.TrainSet],
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]],
    devices: jax.sharding.Mesh,
) -> list[Stage]:
    """Builds the stages, each from the config with that stage's own entries in it."""
    built, classes = [], train_sets[0].sources[0].classes
    for number, (part, train) in enumerate(zip(jc.stages(config), train_sets)):
        if train.sources[0].classes != classes:
            raise ValueError(
                f"config.stages[{number}].train: must have the classes of the first "
                f"stage's {train_sets[0].sources[0].name}, got those of "
                f"{train.sources[0].name}"
            )
        first = built[-1].last if built else 0
        built.append(_stage(number, first, part, train, images, devices))
    return built


def _stage(
    number: int,
    first: int,
    config: Mapping[str, Any],
    train: sets.TrainSet,
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]],
    devices: jax.sharding.Mesh,
) -> Stage:
    at = f"config.stages[{number}]" if number else "config"
    options, strategy = config["train"], config["run"]["strategy"]
    classes = len(train.sources[0].classes)
    orders = _orders(f"{at}.train", number, options, train)
    epoch = orders["train"].steps_per_epoch
    total = max(1, round(config["epochs"] * epoch))
    algo = algorithm(config["algo"], network(config, classes))
    inputs = transforms(f"{at}.inputs", config["inputs"])
    beside = (options.get("other") or {}).get("inputs", ())
    beside = transforms(f"{at}.train.other.inputs", beside)
    groups = (algo.mix_group, *(one.mix_group for one in (*inputs, *beside)))
    mesh.check_batch(options["batch"], math.lcm(*groups), devices)
    average = config["optim"].get("average", 0.0)
    txs = tuple(
        optimiser(config["optim"], update, total, epoch) for update in algo.updates
    )
    draw = initialiser(algo, txs, config["size"], first, average)
    one = trainer(
        algo, txs, inputs, classes, other=beside, average=average, first=first
    )
    data = {"train": _resident(train.sources, images, number)}
    if train.other:
        data["other"] = {"image": images[f"train/{number}/other"]}
    return Stage(
        number=number,
        first=first,
        last=first + total,
        algo=algo,
        orders=orders,
        data=mesh.replicate(data, devices),
        draw=draw,
        init=_quickly_compiled(draw),
        one=one,
        advance=seeds.stepper(one, strategy),
        decide=seeds.over(
            predict.decider(algo.decide or _plainly(algo.net), config["aggregate"]),
            strategy,
        ),
    )


def _plainly(net: nn.Module) -> Callable:
    return functools.partial(net.apply, train=False)


def _orders(
    where: str, number: int, options: Mapping[str, Any], train: sets.TrainSet
) -> dict[str, feed.Order | feed.Shares]:
    batch, suffix = options["batch"], f"/{number}" * (number > 0)
    counts = [len(source) for source in train.sources]
    orders = {}
    try:
        shares = options.get("shares")
        if shares:
            orders["train"] = feed.Shares.of(counts, shares, batch, f"order{suffix}")
        else:
            orders["train"] = feed.Order(sum(counts), batch, f"order{suffix}")
    except ValueError as error:
        key = "shares" if "shares" in str(error) else "batch"
        raise ValueError(f"{where}.{key}: {error}") from error
    if train.other:
        try:
            orders["other"] = feed.Order(len(train.other), batch, f"other{suffix}")
        except ValueError as error:
            raise ValueError(f"{where}.batch: for `other` {error}") from error
    return orders


def _resident(
    sources: Sequence[spec.Source],
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]],
    number: int,
) -> feed.Resident:
    names = [name for name in sets.TrainSet(tuple(sources)).named(number)]
    joined = [images[name] for name in names]
    joined = joined[0] if len(joined) == 1 else np.concatenate(joined)
    return feed.resident(joined, sets.columns(sources))


def optimiser(
    options: Mapping[str, Any], update: base.Update, total: int, steps_per_epoch: int
) -> optax.GradientTransformation:
    """One update's optimiser with its schedule over `total` steps."""
    options = dict(options)
    options.pop("average", None)
    if not update.decay:
        options["decay"] = 0.0
    where, warmup = "config.optim.warmup", options.pop("warmup") or 0
    if warmup:
        steps = jc.steps(
            warmup, steps_per_epoch=steps_per_epoch, total=total, where=where
        )
        if steps >= total:
            raise ValueError(
                f"{where}: must be shorter than the stage's {total} steps, got "
                f"{warmup!r} = {steps} steps; shorten it or train longer"
            )
        warmup = steps
    make, shape = named(
        "config.optim.schedule", options.pop("schedule"), optim.SCHEDULES
    )
    rate = options.pop("rate")
    schedule = call("config.optim.schedule", make, rate, total, warmup, **shape)
    make, rest = named("config.optim", options, optim.OPTIMISERS)
    return call("config.optim", make, optim.warmed(schedule, rate, warmup), **rest)


def initialiser(
    algo: base.Algo, txs: tuple, size: int, first: int, average: float
) -> Callable:
    """Draws a seed's state for step `first`; one program for all seeds."""

    def init(key, net):
        image = jnp.zeros((1, size, size, 3))
        state = train_step.init(algo, txs, key, image, net, average=average)
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
