"""Figures: nothing overlaps or is cut, names are no formulas, no global state."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import text

from jbias.report import figures
from jbias.stats import pairs

CASES = {
    "two": (["a", "b"], [1.2, 1.8]),
    "ties": (["a", "b", "c"], [2.0, 2.0, 2.0]),
    "long": (
        ["an algorithm with a long name [p=0.1, width=64]", "b", "c"],
        [1, 2.5, 2.5],
    ),
    "many": ([f"algorithm {i}" for i in range(15)], np.linspace(1.5, 14, 15)),
    "dollars": (["$x$", "a_b", "50%"], [1, 2, 3]),
}


def boxes(fig):
    renderer = fig.canvas.get_renderer()
    fig.draw(renderer)
    found = [t for t in fig.findobj(text.Text) if t.get_text() and t.get_visible()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in found]


def overlapping(found):
    for (a, box_a), (b, box_b) in itertools.combinations(found, 2):
        if box_a.padded(-1).overlaps(box_b.padded(-1)):
            yield a, b


@pytest.mark.parametrize("difference", [0.5, 1.5, 40])
@pytest.mark.parametrize("case", CASES)
def test_critical_difference_is_legible(case, difference):
    names, ranks = CASES[case]
    fig = figures.critical_difference(
        names,
        np.asarray(ranks, float),
        pairs.cliques(ranks, difference),
        difference,
        alpha=0.05,
        colours=[figures.style_of(i)["color"] for i in range(len(names))],
    )
    found = boxes(fig)
    assert {name for name in names if any(name in told for told, _ in found)} == set(
        names
    )
    assert list(overlapping(found)) == []
    for told, box in found:
        assert fig.bbox.x0 <= box.x0, told
        assert box.x1 <= fig.bbox.x1, told
        assert fig.bbox.y0 <= box.y0, told
        assert box.y1 <= fig.bbox.y1, told


@pytest.mark.parametrize(("algorithms", "panels"), [(1, 1), (3, 8), (8, 11), (20, 2)])
def test_curves_are_legible(algorithms, panels):
    names = [f"algorithm {i}" for i in range(algorithms)]
    table = pd.DataFrame(
        [(name, e, e / 10, 0.05) for name in names for e in range(1, 6)],
        columns=["algorithm", "epoch", "mean", "std"],
    )
    fig = figures.curves([(f"set {i}", table) for i in range(panels)], names, scale=100)
    found = boxes(fig)
    assert list(overlapping(found)) == []
    tight = fig.get_tightbbox(fig.canvas.get_renderer())  # In inches.
    width, height = fig.get_size_inches()
    assert min(tight.x0, tight.y0, width - tight.x1, height - tight.y1) > -0.02


def test_no_global_state_is_left():
    before = dict(mpl.rcParams)
    fig = figures.critical_difference(
        ["a", "b"], np.array([1, 2]), (), 0.5, alpha=0.1, colours=figures.COLOURS[:2]
    )
    first, second = figures.to_svg(fig), figures.to_svg(fig)
    assert first == second
    assert dict(mpl.rcParams) == before


def test_inline_svg_takes_the_colours_of_the_page():
    fig = figures.critical_difference(
        ["a", "b"], np.array([1, 2]), (), 0.5, alpha=0.1, colours=figures.COLOURS[:2]
    )
    svg = figures.to_svg(fig)
    shown = figures.inline(svg, "Ranks")
    assert figures.INK in svg
    assert figures.INK not in shown
    assert shown.startswith('<svg role="img" aria-label="Ranks"')
