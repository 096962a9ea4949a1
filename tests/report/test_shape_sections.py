"""Sections on the order of parts, on edges and on the odd one out of measured networks."""

import pathlib

import pandas as pd
import pytest

from jbias.evals import registry
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


def test_a_row_of_the_table_of_measures_is_a_section_of_the_page():
    """A new measure needs no other entry: its section is a table of its metrics."""
    entry = registry.PageEntry(
        "order", "Order of tiles", "How much order matters.", "order_dependence:%[]"
    )
    probes = {"tile_order": registry.PROBES["tile_order"]._replace(page=entry)}
    assert registry.page_entries(probes) == {entry: ("tile_order",)}
    sections = network_sections.sections(probes)
    assert [x.id for x in sections] == ["overview", "caveats", "order", "made"]
    maker = sections[2]
    assert maker.title == "Order of tiles"
    networks = network("a", 60, 48, 24), network("b", 60, 48, 24)
    page = network_blocks.NetworksPage(networks, False, [])
    (table,) = maker.make(page)
    assert (table.name, table.caption) == ("order", "How much order matters.")
    assert table.head == ("Network", "set", "images", "order dependence")
    expected_cells = ("test", "100", "30.0 [22.0, 40.0]")
    assert table.rows == tuple((name, *expected_cells) for name in "ab")


def test_the_table_of_an_entry_has_a_row_per_rule():
    entry = registry.PageEntry("own", "Own", "Accuracy by rule.", "accuracy:%")
    probes = {"plain": registry.PROBES["plain"]._replace(page=entry)}
    numbers = [("", 0.5, 10), ("mean_logit", 0.25, 8)]
    measurement = Measurement("own", "test")
    records = [
        Number("accuracy", value, int(value * n), n)._asdict()
        | {"dataset": "test", "condition": f"own/{rule}"}
        for rule, value, n in numbers
    ]
    settings = {"probe": "plain", "aggregates": ["mean_prob", "mean_logit"]}
    measured = network_records.MeasuredNetwork(
        name="a",
        workdir=pathlib.Path("a"),
        records=pd.DataFrame(records),
        measures={measurement: {"measure": settings}},
        config={},
        provenance={},
    )
    page = network_blocks.NetworksPage([measured], False, [])
    (table,) = network_sections.sections(probes)[2].make(page)
    assert table.head == ("Network", "set", "rule", "images", "accuracy")
    assert table.rows == (
        ("a", "test", "mean_prob", "10", "50.0"),
        ("a", "test", "mean_logit", "8", "25.0"),
    )


def test_an_entry_without_columns_needs_a_function():
    entry = registry.PageEntry("own", "Own")
    probes = {"plain": registry.PROBES["plain"]._replace(page=entry)}
    with pytest.raises(
        AssertionError, match="own: the entry needs a caption and columns"
    ):
        network_sections.sections(probes)


def test_a_key_without_a_column_is_named():
    """No number vanishes from the page unless only the CSV file is to have it."""
    columns = network_blocks.columns("network x:.1[]")
    rows = [{"network": "a", "x": 1.0, "x_lower": 0.5, "x_upper": 2.0, "y": 3.0}]
    with pytest.raises(AssertionError, match="table own: y would not be on the page"):
        network_blocks.table("own", "Own.", rows, columns)
    table = network_blocks.table("own", "Own.", rows, columns, csv_only=("y",))
    assert table.rows == (("a", "1.0 [0.5, 2.0]"),)
    assert table.data["y"].tolist() == [3.0]


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
