"""A check of JSON against card.schema.json, with the keywords of JSON Schema that it uses.

The package jsonschema gives the same verdicts (tests/cards/test_schema.py); it is not needed here.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from jbias import errors

_NAMES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_PREFIX = "#/$defs/"


@functools.cache
def load() -> Mapping[str, Any]:
    """Return the schema of cards."""
    path = resources.files("jbias.cards") / "card.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def faults(content: Any) -> list[str]:
    """Return a line for each entry of card.json that does not fit the schema."""
    return [f"card.json: {line}" for line in _faults(content, load(), "")]


def _faults(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the faults of a value; path: of the value in the card, such as "numbers[0].n"."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_PREFIX)
        yield from _faults(value, load()["$defs"][name], path)
        return
    if "anyOf" in schema:
        by_choice = [[*_faults(value, choice, path)] for choice in schema["anyOf"]]
        if all(by_choice):
            yield min(by_choice, key=len)[0]
        return
    where, shown = path or "the card", errors.abbreviate(value)
    if "const" in schema and value != schema["const"]:
        yield f"{where} must be {schema['const']!r}, got {shown}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} must be one of {', '.join(map(repr, schema['enum']))}, got {shown}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is_of(value, name) for name in types):
        yield f"{where} must be of type {' or '.join(types)}, got {shown}"
        return
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield f"{where} must not be empty"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{where} must match {schema['pattern']}, got {shown}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{where} must be at least {schema['minimum']}, got {shown}"
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{where} must have at least {schema['minItems']} item(s)"
        for i, item in enumerate(value):
            yield from _faults(item, schema.get("items", {}), f"{path}[{i}]")
    elif isinstance(value, dict):
        yield from _object_faults(value, schema, path)


def _object_faults(
    value: Mapping[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Yield the faults of an object's keys and entries."""
    where = path or "the card"
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{where} must have the key {key!r}"
    known, additional = (
        schema.get("properties", {}),
        schema.get("additionalProperties", {}),
    )
    for key, entry in value.items():
        inner = f"{path}.{key}" if path else key
        if key in known:
            yield from _faults(entry, known[key], inner)
        elif additional is False:
            yield f"{where} has the unknown key {errors.abbreviate(key)}"
        else:
            yield from _faults(entry, additional, inner)


def _is_of(value: Any, name: str) -> bool:
    """Return True if a value has the JSON type `name`; 1.0 is an integer, True is none."""
    if isinstance(value, bool):
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _NAMES[name])
