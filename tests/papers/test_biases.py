"""`jbias papers biases`: the published study, compared with the printed numbers."""

import csv
import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias.papers import biases, biases_published
from jbias.report import document
from jbias.report.pages.biases import bias_models
from tests.report import test_figures

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "published"
BENCHMARK = str(FOLDER / "biases_benchmark.csv")


@pytest.fixture(scope="module")
def published():
    return biases_published.read(BENCHMARK)


@pytest.fixture(scope="module")
def lines():
    with open(BENCHMARK, newline="") as file:
        return {line["model"]: line for line in csv.DictReader(file)}


def test_the_frame_equals_the_published_selection(published):
    """The frame equals biases.csv, computed independently, with six decimals."""
    expected = pd.read_csv(FOLDER / "biases.csv", index_col="model")
    assert list(published.frame.index) == list(expected.index)
    assert (published.frame["training"] == expected["training"]).all()
    numbers = expected.columns.drop("training")
    np.testing.assert_allclose(
        published.frame[numbers], expected[numbers], atol=1.1e-6, equal_nan=True
    )


def test_means_of_corruptions_equal_the_stored_means(published, lines):
    for name, column in (
        ("imagenet_c", "imagenet-c"),
        ("imagenet_cbar", "imagenet-cbar"),
    ):
        stored = [float(lines[m][f"top1_acc/{column}"]) for m in published.frame.index]
        np.testing.assert_allclose(published.frame[name], stored, atol=1e-6)


def test_names_equal_the_printed_names(published):
    printed = pd.read_csv(FOLDER / "biases_printed.csv", index_col="model")
    frame = published.frame.loc[printed.index]
    assert (frame["name"] == printed["name"]).all()
    assert (frame["training"] == printed["training"]).all()


def test_faults_of_the_published_numbers_are_named(published):
    text = " ".join(map(" ".join, biases_published.ANOMALIES.values()))
    for fault in ("326", "800", "50,048", "five cut-offs", "11295.35", "0.943"):
        assert fault in text
    assert any("known faults" in line for line in published.notes)


@pytest.fixture(scope="module")
def vit():
    return biases_published.read(BENCHMARK, biases_published.VIT)


@pytest.fixture(scope="module")
def page(vit):
    """Return the page of five models, for speed."""
    study = bias_models.analyse(vit, permutations=20)
    return biases_published.report(vit, study, study)


def test_known_faults_come_first_in_their_sections(page):
    sections = {section.id: section for section in page.sections}
    assert [*sections][-3:] == ["printed", "vit", "caveats"]
    for name, faults in biases_published.ANOMALIES.items():
        assert sections[name].blocks[0].words[: len(faults)] == faults
    assert page.results["anomalies"] == biases_published.ANOMALIES
    assert "As printed" not in page.facts


def hide_what_is_not_drawn(fig):
    """Hide tick labels beyond the ends of an axis, which are not drawn."""
    fig.draw_without_rendering()
    for axis in (axis for axes in fig.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                tick.label1.set_visible(False)


@pytest.mark.slow
def test_figures_are_legible(page, vit):
    """No text overlaps another text or is cut off."""
    study = bias_models.with_titles(bias_models.analyse(vit, permutations=20))
    names = (*study.options.x, *study.options.y, *study.options.among[0])
    blocks = [block for section in page.sections for block in section.blocks]
    figures = [block for block in blocks if isinstance(block, document.Figure)]
    assert len(figures) > 6
    for figure in figures:
        assert figure.caption
        fig, name = figure.drawn, figure.name
        hide_what_is_not_drawn(fig)
        boxes = test_figures.boxes(fig)
        if "correlations" in name:  # Boxes of slanted names overlap; names do not.
            boxes = [box for box in boxes if box[0] not in names]
        assert list(test_figures.overlapping(boxes)) == [], name
        drawn, (width, height) = fig.get_tightbbox(), fig.get_size_inches()
        assert min(drawn.x0, drawn.y0) >= -0.02, name
        assert drawn.x1 <= width + 0.02, name
        assert drawn.y1 <= height + 0.02, name


@pytest.mark.slow
def test_the_study_is_compared_with_printed_numbers(tmp_path, capsys):
    arguments = [f"--benchmark={BENCHMARK}", f"--printed={FOLDER}", f"--out={tmp_path}"]
    assert biases.main([*arguments, "--permutations=99"]) == 0
    output = capsys.readouterr().out
    assert "885 of 912 cells of tables 1 and 2 and " in output
    assert output.endswith(f"written: {tmp_path / 'index.html'}\n")
    tree = json.loads((tmp_path / "results.json").read_text())
    printed = pd.DataFrame(tree["printed"]["tables"])
    disagreeing = printed[~printed["agrees"]]
    assert (len(printed), len(disagreeing), *disagreeing["column"].unique()) == (
        912,
        27,
        "cb_cf_raw",
    )
    assert len(tree["printed"]["correlations"]) == 87
    table = pd.read_csv(tmp_path / "tables" / "printed_correlations.csv")
    assert len(table) == 72
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert {"critical_band", "imagenet_a", "vit", "benchmark_pairs"} <= drawn


def test_refuses_in_one_line(tmp_path, capsys):
    small = tmp_path / "small.csv"
    with open(BENCHMARK) as file:
        head, *lines = file
    first = next(line for line in lines if line.startswith("tv_resnet50,"))
    small.write_text(head)
    cut = tmp_path / "cut.csv"
    cut.write_text("model,shape-bias\n")
    twice = tmp_path / "twice.csv"
    twice.write_text(head + first + first)
    for arguments, message in (
        ([f"--benchmark={small}"], "must hold the study's"),
        ([f"--benchmark={cut}"], "cut.csv:1: must have the columns of"),
        ([f"--benchmark={twice}"], "twice.csv:3: a model must occur once"),
        (["--benchmark=no.csv"], "no.csv: must be the authors' raw-data/benchmark"),
    ):
        assert biases.main([*arguments, f"--out={tmp_path / 'out'}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("biases: ")
        assert error.count("\n") == 1
        assert message in error
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        biases.main([f"--benchmark={BENCHMARK}", "--kinds=x", "--out=o"])
