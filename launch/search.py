"""What is searched: by the command line, a file with `get_sweep`, or a folder begun before."""

import argparse
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from optuna import distributions

from jbias import config as jc
from jbias import extensions
from jbias.launch import search_space
from jbias.runtime import files, switches

SAMPLERS = ("grid", "random", "tpe")
PRUNERS = ("never", "median", "hyperband", "asha")
_FILE = ".sweep/search.json"
CONFIG = "config"  # Of several configs, the parameter that says which.


@dataclasses.dataclass
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
        # What holds for all trials, and what differs, by key, such as "optim.rate".
        self.fixed: list[str] = []
        self.axes: dict[str, distributions.BaseDistribution] = {}
        keys = []
        for change in self.changes:
            key, _, text = change.removeprefix("--config.").partition("=")
            keys.append(key)
            if not (axis := search_space.parse(key, text)):
                self.fixed.append(change)
                continue
            self.axes[key] = axis
            if self.search == "grid" and not hasattr(axis, "choices"):
                raise ValueError(
                    f"--config.{key}: a grid has listed values, got {text}; take "
                    "--sampler=random, or tpe"
                )
        if twice := [key for key in self.axes if keys.count(key) > 1]:
            raise ValueError(
                f"--config.{twice[0]}: is given twice, once as an axis; list all its "
                "values in one"
            )

    @property
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
        told = dataclasses.asdict(_saved(workdir / _FILE))
        if args.changes:
            raise ValueError(f"{args.changes[0]}: needs --config, or --sweep")
    told["changes"] = [*told["changes"], *args.changes]
    given = {
        name: getattr(args, name) for name in _KINDS.keys() - {"config", "changes"}
    }
    return Search(**told | {key: one for key, one in given.items() if one is not None})


def _saved(path: pathlib.Path) -> Search:
    """Return the search that a folder was begun with; code that others named is not run.

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
    foreign = _named_code(search)
    if foreign and not (_mark(path, text).exists() or switches.is_on("JBIAS_OWN_CODE")):
        raise ValueError(
            f"{path}: was not begun by you here, and names code that would be run: "
            f"{foreign[0]}; give --config again, or set JBIAS_OWN_CODE=1 if you trust it"
        )
    return search


def _named_code(search: Search) -> list[str]:
    """Return the configs, the storage and the changes by which code outside jbias runs.

    Names that installed packages offer are not among these: their code is this user's.
    """
    names = [
        config
        for config in search.config
        if not config.startswith(jc.PRESET_PREFIX) or extensions.names_file(config)
    ]
    if search.storage:
        names.append(search.storage)
    for change in search.changes:
        value = change.partition("=")[2]
        if extensions.names_file(change) or _has_file(value):
            names.append(change)
    return names


def _has_file(value: Any) -> bool:
    """Return whether a value of a change has a name such as mine.py:make anywhere.

    Texts are read as literals until they are none any more, as axes and flags read them.
    """
    if isinstance(value, dict):
        return any(_has_file(item) for item in (*value.keys(), *value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_file, value))
    if not isinstance(value, str):
        return False
    if extensions.names_file(value):
        return True
    axis = search_space.parse("", value)
    choices = getattr(axis, "choices", ())
    literal = jc.parse_value(value)
    return _has_file(choices) or literal != value and _has_file(literal)


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


def save(search: Search, workdir: pathlib.Path) -> None:
    """Keeps the search, for `status` and `retry`."""
    text = json.dumps(dataclasses.asdict(search), indent=1) + "\n"
    path = workdir / _FILE
    mark = _mark(path, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text)
    mark.touch()
