"""Axes of a search are parsed without running any code."""

import pytest
from optuna import distributions

from jbias.launch import search_space
from tests import cases

CHOICE, FLOAT = (
    distributions.CategoricalDistribution,
    distributions.FloatDistribution,
)


@cases.each(
    ("text", "wanted"),
    [
        ("[0.1, 0.3]", CHOICE(("0.1", "0.3"))),
        ("[cosine, 'one cycle']", CHOICE(("cosine", "one cycle"))),
        ("choice(1, (2, 3))", CHOICE(("1", "(2, 3)"))),
        (" uniform(0, 1)", FLOAT(0, 1)),
        ("log_uniform(1e-3, 1)", FLOAT(1e-3, 1, log=True)),
        *((text, None) for text in ("0.1", "(1, 2)", "cosine", "a[", "print(1)", "")),
        *((text, None) for text in ("uniform(low=0, high=1)", "a.uniform(0, 1)")),
    ],
)
def test_lists_and_ranges_are_axes_and_nothing_else(text, wanted):
    assert search_space.parse("a.b", text) == wanted


def test_files_and_flags_are_read_alike():
    parse = search_space.parse
    assert parse("a", search_space.choice("x", 0.1)) == CHOICE(("x", "0.1"))
    assert parse("a", search_space.uniform(0, 0.5)) == FLOAT(0, 0.5)
    assert parse("a", search_space.log_uniform(0.1, 1)) == FLOAT(0.1, 1, log=True)


@cases.each(
    ("text", "message"),
    [
        ("[]", "must list different values, at least one"),
        ("[1, 1]", "must list different values"),
        ("[1, '1']", "must list different values"),
        ("uniform(1, 0)", "two finite numbers, the lower first"),
        ("uniform(0, 1e999)", "two finite numbers"),
        ("uniform(-1.7e308, 1.7e308)", "two finite numbers"),
        ("uniform(x, 1)", "two finite numbers"),
        ("uniform(1)", "two finite numbers"),
        ("log_uniform(0, 1)", "the lower first, above 0"),
    ],
)
def test_axes_of_nothing_are_refused(text, message):
    with pytest.raises(ValueError, match=message) as refused:
        search_space.parse("optim.rate", text)
    assert str(refused.value).startswith("--config.optim.rate: ")


def test_nothing_that_is_read_is_run(tmp_path):
    path = tmp_path / "made"
    text = f"[open({str(path)!r}, 'w')]"
    assert search_space.parse("a", text) == CHOICE((f"open({str(path)!r}, 'w')",))
    assert not path.exists()
