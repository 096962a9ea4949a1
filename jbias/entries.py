"""The entries that a config has, and of which kind they are: what is told at once."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jbias import config as jc
from jbias import kinds

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
LATER = ("energy", "write", "wandb", "log", "rollback")
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


def check(config: Mapping[str, Any]) -> None:
    """Refuses unknown and missing entries, and values of another kind."""
    kinds.sound("config", config)
    _known("config", config, KEYS)
    kinds.check("config.run", config["run"], dict)
    _known("config.run", config["run"], RUN_KEYS)
    fit("config", config)


def fit(where: str, config: Mapping[str, Any]) -> None:
    """Refuses values of another kind, in a config that may be of another version."""
    kinds.sound(where, config)
    _fit(where, config, _KINDS)
    _fit(f"{where}.run", config.get("run", {}), _RUN_KINDS)
    for number, stage in enumerate(config.get("stages", ())):
        _fit(f"{where}.stages[{number}]", stage, _KINDS)
    for name, test in config.get("tests", {}).items():
        kinds.check(f"{where}.tests.{name}", test, dict)


def _known(where: str, part: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in part:
        jc.check_known(where, key, known)
    missing = [key for key in known if key not in part and key not in LATER]
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
            kinds.check(f"{where}.{key}", inner[last], kind)
    for name, needed in _NEEDED.items():
        lacking = [key for key in needed if key not in part.get(name, needed)]
        if lacking:
            raise ValueError(f"{where}.{name}: {lacking[0]!r} is missing")
