"""The entries that a config may have, their types, and the branches that one run trains.

`config.vary` lists keys of the config and the values to try: a small search in one
program. Each combination is a branch. A branch trains every seed as a run of its own
config would, up to the rounding of float32, and its records are that run's.
"""

import dataclasses
import functools
import itertools
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jbias import config as jc

# What kind of value each entry has. What else is in a part with a name is said by what
# that names.
ENTRIES: Mapping[str, Any] = MappingProxyType(
    {
        "algo": dict,
        "algo.name": str,
        "variant": str,
        "label": str,
        "seeds": list,
        "model": dict,
        "model.name": str,
        "model.width": int,
        "model.norm_group": int,
        "init": str,
        "inputs": list[dict],
        "optim": dict,
        "optim.name": str,
        "optim.schedule": dict,
        "optim.schedule.name": str,
        "optim.warmup": str,
        "optim.rate": float,
        "optim.decay": float,
        "optim.momentum": float,
        "optim.average": float,
        "precision": str,
        "stages": list[dict],
        "vary": list,
        "eval_every": str,
        "save_every": str,
        "rollback": dict,
        "size": int,
        "epochs": float,
        "train": dict,
        "train.data": str,
        "train.split": str,
        "train.balance": str,
        "train.batch": int,
        "train.accumulate": int,
        "train.inputs": list[dict],
        "train.also": list[dict],
        "train.other": dict,
        "train.other.inputs": list[dict],
        "train.shares": list[float],
        "valid": dict,
        "tests": dict,
        "aggregate": str,
        "run": dict,
        "run.strategy": str,
        "run.steps_per_dispatch": int,
        "run.devices": int,
        "run.spread": int,
        "run.together": int,
        "run.memory": float,
        "run.eval_batch": int,
        "run.decisions": bool,
        "run.deterministic": bool,
        "run.evaluate": str,
        "run.keep": int,
        "run.log_seconds": float,
        "run.profile": bool,
        "run.loading": dict,
        "run.loading.gib": float,
        "run.loading.threads": int,
        "run.loading.workers": int,
        "run.energy": dict,
        "run.write": str,
        "run.wandb": dict,
        "run.log": str,
    }
)
KEYS = tuple(key for key in ENTRIES if "." not in key)
RUN_KEYS = tuple(key[4:] for key in ENTRIES if re.fullmatch(r"run\.\w+", key))
# Runs begun before they were there lack them.
OPTIONAL_KEYS = ("energy", "write", "wandb", "log", "rollback", "label")
# What a part must have, wherever it stands.
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "algo": ("name",),
        "model": ("name",),
        "optim": ("name", "rate", "schedule"),
        "train": ("data", "split", "batch"),
        "valid": ("data", "split"),
        "run.loading": ("gib", "threads", "workers"),
    }
)
# The least that a number may be; and which must lie above 0, or below 1.
_LEAST: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("run.steps_per_dispatch", "run.eval_batch"), 1),
        **dict.fromkeys(("run.spread", "run.together", "run.memory"), 0),
        **dict.fromkeys(("train.accumulate", "model.width"), 1),
        **dict.fromkeys(("model.norm_group", "optim.decay"), 0),
    }
)
_POSITIVE = ("epochs", "optim.rate")
_FRACTIONS = ("optim.momentum", "optim.average")


def check_entries(config: Mapping[str, Any]) -> None:
    """Refuses unknown and missing entries, and values of another kind."""
    jc.check_finite("config", config)
    _known("config", config, KEYS)
    jc.check_type("config.run", config["run"], dict)
    _known("config.run", config["run"], RUN_KEYS)
    check_types("config", config)


def check_types(where: str, config: Mapping[str, Any]) -> None:
    """Refuses values of another kind, in a config that may be of another version."""
    jc.check_finite(where, config)
    _fit(where, config)
    for number, stage in enumerate(config.get("stages", ())):
        _fit(f"{where}.stages[{number}]", stage)
    for name, test in config.get("tests", {}).items():
        jc.check_type(f"{where}.tests.{name}", test, dict)


def _known(where: str, part: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in part:
        jc.check_known(where, key, known)
    missing = [key for key in known if key not in part and key not in OPTIONAL_KEYS]
    if missing:
        raise ValueError(f"{where}: {missing[0]!r} is missing")


def _entries(part: Mapping[str, Any], keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Those of the keys that are there, and their values."""
    for key in keys:
        *way, last = key.split(".")
        inner = part
        for name in way:
            inner = inner.get(name, {})
        if last in inner:
            yield key, inner[last]


def _fit(where: str, part: Mapping[str, Any]) -> None:
    """Refuses entries of another kind, and parts without what they need."""
    for key, value in _entries(part, ENTRIES):
        jc.check_type(f"{where}.{key}", value, ENTRIES[key])
    for name, found in _entries(part, _NEEDED):
        lacking = [key for key in _NEEDED[name] if key not in found]
        if lacking:
            raise ValueError(f"{where}.{name}: {lacking[0]!r} is missing")


def _check_ranges(where: str, part: Mapping[str, Any]) -> None:
    for key, value in _entries(part, _LEAST):
        if not value >= _LEAST[key]:
            raise ValueError(
                f"{where}.{key}: must be {_LEAST[key]} or more, got {value}"
            )
    for key, value in _entries(part, _POSITIVE):
        if not value > 0:
            raise ValueError(f"{where}.{key}: must be positive, got {value}")
    for key, value in _entries(part, _FRACTIONS):
        if not 0 <= value < 1:
            raise ValueError(f"{where}.{key}: must be in [0, 1), got {value}")


def _check_seeds(chosen: Sequence[int]) -> None:
    # Keys of the random streams are of 32 bits.
    fit = all(type(seed) is int and 0 <= seed < 2**32 for seed in chosen)
    if not chosen or not fit or len(set(chosen)) < len(chosen):
        raise ValueError(
            "config.seeds: must be different whole numbers from 0 to 2**32 - 1, got "
            f"{chosen}"
        )


def _check_rollback(how: Mapping[str, Any]) -> None:
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
    _check_duration(f"{where}.every", how["every"])


def _check_duration(where: str, duration: str) -> None:
    jc.to_steps(duration, steps_per_epoch=1, total=1, where=where)


def check_trusted(config: dict[str, Any], workdir: str | os.PathLike) -> dict[str, Any]:
    """The config that a workdir holds, which may have come from anywhere.

    ValueError where it is none, or names a file of Python that would be run: unless the
    user says by JBIAS_OWN_CODE=1 that it may be.
    """
    where = os.fspath(workdir)
    check_types(f"{where}/config.json", config)
    names = [part["algo"]["name"] for part in jc.stage_configs(config)]
    code = [name for name in names if ":" in name]
    if code and not os.environ.get("JBIAS_OWN_CODE"):
        raise ValueError(
            f"{where}: its config.json names the algorithm {code[0]!r}, a file that would "
            "be run; if you trust it, set JBIAS_OWN_CODE=1"
        )
    return config


# What may be traced: the program is the same whatever the number.
_ROOMS = ("algo", "optim")


class StageSpec(NamedTuple):
    """A stage of a branch: the branch's config with that stage's own entries in it."""

    number: int
    where: str  # What messages call it: "config", or "config.stages[1]".
    config: dict[str, Any]


def stage_specs(config: Mapping[str, Any]) -> tuple[StageSpec, ...]:
    """All stages of a config; one where it names none."""
    named = bool(config.get("stages"))
    return tuple(
        StageSpec(i, f"config.stages[{i}]" if named else "config", part)
        for i, part in enumerate(jc.stage_configs(config))
    )


@dataclasses.dataclass(frozen=True)
class Branch:
    """One combination of values."""

    values: tuple[float, ...]  # In the order of config.vary; empty without it.
    config: dict[str, Any]  # With the values in place, and without `vary`.
    folder: str  # Of its records, in the workdir; "" is the workdir.

    @functools.cached_property
    def stages(self) -> tuple[StageSpec, ...]:
        """One after the other."""
        return stage_specs(self.config)

    @functools.cached_property
    def fields(self) -> dict[str, str]:
        """What all its records say of it, `run` its run's name."""
        return dict(
            run=jc.run_name(self.config),
            algorithm=jc.algorithm_name(self.config),
            variant=self.config.get("variant", ""),
            model=self.config["model"]["name"],
            train_data=jc.train_data_name(self.config),
        )


def varied_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What varies."""
    return tuple(one["key"] for one in config["vary"])


def branches(config: Mapping[str, Any]) -> list[Branch]:
    """All combinations, the first key's values slowest; one branch if nothing varies."""
    made = []
    for values in itertools.product(*(one["values"] for one in config["vary"])):
        named = zip(varied_keys(config), values, strict=True)
        name = ",".join(f"{key}={_text(value)}" for key, value in named)
        folder = f"vary/{name}" if name else ""
        own = {**with_values(config, values), "vary": []}
        made.append(Branch(values, own, folder))
    return made


def with_values(config: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """The config with one value, which may be traced, in the place of each key."""
    for key, value in zip(varied_keys(config), values, strict=True):
        config = _put(config, key.split("."), value)
    return dict(config)


def check_vary(config: Mapping[str, Any]) -> None:
    """Refuses what is no number of the config, or cannot vary in one program."""
    is_list = isinstance(config["vary"], list | tuple)
    if not is_list:
        raise ValueError(
            "config.vary: must be a list of dict(key=..., values=...), got "
            f"{config['vary']!r}"
        )
    for i, one in enumerate(config["vary"]):
        where = f"config.vary[{i}]"
        if not _is_entry(one):
            raise ValueError(
                f"{where}: must be dict(key='optim.rate', values=...), got {one!r}"
            )
        if not _are_different(one["values"]):
            raise ValueError(
                f"{where}.values: must be a list of different numbers in float32, at "
                f"least one, got {one['values']!r}"
            )
        _check_key(config, where, one["key"])
    named = varied_keys(config)
    if len(set(named)) < len(named):
        raise ValueError(f"config.vary: a key must occur once, got {', '.join(named)}")


def _check_key(config: Mapping[str, Any], where: str, key: str) -> None:
    room, *rest = key.split(".")
    if room == "stages":
        room, *rest = rest[1:] or [""]
    if room not in _ROOMS or not rest:
        raise ValueError(
            f"{where}.key: only numbers of config.algo and config.optim can differ in "
            f"one program, got {key!r}; start a run for each value"
        )
    if (room, *rest) == ("optim", "average"):
        raise ValueError(
            f"{where}.key: {key} cannot differ in one program, which keeps one average "
            "for all; start a run for each value"
        )
    try:
        found = _get(config, key.split("."))
    except (KeyError, IndexError, TypeError, ValueError):
        known = [
            f"optim.{k}"
            for k, v in config["optim"].items()
            if _is_number(v) and k != "average"
        ]
        known += [f"algo.{k}" for k, v in config["algo"].items() if type(v) is float]
        raise ValueError(
            f"{where}.key: the config has no {key!r}; {jc.suggest(key, known)}; write an "
            "algorithm's default into the config to vary it"
        ) from None
    if not _is_number(found):
        raise ValueError(f"{where}.key: {key} must be a number, got {found!r}")
    if room == "algo" and type(found) is int:
        raise ValueError(
            f"{where}.key: {key} is a whole number, {found}, which says what is computed; "
            f"start a run for each value, or write {found}.0 if it is a strength"
        )


def member_name(seed: int, folder: str) -> str:
    """What a seed of the branch in that folder is called, whose own name it has."""
    return ", ".join(filter(None, (str(seed), *folder.split(","))))


class Member(NamedTuple):
    """A seed of a branch: what is trained beside others."""

    seed: int
    branch: Branch

    @property
    def name(self) -> str:
        """Tells it from the others: `3`, or `3, optim.rate=0.1`."""
        return member_name(self.seed, self.branch.folder.rpartition("/")[2])


def members(which: Sequence[int], branches: Sequence[Branch]) -> tuple[Member, ...]:
    """All seeds of the first branch, then of the next."""
    return tuple(Member(seed, branch) for branch in branches for seed in which)


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """The config of a run, validated and named once."""

    config: dict[str, Any]
    branches: tuple[Branch, ...]
    members: tuple[Member, ...]  # What is trained side by side.
    name: str

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """Those of the first branch; others differ in numbers alone."""
        return self.branches[0].stages

    @classmethod
    def from_config(cls, config: "Mapping[str, Any] | RunSpec") -> "RunSpec":
        """Refuses unknown and missing keys, and values that cannot mean anything.

        What names of parts are known is for `setup.check_names` to say.
        """
        if isinstance(config, RunSpec):
            return config
        config = jc.to_dict(config)
        check_entries(config)
        _check_seeds(config["seeds"])
        check_vary(config)
        _check_rollback(config.get("rollback") or {})
        found = tuple(branches(config))
        for branch in found:
            for stage in branch.stages:
                _check_ranges(stage.where, stage.config)
        if config["run"]["evaluate"] not in ("here", "elsewhere"):
            raise ValueError(
                "config.run.evaluate: must be here or elsewhere, got "
                f"{config['run']['evaluate']!r}"
            )
        for cadence in ("eval_every", "save_every"):
            _check_duration(f"config.{cadence}", config[cadence])
        for name in config["tests"]:
            # They name folders.
            if name in ("train", "valid", "", ".", "..") or "/" in name:
                raise ValueError(
                    "config.tests: names must not be 'train', 'valid' or dots, nor hold "
                    f"a slash, got {name!r}; give the test set another name"
                )
        everyone = members(config["seeds"], found)
        return cls(config, found, everyone, jc.run_name(config))


def _is_number(value: Any) -> bool:
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return plain and abs(value) < float("inf")


def _is_entry(one: Any) -> bool:
    fits = isinstance(one, Mapping) and set(one) == {"key", "values"}
    return fits and isinstance(one["key"], str)


def _are_different(values: Any) -> bool:
    """Whether these are a list of numbers that differ in float32, and are finite."""
    if not isinstance(values, list | tuple) or not all(map(_is_number, values)):
        return False
    if any(abs(value) > float(np.finfo(np.float32).max) for value in values):
        return False
    return 0 < len(values) == len({float(np.float32(value)) for value in values})


def _text(value: float) -> str:
    """All digits that tell it from others: `0.1`, `1e-05`, `3`."""
    return repr(value).removesuffix(".0")


def _get(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree[int(name) if isinstance(tree, list) else name]
    return tree


def _put(tree: Any, path: Sequence[str], value: Any) -> Any:
    """A copy of the tree with another value at that place."""
    if not path:
        return value
    name, *rest = path
    if isinstance(tree, list):
        number = int(name)
        return [_put(x, rest, value) if i == number else x for i, x in enumerate(tree)]
    return {**tree, name: _put(tree[name], rest, value)}
