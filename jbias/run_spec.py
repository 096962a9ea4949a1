"""The entries that a config may have, their types, and the branches that one run trains.

`config.vary` lists keys of the config and the values to try: a small search in one
program. Each combination is a branch. A branch trains every seed as a run of its own
config would, up to the rounding of float32, and its records are that run's.
"""

import itertools
import numbers
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jbias import config as jc

RUN_KEYS = (
    "strategy",
    "steps_per_dispatch",
    "devices",
    "spread",
    "together",
    "memory",
    "eval_batch",
    "decisions",
    "deterministic",
    "evaluate",
    "keep",
    "log_seconds",
    "profile",
    "loading",
    "energy",
    "write",
    "wandb",
    "log",
)
# What kind of value they have, in the whole and in a stage. What else is in a part with a
# name is said by what that names.
_KINDS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("algo", "model", "optim", "optim.schedule"), dict),
        **dict.fromkeys(("train", "valid", "tests", "run"), dict),
        **dict.fromkeys(("algo.name", "model.name", "optim.name"), str),
        **dict.fromkeys(("optim.schedule.name", "optim.warmup"), str),
        **dict.fromkeys(("optim.rate", "optim.decay", "optim.momentum"), float),
        **dict.fromkeys(("optim.average", "epochs"), float),
        **dict.fromkeys(("size", "model.width", "model.norm_group"), int),
        **dict.fromkeys(("train.data", "train.split", "train.balance"), str),
        **dict.fromkeys(("train.batch", "train.accumulate"), int),
        **dict.fromkeys(("train.inputs", "train.also"), list[dict]),
        "rollback": dict,
        "train.other": dict,
        "train.other.inputs": list[dict],
        "train.shares": list[float],
        **dict.fromkeys(("seeds", "vary"), list),
        **dict.fromkeys(("inputs", "stages"), list[dict]),
        **dict.fromkeys(("variant", "init", "precision", "aggregate"), str),
        **dict.fromkeys(("eval_every", "save_every"), str),
    }
)
_RUN_KINDS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("strategy", "evaluate", "write", "log"), str),
        **dict.fromkeys(("steps_per_dispatch", "devices", "spread", "together"), int),
        **dict.fromkeys(("eval_batch", "keep"), int),
        **dict.fromkeys(("memory", "log_seconds"), float),
        **dict.fromkeys(("decisions", "deterministic", "profile"), bool),
        "loading": dict,
        "wandb": dict,
        "loading.gib": float,
        "energy": dict,
        **dict.fromkeys(("loading.threads", "loading.workers"), int),
    }
)
# What a part must have, wherever it stands.
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "algo": ("name",),
        "model": ("name",),
        "optim": ("name", "rate", "schedule"),
        "train": ("data", "split", "batch"),
        "valid": ("data", "split"),
        "loading": ("gib", "threads", "workers"),
    }
)
# Runs begun before they were there lack them.
OPTIONAL_KEYS = ("energy", "write", "wandb", "log", "rollback")
KEYS = (
    "algo",
    "variant",
    "seeds",
    "model",
    "init",
    "inputs",
    "optim",
    "precision",
    "stages",
    "vary",
    "eval_every",
    "save_every",
    "rollback",
    "size",
    "epochs",
    "train",
    "valid",
    "tests",
    "aggregate",
    "run",
)


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
    _fit(where, config, _KINDS)
    _fit(f"{where}.run", config.get("run", {}), _RUN_KINDS)
    for number, stage in enumerate(config.get("stages", ())):
        _fit(f"{where}.stages[{number}]", stage, _KINDS)
    for name, test in config.get("tests", {}).items():
        jc.check_type(f"{where}.tests.{name}", test, dict)


def _known(where: str, part: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in part:
        jc.check_known(where, key, known)
    missing = [key for key in known if key not in part and key not in OPTIONAL_KEYS]
    if missing:
        raise ValueError(f"{where}: {missing[0]!r} is missing")


def _fit(where: str, part: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuses entries of another kind, and parts without what they need."""
    for key, kind in known.items():
        *way, last = key.split(".")
        inner = part
        for name in way:
            inner = inner.get(name, {})
        if last in inner:
            jc.check_type(f"{where}.{key}", inner[last], kind)
    for name, needed in _NEEDED.items():
        lacking = [key for key in needed if key not in part.get(name, needed)]
        if lacking:
            raise ValueError(f"{where}.{name}: {lacking[0]!r} is missing")


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


class Branch(NamedTuple):
    """One combination of values."""

    values: tuple[float, ...]  # In the order of config.vary; empty without it.
    config: dict[str, Any]  # With the values in place, and without `vary`.
    folder: str  # Of its records, in the workdir; "" is the workdir.


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
        made.append(Branch(values, {**with_values(config, values), "vary": []}, folder))
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
