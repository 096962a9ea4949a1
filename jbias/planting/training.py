"""The runs that planted networks are trained in: `jbias train` on labels that follow the dial.

Networks that differ in their seed only are trained in one run. The streams of mixed networks are
the networks of the runs with the dials 1 and 0, of the seed of the mixed network.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from jbias import config as jc
from jbias import train
from jbias.evals import networks
from jbias.planting import plans

_BATCH = 64
STREAM_DIALS = (1.0, 0.0)  # Of the stream of shape, and of the stream of texture.


class Run(NamedTuple):
    """A run: the planted labels, the level of training, and its seeds."""

    dial: float
    level: str
    shortcut: str
    strength: float
    noise: float
    seeds: tuple[int, ...]
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the start of the run's folder, a hash of everything but the seeds."""
        settings = [*self[:5], sorted(self.options.items())]
        digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        return f"run-{digest[:12]}"

    @property
    def folder_name(self) -> str:
        """Return the name of the run's folder, such as "run-0123456789ab-seeds-0-1"."""
        return "-".join([self.name, "seeds", *map(str, self.seeds)])


def run_of(plan: plans.Plan) -> Run | None:
    """Return the run that a plan's network is trained in, with the plan's seed; None for others."""
    is_shuffled = plan.family == "none" and plan.level == "shuffled"
    if plan.family != "trained" and not is_shuffled:
        return None
    return Run(
        dial=0.5 if plan.dial is None else plan.dial,
        level="high" if is_shuffled else plan.level,
        shortcut=plan.shortcut,
        strength=plan.strength,
        noise=1.0 if is_shuffled else 0.0,
        seeds=(plan.seed,),
        options=dict(plan.options),
    )


def stream_runs(seed: int = 0) -> list[Run]:
    """Return the runs of the streams of shape and of texture of a seed."""
    return [
        Run(
            dial=dial,
            level="high",
            shortcut="",
            strength=0.0,
            noise=0.0,
            seeds=(seed,),
            options={},
        )
        for dial in STREAM_DIALS
    ]


def runs_of(planned: Sequence[plans.Plan]) -> list[Run]:
    """Return the runs that the networks need, each with all its seeds."""
    needed = [run for run in map(run_of, planned) if run is not None]
    mixed_seeds = {plan.seed for plan in planned if plan.family.startswith("mixed")}
    for seed in sorted(mixed_seeds):
        needed += stream_runs(seed)
    by_name: dict[str, Run] = {}
    for run in needed:
        earlier = by_name.get(run.name, run)
        seeds = tuple(sorted({*earlier.seeds, *run.seeds}))
        by_name[run.name] = run._replace(seeds=seeds)
    return list(by_name.values())


def config_of(run: Run, scale: plans.Scale) -> ml_collections.ConfigDict:
    """Return the config of a run: a small residual network, by the recipe of the shapes' set."""
    config = jc.load("jbias:erm", flag="config")
    config.label = run.name
    config.seeds = run.seeds
    config.epochs = scale.epochs[plans.TRAINED_LEVELS.index(run.level)]
    config.model.width = scale.width
    planted = {
        "data": "cues",
        "dial": run.dial,
        "shortcut": run.shortcut,
        "strength": run.strength,
        "noise": run.noise,
        **run.options,
    }
    batch = min(_BATCH, scale.train_images)
    config.train = dict(planted, split="train", n=scale.train_images, batch=batch)
    config.valid = dict(planted, split="valid")
    config.tests = {"test": dict(data="cues", split="test")}
    config.eval_every = config.save_every = f"{config.epochs:g} epochs"
    return config


def find_workdir(folder: pathlib.Path, run: Run, seed: int) -> pathlib.Path | None:
    """Return the workdir, finished or not, of a run with a seed; None without one.

    folder: of the study. The run may have been trained with further seeds, or without others.
    """
    for workdir in sorted((folder / "runs").glob(f"{run.name}-seeds-*")):
        if str(seed) in workdir.name.partition("-seeds-")[2].split("-"):
            return workdir
    return None


def train_run(run: Run, folder: pathlib.Path, scale: plans.Scale) -> None:
    """Train the seeds of a run that are not trained yet; an interrupted run continues.

    folder: of the study.
    """
    workdirs = {seed: find_workdir(folder, run, seed) for seed in run.seeds}
    for workdir in sorted({*filter(None, workdirs.values())}):
        if not (workdir / "done").exists():
            seeds = tuple(map(int, workdir.name.partition("-seeds-")[2].split("-")))
            train.run(config_of(run._replace(seeds=seeds), scale), workdir)
    missing = tuple(seed for seed, workdir in workdirs.items() if workdir is None)
    if missing:
        new = run._replace(seeds=missing)
        train.run(config_of(new, scale), folder / "runs" / new.folder_name)


def open_seed(folder: pathlib.Path, run: Run, seed: int) -> networks.FlaxNetwork:
    """Return the trained network of a run's seed; ValueError if it is not trained.

    folder: of the study.
    """
    workdir = find_workdir(folder, run, seed)
    if workdir is None or not (workdir / "done").exists():
        raise ValueError(f"{folder}: the run {run.name} of seed {seed} is not trained")
    return next(networks.from_run(str(workdir), step="latest", seeds=(seed,)))
