"""What figures of shifts are drawn of: lines, spots and panels."""

import json

import numpy as np
import pytest

from jbias.report import (
    plots,
    shift_drops,
    shift_figures,
    shift_plots,
    shift_read,
    shift_sizes,
    shift_verdicts,
)
from tests.report import shifted

DRAWS = shift_drops.Draws(200, 0)


@pytest.fixture
def seen(monkeypatch):
    """What each kind of figure was asked to draw, by its panels."""
    found = {}
    for room, name in (
        *((shift_plots, x) for x in ("curves", "against", "probabilities")),
        (plots, "curves"),
    ):
        calls = found.setdefault(f"{room.__name__.rpartition('.')[2]}.{name}", [])

        def keep(panels, *rest, calls=calls, **named):
            calls.append((panels, rest, named))

        monkeypatch.setattr(room, name, keep)
    return found


def drawn(tmp_path):
    study = shift_read.read([f"{tmp_path}/*"])
    candidates = shift_verdicts.of(study.cells, DRAWS)
    return {
        name: told for name, _, _, told in shift_figures.of(study, candidates, DRAWS)
    }


def test_levels_are_lines_of_drops(tmp_path, seen):
    for level, outside in (("C0", 0.9), ("C3", 0.7), ("C6", 0.1)):
        shifted.write(tmp_path / level, level, {"id": 0.9, "ood": outside})
    shifted.write(tmp_path / "alone", "M4", {"id": 0.9, "ood": 0.5})
    assert set(drawn(tmp_path)) == {"levels_conditional"}  # One point is no curve.
    ((panels, (names,), named),) = seen["shift_plots.curves"]
    (line,) = panels["colour"]
    assert names == ["resnet18"] and line.name == "resnet18"
    assert line.x == [0.5, 0.8, 1.0]
    assert line.y == pytest.approx([0, 20, 80])
    assert all(a < y < b for a, y, b in zip(line.low, line.y, line.high, strict=True))
    assert named["ticks"]["colour"][0.8] == "C3"


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
    ((panels, (names,), _),) = seen["shift_plots.against"]
    assert list(panels) == ["conditional"] and names == ["cnn", "resnet18"]
    spots = {spot.name: spot for spot in panels["conditional"]}
    assert spots["cnn"].outside.tolist() == pytest.approx([30, 50])
    assert spots["cnn"].inside.tolist() == pytest.approx([90, 90])


def test_learning_curves_are_of_the_first_iterations(tmp_path, seen):
    steps = (100, 300, 500, 700, 1_000, 2_000)
    outside = {s: [s / 4_000, s / 4_000 + 0.1] for s in steps}
    fine = {"id": 0.9, "ood": outside}
    shifted.write(tmp_path / "a", "C6", fine, steps=steps, seeds=(0, 1))
    shifted.write(tmp_path / "b", "M4", {"id": 0.9, "ood": 0.5})
    assert "1,000 iterations" in drawn(tmp_path)["learning_curves"]
    ((panels, _, named),) = seen["plots.curves"]
    ((title, table),) = panels
    assert title == "resnet18, colour C6" and named["label"] == "iteration"
    table = table[table["algorithm"] == "out of distribution"].sort_values("epoch")
    assert table["epoch"].tolist() == list(steps[:-1])
    assert table["mean"].iloc[-1] == pytest.approx(0.3)
    assert table["std"].iloc[-1] == pytest.approx(np.std([0, 0.1], ddof=1))


def test_probabilities_need_both_sets(tmp_path, seen):
    for name, kept in (("a", {"id": [0.9], "ood": [0.1]}), ("b", {"id": [0.9]})):
        level = {"a": "C6", "b": "M4"}[name]
        fine = {"id": 0.9, "ood": 0.5}
        shifted.write(tmp_path / name, level, fine, likelihood=kept, seeds=(0,))
    drawn(tmp_path)
    ((panels, _, _),) = seen["shift_plots.probabilities"]
    assert list(panels) == ["resnet18, colour C6"]
    inside, outside = panels["resnet18, colour C6"]
    assert (inside, outside) == (pytest.approx([0.9]), pytest.approx([0.1]))


def test_sizes_differ_in_nothing_else(tmp_path, seen):
    def write(images, epochs):
        how = dict(images=images, trained=images, epochs=epochs)
        accuracies = {"id": 0.9, "ood": images / 10_000}
        shifted.write(tmp_path / f"{images}-{epochs}", "C6", accuracies, **how)
        cells = shift_read.read([f"{tmp_path}/*"]).cells
        return [told for *_, told in shift_sizes.of(cells, DRAWS)]

    def lines():
        panels, _, named = seen["shift_plots.curves"].pop()
        assert named["labels"][0] == "training images" and named["log"]
        return [drawn[1].x for drawn in panels.values()]

    assert write(1_000, 5) == []
    assert "Epochs" not in write(4_000, 5)[0]
    assert lines() == [[1_000, 4_000]]
    assert "Epochs are not the same along resnet18" in write(9_000, 9)[0]
    assert lines() == [[1_000, 4_000, 9_000]]
    assert "Epochs" not in write(4_000, 9)[0]  # Now 4,000 images have two.
    assert lines() == [[1_000, 4_000], [4_000, 9_000]]


def test_widths_of_one_model(tmp_path, seen):
    for width in (16, 64):
        shifted.write(tmp_path / str(width), "C6", {"id": 0.9, "ood": width / 100})
        path = tmp_path / f"{width}/config.json"
        config = json.loads(path.read_text())
        config["model"]["width"] = width
        path.write_text(json.dumps(config))
    cells = shift_read.read([f"{tmp_path}/*"]).cells
    list(shift_sizes.of(cells, DRAWS))
    ((panels, _, named),) = seen["shift_plots.curves"]
    (lines,) = panels.values()
    assert lines[1].x == [16, 64] and lines[1].y == pytest.approx([16, 64])
    assert named["labels"][0] == "width of the network"


def test_what_does_not_fit_is_told():
    panels = dict.fromkeys(range(12), ())
    told = shift_plots.left_out(panels, [str(i) for i in range(20)])
    assert told == "Drawn are the first 9 of 12 panels and 12 of 20 recipes."
    assert shift_plots.left_out({}) == ""
