"""Functions that check values from callers and build the messages of errors about them.

A message is one line: `WHERE: NAME must MUST, got VALUE; REMEDY`. WHERE names the place that
the reader can change, such as "config.optim.rate" or "--out"; NAME, of an option or argument,
may be left out. All functions raise ValueError.
"""

import difflib
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

_NOT_GIVEN = object()


class SeveralErrors(ValueError):
    """Several wrong inputs; its text has a line for each."""


class Words(str):
    """A description of a value, such as "shape (3, 2)", which messages show without quotes."""


def refuse(
    where: str,
    must: str,
    got: Any = _NOT_GIVEN,
    remedy: str = "",
    *,
    name: str = "",
    kind: type[ValueError] = ValueError,
) -> NoReturn:
    """Raise ValueError(`WHERE: NAME must MUST, got GOT; REMEDY`).

    where: start of the message, such as "config.optim.rate". must: the requirement, such as
    "be positive". got: the wrong value; left out if not given. remedy: advice, may be "".
    name: of the option or argument; left out if "". kind: type of the exception.
    """
    subject = f"{where}: {name} must" if name else f"{where}: must"
    got_text = "" if got is _NOT_GIVEN else f", got {abbreviate(got)}"
    remedy_text = f"; {remedy}" if remedy else ""
    raise kind(f"{subject} {must}{got_text}{remedy_text}")


_MAX_ERRORS = 10


def refuse_all(messages: Sequence[str]) -> None:
    """Raise ValueError for one message, and SeveralErrors for several; do nothing for none.

    At most 10 different messages are shown, and the number of the others.
    """
    shown = list(dict.fromkeys(messages))
    if len(shown) == 1:
        raise ValueError(shown[0])
    if shown:
        num_more = len(shown) - _MAX_ERRORS
        more = [f"and {num_more:,} more"] if num_more > 0 else []
        raise SeveralErrors("\n".join([*shown[:_MAX_ERRORS], *more]))


def abbreviate(value: Any) -> str:
    """Return a value as text for a message, cut after 200 characters.

    The text is the repr of the value; numbers of NumPy are shown as numbers of Python, and
    `Words` as they are.
    """
    text = str(value) if isinstance(value, Words | numbers.Number) else repr(value)
    return text if len(text) < 200 else f"{text[:200]} ..."


def check(
    is_valid: bool, where: str, must: str, got: Any, remedy: str = "", *, name: str = ""
) -> None:
    """Raise ValueError unless `is_valid`; other arguments: see `refuse`."""
    if not is_valid:
        refuse(where, must, got, remedy, name=name)


def check_choice(
    where: str, value: Any, known: Iterable[Any], remedy: str = "", *, name: str = ""
) -> None:
    """Raise ValueError unless a value is one of a few known values, which the message lists.

    where, remedy, name: see `refuse`.
    """
    known = tuple(known)
    if value not in known:
        refuse(where, f"be one of {_join(known)}", value, remedy, name=name)


def check_choices(
    where: str, values: Any, known: Sequence[Any], *, name: str = ""
) -> None:
    """Raise ValueError unless `values` are one or more of the known values, each once.

    where, name: see `refuse`.
    """
    is_valid = are_distinct(values) and {*values} <= {*known}
    must = f"be one or more of {_join(known)}, each once"
    check(is_valid, where, must, values, name=name)


def are_distinct(values: Any) -> bool:
    """Return True for a non-empty sequence without repetitions; False for a string."""
    is_list = not isinstance(values, str) and len(values) > 0
    return is_list and len(set(values)) == len(values)


def _join(values: Iterable[Any]) -> str:
    """Return the values as text, joined by commas; an empty text is shown as ''."""
    return ", ".join(str(value) or repr(value) for value in values)


def check_range(where: str, low: float, high: float, **values: Any) -> None:
    """Raise ValueError if a number among the options `values` is outside [low, high].

    where: start of the message. values: by name; values that are not numbers, such as None
    and arrays that JAX traces, are not checked.
    """
    for name, value in values.items():
        if isinstance(value, numbers.Real) and not low <= value <= high:
            refuse(
                where, f"be in [{low:g}, {high:g}]", value, f"change {name}", name=name
            )


_CONDITIONS: Mapping[str, Callable[[float], bool]] = {
    "at least 1": lambda value: value >= 1,
    "1 or more": lambda value: value >= 1,
    "positive": lambda value: value > 0,
    "positive or None": lambda value: value > 0,
    "at least 0": lambda value: value >= 0,
    "in [0, 1]": lambda value: 0 <= value <= 1,
    "in [0, 1)": lambda value: 0 <= value < 1,
}


def check_condition(where: str, condition: str, **values: Any) -> None:
    """Raise ValueError if a number among the options `values` violates a condition.

    where: start of the message. condition: "at least 1", "1 or more", "positive",
    "positive or None", "at least 0", "in [0, 1]" or "in [0, 1)". values: by name; values
    that are not int or float, such as arrays that JAX traces, are not checked.
    """
    for name, value in values.items():
        if isinstance(value, int | float) and not _CONDITIONS[condition](value):
            refuse(where, f"be {condition}", value, f"change {name}", name=name)


def check_whole(
    where: str, value: Any, *, low: int, high: int | None = None, name: str = ""
) -> None:
    """Raise ValueError unless a value is an integer, not a bool, from `low` to `high`.

    high: None: no limit. where, name: see `refuse`.
    """
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):
        span = f">= {low}" if high is None else f"from {low} to {high}"
        refuse(where, f"be a whole number {span}", value, name=name)


def check_at_least(where: str, value: float, low: float = 1) -> None:
    """Raise ValueError unless a number is `low` or larger; where: start of the message."""
    check(value >= low, where, f"be at least {low}", value)


def check_share(where: str, value: float) -> float:
    """Return the value; raise ValueError unless 0 < value < 1; where: start of the message."""
    check(0 < value < 1, where, "lie between 0 and 1", value)
    return value


_LONGEST_LIST = 64  # Longer lists of known names are left out of messages.


def suggest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Return the end of an error about an unknown name: "did you mean 'erm'? Known: ...".

    name: the unknown name. known: the known names; more than 64 are not listed, and the result
    may then be "none of the 90 known names is near". listing: text to print instead of the list
    of known names. Without known names and listing, the result says that no name can be chosen.
    The case of letters is ignored in the search for the nearest name.
    """
    known = sorted(known)
    if not known and not listing:
        return "there is none to choose"
    close = nearest(name, known)
    hint = f"did you mean {close!r}?" if close else ""
    if listing or len(known) <= _LONGEST_LIST:
        return f"{hint} Known: {listing or ', '.join(known)}".strip()
    return hint or f"none of the {len(known)} known names is near"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the known name that is spelled most like a name; "" if none is near.

    The case of letters is ignored. cutoff: least similarity, from 0 to 1, of
    difflib.get_close_matches.
    """
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[close[0]] if close else ""


def check_known(
    where: str,
    name: str,
    known: Collection[str],
    noun: str = "",
    *,
    must: str = "",
    kind: type[ValueError] = ValueError,
) -> None:
    """Raise ValueError if a name is unknown, with the nearest known name.

    where: start of the error message. known: the known names. noun: kind of the name for the
    message, such as "data" in "unknown data 'x'". must: if given, the message is `WHERE: NOUN
    must MUST, got NAME; did you mean ...`. kind: type of the exception.
    """
    if name in known:
        return
    if must:
        refuse(where, must, name, suggest(name, known), name=noun, kind=kind)
    unknown = f"unknown {noun} {name!r}" if noun else f"unknown {name!r}"
    raise kind(f"{where}: {unknown}; {suggest(name, known)}")


def check_all_known(
    where: str, names: Iterable[str], known: Collection[str], noun: str = ""
) -> None:
    """Raise ValueError for the first unknown name; arguments: see `check_known`."""
    for name in names:
        check_known(where, name, known, noun)


def refuse_some(wrong: Sequence[Any], must: str, which: str, remedy: str) -> None:
    """Raise ValueError with the number of wrong entries and the first, if any.

    The message is "<must>, <number> <which>, first <entry>; <remedy>".
    must: start and condition, "data.pacs: every image must have a label". which: the fault,
    "have no label". remedy: advice.
    """
    if wrong:
        first = f"first {wrong[0]!r}; {remedy}"
        raise ValueError(f"{must}, {len(wrong):,} {which}, {first}")


def refuse_missing(
    wanted: Iterable[str], present: Collection, must: str, which: str, remedy: str
) -> None:
    """Raise ValueError if an entry of `wanted` is not in `present`.

    must, which, remedy: see `refuse_some`.
    """
    missing = [entry for entry in wanted if entry not in present]
    refuse_some(missing, must, which=which, remedy=remedy)


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


class NotFiniteError(ValueError):
    """Error for outputs, gradients or weights of a network that are NaN or infinite."""


def check_class_names(where: str, classes: Sequence[str]) -> None:
    """Raise ValueError unless `classes` is a sequence of strings; where: start of the message."""
    is_valid = not isinstance(classes, str) and all(
        isinstance(name, str) for name in classes
    )
    check(is_valid, where, "be a sequence of names", classes, name="classes")
