"""Data of the figures of shifts: lines, points and panels."""

import json

import numpy as np
import pandas as pd
import pytest

from jbias.report import document
from jbias.report.pages.shifts import (
    shift_cells,
    shift_drops,
    shift_figures,
    shifts_page,
)
from tests.report import shifted

DRAWS = shift_drops.AccuracyDraws(200, 0)


@pytest.fixture
def figure_calls(monkeypatch):
    """Replace functions that draw; return their arguments by the name of the function."""
    calls_by_figure = {}
    for module, name in (
        *((shift_figures, x) for x in ("curves", "against", "probabilities")),
        (shift_figures, "learning"),
    ):
        calls = calls_by_figure.setdefault(
            f"{module.__name__.rpartition('.')[2]}.{name}", []
        )

        def record(frame, *_, calls=calls, **named):
            calls.append((frame, named))

        monkeypatch.setattr(module, name, record)
    return calls_by_figure


def draw_captions(folder):
    """Return the captions of a study's figures by name."""
    study = shift_cells.read([f"{folder}/*"])
    computed = shifts_page.compute(study, DRAWS, tau=5, alpha=0.05, reference="erm")
    sections = document.make_sections(shifts_page.SECTIONS, computed)
    blocks = [block for section in sections for block in section.blocks]
    figures = [block for block in blocks if isinstance(block, document.Figure)]
    return {figure.name: figure.caption for figure in figures}


def lines(frame, column):
    """Return the values of a column by (panel, line)."""
    groups = frame.groupby(["panel", "line"], sort=False)[column]
    return {key: rows.tolist() for key, rows in groups}


def test_each_kind_of_shift_is_a_line_of_drops_by_level(tmp_path, figure_calls):
    for level, outside in (("C0", 0.9), ("C3", 0.7), ("C6", 0.1)):
        shifted.write(tmp_path / level, level, {"id": 0.9, "ood": outside})
    shifted.write(tmp_path / "alone", "M4", {"id": 0.9, "ood": 0.5})
    # A single level, as of M, is no curve.
    assert set(draw_captions(tmp_path)) == {"levels_conditional"}
    ((frame, named),) = figure_calls["shift_figures.curves"]
    line = "colour", "resnet18"
    assert lines(frame, "x") == {line: [0.5, 0.8, 1.0]}
    assert lines(frame, "value")[line] == pytest.approx([0, 20, 80])
    assert (frame["low"] < frame["value"]).all()
    assert (frame["value"] < frame["high"]).all()
    assert named["ticks"][0.8] == "C3"


def test_each_seed_of_a_model_is_a_point_by_kind(tmp_path, figure_calls):
    for model, outside in (("resnet18", [0.1, 0.2]), ("cnn", [0.3, 0.5])):
        workdir = tmp_path / model
        shifted.write(
            workdir, "C6", {"id": 0.9, "ood": outside}, model=model, seeds=(0, 1)
        )
        shifted.write(
            tmp_path / f"{model}-0", "C0", {"id": 0.9, "ood": 0.9}, model=model
        )
    assert "in_against_out" in draw_captions(tmp_path)
    ((frame, _),) = figure_calls["shift_figures.against"]
    points = lines(frame, "outside")
    assert set(points) == {("conditional", "cnn"), ("conditional", "resnet18")}
    assert points["conditional", "cnn"] == pytest.approx([30, 50])
    assert lines(frame, "inside")["conditional", "cnn"] == pytest.approx([90, 90])


def test_learning_curves_show_the_first_iterations(tmp_path, figure_calls):
    steps = (100, 300, 500, 700, 1_000, 2_000)
    outside = {s: [s / 4_000, s / 4_000 + 0.1] for s in steps}
    accuracies = {"id": 0.9, "ood": outside}
    shifted.write(tmp_path / "a", "C6", accuracies, steps=steps, seeds=(0, 1))
    shifted.write(tmp_path / "b", "M4", {"id": 0.9, "ood": 0.5})
    assert "1,000 iterations" in draw_captions(tmp_path)["learning_curves"]
    ((table, _),) = figure_calls["shift_figures.learning"]
    assert set(table["panel"]) == {"resnet18, colour C6"}
    table = table[table["line"] == "out of distribution"].sort_values("x")
    assert table["x"].tolist() == list(steps[:-1])
    assert table["value"].iloc[-1] == pytest.approx(30)
    assert table["std"].iloc[-1] == pytest.approx(np.std([0, 10], ddof=1))


def test_probabilities_need_both_sets(tmp_path, figure_calls):
    for name, likelihood in (("a", {"id": [0.9], "ood": [0.1]}), ("b", {"id": [0.9]})):
        level = {"a": "C6", "b": "M4"}[name]
        accuracies = {"id": 0.9, "ood": 0.5}
        shifted.write(
            tmp_path / name, level, accuracies, likelihood=likelihood, seeds=(0,)
        )
    draw_captions(tmp_path)
    ((frame, _),) = figure_calls["shift_figures.probabilities"]
    values, title = lines(frame, "value"), "resnet18, colour C6"
    assert set(values) == {(title, name) for name in shift_figures.SETS.values()}
    assert values[title, "in distribution"] == pytest.approx([0.9])
    assert values[title, "out of distribution"] == pytest.approx([0.1])


def test_points_that_differ_in_other_settings_are_noted(tmp_path, figure_calls):
    def write(images, epochs):
        shifted.write(
            tmp_path / f"{images}-{epochs}",
            "C6",
            {"id": 0.9, "ood": images / 10_000},
            images=images,
            trained=images,
            epochs=epochs,
        )
        return draw_captions(tmp_path).get("sizes")

    def sizes():
        frame, named = figure_calls["shift_figures.curves"].pop()
        assert named["labels"][0] == "training images" and "ticks" not in named
        return [x for (_, line), x in lines(frame, "x").items() if "out" in line]

    assert write(1_000, 5) is None
    assert "Epochs" not in write(4_000, 5)
    assert sizes() == [[1_000, 4_000]]
    assert "Points differ in epochs in resnet18" in write(9_000, 9)
    assert sizes() == [[1_000, 4_000, 9_000]]
    assert "Epochs" not in write(4_000, 9)  # Both numbers of epochs have 4,000 images.
    assert sizes() == [[1_000, 4_000], [4_000, 9_000]]


def test_widths_of_a_model_have_a_figure(tmp_path, figure_calls):
    for width in (16, 64):
        shifted.write(tmp_path / str(width), "C6", {"id": 0.9, "ood": width / 100})
        path = tmp_path / f"{width}/config.json"
        config = json.loads(path.read_text())
        config["model"]["width"] = width
        path.write_text(json.dumps(config))
    assert "width of the network" in draw_captions(tmp_path)["widths"]
    ((frame, named),) = figure_calls["shift_figures.curves"]
    (line,) = (key for key in lines(frame, "x") if "out" in key[1])
    assert lines(frame, "x")[line] == [16, 64]
    assert lines(frame, "value")[line] == pytest.approx([16, 64])
    assert named["labels"][0] == "width of the network"


def test_omitted_panels_and_recipes_are_noted():
    frame = pd.DataFrame({"panel": [i % 12 for i in range(20)], "line": range(20)})
    note = "The figure has only the first 9 of 12 panels"
    assert shift_figures.omissions(frame) == f"{note}."  # All points are drawn.
    note += " and 12 of 20 recipes."
    assert shift_figures.omissions(frame.assign(x=0)) == note
    assert shift_figures.omissions(frame[:1]) == ""
