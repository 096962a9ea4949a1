"""Refuses a config that cannot mean anything, before anything is opened or written."""

from collections.abc import Mapping, Sequence
from typing import Any

from jbias import algos, augment, build, data, models, run_spec
from jbias import config as jc
from jbias.data import labels
from jbias.runs import loggers, results
from jbias.runtime import console
from jbias.training import optim, seed_axis


def validate(config: Mapping[str, Any]) -> None:
    """Refuses unknown and missing keys, and values that cannot mean anything."""
    run_spec.check_entries(config)
    _seeds(config["seeds"])
    seed_axis.check_strategy(config["run"]["strategy"])
    run_spec.check_vary(config)
    _rollback(config.get("rollback") or {})
    for branch in run_spec.branches(config):
        for number, part in enumerate(jc.stage_configs(branch.config)):
            where = f"config.stages[{number}]" if config["stages"] else "config"
            _ranges(part, where)
            _names(part, where)
    _set("config.valid", config["valid"])
    for name, test in config["tests"].items():
        _set(f"config.tests.{name}", test)
    jc.check_known("config.aggregate", config["aggregate"], labels.AGGREGATES)
    if config["run"]["evaluate"] not in ("here", "elsewhere"):
        raise ValueError(
            "config.run.evaluate: must be here or elsewhere, got "
            f"{config['run']['evaluate']!r}"
        )
    if config["run"].get("log", console.LOG_FORMATS[0]) not in console.LOG_FORMATS:
        raise ValueError(
            f"config.run.log: must be one of {', '.join(console.LOG_FORMATS)}, got "
            f"{config['run']['log']!r}"
        )
    loggers.check(config["run"])
    for cadence in ("eval_every", "save_every"):
        jc.to_steps(
            config[cadence], steps_per_epoch=1, total=1, where=f"config.{cadence}"
        )
    for name in config["tests"]:
        # They name folders.
        if name in (results.TRAIN, results.VALID, "", ".", "..") or "/" in name:
            raise ValueError(
                "config.tests: names must not be 'train', 'valid' or dots, nor hold a slash, "
                f"got {name!r}; give the test set another name"
            )


def _seeds(chosen: Sequence[int]) -> None:
    # Keys of the random streams are of 32 bits.
    fit = all(type(seed) is int and 0 <= seed < 2**32 for seed in chosen)
    if not chosen or not fit or len(set(chosen)) < len(chosen):
        raise ValueError(
            "config.seeds: must be different whole numbers from 0 to 2**32 - 1, got "
            f"{chosen}"
        )


def _rollback(how: Mapping[str, Any]) -> None:
    where, known = "config.rollback", ("times", "factor", "every")
    if how and set(how) != set(known):
        raise ValueError(
            f"{where}: must have {', '.join(known)}, got {', '.join(how)}; for example "
            "dict(times=2, factor=0.5, every='1 epoch')"
        )
    if not how:
        return
    times, factor = how["times"], how["factor"]
    if type(times) is not int or times < 0:
        raise ValueError(f"{where}.times: must be 0 or more, and whole, got {times!r}")
    if type(factor) not in (int, float) or not 0 < factor <= 1:
        raise ValueError(f"{where}.factor: must be in (0, 1], got {factor!r}")
    every = f"{where}.every"
    jc.to_steps(how["every"], steps_per_epoch=1, total=1, where=every)


def _names(config: Mapping[str, Any], place: str) -> None:
    """Refuses names of nothing that is known: to open sets may take minutes."""
    algo, train, chosen = config["algo"], config["train"], config["optim"]
    name, known = algo["name"], algos.ALGOS
    if ":" in name:
        known = {name: build.locate_user_algorithm(name)}
    for where, options, names in (
        ("algo", algo, known),
        ("model", config["model"], models.MODELS),
        ("optim", chosen, optim.OPTIMISERS),
        ("optim.schedule", chosen["schedule"], optim.SCHEDULES),
        *(
            (f"inputs[{i}]", x, augment.AUGMENTS)
            for i, x in enumerate(config["inputs"])
        ),
    ):
        build.lookup(f"{place}.{where}", options, names)
    for one in (train, train.get("other") or {}, *train.get("also", ())):
        _set(f"{place}.train", one)


def _set(where: str, options: Mapping[str, Any]) -> None:
    if isinstance(name := options.get("data"), str):
        jc.check_known(where, name, data.DATASETS, "data set")


def _ranges(config: Mapping[str, Any], place: str) -> None:
    run, optim = config["run"], config["optim"]
    for where, value, least in (
        ("run.steps_per_dispatch", run["steps_per_dispatch"], 1),
        ("run.eval_batch", run["eval_batch"], 1),
        ("run.spread", run["spread"], 0),
        ("run.together", run["together"], 0),
        ("run.memory", run["memory"], 0),
        ("train.accumulate", config["train"].get("accumulate", 1), 1),
        ("model.width", config["model"].get("width", 1), 1),
        ("model.norm_group", config["model"].get("norm_group", 0), 0),
        ("optim.decay", optim.get("decay", 0), 0),
    ):
        if not value >= least:
            raise ValueError(f"{place}.{where}: must be {least} or more, got {value}")
    for where, value in (("epochs", config["epochs"]), ("optim.rate", optim["rate"])):
        if not value > 0:
            raise ValueError(f"{place}.{where}: must be positive, got {value}")
    for name in ("momentum", "average"):
        if not 0 <= optim.get(name, 0) < 1:
            raise ValueError(
                f"{place}.optim.{name}: must be in [0, 1), got {optim[name]}"
            )
