"""The page of measured networks shows curves of calibration, read dials and warnings."""

import pathlib

import pandas as pd
import pytest

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import flags as flags_lib
from jbias.measures.decisions import Number
from jbias.report import document, network_records
from jbias.report.pages.networks import (
    calibration_section,
    network_blocks,
    network_sections,
)
from tests.report import measure_files

Measurement = network_records.Measurement
CLASSES = [f"class{k}" for k in range(16)]


def network(name="a", *, correct=400, shape=300, either=400, dataset="cue_conflict"):
    """Return a network with accuracy of 480 images and decisions about 480 conflicts."""
    bias = Measurement("shape_bias", dataset)
    plain = Measurement("accuracy", "test")
    numbers = {
        bias: [
            Number("shape_bias", shape / either, shape, either),
            Number("fraction_neither", 1 - either / 480, 480 - either, 480),
            Number("accuracy_shape", shape / 480, shape, 480),
        ],
        plain: [Number("accuracy", correct / 480, correct, 480)],
    }
    rows = [
        number._asdict()
        | {
            "dataset": measurement.dataset,
            "condition": "shape_bias" if measurement == bias else "",
        }
        for measurement, entries in numbers.items()
        for number in entries
    ]
    probes = {bias: "shape_bias", plain: "plain"}
    return network_records.MeasuredNetwork(
        name=name,
        workdir=pathlib.Path(name),
        records=pd.DataFrame(rows),
        measures={
            measurement: {
                "measure": {"probe": probe, "options": {}},
                "classes": CLASSES,
                "images": 480,
                "seconds": 1.0,
            }
            for measurement, probe in probes.items()
        },
        config={},
        provenance={},
    )


def curves(**changes) -> curves_lib.Curves:
    """Return the curve of shape bias: the dial is twice the value less 0.5."""
    entries = {
        "measure": "shape_bias",
        "title": "cue-conflict shape bias",
        "knots": curves_lib.Knots((0.25, 0.75), (0.0, 1.0)),
        "networks": 30,
        "error": 0.06,
        "rho": (0.95, 0.9, 0.98),
        "accuracy": (0.4, 1.0),
        "images": 240,
        "lies": (),
        "verdict": "measures reliance on shape",
    }
    curve = curves_lib.DialCurve(**entries | changes)
    return curves_lib.Curves("30 networks", flags_lib.Limits(), {"shape_bias": curve})


def blocks(networks, *, drawn=False, **changes):
    page = network_blocks.NetworksPage(networks, drawn, [])
    return [*calibration_section.blocks(page, ("shape_bias",), curves(**changes))]


def warnings(networks, **changes) -> list[str]:
    """Return the warnings, without the sentence on drawn shapes."""
    *_, text = blocks(networks, **changes)
    assert "drawn shapes" in text.words[0]
    return text.words[1:]


def test_a_value_is_read_by_the_curve_of_its_measure():
    (table, _) = blocks([network(shape=200), network("b", shape=300)])
    assert table.data["value"].tolist() == [0.5, 0.75]
    assert table.data["dial"].tolist() == [0.5, 1.0]
    assert table.rows[0][0] == "a" and "0.50" in table.rows[0]


def test_a_network_in_the_calibrated_range_has_no_warning():
    assert warnings([network(shape=200)]) == []


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({"correct": 31}, {}, "a is not to be ranked: at chance: 31 of 480"),
        ({"either": 90, "shape": 45}, {}, "few decisions: 90 decisions"),
        ({"either": 60, "shape": 30}, {}, "cues at chance: 60 of 480"),
        ({"shape": 380}, {}, "outside of those of planted networks, 0.25 to 0.75"),
        ({"correct": 150}, {}, "accuracy above chance is 0.27"),
        ({}, {"images": 900}, "from 400 images, and 900 are needed"),
        ({}, {"lies": ("colour",)}, "wrong under a shortcut of colour"),
        ({}, {"accuracy": None}, "at no accuracy"),
        ({"dataset": "cue-conflict"}, {}, "calibrated on cue_conflict of drawn shapes"),
    ],
)
def test_a_network_outside_of_the_calibrated_range_has_a_warning(
    options, changes, words
):
    measured = network(**{"shape": 200, **options})
    assert any(words in line for line in warnings([measured], **changes))


def test_the_figure_has_the_curve_and_a_point_per_network():
    figure, *_ = blocks([network("a"), network("b", shape=200)], drawn=True)
    (axes,) = figure.drawn.axes
    curve, *points = axes.lines
    assert curve.get_xdata() == pytest.approx([0.25, 0.75])
    assert [point.get_ydata() for point in points] == [[1.0], [0.5]]


def test_sections_without_a_curve_are_unchanged():
    section = document.Section("spectral", "Frequencies", [document.Text("words")])
    page = network_blocks.NetworksPage([network()], False, [])
    assert calibration_section.extend(section, page, ("spectral",), curves()) is section


def test_the_page_has_curves_only_with_a_file_of_curves(monkeypatch):
    makers = [x for x in network_sections.SECTIONS if x.id == "shape_bias"]
    monkeypatch.setattr(network_sections, "SECTIONS", makers)
    names = {
        has_curves: {
            block.name
            for _, block in measure_files.section_blocks(
                [network()], published=False, curves=curves() if has_curves else None
            )
            if isinstance(block, document.Figure)
        }
        for has_curves in (False, True)
    }
    assert names[True] - names[False] == {"calibration_shape_bias"}
