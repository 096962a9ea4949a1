"""Networks of another run, from which a run starts (config.init)."""

import json
from collections.abc import Sequence

import jax
import numpy as np
from etils import epath

from jbias import run_spec
from jbias.models import trained
from jbias.runs import checkpoints
from jbias.runtime import files, messages
from jbias.training import stages
from jbias.training import step as train_step

Net = trained.Net


def load_initial_nets(workdir: epath.PathLike, seeds: Sequence[int]) -> list[Net]:
    """Return the networks of `seeds`, in the same order, from a run's latest checkpoint.

    workdir: the workdir of the run; for a run with config.vary, the folder of one branch,
    such as runs/x/vary/optim.rate=0.1. If the run has one seed, its network is returned for
    every seed. ValueError if the folder is not a run or a single branch, has no checkpoint
    yet, or lacks one of the seeds.
    """
    where = "config.init"
    workdir = epath.Path(files.local_copy(workdir, where, checkpoints=True))
    run_workdir = workdir
    if workdir.parent.name == "vary" and not (workdir / "checkpoints").exists():
        run_workdir = workdir.parent.parent
    config_path, folder = run_workdir / "config.json", run_workdir / "checkpoints"
    if not config_path.exists() or not folder.exists():
        raise ValueError(
            f"{where}: {workdir} must be the workdir of a run with checkpoints; "
            "train it first or name another"
        )
    config = json.loads(config_path.read_text("utf-8"))
    run_seeds = config["seeds"]
    folders = [branch.folder for branch in run_spec.branches(config)]
    branch = "" if run_workdir == workdir else f"vary/{workdir.name}"
    if branch not in folders:
        raise ValueError(
            f"{where}: {workdir} must be one branch of the run in {run_workdir}; name one, "
            f"such as {run_workdir / folders[0]}"
        )
    has_one_seed = len(run_seeds) == 1
    missing = [seed for seed in seeds if seed not in run_seeds]
    if missing and not has_one_seed:
        raise ValueError(
            f"{where}: {workdir} has the seeds {run_seeds} and not {missing[0]}; "
            f"train seed {missing[0]} there, or start from a run of a single seed"
        )
    steps = checkpoints.steps(folder)
    if not steps:
        raise ValueError(
            f"{where}: {folder} has no checkpoint yet; wait for the first one"
        )
    nets, _ = trained.read_nets(folder, steps[-1])
    # The networks are in the order of branches, and of seeds within a branch.
    first = folders.index(branch) * len(run_seeds)
    return [
        nets[first if has_one_seed else first + run_seeds.index(seed)] for seed in seeds
    ]


def graft_heads(
    loaded: Sequence[Net], stage: stages.Stage, say: messages.Say
) -> list[Net]:
    """Return the network to start from for each member of the first stage.

    loaded: the networks of the other run, one per seed; all branches start from the same. say:
    receives a log line if a linear layer is replaced (`graft_head`). ValueError if a network does
    not fit the model.
    """
    by_seed = {}
    for member, net in zip(stage.members, loaded):
        drawn = train_step.net_of(stage.init_state(member.seed))
        by_seed[member.seed] = graft_head(drawn, net, say)
    return [by_seed[member.seed] for member in stage.members]


def graft_head(drawn: Net, loaded: Net, say: messages.Say) -> Net:
    """Return `loaded`, with the last linear layer of `drawn` if the numbers of classes differ.

    drawn: a network with random initial weights of the model to train. loaded: the network
    to start from. say: receives a log line if the layer is replaced. ValueError if any other
    shapes differ.
    """
    shapes, drawn_shapes = (jax.tree.map(np.shape, net) for net in (loaded, drawn))
    if shapes == drawn_shapes:
        return loaded
    grafted = loaded
    if "fc" in drawn["params"]:
        head = drawn["params"]["fc"]
        grafted = {**loaded, "params": {**loaded["params"], "fc": head}}
    if jax.tree.map(np.shape, grafted) != drawn_shapes:
        raise ValueError(
            "config.init: the model differs from config.model; set config.model to the "
            "model in that run's config.json"
        )
    say("config.init: the number of classes differs; the linear layer is drawn anew")
    return grafted
