"""Description of the first step of a run (`--check`), by tracing, without computing anything.

Each stage is built as in the run, from the shapes of the images only. The description has
the layers at which the algorithm's tap changes features, the weights that receive a
gradient, all shapes, and whether the step equals ERM's. Errors are raised as in the run.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.interpreters import partial_eval

from jbias import algos, build, extensions, run_estimates, run_spec
from jbias.algos import base, erm
from jbias.models import taps
from jbias.runtime import mesh, messages
from jbias.training import input_pipeline, input_plan, prng, setup, stages
from jbias.training import step as train_step


def check(config: Mapping[str, Any] | run_spec.RunSpec) -> list[str]:
    """Return lines of text, in two aligned columns, that describe the first step of each stage.

    A run with config.vary is described by its first branch. ValueError if the run could not
    start; UserCodeError, with the line number, for errors in a user's file.
    """
    spec = run_spec.RunSpec.from_config(config)
    spec = run_spec.RunSpec.from_config({**spec.branches[0].config, "vary": []})
    erm_spec = run_spec.RunSpec.from_config(_replace_by_erm(spec.config))
    run = spec.run
    lines = []
    with extensions.naming_files(spec.config):
        setup.check_names(spec)
        plans = input_plan.plan_stages(spec.stages, setup.open_train_sets(spec))
        devices = mesh.make(run.devices, len(spec.members), run.spread, run.together)

        def build_stages(spec: run_spec.RunSpec) -> list[stages.Stage]:
            return stages.build_stages(
                spec, plans, {}, devices, run_estimates.pipeline_shapes
            )

        for stage, erm_stage, plan in zip(
            build_stages(spec), build_stages(erm_spec), plans, strict=True
        ):
            lines += _describe(stage, plan)
            comparison = "another program"
            if _program_text(stage) == _program_text(erm_stage):
                comparison = "the same program: it equals ERM, except for its inputs"
            lines.append(("against ERM", comparison))
    return messages.align_columns(lines)


def _replace_by_erm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with ERM, without options, as the algorithm of each stage.

    If an algorithm is a user's own, the ERM that replaces it is named by ERM's file, because the
    checks of a user's losses are part of the compiled program.
    """

    def erm_like(algo: Mapping[str, Any]) -> dict[str, Any]:
        is_of_package = algo["name"] in algos.ALGOS
        return {"name": "erm" if is_of_package else f"{erm.__file__}:make"}

    stage_configs = [
        {**stage, "algo": erm_like(stage.get("algo", config["algo"]))}
        for stage in config["stages"]
    ]
    return {**config, "algo": erm_like(config["algo"]), "stages": stage_configs}


def _program_text(stage: stages.Stage) -> str:
    """Return the program text of a stage's lowered step, to compare two algorithms."""
    shapes = stage.shapes
    step = jax.jit(stage.program.step, static_argnums=3)
    batch = shapes.seed_argument, shapes.batch
    return step.lower(shapes.state, batch, shapes.shared, shapes.static).as_text()


def _describe(
    stage: stages.Stage, plan: Mapping[str, input_plan.InputPlan]
) -> Iterator[tuple[str, str]]:
    """Yield (name, description) of a stage's first step.

    The first name is the stage's path, such as "config", with the name of the algorithm as
    description. Then: tap (only if the algorithm has one), losses, batch, logits, and each part of
    the parameters. plan: the plan of each data set, "train" and perhaps "other".
    """
    shapes, algo = stage.shapes, stage.algo
    transforms = {
        name: build.transforms(f"inputs of {name}", input_set.inputs)
        for name, input_set in plan.items()
    }
    traced: dict[str, Any] = {}  # Filled when the losses are traced.

    def losses(params, stats, batch_rows, shared, key):
        """Return the algorithm's losses by name, and fill `traced`.

        traced["losses"] is a text with the names of the losses and metrics, traced["batch"] one
        with the shapes of the batch; traced["image"] is the image as jax.ShapeDtypeStruct. params,
        stats, key: arguments of the algorithm's losses. batch_rows, shared: by data set ("train",
        perhaps "other"), the rows or indices of the batch and the rows on the device, from which
        `assemble_batch` makes the batch. stage, plan: variables of the enclosing call.
        """
        assemble = input_pipeline.assemble_batch
        num_classes = len(plan["train"].source.classes)
        batch = assemble(shared["train"], batch_rows["train"], num_classes)
        if "other" in batch_rows:
            other = assemble(shared["other"], batch_rows["other"], None)
            other = stages.transform_batch(other, key, 0, transforms["other"])
            batch["other"] = other
        batch = stages.transform_batch(batch, key, 0, transforms["train"])
        named_losses, aux = algo.losses(params, stats, batch, key, shapes.static)
        traced["image"] = jax.ShapeDtypeStruct(batch["image"].shape, "uint8")
        logged = [f"{name} (logged)" for name in aux.metrics]
        traced["losses"] = ", ".join([*named_losses, *logged])
        traced["batch"] = build.describe_tree(batch)
        return named_losses

    state = shapes.state
    args = (state.params, state.stats, shapes.batch, shapes.shared, prng.key(0))
    acts_by_site = taps.find_acting(losses, *args)
    yield stage.spec.where, f"the first step of {stage.spec.config['algo']['name']}"
    if acts_by_site:
        sites = [site for site, acts in acts_by_site.items() if acts]
        names = f": {taps.abbreviate(sites)}" if sites else ""
        yield "tap", f"acts at {len(sites)} of {len(acts_by_site)} sites{names}"
    yield "losses", traced["losses"]
    yield "batch", traced["batch"]
    logits = jax.eval_shape(
        lambda net, image: stage.program.logits(net, None, image, shapes.static),
        train_step.net_of(state),
        traced["image"],
    )
    yield "logits", build.describe_tree(logits)
    yield from _describe_gradients(algo, losses, args)


def _describe_gradients(
    algo: base.Algo, losses: Callable[..., dict[str, Any]], args: tuple[Any, ...]
) -> Iterator[tuple[str, str]]:
    """Yield (name, text about the arrays that receive a gradient) for each part of the parameters.

    An example of a text is "1,000 weights, a gradient for 3 of 4 arrays". The text also names
    the arrays without a gradient, with the reason.
    losses: function from `args` to losses by name. args: arguments or their shapes; the
    first is the parameters.
    """
    params, *other_args = args
    losses_used = {update.loss for update in algo.updates}
    losses_used |= {update.plus for update in algo.updates}
    names = sorted(filter(None, losses_used))

    def gradients(params, *other_args):
        """Return the gradients of the losses in `names`, a list of trees like `params`.

        params, other_args: the arguments of `losses` of the enclosing call.
        """

        def gradient(name):
            return jax.grad(lambda params: losses(params, *other_args)[name])(params)

        return [gradient(name) for name in names]

    jaxpr = jax.make_jaxpr(gradients)(params, *other_args).jaxpr
    leaves = dict(jax.tree_util.tree_leaves_with_path(params))
    arrays = {
        tuple(str(entry.key) for entry in path): array for path, array in leaves.items()
    }
    reached = set()  # Pairs of a loss and a path with a gradient.
    pairs = [(name, path) for name in names for path in arrays]
    for i, pair in enumerate(pairs):
        is_output = [output == i for output in range(len(jaxpr.outvars))]
        # A gradient that depends on no input is a constant zero.
        if any(partial_eval.dce_jaxpr(jaxpr, is_output)[1]):
            reached.add(pair)
    for part in params:
        trained, not_reached, not_trained = [], [], []
        paths = [path for path in arrays if path[0] == part]
        for path in paths:
            updates = [update for update in algo.updates if update.trains(path)]
            name = "/".join(path[1:])
            if any(
                (update.loss, path) in reached or (update.plus, path) in reached
                for update in updates
            ):
                trained.append(name)
            elif updates:
                not_reached.append(name)
            else:
                not_trained.append(name)
        size = sum(math.prod(arrays[path].shape) for path in paths)
        line = f"{size:,} weights, a gradient for {len(trained)} of {len(paths)} arrays"
        if not_reached:
            line += f"; no loss reaches {', '.join(not_reached)}"
        if not_trained:
            line += f"; no update trains {', '.join(not_trained)}"
        yield part, line
