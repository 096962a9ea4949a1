"""Functions that load configs, change their entries, check their types, and name runs.

`path/to/file.py:arguments` names a config: get_config(arguments) of that file returns an
ml_collections.ConfigDict. Configs of the package have names that work wherever it is
installed: `jbias:sagnet:demo,seeds=2` is configs/sagnet.py with these arguments, and
`jbias:suites/biases` is configs/suites/biases.py.

Values of entries are text, numbers, booleans, None, lists and mappings. Their types are
checked against the annotations of RunSpec and of the functions that take them; annotations
with other types accept any value.
"""

import ast
import contextlib
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
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NoReturn

from jbias import errors, numerals, signatures
from jbias.runtime import messages

_DURATION = re.compile(r"\s*([0-9.eE+-]+)\s*(steps?|epochs?|percent|%)\s*")

STAGE_KEYS = ("algo", "train", "inputs", "optim", "epochs")

_NOT_SAID = object()


def parse_arg(
    arg: str, where: str = "config argument", /, **defaults: Any
) -> types.SimpleNamespace:
    """Return the values in a text such as `a=1,b=x,flag`, as attributes of a namespace.

    where: start of error messages. defaults: value of each name that the text leaves out;
    given values have the types of the defaults. A name without a value sets a boolean to
    True. ValueError for an unknown name (with the nearest known name) and for a value of
    another type.
    """
    values = dict(defaults)
    for item in filter(None, (arg or "").split(",")):
        name, equals, text = item.partition("=")
        if name not in defaults and numerals.is_real(name):
            raise ValueError(
                f"{where}: several values are joined by +, arguments by commas, "
                f"got {name!r} as an argument"
            )
        errors.check_known(where, name, defaults)
        place = f"{where}: {name}"
        values[name] = _convert(place, text if equals else None, defaults[name])
    return types.SimpleNamespace(**values)


def explicit_arguments(arg: str) -> set[str]:
    """Return the names of the arguments in a text such as "a=1,flag"."""
    items = (arg or "").split(",")
    return {item.partition("=")[0] for item in items if item}


def check_applicable(
    arg: str,
    data: str,
    everywhere: Collection[str],
    used: Mapping[str, Collection[str]],
    where: str = "config argument",
) -> None:
    """Raise ValueError for arguments that the chosen data set does not use.

    arg: text of the arguments, such as "data=pacs,style=photo". data: name of the chosen data
    set. everywhere: names of the arguments that all data sets use. used: names of further
    arguments by data set. where: start of the error message.
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
    """Return a text converted to the type of the default; ValueError if that is impossible.

    where: start of the error message, ending with the argument's name. text: None if the
    argument has no value; this is True for a boolean.
    """
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
    """Return the number of steps, at least 1, of a duration.

    duration: "500 steps", "2 epochs" or "10 %" (of `total` steps). where: start of the error
    message. ValueError for other texts.
    """
    match = _DURATION.fullmatch(str(duration))
    if match is None or not numerals.is_real(match[1]):
        errors.refuse(where, "be like '500 steps', '1 epoch' or '10 %'", duration)
    if not 0 < float(match[1]) < math.inf:
        errors.refuse(where, "be positive and finite", duration)
    percent = total / 100
    steps_per_unit = {"s": 1, "e": steps_per_epoch, "p": percent, "%": percent}
    return max(1, round(float(match[1]) * steps_per_unit[match[2][0]]))


def to_dict(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config as nested dicts, as if written to JSON and read again.

    Tuples become lists, and references their values. Entries of `fix` that are None, and an empty
    `fix`, are left out. ValueError for values that JSON cannot write.
    """
    import ml_collections  # Imported here: it is slow to import, and --help needs no config.

    entries: Any = config  # A ConfigDict is a Mapping in all but its type.
    if isinstance(config, ml_collections.ConfigDict):
        with _naming_entries("config"):
            entries = entries.to_dict()
    try:
        plain = json.loads(json.dumps(dict(entries)))
    except (TypeError, ValueError) as error:  # A set, a function, an array; a cycle.
        _refuse_unwritable("config", dict(entries))
        raise ValueError(f"config: must hold what JSON has; {error}") from error
    fix = plain.get("fix")
    if isinstance(fix, dict):
        plain["fix"] = {
            source: seed for source, seed in fix.items() if seed is not None
        }
        if not plain["fix"]:
            del plain["fix"]  # Configs written before `fix` existed keep their digests.
    return plain


def _refuse_unwritable(where: str, tree: Any) -> None:
    """Raise ValueError for the first value in a tree that JSON cannot write, such as a set.

    where: name of the tree, such as "config".
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            _refuse_unwritable(f"{where}.{key}", value)
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            _refuse_unwritable(f"{where}[{i}]", value)
    elif not (tree is None or isinstance(tree, str | int | float)):
        must = "be text, a number, True or False, None, a list or entries"
        raise ValueError(f"{where}: must {must}, got {_show_value(tree)}")


def stage_configs(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the config of each stage: the whole config with the stage's entries replaced.

    A stage may replace algo, train, inputs, optim and epochs; ValueError for other keys. A
    config without stages has one stage.
    """
    common = {key: value for key, value in config.items() if key != "stages"}
    stages = [dict(stage) for stage in config.get("stages") or [{}]]
    for i, stage in enumerate(stages):
        errors.check_all_known(f"config.stages[{i}]", stage, STAGE_KEYS, "key")
    return [{**common, **stage} for stage in stages]


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a config on which a run's scores depend.

    The result has all entries of `to_dict` except config.run, the label, rollback and sharpness if
    they are off, and the folders of data: a resumed run compares fingerprints of the data instead.
    """
    entries = without_places(to_dict(config))
    if not (entries.get("rollback") or {}).get("times"):
        # Off. Runs started before rollback existed have no such entry.
        entries.pop("rollback", None)
    for part in (entries, *(entries.get("stages") or ())):
        _drop_unused_sharpness(part)
    return {key: entries[key] for key in entries if key not in ("run", "label")}


def _drop_unused_sharpness(part: dict[str, Any]) -> None:
    """Remove optim.sharpness from a config or stage, in place, if SAM and ASAM are off.

    Runs started before sharpness existed have no such entry.
    """
    optim = part.get("optim")
    sharpness = optim.get("sharpness") if isinstance(optim, dict) else None
    if isinstance(sharpness, dict) and not any(
        sharpness.get(name) for name in ("radius", "adaptive")
    ):
        del optim["sharpness"]


def without_places(tree: Any) -> Any:
    """Return a copy of a tree of config entries without folders of data (`is_place`)."""
    if isinstance(tree, dict):
        return {
            key: without_places(value)
            for key, value in tree.items()
            if not is_place(key, value)
        }
    return [*map(without_places, tree)] if isinstance(tree, list) else tree


def is_place(key: str, value: Any) -> bool:
    """Return True if a config entry is the folder of a data set.

    Such an entry has the key "root", and its value is neither a mapping (then "root" is the name of
    a data set) nor a number. key, value: of the entry.
    """
    return key == "root" and not isinstance(value, Mapping | int | float)


def digest(config: Mapping[str, Any]) -> str:
    """Return the first eight hexadecimal digits of the SHA-256 of a config's `identity`."""
    text = json.dumps(identity(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def algorithm_name(config: Mapping[str, Any]) -> str:
    """Return the algorithm's name in tables; `some/where/mine.py:make` is `mine`.

    Different algorithms of several stages are joined: `infodrop+erm`.
    """
    names = [stage["algo"]["name"] for stage in stage_configs(config)]
    return _join_distinct(
        name.rpartition("/")[2].partition(".py:")[0] for name in names
    )


def train_data_name(config: Mapping[str, Any]) -> str:
    """Return the training data's name in tables; different sets are joined by +."""
    names = []
    for stage in stage_configs(config):
        train = stage["train"]
        for options in (train, *train.get("also", ())):
            names.append(plain_name(options["data"]))
    return _join_distinct(names)


def plain_name(name: str) -> str:
    """Return the name of a network or data set as tables show it.

    `some/where/mine.py:make` is `mine`, another function `mine.py:wide` is `mine-wide`.
    """
    file, _, function = name.rpartition("/")[2].partition(".py:")
    return file if function in ("", "make") else f"{file}-{function}"


def _join_distinct(names: Iterable[str]) -> str:
    """Return the names joined by +, without repetitions of the preceding name."""
    return "+".join(name for name, _ in itertools.groupby(names))


def run_name(config: Mapping[str, Any]) -> str:
    """Return the run's name from algorithm, data and digest: `sagnet-shapes-1f0c77ab`."""
    return f"{algorithm_name(config)}-{train_data_name(config)}-{digest(config)}"


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return the differences of two configs' identities as lines `key: old != new`.

    a, b: the old and the new config. Lines are sorted by their dotted keys; values are printed as
    their repr, or as "absent" where a config has no such entry.
    """
    a, b = flatten(identity(a)), flatten(identity(b))
    absent = object()
    return [
        f"{key}: {_show_entry(a, key)} != {_show_entry(b, key)}"
        for key in sorted(a.keys() | b.keys())
        if a.get(key, absent) != b.get(key, absent)
    ]


def _show_entry(flat: Mapping[str, Any], key: str) -> str:
    """Return the repr of an entry of a flattened config; "absent" without the entry."""
    return repr(flat[key]) if key in flat else "absent"


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted keys, such as "optim.rate".

    prefix: put before each key. An empty mapping is a leaf.
    """
    flat = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def check_finite(where: str, tree: Any) -> None:
    """Raise ValueError for values that no config may contain, at any depth.

    where: name of the tree for the message, such as "config".
    Such values are numbers that are not finite or need more than 64 bits, text with line breaks
    or control characters, and keys that are not printable text.
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if not isinstance(key, str) or not key.isprintable():
                errors.refuse(where, "have names as keys", key)
            check_finite(f"{where}.{key}", value)
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            check_finite(f"{where}[{i}]", value)
    elif isinstance(tree, float) and not math.isfinite(tree):
        errors.refuse(where, "be a finite number", tree)
    elif isinstance(tree, int) and not -(2**63) <= tree < 2**63:
        raise ValueError(f"{where}: must be a number of 64 bits, got a larger one")
    elif isinstance(tree, str) and not tree.isprintable():
        errors.refuse(where, "be text on one line", tree)


def load(
    name: str, changes: Sequence[str] = (), *, flag: str = "config"
) -> "ml_collections.ConfigDict":
    """Return a config or a suite from its file, with some of its entries changed.

    name: `path/to/file.py:arguments`, or `jbias:NAME:arguments` for a file of the package.
    changes: texts such as "--suite.measures.pgd.steps=10", see `change`. flag: "config" or
    "suite", for messages and as the prefix of changes. ValueError if the file does not exist,
    if its code raises an error (an OSError is raised unchanged), if get_config returns neither
    a ConfigDict nor a dict, and for a wrong change.
    """
    import ml_collections

    if not isinstance(name, str | os.PathLike):
        errors.refuse(f"--{flag}", "be a path or jbias:NAME", name)
    path, _, arg = resolve_preset(os.fspath(name), flag).partition(":")
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
    """Return the message that a file does not exist, with the nearest file or preset.

    flag: "config" or "suite".
    """
    folder = os.path.dirname(path) or "."
    files = os.listdir(folder) if os.path.isdir(folder) else []
    known = [file for file in files if file.endswith(".py") and file[0] != "_"]
    hint = errors.suggest(os.path.basename(path), known) if known else "no such folder"
    preset = path.removeprefix("configs/")
    if path in preset_names(flag):
        hint = f"the preset of this name is {PRESET_PREFIX}{path}"
    if preset != path and resources.files("jbias.configs").joinpath(preset).is_file():
        hint += f"; from anywhere: jbias:{preset.removesuffix('.py')}"
    return f"--{flag}: no file {path!r}; {hint}"


def call_in_file(flag: str, path: str, function: str, arg: str) -> Any:
    """Call a function of a Python file with the text `arg` and return its result.

    flag: name of the flag, for messages. path: path of the file. function: name of the function. A
    function without parameters is called without the argument; then a non-empty `arg` is an error.
    ValueError of one line if the file has no such function, and for any error in the file's
    code except an OSError, which is raised unchanged.
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
        entry_error = _describe_entry_error(error, flag)
        if entry_error:
            raise ValueError(f"{line}: {entry_error}") from error
        if isinstance(error, ValueError) and _is_raised_by_jbias(error):
            raise
        reason = " ".join(str(error).split()).replace("ConfigDict", "config")
        if not isinstance(error, ValueError):
            hint = "JBIAS_TRACEBACK=1 shows the whole traceback"
            reason = f"{type(error).__name__}: {reason}; {hint}"
        raise ValueError(f"{line}: {reason}") from error


def _line_of(path: str, error: BaseException, place: str) -> str:
    """Return `place` followed by the last line of a file in a traceback, as "place:12".

    Without a line of the file in the traceback, return `place`. path: the file. error: the
    exception. place: usually the file's name.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return f"{place}:{lines[-1]}" if lines else place


def _is_raised_by_jbias(error: BaseException) -> bool:
    """Return True if the error was raised by code of this package."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).startswith("jbias.")


def _describe_entry_error(error: BaseException, root: str) -> str:
    """Return one line about an error that ml_collections raised, "" for other errors.

    error: such as an AttributeError from `config.optim.nosuch` or a TypeError from
    `config.optim.rate = "x"`. root: name of the whole config in the line, such as "config".
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
        parameters = frame.f_code.co_varnames[:count]
        owner, *values = [frame.f_locals.get(name) for name in parameters] or [None]
        place = _place_of(owner, callers, root)
        if isinstance(owner, ml_collections.FieldReference):
            must = errors.type_name(owner.get_type()) or "of its type"
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
    """Turn an error of ml_collections inside the context into a ValueError.

    The message names the entry of the config. Other errors are raised unchanged.

    root: name of the whole config, such as "config". place: start of the message.
    """
    try:
        yield
    except Exception as error:
        reason = _describe_entry_error(error, root)
        if reason:
            raise ValueError(f"{place}: {reason}" if place else reason) from error
        raise


def _is_of_ml_collections(frame: types.FrameType) -> bool:
    """Return True if a frame runs code of ml_collections."""
    return str(frame.f_globals.get("__name__", "")).startswith("ml_collections.")


def _describe_assignment(place: str, owner: Any, name: Any, value: Any) -> str:
    """Return the reason why an entry of a config could not be assigned, with advice.

    place: path of the part of the config, such as "config.optim". owner: the part, a ConfigDict.
    name, value: name and value of the entry.
    """
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
    must = errors.type_name(dict if is_nested else kind) or f"of type {kind.__name__}"
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
    """Return the message that a part of a config has no entry, with its entries.

    place: path of the part, such as "config.optim". owner: the part. name: name of the entry.
    """
    known = [*owner.keys()]
    hint = errors.suggest(str(name), known) if known else "it has none"
    return f"{place} has no entry {name!r}; {hint}"


def _place_of(part: Any, frames: Iterable[types.FrameType], root: str) -> str:
    """Return the dotted path of a part of a config, such as config.optim.

    The local variables of the frames are searched for a config that contains the part; if several
    contain the part, the longest path is returned. If none contains the part, the result is "a part
    of the <root>".
    root: name of the whole config.
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
    """Yield each path of at most `depth` keys from a config `whole` to the object `part`.

    Objects are compared by identity; () is yielded if `part` is `whole`.
    """
    import ml_collections

    if part is whole:
        yield ()
    if depth:
        for key, value in whole.items(preserve_field_references=True):
            is_config = isinstance(value, ml_collections.ConfigDict)
            if value is part and not is_config:
                yield (key,)
            if isinstance(value, ml_collections.FieldReference):
                with contextlib.suppress(ml_collections.config_dict.RequiredValueError):
                    value = value.get()
            if isinstance(value, ml_collections.ConfigDict):
                for path in _paths_to(part, value, depth - 1):
                    yield (key, *path)


def _show_value(value: Any) -> str:
    """Return a value as text for a message: the repr of plain data, else the type's name."""
    import ml_collections

    if isinstance(value, ml_collections.ConfigDict):
        value = value.to_dict()
    if value is None or isinstance(
        value, str | int | float | set | dict | list | tuple
    ):
        return errors.abbreviate(value)
    return f"a value of type {type(value).__name__}"


_INDEXED = re.compile(r"([^\[\]]+)((?:\[[0-9]{1,9}\])*)")


def change(
    config: "ml_collections.ConfigDict", changes: Iterable[str], *, flag: str = "config"
) -> None:
    """Change entries of a config in place, by texts such as --config.optim.rate=0.1.

    All commands and `load` change configs by this function. An item of a list is named by its
    index: stages[1].epochs, or stages.1.epochs as in config.vary.
    A text is converted to the type of the entry that it replaces (`read_value`). Without a
    value, a boolean entry becomes True. New entries are allowed in a suite. In a config only
    options of a function in a user's file may be new, such as algo.strength if algo.name is
    mine.py:make; they have the type of the function's default. flag: "config" or "suite".
    ValueError, which names the entry and its type, for a wrong change, and for two changes of
    one entry to different values.
    """
    import ml_collections

    if not isinstance(config, ml_collections.ConfigDict):
        errors.refuse(flag, "be what jbias.config.load returns", config)
    texts: dict[str, str | None] = {}
    text_of_entry: dict[str, str | None] = {}
    entry_of_key: dict[str, str] = {}
    for flag_text in _check_changes(changes, flag):
        key, equals, value = flag_text.removeprefix(f"--{flag}.").partition("=")
        text = value if equals else None
        entry = re.sub(r"\.([0-9]+)(?=\.|$)", r"[\1]", key)
        if text_of_entry.setdefault(entry, text) != text:
            place = f"--{flag}.{key}"
            errors.refuse(place, "be given once", flag_text, "leave one of them out")
        texts[key], entry_of_key[key] = text, entry

    def comes_later(key: str) -> bool:
        """Return True for options of a function that is named by another change."""
        return _is_option_of_changed_name(entry_of_key[key], text_of_entry)

    # Names first: the options of a function are known when its name is.
    for key in sorted(texts, key=comes_later):
        text = texts[key]
        where = f"--{flag}.{key}"
        path = _split_key(key, where)
        with _naming_entries(flag, where), config.unlocked():
            _replace(config, path, text, where=where, may_add=flag != "config")


def _is_option_of_changed_name(key: str, keys: Collection[str]) -> bool:
    """Return True if a change sets an option of a function whose name is changed, too.

    key: key of the change, such as "stages[0].algo.strength". keys: keys of all changes; True if
    "stages[0].algo.name" or "stages[0].algo.data", which name the function, is among them. False
    for these two keys.
    """
    part, _, entry = key.rpartition(".")
    naming = ("name", "data")
    return entry not in naming and any(f"{part}.{name}" in keys for name in naming)


def _check_changes(changes: Iterable[str], flag: str) -> list[str]:
    """Return the changes as a list; ValueError for a single text or an item that is not text.

    flag: "config" or "suite", for the message.
    """
    is_list = not isinstance(changes, str | Mapping) and isinstance(changes, Iterable)
    texts = list(changes) if is_list else []
    if not is_list or not all(isinstance(text, str) for text in texts):
        example = f"['--{flag}.optim.rate=0.1']"
        errors.refuse("changes", f"be a list of texts such as {example}", changes)
    return texts


def _split_key(key: str, where: str) -> list[str | int]:
    """Return the names and indices in a key: ["inputs", 0, "p"] for `inputs[0].p`.

    where: start of the error message. ValueError for a malformed key.
    """
    path: list[str | int] = []
    for name in key.split("."):
        match = _INDEXED.fullmatch(name)
        if match is None:
            errors.refuse(
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
    """Return the tree with the entry at a path replaced; mappings change in place.

    path: keys and indices, from the root; an index may be text. text: the new value; None: a
    boolean becomes True. where: start of the error message, such as "--config.optim.rate".
    may_add: allow new entries. ValueError for an unknown entry and a value of another type.
    """
    import ml_collections

    key, *inner_path = path
    if isinstance(tree, list | tuple) and numerals.is_count(str(key)):
        key = int(key)
    children = _children(tree)
    old = children.get(key)
    kind, remedy = type(old), ""
    if key not in children and (inner_path or not may_add or isinstance(key, int)):
        function = _name_of_function(children)
        if may_add or inner_path or not function:
            _refuse_entry(children, key, where=where, may_add=may_add)
        entries = children if "data" in children else ()
        option = _find_option(function, str(key), where=where, entries=entries)
        old, kind = option.default, option.kind
        if type(old) is kind is int and numerals.is_real(text or ""):
            remedy = f"write {key}={old}.0 in {function} to allow decimals"
    elif isinstance(tree, ml_collections.ConfigDict) and key in tree:
        kind = tree.get_type(key)
    if inner_path:
        if not isinstance(old, Mapping | list | tuple | ml_collections.ConfigDict):
            old_text = errors.abbreviate(old)
            raise ValueError(f"{where}: {key} has no entries, it is {old_text}")
        new = _replace(old, inner_path, text, where=where, may_add=may_add)
    elif text is None and kind is not bool:
        errors.refuse(where, f"have a value: {where}=VALUE")
    else:
        text = "true" if text is None else text
        new = read_value(text, old, kind, where=where, remedy=remedy)
    if isinstance(tree, list | tuple):
        return type(tree)(new if i == key else item for i, item in enumerate(tree))
    if new is not old or key not in children:
        tree[key] = new
    return tree


def _refuse_entry(
    children: Mapping[Any, Any], key: str | int, *, where: str, may_add: bool
) -> NoReturn:
    """Raise ValueError for an entry that does not exist, with the known entries.

    children: entries of the part of the config. key: key of the missing entry. where: start of the
    error message. may_add: whether new entries are allowed in this config.
    """
    known = errors.suggest(str(key), map(str, children)) if children else "it has none"
    remedy = "" if may_add else "; flags change only what the config file has"
    name = children.get("name")
    is_preset = isinstance(name, str) and name in preset_names("config")
    if not may_add and where.startswith("--config.algo.") and is_preset:
        remedy += f", and --config={PRESET_PREFIX}{name} has the options of {name}"
    raise ValueError(f"{where}: no such entry {key!r}; {known}{remedy}")


FUNCTION_IN_FILE = re.compile(r"(?s)(?P<path>.+\.py):(?P<function>\w+)")


def _name_of_function(children: Mapping[Any, Any]) -> str:
    """Return the name of the user's function in a part of a config, such as mine.py:make.

    children: the entries of the part, such as config.algo; its entry `data` or `name` has
    the function's name. "" if the part names no function of a user's file.
    """
    data = children.get("data")
    if isinstance(data, str):
        return data if FUNCTION_IN_FILE.fullmatch(data) else ""
    name = children.get("name")
    # Malformed names such as mine.py, mine.py: and mine:make are refused by RunSpec.
    is_function = isinstance(name, str) and (":" in name or name.endswith(".py"))
    return name if is_function else ""


# For parts of a config: the option that jbias sets, which a user cannot.
_FILLED_IN = {"algo": "columns", "model": "dtype"}


def _find_option(
    function: str, name: str, *, where: str, entries: Iterable[str]
) -> signatures.Option:
    """Return an option of a function in a user's file: its type and default.

    function: such as mine.py:make. name: name of the option. where: start of the error message,
    such as "--config.algo.strength". entries: further known names, for the message.
    ValueError if the function has no such option. If the file's text does not show all
    options (as with **options), an unknown option has no type, and is checked when the file
    runs.
    """
    part = where.rpartition(".")[0].rpartition(".")[2]
    path, _, defined = function.rpartition(":")
    # Functions of input transforms take only options; others first take a network, classes
    # or a split.
    positional = 0 if part == "mix" or part.startswith("inputs[") else 1
    signature = signatures.read(path, defined, positional=positional)
    options = dict(signature.options)
    filled_in = _FILLED_IN.get(part, "")
    options.pop(filled_in, None)
    if name == filled_in or name not in options and signature.is_complete:
        known = errors.suggest(name, {*options, *entries})
        raise ValueError(f"{where}: {function} has no option {name!r}; {known}")
    return options.get(name, signatures.UNKNOWN_OPTION)


def _children(tree: Any) -> dict[Any, Any]:
    """Return the entries of a mapping by name, or the items of a list by index."""
    return dict(enumerate(tree) if isinstance(tree, list | tuple) else tree.items())


def read_value(text: str, old: Any, kind: type, *, where: str, remedy: str = "") -> Any:
    """Return a text converted to the type of the value that it replaces.

    old: the old value. kind: its type, which may be known even for the value None. where:
    start of the error message. remedy: end of the message for a text of another type.

    Text is used as it is, without quotes around it. Numbers are decimal, without
    underscores. Booleans are true or false in any case, 1 or 0. Lists are Python literals
    with brackets, and are converted to `kind`, a list or a tuple. Mappings are literals, too.
    The text "None" becomes None unless `kind` is text. For an old value None of unknown `kind`,
    the result is the Python literal in the text, or else the text. Numbers inside literals must
    be decimal and finite. ValueError for other texts.
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
        errors.refuse(
            where, f"be {_describe_type(kind)}", text or errors.Words("nothing"), remedy
        )
    return value


_WORDS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}


def _describe_type(kind: type) -> str:
    """Return a type in words with an example, for messages.

    Types other than list, tuple, int, float and bool are described as entries, a mapping.
    """
    if issubclass(kind, list | tuple):
        return "a list such as (0, 1)"
    if kind is int:
        return "a whole number such as 1000, in digits only"
    if kind is float:
        return "a finite number such as 0.001 or 1e-3, without _"
    if kind is bool:
        return "True or False"
    return "entries such as {'name': 'sgd'}"


def _list_remedy(text: str, old: Sequence[Any], where: str) -> str:
    """Return advice to write a list with a text as its only item, such as ('a',).

    text: the wrong value. old: the list that it replaces. where: name of the flag; for seeds,
    the advice also names the argument seeds=N. "" if the text is empty, starts with a bracket,
    or cannot be an item of such a list.
    """
    value = parse_value(text)
    if not text or text[0] in "([{":
        return ""
    if isinstance(value, str) and not all(isinstance(item, str) for item in old):
        return ""
    if where.endswith(".seeds") and type(value) is int:
        return seeds_remedy(value, where)
    return f"write ({value!r},) for a list of only {value!r}"


def seeds_remedy(number: int, where: str) -> str:
    """Return advice for a number that is given for the list config.seeds.

    where: name of the entry, such as "--config.seeds". The number could mean one seed, or how
    many seeds.
    """
    if number < 0:
        return f"write {where}=(0, 1) for seeds 0 and 1"
    one_seed = f"write {where}=({number},) for seed number {number}"
    if number < 1:
        return one_seed
    seeds = "one seed" if number == 1 else f"{number} seeds"
    return f"{one_seed}, or --config=NAME:seeds={number} for {seeds}"


def _read_number(read: Callable[[str], float], text: str) -> float | None:
    """Return the number in a text; None if `read`, a function of `numerals`, refuses it."""
    try:
        return read(text)
    except ValueError:
        return None


def check_numbers(where: str, text: str) -> None:
    """Raise ValueError if a literal contains a number such as 50_63, 0x10 or 1e400.

    where: start of the error message. text: the literal.
    """
    number = numerals.ambiguous(text)
    if number:
        must = "have numbers in plain digits, such as 1000 or 1e-3"
        errors.refuse(where, must, number, "correct it, or put text in quotes")


def parse_value(text: str) -> Any:
    """Return the value of a Python literal; the text itself if it is not a literal.

    Numbers such as 50_63, 0x10 or 1e400, complex numbers, bytes and sets are not values of
    configs and stay text. true and false are True and False.
    """
    if text in ("true", "false"):
        return text == "true"
    value = _literal(text)
    return text if value is _NOT_SAID or numerals.ambiguous(text.strip()) else value


def _literal(text: str) -> Any:
    """Return the value of a Python literal; _NOT_SAID unless configs may have the value."""
    try:
        value = ast.literal_eval(parse_expression(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _NOT_SAID
    return value if _is_plain(value) else _NOT_SAID


def parse_expression(text: str) -> ast.Expression:
    """Return the syntax tree of an expression, without the warnings of ast.parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval")


def _is_plain(value: Any) -> bool:
    """Return True if a value consists of the types that configs have, with text as keys."""
    if isinstance(value, dict):
        return all(
            isinstance(key, str) and _is_plain(item) for key, item in value.items()
        )
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int | float)


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """A loader that compiles a file from its text, never from cached bytecode.

    Python uses cached bytecode if the file's size and its second of modification are
    unchanged, so a file edited twice within a second could run in its old version.
    """

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(name: str, path: str) -> Any:
    """Run a Python file and return its module, also if the file was run before.

    name: start of the module's name, and the flag in the error message. Errors in the file's
    code are raised unchanged, also SystemExit: see `refusing_exit`. ValueError unless `path`
    ends with .py.
    """
    if not path.endswith(".py"):
        errors.refuse(f"--{name}", "be a Python file, *.py", path)
    loader = _SourceLoader(f"{name}_of_the_user", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    loader.exec_module(module)
    return module


@contextlib.contextmanager
def refusing_exit(where: str, path: str) -> Iterator[None]:
    """Raise ValueError if a file's code inside the context ends the program.

    Otherwise sys.exit(0) in the file would end a command with exit code 0 before any work.
    os._exit(0) cannot be caught; it ends the program with exit code 1 and a message. where: start
    of the error message. path: path of the file.
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
    """Return the sorted values of NAME in --<flag>=jbias:NAME, such as "erm" or "suites/biases".

    flag: one of PRESET_FLAGS. Only files that define the function of the flag, such as get_config,
    are listed. Suites are left out for "config".
    """
    folder, function = _PRESET_KINDS[flag]
    names = []
    for path in sorted((_PRESETS / folder).rglob("*.py")):
        name = path.relative_to(_PRESETS).with_suffix("")
        is_suite = name.parts[0] == "suites"
        if function in path.read_text("utf-8") and not (flag == "config" and is_suite):
            names.append(name.as_posix())
    return names


# For each flag: the folder of its presets, and the function that a file must define.
_PRESET_KINDS = {
    "config": ("", "\ndef get_config("),
    "suite": ("suites", "\ndef get_config("),
    "sweep": ("sweeps", "\ndef get_sweep("),
    "zoo": ("", "\ndef is_head("),
}
PRESET_FLAGS = _PRESET_KINDS.keys()  # Flags that accept jbias:NAME.


def resolve_preset(value: str, flag: str) -> str:
    """Return `path/to/NAME.py:ARGUMENTS` for a value `jbias:NAME:ARGUMENTS`.

    Other values are returned unchanged. flag: one of PRESET_FLAGS. ValueError, with the
    nearest known name or a list, for an unknown NAME.
    """
    if not value.startswith(PRESET_PREFIX):
        return value
    name, colon, arguments = value.removeprefix(PRESET_PREFIX).partition(":")
    known = preset_names(flag)
    if not name:
        names = ", ".join(known)
        raise ValueError(f"--{flag}: after {PRESET_PREFIX} name one of {names}")
    if name not in known:
        hint = errors.suggest(name, known)
        raise ValueError(f"--{flag}: no preset {PRESET_PREFIX}{name}; {hint}")
    return f"{_PRESETS.joinpath(*name.split('/'))}.py{colon}{arguments}"


def check(flags: Mapping[str, Any]) -> None:
    """Raise ValueError if one of a command's flags names an unknown preset.

    flags: values by name of the argument, such as {"config": "jbias:sagnet"}; a value is a
    text, a list of texts, or None.
    """
    for flag in PRESET_FLAGS & flags.keys():
        values = flags[flag] or ()
        if isinstance(values, str):
            values = (values,)
        for value in values:
            resolve_preset(value, flag)


def split_changes(
    arguments: Iterable[str], *, flag: str
) -> tuple[list[str], list[str]]:
    """Return (other arguments, changes); changes have the form --<flag>.KEY=VALUE.

    flag: "config" or "suite". `--config.KEY VALUE` becomes --config.KEY=VALUE, and
    --noconfig.KEY becomes --config.KEY=False; one dash is accepted for two. A KEY without a
    value stays --config.KEY. "--" and all arguments after it are other arguments.
    """
    other_arguments: list[str] = []
    changes: list[str] = []
    remaining = iter(arguments)
    pending = ""  # A change whose value may be the next argument.
    for argument in remaining:
        dashes = re.match("--?", argument)
        name = argument[dashes.end() :] if dashes else ""
        if pending and not argument.startswith("--"):
            changes[-1] = f"{pending}={argument}"
            pending = ""
            continue
        pending = ""
        if argument == "--":
            return [*other_arguments, argument, *remaining], changes
        if name.startswith(f"no{flag}.") and "=" not in name:
            changes.append(f"--{name.removeprefix('no')}=False")
        elif name.startswith(f"{flag}."):
            changes.append(f"--{name}")
            pending = "" if "=" in name else f"--{name}"
        else:
            other_arguments.append(argument)
    return other_arguments, changes
