"""Figures: legible labels, names without formulas, no global state, correct positions."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import figure, text

from jbias.report import plots
from jbias.stats import posthoc
from tests import cases

CASES = {
    "two": (["a", "b"], [1.2, 1.8]),
    "ties": (["a", "b", "c"], [2.0, 2.0, 2.0]),
    "long": (
        ["an algorithm with a long name [p=0.1, width=64]", "b", "c"],
        [1, 2.5, 2.5],
    ),
    "many": ([f"algorithm {i}" for i in range(15)], np.linspace(1.5, 14, 15)),
    "more": ([f"algorithm {i}" for i in range(50)], np.linspace(1.5, 49, 50)),
    "dollars": (["$x$", "a_b", "50%"], [1, 2, 3]),
}


def boxes(fig):
    renderer = fig.canvas.get_renderer()
    fig.draw(renderer)
    # Matplotlib keeps labels beyond the limits and does not draw them.
    beyond = set(_labels_beyond(fig))
    labels = [t for t in fig.findobj(text.Text) if t.get_text() and t.get_visible()]
    labels = [t for t in labels if t not in beyond]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in labels]


def _labels_beyond(fig):
    """Return the tick labels outside the limits of the axes."""
    for axis in (axis for axes in fig.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def overlapping(labels):
    for (a, box_a), (b, box_b) in itertools.combinations(labels, 2):
        if box_a.padded(-1).overlaps(box_b.padded(-1)):
            yield a, b


def assert_whole(fig):
    """Fail if a label is cut at the edge of the figure."""
    tight = fig.get_tightbbox(fig.canvas.get_renderer())  # In inches.
    width, height = fig.get_size_inches()
    assert min(tight.x0, tight.y0, width - tight.x1, height - tight.y1) > -0.02


@pytest.mark.slow
@cases.each("difference", [0.5, 1.5, 40])
@cases.each("case", CASES)
def test_critical_difference_is_legible(case, difference):
    names, ranks = CASES[case]
    fig = plots.critical_difference(
        names,
        np.asarray(ranks, float),
        posthoc.cliques(ranks, difference),
        difference,
        alpha=0.05,
        colours=[plots.style_of(i)["color"] for i in range(len(names))],
    )
    labels = boxes(fig)
    assert {*names} <= {" ".join(label.split()) for label, _ in labels}
    assert list(overlapping(labels)) == []
    assert fig.get_size_inches()[0] <= plots.PAGE
    for label, box in labels:
        assert fig.bbox.x0 <= box.x0, label
        assert box.x1 <= fig.bbox.x1, label
        assert fig.bbox.y0 <= box.y0, label
        assert box.y1 <= fig.bbox.y1, label


@pytest.mark.slow
@cases.each(("algorithms", "panels"), [(1, 1), (3, 8), (8, 11), (20, 2)])
def test_curves_are_legible(algorithms, panels):
    names = [f"algorithm {i}" for i in range(algorithms)]
    table = pd.DataFrame(
        [
            (f"set {i}", name, e, 10 * e, 5.0)
            for i in range(panels)
            for name in names
            for e in range(1, 6)
        ],
        columns=["panel", "line", "x", "value", "std"],
    )
    looks = {name: plots.style_of(i) for i, name in enumerate(names)}
    fig = plots.curves(table, looks, ("epoch", "accuracy"))
    assert list(overlapping(boxes(fig))) == []
    assert_whole(fig)


def test_drawing_leaves_matplotlibs_settings_unchanged():
    params = dict(mpl.rcParams)
    fig = plots.critical_difference(
        ["a", "b"], np.array([1, 2]), (), 0.5, alpha=0.1, colours=plots.COLOURS[:2]
    )
    first, second = plots.to_svg(fig), plots.to_svg(fig)
    assert first == second
    assert dict(mpl.rcParams) == params


def test_the_last_bit_of_a_position_does_not_change_the_svg():
    """Layouts differ in it between processes."""
    texts = []
    for left in (0.3, np.nextafter(0.3, 1)):
        fig = figure.Figure()
        axes = fig.add_axes((left, 0.1, 0.5, 0.5))
        axes.plot([0, 1], [0, 1])
        texts.append(plots.to_svg(fig))
    assert texts[0] == texts[1] and 'clip-path="url(#clip1)"' in texts[0]


def test_inline_svg_takes_the_colours_of_the_page():
    fig = plots.critical_difference(
        ["a", "b"], np.array([1, 2]), (), 0.5, alpha=0.1, colours=plots.COLOURS[:2]
    )
    svg = plots.to_svg(fig)
    shown = plots.inline(svg, "Ranks")
    assert plots.INK in svg
    assert plots.INK not in shown
    assert shown.startswith('<svg role="img" aria-label="Ranks"')
    assert "<title>Ranks</title>" in shown


NAMES = ["ERM", "$x$ <b>", "Übergröße", "漢字 😀\n2", "a long name [p=0.1, width=64]"]


def numbered_names(k):
    return [f"algorithm with name {i}" for i in range(k)]


def draw_figures(names):
    """Yield a figure of every kind; some numbers are not finite."""
    k, rng = len(names), np.random.default_rng(0)
    point = rng.normal(size=k)
    yield plots.intervals(names, point, point - 2, point + 1, label="x")
    panel = {name: (rng.uniform(size=9), None) for name in names}
    looks = {name: plots.style_of(i) for i, name in enumerate(names)}
    yield plots.histograms({"": panel}, looks, "x")
    kinds = {"within": [[], *rng.gamma(2, size=(k - 1, 6))]}
    kinds["between"] = rng.gamma(2, size=(k, 3))
    yield plots.variability(names, kinds, label="standard deviation")
    shown = pd.DataFrame(rng.uniform(size=(3, 2)), [1, 3, 30], [2, 10])
    yield plots.power(shown, target=0.8, labels=("data sets", "seeds"))


@cases.each("names", [NAMES, numbered_names(2), numbered_names(30)], quick=("names0",))
def test_plots_are_legible(names):
    for fig in draw_figures(names):
        assert list(overlapping(boxes(fig))) == []
        assert_whole(fig)


def texts(fig):
    return [t.get_text() for t in fig.findobj(text.Text) if t.get_text()]


def test_intervals_are_drawn_at_their_numbers():
    point, low, high = np.array([1, np.nan]), np.array([-0.5, 0]), np.array([2, 1])
    fig = plots.intervals(["a", "b"], point, low, high)
    assert "1.00 [−0.50, 2.00]" in texts(fig)
    rows = [line for line in fig.axes[0].lines if list(line.get_ydata()) == [0, 0]]
    assert [list(line.get_xdata()) for line in rows] == [[-0.5, 2]]
    assert not any(list(line.get_ydata()) == [1, 1] for line in fig.axes[0].lines)


def test_curves_and_bands_are_drawn_at_their_numbers():
    """Bands are ± one standard deviation; only a line with a single point has a marker."""
    rows = [
        ("a", "x", 2, 5.0, 1.0),
        ("a", "x", 1, 3.0, np.nan),
        ("b", "y", 1, 7.0, 2.0),
    ]
    frame = pd.DataFrame(rows, columns=["panel", "line", "x", "value", "std"])
    looks = {name: plots.style_of(i) for i, name in enumerate("xy")}
    first, second = plots.curves(frame, looks, ("", "")).axes[:2]
    assert first.lines[0].get_xydata().tolist() == [[1, 3], [2, 5]]
    corners = first.collections[0].get_paths()[0].vertices
    assert {(1, 3), (2, 4), (2, 6)} <= set(map(tuple, corners.tolist()))
    marks = [axes.lines[0].get_marker() for axes in (first, second)]
    assert marks == ["", "o"]


def test_histograms_show_shares_of_the_total_weight():
    values = np.array([0.02, 0.52, 0.98])
    panel = {"x": (values, np.array([1.0, 1.0, 2.0]))}
    fig = plots.histograms({"": panel}, {"x": plots.style_of(0)}, "probability")
    (axes,), (dot,) = fig.axes, fig.axes[0].lines
    heights = axes.patches[0].get_data().values
    assert heights[[0, 10, 19]].tolist() == [25, 25, 50] and heights.sum() == 100
    assert dot.get_xdata() == pytest.approx([(0.02 + 0.52 + 2 * 0.98) / 4])


def test_boxes_span_the_quartiles():
    kinds = {"within": [[1, 2, 3, 4, 5, np.nan]], "between": [[7.0, 7.0]]}
    fig = plots.variability(["a"], kinds, label="std")
    first, second = fig.axes[0].patches
    box = first.get_path().vertices
    assert {box[:, 0].min(), box[:, 0].max()} == {2, 4}
    assert first.get_facecolor() != second.get_facecolor()


def test_sufficient_power_is_framed():
    rows = [[0.1, 0.5, 0.79], [0.4, 0.8, 0.99]]
    frame = pd.DataFrame(rows, [1, 3], [5, 10, 20])
    fig = plots.power(frame, target=0.8, labels=("data sets", "seeds"))
    frames = [p for p in fig.axes[0].patches if p.get_linewidth() > 1]
    assert len(frames) == 2
    assert {"0.79", "0.80", "0.99"} <= set(texts(fig))
