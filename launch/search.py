"""The settings of a search: from the command line, a sweep file, or the search's folder."""

import argparse
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from optuna import distributions

from jbias import config as jc
from jbias import errors, extensions
from jbias.launch import search_space
from jbias.runtime import files, switches

SAMPLERS = ("grid", "random", "tpe")
PRUNERS = ("never", "median", "hyperband", "asha")
_FILE = ".sweep/search.json"
# The entries of `Search.until_decided`, which are arguments of the command line.
UNTIL_DECIDED = (
    "reference",
    "metric",
    "dataset",
    "selection",
    "alpha",
    "points",
    "quantity",
    "bounds",
    "max_seeds",
    "max_hours",
)
CONFIG = "config"  # The parameter that selects a config, if there are several.


@dataclasses.dataclass
class Search:
    """The settings of a search, as in its folder; ValueError for invalid settings.

    fixed: the changes that hold for all trials. axes: the distributions of the changes that
    differ between trials, by key such as "optim.rate".
    """

    config: list[str]
    # Such as "--config.epochs=2.0"; a list of values, for example, makes an axis.
    changes: list[str]
    search: str = "grid"  # The sampler, one of SAMPLERS.
    trials: int = 10  # Number per config; a grid has all combinations.
    seed: int = 0  # Of the random draws.
    stop: str = "never"  # The pruner, one of PRUNERS.
    fewest: int = 3  # Trials that must be done before the median stops any trial.
    grace: int = 0  # No trial is stopped up to this step.
    storage: str = ""  # Of Optuna: a database's URL, or the path of a journal.
    # Entries of `rounds.Options`; empty without --until-decided.
    until_decided: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, kind in _KINDS.items():
            errors.check_type(f"--{name}", getattr(self, name), kind)
        errors.check_known("--sampler", self.search, SAMPLERS)
        errors.check_known("--pruner", self.stop, PRUNERS)
        if self.trials < 1:
            raise ValueError(f"--trials: must be at least 1, got {self.trials}")
        if not self.config:
            raise ValueError("--config is missing, e.g. --config=jbias:erm")
        if self.until_decided and not self.until_decided.get("reference"):
            flag = next(iter(self.until_decided)).replace("_", "-")
            raise ValueError(f"--{flag}: needs --until-decided=REFERENCE, too; add it")
        self.fixed: list[str] = []
        self.axes: dict[str, distributions.BaseDistribution] = {}
        keys = []
        for change in self.changes:
            key, _, text = change.removeprefix("--config.").partition("=")
            keys.append(key)
            axis = search_space.parse(key, text)
            if not axis:
                self.fixed.append(change)
                continue
            self.axes[key] = axis
            if self.search == "grid" and not hasattr(axis, "choices"):
                raise ValueError(
                    f"--config.{key}: must be a list of values in a grid, got {text}; take "
                    "--sampler=random, or tpe"
                )
        repeated = [key for key in self.axes if keys.count(key) > 1]
        if repeated:
            raise ValueError(
                f"--config.{repeated[0]}: is given twice, once as an axis; list all its "
                "values in one flag"
            )

    @property
    def space(self) -> dict[str, distributions.BaseDistribution]:
        """The distribution of each axis by key; several configs are the first axis."""
        configs = distributions.CategoricalDistribution(self.config)
        return {CONFIG: configs} | self.axes if len(self.config) > 1 else self.axes


_KINDS = {field.name: field.type for field in dataclasses.fields(Search)}


def resolve(args: argparse.Namespace, workdir: pathlib.Path) -> Search:
    """Return the settings in the arguments, or without a config those in the workdir.

    args: the parsed arguments of `jbias sweep`. workdir: of the search. ValueError for
    invalid settings.
    """
    if args.config and args.sweep:
        raise ValueError("--sweep: the file names the configs; leave --config out")
    if args.sweep:
        settings = _read_sweep_file(args.sweep)
    elif args.config:
        settings = {"config": args.config, "changes": []}
    else:
        settings = dataclasses.asdict(_load(workdir / _FILE))
        if args.changes:
            raise ValueError(f"{args.changes[0]}: needs --config, or --sweep")
    settings["changes"] = [*settings["changes"], *args.changes]
    for name in _KINDS.keys() - {"config", "changes", "until_decided"}:
        value = getattr(args, name)
        if value is not None:
            settings[name] = value
    flags = {name: getattr(args, name) for name in UNTIL_DECIDED}
    settings["until_decided"] = {
        **settings.get("until_decided", {}),
        **{name: value for name, value in flags.items() if value is not None},
    }
    return Search(**settings)


def _load(path: pathlib.Path) -> Search:
    """Return the settings in a search's file.

    ValueError if they are damaged, or if they name code and were written by another user or
    on another machine: such code must not run.
    """
    if not path.exists():
        raise ValueError(
            f"{path.parents[1]}: has no search; describe a search, for example by "
            "--config=configs/erm.py --config.optim.rate=[0.03,0.1]"
        )
    text = path.read_text()
    try:
        search = Search(**json.loads(text))
    except (ValueError, RecursionError, TypeError):
        raise ValueError(
            f"{path}: must be the JSON of a search; remove it, and give --config again"
        ) from None
    code_names = _code_names(search)
    is_trusted = _mark(path, text).exists() or switches.is_on("JBIAS_OWN_CODE")
    if code_names and not is_trusted:
        raise ValueError(
            f"{path}: was not written by you on this machine, and names code that would be "
            f"run: {code_names[0]}; give --config again, or set JBIAS_OWN_CODE=1 if you "
            "trust it"
        )
    return search


def _code_names(search: Search) -> list[str]:
    """Return the configs, storage and changes that would run code outside jbias.

    Code of installed packages is not included: this user installed it.
    """
    names = [
        config
        for config in search.config
        if not config.startswith(jc.PRESET_PREFIX) or extensions.names_file(config)
    ]
    if search.storage:
        names.append(search.storage)
    reference = str(search.until_decided.get("reference", ""))
    if ".py" in reference or extensions.names_file(reference):
        names.append(reference)
    for change in search.changes:
        value = change.partition("=")[2]
        if extensions.names_file(change) or _has_file(value):
            names.append(change)
    return names


def _has_file(value: Any) -> bool:
    """Return True if a value of a change contains a name such as mine.py:make.

    A text is also parsed as a literal, repeatedly, because axes and flags parse it so.
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
    """Return the file in this user's cache that marks a search as written by this user.

    path: of the search's settings. text: their content.
    """
    digest = hashlib.sha256(f"{path.resolve()}\n{text}".encode()).hexdigest()
    return files.cache_path("searches") / digest


def _read_sweep_file(name: str) -> dict[str, Any]:
    """Return the fields of `Search` from a file's get_sweep, with its axes in the changes.

    name: FILE:ARGUMENTS of --sweep. ValueError for a wrong file or wrong settings.
    """
    path, _, arg = jc.resolve_preset(name, "sweep").partition(":")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--sweep: no file {path!r}; check the path for mistakes")
    sweep = jc.call_in_file("sweep", path, "get_sweep", arg)
    if not isinstance(sweep, Mapping):
        raise ValueError(  # noqa: TRY004
            f"--sweep: {path}: get_sweep must return a dict, got {sweep!r}"
        )
    settings = {"config": (), "changes": {}, "axes": {}, **sweep}
    kinds = {**_KINDS, "config": str | list[str], "changes": dict, "axes": dict}
    for key, value in settings.items():
        errors.check_known("--sweep", key, kinds, "key")
        errors.check_type(f"--sweep: {key}", value, kinds[key])
    configs, axes = settings["config"], settings.pop("axes")
    for key, values in axes.items():
        axes[key] = repr([*values]) if isinstance(values, list | tuple) else values
        if not isinstance(axes[key], str) or not search_space.parse(key, axes[key]):
            raise ValueError(
                f"--sweep: axes: {key}: must be a list of values, got {values!r}"
            )
    settings["config"] = [configs] if isinstance(configs, str) else [*configs]
    settings["changes"] = search_space.as_flags(settings["changes"] | axes)
    return settings


def save(search: Search, workdir: pathlib.Path) -> None:
    """Write the settings to the search's folder, for `status` and `retry`."""
    text = json.dumps(dataclasses.asdict(search), indent=1) + "\n"
    path = workdir / _FILE
    mark = _mark(path, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text)
    mark.touch()
