"""Turns a config into the stages of a run: what is trained, on what, in which order.

The step of one seed assembles its batch, transforms it and learns. Where numbers of the
config vary between branches (run_spec.py), the step makes itself for the values that come
with each call: one program for all.
"""

import dataclasses
import functools
import math
import os
import types
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import PyTree, UInt8

from jbias import build, run_spec
from jbias import config as jc
from jbias.algos import base
from jbias.data import loader
from jbias.evals import inference
from jbias.models import folding
from jbias.runtime import mesh, xla
from jbias.training import (
    convolutions,
    divergence,
    input_pipeline,
    input_plan,
    optim,
    prng,
    samplers,
    seed_axis,
)
from jbias.training import step as train_step


class SeedProgram(NamedTuple):
    """What is computed of one seed."""

    draw: Callable  # (key, net of the stage before or None) -> its first state.
    step: seed_axis.SeedFunction  # Its arg is (key, what it takes).
    logits: seed_axis.SeedFunction  # Its network's, in evaluation.
    decide: folding.Apply  # (variables, images in [0, 1]) -> the same logits.

    @property
    def folded_logits(self) -> seed_axis.SeedFunction:
        """Return `logits` with batch norms folded into convolutions."""
        return inference.make_scorer(folding.fold_norms(self.decide))


class StepShapes(NamedTuple):
    """What a step of one seed is given, in shapes."""

    state: PyTree
    argument: PyTree  # Of each seed, in every step.
    taken: PyTree
    shared: PyTree
    static: Hashable


@dataclasses.dataclass(frozen=True)
class Stage:
    """What holds from step `first` to step `last` of a run."""

    spec: run_spec.StageSpec
    members: tuple[run_spec.Member, ...]
    first: int
    last: int
    algo: base.Algo
    shape: tuple[int, int]  # Height and width of the images, in pixels.
    # "train", and "other" if there is one.
    pipelines: dict[str, input_pipeline.InputPipeline | input_plan.InputPlan]
    program: SeedProgram
    program_for: Callable[[tuple], SeedProgram]  # By values of what varies.
    rollback: divergence.Rollback | None = None
    layout: seed_axis.SeedLayout | None = None  # Of all, as `fit_to_devices` says;
    advance: seed_axis.MultiStep | None = None  # their steps,
    score: seed_axis.WaveFunction | None = None  # and their logits, of a wave;
    score_folded: seed_axis.WaveFunction | None = None  # by folded batch norms.
    skips: bool = False  # Whether members that have no arguments may be left out.
    scanned: int = 0  # Steps that are one program if as many are dispatched; 0: none.

    @property
    def number(self) -> int:
        """Its place among the stages."""
        return self.spec.number

    @property
    def fix(self) -> Mapping[str, int]:
        """Seeds that all members take for a source of randomness."""
        return self.spec.config.get("fix", {})

    @property
    def order(self) -> samplers.Sampler:
        return self.pipelines["train"].order

    @property
    def state_shape(self) -> PyTree:
        """Shapes of the state of one member."""
        return jax.eval_shape(self.program.draw, prng.key(0), None)

    @property
    def state_shapes(self) -> tuple:
        """Shapes of the states of all its members, to read a checkpoint into."""
        return (self.state_shape,) * len(self.members)

    @property
    def streams(self) -> bool:
        """Whether images are read while it is trained."""
        return any(one.streams for one in self.pipelines.values())

    @functools.cached_property
    def foldable_norms(self) -> int:
        """The number of batch norms that an evaluation can fold into convolutions."""
        net = jax.eval_shape(train_step.net_of, self.state_shape)
        image = jax.ShapeDtypeStruct((1, *self.shape, 3), np.float32)
        return folding.count_foldable(self.program.decide, net, image)

    def folds_norms(self, run: Mapping[str, Any]) -> bool:
        """Return whether an evaluation folds batch norms, by config.run.

        By itself it does on accelerators, and records of a CPU keep their bits.
        """
        mode = run.get("eval_norm", "auto")
        folds = mode == "folded" or (mode == "auto" and xla.platform() != "cpu")
        return folds and self.foldable_norms > 0

    def scorer(self, run: Mapping[str, Any]) -> seed_axis.WaveFunction:
        """Return what computes the logits of a wave in evaluation, by config.run."""
        return self.score_folded if self.folds_norms(run) else self.score

    def static(self, step: int) -> Hashable:
        """What the compiler must know about a step of the run."""
        return self.algo.static(step - self.first, self.last - self.first)

    @property
    def shapes(self) -> StepShapes:
        """Of its first step."""
        fed = {name: one.shapes() for name, one in self.pipelines.items()}
        return StepShapes(
            self.state_shape,
            jax.eval_shape(lambda: seed_argument(self.members[0])),
            {name: taken for name, (taken, _) in fed.items()},
            {name: held for name, (_, held) in fed.items()},
            self.static(self.first),
        )

    @functools.cached_property
    def _init(self) -> Callable:
        """Draws without optimising, as it runs once a seed: seconds instead of a dozen.

        On CPU the random bits of every weight's shape are optimised for half a second.
        """
        quick = {"xla_backend_optimization_level": 0}
        on_cpu = xla.platform() == "cpu"
        return jax.jit(self.program.draw, compiler_options=quick if on_cpu else None)

    def init_state(self, seed: int, net: Mapping | None = None) -> train_step.State:
        """A seed's first state, with the net of the stage before if there was one."""
        key = prng.stream(prng.key(self.fix.get("init", seed)), "init")
        if self.number:
            key = prng.stream(key, f"stage/{self.number}")
        return self._init(key, net)

    def start(
        self,
        nets: Sequence[Mapping[str, PyTree]] | None = None,
        share: Callable[[PyTree], PyTree] = lambda state: state,
    ) -> seed_axis.PackedStates:
        """The first states of all members, with these nets of theirs if there are some.

        `share` makes of a state the one that all processes have.
        """
        nets = nets or [None] * len(self.members)
        pairs = zip(self.members, nets, strict=True)
        return self.layout.pack(share(self.init_state(m.seed, net)) for m, net in pairs)

    def batch(self, seed: int, step: int) -> dict[str, Any]:
        """A seed's batch at a step of the run: its places in what is shared, or its rows."""
        fed, local = self.pipelines.items(), step - self.first
        return {name: one.batch(seed, local) for name, one in fed}

    def batches(self, step: int, count: int = 1) -> list[seed_axis.PackedStates]:
        """Return the arguments of `count` steps: each member's own, and its batch.

        Batches that are read here are on the host; `advance` places them.
        """
        seeds = [member.seed for member in self.members]
        found = []
        for now in range(step, step + count):
            taken = {seed: self.batch(seed, now) for seed in dict.fromkeys(seeds)}
            grouped = self.layout.group(taken[seed] for seed in seeds)
            waves = zip(self._arguments, grouped, strict=True)
            found.append(tuple(tuple(zip(*wave, strict=True)) for wave in waves))
        return found

    @functools.cached_property
    def _arguments(self) -> seed_axis.PackedStates:
        """What each member has of its own in every step."""
        return self.layout.pack_on_devices(map(seed_argument, self.members))

    def without(
        self, args: seed_axis.PackedStates, names: Container[str]
    ) -> seed_axis.PackedStates:
        """The arguments of a step, None for members of these names: they do not take it."""
        stay = (member.name not in names for member in self.members)
        return tuple(tuple(x if next(stay) else None for x in wave) for wave in args)

    def wait(self, step: int, halt: Callable[[], bool]) -> bool:
        """Waits for what is held at a step; False where `halt` said so before."""
        local = step - self.first
        return all(one.wait(local, halt) for one in self.pipelines.values())

    def shared(self, step: int) -> dict[str, input_pipeline.Rows]:
        """What all seeds draw from at a step of the run, on the devices."""
        fed, local = self.pipelines.items(), step - self.first
        return {name: one.shared(local) for name, one in fed}

    def next_change(self, step: int) -> int:
        """The first later step at which another thing is held."""
        local = step - self.first
        changes = (one.next_change(local) for one in self.pipelines.values())
        return self.first + min(changes)

    def close(self) -> None:
        """Stops what reads ahead."""
        for one in self.pipelines.values():
            one.close()


def build_stages(
    spec: run_spec.RunSpec,
    plans: Sequence[Mapping[str, input_plan.InputPlan]],
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]] | None,
    devices: jax.sharding.Mesh,
    make: Callable[..., input_pipeline.InputPipeline] = input_plan.make_pipeline,
) -> list[Stage]:
    """Builds the stages, each fed as planned.

    Without `images` they can only be evaluated: their pipelines are plans. `make` makes of
    each plan what feeds the steps.
    """
    config, built, first = spec.config, [], plans[0]["train"].source
    # Refused here, if anywhere.
    seed_axis.resolve_strategy(config["run"]["strategy"], devices)
    for stage, fed in zip(spec.stages, plans, strict=True):
        source = fed["train"].source
        if source.classes != first.classes:
            must = f"have the classes of the first stage's {first.name}"
            jc.refuse(f"{stage.where}.train", f"{must}, got those of {source.name}")
        begin = built[-1].last if built else 0
        built.append(_build_stage(stage, begin, spec, fed, images, devices, make))
    if images is not None and not _any_random(config, built):
        raise ValueError(
            "config.fix: leaves nothing random that this method draws, so that all seeds "
            "are one run; free a source, or train one seed"
        )
    if config["vary"] and images is not None:
        reached = set().union(*(_reached(config, stage) for stage in built))
        for i, key in enumerate(run_spec.varied_keys(config)):
            if key in reached:
                continue
            stages, room = config["stages"], key.partition(".")[0]
            staged = stages and all(room in stage for stage in stages)
            hint = f": stages have their own, such as stages.0.{key}" if staged else ""
            raise ValueError(
                f"config.vary[{i}].key: {key} has no effect on any step{hint}; vary what "
                "the steps use"
            )
    return built


def _build_stage(stage, first, spec, plans, images, devices, make) -> Stage:
    """One of them, of a StageSpec, from step `first` on."""
    number, at, part = stage
    config, plan, source = spec.config, plans["train"], plans["train"].source
    epoch, classes = plan.order.steps_per_epoch, len(source.classes)
    total = max(1, round(part["epochs"] * epoch))
    lasting = dict(steps_per_epoch=epoch, total=total)
    rollback = divergence.rollback_in_steps(config.get("rollback"), first, **lasting)
    inputs = build.transforms(f"{at}.inputs", plan.inputs)
    beside = plans["other"].inputs if "other" in plans else ()
    beside = build.transforms(f"{at}.train.other.inputs", beside)
    net = build.network(part, classes, math.prod(one.views for one in inputs))
    algorithm = functools.partial(build.algorithm, net=net, columns=plan.columns)
    algo, norm_group = algorithm(part["algo"]), part["model"].get("norm_group", 0)
    pieces = _pieces(part["train"], algo, norm_group, plan.order.period)
    same = dict(inputs=inputs, other=beside, classes=classes, shape=source.shape)
    same |= dict(first=first, rollback=rollback, **lasting, **pieces)
    same["fix"] = config.get("fix", {})
    same["in_chunks"] = devices.size == 1 and xla.platform() == "cpu"

    def program_for(values: tuple) -> SeedProgram:
        varied = jc.stage_configs(run_spec.with_values(config, values))[number]
        return make_program(algorithm(varied["algo"]), varied["optim"], **same)

    program = make_program(algo, part["optim"], **same)
    if config["vary"]:
        for branch in spec.branches[1:]:
            other = algorithm(branch.stages[number].config["algo"])
            check_same_program(algo, other, total)

        def one(state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
            (key, values), taken = arg  # The step makes itself for these values.
            return program_for(values).step(state, (key, taken), shared, static)

        program = program._replace(step=one)
    pipelines = plans
    if images is not None:
        groups = (algo.mix_group, *(one.mix_group for one in (*inputs, *beside)))
        checked = part["train"]["batch"], math.lcm(*groups), devices
        mesh.check_batch(*checked, norm_group=norm_group, **pieces)
        fed = dict(images=images, devices=devices, seeds=config["seeds"], steps=total)
        fed["reading"] = reader_options(config["run"]["loading"], devices)
        fed["fix"] = same["fix"]
        pipelines = {name: make(one, **fed) for name, one in plans.items()}
    fixed = (stage, spec.members, first, first + total, algo, source.shape)
    return Stage(*fixed, pipelines, program, program_for, rollback)


def make_program(
    algo: base.Algo,
    options: Mapping[str, Any],
    *,
    shape: tuple[int, int],
    first: int,
    total: int,
    steps_per_epoch: int,
    rollback: divergence.Rollback | None,
    in_chunks: bool,
    **learning: Any,
) -> SeedProgram:
    """The program of an algorithm with an optimiser of such options.

    `in_chunks` is for batches on one CPU (`convolutions.chunk_kernel_gradients`), and
    `learning` are further arguments of `make_seed_step`.
    """
    average = options.get("average", 0.0)

    def txs_at(scale: Any) -> tuple:
        rated = {**options, "rate": scale * options["rate"]}
        lasting = (total, steps_per_epoch)
        return tuple(optim.from_options(rated, one, *lasting) for one in algo.updates)

    learning |= dict(average=average, first=first, rollback=rollback)
    step = make_seed_step(algo, txs_at, **learning)
    draw = make_initialiser(algo, txs_at(1), shape, first, average)
    decide = algo.decide or functools.partial(algo.net.apply, train=False)
    return SeedProgram(
        divergence.with_fallback(draw) if rollback else draw,
        convolutions.chunk_kernel_gradients(step) if in_chunks else step,
        inference.make_scorer(decide),
        decide,
    )


def _any_random(config: Mapping[str, Any], built: Sequence[Stage]) -> bool:
    """Whether anything that is drawn differs between the seeds."""
    fix = config.get("fix", {})
    if len(config["seeds"]) == 1 or not {"init", "order"} <= {*fix}:
        return True
    return any(_draws(stage, fix) for stage in built)


def _draws(stage: Stage, fix: Mapping[str, int]) -> bool:
    """Whether a stage crops on the host by the seed, or its step depends on the seed's key."""
    streams = (getattr(one, "read", None) for one in stage.pipelines.values())
    if "augment" not in fix and any(getattr(read, "window", None) for read in streams):
        return True
    state, *given, static = stage.shapes

    def step(state, argument, taken, held):
        return stage.program.step(state, (argument, taken), held, static)

    jaxpr = jax.make_jaxpr(step)(state, *given).jaxpr
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return used[len(jax.tree.leaves(state))]  # The key comes first after the state.


def _reached(config: Mapping[str, Any], stage: Stage) -> set[str]:
    """Which keys of config.vary the steps depend on; refuses where more does."""
    state, (key, _), taken, held, _ = stage.shapes
    image = jax.ShapeDtypeStruct((1, *stage.shape, 3), np.uint8)
    net = train_step.net_of(state)

    def reached(part: Callable[[SeedProgram], Callable], *args: Any) -> set[str]:
        return affecting_keys(config, lambda x: part(stage.program_for(x)), *args)

    drawn = reached(lambda made: made.draw, key, None)
    scored = reached(lambda made: made.logits, net, None, image, None)
    what = "the weights at the start" if drawn else "how decisions are made"
    if shared := drawn or scored:
        raise ValueError(
            f"config.vary: {', '.join(sorted(shared))} must not change {what}, which "
            "all branches share; start a run for each value"
        )
    found = set()
    for static in {stage.static(step) for step in range(stage.first, stage.last)}:

        def step(made, static=static):
            return functools.partial(made.step, static=static)

        found |= reached(step, state, (key, taken), held)
    return found


def fit_to_devices(
    stage: Stage,
    devices: jax.sharding.Mesh,
    *,
    strategy: str = "auto",
    together: int = 0,
    scanned: int = 0,
) -> Stage:
    """Return the stage with the steps of its members, at most `together` (0: all) at once.

    scanned: the number of steps that are one program, see `seed_axis.multi_step`.
    """
    chosen, count = seed_axis.resolve_strategy(strategy, devices), len(stage.members)
    options = dict(stacked=chosen.stacked, together=together or count)
    layout = seed_axis.choose_layout(count, devices, **options)
    return dataclasses.replace(
        stage,
        layout=layout,
        advance=seed_axis.multi_step(
            stage.program.step, chosen, layout, scanned=scanned
        ),
        score=seed_axis.map_seeds(stage.program.logits, chosen, layout),
        score_folded=seed_axis.map_seeds(stage.program.folded_logits, chosen, layout),
        skips=chosen.dispatch != "unrolled" and not layout.width(0),
        scanned=scanned,
    )


def _pieces(options: Mapping, algo: base.Algo, norm_group: int, period: int) -> dict:
    """Into how many micro-batches a batch is cut, and which examples stay together.

    Those that the algorithm mixes, or batch norm takes together, and so many that each
    micro-batch has its share of every set. Input transforms have mixed before.
    """
    accumulate = options.get("accumulate", 1)
    if accumulate > 1 and algo.whole_batch:
        where, remedy = "config.train.accumulate", "lower the batch instead"
        must = "be 1 for an algorithm whose loss compares the whole batch"
        jc.refuse(where, must, accumulate, remedy)
    block = math.lcm(algo.mix_group, norm_group or 1, period)
    return {"accumulate": accumulate, "block": block}


def reader_options(
    loading: Mapping[str, Any], devices: jax.sharding.Mesh
) -> loader.ReaderOptions:
    """Who reads streamed sets; this process its share where several train together.

    Of batches, that is: each share of the seeds reads those of all.
    Without a number of threads there is one a core, over all worker processes.
    """
    workers = loading["workers"]
    cores = len(os.sched_getaffinity(0))
    threads = loading["threads"] or max(1, cores // max(1, workers))
    return loader.ReaderOptions(threads, workers, *mesh.local_part(devices))


def make_seed_step(
    algo: base.Algo,
    txs_at: Callable[[Any], tuple],
    inputs: Iterable[build.BatchTransform],
    classes: int,
    *,
    other: Iterable[build.BatchTransform] = (),
    rollback: divergence.Rollback | None = None,
    fix: Mapping[str, int] = types.MappingProxyType({}),
    **learning: Any,
) -> seed_axis.SeedFunction:
    """The whole step of one seed: gather, transform, learn.

    `txs_at` gives the optimisers with so many times their rate, `fix` is config.fix, and
    `learning` are options of step.make.
    """

    def take_at(scale: Any) -> train_step.TrainStep:
        return train_step.make_step(algo, txs_at(scale), **learning)

    settled = algo.settle is not base.as_updated
    if rollback:
        take = divergence.rollback_nonfinite(take_at, rollback, settled=settled)
    else:
        take = divergence.freeze_nonfinite(take_at(1), settled=settled)

    def one(state, arg, held, static):
        key, taken = arg
        augment, algorithm = (
            prng.key(fix[source]) if source in fix else key
            for source in ("augment", "algorithm")
        )
        gather = jax.named_scope("data")(input_pipeline.assemble_batch)
        batch = gather(held["train"], taken["train"], classes)
        if "other" in taken:
            beside = gather(held["other"], taken["other"], None)
            apart = prng.stream(augment, "augment/other")
            batch["other"] = transform_batch(beside, apart, state.step, other)
        stream = prng.stream(augment, "augment")
        batch = transform_batch(batch, stream, state.step, inputs)
        return take(state, batch, algorithm, static)

    return one


@jax.named_scope("inputs")
def transform_batch(batch: base.Batch, key: Any, step: Any, through: Iterable) -> Any:
    """A batch as a network is given it in a step, through so many transforms."""
    now = jax.random.fold_in(key, step)
    for transform in through:
        batch["once"] = prng.stream(key, f"once/{transform.stream}")
        batch = transform.apply(batch, prng.stream(now, transform.stream))
    return batch


def make_initialiser(
    algo: base.Algo, txs: tuple, shape: tuple[int, int], first: int, average: float
) -> Callable:
    """Draws a seed's state for step `first`; one program for all seeds."""

    def init(key, net):
        image = jnp.zeros((1, *shape, 3))
        state = train_step.init(algo, txs, key, image, net, average=average)
        return state._replace(step=jnp.asarray(first, jnp.int32))

    return init


def seed_argument(entry: run_spec.Member) -> Any:
    """What a seed has of its own in every step: its key, and the values if any vary."""
    key = prng.key(entry.seed)
    values = tuple(np.float32(value) for value in entry.branch.values)
    return (key, values) if values else key


def affecting_keys(config: Mapping[str, Any], make: Callable, *args: Any) -> set[str]:
    """The keys that what `make(values)` computes of such arguments depends on.

    ValueError where one of the values must be known to make or to trace it.
    """
    known = run_spec.varied_keys(config)
    values = (jax.ShapeDtypeStruct((), np.float32),) * len(known)
    try:
        jaxpr = jax.make_jaxpr(lambda values, *args: make(values)(*args))(values, *args)
    except (TypeError, ValueError, AttributeError) as error:
        # An error that the values themselves bring as well is another one.
        jax.eval_shape(make(run_spec.branches(config)[0].values), *args)
        raise ValueError(
            f"config.vary: a number of {', '.join(known)} must be known while the "
            "program is compiled, so that it cannot differ in one; start a run for "
            "each value"
        ) from error
    outputs = [True] * len(jaxpr.jaxpr.outvars)
    _, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, outputs)
    return {key for key, of_it in zip(known, used) if of_it}


def check_same_program(one: base.Algo, other: base.Algo, steps: int) -> None:
    """Refuses values between which more differs than a number, in so many steps."""
    a, b = (
        [*((u.loss, u.plus, u.clip is None, u.decay) for u in x.updates), *x.parts]
        for x in (one, other)
    )
    if a != b or one.mix_group != other.mix_group:
        raise ValueError(
            f"config.vary: the values must make one algorithm, got updates and parts {a} "
            f"and {b}; start a run for the value that makes another, such as 0"
        )
    if one.static is other.static:
        return
    for step in range(steps):
        if one.static(step, steps) != other.static(step, steps):
            raise ValueError(
                "config.vary: the values must make one algorithm, got programs that "
                f"differ at step {step} of {steps}; start a run for each value"
            )
