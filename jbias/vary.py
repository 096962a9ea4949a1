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
        name = ",".join(f"{key}={value:g}" for key, value in named)
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
    for i, one in enumerate(config["vary"]):
        where = f"config.vary[{i}]"
        if not isinstance(one, Mapping) or set(one) != {"key", "values"}:
            raise ValueError(f"{where}: must be dict(key=..., values=...), got {one!r}")
        values = one["values"]
        finite = all(_is_number(value) for value in values)
        if not values or not finite or len(set(values)) < len(values):
            raise ValueError(
                f"{where}.values: must be different numbers, at least one, got {values}"
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
    try:
        found = _get(config, key.split("."))
    except (KeyError, IndexError, TypeError, ValueError):
        known = [
            f"optim.{name}" for name, v in config["optim"].items() if _is_number(v)
        ]
        known += [f"algo.{name}" for name, v in config["algo"].items() if _is_number(v)]
        raise ValueError(
            f"{where}.key: the config has no {key!r}; {jc.nearest(key, known)}; write an "
            "algorithm's default into the config to vary it"
        ) from None
    if not _is_number(found):
        raise ValueError(f"{where}.key: {key} must be a number, got {found!r}")


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

    @property
    def own(self) -> Any:
        """What it has of its own in every step: its key, and the values if any vary."""
        key = seeds.key(self.seed)
        values = tuple(np.float32(value) for value in self.branch.values)
        return (key, values) if values else key


def entries(which: Sequence[int], branches: Sequence[Branch]) -> tuple[Entry, ...]:
    """All seeds of the first branch, then of the next."""
    return tuple(Entry(seed, branch) for branch in branches for seed in which)


def traced(make: Callable[[tuple], seeds.One]) -> seeds.One:
    """A step that makes itself for the values that come with each call."""

    def one(state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
        (key, values), taken = arg
        try:
            return make(values)(state, (key, taken), shared, static)
        except jax.errors.ConcretizationTypeError as error:
            raise ValueError(
                "config.vary: the algorithm or optimiser must know one of the numbers "
                "while it is compiled, so that it cannot differ in one program; start "
                "a run for each value"
            ) from error

    return one


def check_alike(one: base.Algo, other: base.Algo) -> None:
    """Refuses values between which more differs than a number."""
    a, b = ([*map(_name, x.updates), *x.parts] for x in (one, other))
    if a != b or one.mix_group != other.mix_group:
        raise ValueError(
            f"config.vary: the values must make one algorithm, got updates and parts {a} "
            f"and {b}; start a run for the value that makes another, such as 0"
        )


def _name(update: base.Update) -> tuple:
    return update.loss, update.plus, update.clip is None, update.decay


def _is_number(value: Any) -> bool:
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return plain and abs(value) < float("inf")


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
