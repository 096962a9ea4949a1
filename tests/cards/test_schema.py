"""Cards fit their published schema; the check of jbias agrees with the package jsonschema."""

import copy
import json
import pathlib

import pytest

from jbias.cards import card, schema
from tests.cards import planted

jsonschema = pytest.importorskip("jsonschema", reason="needs the package jsonschema")
DOCS = pathlib.Path(schema.__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Return the content of a card."""
    table = planted.conflict_table(planted.decide(50, 60, 20, 5))
    folder = tmp_path_factory.mktemp("card") / "card"
    return card.make(planted.results(table), str(folder))


@pytest.fixture(scope="module")
def validator():
    """Return the validator of jsonschema."""
    kind = jsonschema.Draft202012Validator
    kind.check_schema(schema.load())
    return kind(schema.load())


def test_the_schema_in_the_documentation_is_that_of_the_package():
    published = json.loads((DOCS / "card.schema.json").read_text())
    assert published == schema.load()


def test_a_card_fits(content, validator):
    assert validator.is_valid(content) and not schema.faults(content)


OTHERS = (None, True, 0, -1, 0.5, 1.0, "", "x", [], {}, ["x"], {"x": 1})


def variants(value):
    """Yield copies of a tree with an entry removed, added or replaced, at each place."""
    yield from OTHERS
    if not isinstance(value, dict | list):
        return
    if isinstance(value, dict):
        yield {**value, "further": 1}
    items = [*value.items()] if isinstance(value, dict) else [*enumerate(value)]
    for key, entry in items:
        removed = copy.copy(value)
        del removed[key]
        yield removed
        for variant in variants(entry):
            replaced = copy.copy(value)
            replaced[key] = variant
            yield replaced


def test_verdicts_are_those_of_jsonschema(content, validator):
    small = {**content, "numbers": content["numbers"][:1]}
    num_invalid = 0
    for variant in variants(small):
        is_valid = validator.is_valid(variant)
        assert bool(schema.faults(variant)) != is_valid, variant
        num_invalid += not is_valid
    assert num_invalid > 500


def test_the_check_knows_all_keywords_of_the_schema():
    known = {"$schema", "$id", "$defs", "$ref", "title", "description", "type"}
    known |= {"properties", "required", "additionalProperties", "items", "minItems"}
    known |= {"const", "enum", "anyOf", "pattern", "minLength", "minimum"}

    def check(part):
        assert {*part} <= known, {*part} - known
        inner = [*part.get("properties", {}).values(), *part.get("$defs", {}).values()]
        inner += [*part.get("anyOf", [])]
        inner += [
            part[key] for key in ("items", "additionalProperties") if part.get(key)
        ]
        for schema_of_part in inner:
            check(schema_of_part)

    check(schema.load())
