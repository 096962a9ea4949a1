"""Axes: read without running anything, drawn so that more draws change none."""

import numpy as np
import pytest
import scipy.stats

from jbias.launch import axes


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[0.1, 0.3]", axes.Axis("a.b", "choice", (0.1, 0.3))),
        ("[cosine, 'one cycle']", axes.Axis("a.b", "choice", ("cosine", "one cycle"))),
        ("choice(1, (2, 3))", axes.Axis("a.b", "choice", (1, (2, 3)))),
        (" uniform(0, 1)", axes.Axis("a.b", "uniform", (0, 1))),
        ("log_uniform(1e-3, 1)", axes.Axis("a.b", "log_uniform", (1e-3, 1))),
        *((text, None) for text in ("0.1", "(1, 2)", "cosine", "a[", "print(1)", "")),
    ],
)
def test_lists_and_ranges_are_axes_and_nothing_else(text, wanted):
    assert axes.read("a.b", text) == wanted
    if wanted:
        assert axes.read("a.b", axes.written(wanted)) == wanted


@pytest.mark.parametrize(
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
        axes.read("optim.rate", text)
    assert str(refused.value).startswith("--config.optim.rate: ")


def test_nothing_that_is_read_is_run(tmp_path):
    path = tmp_path / "made"
    text = f"[open({str(path)!r}, 'w')]"
    assert axes.read("a", text).values == (f"open({str(path)!r}, 'w')",)
    assert not path.exists()


def test_a_grid_has_all_combinations():
    two = axes.checked("a", "choice", [1, 2])
    three = axes.checked("b", "choice", [1, 2, 3])
    found = axes.grid([two, three])
    assert [(one["a"], one["b"]) for one in found] == [
        *((1, b) for b in (1, 2, 3)),
        *((2, b) for b in (1, 2, 3)),
    ]
    assert axes.grid([]) == [{}]
    with pytest.raises(ValueError, match="take --search=random"):
        axes.grid([axes.checked("a", "uniform", [0, 1])])


def test_more_draws_or_axes_change_none():
    rate = axes.checked("optim.rate", "log_uniform", [1e-3, 1])
    p = axes.checked("algo.p", "uniform", [0, 1])
    few, more = axes.drawn([rate], 5, 0), axes.drawn([rate], 50, 0)
    assert more[:5] == few
    both = axes.drawn([p, rate], 5, 0)
    assert [one["optim.rate"] for one in both] == [one["optim.rate"] for one in few]
    assert axes.drawn([rate], 5, 1) != few


@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_draws_are_even(kind):
    axis = axes.checked("a", kind, [0.01, 100])
    drawn = np.array([one["a"] for one in axes.drawn([axis], 2000, 3)])
    drawn = np.log10(drawn) + 2 if kind == "log_uniform" else drawn / 25
    assert scipy.stats.kstest(drawn / 4, "uniform").pvalue > 0.01


def test_draws_are_different_and_end():
    axis = axes.checked("a", "choice", ["x", "y", "z"])
    found = axes.drawn([axis], 3, 0)
    assert sorted(one["a"] for one in found) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="about 3 different combinations, got 4"):
        axes.drawn([axis], 4, 0)
    with pytest.raises(ValueError, match="at least 1"):
        axes.drawn([axis], 0, 0)
