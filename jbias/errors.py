"""Functions that check values from callers and build the messages of errors about them.

A message is one line: `WHERE: must MUST, got VALUE; REMEDY`. WHERE names the place that the
reader can change, such as "config.optim.rate" or "--out". All checks raise ValueError.
"""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

_NOT_GIVEN = object()


def refuse(where: str, must: str, got: Any = _NOT_GIVEN, remedy: str = "") -> NoReturn:
    """Raise ValueError(`where: must MUST, got GOT; REMEDY`).

    where: start of the message, such as "config.optim.rate". must: the requirement, such as
    "be positive". got: the wrong value; left out if not given. remedy: advice, may be "".
    """
    got_text = "" if got is _NOT_GIVEN else f", got {abbreviate(got)}"
    remedy_text = f"; {remedy}" if remedy else ""
    raise ValueError(f"{where}: must {must}{got_text}{remedy_text}")


def abbreviate(value: Any) -> str:
    """Return the repr of a value, cut after 200 characters for a message."""
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]} ..."


def suggest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Return the end of an error about an unknown name: "did you mean 'erm'? Known: ...".

    name: the unknown name. known: the known names. listing: text to print instead of the list of
    known names. Without known names and listing, the result says that no name can be chosen. The
    case of letters is ignored in the search for the nearest name.
    """
    known = sorted(known)
    if not known and not listing:
        return "there is none to choose"
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.5)
    hint = f"did you mean {by_lower_case[close[0]]!r}? " if close else ""
    return f"{hint}Known: {listing or ', '.join(known)}"


def check_known(where: str, name: str, known: Iterable[str], noun: str = "") -> None:
    """Raise ValueError if a name is unknown.

    where: start of the error message. known: the known names. noun: kind of the name for the
    message, such as "data" in "unknown data 'x'".
    """
    if name not in known:
        unknown = f"unknown {noun} {name!r}" if noun else f"unknown {name!r}"
        raise ValueError(f"{where}: {unknown}; {suggest(name, known)}")


def check_all_known(
    where: str, names: Iterable[str], known: Iterable[str], noun: str = ""
) -> None:
    """Raise ValueError for the first unknown name; arguments: see `check_known`."""
    for name in names:
        check_known(where, name, known, noun)


# Bytes. Names of files consist of these names and suffixes, and may have 255 bytes.
_LONGEST_NAME = 150


def check_folder_name(where: str, name: str) -> None:
    """Raise ValueError for a name that cannot be the name of a folder or file.

    Such names are empty, "." or "..", have a slash, a backslash or a letter that is not
    printable, or have more than 150 bytes. where: start of the error message.
    """
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


def check_type(where: str, value: Any, kind: Any) -> None:
    """Raise ValueError if a value is not of a type.

    where: start of the error message. kind: an annotation such as `int | None`.
    """
    if not _fits(value, kind):
        refuse(where, f"be {type_name(kind)}", value)


def check_annotations(
    where: str, make: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    """Raise ValueError for options of another type than a function's annotations.

    where: start of the error message. make: the function. options: its keywords by name.
    """
    for name, parameter in inspect.signature(make).parameters.items():
        if name in options and parameter.annotation is not parameter.empty:
            check_type(f"{where}.{name}", options[name], parameter.annotation)


_TYPE_NAMES: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "entries",
    type(None): "None",
}


def type_name(kind: Any) -> str:
    """Return an annotation in words: "a whole number or None" for `int | None`."""
    words = (_TYPE_NAMES.get(_basic_type(member)) for member in _union_members(kind))
    return " or ".join(dict.fromkeys(filter(None, words)))


def _union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union annotation, or (kind,) if `kind` is not a union."""
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if is_union else (kind,)


def _basic_type(kind: Any) -> Any:
    """Return the type that values in configs have for an annotation.

    The result is bool, int, float, str, NoneType, dict or list; None for other annotations.
    """
    origin = type(None) if kind is None else typing.get_origin(kind) or kind
    if origin in (bool, int, float, str, type(None)):
        return origin
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict
    names = ("Sequence", "Iterable", "Collection", "list", "tuple")
    return list if getattr(origin, "__name__", "") in names else None


def _fits(value: Any, kind: Any) -> bool:
    """Return True if a value has the type of an annotation `kind`.

    Also True if the annotation, or the value, has a type that configs do not have.
    """
    members = _union_members(kind)
    if len(members) > 1:
        return any(_fits(value, member) for member in members)
    basic = _basic_type(kind)
    if basic is None or type(value) not in (*_TYPE_NAMES, tuple):
        return True
    if basic is list:
        item_types = set(typing.get_args(kind)) - {Ellipsis}
        item_type = item_types.pop() if len(item_types) == 1 else Any
        return isinstance(value, list | tuple) and all(
            _fits(item, item_type) for item in value
        )
    if basic is float:
        return type(value) in (int, float)
    return type(value) is basic
