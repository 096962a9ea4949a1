"""What the page of measured networks says of the order of parts, of edges, of the odd one out."""

import pathlib

import pandas as pd
import pytest

from jbias.evals.decisions import Number
from jbias.report import document, network_page, network_records, network_sections

Measurement = network_records.Measurement
PLACES = {
    "configural": Measurement("configural", "anagrams"),
    "tile_order": Measurement("tile_order", "test"),
    "cue_decomposition": Measurement("cue_decomposition", "test"),
    "odd_one_out": Measurement("odd_one_out", "test"),
}


def network(name, clean, diffused, cells, **options):
    """One that is right so often of 100 images, under each condition."""
    share = lambda metric, count, condition="", n=100: Number(
        metric, count / n, count, n, condition
    )
    ends = lambda metric, low, high, condition="": (
        Number(f"{metric}_lower", low, None, 50, condition),
        Number(f"{metric}_upper", high, None, 50, condition),
    )
    found = {
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
            one
            for site, value, *of in (
                ("stem", 1 / 3, 1 / 3, 1 / 3),
                ("stage4", 0.8, 0.7, 0.9),
                ("", 0.8, 0.7, 0.9),
            )
            for one in (
                Number("odd_one_out", value, None, 100, site),
                *ends("odd_one_out", *of, site),
            )
        ],
    }
    rows = [
        one._asdict()
        | {"dataset": PLACES[probe][1], "condition": f"{probe}/{one.condition}"}
        for probe, numbers in found.items()
        for one in numbers
    ]
    measures = {
        place: {"measure": {"probe": probe, "options": options, "images": 0}}
        for probe, place in PLACES.items()
    }
    of = pathlib.Path(name), pd.DataFrame(rows), measures, {}, {}
    return network_records.MeasuredNetwork(name, *of)


def blocks(part, *networks, drawn=False):
    page = network_page.Page(networks, drawn, [])
    found = network_sections.SECTIONS[part].make_blocks(page)
    return [one for one in found if one is not None], page.notes


def test_pairs_and_swapped_tiles_are_told_by_set():
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


def test_shape_parts_are_of_the_networks_on_the_page():
    """s = .5 and t = .4, so of (.6, .3) it is 1.2 / 1.95."""
    pair = network("a", 60, 60, 30), network("b", 80, 40, 50)
    (table,), notes = blocks("cue_decomposition", *pair)
    assert table.data["shape_part"].tolist() == pytest.approx([1.2 / 1.95, 0.8 / 2.05])
    assert table.data["mean_diffused"].tolist() == [0.5, 0.5]
    assert table.data["mean_cells"].tolist() == [0.4, 0.4]
    assert table.data["cue_robustness"].tolist() == [0.75, 90 / 160]
    assert {"robustness", "shape part"} <= {*table.head} and not notes


def test_of_one_network_or_of_others_there_is_no_shape_part():
    one = network("a", 60, 60, 30)
    (figure, table), notes = blocks("cue_decomposition", one, drawn=True)
    assert isinstance(figure, document.Figure) and not notes
    assert "shape_part" not in table.data
    (table,), notes = blocks("cue_decomposition", one, network("b", 8, 4, 5, steps=9))
    assert "shape_part" not in table.data
    assert "was not measured with the same settings" in notes[0]


def test_sites_are_told_once_in_their_order():
    (table,), _ = blocks("odd_one_out", network("a", 60, 48, 24))
    assert [row[0] for row in table.rows] == ["stem", "stage4"]
    assert table.data["value"].tolist() == pytest.approx([1 / 3, 0.8])
    told = ["33.3 [33.3, 33.3]", "80.0 [70.0, 90.0]"]
    assert [row[1] for row in table.rows] == told
    assert "bootstrap intervals" in table.caption and "Wilson" not in table.caption


def test_where_nothing_was_measured_there_is_no_section():
    none = network_records.MeasuredNetwork(
        "none", pathlib.Path("none"), network("a", 1, 1, 1).records[:0], {}, {}, {}
    )
    for part in ("configural", "cue_decomposition", "odd_one_out"):
        assert blocks(part, none, drawn=True) == ([], [])
