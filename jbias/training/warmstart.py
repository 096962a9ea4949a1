"""Starts from the nets of another run, given by its workdir."""

import json
import zlib
from collections.abc import Callable, Sequence

import jax
import numpy as np
from etils import epath

from jbias.models import trained
from jbias.runs import checkpoints
from jbias.runtime import files
from jbias.training import vary


def nets(workdir: epath.PathLike, seeds: Sequence[int]) -> list[trained.Net]:
    """Reads the nets of these seeds from the latest checkpoint of a run.

    A run of one seed gives its net to all; a folder of a run whose numbers vary, such as
    runs/x/vary/optim.rate=0.1, those of that branch. ValueError where the workdir holds
    no checkpoint, or none of such a seed.
    """
    workdir = whole = epath.Path(
        files.local_copy(workdir, "config.init", checkpoints=True)
    )
    if workdir.parent.name == "vary" and not (workdir / "checkpoints").exists():
        whole = workdir.parent.parent
    config, folder = whole / "config.json", whole / "checkpoints"
    if not config.exists() or not folder.exists():
        raise ValueError(
            f"config.init: {workdir} must be the workdir of a run with checkpoints; "
            "train it first or name another"
        )
    found = json.loads(config.read_text())
    held, folders = found["seeds"], [b.folder for b in vary.branches(found)]
    folder = "" if whole == workdir else f"vary/{workdir.name}"
    if folder not in folders:
        raise ValueError(
            f"config.init: {workdir} must be one branch of the run in {whole}; name one, "
            f"such as {whole / folders[0]}"
        )
    lacking = [seed for seed in seeds if seed not in held]
    if lacking and len(held) > 1:
        raise ValueError(
            f"config.init: {workdir} has the seeds {held} and not {lacking[0]}; "
            "train that one, or start from a run of a single seed"
        )
    steps = checkpoints.steps(folder)
    if not steps:
        raise ValueError(f"config.init: {folder} holds no checkpoint yet")
    found, _ = trained.read_nets(folder, steps[-1])
    first = folders.index(folder) * len(held)  # All seeds of a branch, then the next.
    places = [0 if len(held) == 1 else held.index(seed) for seed in seeds]
    return [found[first + place] for place in places]


def grafted(
    drawn: trained.Net, given: trained.Net, say: Callable[[str], None]
) -> trained.Net:
    """The given net; where its linear layer has other classes, the drawn one there.

    ValueError where it is another model.
    """
    shapes, drawn_shapes = (jax.tree.map(np.shape, tree) for tree in (given, drawn))
    if shapes == drawn_shapes:
        return given
    given = {**given, "params": {**given["params"], "fc": drawn["params"]["fc"]}}
    if jax.tree.map(np.shape, given) != drawn_shapes:
        raise ValueError(
            "config.init: holds another model than config.model; its config.json says "
            "which, so set config.model to that"
        )
    say("config.init: another number of classes, the linear layer is drawn anew")
    return given


def digest(given: Sequence[trained.Net]) -> str:
    """Tells other weights apart, for provenance."""
    total = 0
    for leaf in jax.tree.leaves(given):
        total = zlib.crc32(np.ascontiguousarray(leaf), total)
    return f"{total:08x}"
