"""Build the stages of a run from a config: algorithm, input pipelines, compiled steps.

The step of one seed assembles its batch, transforms the batch and updates the weights. If
numbers of the config vary between branches (run_spec.py), these numbers are arguments of
the step, so that one compiled program serves all branches.
"""

import collections
import dataclasses
import functools
import math
import operator
import os
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import PyTree, UInt8

from jbias import build, errors, run_spec
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
    strategies,
)
from jbias.training import feed as data_feed
from jbias.training import step as train_step
from jbias.training.averaging import averages
from jbias.training.perturbing import sharpness


class SeedProgram(NamedTuple):
    """The functions of one seed in a stage, not yet compiled."""

    draw: Callable[
        ..., train_step.State
    ]  # (key, previous stage's net or None) -> state.
    step: seed_axis.SeedFunction  # The argument is (seed argument, batch).
    logits: seed_axis.SeedFunction  # The network's logits in evaluation.
    decide: folding.Apply  # (variables, images in [0, 1]) -> the same logits.
    # Adds a batch to the recomputed statistics of an average; the argument is that of `step`,
    # and the shared value a pair (shared rows, number of the batch).
    add_statistics: seed_axis.SeedFunction | None = None
    # Carries out an `averages.Plan`, its argument.
    carry_out: seed_axis.SeedFunction | None = None

    @property
    def folded_logits(self) -> seed_axis.SeedFunction:
        """Return `logits` with batch norms folded into convolutions."""
        return inference.make_scorer(folding.fold_norms(self.decide))


class StepShapes(NamedTuple):
    """Shapes of the arguments of one seed's step, trees of jax.ShapeDtypeStructs."""

    state: PyTree
    seed_argument: PyTree  # See `seed_argument`; equal in every step.
    batch: PyTree  # The seed's batch: rows, or indices of rows in `shared`.
    shared: PyTree  # Rows on the devices that all seeds draw from.
    static: Hashable


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a run, from step `first` to step `last`: its data, and the functions of a seed.

    The functions are not compiled, and not bound to devices; see `placement.fit_to_devices`.

    members: all seeds of all branches. program: the functions of one seed of the first
    branch. average: the average of weights that the states keep, if any. eval_interval: steps
    from an evaluation to the next. rollback: None: a failed seed is frozen.
    """

    spec: run_spec.StageSpec
    members: tuple[run_spec.Member, ...]
    first: int
    last: int
    algo: base.Algo
    shape: tuple[int, int]  # Height and width of the images, in pixels.
    feed: data_feed.Feed
    program: SeedProgram
    # Maps the values of config.vary of a branch to the functions of that branch.
    program_for: Callable[[tuple], SeedProgram]
    average: averages.Average | None = None
    eval_interval: int = 1
    rollback: divergence.Rollback | None = None

    @property
    def number(self) -> int:
        """The index of the stage, from 0."""
        return self.spec.number

    @property
    def fix(self) -> Mapping[str, int]:
        """config.fix: the seed that all members share, per source of randomness."""
        return self.spec.config.get("fix", {})

    @property
    def order(self) -> samplers.Sampler:
        """The sampler of the training set."""
        return self.feed.order

    @property
    def state_shape(self) -> PyTree:
        """Shapes of the state of one member."""
        return jax.eval_shape(self.program.draw, prng.key(0), None)

    @property
    def state_shapes(self) -> tuple[PyTree, ...]:
        """Shapes of the states of all members, to read a checkpoint into."""
        return (self.state_shape,) * len(self.members)

    @functools.cached_property
    def foldable_norms(self) -> int:
        """The number of batch norms that an evaluation can fold into convolutions."""
        net = jax.eval_shape(train_step.net_of, self.state_shape)
        image = jax.ShapeDtypeStruct((1, *self.shape, 3), np.float32)
        return folding.count_foldable(self.program.decide, net, image)

    def folds_norms(self, eval_norm: str) -> bool:
        """Return True if an evaluation folds batch norms.

        eval_norm: config.run.eval_norm; "auto" folds on accelerators only: records of a CPU stay
        equal bit for bit.
        """
        is_requested = eval_norm == "folded" or (
            eval_norm == "auto" and xla.platform() != "cpu"
        )
        return is_requested and self.foldable_norms > 0

    def static(self, step: int) -> Hashable:
        """Return the compile-time arguments of a step; step: counted over the whole run."""
        return self.algo.static(step - self.first, self.last - self.first)

    @property
    def steps_by_static(self) -> dict[Hashable, int]:
        """The number of steps with each compile-time argument; each has a program of its own."""
        return count_programs(self.algo, self.last - self.first)

    @property
    def shapes(self) -> StepShapes:
        """Shapes, as jax.ShapeDtypeStructs, of the arguments of the stage's first step."""
        batches, shared = self.feed.shapes()
        return StepShapes(
            state=self.state_shape,
            seed_argument=jax.eval_shape(lambda: seed_argument(self.members[0])),
            batch=batches,
            shared=shared,
            static=self.static(self.first),
        )

    @functools.cached_property
    def _init(self) -> Callable:
        """The function `program.draw`, compiled without optimisation on CPU.

        The function runs once per seed. With optimisation, XLA for CPU would spend half a
        second on each shape of weights.
        """
        unoptimised = {"xla_backend_optimization_level": 0}
        is_on_cpu = xla.platform() == "cpu"
        return jax.jit(
            self.program.draw, compiler_options=unoptimised if is_on_cpu else None
        )

    def init_state(self, seed: int, net: Mapping | None = None) -> train_step.State:
        """Return a seed's initial state.

        net: {"params", "stats"} to start from; None: weights are drawn.
        """
        key = prng.stream(prng.key(self.fix.get("init", seed)), "init")
        if self.number:
            key = prng.stream(key, f"stage/{self.number}")
        return self._init(key, net)


def build_stages(
    spec: run_spec.RunSpec,
    plans: Sequence[Mapping[str, input_plan.InputPlan]],
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]] | None,
    devices: jax.sharding.Mesh,
    make_pipeline: Callable[
        ..., input_pipeline.InputPipeline
    ] = input_plan.make_pipeline,
) -> list[Stage]:
    """Return the stages of a run, without layout and compiled functions.

    `fit_to_devices` adds the layout and the compiled functions. ValueError for wrong options;
    if stages have different classes; if config.fix makes all seeds equal; and if a key of
    config.vary has no effect on any step, or an effect on initial weights or decisions. For
    evaluation only, config.fix and config.vary are not checked.

    plans: per stage, the input plan of each data set ("train", "other"). images: images of
    the sets that are in memory, by name; None: stages for evaluation only, whose
    `pipelines` are the plans. make_pipeline: a function with the arguments of
    `input_plan.make_pipeline`.
    """
    config, built = spec.config, []
    run_steps = sum(
        _num_steps(stage_spec, stage_plans["train"])
        for stage_spec, stage_plans in zip(spec.stages, plans, strict=True)
    )
    first_source = plans[0]["train"].source
    # Raises ValueError if the strategy does not suit the devices.
    strategies.resolve_strategy(spec.run.strategy, devices)
    for stage_spec, stage_plans in zip(spec.stages, plans, strict=True):
        source = stage_plans["train"].source
        if source.classes != first_source.classes:
            must = f"have the classes of the first stage's {first_source.name}"
            errors.refuse(
                f"{stage_spec.where}.train", f"{must}, got those of {source.name}"
            )
        built.append(
            _build_stage(
                stage_spec,
                built[-1].last if built else 0,
                run_steps=run_steps,
                spec=spec,
                plans=stage_plans,
                images=images,
                devices=devices,
                make_pipeline=make_pipeline,
            )
        )
    if images is not None and not _is_any_random(config, built):
        raise ValueError(
            "config.fix: leaves nothing random that this method draws, so that all seeds "
            "are one run; free a source, or train one seed"
        )
    if config["vary"] and images is not None:
        effective_keys = set()
        for stage in built:
            effective_keys |= _effective_keys(config, stage)
        for i, key in enumerate(run_spec.varied_keys(config)):
            if key in effective_keys:
                continue
            stages, entry = config["stages"], key.partition(".")[0]
            is_overridden = stages and all(entry in stage for stage in stages)
            hint = (
                f": stages have their own, such as stages.0.{key}"
                if is_overridden
                else ""
            )
            raise ValueError(
                f"config.vary[{i}].key: {key} has no effect on any step{hint}; vary what "
                "the steps use"
            )
    return built


def _num_steps(stage_spec: run_spec.StageSpec, plan: input_plan.InputPlan) -> int:
    """Return the number of steps of a stage; plan: of its training set."""
    return max(1, round(stage_spec.config["epochs"] * plan.order.steps_per_epoch))


def _build_stage(
    stage_spec: run_spec.StageSpec,
    first: int,
    *,
    run_steps: int,
    spec: run_spec.RunSpec,
    plans: Mapping[str, input_plan.InputPlan],
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]] | None,
    devices: jax.sharding.Mesh,
    make_pipeline: Callable[..., input_pipeline.InputPipeline],
) -> Stage:
    """Return one stage of a run.

    stage_spec: the spec of this stage, a part of `spec`. first: number of the stage's first
    step in the run. run_steps: steps of all stages. Other arguments: see `build_stages`.
    """
    number, where, options = stage_spec
    config, plan, source = spec.config, plans["train"], plans["train"].source
    steps_per_epoch, num_classes = plan.order.steps_per_epoch, len(source.classes)
    total = _num_steps(stage_spec, plan)
    eval_interval = jc.to_steps(
        config["eval_every"], steps_per_epoch=steps_per_epoch, total=run_steps
    )
    rollback = divergence.rollback_in_steps(
        config.get("rollback"), first, steps_per_epoch=steps_per_epoch, total=total
    )
    average = averages.from_options(
        options["optim"].get("average", 0.0),
        averages.Steps(total, steps_per_epoch, eval_interval),
        rolls_back=rollback is not None,
    )
    if average and average.valley and spec.run.evaluate == "elsewhere":
        raise ValueError(
            f"{where}.optim.average: swad needs validation losses during training, so that "
            "config.run.evaluate must be here, got elsewhere"
        )
    inputs = build.transforms(f"{where}.inputs", plan.inputs)
    other_inputs = build.transforms(
        f"{where}.train.other.inputs",
        plans["other"].inputs if "other" in plans else (),
    )
    num_views = math.prod(transform.views for transform in inputs)
    net = build.network(options, num_classes, num_views)

    def build_algorithm(algo_options: Mapping[str, Any]) -> base.Algo:
        return build.algorithm(algo_options, net=net, columns=plan.columns)

    algo = build_algorithm(options["algo"])
    norm_group = options["model"].get("norm_group", 0)
    accumulate, block = _micro_batches(
        options["train"], algo, norm_group=norm_group, period=plan.order.period
    )
    fix = config.get("fix", {})

    def build_program(algo: base.Algo, optim_options: Mapping[str, Any]) -> SeedProgram:
        """Return the functions of one seed for an algorithm and config.optim."""
        return make_program(
            algo,
            optim_options,
            average=average,
            shape=source.shape,
            first=first,
            total=total,
            steps_per_epoch=steps_per_epoch,
            rollback=rollback,
            in_chunks=devices.size == 1 and xla.platform() == "cpu",
            inputs=inputs,
            other=other_inputs,
            classes=num_classes,
            fix=fix,
            accumulate=accumulate,
            block=block,
        )

    def program_for(values: tuple) -> SeedProgram:
        varied = jc.stage_configs(run_spec.with_values(config, values))[number]
        return build_program(build_algorithm(varied["algo"]), varied["optim"])

    program = build_program(algo, options["optim"])
    if config["vary"]:
        for branch in spec.branches[1:]:
            branch_algo = build_algorithm(branch.stages[number].config["algo"])
            check_same_program(algo, branch_algo, total)

        def step_of_branch(
            state: Any, argument: Any, shared: Any, static: Hashable
        ) -> Any:
            # The values are traced: one program serves all branches.
            (key, values), batch = argument
            return program_for(values).step(state, (key, batch), shared, static)

        def add_statistics_of_branch(
            state: Any, argument: Any, shared: Any, static: Hashable
        ) -> Any:
            (key, values), batch = argument
            add = program_for(values).add_statistics
            return add(state, (key, batch), shared, static)

        program = program._replace(
            step=step_of_branch, add_statistics=add_statistics_of_branch
        )
    pipelines = plans
    if images is not None:
        transforms = (*inputs, *other_inputs)
        mix_groups = [transform.mix_group for transform in transforms]
        mesh.check_batch(
            options["train"]["batch"],
            math.lcm(algo.mix_group, *mix_groups),
            devices,
            norm_group=norm_group,
            accumulate=accumulate,
            block=block,
        )
        pipelines = {
            name: make_pipeline(
                input_plan_of_set,
                images=images,
                devices=devices,
                seeds=config["seeds"],
                steps=total,
                reading=reader_options(spec.run.loading, devices),
                fix=fix,
            )
            for name, input_plan_of_set in plans.items()
        }
    return Stage(
        spec=stage_spec,
        members=spec.members,
        first=first,
        last=first + total,
        algo=algo,
        shape=source.shape,
        feed=data_feed.Feed(pipelines, first),
        program=program,
        program_for=program_for,
        average=average,
        eval_interval=eval_interval,
        rollback=rollback,
    )


def make_program(
    algo: base.Algo,
    optim_options: Mapping[str, Any],
    *,
    average: averages.Average | None,
    shape: tuple[int, int],
    first: int,
    total: int,
    steps_per_epoch: int,
    rollback: divergence.Rollback | None,
    in_chunks: bool,
    inputs: Sequence[build.BatchTransform],
    other: Sequence[build.BatchTransform],
    classes: int,
    fix: Mapping[str, int],
    **step_options: Any,
) -> SeedProgram:
    """Return the functions of one seed for an algorithm and an optimiser.

    optim_options: config.optim of the stage. shape: height and width of the images, in
    pixels. first: the stage's first step in the run. total: number of steps of the stage.
    rollback: None: a failed seed is frozen. in_chunks: compute gradients of convolution
    kernels in chunks of the batch (`convolutions.chunk_kernel_gradients`; for one CPU).
    average: average of the weights that the states keep. inputs, other, classes, fix: see
    `make_seed_step`. step_options: options of `step.make_step`.
    """

    def make_optimisers(rate_scale: Any) -> tuple:
        """Return one optimiser per update, with its learning rate times `rate_scale`."""
        scaled = {**optim_options, "rate": rate_scale * optim_options["rate"]}
        return tuple(
            optim.from_options(
                scaled, update, total=total, steps_per_epoch=steps_per_epoch
            )
            for update in algo.updates
        )

    step = make_seed_step(
        algo,
        make_optimisers,
        inputs,
        classes,
        other=other,
        fix=fix,
        average=average,
        first=first,
        rollback=rollback,
        sharpness=sharpness.from_options(optim_options.get("sharpness")),
        **step_options,
    )
    draw = make_initialiser(
        algo, make_optimisers(1), shape=shape, first=first, average=average
    )
    decide = algo.decide or functools.partial(algo.net.apply, train=False)
    return SeedProgram(
        draw=divergence.with_fallback(draw) if rollback else draw,
        step=convolutions.chunk_kernel_gradients(step) if in_chunks else step,
        add_statistics=_make_statistics_step(
            algo,
            inputs,
            classes,
            other=other,
            fix=fix,
            draw=draw,
            statics=tuple(count_programs(algo, total)),
        ),
        carry_out=_carry_out,
        logits=inference.make_scorer(decide),
        decide=decide,
    )


def _is_any_random(config: Mapping[str, Any], built: Sequence[Stage]) -> bool:
    """Return True unless config.fix makes several seeds of a run equal.

    config: config of the run. built: stages of the run.
    """
    fix = config.get("fix", {})
    if len(config["seeds"]) == 1 or not {"init", "order"} <= {*fix}:
        return True
    return any(_depends_on_seed(stage, fix) for stage in built)


def _depends_on_seed(stage: Stage, fix: Mapping[str, int]) -> bool:
    """Return True if a stage crops on the host by seed, or its step uses the seed's key.

    Crops do not depend on the seed if config.fix, the argument `fix`, has "augment". The
    program of the stage's first step is examined.
    """
    pipelines = stage.feed.pipelines.values()
    readers = [getattr(pipeline, "read", None) for pipeline in pipelines]
    if "augment" not in fix and any(getattr(read, "window", None) for read in readers):
        return True
    shapes = stage.shapes

    def step(state, seed_argument, batch, shared):
        return stage.program.step(state, (seed_argument, batch), shared, shapes.static)

    jaxpr = jax.make_jaxpr(step)(
        shapes.state, shapes.seed_argument, shapes.batch, shapes.shared
    ).jaxpr
    _, is_used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    # The key is the first argument after the leaves of the state.
    return is_used[len(jax.tree.leaves(shapes.state))]


def _effective_keys(config: Mapping[str, Any], stage: Stage) -> set[str]:
    """Return the keys of config.vary that the stage's steps depend on.

    ValueError if initial weights or decisions depend on a key, because initial weights and
    decisions are the same for all branches.
    """
    shapes = stage.shapes
    state, (key, _) = shapes.state, shapes.seed_argument
    image = jax.ShapeDtypeStruct((1, *stage.shape, 3), np.uint8)
    net = train_step.net_of(state)

    def keys_of(select: Callable[[SeedProgram], Callable], *args: Any) -> set[str]:
        return affecting_keys(
            config, lambda values: select(stage.program_for(values)), *args
        )

    keys_of_draw = keys_of(lambda program: program.draw, key, None)
    keys_of_logits = keys_of(lambda program: program.logits, net, None, image, None)
    effect = "the weights at the start" if keys_of_draw else "how decisions are made"
    forbidden = keys_of_draw or keys_of_logits
    if forbidden:
        raise ValueError(
            f"config.vary: {', '.join(sorted(forbidden))} must not change {effect}, which "
            "all branches share; start a run for each value"
        )
    keys = set()
    for static in {stage.static(step) for step in range(stage.first, stage.last)}:

        def select_step(program, static=static):
            return functools.partial(program.step, static=static)

        keys |= keys_of(select_step, state, (key, shapes.batch), shapes.shared)
    return keys


def _micro_batches(
    options: Mapping[str, Any], algo: base.Algo, *, norm_group: int, period: int
) -> tuple[int, int]:
    """Return (number of micro-batches per batch, examples per indivisible block).

    A block is the least common multiple of `algo.mix_group` (examples that the algorithm
    mixes), `norm_group` (examples that batch norm averages over; 0: any number) and the
    sampler's `period`, so that each micro-batch has its share of every data set. Input
    transforms mix before the batch is divided. options: config.train. ValueError if the
    algorithm needs the whole batch.
    """
    accumulate = options.get("accumulate", 1)
    if accumulate > 1 and algo.whole_batch:
        where, remedy = "config.train.accumulate", "lower the batch instead"
        must = "be 1 for an algorithm whose loss compares the whole batch"
        errors.refuse(where, must, accumulate, remedy)
    return accumulate, math.lcm(algo.mix_group, norm_group or 1, period)


def reader_options(
    loading: run_spec.Loading, devices: jax.sharding.Mesh
) -> loader.ReaderOptions:
    """Return the threads and worker processes that read, and this process's share of batches.

    loading: config.run.loading; `threads` 0 means one thread per core, divided among the
    workers. If several processes train together, each reads its share of every batch.
    """
    workers = loading.workers
    cores = len(os.sched_getaffinity(0))
    threads = loading.threads or max(1, cores // max(1, workers))
    return loader.ReaderOptions(threads, workers, *mesh.local_part(devices))


# (argument of a seed, shared rows, number of the step) -> the batch after all transforms.
_BatchMaker = Callable[[Any, Any, Any], dict[str, Any]]


def _make_batch_maker(
    inputs: Iterable[build.BatchTransform],
    classes: int,
    *,
    other: Iterable[build.BatchTransform] = (),
    fix: Mapping[str, int] = types.MappingProxyType({}),
) -> _BatchMaker:
    """Return a function that assembles and transforms the batch of a seed.

    Its arguments: (key, rows of the batch or their indices by data set), rows on the device by
    data set, and the number of the step. Each dict has "train" and, with a second data set,
    "other", which becomes the entry "other" of the batch. Arguments: see `make_seed_step`.
    """

    def make_batch(argument, shared, step):
        """Return the transformed batch; arguments: see `_make_batch_maker`."""
        key, indices = argument
        augment_key = prng.key(fix["augment"]) if "augment" in fix else key
        gather = jax.named_scope("data")(input_pipeline.assemble_batch)
        batch = gather(shared["train"], indices["train"], classes)
        if "other" in indices:
            other_batch = gather(shared["other"], indices["other"], None)
            other_key = prng.stream(augment_key, "augment/other")
            batch["other"] = transform_batch(other_batch, other_key, step, other)
        inputs_key = prng.stream(augment_key, "augment")
        return transform_batch(batch, inputs_key, step, inputs)

    return make_batch


def make_seed_step(
    algo: base.Algo,
    make_optimisers: Callable[[Any], tuple],
    inputs: Iterable[build.BatchTransform],
    classes: int,
    *,
    other: Iterable[build.BatchTransform] = (),
    rollback: divergence.Rollback | None = None,
    fix: Mapping[str, int] = types.MappingProxyType({}),
    **step_options: Any,
) -> seed_axis.SeedFunction:
    """Return the whole step of one seed: assemble and transform a batch, update the weights.

    The step is (state, (key, batch by data set), shared rows, static) -> (state, metrics).

    make_optimisers: (factor on the learning rate) -> one optimiser per update of the
    algorithm. inputs: transforms of the training batch. classes: number of classes. other:
    transforms of the batch of a second data set. rollback: None: a failed seed is frozen.
    fix: config.fix. step_options: options of `step.make_step`.
    """
    make_batch = _make_batch_maker(inputs, classes, other=other, fix=fix)

    def make_step(rate_scale: Any) -> train_step.TrainStep:
        return train_step.make_step(algo, make_optimisers(rate_scale), **step_options)

    check_weights = algo.settle is not base.as_updated
    if rollback:
        guarded_step = divergence.rollback_nonfinite(
            make_step, rollback, check_weights=check_weights
        )
    else:
        guarded_step = divergence.freeze_nonfinite(
            make_step(1), check_weights=check_weights
        )

    def step(state, argument, shared, static):
        """Make the batch, take a training step, and return (state, metrics).

        argument, shared: see `_make_batch_maker`.
        """
        batch = make_batch(argument, shared, state.step)
        return guarded_step(state, batch, _algorithm_key(argument, fix), static)

    return step


def _algorithm_key(argument: tuple[Any, Any], fix: Mapping[str, int]) -> Any:
    """Return the key of a seed's algorithm: the seed's, or that of config.fix.algorithm.

    argument: (key of the seed, batch). fix: config.fix.
    """
    return prng.key(fix["algorithm"]) if "algorithm" in fix else argument[0]


def _make_statistics_step(
    algo: base.Algo,
    inputs: Iterable[build.BatchTransform],
    classes: int,
    *,
    other: Iterable[build.BatchTransform],
    fix: Mapping[str, int],
    draw: Callable[..., train_step.State],
    statics: Sequence[Hashable],
) -> seed_axis.SeedFunction:
    """Return the function `SeedProgram.add_statistics`.

    draw: `SeedProgram.draw`. statics: all compile-time arguments of the stage's steps. Other
    arguments: see `make_seed_step`.
    """
    make_batch = _make_batch_maker(inputs, classes, other=other, fix=fix)

    def add_statistics(state, argument, shared, static):
        """Add a batch to the recomputed statistics; return (state, {})."""
        shared_rows, number = shared
        batch = make_batch(argument, shared_rows, number)
        key = prng.stream(_algorithm_key(argument, fix), "statistics")
        is_frozen = functools.reduce(
            lambda frozen, other: jax.tree.map(operator.and_, frozen, other),
            (
                _frozen_statistics(algo, draw, batch, key, static_value)
                for static_value in statics
            ),
        )
        average = averages.add_statistics(
            state.stats[averages.KEY],
            algo.net,
            batch["image"],
            jax.random.fold_in(key, number),
            number,
            is_frozen=is_frozen,
        )
        return state._replace(stats={**state.stats, averages.KEY: average}), {}

    return add_statistics


def _frozen_statistics(
    algo: base.Algo,
    draw: Callable[..., train_step.State],
    batch: base.Batch,
    key: Any,
    static: Hashable,
) -> PyTree:
    """Return, for each statistic of the network, True if a training step leaves it unchanged.

    draw: `SeedProgram.draw`. batch, key: traced arguments of the step. static: its compile-time
    argument.
    """
    state = jax.eval_shape(draw, prng.key(0), None)

    def new_statistics(old: PyTree, params: PyTree, stats: PyTree) -> PyTree:
        """Return the network's statistics after a step."""
        stats = {**stats, "net": old}
        _, aux = algo.losses(params, stats, batch, key, static)
        return aux.stats["net"]

    old = state.stats["net"]
    jaxpr = jax.make_jaxpr(new_statistics)(old, state.params, state.stats).jaxpr
    num_statistics = len(jax.tree.leaves(old))
    assert len(jaxpr.outvars) == num_statistics
    pairs = zip(jaxpr.invars[:num_statistics], jaxpr.outvars, strict=True)
    is_frozen = [new_variable is variable for variable, new_variable in pairs]
    return jax.tree.unflatten(jax.tree.structure(old), is_frozen)


def count_programs(algo: base.Algo, steps: int) -> dict[Hashable, int]:
    """Return the number of steps with each compile-time argument, in a stage of `steps` steps."""
    if algo.static is base.no_static:
        return {None: steps}
    return dict(collections.Counter(algo.static(step, steps) for step in range(steps)))


def _carry_out(state, decided, shared, static):
    """Return the state after a plan for its average (`averages.Plan`); a seed function.

    A frozen seed, whose step is negative, stays as it is.
    """
    average = state.stats[averages.KEY]
    is_active = decided.is_active & (state.step >= 0)
    average = averages.carry_out(average, decided._replace(is_active=is_active))
    return state._replace(stats={**state.stats, averages.KEY: average})


@jax.named_scope("inputs")
def transform_batch(
    batch: base.Batch, key: Any, step: Any, transforms: Iterable[build.BatchTransform]
) -> base.Batch:
    """Return a batch after all input transforms, in order.

    batch: a dict, which is changed: before each transform, batch["once"] is set to a key that
    is the same in all steps. key: key of the seed. step: number of the step. Other random draws
    of a transform depend on the key, the step and the transform's stream.
    """
    step_key = jax.random.fold_in(key, step)
    for transform in transforms:
        batch["once"] = prng.stream(key, f"once/{transform.stream}")
        batch = transform.apply(batch, prng.stream(step_key, transform.stream))
    return batch


def make_initialiser(
    algo: base.Algo,
    txs: train_step.Optimisers,
    *,
    shape: tuple[int, int],
    first: int,
    average: averages.Average | None = None,
) -> Callable[..., train_step.State]:
    """Return a function (key, net) -> initial state of a seed, for step `first`.

    Its `net` is the network to start from; None: weights are drawn by the key. The function
    is the same program for all seeds.

    txs: one optimiser per update. shape: height and width of the images, in pixels.
    average: average of the weights that the state keeps.
    """

    def init(key, net):
        image = jnp.zeros((1, *shape, 3))
        state = train_step.init(algo, txs, key, image, net, average=average)
        return state._replace(step=jnp.asarray(first, jnp.int32))

    return init


def seed_argument(member: run_spec.Member) -> Any:
    """Return a member's argument, which is equal in every step.

    The argument is the seed's key, or in a run with config.vary the pair (key, values of
    config.vary as float32).
    """
    key = prng.key(member.seed)
    values = tuple(np.float32(value) for value in member.branch.values)
    return (key, values) if values else key


def affecting_keys(
    config: Mapping[str, Any], make: Callable[[Any], Callable[..., Any]], *args: Any
) -> set[str]:
    """Return the keys of config.vary that the result of `make(values)(*args)` depends on.

    make: maps the values of config.vary, in order, to a function. args: arrays or
    jax.ShapeDtypeStructs. ValueError if `make` or its function cannot be traced, because a
    value must be a Python number there.
    """
    keys = run_spec.varied_keys(config)
    values = (jax.ShapeDtypeStruct((), np.float32),) * len(keys)
    try:
        jaxpr = jax.make_jaxpr(lambda values, *args: make(values)(*args))(values, *args)
    except (TypeError, ValueError, AttributeError) as error:
        # An error that Python numbers cause, too, is not about tracing: raise that error.
        jax.eval_shape(make(run_spec.branches(config)[0].values), *args)
        raise ValueError(
            f"config.vary: a number of {', '.join(keys)} must be known while the "
            "program is compiled, so that it cannot differ in one; start a run for "
            "each value"
        ) from error
    outputs = [True] * len(jaxpr.jaxpr.outvars)
    _, is_used = partial_eval.dce_jaxpr(jaxpr.jaxpr, outputs)
    return {key for key, key_is_used in zip(keys, is_used) if key_is_used}


def check_same_program(first: base.Algo, second: base.Algo, steps: int) -> None:
    """Raise ValueError unless two algorithms differ only in numbers, not in structure.

    For each update, the names of its losses, its weight decay, its steps, the names of its
    optimiser's options and whether it clips gradients are compared; also the names of the parts, `mix_group`, and the compile-time argument of
    each of `steps` steps.
    """

    def structure(algo: base.Algo) -> list:
        updates = [
            (u.loss, u.plus, u.clip is None, u.decay, u.when, *u.optim)
            for u in algo.updates
        ]
        return [*updates, *algo.parts]

    a, b = structure(first), structure(second)
    if a != b or first.mix_group != second.mix_group:
        raise ValueError(
            f"config.vary: the values must make one algorithm, got updates and parts {a} "
            f"and {b}; start a run for the value that makes another, such as 0"
        )
    if first.static is second.static:
        return
    for step in range(steps):
        if first.static(step, steps) != second.static(step, steps):
            raise ValueError(
                "config.vary: the values must make one algorithm, got programs that "
                f"differ at step {step} of {steps}; start a run for each value"
            )
