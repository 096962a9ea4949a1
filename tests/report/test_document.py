"""What a report declares is on its page, and beside it."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from examples import own_report
from jbias.report import document, plots, tables

EXAMPLE = "examples/biasbed_table2.csv"


def made(**more) -> document.Report:
    given = dict(title="t", heading="h", subtitle="", answer=("yes", "of two"))
    return document.Report(**given | dict(facts={}, sections=[], results={}) | more)


def test_a_report_of_three_sections_takes_sixty_lines(tmp_path, no_pdf):
    assert len(pathlib.Path(own_report.__file__).read_text().splitlines()) <= 60
    document.write(own_report.report(EXAMPLE), tmp_path)
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        *("index.html", "results.json"),
        *(f"tables/means.{ending}" for ending in ("csv", "parquet", "tex", "md")),
        *(f"figures/spread.{ending}" for ending in ("svg", "pdf", "png")),
    }
    tree = json.loads((tmp_path / "results.json").read_text())
    assert set(tree["files"]) == files
    scores = pd.read_csv(EXAMPLE).groupby("algorithm")["score"].mean()
    assert {row["algorithm"]: row["mean"] for row in tree["means"]} == dict(scores)


def test_json_has_null_for_what_is_not_known():
    frame = pd.DataFrame({"p": [0.5, np.inf], "n": pd.array([1, None], "Int64")})
    tree = {"frame": frame, "one": np.float32(0.5), "none": float("nan"), "two": (1, 2)}
    assert json.loads(document.to_json(tree)) == {
        "frame": [{"p": 0.5, "n": 1}, {"p": None, "n": None}],
        "one": 0.5,
        "none": None,
        "two": [1, 2],
    }


def test_sections_without_blocks_are_left_out():
    page = document.render(
        made(
            sections=document.sections(
                {"a": "First", "b": "Second", "c": "Third"},
                [("c", document.Text("third")), ("b", None), ("a", document.Text([]))],
            )
        )
    )["index.html"]
    assert "Third" in page and "First" not in page and "Second" not in page


def test_what_an_earlier_report_had_goes_and_what_others_put_there_stays(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    document.write(made(frames={"one": frame, "two": frame}), tmp_path)
    (tmp_path / "tables" / "own.csv").write_text("")
    document.write(made(frames={"one": frame}), tmp_path)
    left = {path.name for path in (tmp_path / "tables").iterdir()}
    assert left == {"one.csv", "one.parquet", "own.csv"}


def test_nothing_is_written_where_a_figure_cannot_be(tmp_path, monkeypatch):
    def fails(fig):
        raise ValueError("no ink")

    monkeypatch.setattr(plots, "to_svg", fails)
    figure = document.Figure("f", "", plots.blank(1, 1))
    section = document.Section("a", "A", [figure])
    with pytest.raises(ValueError, match="no ink"):
        document.write(made(sections=[section]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_make_a_table():
    rows = [{"a": "x", "n": 1.26, "gone": None}, {"a": "y", "n": None, "gone": None}]
    columns = {"a": ("A", str), "n": ("N", tables.digits(1)), "gone": ("G", str)}
    table = tables.from_rows("t", "c", rows, columns, strong=lambda row: ["n"])
    assert (table.head, table.texts) == (("A", "N"), 1)
    assert table.rows == (("x", "1.3"), ("y", "–"))
    assert table.strong == {(0, 1), (1, 1)}
    assert tables.from_rows("t", "c", [], columns) is None
