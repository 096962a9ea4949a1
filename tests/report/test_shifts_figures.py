"""What figures of shifts are drawn of: lines, spots and panels."""

import json

import numpy as np
import pandas as pd
import pytest

from jbias.report import shift_drops, shift_page, shift_runs
from tests.report import shifted

DRAWS = shift_drops.Draws(200, 0)


@pytest.fixture
def seen(monkeypatch):
    """What each kind of figure was asked to draw, by its name."""
    found = {}
    for room, name in (
        *((shift_page, x) for x in ("curves", "against", "probabilities")),
        (shift_page, "learning"),
    ):
        calls = found.setdefault(f"{room.__name__.rpartition('.')[2]}.{name}", [])

        def keep(frame, *_, calls=calls, **named):
            calls.append((frame, named))

        monkeypatch.setattr(room, name, keep)
    return found


def drawn(folder):
    """Captions by figure."""
    study = shift_runs.read([f"{folder}/*"])
    _, kinds = shift_drops.verdicts(study.cells, DRAWS)
    figures = shift_page.figures(study, kinds, DRAWS)
    return {figure.name: figure.caption for _, figure in figures}


def lines(frame, column):
    """Numbers by panel and line."""
    by = frame.groupby(["panel", "line"], sort=False)[column]
    return {key: rows.tolist() for key, rows in by}


def test_levels_are_lines_of_drops(tmp_path, seen):
    for level, outside in (("C0", 0.9), ("C3", 0.7), ("C6", 0.1)):
        shifted.write(tmp_path / level, level, {"id": 0.9, "ood": outside})
    shifted.write(tmp_path / "alone", "M4", {"id": 0.9, "ood": 0.5})
    assert set(drawn(tmp_path)) == {"levels_conditional"}  # One point is no curve.
    ((frame, named),) = seen["shift_page.curves"]
    line = "colour", "resnet18"
    assert lines(frame, "x") == {line: [0.5, 0.8, 1.0]}
    assert lines(frame, "value")[line] == pytest.approx([0, 20, 80])
    assert (frame["low"] < frame["value"]).all()
    assert (frame["value"] < frame["high"]).all()
    assert named["ticks"][0.8] == "C3"


def test_models_are_spots_of_seeds_by_kind(tmp_path, seen):
    for model, outside in (("resnet18", [0.1, 0.2]), ("cnn", [0.3, 0.5])):
        where = tmp_path / model
        shifted.write(
            where, "C6", {"id": 0.9, "ood": outside}, model=model, seeds=(0, 1)
        )
        shifted.write(
            tmp_path / f"{model}-0", "C0", {"id": 0.9, "ood": 0.9}, model=model
        )
    assert "in_against_out" in drawn(tmp_path)
    ((frame, _),) = seen["shift_page.against"]
    spots = lines(frame, "outside")
    assert set(spots) == {("conditional", "cnn"), ("conditional", "resnet18")}
    assert spots["conditional", "cnn"] == pytest.approx([30, 50])
    assert lines(frame, "inside")["conditional", "cnn"] == pytest.approx([90, 90])


def test_learning_curves_are_of_the_first_iterations(tmp_path, seen):
    steps = (100, 300, 500, 700, 1_000, 2_000)
    outside = {s: [s / 4_000, s / 4_000 + 0.1] for s in steps}
    fine = {"id": 0.9, "ood": outside}
    shifted.write(tmp_path / "a", "C6", fine, steps=steps, seeds=(0, 1))
    shifted.write(tmp_path / "b", "M4", {"id": 0.9, "ood": 0.5})
    assert "1,000 iterations" in drawn(tmp_path)["learning_curves"]
    ((table, _),) = seen["shift_page.learning"]
    assert set(table["panel"]) == {"resnet18, colour C6"}
    table = table[table["line"] == "out of distribution"].sort_values("x")
    assert table["x"].tolist() == list(steps[:-1])
    assert table["value"].iloc[-1] == pytest.approx(30)
    assert table["std"].iloc[-1] == pytest.approx(np.std([0, 10], ddof=1))


def test_probabilities_need_both_sets(tmp_path, seen):
    for name, kept in (("a", {"id": [0.9], "ood": [0.1]}), ("b", {"id": [0.9]})):
        level = {"a": "C6", "b": "M4"}[name]
        fine = {"id": 0.9, "ood": 0.5}
        shifted.write(tmp_path / name, level, fine, likelihood=kept, seeds=(0,))
    drawn(tmp_path)
    ((frame, _),) = seen["shift_page.probabilities"]
    found, title = lines(frame, "value"), "resnet18, colour C6"
    assert set(found) == {(title, name) for name in shift_page.SETS.values()}
    assert found[title, "in distribution"] == pytest.approx([0.9])
    assert found[title, "out of distribution"] == pytest.approx([0.1])


def test_sizes_differ_in_nothing_else(tmp_path, seen):
    def write(images, epochs):
        how = dict(images=images, trained=images, epochs=epochs)
        accuracies = {"id": 0.9, "ood": images / 10_000}
        shifted.write(tmp_path / f"{images}-{epochs}", "C6", accuracies, **how)
        return drawn(tmp_path).get("sizes")

    def sizes():
        frame, named = seen["shift_page.curves"].pop()
        assert named["labels"][0] == "training images" and "ticks" not in named
        return [x for (_, line), x in lines(frame, "x").items() if "out" in line]

    assert write(1_000, 5) is None
    assert "Epochs" not in write(4_000, 5)
    assert sizes() == [[1_000, 4_000]]
    assert "Points differ in epochs in resnet18" in write(9_000, 9)
    assert sizes() == [[1_000, 4_000, 9_000]]
    assert "Epochs" not in write(4_000, 9)  # Now 4,000 images have two.
    assert sizes() == [[1_000, 4_000], [4_000, 9_000]]


def test_widths_of_one_model(tmp_path, seen):
    for width in (16, 64):
        shifted.write(tmp_path / str(width), "C6", {"id": 0.9, "ood": width / 100})
        path = tmp_path / f"{width}/config.json"
        config = json.loads(path.read_text())
        config["model"]["width"] = width
        path.write_text(json.dumps(config))
    assert "width of the network" in drawn(tmp_path)["widths"]
    ((frame, named),) = seen["shift_page.curves"]
    (line,) = (key for key in lines(frame, "x") if "out" in key[1])
    assert lines(frame, "x")[line] == [16, 64]
    assert lines(frame, "value")[line] == pytest.approx([16, 64])
    assert named["labels"][0] == "width of the network"


def test_what_does_not_fit_is_told():
    frame = pd.DataFrame({"panel": [i % 12 for i in range(20)], "line": range(20)})
    told = "The figure has only the first 9 of 12 panels"
    assert shift_page.omissions(frame) == f"{told}."  # Spots are all drawn.
    told += " and 12 of 20 recipes."
    assert shift_page.omissions(frame.assign(x=0)) == told
    assert shift_page.omissions(frame[:1]) == ""
