"""Entries of the page of measured networks: sections, columns, counts, folders of several suites."""

import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias.evals import registry
from jbias.measures.decisions import Number
from jbias.report import document, measured, network_records
from jbias.report.pages.networks import network_blocks, network_sections
from tests import cases
from tests.report import distorted, test_shape_sections

Measurement = network_records.Measurement


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
    networks = [test_shape_sections.network(name, 60, 48, 24) for name in "ab"]
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


def test_an_entry_names_the_function_of_a_section():
    entry = registry.PageEntry("own", "Own", blocks=f"{__name__}:own_blocks")
    probes = {"plain": registry.PROBES["plain"]._replace(page=entry)}
    maker = network_sections.sections(probes)[2]
    assert (maker.id, maker.title, maker.make) == ("own", "Own", own_blocks)


def own_blocks(page):
    yield document.Text(f"{len(page.networks)} networks")


@cases.each(
    "fields",
    [
        {},
        {"caption": "Own."},
        {"caption": "Own.", "columns": "ece", "blocks": f"{__name__}:own_blocks"},
    ],
)
def test_an_entry_has_either_columns_or_a_function(fields):
    entry = registry.PageEntry("own", "Own", **fields)
    probes = {"plain": registry.PROBES["plain"]._replace(page=entry)}
    with pytest.raises(
        AssertionError, match="own: the entry .* needs either a caption and columns"
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


def write_distorted(folder, *, has_counts):
    """Write a network of the suite `distortion`, and one of another suite; return their parent."""
    measurements = distorted.fake_measurements(np.random.default_rng(0), "basic")
    shared = dict(method="basic", data="cifar10", seed=0)
    if has_counts:
        for (measure, _, _), (numbers, *_) in measurements.items():
            if measure == "accuracy":
                numbers[:] = [Number("accuracy", 0.95, 190, 200)]
    distorted.write(folder / "distorted", measurements, **shared)
    other = {
        ("order", "tile_order", "test"): (
            [Number("order_dependence", 0.3, 3, 10)],
            None,
            {},
        )
    }
    distorted.write(folder / "other", other, **shared | {"seed": 1})
    return folder


def test_folders_of_several_suites_share_a_page(tmp_path):
    folder = write_distorted(tmp_path / "in", has_counts=True)
    networks = network_records.read([f"{folder}/*"])
    page = network_blocks.NetworksPage(networks, False, [])
    sections = document.make_sections(network_sections.SECTIONS, page)
    names = {section.id for section in sections if section.blocks}
    assert names == {"overview", "accuracy", "configural", "made"}


def test_an_accuracy_without_a_count_is_refused(tmp_path, capsys):
    folder = write_distorted(tmp_path / "in", has_counts=False)
    out = tmp_path / "out"
    assert measured.main([f"--measured={folder}/*", f"--out={out}"]) == 2
    message = capsys.readouterr().err
    assert f"{folder}/distorted: accuracy@test: accuracy must have a count" in message
    assert message.count("\n") == 1 and not out.exists()
