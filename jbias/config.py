"""Reads string arguments and durations, and says what identifies a run."""

import difflib
import hashlib
import itertools
import json
import re
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import ml_collections

_DURATION = re.compile(r"\s*([0-9.eE+-]+)\s*(steps?|epochs?|percent|%)\s*")

STAGE_KEYS = ("algo", "train", "inputs", "optim", "epochs")


def nearest(name: str, known: Iterable[str], told: str = "") -> str:
    """Ends an error about an unknown name: the nearest known one, then all, or `told`."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {told or ', '.join(known)}"


def check_known(where: str, name: str, known: Iterable[str], what: str = "") -> None:
    """Refuses a name that is not among the known ones; `what` it would be of."""
    if name not in known:
        what = f"{what} " if what else ""
        raise ValueError(f"{where}: unknown {what}{name!r}; {nearest(name, known)}")


def parse_arg(
    arg: str, where: str = "config argument", /, **defaults: Any
) -> types.SimpleNamespace:
    """Reads `a=1,b=x,flag` into the names and types of `defaults`.

    A name alone sets a boolean. ValueError, which begins with `where`, names an unknown
    argument and the nearest known one, or the value that does not fit its type.
    """
    values = dict(defaults)
    for item in filter(None, (arg or "").split(",")):
        name, equals, text = item.partition("=")
        if name not in defaults:
            raise ValueError(
                f"{where}: several values are joined by +, arguments by commas, "
                f"got {name!r} as an argument"
                if _is_number(name)
                else f"{where}: unknown {name!r}; {nearest(name, defaults)}"
            )
        values[name] = _convert(
            f"{where}: {name}", text if equals else None, defaults[name]
        )
    return types.SimpleNamespace(**values)


def given(arg: str) -> set[str]:
    """The names of the arguments in the text."""
    return {item.partition("=")[0] for item in filter(None, (arg or "").split(","))}


def check_say(
    arg: str,
    data: str,
    everywhere: Collection[str],
    used: Mapping[str, Collection[str]],
    where: str = "config argument",
) -> None:
    """Refuses arguments that have no say with the chosen data.

    everywhere: names of arguments that always have. used: by data, those that have there.
    """
    useless = given(arg) - {*everywhere} - {*used[data]}
    if useless:
        name = min(useless)
        others = [f"data={other}" for other, names in used.items() if name in names]
        raise ValueError(
            f"{where}: {name!r} has no say with data={data}; it has with "
            f"{' or '.join(others)}"
        )


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _convert(where: str, text: str | None, default: Any) -> Any:
    if isinstance(default, bool):
        words = {None: True, "true": True, "1": True, "false": False, "0": False}
        lowered = text.lower() if text else text
        if lowered in words:
            return words[lowered]
    elif text is not None:
        try:
            return type(default)(text)
        except ValueError:
            pass
    kinds = {bool: "true or false", int: "a whole number", float: "a number"}
    kind = kinds.get(type(default), "a text")
    got = "nothing" if text is None else repr(text)
    name = where.rpartition(" ")[2]
    remedy = f"; write {name} or {name}=false" if isinstance(default, bool) else ""
    raise ValueError(f"{where} must be {kind}, got {got}{remedy}")


def steps(
    duration: str, *, steps_per_epoch: int, total: int, where: str = "duration"
) -> int:
    """Turns "500 steps", "2 epochs" or "10 %" (of `total` steps) into steps, >= 1.

    ValueError, which begins with `where`, for anything else.
    """
    match = _DURATION.fullmatch(str(duration))
    if match is None or not _is_number(match[1]):
        raise ValueError(
            f"{where}: must be like '500 steps', '1 epoch' or '10 %', got {duration!r}"
        )
    amount, unit = float(match[1]), match[2]
    scale = 1
    if unit.startswith("epoch"):
        scale = steps_per_epoch
    elif unit in ("percent", "%"):
        scale = total / 100
    if not amount > 0:
        raise ValueError(f"{where}: must be positive, got {duration!r}")
    return max(1, round(amount * scale))


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as JSON sees it: tuples are lists, references are values.

    ValueError where it holds what JSON has not.
    """
    given: Any = config  # A ConfigDict is a Mapping in all but its type.
    is_own = isinstance(config, ml_collections.ConfigDict)
    try:
        return json.loads(json.dumps(given.to_dict() if is_own else dict(given)))
    except TypeError as error:  # A set, a function, an array.
        raise ValueError(f"config: must hold what JSON has, got {error}") from error


def stages(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One config a stage: the whole config with the entries that the stage names.

    A stage may name algo, train, inputs, optim and epochs; without stages there is one.
    """
    rest = {key: value for key, value in config.items() if key != "stages"}
    parts = [dict(stage) for stage in config.get("stages") or [{}]]
    for i, part in enumerate(parts):
        for key in part:
            check_known(f"config.stages[{i}]", key, STAGE_KEYS, "key")
    return [{**rest, **part} for part in parts]


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the numbers: everything but `config.run` and where data lies.

    What data holds is told by fingerprints, which a resumed run compares.
    """
    kept = {key: value for key, value in plain(config).items() if key != "run"}
    if not (kept.get("rollback") or {}).get("times"):
        kept.pop("rollback", None)  # Off; runs begun before it was there have none.
    return _without_places(kept)


def _without_places(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {k: _without_places(v) for k, v in tree.items() if k != "root"}
    return [_without_places(v) for v in tree] if isinstance(tree, list) else tree


def digest(config: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits of the identity."""
    text = json.dumps(identity(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def algorithm(config: Mapping[str, Any]) -> str:
    """What tables call the algorithm; `some/where/mine.py:make` is `mine`.

    Stages of several algorithms are joined: `infodrop+erm`.
    """
    names = [stage["algo"]["name"] for stage in stages(config)]
    short = [name.rpartition("/")[2].partition(".py:")[0] for name in names]
    return "+".join(name for name, _ in itertools.groupby(short))


def train_data(config: Mapping[str, Any]) -> str:
    """What tables call the training data, joined likewise."""
    trained = [stage["train"] for stage in stages(config)]
    names = [part["data"] for one in trained for part in (one, *one.get("also", ()))]
    return "+".join(name for name, _ in itertools.groupby(names))


def run_name(config: Mapping[str, Any]) -> str:
    """Names a run by algorithm, data and identity: `sagnet-shapes-1f0c77ab`."""
    return f"{algorithm(config)}-{train_data(config)}-{digest(config)}"


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Lists the identity keys in which two configs differ: `key: one != other`."""
    a, b = _flat(identity(a)), _flat(identity(b))
    absent = object()
    return [
        f"{key}: {a.get(key, 'absent')!r} != {b.get(key, 'absent')!r}"
        for key in sorted(a.keys() | b.keys())
        if a.get(key, absent) != b.get(key, absent)
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
