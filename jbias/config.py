"""Reads configs: files and presets, overrides, durations, types, and what identifies a run.

A config is what get_config(arguments) in a file of Python returns, an
ml_collections.ConfigDict: `path/to/file.py:arguments`. Those that come with the package go by
name: `jbias:sagnet:demo,seeds=2` is configs/sagnet.py with these arguments, and
`jbias:suites/biases` is configs/suites/biases.py, wherever the package is installed.

Types are checked against annotations, of a config's entries and of functions' own
parameters. Values are text, numbers, booleans, None, lists and mappings; what is none of
these passes.
"""

import ast
import contextlib
import difflib
import hashlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import math
import os
import pathlib
import re
import sys
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NoReturn

from jbias import numerals, signatures
from jbias.runtime import messages

_DURATION = re.compile(r"\s*([0-9.eE+-]+)\s*(steps?|epochs?|percent|%)\s*")

STAGE_KEYS = ("algo", "train", "inputs", "optim", "epochs")

_NOT_SAID = object()


def refuse(where: str, must: str, got: Any = _NOT_SAID, remedy: str = "") -> NoReturn:
    """Raises a ValueError, `where: must ..., got ...; remedy`."""
    shown = "" if got is _NOT_SAID else f", got {_abbreviate(got)}"
    raise ValueError(f"{where}: must {must}{shown}{remedy and f'; {remedy}'}")


_LONGEST_NAME = 150  # Bytes: files are named after these, with endings, in 255.


def check_folder_name(where: str, name: str) -> None:
    """Raise ValueError for a name that no folder or file could have as it is."""
    is_path = name in ("", ".", "..") or "/" in name or "\\" in name
    is_long = len(name.encode(errors="replace")) > _LONGEST_NAME
    if is_path or is_long or not name.isprintable():
        refuse(
            where,
            "be a plain name: no dots alone, no slash, no control letter, and at most "
            f"{_LONGEST_NAME} bytes, as folders are named after it",
            name,
            "choose another",
        )


def suggest(name: str, known: Iterable[str], told: str = "") -> str:
    """Ends an error about an unknown name: the nearest known one, then all, or `told`."""
    known = sorted(known)
    if not known and not told:
        return "there is none to choose"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {told or ', '.join(known)}"


def check_known(where: str, name: str, known: Iterable[str], what: str = "") -> None:
    """Refuses a name that is not among the known ones; `what` it would be of."""
    if name not in known:
        what = f"{what} " if what else ""
        raise ValueError(f"{where}: unknown {what}{name!r}; {suggest(name, known)}")


def check_all_known(
    where: str, names: Iterable[str], known: Iterable[str], what: str = ""
) -> None:
    """Refuses the first of several names that is not among the known ones."""
    for name in names:
        check_known(where, name, known, what)


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
        if name not in defaults and numerals.is_real(name):
            raise ValueError(
                f"{where}: several values are joined by +, arguments by commas, "
                f"got {name!r} as an argument"
            )
        check_known(where, name, defaults)
        place = f"{where}: {name}"
        values[name] = _convert(place, text if equals else None, defaults[name])
    return types.SimpleNamespace(**values)


def explicit_arguments(arg: str) -> set[str]:
    """The names of the arguments in the text."""
    return {item.partition("=")[0] for item in filter(None, (arg or "").split(","))}


def check_applicable(
    arg: str,
    data: str,
    everywhere: Collection[str],
    used: Mapping[str, Collection[str]],
    where: str = "config argument",
) -> None:
    """Raise ValueError for arguments that the chosen data do not use.

    arg: the text of the arguments. data: the chosen data. everywhere: names of the
    arguments of all data. used: for each data, the names of its other arguments.
    """
    unused = explicit_arguments(arg) - set(everywhere) - set(used[data])
    if unused:
        name = min(unused)
        users = [f"data={other}" for other, names in used.items() if name in names]
        raise ValueError(
            f"{where}: {name!r} is not used with data={data}; it is used with "
            f"{' or '.join(users)}"
        )


def _convert(where: str, text: str | None, default: Any) -> Any:
    if isinstance(default, bool):
        words = {None: True, **_WORDS}
        lowered = text.lower() if text else text
        if lowered in words:
            return words[lowered]
    elif text is not None:
        parsers = {int: numerals.whole, float: numerals.real}
        with contextlib.suppress(ValueError):
            return parsers.get(type(default), type(default))(text)
    kinds = {bool: "true or false", int: "a whole number", float: "a number"}
    kind = kinds.get(type(default), "a text")
    got = "nothing" if text is None else repr(text)
    name = where.rpartition(" ")[2]
    remedy = f"; write {name} or {name}=false" if isinstance(default, bool) else ""
    raise ValueError(f"{where} must be {kind}, got {got}{remedy}")


def to_steps(
    duration: str, *, steps_per_epoch: int, total: int, where: str = "duration"
) -> int:
    """Turns "500 steps", "2 epochs" or "10 %" (of `total` steps) into steps, >= 1.

    ValueError, which begins with `where`, for anything else.
    """
    match = _DURATION.fullmatch(str(duration))
    if match is None or not numerals.is_real(match[1]):
        refuse(where, "be like '500 steps', '1 epoch' or '10 %'", duration)
    if not 0 < float(match[1]) < math.inf:
        refuse(where, "be positive and finite", duration)
    share = total / 100
    scale = {"s": 1, "e": steps_per_epoch, "p": share, "%": share}[match[2][0]]
    return max(1, round(float(match[1]) * scale))


def to_dict(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as JSON sees it: tuples are lists, references are values.

    ValueError where it holds what JSON has not.
    """
    import ml_collections  # Late: it takes long, and --help needs none of it.

    given: Any = config  # A ConfigDict is a Mapping in all but its type.
    if isinstance(config, ml_collections.ConfigDict):
        with _naming_entries("config"):
            given = given.to_dict()
    try:
        made = json.loads(json.dumps(dict(given)))
    except (TypeError, ValueError) as error:  # A set, a function, an array; a cycle.
        _refuse_unwritable("config", dict(given))
        raise ValueError(f"config: must hold what JSON has; {error}") from error
    if isinstance(
        fix := made.get("fix"), dict
    ):  # Without one it is as before there was one.
        made["fix"] = {source: seed for source, seed in fix.items() if seed is not None}
        if not made["fix"]:
            del made["fix"]
    return made


def _refuse_unwritable(where: str, tree: Any) -> None:
    """Raise ValueError for the first value that JSON cannot write, such as a set."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            _refuse_unwritable(f"{where}.{key}", value)
    elif isinstance(tree, _LISTS):
        for i, value in enumerate(tree):
            _refuse_unwritable(f"{where}[{i}]", value)
    elif not (tree is None or isinstance(tree, str | int | float)):
        must = "be text, a number, True or False, None, a list or entries"
        raise ValueError(f"{where}: must {must}, got {_show_value(tree)}")


def stage_configs(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One config a stage: the whole config with the entries that the stage names.

    A stage may name algo, train, inputs, optim and epochs; without stages there is one.
    """
    rest = {key: value for key, value in config.items() if key != "stages"}
    parts = [dict(stage) for stage in config.get("stages") or [{}]]
    for i, part in enumerate(parts):
        check_all_known(f"config.stages[{i}]", part, STAGE_KEYS, "key")
    return [{**rest, **part} for part in parts]


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the numbers: all but `config.run`, the label and where data is.

    What data holds is told by fingerprints, which a resumed run compares; the label is a name.
    """
    kept = without_places(to_dict(config))
    if not (kept.get("rollback") or {}).get("times"):
        kept.pop("rollback", None)  # Off; runs begun before it was there have none.
    return {key: kept[key] for key in kept if key not in ("run", "label")}


def without_places(tree: Any) -> Any:
    """Return the entries without those that say where data is, at any depth."""
    if isinstance(tree, dict):
        return {
            key: without_places(value)
            for key, value in tree.items()
            if not is_place(key, value)
        }
    return [*map(without_places, tree)] if isinstance(tree, list) else tree


def is_place(key: str, value: Any) -> bool:
    """Return whether an entry says where data is: `root`, unless a set has that name."""
    return key == "root" and not isinstance(value, Mapping | int | float)


def digest(config: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits of the identity."""
    text = json.dumps(identity(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def algorithm_name(config: Mapping[str, Any]) -> str:
    """What tables call the algorithm; `some/where/mine.py:make` is `mine`.

    Stages of several algorithms are joined: `infodrop+erm`.
    """
    names = [stage["algo"]["name"] for stage in stage_configs(config)]
    return _joined(name.rpartition("/")[2].partition(".py:")[0] for name in names)


def train_data_name(config: Mapping[str, Any]) -> str:
    """What tables call the training data, joined likewise."""
    trained = [stage["train"] for stage in stage_configs(config)]
    sets = (part for one in trained for part in (one, *one.get("also", ())))
    return _joined(plain_name(part["data"]) for part in sets)


def plain_name(name: str) -> str:
    """What tables call a network or a data set; `some/where/mine.py:make` is `mine`.

    Another function of that file, `mine.py:wide`, is `mine-wide`.
    """
    file, _, function = name.rpartition("/")[2].partition(".py:")
    return file if function in ("", "make") else f"{file}-{function}"


def _joined(names: Iterable[str]) -> str:
    return "+".join(name for name, _ in itertools.groupby(names))


def run_name(config: Mapping[str, Any]) -> str:
    """Names a run by algorithm, data and identity: `sagnet-shapes-1f0c77ab`."""
    return f"{algorithm_name(config)}-{train_data_name(config)}-{digest(config)}"


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Lists the identity keys in which two configs differ: `key: one != other`."""
    a, b = flatten(identity(a)), flatten(identity(b))
    absent = object()
    return [
        f"{key}: {a.get(key, 'absent')!r} != {b.get(key, 'absent')!r}"
        for key in sorted(a.keys() | b.keys())
        if a.get(key, absent) != b.get(key, absent)
    ]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested entries, empty ones among them, by dotted keys."""
    flat = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


_TYPE_NAMES: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "entries",
    type(None): "None",
}
_LISTS = (list, tuple)


def check_type(where: str, value: Any, kind: Any) -> None:
    """Refuses a value that is not of that kind, an annotation such as `int | None`."""
    if not _fits(value, kind):
        refuse(where, f"be {type_name(kind)}", value)


def check_annotations(where: str, make: Callable, given: Mapping[str, Any]) -> None:
    """Refuses options that are not of the kinds that a function's annotations say."""
    for name, parameter in inspect.signature(make).parameters.items():
        if name in given and parameter.annotation is not parameter.empty:
            check_type(f"{where}.{name}", given[name], parameter.annotation)


def check_finite(where: str, tree: Any) -> None:
    """Refuses what no config may have anywhere.

    Numbers that are not finite or of more than 64 bits, text that cannot be written or
    shown, and names of entries that are none.
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if not isinstance(key, str) or not key.isprintable():
                refuse(where, "have names as keys", key)
            check_finite(f"{where}.{key}", value)
    elif isinstance(tree, _LISTS):
        for i, value in enumerate(tree):
            check_finite(f"{where}[{i}]", value)
    elif isinstance(tree, float) and not math.isfinite(tree):
        refuse(where, "be a finite number", tree)
    elif isinstance(tree, int) and not -(2**63) <= tree < 2**63:
        raise ValueError(f"{where}: must be a number of 64 bits, got a larger one")
    elif isinstance(tree, str) and not tree.isprintable():
        refuse(where, "be text on one line", tree)


def type_name(kind: Any) -> str:
    """A kind in words."""
    words = (_TYPE_NAMES.get(_basic_type(one)) for one in _alternatives(kind))
    return " or ".join(dict.fromkeys(filter(None, words)))


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]} ..."


def _alternatives(kind: Any) -> tuple:
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def _basic_type(kind: Any) -> Any:
    """The kind of a value that an annotation means; None where it is of no config."""
    origin = type(None) if kind is None else typing.get_origin(kind) or kind
    if origin in (bool, int, float, str, type(None)):
        return origin
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict
    names = ("Sequence", "Iterable", "Collection", "list", "tuple")
    return list if getattr(origin, "__name__", "") in names else None


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of that kind; what no config holds is of any."""
    if len(several := _alternatives(kind)) > 1:
        return any(_fits(value, one) for one in several)
    plain = _basic_type(kind)
    if plain is None or type(value) not in (*_TYPE_NAMES, tuple):
        return True
    if plain is list:
        inner = {*typing.get_args(kind)} - {Ellipsis}
        each = inner.pop() if len(inner) == 1 else Any
        return isinstance(value, _LISTS) and all(_fits(one, each) for one in value)
    return type(value) in ((int, float) if plain is float else (plain,))


def load(
    named: str, changes: Sequence[str] = (), *, flag: str
) -> "ml_collections.ConfigDict":
    """Reads a config or suite `path/to/file.py:arguments`, and changes its entries.

    `jbias:NAME:arguments` is one that comes with the package (jbias/config.py).
    changes: of the flag "suite", "--suite.measures.pgd.steps=10" and the like.
    ValueError for what is not there.
    """
    import ml_collections

    if not isinstance(named, str | os.PathLike):
        refuse(f"--{flag}", "be a path or jbias:NAME", named)
    path, _, arg = resolve_preset(os.fspath(named), flag).partition(":")
    if not os.path.isfile(path):
        raise ValueError(no_such_file(flag, path))
    config = call_in_file(flag, path, "get_config", arg)
    if isinstance(config, dict):
        with _naming_entries(flag, f"--{flag}: {path}"):
            config = ml_collections.ConfigDict(config)
    if not isinstance(config, ml_collections.ConfigDict):
        raise ValueError(  # noqa: TRY004
            f"--{flag}: {path}: get_config must return an ml_collections.ConfigDict or a "
            f"dict, got {_show_value(config)}; end it with `return` and the config"
        )
    change(config, changes, flag=flag)
    return config


def no_such_file(flag: str, path: str) -> str:
    """Says which file is nearest to one that is not there."""
    folder = os.path.dirname(path) or "."
    there = os.listdir(folder) if os.path.isdir(folder) else []
    known = [one for one in there if one.endswith(".py") and one[0] != "_"]
    hint = suggest(os.path.basename(path), known) if known else "no such folder"
    ours = path.removeprefix("configs/")
    if ours != path and resources.files("jbias.configs").joinpath(ours).is_file():
        hint += f"; from anywhere: jbias:{ours.removesuffix('.py')}"
    return f"--{flag}: no file {path!r}; {hint}"


def call_in_file(flag: str, path: str, function: str, arg: str) -> Any:
    """Return what a function of a file of Python returns for the argument.

    A function without parameters is called without one. ValueError, one line, where the
    file has no such function, and for whatever goes wrong in the file's own code.
    """
    place = f"--{flag}: {path}"
    try:
        with refusing_exit(f"--{flag}", path):
            make = getattr(import_file(flag, path), function, None)
        if not callable(make):
            raise ValueError(  # noqa: TRY004
                f"{place}: must define {function}(arg)"
            )
        if inspect.signature(make).parameters:
            with refusing_exit(f"--{flag}", path):
                return make(arg)
        if arg:
            raise ValueError(f"{place}: {function} takes no arguments, got {arg!r}")
        with refusing_exit(f"--{flag}", path):
            return make()
    except OSError:
        raise
    except ImportError as error:
        raise ValueError(
            f"--{flag}: {error}; configs are found from the directory that holds them"
        ) from error
    except Exception as error:
        line = _line_of(path, error, place)
        if reason := _describe_entry_error(error, flag):
            raise ValueError(f"{line}: {reason}") from error
        if isinstance(error, ValueError) and _is_raised_by_jbias(error):
            raise
        reason = " ".join(str(error).split()).replace("ConfigDict", "config")
        if not isinstance(error, ValueError):
            hint = "JBIAS_TRACEBACK=1 shows the whole traceback"
            reason = f"{type(error).__name__}: {reason}; {hint}"
        raise ValueError(f"{line}: {reason}") from error


def _line_of(path: str, error: BaseException, place: str) -> str:
    """Return the place with the last line of the file that the error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return f"{place}:{lines[-1]}" if lines else place


def _is_raised_by_jbias(error: BaseException) -> bool:
    """Return whether the code that raised an error is of this package."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).startswith("jbias.")


def _describe_entry_error(error: BaseException, root: str) -> str:
    """Return what is wrong with an entry of a config, in one line of our own words.

    error: raised by ml_collections, such as an AttributeError of `config.optim.nosuch` or
    a TypeError of `config.optim.rate = "x"`; "" for an error of other code. root: the
    name of the whole config in the line, such as "config".
    """
    import ml_collections

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = [frame for frame in frames if _is_of_ml_collections(frame)]
    if not inside or inside[-1] is not frames[-1]:
        return ""
    if isinstance(error, TypeError) and "not supported between" in str(error):
        return f"{root}: the names of all entries must be text; correct the others"
    callers = [frame for frame in frames if not _is_of_ml_collections(frame)]
    for frame in reversed(inside):
        count = frame.f_code.co_argcount
        names = frame.f_code.co_varnames[:count]
        owner, *values = [frame.f_locals.get(x) for x in names] or [None]
        place = _place_of(owner, callers, root)
        if isinstance(owner, ml_collections.FieldReference):
            must = type_name(owner.get_type()) or "of its type"
            if isinstance(error, ml_collections.config_dict.RequiredValueError):
                return f"{place} has no value; assign {must}"
            got = f", got {_show_value(values[0])}" if values else ""
            return f"{place} must be {must}{got}; correct the value"
        if not isinstance(owner, ml_collections.ConfigDict):
            continue
        if frame.f_code.co_name in ("__setitem__", "__setattr__"):
            name, value = values
            return _describe_assignment(place, owner, name, value)
        name = values[0] if values else None
        is_missing = isinstance(error, AttributeError | KeyError)
        if is_missing and isinstance(name, str | int) and name not in owner:
            return _describe_missing(place, owner, name)
    why = " ".join(str(error).split()).replace("ConfigDict", "config")
    return f"{root}: no entry could be read or changed so ({why}); correct the line"


@contextlib.contextmanager
def _naming_entries(root: str, place: str = "") -> Iterator[None]:
    """Raise an error of ml_collections inside as a ValueError that names the entry.

    root: as of `_describe_entry_error`. place: what the line begins with.
    """
    try:
        yield
    except Exception as error:
        if reason := _describe_entry_error(error, root):
            raise ValueError(f"{place}: {reason}" if place else reason) from error
        raise


def _is_of_ml_collections(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("ml_collections.")


def _describe_assignment(place: str, owner: Any, name: Any, value: Any) -> str:
    """Return why an entry of a config could not be assigned, and what to assign."""
    import ml_collections

    entry = f"{place}.{name}"
    if isinstance(owner, ml_collections.FrozenConfigDict):
        return f"{entry} cannot be changed, as its config is frozen; assign before that"
    if not isinstance(name, str) or "." in name:
        must = "must be text without dots, as nested entries are assigned one by one"
        return f"{place}: the name of an entry {must}, got {name!r}; correct the name"
    if name not in owner:
        return f"{_describe_missing(place, owner, name)}; nothing can be added here"
    kind, old = owner.get_ref(name).get_type(), None
    with contextlib.suppress(ml_collections.config_dict.RequiredValueError):
        old = owner[name]
    is_nested = issubclass(kind, ml_collections.ConfigDict)
    must = type_name(dict if is_nested else kind) or f"of type {kind.__name__}"
    if isinstance(value, int | float) and issubclass(kind, int | float):
        must += " of 64 bits"
    if isinstance(old, ml_collections.ConfigDict):
        first = "name" if "name" in old else next(iter(old), "name")
        remedy = f"assign them one by one, such as {entry}.{first} = ..."
    elif old is None or isinstance(old, str | list | tuple) and not old:
        remedy = "correct the value"
    else:
        remedy = f"assign a value such as {_show_value(old)}"
    return f"{entry} must be {must}, got {_show_value(value)}; {remedy}"


def _describe_missing(place: str, owner: Any, name: str | int) -> str:
    """Return that a config has no entry of this name, and which it has."""
    known = [*owner.keys()]
    hint = suggest(str(name), known) if known else "it has none"
    return f"{place} has no entry {name!r}; {hint}"


def _place_of(part: Any, frames: Iterable[types.FrameType], root: str) -> str:
    """Return the place of a part of a config, such as config.optim.

    The whole config is the largest one among the variables of these frames that holds
    the part.
    """
    import ml_collections

    paths = [
        path
        for frame in frames
        for value in frame.f_locals.values()
        if isinstance(value, ml_collections.ConfigDict)
        for path in _paths_to(part, value)
    ]
    return ".".join([root, *max(paths, key=len)]) if paths else f"a part of the {root}"


def _paths_to(part: Any, whole: Any, depth: int = 8) -> Iterator[tuple[str, ...]]:
    """Yield the keys that lead from a config to a part or a reference, at most `depth`."""
    import ml_collections

    if part is whole:
        yield ()
    if depth:
        for key, value in whole.items(preserve_field_references=True):
            if value is part:
                yield (key,)
            if isinstance(value, ml_collections.FieldReference):
                with contextlib.suppress(ml_collections.config_dict.RequiredValueError):
                    value = value.get()
            if isinstance(value, ml_collections.ConfigDict):
                for path in _paths_to(part, value, depth - 1):
                    yield (key, *path)


def _show_value(value: Any) -> str:
    """Return a value as a message shows it; of other than plain values, the type alone."""
    import ml_collections

    if isinstance(value, ml_collections.ConfigDict):
        value = value.to_dict()
    if value is None or isinstance(
        value, str | int | float | set | dict | list | tuple
    ):
        return _abbreviate(value)
    return f"a value of type {type(value).__name__}"


_INDEXED = re.compile(r"([^\[\]]+)((?:\[[0-9]{1,9}\])*)")


def change(
    config: "ml_collections.ConfigDict", changes: Iterable[str], *, flag: str
) -> None:
    """Change entries of a config in place, by texts such as --config.optim.rate=0.1.

    The command line and Python read them alike, here. A text has the type of the entry
    that it replaces: see `read_value`. An entry that is True or False needs no value,
    which is then True. A suite may get entries that it lacks; a config only options of a
    function in a user's file that it names, such as algo.strength beside algo.name, which
    have the type of the function's default. ValueError names the entry, and what it must be.
    """
    import ml_collections

    if not isinstance(config, ml_collections.ConfigDict):
        refuse(flag, "be what jbias.config.load returns", config)
    texts: dict[str, str | None] = {}
    for word in _check_changes(changes, flag):
        key, equals, value = word.removeprefix(f"--{flag}.").partition("=")
        text = value if equals else None
        if key in texts and texts[key] != text:
            refuse(f"--{flag}.{key}", "be given once", word, "leave one of them out")
        texts[key] = text
    # An option is read by the function that a change beside it may name.
    for key in sorted(texts, key=lambda key: _is_beside_name(key, texts)):
        text = texts[key]
        where = f"--{flag}.{key}"
        path = _split_key(key, where)
        with _naming_entries(flag, where), config.unlocked():
            _replace(config, path, text, where=where, may_add=flag != "config")


def _is_beside_name(key: str, keys: Collection[str]) -> bool:
    """Return whether the key is an option beside a name or data that changes too."""
    part, _, entry = key.rpartition(".")
    naming = ("name", "data")
    return entry not in naming and any(f"{part}.{name}" in keys for name in naming)


def _check_changes(changes: Iterable[str], flag: str) -> list[str]:
    """Return the changes; ValueError where they are no list of texts."""
    is_list = not isinstance(changes, str | Mapping) and isinstance(changes, Iterable)
    words = [*changes] if is_list else []
    if not is_list or not all(isinstance(word, str) for word in words):
        example = f"['--{flag}.optim.rate=0.1']"
        refuse("changes", f"be a list of texts such as {example}", changes)
    return words


def _split_key(key: str, where: str) -> list[str | int]:
    """Return names and indices of a key such as `train.inputs[0].p`."""
    path: list[str | int] = []
    for name in key.split("."):
        match = _INDEXED.fullmatch(name)
        if match is None:
            refuse(
                where[:200],
                "have a key such as optim.rate or inputs[0].p, with indices in digits 0-9",
                key,
            )
        path.append(match[1])
        path += map(int, re.findall("[0-9]+", match[2]))
    return path


def _replace(
    tree: Any, path: Sequence[str | int], text: str | None, *, where: str, may_add: bool
) -> Any:
    """Return the tree with the entry at the path replaced; mappings change in place."""
    import ml_collections

    step, *further = path
    children = _children(tree)
    old = children.get(step)
    kind, remedy = type(old), ""
    if step not in children and (further or not may_add or isinstance(step, int)):
        function = _name_of_function(children)
        if may_add or further or not function:
            _refuse_entry(children, step, where=where, may_add=may_add)
        entries = children if "data" in children else ()
        option = _find_option(function, str(step), where=where, entries=entries)
        old, kind = option.default, option.kind
        if type(old) is kind is int and numerals.is_real(text or ""):
            remedy = f"write {step}={old}.0 in {function} to allow decimals"
    elif isinstance(tree, ml_collections.ConfigDict) and step in tree:
        kind = tree.get_type(step)
    if further:
        if not isinstance(old, Mapping | list | tuple | ml_collections.ConfigDict):
            shown = _abbreviate(old)
            raise ValueError(f"{where}: {step} has no entries, it is {shown}")
        new = _replace(old, further, text, where=where, may_add=may_add)
    elif text is None and kind is not bool:
        refuse(where, f"have a value: {where}=VALUE")
    else:
        text = "true" if text is None else text
        new = read_value(text, old, kind, where=where, remedy=remedy)
    if isinstance(tree, list | tuple):
        return type(tree)(new if i == step else item for i, item in enumerate(tree))
    if new is not old or step not in children:
        tree[step] = new
    return tree


def _refuse_entry(
    children: Mapping[Any, Any], step: str | int, *, where: str, may_add: bool
) -> NoReturn:
    """Raise ValueError for an entry that a part of a config lacks; say what to write."""
    known = suggest(str(step), map(str, children)) if children else "it has none"
    remedy = "" if may_add else "; flags change only what the config file has"
    name = children.get("name")
    is_preset = isinstance(name, str) and name in preset_names("config")
    if not may_add and where.startswith("--config.algo.") and is_preset:
        remedy += f", and --config={PRESET_PREFIX}{name} has the options of {name}"
    raise ValueError(f"{where}: no such entry {step!r}; {known}{remedy}")


FUNCTION_IN_FILE = re.compile(r"(?s)(?P<path>.+\.py):(?P<function>\w+)")


def _name_of_function(children: Mapping[Any, Any]) -> str:
    """Return the function of a user's file that a part of a config names, or ""."""
    data = children.get("data")
    if isinstance(data, str):
        return data if FUNCTION_IN_FILE.fullmatch(data) else ""
    name = children.get("name")
    # mine.py, mine.py: and mine:make are refused as names, whatever stands beside them.
    is_function = isinstance(name, str) and (":" in name or name.endswith(".py"))
    return name if is_function else ""


# Options that jbias passes itself, by the part of a config.
_FILLED_IN = {"algo": "columns", "model": "dtype"}


def _find_option(
    function: str, name: str, *, where: str, entries: Iterable[str]
) -> signatures.Option:
    """Return an option of a function in a user's file, such as mine.py:make.

    entries: names that a message lists beside the options. ValueError where the function
    has no such option. Where its text alone does not show all options, an unknown option
    has no known type, and is checked when the file runs.
    """
    part = where.rpartition(".")[0].rpartition(".")[2]
    path, _, defined = function.rpartition(":")
    # An input transform has options alone; others take a network, classes or a split first.
    positional = 0 if part == "mix" or part.startswith("inputs[") else 1
    signature = signatures.read(path, defined, positional=positional)
    options = dict(signature.options)
    filled_in = _FILLED_IN.get(part, "")
    options.pop(filled_in, None)
    if name == filled_in or name not in options and signature.is_complete:
        known = suggest(name, {*options, *entries})
        raise ValueError(f"{where}: {function} has no option {name!r}; {known}")
    return options.get(name, signatures.UNKNOWN_OPTION)


def _children(tree: Any) -> dict[Any, Any]:
    """Return the entries of a mapping by name, or those of a list by number."""
    return dict(enumerate(tree) if isinstance(tree, list | tuple) else tree.items())


def read_value(text: str, old: Any, kind: type, *, where: str, remedy: str = "") -> Any:
    """Return the value that a text says, of the type of the value that it replaces.

    old: that value. kind: its type, which may be known where it is None. Text is taken as
    it is, without quotes around it; a number is decimal, without underscores; True and
    False may be lower case, 1 or 0; a list is a literal of Python, with its brackets. None is
    None, but for text. What replaces None without a type is a literal of Python, else text.
    Numbers inside literals are decimal and finite, too. remedy: what to do for another text.
    """
    value = parse_value(text)
    plain = text.strip()
    is_list = issubclass(kind, list | tuple)
    if kind is str:
        is_quoted = isinstance(value, str) and plain[:1] in ("'", '"')
        return value if is_quoted else text
    if value is None:
        return None
    if kind not in (bool, int, float) and _literal(text) is not _NOT_SAID:
        check_numbers(where, plain)
    if kind is bool:
        value = _WORDS.get(plain.lower())
    elif kind is int:
        value = _read_number(numerals.whole, plain)
    elif kind is float:
        value = _read_number(numerals.real, plain)
    elif is_list:
        value = kind(value) if isinstance(value, list | tuple) else None
    elif not isinstance(old, str | int | float | type(None)):  # A mapping.
        value = value if isinstance(value, dict) else None
    if value is None:
        if is_list:
            remedy = _list_remedy(text, old or (), where)
        refuse(where, f"be {_described(kind)}", _Bare(text), remedy)
    return value


_WORDS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}


class _Bare(str):
    """A text that a message shows in quotes, or as nothing."""

    def __repr__(self) -> str:
        return super().__repr__() if self else "nothing"


def _described(kind: type) -> str:
    if issubclass(kind, list | tuple):
        return "a list such as (0, 1)"
    if kind is int:
        return "a whole number such as 1000, in digits alone"
    if kind is float:
        return "a finite number such as 0.001 or 1e-3, without _"
    if kind is bool:
        return "True or False"
    return "entries such as {'name': 'sgd'}"


def _list_remedy(text: str, old: Sequence[Any], where: str) -> str:
    """Return how to write a list of this text alone; "" where that is no entry of one."""
    value = parse_value(text)
    is_text = isinstance(value, str)
    if (
        not text
        or text[0] in "([{"
        or is_text
        and not all(isinstance(x, str) for x in old)
    ):
        return ""
    remedy = f"write ({value!r},) for {value!r} alone"
    if where.endswith(".seeds") and type(value) is int:
        remedy += f", or --config=NAME:seeds={value} for the first {value} seeds"
    return remedy


def _read_number(read: Callable[[str], float], text: str) -> float | None:
    """Return the number that a reader of `numerals` finds in a text; None if it is none."""
    try:
        return read(text)
    except ValueError:
        return None


def check_numbers(where: str, text: str) -> None:
    """Raise ValueError if a literal has a number such as 50_63, 0x10 or 1e400."""
    if number := numerals.ambiguous(text):
        must = "have numbers in plain digits, such as 1000 or 1e-3"
        refuse(where, must, number, "correct it, or put text in quotes")


def parse_value(text: str) -> Any:
    """Return the literal of Python that a text is; the text itself where it is none.

    Numbers such as 50_63, 0x10 or 1e400, complex numbers, bytes and sets are no values of
    configs and stay text. true and false are read as True and False.
    """
    if text in ("true", "false"):
        return text == "true"
    value = _literal(text)
    return text if value is _NOT_SAID or numerals.ambiguous(text.strip()) else value


def _literal(text: str) -> Any:
    """Return the literal of Python that a text is, of a config's types; else _NOT_SAID."""
    try:
        value = ast.literal_eval(parse_expression(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _NOT_SAID
    return value if _is_plain(value) else _NOT_SAID


def parse_expression(text: str) -> ast.Expression:
    """Return the syntax tree of an expression, as ast.parse does, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval")


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(x) for key, x in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int | float)


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compile a file from its text, never from cached bytecode.

    Python takes cached bytecode as current where the file's size and second of change are
    the same, so that a file edited twice within a second could run in its old version.
    """

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(name: str, path: str) -> Any:
    """Run a file of Python and return what it defines.

    Whatever its code raises passes, SystemExit included: see `refusing_exit`.
    """
    if not path.endswith(".py"):
        refuse(f"--{name}", "be a file of Python, *.py", path)
    loader = _SourceLoader(f"{name}_of_the_user", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    loader.exec_module(module)
    return module


@contextlib.contextmanager
def refusing_exit(where: str, path: str) -> Iterator[None]:
    """Raise ValueError where the code of a file ends the program, by sys.exit(0) or the like.

    Else a command would end with exit code 0 and nothing done. os._exit(0) ends the program
    at once, here with exit code 1 and a line.
    """
    try:
        with messages.failing_exit(path):
            yield
    except SystemExit as error:
        line = _line_of(path, error, f"{where}: {path}")
        raise ValueError(
            f"{line}: calls sys.exit({error.code!r}); remove that, or raise a ValueError "
            "that says what is wrong"
        ) from error


PRESET_PREFIX = "jbias:"
_PRESETS = pathlib.Path(str(resources.files("jbias.configs")))


def preset_names(flag: str) -> list[str]:
    """What --<flag>=jbias:NAME knows: files that define get_<what the flag reads>."""
    folder, function = _PRESET_KINDS[flag]
    found = [
        path.relative_to(_PRESETS).with_suffix("")
        for path in sorted((_PRESETS / folder).rglob("*.py"))
        if function in path.read_text("utf-8")
    ]
    return [x.as_posix() for x in found if (flag, x.parts[0]) != ("config", "suites")]


_PRESET_KINDS = {
    "config": ("", "\ndef get_config("),
    "suite": ("suites", "\ndef get_config("),
    "sweep": ("sweeps", "\ndef get_sweep("),
    "zoo": ("", "\ndef is_head("),
}
PRESET_FLAGS = _PRESET_KINDS.keys()  # Which take jbias:NAME.


def resolve_preset(named: str, flag: str) -> str:
    """`jbias:NAME:ARGUMENTS` as `path/to/NAME.py:ARGUMENTS`; a path stays what it is.

    ValueError, with the nearest name or with all, for one that is not there.
    """
    if not named.startswith(PRESET_PREFIX):
        return named
    name, colon, arguments = named.removeprefix(PRESET_PREFIX).partition(":")
    known, where = preset_names(flag), f"--{flag}"
    if name not in known:
        lacking = f"no preset {PRESET_PREFIX}{name}; {suggest(name, known)}"
        listed = f"after {PRESET_PREFIX} name one of {', '.join(known)}"
        raise ValueError(f"{where}: {lacking if name else listed}")
    return f"{_PRESETS.joinpath(*name.split('/'))}.py{colon}{arguments}"


def check(flags: Mapping[str, Any]) -> None:
    """ValueError where one of a command's flags names a preset that is not there."""
    for flag in PRESET_FLAGS & flags.keys():
        given = flags[flag] or ()
        for named in (given,) if isinstance(given, str) else given:
            resolve_preset(named, flag)


def split_changes(
    arguments: Iterable[str], *, flag: str
) -> tuple[list[str], list[str]]:
    """Return the arguments without changes of the flag's entries, and these changes.

    `--config.KEY VALUE` becomes --config.KEY=VALUE; one dash does for two, and
    --noconfig.KEY is --config.KEY=False. After "--" nothing is a change.
    """
    others: list[str] = []
    changes: list[str] = []
    words = iter(arguments)
    pending = ""  # A change whose value may be the next word.
    for word in words:
        dashes = re.match("--?", word)
        name = word[dashes.end() :] if dashes else ""
        if pending and not word.startswith("--"):
            changes[-1] = f"{pending}={word}"
            pending = ""
            continue
        pending = ""
        if word == "--":
            return [*others, word, *words], changes
        if name.startswith(f"no{flag}.") and "=" not in name:
            changes.append(f"--{name.removeprefix('no')}=False")
        elif name.startswith(f"{flag}."):
            changes.append(f"--{name}")
            pending = "" if "=" in name else f"--{name}"
        else:
            others.append(word)
    return others, changes
