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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import extensions, numerals
from jbias.runtime import switches

# What kind of value each entry has. What else is in a part with a name is said by what
# that names.
_KINDS: Sequence[tuple[Any, tuple[str, ...]]] = (
    (dict, ("algo", "model", "optim", "optim.schedule", "train", "train.other")),
    (dict, ("valid", "tests", "rollback", "fix")),
    (dict, ("run", "run.loading", "run.energy", "run.wandb")),
    (list, ("seeds", "vary")),
    (list[dict], ("inputs", "stages", "train.inputs", "train.also")),
    (list[dict], ("train.other.inputs",)),
    (list[float], ("train.shares",)),
    (str, ("algo.name", "model.name", "optim.name", "optim.schedule.name")),
    (str, ("optim.warmup", "train.data", "train.split", "train.balance", "variant")),
    (str, ("label", "init", "precision", "eval_every", "save_every", "aggregate")),
    (str, ("run.strategy", "run.evaluate", "run.eval_norm", "run.write", "run.log")),
    (int, ("size", "model.width", "model.norm_group")),
    (int, ("train.batch", "train.accumulate", "run.steps_per_dispatch")),
    (int, ("run.devices", "run.spread", "run.together", "run.eval_batch", "run.keep")),
    (int, ("run.loading.threads", "run.loading.workers")),
    (int | None, ("fix.init", "fix.order", "fix.augment", "fix.algorithm")),
    (float, ("epochs", "optim.rate", "optim.decay", "optim.momentum")),
    (float, ("optim.average", "run.memory", "run.log_seconds", "run.loading.gib")),
    (bool, ("run.decisions", "run.deterministic", "run.profile")),
)
ENTRIES: Mapping[str, Any] = {key: kind for kind, keys in _KINDS for key in keys}
KEYS = tuple(key for key in ENTRIES if "." not in key)
# What is random in a run.
SOURCES = tuple(key[4:] for key in ENTRIES if key.startswith("fix."))
RUN_KEYS = tuple(key[4:] for key in ENTRIES if re.fullmatch(r"run\.\w+", key))
# Runs begun before they were there lack them.
OPTIONAL_KEYS = (
    "energy",
    "write",
    "wandb",
    "log",
    "eval_norm",
    "rollback",
    "label",
    "fix",
)
# Batch norm in evaluation: folded into convolutions, never, or on accelerators alone.
EVAL_NORMS = ("auto", "exact", "folded")
# What a part must have, wherever it stands.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "algo": ("name",),
    "model": ("name",),
    "optim": ("name", "rate", "schedule"),
    "train": ("data", "split", "batch"),
    "valid": ("data", "split"),
    "run.loading": ("gib", "threads", "workers"),
}
# Between which numbers some must lie.
_RANGES: Sequence[tuple[str, Callable[[float], bool], tuple[str, ...]]] = (
    ("be 1 or more", lambda x: x >= 1, ("run.steps_per_dispatch", "run.eval_batch")),
    ("be 1 or more", lambda x: x >= 1, ("train.accumulate", "model.width")),
    ("be 0 or more", lambda x: x >= 0, ("run.spread", "run.together", "run.memory")),
    ("be 0 or more", lambda x: x >= 0, ("model.norm_group", "optim.decay")),
    ("be positive", lambda x: x > 0, ("optim.rate",)),
    ("be positive, and a million at most", lambda x: 0 < x <= 1e6, ("epochs",)),
    ("be 2 or more", lambda x: x >= 2, ("run.keep",)),
    ("be 0 or more", lambda x: x >= 0, ("run.log_seconds", "run.loading.gib")),
    ("be 0 or more", lambda x: x >= 0, ("run.loading.threads", "run.loading.workers")),
    ("be in [0, 1)", lambda x: 0 <= x < 1, ("optim.momentum", "optim.average")),
)


def check_entries(config: Mapping[str, Any]) -> None:
    """Refuses unknown and missing entries, and values of another kind."""
    jc.check_finite("config", config)
    _check_keys("config", config, KEYS)
    _check_keys("config.run", config["run"], RUN_KEYS)
    _check_types("config", config)


def _check_types(where: str, config: Mapping[str, Any]) -> None:
    """Refuses values of another kind, in a config that may be of another version."""
    _fit(where, config)
    for number, stage in enumerate(config.get("stages", ())):
        _fit(f"{where}.stages[{number}]", stage)
    for name, test in config.get("tests", {}).items():
        jc.check_type(f"{where}.tests.{name}", test, dict)


def _check_keys(where: str, part: Mapping[str, Any], known: Sequence[str]) -> None:
    jc.check_type(where, part, dict)
    jc.check_all_known(where, part, known)
    _need(where, part, (key for key in known if key not in OPTIONAL_KEYS))


def _need(where: str, part: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if key not in part:
            raise ValueError(f"{where}: {key!r} is missing")


def _entries(part: Mapping[str, Any], keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Those of the keys that are there, and their values."""
    for key in keys:
        *way, last = key.split(".")
        inner = functools.reduce(lambda inner, name: inner.get(name, {}), way, part)
        if last in inner:
            yield key, inner[last]


def _fit(where: str, part: Mapping[str, Any]) -> None:
    """Refuses entries of another kind, and parts without what they need."""
    for key, value in _entries(part, ENTRIES):
        jc.check_type(f"{where}.{key}", value, ENTRIES[key])
    for name, found in _entries(part, _NEEDED):
        _need(f"{where}.{name}", found, _NEEDED[name])


def _check_rollback(how: Mapping[str, Any]) -> None:
    where, known = "config.rollback", ("times", "factor", "every")
    if not how:
        return
    if set(how) != set(known):
        remedy = "for example dict(times=2, factor=0.5, every='1 epoch')"
        must = f"have {', '.join(known)}, got {', '.join(how)}"
        jc.refuse(where, must, remedy=remedy)
    times, factor = how["times"], how["factor"]
    if type(times) is not int or times < 0:
        jc.refuse(f"{where}.times", "be 0 or more, and whole", times)
    if type(factor) not in (int, float) or not 0 < factor <= 1:
        jc.refuse(f"{where}.factor", "be in (0, 1]", factor)
    _check_duration(f"{where}.every", how["every"])


def _check_fix(fix: Mapping[str, int], seeds: Sequence[int]) -> None:
    for source, seed in fix.items():
        jc.check_known("config.fix", source, SOURCES, "source of randomness")
        if not _is_seed(seed):
            jc.refuse(f"config.fix.{source}", "be a whole number below 2**32", seed)
    if len(seeds) > 1 and len(fix) == len(SOURCES):
        text = "leaves nothing random, so that all seeds are one run; free a source"
        raise ValueError(f"config.fix: {text}, or train one seed")


def _check_duration(where: str, duration: str) -> None:
    jc.to_steps(duration, steps_per_epoch=1, total=1, where=where)


def check_trusted(config: dict[str, Any], workdir: str | os.PathLike) -> dict[str, Any]:
    """The config that a workdir holds, which may have come from anywhere.

    ValueError where it is none, or names a file of Python that would be run: unless the
    user says by JBIAS_OWN_CODE=1 that it may be.
    """
    where = os.fspath(workdir)
    jc.check_finite(f"{where}/config.json", config)
    _check_types(f"{where}/config.json", config)
    code = extensions.files(config)
    if code and not switches.is_on("JBIAS_OWN_CODE"):
        raise ValueError(
            f"{where}: its config.json names {code[0]!r}, a file that would be run; if you "
            "trust it, set JBIAS_OWN_CODE=1"
        )
    return config


# What may be traced: the program is the same whatever the number.
_ROOMS = ("algo", "optim")


class StageSpec(NamedTuple):
    """A stage of a branch: the branch's config with that stage's own entries in it."""

    number: int
    where: str  # What messages call it: "config", or "config.stages[1]".
    config: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Branch:
    """One combination of values."""

    values: tuple[float, ...]  # In the order of config.vary; empty without it.
    config: dict[str, Any]  # With the values in place, and without `vary`.
    folder: str  # Of its records, in the workdir; "" is the workdir.

    @property
    def name(self) -> str:
        """Tells it from the others: `optim.rate=0.1`; the only one is ""."""
        return self.folder.rpartition("/")[2]

    @functools.cached_property
    def stages(self) -> tuple[StageSpec, ...]:
        """One after the other; one where its config names none."""
        named = bool(self.config.get("stages"))
        return tuple(
            StageSpec(i, f"config.stages[{i}]" if named else "config", part)
            for i, part in enumerate(jc.stage_configs(self.config))
        )

    @functools.cached_property
    def fields(self) -> dict[str, str]:
        """What all its records say of it, `run` its run's name."""
        return dict(
            run=jc.run_name(self.config),
            algorithm=jc.algorithm_name(self.config),
            variant=self.config.get("variant", ""),
            model=jc.plain_name(self.config["model"]["name"]),
            train_data=jc.train_data_name(self.config),
        )


def varied_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What varies."""
    return tuple(one["key"] for one in config["vary"])


def branches(config: Mapping[str, Any]) -> list[Branch]:
    """All combinations, the first key's values slowest; one branch if nothing varies.

    A folder's name has all digits that tell a value from others: `0.1`, `1e-05`, `3`.
    """
    made = []
    for values in itertools.product(*(one["values"] for one in config["vary"])):
        named = zip(varied_keys(config), values, strict=True)
        name = ",".join(f"{key}={value!r}".removesuffix(".0") for key, value in named)
        own = {**with_values(config, values), "vary": []}
        made.append(Branch(values, own, f"vary/{name}" if name else ""))
    return made


def with_values(config: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """The config with one value, which may be traced, in the place of each key."""
    for key, value in zip(varied_keys(config), values, strict=True):
        config = _put(config, key.split("."), value)
    return dict(config)


def check_vary(config: Mapping[str, Any]) -> None:
    """Refuses what is no number of the config, or cannot vary in one program."""
    for i, one in enumerate(config["vary"]):
        where = f"config.vary[{i}]"
        named = isinstance(one, Mapping) and isinstance(one.get("key"), str)
        if not named or set(one) != {"key", "values"}:
            jc.refuse(where, "be dict(key='optim.rate', values=...)", one)
        if not _are_different(one["values"]):
            must = "be a list of different numbers in float32, at least one"
            jc.refuse(f"{where}.values", must, one["values"])
        _check_key(config, f"{where}.key", one["key"])
    keys = varied_keys(config)
    if len(set(keys)) < len(keys):
        raise ValueError(f"config.vary: a key must occur once, got {', '.join(keys)}")


def _check_key(config: Mapping[str, Any], where: str, key: str) -> None:
    way = key.split(".")
    room, *rest = way[2:] or [""] if way[0] == "stages" else way
    alone = "start a run for each value"
    if room not in _ROOMS or not rest:
        raise ValueError(
            f"{where}: only numbers of config.algo and config.optim can differ in "
            f"one program, got {key!r}; {alone}"
        )
    if (room, *rest) == ("optim", "average"):
        raise ValueError(
            f"{where}: {key} cannot differ in one program, which keeps one average "
            f"for all; {alone}"
        )
    try:
        found = config
        for name in way:
            found = found[numerals.whole(name) if isinstance(found, list) else name]
    except (KeyError, IndexError, TypeError, ValueError):
        rates = (k for k, v in config["optim"].items() if _is_number(v))
        known = [f"optim.{k}" for k in rates if k != "average"]
        known += [f"algo.{k}" for k, v in config["algo"].items() if type(v) is float]
        raise ValueError(
            f"{where}: the config has no {key!r}; {jc.suggest(key, known)}; write an "
            "algorithm's default into the config to vary it"
        ) from None
    if not _is_number(found):
        raise ValueError(f"{where}: {key} must be a number, got {found!r}")
    if room == "algo" and type(found) is int:
        raise ValueError(
            f"{where}: {key} is a whole number, {found}, which says what is computed; "
            f"{alone}, or write {found}.0 if it is a strength"
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
        return member_name(self.seed, self.branch.name)


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
    command: str = ""  # The arguments that name the config; "": not known.

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
        seeds = config["seeds"]
        if not seeds or not all(map(_is_seed, seeds)) or len(set(seeds)) < len(seeds):
            must = "be different whole numbers from 0 to 2**32 - 1"
            jc.refuse("config.seeds", must, seeds)
        check_vary(config)
        _check_rollback(config.get("rollback") or {})
        _check_fix(config.get("fix", {}), seeds)
        found = tuple(branches(config))
        for stage in (stage for branch in found for stage in branch.stages):
            for must, fits, keys in _RANGES:
                for key, value in _entries(stage.config, keys):
                    if not fits(value):
                        jc.refuse(f"{stage.where}.{key}", must, value)
        if (by := config["run"]["evaluate"]) not in ("here", "elsewhere"):
            jc.refuse("config.run.evaluate", "be here or elsewhere", by)
        if (norm := config["run"].get("eval_norm", EVAL_NORMS[0])) not in EVAL_NORMS:
            jc.refuse(
                "config.run.eval_norm", f"be one of {', '.join(EVAL_NORMS)}", norm
            )
        for cadence in ("eval_every", "save_every"):
            _check_duration(f"config.{cadence}", config[cadence])
        for name in config["tests"]:  # They name folders.
            if name in ("train", "valid"):
                raise ValueError(
                    f"config.tests: names must not be 'train' or 'valid', got {name!r}; "
                    "give the test set another name"
                )
            jc.check_folder_name("config.tests: a name", name)
        everyone = members(config["seeds"], found)
        return cls(config, found, everyone, jc.run_name(config))


def _is_seed(value: Any) -> bool:
    """Whether a random stream can have it: its keys are of 32 bits."""
    return type(value) is int and 0 <= value < 2**32


def _is_number(value: Any) -> bool:
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return plain and abs(value) < float("inf")


def _are_different(values: Any) -> bool:
    """Whether these are a list of numbers that differ in float32, and are finite."""
    import numpy as np  # Late: --help waits for it nowhere.

    most = float(np.finfo(np.float32).max)
    fit = isinstance(values, list | tuple) and all(map(_is_number, values))
    if not fit or any(abs(value) > most for value in values):
        return False
    return 0 < len(values) == len({float(np.float32(value)) for value in values})


def _put(tree: Any, path: Sequence[str], value: Any) -> Any:
    """A copy of the tree with another value at that place."""
    if not path:
        return value
    name, *rest = path
    if isinstance(tree, list):
        number = int(name)
        return [_put(x, rest, value) if i == number else x for i, x in enumerate(tree)]
    return {**tree, name: _put(tree[name], rest, value)}
