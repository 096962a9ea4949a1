"""Axes: read without running anything, drawn so that more draws change none."""

import numpy as np
import pytest
import scipy.stats

from jbias.launch import search_space
from tests import cases


@cases.each(
    ("text", "wanted"),
    [
        ("[0.1, 0.3]", search_space.SearchAxis("a.b", "choice", (0.1, 0.3))),
        (
            "[cosine, 'one cycle']",
            search_space.SearchAxis("a.b", "choice", ("cosine", "one cycle")),
        ),
        ("choice(1, (2, 3))", search_space.SearchAxis("a.b", "choice", (1, (2, 3)))),
        (" uniform(0, 1)", search_space.SearchAxis("a.b", "uniform", (0, 1))),
        (
            "log_uniform(1e-3, 1)",
            search_space.SearchAxis("a.b", "log_uniform", (1e-3, 1)),
        ),
        *((text, None) for text in ("0.1", "(1, 2)", "cosine", "a[", "print(1)", "")),
    ],
)
def test_lists_and_ranges_are_axes_and_nothing_else(text, wanted):
    assert search_space.parse("a.b", text) == wanted
    if wanted:
        assert search_space.parse("a.b", search_space.format_axis(wanted)) == wanted


@cases.each(
    ("text", "message"),
    [
        ("[]", "must list different values, at least one"),
        ("[1, 1]", "must list different values"),
        ("uniform(1, 0)", "two numbers, the lower first"),
        ("uniform(0, 1e999)", "two numbers"),
        ("uniform(x, 1)", "two numbers"),
        ("log_uniform(0, 1)", "positive ends"),
    ],
)
def test_axes_of_nothing_are_refused(text, message):
    with pytest.raises(ValueError, match=message) as refused:
        search_space.parse("optim.rate", text)
    assert str(refused.value).startswith("--config.optim.rate: ")


def test_nothing_that_is_read_is_run(tmp_path):
    path = tmp_path / "made"
    text = f"[open({str(path)!r}, 'w')]"
    assert search_space.parse("a", text).values == (f"open({str(path)!r}, 'w')",)
    assert not path.exists()


def test_a_grid_has_all_combinations():
    two = search_space.make_axis("a", "choice", [1, 2])
    three = search_space.make_axis("b", "choice", [1, 2, 3])
    found = search_space.grid([two, three])
    assert [(one["a"], one["b"]) for one in found] == [
        *((1, b) for b in (1, 2, 3)),
        *((2, b) for b in (1, 2, 3)),
    ]
    assert search_space.grid([]) == [{}]
    with pytest.raises(ValueError, match="take --search=random"):
        search_space.grid([search_space.make_axis("a", "uniform", [0, 1])])


def test_more_draws_or_axes_change_none():
    rate = search_space.make_axis("optim.rate", "log_uniform", [1e-3, 1])
    p = search_space.make_axis("algo.p", "uniform", [0, 1])
    few, more = search_space.sample([rate], 5, 0), search_space.sample([rate], 50, 0)
    assert more[:5] == few
    both = search_space.sample([p, rate], 5, 0)
    assert [one["optim.rate"] for one in both] == [one["optim.rate"] for one in few]
    assert search_space.sample([rate], 5, 1) != few


@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_draws_are_even(kind):
    axis = search_space.make_axis("a", kind, [0.01, 100])
    drawn = np.array([one["a"] for one in search_space.sample([axis], 2000, 3)])
    drawn = np.log10(drawn) + 2 if kind == "log_uniform" else drawn / 25
    assert scipy.stats.kstest(drawn / 4, "uniform").pvalue > 0.01


def test_draws_are_different_and_end():
    axis = search_space.make_axis("a", "choice", ["x", "y", "z"])
    found = search_space.sample([axis], 3, 0)
    assert sorted(one["a"] for one in found) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="about 3 different combinations, got 4"):
        search_space.sample([axis], 4, 0)
    with pytest.raises(ValueError, match="at least 1"):
        search_space.sample([axis], 0, 0)
