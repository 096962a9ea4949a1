"""What the first step of a run does, from a trace of it: nothing is computed or kept.

Each stage is built as the run would build it, but for the images, of which shapes alone
are known. It is told where the algorithm's tap acts, which weights the losses reach, of
which shapes everything is, and whether the step is ERM's; what is wrong is raised as the
run would raise it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.interpreters import partial_eval

from jbias import algos, build, extensions, planning, run_spec
from jbias.algos import base, erm
from jbias.models import taps
from jbias.runtime import mesh, messages
from jbias.training import input_pipeline, input_plan, prng, setup, stages
from jbias.training import step as train_step


def check(config: Mapping[str, Any] | run_spec.RunSpec) -> list[str]:
    """Lines about the first step of each stage, of the first branch.

    ValueError where the run could not begin, UserCodeError with the line in one's own file.
    """
    spec = run_spec.RunSpec.from_config(config)
    spec = run_spec.RunSpec.from_config({**spec.branches[0].config, "vary": []})
    own, lines = {"algo": spec.config["algo"]}, []
    plain = [_with_erm({**own, **stage}) for stage in spec.config["stages"]]
    plain = {**_with_erm(spec.config), "stages": plain}
    plain = run_spec.RunSpec.from_config(plain)
    run, count = spec.config["run"], len(spec.members)
    with extensions.naming_files(spec.config):
        setup.check_names(spec)
        plans = input_plan.plan_stages(spec.stages, setup.open_train_sets(spec))
        devices = mesh.make(run["devices"], count, run["spread"], run["together"])
        of = plans, {}, devices, planning.pipeline_shapes
        built = (stages.build_stages(one, *of) for one in (spec, plain))
        for stage, other, plan in zip(*built, plans, strict=True):
            lines += _describe(stage, plan)
            same = _program(stage) == _program(other)
            told = "the same program: it does what ERM does, but for its inputs"
            lines.append(("against ERM", told if same else "another program"))
    return messages.align_columns(lines)


def _with_erm(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of ERM; beside an algorithm of the user's own, ERM as such a one.

    What is checked of a user's losses is part of their program.
    """
    ours = config["algo"]["name"] in algos.ALGOS
    return {**config, "algo": {"name": "erm" if ours else f"{erm.__file__}:make"}}


def _program(stage: stages.Stage) -> str:
    given, step = stage.shapes, jax.jit(stage.program.step, static_argnums=3)
    arg = given.argument, given.taken
    return step.lower(given.state, arg, given.shared, given.static).as_text()


def _describe(
    stage: stages.Stage, plan: Mapping[str, input_plan.InputPlan]
) -> Iterator[tuple[str, str]]:
    given, algo, told = stage.shapes, stage.algo, {}
    through = {k: build.transforms(f"inputs of {k}", x.inputs) for k, x in plan.items()}

    def losses(params, stats, taken, held, key):
        gather, change = input_pipeline.assemble_batch, stages.transform_batch
        batch = gather(held["train"], taken["train"], len(plan["train"].source.classes))
        if "other" in taken:
            other = gather(held["other"], taken["other"], None)
            batch["other"] = change(other, key, 0, through["other"])
        batch = change(batch, key, 0, through["train"])
        named, aux = algo.losses(params, stats, batch, key, given.static)
        told["image"] = jax.ShapeDtypeStruct(batch["image"].shape, "uint8")
        told["lines"] = {
            "losses": ", ".join(
                [*named, *(f"{name} (logged)" for name in aux.metrics)]
            ),
            "batch": build.describe_tree(batch),
        }
        return named

    state, key = given.state, prng.key(0)
    args = state.params, state.stats, given.taken, given.shared, key
    acted = taps.find_acting(losses, *args)
    yield stage.spec.where, f"the first step of {stage.spec.config['algo']['name']}"
    if acted:
        sites = [site for site, acts in acted.items() if acts]
        at = f": {taps.abbreviate(sites)}" if sites else ""
        yield "tap", f"acts at {len(sites)} of {len(acted)} sites{at}"
    yield from told["lines"].items()
    net = train_step.net_of(state)
    found = jax.eval_shape(stage.program.logits, net, None, told["image"], given.static)
    yield "logits", build.describe_tree(found)
    yield from _reach(algo, losses, args)


def _reach(algo: base.Algo, losses: Callable, args: tuple) -> Iterator[tuple[str, str]]:
    """Of each part, how many of its arrays are trained, and which are not, and why."""
    params, *rest = args
    names = sorted({x for one in algo.updates for x in (one.loss, one.plus) if x})

    def gradients(params, *rest):
        of = [lambda params, name=x: losses(params, *rest)[name] for x in names]
        return [jax.grad(loss)(params) for loss in of]

    traced = jax.make_jaxpr(gradients)(params, *rest).jaxpr
    leaves = dict(jax.tree_util.tree_leaves_with_path(params))
    paths = {tuple(str(entry.key) for entry in path): x for path, x in leaves.items()}
    reached = set()
    for i, of in enumerate((name, path) for name in names for path in paths):
        wanted = [place == i for place in range(len(traced.outvars))]
        # What depends on nothing at all is a zero.
        if any(partial_eval.dce_jaxpr(traced, wanted)[1]):
            reached.add(of)
    for part in params:
        mine = [path for path in paths if path[0] == part]
        by = {path: [one for one in algo.updates if one.trains(path)] for path in mine}
        moves = {p for p in mine for u in by[p] if {(u.loss, p), (u.plus, p)} & reached}
        size = sum(math.prod(paths[path].shape) for path in mine)
        line = f"{size:,} weights, a gradient for {len(moves)} of {len(mine)} arrays"
        still = [path for path in mine if path not in moves]
        for why, trained in (("no loss reaches", True), ("no update trains", False)):
            lost = ["/".join(path[1:]) for path in still if bool(by[path]) == trained]
            line += f"; {why} {', '.join(lost)}" if lost else ""
        yield part, line
