"""The entries that a config may have, their types, and the branches that one run trains.

`config.vary` lists keys of the config and their values: a small search in one program. Each
combination of values is a branch. The seeds of a branch have the results and the records of
a separate run with the branch's config, up to the rounding of float32.
"""

import dataclasses
import functools
import itertools
import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import errors, extensions, numerals
from jbias.runtime import console, switches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loading:
    """The entries of config.run.loading: how images are read."""

    gib: float  # Memory for decoded images, in GiB.
    threads: int  # Threads per process that read; 0: one per core.
    workers: int  # Processes that read; 0: the training process itself.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The entries of config.run: how a run uses the machine, and what it writes.

    Entries with a default here are absent in the configs of older runs. Other defaults:
    `experiment` of configs/common.py.
    """

    loading: Loading
    energy: Mapping[str, float] = dataclasses.field(default_factory=dict)
    wandb: Mapping[str, str] = dataclasses.field(default_factory=dict)
    strategy: str  # A name in STRATEGIES.
    evaluate: str  # "here", or "elsewhere": by jbias evaluate --follow.
    eval_norm: str = "auto"  # A name in EVAL_NORMS.
    write: str = ""  # Names of loggers, joined by "+".
    log: str = console.LOG_FORMATS[0]
    steps_per_dispatch: int
    devices: int  # Number of devices to use; 0: all.
    # Shares of the devices, each with seeds of its own; 0: as many as possible.
    spread: int
    together: int  # Seeds on the devices at the same time; 0: as many as fit.
    eval_batch: int
    keep: int  # Number of checkpoints to keep.
    memory: float  # GiB to use of each device; 0: all that it has.
    log_seconds: float  # Least time between two lines of progress.
    decisions: bool  # Also write the decision on each test image.
    deterministic: bool  # The same bits in each run on a GPU.
    profile: bool

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> "RunOptions":
        """Return the options of config.run, which has been checked."""
        return cls(**{**run, "loading": Loading(**run["loading"])})


# The type of each entry. Further entries of a dict with a name are options of the function
# that the name means, which checks them.
_KINDS: Sequence[tuple[Any, tuple[str, ...]]] = (
    (dict, ("algo", "model", "optim", "optim.schedule", "train", "train.other")),
    (dict, ("valid", "tests", "rollback", "fix")),
    (dict, ("run",)),
    (list, ("seeds", "vary")),
    (list[dict], ("inputs", "stages", "train.inputs", "train.also")),
    (list[dict], ("train.other.inputs",)),
    (list[float], ("train.shares",)),
    (str, ("algo.name", "model.name", "optim.name", "optim.schedule.name")),
    (str, ("optim.warmup", "train.data", "train.split", "train.balance", "variant")),
    (str, ("label", "init", "precision", "eval_every", "save_every", "aggregate")),
    (int, ("size", "model.width", "model.norm_group")),
    (int, ("train.batch", "train.accumulate")),
    (int | None, ("fix.init", "fix.order", "fix.augment", "fix.algorithm")),
    (float, ("epochs", "optim.rate", "optim.decay", "optim.momentum")),
    (float | dict, ("optim.average",)),
    (dict, ("optim.sharpness",)),
    (float, ("optim.sharpness.radius", "optim.sharpness.eta")),
    (bool, ("optim.sharpness.adaptive",)),
)


def _has_default(field: dataclasses.Field) -> bool:
    """Return True if a field of a dataclass has a default."""
    defaults = (field.default, field.default_factory)
    return any(default is not dataclasses.MISSING for default in defaults)


def _field_types(prefix: str, options: type) -> dict[str, type]:
    """Return {dotted key: its type} of the fields of a dataclass; dict for a nested entry."""
    is_plain = (str, int, float, bool).__contains__
    return {
        f"{prefix}.{field.name}": field.type if is_plain(field.type) else dict
        for field in dataclasses.fields(options)
    }


ENTRIES: Mapping[str, Any] = {
    **{key: kind for kind, keys in _KINDS for key in keys},
    **_field_types("run", RunOptions),
    **_field_types("run.loading", Loading),
}
KEYS = tuple(key for key in ENTRIES if "." not in key)
# The sources of randomness in a run.
SOURCES = tuple(key[4:] for key in ENTRIES if key.startswith("fix."))
RUN_KEYS = tuple(field.name for field in dataclasses.fields(RunOptions))
LOADING_KEYS = tuple(field.name for field in dataclasses.fields(Loading))
# Runs that began with an older version do not have these keys.
OPTIONAL_KEYS = (
    *(field.name for field in dataclasses.fields(RunOptions) if _has_default(field)),
    *("rollback", "label", "fix"),
)
# Batch norm in evaluation: "folded" into convolutions, "exact", or "auto": folded on
# accelerators only.
EVAL_NORMS = ("auto", "exact", "folded")
# The keys that an entry must have.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "algo": ("name",),
    "model": ("name",),
    "optim": ("name", "rate", "schedule"),
    "train": ("data", "split", "batch"),
    "valid": ("data", "split"),
    "run.loading": ("gib", "threads", "workers"),
}
PRECISIONS = ("auto", "float32", "bfloat16")
# Ways to train the seeds of a device (`training.strategies.STRATEGIES`); "auto": the fastest.
STRATEGIES = (
    "auto",
    "unrolled",
    "threaded",
    "looped",
    "vmapped",
    "unrolled_convolutions",
)
# Rules for values: words for messages, a check, and the entries.
_RULES: Sequence[tuple[str, Callable[[Any], bool], tuple[str, ...]]] = (
    ("be 1 or more", lambda x: x >= 1, ("run.steps_per_dispatch", "run.eval_batch")),
    ("be 1 or more", lambda x: x >= 1, ("train.accumulate", "model.width")),
    ("be 0 or more", lambda x: x >= 0, ("run.spread", "run.together", "run.memory")),
    ("be 0 or more", lambda x: x >= 0, ("model.norm_group", "optim.decay")),
    ("be 0 or more", lambda x: x >= 0, ("optim.sharpness.radius",)),
    ("be 0 or more", lambda x: x >= 0, ("optim.sharpness.eta",)),
    ("be positive", lambda x: x > 0, ("optim.rate",)),
    ("be positive, and a million at most", lambda x: 0 < x <= 1e6, ("epochs",)),
    ("be 2 or more", lambda x: x >= 2, ("run.keep",)),
    ("be 0 or more", lambda x: x >= 0, ("run.log_seconds", "run.loading.gib")),
    ("be 0 or more", lambda x: x >= 0, ("run.loading.threads", "run.loading.workers")),
    ("be in [0, 1)", lambda x: 0 <= x < 1, ("optim.momentum",)),
    (
        "be in [0, 1), or entries with a name",
        lambda x: isinstance(x, Mapping) or 0 <= x < 1,
        ("optim.average",),
    ),
    ("be here or elsewhere", lambda x: x in ("here", "elsewhere"), ("run.evaluate",)),
    *(
        (f"be one of {', '.join(choices)}", choices.__contains__, (key,))
        for key, choices in (
            ("precision", PRECISIONS),
            ("run.eval_norm", EVAL_NORMS),
            ("run.log", console.LOG_FORMATS),
            ("run.strategy", STRATEGIES),
        )
    ),
)


def check_entries(config: Mapping[str, Any]) -> None:
    """Raise ValueError for unknown or missing entries and values of a wrong type."""
    jc.check_finite("config", config)
    _check_keys("config", config, KEYS)
    _check_keys("config.run", config["run"], RUN_KEYS)
    _check_keys("config.run.loading", config["run"]["loading"], LOADING_KEYS)
    _check_types("config", config)
    for name, test in config["tests"].items():
        _require(f"config.tests.{name}", test, ("data", "split"))


def _check_types(where: str, config: Mapping[str, Any]) -> None:
    """Raise ValueError for values of a wrong type.

    where: start of the error message. Unknown and missing entries are allowed, because the
    config may be of another version of jbias.
    """
    _check_part(where, config)
    for number, stage in enumerate(config.get("stages", ())):
        _check_part(f"{where}.stages[{number}]", stage)
    for name, test in config.get("tests", {}).items():
        errors.check_type(f"{where}.tests.{name}", test, dict)


def _check_keys(where: str, part: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ValueError unless `part` has all known keys, and no other keys.

    where: name of the part, such as "config.run".
    """
    errors.check_type(where, part, dict)
    errors.check_all_known(where, part, known)
    _require(where, part, (key for key in known if key not in OPTIONAL_KEYS))


def _require(where: str, part: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raise ValueError if a part of a config lacks a key; where: name of the part."""
    for key in keys:
        if key not in part:
            raise ValueError(f"{where}: {key!r} is missing")


def _entries(part: Mapping[str, Any], keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) for each dotted key that exists in `part`."""
    for key in keys:
        *parents, last = key.split(".")
        inner = functools.reduce(lambda inner, name: inner.get(name, {}), parents, part)
        if last in inner:
            yield key, inner[last]


def _check_part(where: str, part: Mapping[str, Any]) -> None:
    """Raise ValueError for entries of a wrong type, and for missing keys of entries.

    where: name of the part. part: the config, or one of its stages.
    """
    for key, value in _entries(part, ENTRIES):
        errors.check_type(f"{where}.{key}", value, ENTRIES[key])
    for key, value in _entries(part, _REQUIRED):
        _require(f"{where}.{key}", value, _REQUIRED[key])


def _check_rollback(rollback: Mapping[str, Any]) -> None:
    """Raise ValueError for wrong options of config.rollback; {} is valid: no rollback.

    The required options are times (0 or more), factor (in (0, 1]) and every (a duration).
    """
    where, known = "config.rollback", ("times", "factor", "every")
    if not rollback:
        return
    if set(rollback) != set(known):
        remedy = "for example dict(times=2, factor=0.5, every='1 epoch')"
        must = f"have {', '.join(known)}, got {', '.join(rollback)}"
        errors.refuse(where, must, remedy=remedy)
    times, factor = rollback["times"], rollback["factor"]
    if type(times) is not int or times < 0:
        errors.refuse(f"{where}.times", "be 0 or more, and whole", times)
    if type(factor) not in (int, float) or not 0 < factor <= 1:
        errors.refuse(f"{where}.factor", "be in (0, 1]", factor)
    _check_duration(f"{where}.every", rollback["every"])


def _check_fix(fix: Mapping[str, int], seeds: Sequence[int]) -> None:
    """Raise ValueError for wrong entries of config.fix, or if all seeds would be equal."""
    for source, seed in fix.items():
        errors.check_known("config.fix", source, SOURCES, "source of randomness")
        if not _is_seed(seed):
            errors.refuse(f"config.fix.{source}", "be a whole number below 2**32", seed)
    if len(seeds) > 1 and len(fix) == len(SOURCES):
        text = "leaves nothing random, so that all seeds are one run; free a source"
        raise ValueError(f"config.fix: {text}, or train one seed")


def _check_duration(where: str, duration: str) -> None:
    """Raise ValueError unless a text is a duration, such as "2 epochs".

    where: start of the error message.
    """
    jc.to_steps(duration, steps_per_epoch=1, total=1, where=where)


def check_trusted(config: dict[str, Any], workdir: str | os.PathLike) -> dict[str, Any]:
    """Check a config that was read from a possibly untrusted workdir, and return it unchanged.

    ValueError if an entry has a wrong type or a value that no config may have
    (`config.check_finite`). ValueError also if the config names a Python file, unless the
    environment variable JBIAS_OWN_CODE=1 allows running the file.
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


# The entries with numbers that may be traced: the program is the same for all values.
_VARIABLE_ENTRIES = ("algo", "optim")


class StageSpec(NamedTuple):
    """A stage of a branch: the branch's config, with the entries of that stage."""

    number: int
    where: str  # Its name in messages: "config", or "config.stages[1]".
    config: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Branch:
    """One combination of the values of config.vary."""

    values: tuple[float, ...]  # In the order of config.vary; empty without config.vary.
    config: dict[str, Any]  # With these values, and an empty `vary`.
    folder: str  # Folder of the records in the workdir; "": the workdir.

    @property
    def name(self) -> str:
        """The branch's name, such as `optim.rate=0.1`; "" without config.vary."""
        return self.folder.rpartition("/")[2]

    @functools.cached_property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages in the order of training; one stage without config.stages."""
        has_stages = bool(self.config.get("stages"))
        return tuple(
            StageSpec(i, f"config.stages[{i}]" if has_stages else "config", config)
            for i, config in enumerate(jc.stage_configs(self.config))
        )

    @functools.cached_property
    def fields(self) -> dict[str, str]:
        """The fields that are equal in all records of the branch, as text by name.

        The fields are run (the run's name), algorithm, variant ("" without a variant), model and
        train_data.
        """
        return {
            "run": jc.run_name(self.config),
            "algorithm": jc.algorithm_name(self.config),
            "variant": self.config.get("variant", ""),
            "model": jc.plain_name(self.config["model"]["name"]),
            "train_data": jc.train_data_name(self.config),
        }


def varied_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of config.vary."""
    return tuple(entry["key"] for entry in config["vary"])


def branches(config: Mapping[str, Any]) -> list[Branch]:
    """Return the branches of all combinations of values; one branch without config.vary.

    The values of the first key change slowest. A folder is called `vary/KEY=VALUE,KEY=VALUE`,
    with the shortest exact form of each value: `0.1`, `1e-05`, `3`.
    """
    all_branches = []
    for values in itertools.product(*(entry["values"] for entry in config["vary"])):
        pairs = zip(varied_keys(config), values, strict=True)
        name = ",".join(f"{key}={value!r}".removesuffix(".0") for key, value in pairs)
        branch_config = {**with_values(config, values), "vary": []}
        folder = f"vary/{name}" if name else ""
        all_branches.append(Branch(values, branch_config, folder))
    return all_branches


def with_values(config: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return a copy of the config in which the keys of config.vary have the given values.

    values: one per key, in order; they may be traced by JAX. config.vary itself stays.
    """
    for key, value in zip(varied_keys(config), values, strict=True):
        config = _replace(config, key.split("."), value)
    return dict(config)


def check_vary(config: Mapping[str, Any]) -> None:
    """Raise ValueError unless config.vary is a list of numbers that may vary in one program.

    An entry is dict(key=..., values=...). A key is the path of a number in the config:
    "optim.<name>" except optim.average, "algo.<name>" except whole numbers, or the same of a stage,
    such as "stages.1.optim.rate". Each key occurs once. values: a list of at least one number, all
    different in float32.
    """
    for i, entry in enumerate(config["vary"]):
        where = f"config.vary[{i}]"
        has_key = isinstance(entry, Mapping) and isinstance(entry.get("key"), str)
        if not has_key or set(entry) != {"key", "values"}:
            errors.refuse(where, "be dict(key='optim.rate', values=...)", entry)
        if not _are_distinct(entry["values"]):
            must = "be a list of different numbers in float32, at least one"
            errors.refuse(f"{where}.values", must, entry["values"])
        _check_key(config, f"{where}.key", entry["key"])
    keys = varied_keys(config)
    if len(set(keys)) < len(keys):
        raise ValueError(f"config.vary: a key must occur once, got {', '.join(keys)}")


def _check_key(config: Mapping[str, Any], where: str, key: str) -> None:
    """Raise ValueError unless the entry of a key is a number that may vary in one program.

    where: start of the error message. key: dotted, such as "optim.rate".
    """
    path = key.split(".")
    # The path within a stage's config: stages.1.optim.rate is optim.rate.
    stage_path = path[2:] or [""] if path[0] == "stages" else path
    entry, *inner_path = stage_path
    remedy = "start a run for each value"
    if entry not in _VARIABLE_ENTRIES or not inner_path:
        raise ValueError(
            f"{where}: only numbers of config.algo and config.optim can differ in "
            f"one program, got {key!r}; {remedy}"
        )
    if stage_path[:2] == ["optim", "average"]:
        raise ValueError(
            f"{where}: {key} cannot differ in one program, which keeps one average "
            f"for all; {remedy}"
        )
    try:
        value = config
        for name in path:
            value = value[numerals.whole(name) if isinstance(value, list) else name]
    except (KeyError, IndexError, TypeError, ValueError):
        names = (name for name, x in config["optim"].items() if _is_number(x))
        known = [f"optim.{name}" for name in names if name != "average"]
        known += [f"algo.{k}" for k, v in config["algo"].items() if type(v) is float]
        raise ValueError(
            f"{where}: the config has no {key!r}; {errors.suggest(key, known)}; write an "
            "algorithm's default into the config to vary it"
        ) from None
    if not _is_number(value):
        raise ValueError(f"{where}: {key} must be a number, got {value!r}")
    if entry == "algo" and type(value) is int:
        raise ValueError(
            f"{where}: {key} is a whole number, {value}, which changes the program; "
            f"{remedy}, or write {value}.0 if it is a strength"
        )


def member_name(seed: int, folder: str) -> str:
    """Return the name of a seed of a branch: `3`, or `3, optim.rate=0.1`.

    folder: name of the branch, without "vary/"; "" in a run without branches.
    """
    return ", ".join(filter(None, (str(seed), *folder.split(","))))


class Member(NamedTuple):
    """A seed of a branch, which is trained together with the other members of the run."""

    seed: int
    branch: Branch

    @property
    def name(self) -> str:
        """The member's name: `3`, or `3, optim.rate=0.1`."""
        return member_name(self.seed, self.branch.name)


def members(seeds: Sequence[int], branches: Sequence[Branch]) -> tuple[Member, ...]:
    """Return the members of a run: all seeds of the first branch, then all of the next."""
    return tuple(Member(seed, branch) for branch in branches for seed in seeds)


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """The validated config of a run, with its branches and members."""

    config: dict[str, Any]
    branches: tuple[Branch, ...]
    members: tuple[Member, ...]  # All seeds of all branches.
    name: str
    command: str = ""  # The command line's arguments for the config; "": not known.

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages of the first branch; other branches differ only in numbers."""
        return self.branches[0].stages

    @functools.cached_property
    def run(self) -> RunOptions:
        """The entries of config.run, with defaults for entries that older configs lack."""
        return RunOptions.of(self.config["run"])

    def with_run(self, **changes: Any) -> "RunSpec":
        """Return the spec with other values of entries of config.run, such as profile=True."""
        config = {**self.config, "run": {**self.config["run"], **changes}}
        all_branches = tuple(branches(config))
        return dataclasses.replace(
            self,
            config=config,
            branches=all_branches,
            members=members(config["seeds"], all_branches),
        )

    @classmethod
    def from_config(cls, config: "Mapping[str, Any] | RunSpec") -> "RunSpec":
        """Return the spec of a config; ValueError for wrong keys and values.

        A RunSpec is returned unchanged. Names of algorithms, models and so on are checked
        later, by `setup.check_names`.
        """
        if isinstance(config, RunSpec):
            return config
        config = jc.to_dict(config)
        if type(config.get("seeds")) is int:
            remedy = jc.seeds_remedy(config["seeds"], "config.seeds")
            errors.refuse("config.seeds", "be a list", config["seeds"], remedy)
        check_entries(config)
        seeds = config["seeds"]
        if not seeds or not all(map(_is_seed, seeds)) or len(set(seeds)) < len(seeds):
            must = "be different whole numbers from 0 to 2**32 - 1"
            errors.refuse("config.seeds", must, seeds)
        check_vary(config)
        _check_rollback(config.get("rollback") or {})
        _check_fix(config.get("fix", {}), seeds)
        all_branches = tuple(branches(config))
        for branch in all_branches:
            for stage in branch.stages:
                _check_rules(stage)
                _check_train(f"{stage.where}.train", stage.config["train"])
        for cadence in ("eval_every", "save_every"):
            _check_duration(f"config.{cadence}", config[cadence])
        for name in config["tests"]:  # The names of test sets are names of folders.
            if name in ("train", "valid"):
                raise ValueError(
                    f"config.tests: names must not be 'train' or 'valid', got {name!r}; "
                    "give the test set another name"
                )
            errors.check_folder_name("config.tests: a name", name)
        return cls(
            config,
            all_branches,
            members=members(config["seeds"], all_branches),
            name=jc.run_name(config),
        )


def _check_rules(stage: StageSpec) -> None:
    """Raise ValueError for a value of a stage, or of the whole config, that breaks a rule."""
    for must, is_valid, keys in _RULES:
        for key, value in _entries(stage.config, keys):
            is_of_stage = key.partition(".")[0] in jc.STAGE_KEYS
            where = stage.where if is_of_stage else "config"
            errors.check(is_valid(value), f"{where}.{key}", must, value)


def _check_train(where: str, train: Mapping[str, Any]) -> None:
    """Raise ValueError for options of config.train that exclude each other.

    where: name of `train` in the config. Checks that need the data are made by
    `training.input_plan`.
    """
    other = train.get("other") or {}
    if "pair" in train:
        raise ValueError(
            f"{where}.pair: belongs to the second set; move it to {where}.other"
        )
    if "balance" in other:
        problem = "labels of a second set are not used; remove it"
        raise ValueError(f"{where}.other.balance: {problem}")
    if other.get("pair") and other["pair"] != "class":
        pair = errors.abbreviate(other["pair"])
        raise ValueError(
            f"{where}.other.pair: must be 'class', got {pair}; or remove it"
        )
    for place, options in ((where, train), (f"{where}.other", other)):
        crop = options.get("crop")
        is_valid = not isinstance(crop, str) or crop in ("host", "device")
        must = "be host, device, True or False"
        errors.check(is_valid, f"{place}.crop", must, crop)
        for key in ("window", "canvas"):
            if key in options and crop != "device":
                raise ValueError(
                    f"{place}.{key}: needs crop='device', got crop={crop!r}; remove {key}"
                )


def _is_seed(value: Any) -> bool:
    """Return True for a whole number from 0 to 2**32 - 1, from which keys can be derived."""
    return type(value) is int and 0 <= value < 2**32


def _is_number(value: Any) -> bool:
    """Return True for finite real numbers."""
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_real and abs(value) < float("inf")


def _are_distinct(values: Any) -> bool:
    """Return True for a non-empty list of finite numbers that are all different in float32."""
    import numpy as np  # Imported late, so that --help is fast.

    largest = float(np.finfo(np.float32).max)
    are_numbers = isinstance(values, list | tuple) and all(map(_is_number, values))
    if not are_numbers or any(abs(value) > largest for value in values):
        return False
    return 0 < len(values) == len({float(np.float32(value)) for value in values})


def _replace(tree: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of nested dicts and lists with another value at a path.

    path: keys, and indices as text, from the root.
    """
    if not path:
        return value
    name, *inner_path = path
    if isinstance(tree, list):
        number = int(name)
        return [
            _replace(x, inner_path, value) if i == number else x
            for i, x in enumerate(tree)
        ]
    return {**tree, name: _replace(tree[name], inner_path, value)}
