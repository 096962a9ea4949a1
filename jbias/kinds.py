"""What kind of value stands where: entries of a config, and options of a function.

A function's own annotations say what it takes. Values are those of a config: text,
numbers, yes or no, nothing, lists and entries; what is none of these passes.
"""

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

_WORDS: Mapping[Any, str] = types.MappingProxyType(
    {
        bool: "True or False",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "entries",
        type(None): "None",
    }
)
_LISTS = (list, tuple)
_LARGEST = 2**63


def check(where: str, value: Any, kind: Any) -> None:
    """Refuses a value that is not of that kind, an annotation such as `int | None`."""
    if not _fits(value, kind):
        raise ValueError(f"{where}: must be {told(kind)}, got {_shown(value)}")


def options(where: str, make: Callable, given: Mapping[str, Any]) -> None:
    """Refuses options that are not of the kinds that a function's annotations say."""
    for name, parameter in inspect.signature(make).parameters.items():
        if name in given and parameter.annotation is not parameter.empty:
            check(f"{where}.{name}", given[name], parameter.annotation)


def sound(where: str, tree: Any) -> None:
    """Refuses what no config may have anywhere.

    Numbers that are not finite or of more than 64 bits, text that cannot be written or
    shown, and names of entries that are none.
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if not isinstance(key, str) or not key.isprintable():
                raise ValueError(f"{where}: must have names as keys, got {_shown(key)}")
            sound(f"{where}.{key}", value)
    elif isinstance(tree, _LISTS):
        for i, value in enumerate(tree):
            sound(f"{where}[{i}]", value)
    elif isinstance(tree, float) and not math.isfinite(tree):
        raise ValueError(f"{where}: must be a finite number, got {tree}")
    elif isinstance(tree, int) and not -_LARGEST <= tree < _LARGEST:
        raise ValueError(f"{where}: must be a number of 64 bits, got a larger one")
    elif isinstance(tree, str) and not tree.isprintable():
        raise ValueError(f"{where}: must be text on one line, got {_shown(tree)}")


def told(kind: Any) -> str:
    """A kind in words."""
    kinds = [_plain(one) for one in _alternatives(kind)]
    return " or ".join(dict.fromkeys(_WORDS[one] for one in kinds if one in _WORDS))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]} ..."


def _alternatives(kind: Any) -> tuple:
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def _plain(kind: Any) -> Any:
    """The kind of a value that an annotation means; None where it is of no config."""
    if kind is None:
        return type(None)
    origin = typing.get_origin(kind) or kind
    if origin in (bool, int, float, str, type(None)):
        return origin
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict
    names = ("Sequence", "Iterable", "Collection", "list", "tuple")
    return list if getattr(origin, "__name__", "") in names else None


def _fits(value: Any, kind: Any) -> bool:
    if type(value) not in (*_WORDS, tuple):
        return True
    return any(_is(value, one) for one in _alternatives(kind))


def _is(value: Any, kind: Any) -> bool:
    plain = _plain(kind)
    if plain is None:
        return True
    if plain is list:
        inner = [one for one in typing.get_args(kind) if one is not Ellipsis]
        each = inner[0] if len(set(inner)) == 1 else Any
        return isinstance(value, _LISTS) and all(_fits(one, each) for one in value)
    if plain is float:
        return type(value) in (int, float)
    return isinstance(value, Mapping) if plain is dict else type(value) is plain
