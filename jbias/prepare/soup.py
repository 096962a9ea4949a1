r"""Average the weights of several seeds into one network: a soup, as in DiWA.

    jbias train --config=configs/erm.py:seeds=5 --config.fix.init=0 --workdir=runs/five
    jbias prepare soup --runs runs/five --kind=greedy --out=runs/soup

The seeds must start from the same network: from one random initialisation (--config.fix.init=0),
or from one trained network (--config.init). The runs may differ in hyperparameters, such as the
values of config.vary. The soup is written as a workdir of one seed, for `jbias measure`,
`jbias evaluate` and --config.init. `jbias measure runs/soup` measures it on the same images as its
seeds. `jbias report` needs records of training, which a soup lacks; to compare it with runs:

    jbias evaluate --checkpoint=runs/soup --checkpoint=runs/swad \
        --suite=configs/suites/biases.py --out=measured/soup
    jbias report measured --measured='measured/soup/*'

A soup is one network, however many seeds are in it: tests over seeds need several soups.

uniform: the mean of all networks.
greedy: networks join in the order of their validation accuracy; a network stays if the mean with
    it is at least as accurate on the validation set as without it. All means, also of the first
    network alone, have new statistics of batch norms, so that the soup may be less accurate than a
    network with its own. Printed are the networks in this order, and the accuracies that decided.

Sources: Rame et al., "Diverse Weight Averaging", NeurIPS 2022 (https://arxiv.org/abs/2205.09739);
greedy: Wortsman et al., "Model soups", ICML 2022 (https://arxiv.org/abs/2203.05482).
Code: https://github.com/alexrame/diwa at 4bfe468, domainbed/scripts/diwa.py, whose "restricted"
is greedy. Deviations: the batch norms of DiWA are frozen. Here they are trained, and their
statistics are computed from training images for each soup (--statistics=recompute), because a mean
of the members' statistics does not fit the averaged weights. A seed's network is that of its step
with the best validation accuracy, as there (--step).

Images that are read from files are read again for each soup: a greedy soup depends on the accuracy
of the soup before, which needs all validation images, too.
"""

import argparse
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jaxtyping import PyTree

from jbias import errors, models, run_spec
from jbias.data import class_maps, config_sets, loader
from jbias.evals import inference, networks
from jbias.models import class_names
from jbias.runtime import cli, console, mesh
from jbias.training import input_plan, prng, setup, stages
from jbias.training import step as train_step
from jbias.training.averaging import averages

KINDS = ("uniform", "greedy")
_BATCHES = 100  # Training batches for the statistics of batch norms.
_WHERE = "prepare soup"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare soup` to its parser."""
    add = parser.add_argument
    runs_help = "runs, or branches of runs, whose seeds are averaged"
    add("--runs", required=True, help=runs_help, **cli.WORKDIRS)
    add("--out", required=True, metavar="DIR", help="new workdir to write")
    kind_help = (
        "uniform: all seeds; greedy: the seeds that raise the validation accuracy "
        "(default: uniform)"
    )
    add("--kind", choices=KINDS, default="uniform", help=kind_help)
    step_help = (
        "checkpoint of each seed: best (the highest validation accuracy), latest, or the "
        "number of a saved training step (default: best)"
    )
    add("--step", default="best", metavar="STEP", help=step_help)
    statistics_help = (
        "of batch norms: recompute (from training images) or average (the mean of the "
        "seeds') (default: recompute)"
    )
    add(
        "--statistics",
        choices=averages.STATISTICS,
        default="recompute",
        help=statistics_help,
    )
    batches_help = f"training batches for --statistics=recompute (default: {_BATCHES})"
    add(
        "--batches",
        type=cli.at_least_1,
        default=_BATCHES,
        metavar="N",
        help=batches_help,
    )
    any_init_help = (
        "average seeds that start from different networks (default: stop with an error)"
    )
    add("--any-init", action="store_true", help=any_init_help)


def run(args: argparse.Namespace) -> list[str]:
    """Write the soup to --out; return lines on the networks in it.

    args: the flags of `add`. ValueError for runs that cannot be averaged, and if --out exists.
    """
    out = epath.Path(args.out)
    is_taken = out.is_file() or (out.is_dir() and any(out.iterdir()))
    if is_taken:
        errors.refuse(
            f"{_WHERE}: --out", "be new", errors.Words(out), "name another folder"
        )
    console.silence_warnings()
    members = [
        member
        for path in args.runs
        for member in networks.from_run(path, step=str(args.step))
    ]
    lines = check_members(members, any_init=args.any_init)
    finish = _unchanged
    if args.statistics == "recompute":
        finish = functools.partial(_with_statistics, members[0], batches=args.batches)
    if args.kind == "greedy":
        trials = select_greedily(members, _make_validator(members), finish=finish)
        chosen = [trial.member for trial in trials if trial.joins]
        lines += describe_trials(trials)
    else:
        chosen = members
    soup = finish(mean_of([member.variables for member in chosen]))
    first = members[0]
    classes = class_names.Classes(first.classes, first.space)
    size = first.about["config"]["size"]
    entries = {
        "train": {"data": first.fields["train_data"]},
        "soup": {
            "kind": args.kind,
            "statistics": args.statistics,
            "members": [member.name for member in chosen],
        },
    }
    models.save_run(out, first.net, soup, classes, size=size, entries=entries)
    names = ", ".join(member.name for member in chosen)
    return [*lines, f"{out}: {args.kind} soup of {len(chosen)} networks ({names})"]


def _unchanged(variables: PyTree) -> PyTree:
    """Return the variables unchanged: statistics are the mean of the members'."""
    return variables


def mean_of(trees: Sequence[PyTree]) -> PyTree:
    """Return the mean of trees of arrays, summed in float64; the mean of one tree is the tree."""

    leaves_by_tree = [jax.tree.leaves(tree) for tree in trees]
    means = []
    for i in range(len(leaves_by_tree[0])):
        stacked = np.stack([np.asarray(leaves[i]) for leaves in leaves_by_tree])
        mean = stacked.mean(axis=0, dtype=np.float64)
        means.append(mean.astype(stacked.dtype))
    return jax.tree.unflatten(jax.tree.structure(trees[0]), means)


class Trial(NamedTuple):
    """The comparison of a greedy soup with a network and without it, on the validation set.

    accuracy: of the network alone, with its own statistics of batch norms. accuracy_with: of the
    soup with the network. accuracy_without: of the soup before; None for the first network.
    """

    member: networks.FlaxNetwork
    accuracy: float
    accuracy_with: float
    accuracy_without: float | None

    @property
    def joins(self) -> bool:
        """Return True if the network is in the soup: it is the first, or costs no accuracy."""
        without = self.accuracy_without
        return without is None or self.accuracy_with >= without


def select_greedily(
    members: Sequence[networks.FlaxNetwork],
    accuracy: Callable[[PyTree], float],
    *,
    finish: Callable[[PyTree], PyTree],
) -> list[Trial]:
    """Return the trials of a greedy soup in their order, the first network's first.

    accuracy: maps variables to an accuracy on the validation set. finish: applied to each mean of
    members that is compared, also to the mean of the first member alone, such as new statistics of
    batch norms. Members with equal accuracies keep their order.
    """
    accuracies = [accuracy(member.variables) for member in members]
    order = sorted(range(len(members)), key=lambda i: -accuracies[i])
    trials, chosen, best = [], [], None
    for i in order:
        candidate = [*chosen, members[i].variables]
        # The first network, too: its own statistics are not those of the network that is written.
        trial = Trial(
            member=members[i],
            accuracy=accuracies[i],
            accuracy_with=accuracy(finish(mean_of(candidate))),
            accuracy_without=best,
        )
        trials.append(trial)
        if trial.joins:
            chosen, best = candidate, trial.accuracy_with
    return trials


def check_members(
    members: Sequence[networks.FlaxNetwork], *, any_init: bool
) -> list[str]:
    """Return lines of warning about networks that are to be averaged.

    ValueError for fewer than two networks, different models, classes or validation sets, and,
    unless `any_init`, networks of seeds that started from different networks.
    """
    where = f"{_WHERE}: --runs"
    if len(members) < 2:
        errors.refuse(
            where,
            "have two seeds or more",
            len(members),
            "train more seeds, as by --config.seeds='(0,1,2)', or name more runs",
        )
    first = members[0]
    for member in members[1:]:
        pair = f"{first.name} and {member.name}"
        if member.net != first.net:
            raise ValueError(f"{where}: the models must be equal, {pair} differ")
        if (member.space, member.classes) != (first.space, first.classes):
            raise ValueError(f"{where}: the classes must be equal, {pair} differ")
        options = [x.about["config"]["valid"] for x in (first, member)]
        if options[0] != options[1]:
            raise ValueError(
                f"{where}: the validation sets must be equal, {pair} differ"
            )
    lines = []
    configs = [member.about["config"] for member in members]
    if any(config_sets.is_trained_on(config) for config in configs):
        lines.append(
            f"note: {where}: the validation set has training images of the seeds, so that its "
            "accuracy chooses by training images; use --kind=uniform --step=latest"
        )
    starts = {initial_network(member): member.name for member in members}
    if len(starts) == 1:
        return lines
    line = (
        f"{where}: the seeds must start from one network, {' and '.join([*starts.values()][:2])} "
        "do not, so that the mean of their weights is no good network"
    )
    if not any_init:
        raise ValueError(
            f"{line}; train them with --config.fix.init=0, or give --any-init"
        )
    return [*lines, f"note: {line}"]


class InitialNetwork(NamedTuple):
    """The identity of the network that a seed started from."""

    run: str  # config.init; "": weights were drawn.
    seed: int | None  # The seed of the initial network; None: all seeds share it.


def initial_network(member: networks.FlaxNetwork) -> InitialNetwork:
    """Return the identity of the network that a seed of a run started from.

    A run that starts from a run of one seed (config.init) gives all of its seeds one network,
    unless the linear layer is drawn anew for other classes. If the workdir of that run is gone,
    its seeds count as different.
    """
    config = member.about["config"]
    seed = config.get("fix", {}).get("init", member.fields["seed"])
    if not config["init"]:
        return InitialNetwork("", seed)
    path = epath.Path(config["init"]) / "config.json"
    if path.exists():
        seeds = json.loads(path.read_text("utf-8"))["seeds"]
        stored = class_names.read(config["init"])
        has_classes = stored is not None and len(stored.names) == len(member.classes)
        if len(seeds) == 1 and has_classes:
            seed = None
    return InitialNetwork(config["init"], seed)


def describe_trials(trials: Sequence[Trial]) -> list[str]:
    """Return a line for each trial of a greedy soup, and a line on the accuracy of the soup."""
    lines = []
    for number, trial in enumerate(trials, start=1):
        line = f"{number}. {trial.member.name}: validation accuracy {_percent(trial.accuracy)}"
        line += f"; soup with it {_percent(trial.accuracy_with)}"
        if trial.accuracy_without is None:
            line += ": first in the soup"
        else:
            choice = "joins the soup" if trial.joins else "left out"
            line += f", without it {_percent(trial.accuracy_without)}: {choice}"
        lines.append(line)
    final = [trial for trial in trials if trial.joins][-1]
    lines.append(f"validation accuracy of the soup: {_percent(final.accuracy_with)}")
    return lines


def _percent(accuracy: float) -> str:
    """Return a fraction in percent, such as "97.50 %"."""
    return f"{100 * accuracy:.2f} %"


def _single_seed_config(member: networks.FlaxNetwork) -> dict[str, Any]:
    """Return the config of a run of one member, on one device."""
    config = member.about["config"]
    run = {**config["run"], "devices": 1, "spread": 0, "together": 0}
    return {**config, "seeds": [member.fields["seed"]], "run": run}


def _make_validator(
    members: Sequence[networks.FlaxNetwork],
) -> Callable[[PyTree], float]:
    """Return a function from variables to the accuracy on the runs' validation set."""
    first, say = members[0], console.logger(None)
    spec = run_spec.RunSpec.from_config(_single_seed_config(first))
    config, where = spec.config, "config.valid"
    source = config_sets.open_test_source(where, config["valid"], config["size"])
    class_map = config_sets.class_map(
        where,
        config["valid"],
        test=source,
        train=class_maps.LabelSpace(first.classes, first.space),
        aggregate=config["aggregate"],
    )
    test = config_sets.test_set("valid", source, class_map, None, say)
    devices = mesh.make(1)
    apply = first.decide or networks.make_apply(first.net, first.code)
    score = jax.jit(inference.make_scorer(apply))

    def accuracy(variables: PyTree) -> float:
        reading = stages.reader_options(spec.run.loading, devices)
        (predictions,) = inference.decide_sets(
            lambda nets, args, image, _: tuple(
                score(net, (), image, None) for net in nets
            ),
            (variables,),
            loader.local_batches([test.images], spec.run.eval_batch, reading),
            rules=[
                inference.DecisionRule(
                    n=len(test.images),
                    matrix=test.matrix,
                    aggregate=test.aggregate,
                )
            ],
        )
        return float(np.mean(predictions[0] == test.columns["label"]))

    return accuracy


def _with_statistics(
    member: networks.FlaxNetwork, variables: Mapping[str, PyTree], *, batches: int
) -> dict[str, PyTree]:
    """Return the variables with statistics of batch norms from training images.

    The images are the first batches of a member's last stage, with its transforms.
    """
    if not variables.get("stats"):
        return dict(variables)
    stage, add_statistics = _statistics_step(member)
    average = {
        **variables,
        "recomputed_stats": jax.tree.map(jnp.copy, variables["stats"]),
    }
    state = train_step.State(
        step=jnp.zeros((), jnp.int32),
        params={"net": {}},
        stats={averages.KEY: average},
        opt=(),
    )
    seed = member.fields["seed"]
    for number in range(batches):
        step = stage.first + number % (stage.last - stage.first)
        argument = (prng.key(seed), stage.feed.batch(seed, step))
        shared = (stage.feed.shared(step), np.int32(number))
        state, _ = add_statistics(state, argument, shared)
    return jax.device_get(averages.network(state.params, state.stats))


@functools.lru_cache(maxsize=1)
def _statistics_step(
    member: networks.FlaxNetwork,
) -> tuple[stages.Stage, Callable[[Any, Any, Any], Any]]:
    """Return the last stage of a member's run, and its compiled `add_statistics`."""
    spec = run_spec.RunSpec.from_config(_single_seed_config(member))
    devices = mesh.make(1)
    train_sets = setup.open_train_sets(spec)
    plans = input_plan.plan_stages(spec.stages, train_sets)
    sources = {}
    for number, train_set in enumerate(train_sets):
        sources |= train_set.named(number)
    streamed = {
        name
        for stage_plans in plans
        for plan in stage_plans.values()
        if plan.stream
        for name in plan.sources
    }
    images = loader.load_into_memory(
        {name: source for name, source in sources.items() if name not in streamed},
        {},
        console.logger(None),
        gib=spec.run.loading.gib,
        threads=stages.reader_options(spec.run.loading, devices).threads,
    )
    stage = stages.build_stages(spec, plans, images, devices)[-1]
    add = stage.program.add_statistics
    return stage, jax.jit(lambda state, arg, shared: add(state, arg, shared, None))
