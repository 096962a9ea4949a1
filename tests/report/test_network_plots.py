"""Figures of measured networks show the measured numbers."""

import pathlib

import numpy as np
import pytest
from matplotlib import text

from jbias.data import class_maps
from jbias.measures import accuracy, calibration, cue_conflict, decisions
from jbias.report import plots
from jbias.report.pages.networks import network_plots
from tests import cases

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "human.npz")
CLASSES = [*class_maps.geirhos16()]


def biases(rows) -> dict[int, cue_conflict.ShapeBias]:
    rows = [*rows]
    return cue_conflict.by_class(
        np.concatenate([ORACLE["cue-conflict/response"][i] for i in rows]),
        np.tile(ORACLE["cue-conflict/category"], len(rows)),
        np.tile(ORACLE["cue-conflict/texture"], len(rows)),
    )


def texts(fig) -> list[str]:
    return [label.get_text() for label in fig.findobj(text.Text)]


def test_cue_decisions_as_published():
    """Points are shares of texture per class, lines pooled shares; people come first."""
    by = {"ResNet-50": biases([1]), "humans": biases(range(3, 13))}
    fig = network_plots.cue_decisions(by, CLASSES)
    axes = fig.axes[0]
    lines = sorted(line.get_xdata()[0] for line in axes.lines)
    assert lines == pytest.approx([398 / 9634, 572 / 734])
    networks, people = (collection.get_offsets() for collection in axes.collections)
    expected = [[1 - by["ResNet-50"][i].value, i] for i in range(16)]
    np.testing.assert_allclose(networks, expected)
    np.testing.assert_allclose(people[0], [1 - by["humans"][0].value, 0])
    legend = [label.get_text() for label in fig.legends[0].get_texts()]
    assert legend == ["humans", "ResNet-50"]
    assert plots.to_svg(fig) and "airplane" in texts(fig)


def test_a_class_without_decisions_has_no_point():
    biases_by_class = {0: cue_conflict.ShapeBias(float("nan"), 0, 0)}
    biases_by_class[1] = cue_conflict.ShapeBias(0.75, 3, 1)
    fig = network_plots.cue_decisions({"net": biases_by_class}, ["cat", "dog"])
    (points,) = fig.axes[0].collections
    np.testing.assert_allclose(points.get_offsets(), [[0.25, 1]])


def test_reliability_legend_has_the_calibration_error():
    confidence = np.array([0.1, 0.3, 0.9, 0.95])
    reliability = calibration.reliability(
        confidence, np.array([0, 1, 1, 1], bool), bins=2
    )
    fig = network_plots.reliability({"net": reliability, "other": reliability})
    assert f"net (ECE {reliability.error:.3f})" in texts(fig)
    curve = fig.axes[0].lines[1]
    np.testing.assert_allclose(curve.get_xydata(), [[0.2, 0.5], [0.925, 1]])
    below = fig.axes[2]  # Histogram of both networks, below the curves.
    assert [bar.get_height() for bar in below.patches] == [0.5, 0.5]


def test_classes_are_sorted_and_cut():
    counts = {f"c{i}": (i, 10) for i in range(11)}
    fig = network_plots.accuracies({"net": counts}, best_first=True, max_rows=6)
    names = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert names == ["c10", "c9", "c8", "5 classes between", "c2", "c1", "c0"]
    assert fig.axes[0].lines[-1].get_xdata()[0] == pytest.approx(50)
    few = network_plots.accuracies({"net": counts})
    assert not any("between" in word for word in texts(few))


def test_shares_of_accuracy_have_their_intervals_and_people_are_red():
    accuracies = {
        "a": {"no shape": (0.25, 0.2, 0.4), "no colour": (1.1, 1.0, 1.2)},
        "b": {},
    }
    accuracies["humans"] = {"no shape": (0.75, 0.75, 0.75)}
    fig = network_plots.relative_accuracies(accuracies)
    (axes,) = fig.axes
    network, people = (line for line in axes.lines if line.get_marker() != "None")
    assert network.get_xdata().tolist() == pytest.approx([25, 110])
    assert people.get_xdata().tolist() == [75]
    assert people.get_color() == plots.COLOURS[7]
    ends = axes.collections[0].get_segments()
    np.testing.assert_allclose([x[:, 0] for x in ends], [[20, 40], [100, 120]])
    assert [x.get_text() for x in fig.legends[0].get_texts()] == ["a", "humans"]
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] > 120


def test_interval_ends_are_drawn_without_the_value():
    """An interval may exclude its value; a missing interval has no bar."""
    _, axes = plots.rows(["x", "y"])
    intervals = {"a": {"x": (0.5, 0.6, 0.7), "y": (0.2, np.nan, np.nan)}}
    legend = plots.in_lanes(axes, ["x", "y"], intervals, {"a": plots.marked(0)}, unit=1)
    (bar,) = axes.collections[0].get_segments()
    np.testing.assert_allclose(bar, [[0.6, 0], [0.7, 0]])
    assert legend["a"].get_xydata().tolist() == [[0.5, 0], [0.2, 1]]


def test_networks_share_rows_and_keep_their_colours():
    """The second of three networks has no data: it takes no lane, the third keeps its colour."""
    counts = {"a": {"x": (1, 4), "y": (2, 4)}, "b": {}, "c": {"y": (3, 4)}}
    fig = network_plots.accuracies(counts)
    points = [
        (x, round(y), line.get_color())
        for line in fig.axes[0].lines
        for x, y in line.get_xydata()
    ]
    first, third = plots.COLOURS[0], plots.COLOURS[2]
    assert points == [(25, 0, first), (50, 1, first), (75, 1, third)]
    assert [label.get_text() for label in fig.legends[0].get_texts()] == ["a", "c"]


def test_confusion_shows_percentages_and_hatches_absent_classes():
    label = np.array([0, 0, 0, 0, 1, 1])
    matrix = accuracy.confusion(np.array([0, 0, 1, -1, 1, 1]), label, 3)
    fig = network_plots.confusion(matrix, ["cat", "dog", "bird"])
    numbers = [word for word in texts(fig) if word in ("50", "25", "100", "0")]
    assert {"50", "25"} <= set(numbers) and "no response" in texts(fig)
    hatched = [p for p in fig.axes[0].patches if p.get_hatch()]
    assert [p.get_x() for p in hatched] == [1.5]


SITES = [f"stage{i}.block{j}.conv{k}" for i in (1, 2) for j in (0, 1) for k in (1, 2)]


def numbers(sites=SITES):
    site_numbers = [
        decisions.Number(f"{factor}_decoding_chance", chance, None, 10)
        for factor, chance in (("shape", 1 / 16), ("texture", 1 / 8))
    ]
    for i, site in enumerate(sites):
        for metric, value in (
            ("shape_decoding", 0.1 + 0.1 * i),
            ("shape_decoding_shuffled", 0.06),
            ("texture_decoding", 0.9 - 0.05 * i),
            ("texture_decoding_shuffled", 0.12),
        ):
            site_numbers.append(decisions.Number(metric, value, 1, 10, site))
    return site_numbers


def test_lines_have_the_numbers_in_order_of_sites():
    fig = network_plots.decodability(numbers(), title="ResNet-18 on $cue_conflict$")
    (axes,) = fig.axes
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    np.testing.assert_allclose(lines["shape"], 10 + 10 * np.arange(8))
    np.testing.assert_allclose(lines["texture"], 90 - 5 * np.arange(8))
    np.testing.assert_allclose(lines["shape, labels shuffled"], 6)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == SITES
    dotted = [line.get_ydata()[0] for line in axes.get_lines()[4:]]
    np.testing.assert_allclose(dotted, [100 / 16, 100 / 8])
    assert plots.to_svg(fig).count("<svg") == 1


@cases.each("count", [1, 8, 60])
def test_no_label_is_cut_off(count):
    sites = [f"stage{i}.block{i}.conv1" for i in range(count)]
    fig = network_plots.decodability(numbers(sites), title="a network")
    fig.canvas.draw()
    tight = fig.get_tightbbox(fig.canvas.get_renderer())
    width, height = fig.get_size_inches()
    assert min(tight.x0, tight.y0, width - tight.x1, height - tight.y1) > -0.02


def test_decodability_without_sites_is_refused():
    with pytest.raises(ValueError, match="decodability: .* shape_decoding at a site"):
        network_plots.decodability(numbers([]))
