"""The page of measured networks shows curves of calibration, read dials and warnings."""

import dataclasses
import math
import pathlib

import pandas as pd
import pytest

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import flags as flags_lib
from jbias.calibrating import measure_results
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


def network(
    name="a",
    *,
    correct=400,
    shape=300,
    either=400,
    dataset="cue_conflict",
    data="cues",
    source="cues/cue_conflict",
    grey=None,
):
    """Return a network with accuracy of 480 images and decisions about 480 conflicts.

    correct: of 480; None: accuracy was not measured. data, source: data set of the conflicts in
    the suite, and the name of the opened set. grey: accuracy on grey images, relative to the
    accuracy; None: not measured.
    """
    bias = Measurement("shape_bias", dataset)
    plain = Measurement("accuracy", "test")
    numbers = {
        bias: [
            Number("shape_bias", shape / either, shape, either),
            Number("fraction_neither", 1 - either / 480, 480 - either, 480),
            Number("accuracy_shape", shape / 480, shape, 480),
        ],
    }
    probes = {bias: "shape_bias"}
    if correct is not None:
        numbers[plain] = [Number("accuracy", correct / 480, correct, 480)]
        probes[plain] = "plain"
    if grey is not None:
        suppression = Measurement("suppression", "test")
        probes[suppression] = "suppression"
        numbers[suppression] = [
            Number("relative_accuracy", grey, None, 480, condition="grey 1")
        ]
    rows = []
    for measurement, entries in numbers.items():
        prefix = "" if measurement == plain else measurement.measure
        for number in entries:
            condition = "/".join(filter(None, (prefix, number.condition)))
            row = number._asdict() | {"condition": condition}
            rows.append(row | {"dataset": measurement.dataset})
    return network_records.MeasuredNetwork(
        name=name,
        workdir=pathlib.Path(name),
        records=pd.DataFrame(rows),
        measures={
            measurement: {
                "measure": {"probe": probe, "images": 0, "options": {}},
                "dataset": {"fingerprint": measurement.dataset, "n": 480},
                "classes": CLASSES,
                "images": 480,
                "seconds": 1.0,
            }
            for measurement, probe in probes.items()
        },
        config={},
        provenance={
            "data": {dataset: {"name": source, "fingerprint": dataset}},
            "suite": {"sets": {dataset: {"data": data}}},
        },
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
        "verdict": measure_results.MEASURES_SHAPE,
    }
    curve = curves_lib.DialCurve(**entries | changes)
    return curves_lib.Curves("30 networks", flags_lib.Limits(), {"shape_bias": curve})


def blocks(networks, *, drawn=False, **changes):
    page = network_blocks.NetworksPage(networks, drawn, [])
    return [*calibration_section.blocks(page, ("shape_bias",), curves(**changes))]


def warnings(networks, **changes) -> list[str]:
    """Return the warnings, without the sentences on drawn shapes and on other cues."""
    *_, text = blocks(networks, **changes)
    assert "drawn shapes" in text.words[0]
    assert "only colour is looked at" in text.words[1] and "Size" in text.words[1]
    return text.words[2:]


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
        ({}, {"images": 900}, "480 images shown, and the curve holds from 900"),
        ({}, {"lies": ("colour",)}, "wrong under a shortcut of colour"),
        ({}, {"accuracy": None}, "at no accuracy"),
    ],
)
def test_a_network_outside_of_the_calibrated_range_has_a_warning(
    options, changes, words
):
    measured = network(**{"shape": 200, **options})
    assert any(words in line for line in warnings([measured], **changes))


@pytest.mark.parametrize(
    ("options", "changes", "doubts"),
    [
        ({}, {}, None),
        ({"correct": 31}, {}, "at chance; accuracy outside"),
        ({"shape": 380}, {}, "value outside"),
        ({"correct": 150}, {}, "accuracy outside"),
        ({}, {"images": 900}, "few images"),
        ({"data": "mine.py:make"}, {}, "other images"),
    ],
)
def test_no_dial_is_read_where_the_table_has_a_reason(options, changes, doubts):
    measured = network(**{"shape": 200, **options})
    figure, table, _ = blocks([measured], drawn=True, **changes)
    (row,) = table.data.to_dict("records")
    read = [None, None] if doubts else [row["value"] * 2 - 0.5, 0.06]
    assert [row.get(name) for name in ("dial", "error")] == read
    assert row.get("doubts") == doubts
    *_, point = figure.drawn.axes[0].lines
    assert (point.get_markerfacecolor() == "none") == bool(doubts)


def test_no_dial_is_read_if_accuracy_was_not_measured():
    measured = network(shape=200, correct=None)
    (line,) = warnings([measured])
    assert "its accuracy was not measured" in line
    (table, _) = blocks([measured])
    assert table.data["doubts"].tolist() == ["accuracy not measured"]


def test_a_measure_is_read_from_the_images_of_its_curve_where_there_are_some():
    """Conflicts without colour and size are another set of the same suite."""
    measured = network(shape=200)
    (of_curve,) = measured.measurements_of("shape_bias")
    of_second = of_curve._replace(dataset="cue_conflict_free")
    is_of_curve = measured.records["dataset"] == of_curve.dataset
    second = measured.records[is_of_curve].assign(dataset=of_second.dataset)
    both = dataclasses.replace(
        measured,
        records=pd.concat([measured.records, second]),
        measures=measured.measures | {of_second: measured.measures[of_curve]},
    )
    (table, _) = blocks([both])
    assert table.data["set"].tolist() == [of_curve.dataset]
    without = dataclasses.replace(both, provenance={})
    (table, _) = blocks([without])
    assert table.data["set"].tolist() == [of_curve.dataset, of_second.dataset]


UNREADABLE = [
    verdict
    for verdict in measure_results.VERDICTS
    if verdict not in (measure_results.MEASURES_SHAPE, measure_results.RANKS)
]


@pytest.mark.parametrize("verdict", [*UNREADABLE, "", "another study's words"])
def test_no_dial_is_shown_of_a_measure_that_neither_measures_nor_ranks(verdict):
    networks = [network(shape=380), network("b", shape=200)]
    table, text = blocks(networks, drawn=True, verdict=verdict)  # There is no figure.
    assert table.data["value"].tolist() == [0.95, 0.5]
    assert not {"dial", "error"} & {*table.data.columns}
    assert "reliance on shape" not in table.head + (table.caption,)
    assert any("no reliance on shape is read" in line for line in text.words)
    assert not any("outside" in line for line in text.words)


def test_a_measure_that_only_ranks_has_dials_with_a_warning():
    (table, text) = blocks([network(shape=200)], verdict=measure_results.RANKS)
    assert table.data["dial"].tolist() == [0.5]
    assert any("a rough guess" in line for line in text.words)


def test_images_needed_are_compared_with_shown_images_and_not_with_decisions():
    """480 images were shown, of which 110 were decided for either cue."""
    measured = network(shape=55, either=110)
    assert warnings([measured], images=120) == []
    assert warnings([measured], images=480) == []
    (line,) = warnings([measured], images=481)
    assert "480 images shown" in line and "110" not in line


def test_images_are_counted_once_for_all_conditions():
    settings = {"measure": {"images": 240}, "images": 2400, "dataset": {"n": 480}}
    assert calibration_section._num_images(settings) == 240
    settings["measure"]["images"] = 0
    assert calibration_section._num_images(settings) == 480
    assert calibration_section._num_images({"measure": {}, "images": 30}) == 30


@pytest.mark.parametrize(
    ("options", "is_known"),
    [
        ({}, True),
        ({"dataset": "stimuli"}, True),
        ({"source": "mine/cue_conflict", "data": "mine.py:make"}, False),
        ({"data": "mine.py:make"}, False),
        ({"source": "model_vs_human/cue-conflict", "data": "model_vs_human"}, False),
        ({"source": "cues/cue_conflict_free"}, False),
    ],
)
def test_images_are_those_of_the_curve_by_their_source_and_not_by_their_name(
    options, is_known
):
    measured = network(shape=200, **options)
    lines = [x for x in warnings([measured]) if "calibrated on drawn shapes only" in x]
    assert len(lines) == (not is_known)
    (table, _) = blocks([measured])
    assert table.data["known"].tolist() == ["yes" if is_known else "no"]


def test_images_without_a_known_source_are_not_those_of_the_curve():
    """Their source is unknown, or the set was opened again with other images."""
    unknown = dataclasses.replace(network(shape=200), provenance={})
    changed = network("b", shape=200)
    changed.provenance["data"]["cue_conflict"]["fingerprint"] = "other"
    (line,) = warnings([unknown, changed])
    assert "on cue_conflict (a and b): calibrated on drawn shapes only" in line


def test_the_error_is_said_to_be_a_mean_and_no_interval():
    (table, _) = blocks([network(shape=200)])
    assert "mean error" in table.head and not any("±" in head for head in table.head)
    assert "mean absolute error" in table.caption and "no interval" in table.caption


def test_accuracy_lost_without_colour_is_a_reason_to_look_and_excludes_nothing():
    measured = network(shape=200, grey=0.75)
    (line,) = warnings([measured])
    assert line.startswith("a may depend on colour") and "25 %" in line
    assert "not to be ranked" not in line and "not size" in line
    assert calibration_section.evidence_of(measured).shortcuts == {}
    assert warnings([network(shape=200, grey=0.95)]) == []


def test_the_figure_has_the_curve_and_a_point_per_network():
    figure, *_ = blocks([network("a"), network("b", shape=200)], drawn=True)
    (axes,) = figure.drawn.axes
    curve, *points = axes.lines
    assert curve.get_xdata() == pytest.approx([0.25, 0.75])
    assert [point.get_ydata() for point in points] == [[1.0], [0.5]]


def summary(networks, **changes) -> list:
    """Return the blocks that `with_summary` adds to a section without blocks."""
    section = document.Section("overview", "In short", [])
    page = network_blocks.NetworksPage(networks, False, [])
    return calibration_section.with_summary(section, page, curves(**changes)).blocks


def test_the_first_section_has_the_range_of_what_is_read_for_each_network():
    """The network decides half by shape on one set of conflicts, and 3 of 4 on the other."""
    first = network(shape=200)
    second = network(
        shape=300,
        correct=None,
        dataset="cue_conflict_free",
        source="cues/cue_conflict_free",
    )
    merged = dataclasses.replace(
        first,
        records=pd.concat([first.records, second.records]),
        measures=first.measures | second.measures,
        provenance={
            "data": first.provenance["data"] | second.provenance["data"],
            "suite": {
                "sets": {
                    name: {"data": "cues"}
                    for name in ("cue_conflict", "cue_conflict_free")
                }
            },
        },
    )
    of_bias = curves()
    (curve,) = of_bias.by_measure.values()
    free = dataclasses.replace(curve, measure="shape_bias_free")
    of_both = dataclasses.replace(
        of_bias, by_measure=of_bias.by_measure | {"shape_bias_free": free}
    )
    networks = [merged, network("guesses", correct=31)]
    page = network_blocks.NetworksPage(networks, False, [])
    section = document.Section("overview", "In short", [])
    (table,) = calibration_section.with_summary(section, page, of_both).blocks
    read, guesses = table.data.to_dict("records")
    assert (read["network"], read["lowest"], read["highest"]) == ("a", 0.5, 1.0)
    assert (read["measures"], read["of"], guesses["measures"]) == (2, 2, 0)
    assert math.isnan(guesses["lowest"]) and guesses["doubts"].startswith("at chance")


def test_the_first_section_is_unchanged_without_a_measure_that_recovers_reliance():
    assert len(summary([network(shape=200)])) == 1
    assert summary([network(shape=200)], verdict=measure_results.RANKS) == []
    assert summary([network(shape=200, data="mine.py:make")]) == []


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
