"""Numbers that differ between the branches of one run: a small search in one program.

`config.vary` lists keys of the config and the values to try; each combination is a
branch. A branch trains every seed as a run of its own config would, up to the rounding of
float32, and its records are that run's.
"""

import itertools
import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.interpreters import partial_eval

from jbias import config as jc
from jbias import seeds
from jbias.algos import base

# What may be traced: the program is the same whatever the number.
_ROOMS = ("algo", "optim")


class Branch(NamedTuple):
    """One combination of values."""

    values: tuple[float, ...]  # In the order of config.vary; empty without it.
    config: dict[str, Any]  # With the values in place, and without `vary`.
    folder: str  # Of its records, in the workdir; "" is the workdir.


def keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What varies."""
    return tuple(one["key"] for one in config["vary"])


def branches(config: Mapping[str, Any]) -> list[Branch]:
    """All combinations, the first key's values slowest; one branch if nothing varies."""
    made = []
    for values in itertools.product(*(one["values"] for one in config["vary"])):
        named = zip(keys(config), values, strict=True)
        name = ",".join(f"{key}={_text(value)}" for key, value in named)
        folder = f"vary/{name}" if name else ""
        made.append(Branch(values, {**placed(config, values), "vary": []}, folder))
    return made


def placed(config: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """The config with one value, which may be traced, in the place of each key."""
    for key, value in zip(keys(config), values, strict=True):
        config = _put(config, key.split("."), value)
    return dict(config)


def check(config: Mapping[str, Any]) -> None:
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
    named = keys(config)
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
            f"{where}.key: the config has no {key!r}; {jc.nearest(key, known)}; write an "
            "algorithm's default into the config to vary it"
        ) from None
    if not _is_number(found):
        raise ValueError(f"{where}.key: {key} must be a number, got {found!r}")
    if room == "algo" and type(found) is int:
        raise ValueError(
            f"{where}.key: {key} is a whole number, {found}, which says what is computed; "
            f"start a run for each value, or write {found}.0 if it is a strength"
        )


def name(seed: int, folder: str) -> str:
    """What a seed of the branch in that folder is called, whose own name it has."""
    return ", ".join(filter(None, (str(seed), *folder.split(","))))


class Entry(NamedTuple):
    """A seed of a branch: what is trained beside others."""

    seed: int
    branch: Branch

    @property
    def name(self) -> str:
        """Tells it from the others: `3`, or `3, optim.rate=0.1`."""
        return name(self.seed, self.branch.folder.rpartition("/")[2])


def entries(which: Sequence[int], branches: Sequence[Branch]) -> tuple[Entry, ...]:
    """All seeds of the first branch, then of the next."""
    return tuple(Entry(seed, branch) for branch in branches for seed in which)


def seed_argument(entry: Entry) -> Any:
    """What a seed has of its own in every step: its key, and the values if any vary."""
    key = seeds.key(entry.seed)
    values = tuple(np.float32(value) for value in entry.branch.values)
    return (key, values) if values else key


def traced(make: Callable[[tuple], seeds.One]) -> seeds.One:
    """A step that makes itself for the values that come with each call."""

    def one(state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
        (key, values), taken = arg
        return make(values)(state, (key, taken), shared, static)

    return one


def reached(config: Mapping[str, Any], make: Callable, *args: Any) -> set[str]:
    """The keys that what `make(values)` computes of such arguments depends on.

    ValueError where one of the values must be known to make or to trace it.
    """
    known = keys(config)
    values = (jax.ShapeDtypeStruct((), np.float32),) * len(known)
    try:
        jaxpr = jax.make_jaxpr(lambda values, *args: make(values)(*args))(values, *args)
    except (TypeError, ValueError, AttributeError) as error:
        # An error that the values themselves bring as well is another one.
        jax.eval_shape(make(branches(config)[0].values), *args)
        raise ValueError(
            f"config.vary: a number of {', '.join(known)} must be known while the "
            "program is compiled, so that it cannot differ in one; start a run for "
            "each value"
        ) from error
    outputs = [True] * len(jaxpr.jaxpr.outvars)
    _, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, outputs)
    return {key for key, of_it in zip(known, used) if of_it}


def check_shared(what: str, reached: set[str]) -> None:
    """Refuses keys that would change what all branches have in common."""
    if reached:
        raise ValueError(
            f"config.vary: {', '.join(sorted(reached))} must not change {what}, which "
            "all branches share; start a run for each value"
        )


def check_effective(config: Mapping[str, Any], reached: set[str]) -> None:
    """Refuses keys that no step of any stage depends on."""
    for i, key in enumerate(keys(config)):
        if key not in reached:
            stages, room = config["stages"], key.partition(".")[0]
            staged = stages and all(room in stage for stage in stages)
            hint = f": stages have their own, such as stages.0.{key}" if staged else ""
            raise ValueError(
                f"config.vary[{i}].key: {key} has no effect on any step{hint}; vary what "
                "the steps use"
            )


def check_alike(one: base.Algo, other: base.Algo, steps: int) -> None:
    """Refuses values between which more differs than a number, in so many steps."""
    a, b = ([*map(_name, x.updates), *x.parts] for x in (one, other))
    if a != b or one.mix_group != other.mix_group:
        raise ValueError(
            f"config.vary: the values must make one algorithm, got updates and parts {a} "
            f"and {b}; start a run for the value that makes another, such as 0"
        )
    if one.static is other.static:
        return
    for step in range(steps):
        if one.static(step, steps) != other.static(step, steps):
            raise ValueError(
                "config.vary: the values must make one algorithm, got programs that "
                f"differ at step {step} of {steps}; start a run for each value"
            )


def _name(update: base.Update) -> tuple:
    return update.loss, update.plus, update.clip is None, update.decay


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
