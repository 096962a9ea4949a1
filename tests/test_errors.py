"""Messages about values from callers: one line with the place, the rule, the value and a remedy."""

import numpy as np
import pytest

from jbias import errors
from tests import cases


@cases.each(
    ("args", "message"),
    [
        ((), "here: must be 1"),
        ((2,), "here: must be 1, got 2"),
        (("x", "do this"), "here: must be 1, got 'x'; do this"),
        ((None,), "here: must be 1, got None"),
        (("x" * 300,), f"here: must be 1, got '{'x' * 199} ..."),
    ],
)
def test_an_error_names_the_entry_the_condition_and_a_remedy(args, message):
    with pytest.raises(ValueError) as refused:
        errors.refuse("here", "be 1", *args)
    assert str(refused.value) == message


CHECKS = {
    "a: n must be a whole number >= 1, got 0": lambda: errors.check_whole(
        "a", 0, low=1, name="n"
    ),
    "a.n: must be a whole number from 1 to 3, got True": lambda: errors.check_whole(
        "a.n", True, low=1, high=3
    ),
    "a: p must be in [0, 1], got 1.5; change p": lambda: errors.check_range(
        "a", 0, 1, q=None, p=1.5
    ),
    "a: p must be at least 1, got 0; change p": lambda: errors.check_condition(
        "a", "at least 1", q="x", p=0
    ),
    "a: must be at least 2, got 1": lambda: errors.check_at_least("a", 1, 2),
    "a: must lie between 0 and 1, got 1.0": lambda: errors.check_share("a", 1.0),
    "a: kind must be one of x, '', got 'z'; look": lambda: errors.check_choice(
        "a", "z", ("x", ""), "look", name="kind"
    ),
    "a: kinds must be one or more of x, y, each once, got ('x', 'x')": (
        lambda: errors.check_choices("a", ("x", "x"), ("x", "y"), name="kinds")
    ),
    "a: kinds must be one or more of x, y, each once, got 'x'": (
        lambda: errors.check_choices("a", "x", ("x", "y"), name="kinds")
    ),
    "a: unknown set 'Pcas'; did you mean 'pacs'? Known: mnist, pacs": (
        lambda: errors.check_known("a", "Pcas", ("pacs", "mnist"), "set")
    ),
    "a: the set must be known, got 'q'; Known: pacs": lambda: errors.check_known(
        "a", "q", ("pacs",), "the set", must="be known"
    ),
    "a: must be shown, 2 are not, first 'x'; show them": lambda: errors.refuse_missing(
        ("x", "y"), (), "a: must be shown", which="are not", remedy="show them"
    ),
    "a: must be a whole number or None, got 0.5": lambda: errors.check_type(
        "a", 0.5, int | None
    ),
}


@cases.each("message", CHECKS)
def test_a_check_raises_its_message(message):
    with pytest.raises(ValueError) as refused:
        CHECKS[message]()
    assert str(refused.value) == message


def test_valid_values_raise_nothing():
    errors.check_whole("a", np.int64(3), low=1, high=3)
    errors.check_range("a", 0, 1, p=1, q=None)
    errors.check_condition("a", "in [0, 1)", p=0.5, q=None)
    errors.check_choices("a", ["x"], ("x", "y"))
    errors.check_known("a", "x", ("x",))
    assert errors.check_share("a", 0.5) == 0.5


def test_a_long_list_of_names_is_left_out():
    class_names = [f"class {i}" for i in range(65)]
    assert errors.suggest("klass 3", class_names) == "did you mean 'class 3'?"
    assert errors.suggest("zebra", class_names) == "none of the 65 known names is near"
    assert errors.suggest("zebra", class_names, "stage1-4") == "Known: stage1-4"
    assert errors.suggest("zebra", ()) == "there is none to choose"


def test_numbers_of_numpy_and_descriptions_are_shown_plainly():
    assert errors.abbreviate(np.float64(0.5)) == "0.5"
    assert errors.abbreviate(errors.Words("shape (3, 2)")) == "shape (3, 2)"
    assert errors.abbreviate("text") == "'text'"
