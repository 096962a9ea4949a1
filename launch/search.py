"""What is searched: by the command line, a file with `get_sweep`, or a folder begun before."""

import argparse
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from optuna import distributions

from jbias import config as jc
from jbias.launch import search_space
from jbias.runtime import files

SAMPLERS = ("grid", "random", "tpe")
PRUNERS = ("never", "median", "hyperband", "asha")
CONFIG = "config"  # Of several configs, the parameter that says which.


@dataclasses.dataclass(frozen=True)
class Search:
    """What is searched, as the folder keeps it; ValueError for what cannot be."""

    config: list[str]
    changes: list[
        str
    ]  # Such as "--config.epochs=2.0"; an axis where that lists values.
    search: str = "grid"  # One of SAMPLERS.
    trials: int = 10  # Draws for each config; a grid has its own.
    seed: int = 0  # Of the draws.
    stop: str = "never"  # One of PRUNERS.
    fewest: int = 3  # Trials that must be done before the median stops any.
    grace: int = 0  # No trial is stopped up to this step.
    storage: str = ""  # Of Optuna: a database's URL, or the path of a journal.

    def __post_init__(self):
        for name, kind in _KINDS.items():
            jc.check_type(f"--{name}", getattr(self, name), kind)
        jc.check_known("--sampler", self.search, SAMPLERS)
        jc.check_known("--pruner", self.stop, PRUNERS)
        if self.trials < 1:
            raise ValueError(f"--trials: must be at least 1, got {self.trials}")
        if not self.config:
            raise ValueError("--config is missing, e.g. --config=jbias:erm")
        keys = [change.partition("=")[0] for change in self.changes]
        for key in self.axes:
            if keys.count(f"--config.{key}") > 1:
                raise ValueError(
                    f"--config.{key}: is given twice, once as an axis; list all its values "
                    "in one"
                )

    @functools.cached_property
    def axes(self) -> dict[str, distributions.BaseDistribution]:
        """What differs between trials, by key, such as "optim.rate"."""
        parts = (one.removeprefix("--config.").partition("=") for one in self.changes)
        parsed = ((key, search_space.parse(key, text)) for key, _, text in parts)
        return {key: axis for key, axis in parsed if axis}

    @functools.cached_property
    def fixed(self) -> list[str]:
        """The changes that hold for all trials."""
        axes = {f"--config.{key}" for key in self.axes}
        return [one for one in self.changes if one.partition("=")[0] not in axes]

    @functools.cached_property
    def space(self) -> dict[str, distributions.BaseDistribution]:
        """The axes, and before them the configs where there are several."""
        configs = distributions.CategoricalDistribution(self.config)
        return {CONFIG: configs} | self.axes if len(self.config) > 1 else self.axes


_KINDS = {field.name: field.type for field in dataclasses.fields(Search)}


def resolve(args: argparse.Namespace, workdir: pathlib.Path) -> Search:
    """What was asked for now, else what the folder was begun with."""
    if args.config and args.sweep:
        raise ValueError("--sweep: the file names the configs; leave --config out")
    if args.sweep:
        told = _read_sweep_file(args.sweep)
    elif args.config:
        told = {"config": args.config, "changes": []}
    else:
        told = dataclasses.asdict(_saved(_path(workdir)))
        if args.changes:
            raise ValueError(f"{args.changes[0]}: needs --config, or --sweep")
    told["changes"] = [*told["changes"], *args.changes]
    given = {
        name: getattr(args, name) for name in _KINDS.keys() - {"config", "changes"}
    }
    return Search(**told | {key: one for key, one in given.items() if one is not None})


def _saved(path: pathlib.Path) -> Search:
    """The search that a folder was begun with; code that others named is not run.

    ValueError where it is damaged, or names files of code and was not begun here.
    """
    if not path.exists():
        raise ValueError(
            f"{path.parents[1]}: no search was begun there; name it: "
            "--config=configs/erm.py --config.optim.rate=[0.03,0.1]"
        )
    text = path.read_text()
    try:
        search = Search(**json.loads(text))
    except (ValueError, RecursionError, TypeError):
        raise ValueError(
            f"{path}: must be the JSON of a search; remove it, and give --config again"
        ) from None
    named = [*search.config, search.storage]
    foreign = [one for one in named if one and not one.startswith(jc.PRESET_PREFIX)]
    if foreign and not (_mark(path, text).exists() or os.environ.get("JBIAS_OWN_CODE")):
        raise ValueError(
            f"{path}: was not begun by you here, and names code that would be run: "
            f"{foreign[0]}; give --config again, or set JBIAS_OWN_CODE=1 if you trust it"
        )
    return search


def _mark(path: pathlib.Path, text: str) -> pathlib.Path:
    """What stands in this user's cache once a search of these words was begun there."""
    words = hashlib.sha256(f"{path.resolve()}\n{text}".encode()).hexdigest()
    return files.cache_path("searches") / words


def _read_sweep_file(named: str) -> dict[str, Any]:
    """What a file's get_sweep gives, with its axes as changes."""
    path, _, arg = jc.resolve_preset(named, "sweep").partition(":")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--sweep: no file {path!r}")
    told = jc.call_in_file("sweep", path, "get_sweep", arg)
    if not isinstance(told, Mapping):
        raise ValueError(  # noqa: TRY004
            f"--sweep: {path}: get_sweep must return a dict, got {told!r}"
        )
    told = {"config": (), "changes": {}, "axes": {}, **told}
    kinds = {**_KINDS, "config": str | list[str], "changes": dict, "axes": dict}
    for key, value in told.items():
        jc.check_known("--sweep", key, kinds, "key")
        jc.check_type(f"--sweep: {key}", value, kinds[key])
    configs, axes = told["config"], told.pop("axes")
    for key, values in axes.items():
        axes[key] = repr([*values]) if isinstance(values, list | tuple) else values
        if not isinstance(axes[key], str) or not search_space.parse(key, axes[key]):
            raise ValueError(
                f"--sweep: axes: {key}: must be a list of values, got {values!r}"
            )
    told["config"] = [configs] if isinstance(configs, str) else [*configs]
    return {**told, "changes": search_space.as_flags(told["changes"] | axes)}


def _path(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / ".sweep" / "search.json"


def save(search: Search, workdir: pathlib.Path) -> None:
    """Keeps the search, for `status` and `retry`."""
    path, text = _path(workdir), json.dumps(dataclasses.asdict(search), indent=1) + "\n"
    mark = _mark(path, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text)
    mark.touch()
