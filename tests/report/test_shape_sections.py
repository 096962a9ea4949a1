"""Sections on the order of parts, on edges and on the odd one out of measured networks."""

import pathlib

import pandas as pd
import pytest

from jbias.measures.decisions import Number
from jbias.report import document, network_records
from jbias.report.pages.networks import network_blocks, network_sections

Measurement = network_records.Measurement
PLACES = {
    "configural": Measurement("configural", "anagrams"),
    "tile_order": Measurement("tile_order", "test"),
    "cue_decomposition": Measurement("cue_decomposition", "test"),
    "odd_one_out": Measurement("odd_one_out", "test"),
}


def network(name, clean, diffused, cells, **options):
    """Return a network with these counts of correct answers on 100 images."""
    share = lambda metric, count, condition="", n=100: Number(
        metric, count / n, count, n, condition
    )
    ends = lambda metric, low, high, condition="": (
        Number(f"{metric}_lower", low, None, 50, condition),
        Number(f"{metric}_upper", high, None, 50, condition),
    )
    numbers_by_probe = {
        "configural": [
            share("configural_substitute", 12, n=50),
            *ends("configural_substitute", 0.14, 0.37),
            share("accuracy", 40),
            *ends("accuracy", 0.32, 0.48),
            share("foil_rate", 20),
            *ends("foil_rate", 0.13, 0.28),
        ],
        "tile_order": [
            share("order_dependence", 30),
            *ends("order_dependence", 0.22, 0.4),
            share("accuracy", clean),
            share("accuracy", clean - 30, "swapped"),
        ],
        "cue_decomposition": [
            share("accuracy", clean),
            share("accuracy", diffused, "diffused"),
            share("accuracy", cells, "cells"),
            Number("cue_robustness", (diffused + cells) / 2 / clean, None, 100),
            Number("cue_robustness_lower", 0.1, None, 100),
            Number("cue_robustness_upper", 0.9, None, 100),
        ],
        "odd_one_out": [
            number
            for site, value, low, high in (
                ("stem", 1 / 3, 1 / 3, 1 / 3),
                ("stage4", 0.8, 0.7, 0.9),
                ("", 0.8, 0.7, 0.9),
            )
            for number in (
                Number("odd_one_out", value, None, 100, site),
                *ends("odd_one_out", low, high, site),
            )
        ],
    }
    rows = [
        number._asdict()
        | {"dataset": PLACES[probe][1], "condition": f"{probe}/{number.condition}"}
        for probe, numbers in numbers_by_probe.items()
        for number in numbers
    ]
    measures = {
        place: {"measure": {"probe": probe, "options": options, "images": 0}}
        for probe, place in PLACES.items()
    }
    return network_records.MeasuredNetwork(
        name=name,
        workdir=pathlib.Path(name),
        records=pd.DataFrame(rows),
        measures=measures,
        config={},
        provenance={},
    )


def blocks(section, *networks, drawn=False):
    page = network_blocks.NetworksPage(networks, drawn, [])
    (maker,) = (x for x in network_sections.SECTIONS if x.id == section)
    section_blocks = maker.make(page)
    return [block for block in section_blocks if block is not None], page.notes


def test_pairs_and_swapped_tiles_have_rows_by_set():
    (table,), _ = blocks("configural", network("a", 60, 48, 24))
    assert [row[0] for row in table.rows] == [
        "anagrams: pairs with both right",
        "anagrams: pictures of pairs right",
        "anagrams: pictures of pairs taken for the other",
        "test: right only if no tile is swapped",
    ]
    assert table.data["value"].tolist() == [0.24, 0.4, 0.2, 0.3]
    assert table.data["n"].tolist() == [50, 100, 100, 100]
    assert table.data["count"].tolist() == [12, 40, 20, 30]
    assert [row[1] for row in table.rows] == [
        "24.0 [14.0, 37.0]",
        "40.0 [32.0, 48.0]",
        "20.0 [13.0, 28.0]",
        "30.0 [22.0, 40.0]",
    ]
    assert "bootstrap over pairs for pictures of pairs" in table.caption
    assert "no number is the configural shape score" in table.caption


def test_each_row_has_its_own_metric():
    (table,), _ = blocks("configural", network("a", 60, 48, 24))
    metrics = ["configural_substitute", "accuracy", "foil_rate", "order_dependence"]
    assert table.data["metric"].tolist() == metrics
    (table,), _ = blocks("odd_one_out", network("a", 60, 48, 24))
    assert {*table.data["metric"]} == {"odd_one_out"}


def test_shape_parts_are_relative_to_the_networks_on_the_page():
    """With mean accuracies .5 and .4, the shape part of (.6, .3) is 1.2 / 1.95."""
    first, second = network("a", 60, 60, 30), network("b", 80, 40, 50)
    (table,), notes = blocks("cue_decomposition", first, second)
    assert table.data["shape_part"].tolist() == pytest.approx([1.2 / 1.95, 0.8 / 2.05])
    assert table.data["mean_diffused"].tolist() == [0.5, 0.5]
    assert table.data["mean_cells"].tolist() == [0.4, 0.4]
    assert table.data["cue_robustness"].tolist() == [0.75, 90 / 160]
    assert {"robustness", "shape part"} <= {*table.head} and not notes


def test_shape_parts_need_two_networks_with_the_same_settings():
    network_a = network("a", 60, 60, 30)
    (figure, table), notes = blocks("cue_decomposition", network_a, drawn=True)
    assert isinstance(figure, document.Figure) and not notes
    assert "shape_part" not in table.data
    (table,), notes = blocks(
        "cue_decomposition", network_a, network("b", 8, 4, 5, steps=9)
    )
    assert "shape_part" not in table.data
    assert "was not measured with the same settings" in notes[0]


def test_each_site_has_one_row_in_network_order():
    (table,), _ = blocks("odd_one_out", network("a", 60, 48, 24))
    assert [row[0] for row in table.rows] == ["stem", "stage4"]
    assert table.data["value"].tolist() == pytest.approx([1 / 3, 0.8])
    cells = ["33.3 [33.3, 33.3]", "80.0 [70.0, 90.0]"]
    assert [row[1] for row in table.rows] == cells
    assert "bootstrap intervals" in table.caption and "Wilson" not in table.caption


def test_an_unmeasured_section_has_no_blocks():
    unmeasured = network_records.MeasuredNetwork(
        "none", pathlib.Path("none"), network("a", 1, 1, 1).records[:0], {}, {}, {}
    )
    for section in ("configural", "cue_decomposition", "odd_one_out"):
        assert blocks(section, unmeasured, drawn=True) == ([], [])
