"""Turns a config into the stages of a run: what is trained, on what, in which order."""

import functools
import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import PyTree, UInt8

from jbias import config as jc
from jbias import feed, seeds
from jbias import order as orders
from jbias import step as train_step
from jbias.algos import base
from jbias.data import loader, splits
from jbias.evals import predict
from jbias.runtime import mesh, xla
from jbias.strategies import chunked
from jbias.strategies import layout as layouts
from jbias.training import guard, parts, supply, trainer, vary


class Stage(NamedTuple):
    """What holds from step `first` to step `last` of a run."""

    number: int
    first: int
    last: int
    algo: base.Algo
    shape: tuple[int, int]  # Height and width of the images, in pixels.
    feeds: dict[str, feed.Feed | supply.Plan]  # "train", and "other" if there is one.
    draw: Callable  # (key, net of the stage before or None) -> a seed's state,
    init: Callable  # and the same, compiled.
    seed_step: seeds.One  # Of one seed; its arg is (key, what it takes).
    score_one: seeds.One  # Its network's logits, in evaluation.
    branch: Callable  # Values of what varies -> such a draw, one and score_one.
    rollback: guard.Rollback | None = None
    layout: layouts.Layout | None = None  # Of all seeds, as `laid_out` says;
    advance: seeds.Advance | None = None  # their steps,
    score: seeds.Many | None = None  # and their logits, of a wave.
    skips: bool = False  # Whether seeds that have no arguments may be left out.

    @property
    def order(self) -> orders.Order:
        return self.feeds["train"].order

    @property
    def streams(self) -> bool:
        """Whether images are read while it is trained."""
        return any(not isinstance(one, feed.Resident) for one in self.feeds.values())

    def static(self, step: int) -> Hashable:
        """What the compiler must know about a step of the run."""
        return self.algo.static(step - self.first, self.last - self.first)

    def batch(self, seed: int, step: int) -> dict[str, Any]:
        """A seed's batch at a step of the run: its places in `held`, or its rows."""
        return {
            name: one.batch(seed, step - self.first) for name, one in self.feeds.items()
        }

    def ready(self, step: int, halt: Callable[[], bool]) -> bool:
        """Waits for what is held at a step; False where `halt` said so before."""
        local = step - self.first
        return all(one.ready(local, halt) for one in self.feeds.values())

    def shared(self, step: int) -> dict[str, feed.Rows]:
        """What all seeds draw from at a step of the run, on the devices."""
        return {name: one.shared(step - self.first) for name, one in self.feeds.items()}

    def until(self, step: int) -> int:
        """The first later step at which another thing is held."""
        local = step - self.first
        return self.first + min(one.until(local) for one in self.feeds.values())

    def close(self) -> None:
        """Stops what reads ahead."""
        for one in self.feeds.values():
            one.close()


def stages(
    config: Mapping[str, Any],
    train_sets: Sequence[splits.TrainSet],
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]] | None,
    devices: jax.sharding.Mesh,
    make: Callable[..., feed.Feed] = supply.make,
) -> list[Stage]:
    """Builds the stages, each from the config with that stage's own entries in it.

    Without `images` they can only be evaluated: their feeds are plans. `make` makes of
    each plan what feeds the steps.
    """
    seeds.strategy(config["run"]["strategy"], devices)  # Refused here, if anywhere.
    built, classes = [], train_sets[0].sources[0].classes
    for number, train in enumerate(train_sets):
        if train.sources[0].classes != classes:
            raise ValueError(
                f"config.stages[{number}].train: must have the classes of the first "
                f"stage's {train_sets[0].sources[0].name}, got those of "
                f"{train.sources[0].name}"
            )
        first = built[-1].last if built else 0
        built.append(_stage(number, first, config, train, images, devices, make))
    if config["vary"] and images is not None:
        effects = (_reached(config, stage) for stage in built)
        vary.check_effective(config, set().union(*effects))
    return built


def _stage(
    number: int,
    first: int,
    config: Mapping[str, Any],
    train: splits.TrainSet,
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]] | None,
    devices: jax.sharding.Mesh,
    make: Callable[..., feed.Feed],
) -> Stage:
    at = f"config.stages[{number}]" if number else "config"
    branches = [branch.config for branch in vary.branches(config)]
    part = jc.stages(branches[0])[number]
    classes = len(train.sources[0].classes)
    plans = supply.plans(number, part, train)
    epoch = plans["train"].order.steps_per_epoch
    total = max(1, round(part["epochs"] * epoch))
    inputs = parts.transforms(f"{at}.inputs", plans["train"].inputs)
    net = parts.network(part, classes, math.prod(one.views for one in inputs))
    beside = plans["other"].inputs if train.other else ()
    beside = parts.transforms(f"{at}.train.other.inputs", beside)
    average = part["optim"].get("average", 0.0)

    lasting = dict(steps_per_epoch=epoch, total=total)
    rollback = guard.rollback(config.get("rollback"), first, **lasting)

    def learner(config) -> tuple[base.Algo, Callable[[Any], tuple]]:
        part = jc.stages(config)[number]
        algo = parts.algorithm(part["algo"], net, plans["train"].columns)

        def txs_at(scale: Any) -> tuple:
            options = {**part["optim"], "rate": scale * part["optim"]["rate"]}
            optimiser = functools.partial(parts.optimiser, options)
            return tuple(optimiser(one, total, epoch) for one in algo.updates)

        return algo, txs_at

    algo, txs_at = learner(branches[0])
    groups = (algo.mix_group, *(one.mix_group for one in (*inputs, *beside)))
    batch, norm_group = part["train"]["batch"], part["model"].get("norm_group", 0)
    pieces = _pieces(part["train"], algo, norm_group, plans["train"].order.period)

    def functions(
        algo: base.Algo, txs_at: Callable
    ) -> tuple[Callable, seeds.One, seeds.One]:
        learning = dict(average=average, first=first, rollback=rollback, **pieces)
        one = trainer.make(algo, txs_at, inputs, classes, other=beside, **learning)
        draw = trainer.initialiser(
            algo, txs_at(1), train.sources[0].shape, first, average
        )
        on_one_cpu = devices.size == 1 and xla.platform() == "cpu"
        return (
            guard.beginning(draw) if rollback else draw,
            chunked.kernel_gradients(one) if on_one_cpu else one,
            predict.scorer(algo.decide or _plainly(algo.net)),
        )

    def branch(values: tuple) -> tuple[Callable, seeds.One, seeds.One]:
        return functions(*learner(vary.placed(config, values)))

    draw, one, score_one = functions(algo, txs_at)
    if config["vary"]:
        for other in branches[1:]:
            vary.check_alike(algo, learner(other)[0], total)
        one = vary.traced(lambda values: branch(values)[1])
    feeds = plans
    if images is not None:
        check = functools.partial(mesh.check_batch, norm_group=norm_group, **pieces)
        check(batch, math.lcm(*groups), devices)
        fed = functools.partial(
            make,
            images=images,
            devices=devices,
            seeds=config["seeds"],
            steps=total,
            reading=reading(config["run"]["loading"], devices),
        )
        feeds = {name: fed(plan) for name, plan in plans.items()}
    return Stage(
        number=number,
        first=first,
        last=first + total,
        algo=algo,
        shape=train.sources[0].shape,
        feeds=feeds,
        draw=draw,
        init=trainer.quickly_compiled(draw),
        seed_step=one,
        score_one=score_one,
        branch=branch,
        rollback=rollback,
    )


def _reached(config: Mapping[str, Any], stage: Stage) -> set[str]:
    """Which keys of config.vary the steps depend on; refuses where more does."""
    key = jax.eval_shape(lambda: seeds.key(0))
    state = jax.eval_shape(stage.draw, key, None)
    image = jax.ShapeDtypeStruct((1, *stage.shape, 3), np.uint8)
    net = train_step.net_of(state)
    reached = functools.partial(vary.reached, config)
    draws = reached(lambda values: lambda key: stage.branch(values)[0](key, None), key)
    vary.check_shared("the weights at the start", draws)

    def score(values):
        return lambda net, image: stage.branch(values)[2](net, None, image, None)

    vary.check_shared("how decisions are made", reached(score, net, image))
    shapes = {name: one.shapes() for name, one in stage.feeds.items()}
    taken = {name: one for name, (one, _) in shapes.items()}
    held = {name: one for name, (_, one) in shapes.items()}
    found = set()
    for static in {stage.static(step) for step in range(stage.first, stage.last)}:

        def step(values, static=static):
            one = stage.branch(values)[1]
            return lambda *args: one(*args, static)

        found |= reached(step, state, (key, taken), held)
    return found


def laid_out(
    stage: Stage,
    count: int,
    devices: jax.sharding.Mesh,
    *,
    strategy: str = "auto",
    together: int = 0,
) -> Stage:
    """The stage with the steps of `count` seeds, at most `together` (0: all) at once."""
    chosen = seeds.strategy(strategy, devices)
    layout = layouts.choose(
        count, devices, stacked=chosen.stacked, together=together or count
    )
    return stage._replace(
        layout=layout,
        advance=seeds.stepper(stage.seed_step, chosen, layout),
        score=seeds.over(stage.score_one, chosen, layout),
        skips=chosen.dispatch != "unrolled" and not layout.width(0),
    )


def _pieces(
    options: Mapping[str, Any], algo: base.Algo, norm_group: int, period: int
) -> dict[str, int]:
    """Into how many micro-batches a batch is cut, and which examples stay together.

    Those that the algorithm mixes, or batch norm takes together, and so many that each
    micro-batch has its share of every set. Input transforms have mixed before.
    """
    accumulate = options.get("accumulate", 1)
    if accumulate > 1 and algo.whole_batch:
        raise ValueError(
            "config.train.accumulate: must be 1 for an algorithm whose loss compares the "
            f"whole batch, got {accumulate}; lower the batch instead"
        )
    block = math.lcm(algo.mix_group, norm_group or 1, period)
    return {"accumulate": accumulate, "block": block}


def _plainly(net: nn.Module) -> Callable:
    return functools.partial(net.apply, train=False)


def reading(
    loading: Mapping[str, Any], devices: jax.sharding.Mesh
) -> loader.ReaderOptions:
    """Who reads streamed sets; this process its share where several train together.

    Without a number of threads there is one a core, over all worker processes.
    """
    workers = loading["workers"]
    cores = len(os.sched_getaffinity(0))
    threads = loading["threads"] or max(1, cores // max(1, workers))
    return loader.ReaderOptions(threads, workers, *mesh.local_part(devices))


def template(stage: Stage, count: int) -> tuple:
    """Shapes of a stage's states, to read a checkpoint into."""
    return (jax.eval_shape(stage.draw, seeds.key(0), None),) * count


def start(
    stage: Stage, seed: int, net: Mapping[str, PyTree] | None = None
) -> train_step.State:
    """A seed's state at the start of a stage, from the net of the stage before."""
    key = seeds.stream(seeds.key(seed), "init")
    if stage.number:
        key = seeds.stream(key, f"stage/{stage.number}")
    return stage.init(key, net)
