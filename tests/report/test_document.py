"""Page and files of a report match its declaration."""

import base64
import dataclasses
import hashlib
import html
import io
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from examples import own_report
from jbias import audit
from jbias.papers import biases as papers_biases
from jbias.papers import distortion as papers_distortion
from jbias.papers import shifts as papers_shifts
from jbias.report import (
    biases,
    cli,
    correlate,
    distortion,
    document,
    measured,
    plots,
    shifts,
    tables,
)
from jbias.runtime import cli as runtime_cli
from tests import cases

EXAMPLE = "examples/biasbed_table2.csv"


def make_report(**fields) -> document.Report:
    """Return an empty report with some fields replaced."""
    report = document.Report(
        title="t",
        heading="h",
        subtitle="",
        answer=("yes", "of two"),
        facts={},
        sections=[],
        results={},
    )
    return dataclasses.replace(report, **fields)


def test_the_example_report_is_short_and_writes_every_file(tmp_path):
    assert len(pathlib.Path(own_report.__file__).read_text().splitlines()) <= 60
    document.write(own_report.report(EXAMPLE), tmp_path)
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        *("index.html", "results.json"),
        *(f"tables/means.{ending}" for ending in ("csv", "parquet", "tex", "md")),
        "figures/spread.svg",
    }
    tree = json.loads((tmp_path / "results.json").read_text())
    assert set(tree["files"]) == files
    scores = pd.read_csv(EXAMPLE).groupby("algorithm")["score"].mean()
    assert {row["algorithm"]: row["mean"] for row in tree["means"]} == dict(scores)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forked_processes_draw_the_same_figures():
    """A process without JAX forks; its figures equal those of a single process."""
    code = """
import sys
from jbias.report import document, plots
figures = [document.Figure("f", "", plots.blank(1, 1)), document.Figure("g", "", plots.canvas(2, 1)[0])]
forms = ("svg", "pdf", "png")
many = document._Drawing(figures, forms).finish()
sys.modules["jax"] = sys
assert document._Drawing(figures, forms).finish() == many
print(*sorted(many))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        f"figures/{name}.{form}" for name in "fg" for form in ("pdf", "png", "svg")
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_an_error_while_drawing_is_raised_in_the_main_process():
    """An error of a forked process is raised in the process that writes the report."""
    code = """
from jbias.report import document, plots
def fail():
    raise ValueError("no such colour")
figures = [document.Figure(f"f{i}", "", fail if i == 1 else plots.blank(1, 1)) for i in range(4)]
drawing = document._Drawing(figures, ["svg"])
for process in __import__("multiprocessing").active_children():
    process.join()  # The fork takes all figures first.
try:
    drawing.finish()
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "no such colour"


def test_json_has_null_for_missing_and_infinite_numbers():
    frame = pd.DataFrame({"p": [0.5, np.inf], "n": pd.array([1, None], "Int64")})
    tree = {"frame": frame, "one": np.float32(0.5), "none": float("nan"), "two": (1, 2)}
    assert json.loads(document.to_json(tree)) == {
        "frame": [{"p": 0.5, "n": 1}, {"p": None, "n": None}],
        "one": 0.5,
        "none": None,
        "two": [1, 2],
    }

    for odd in ({}.keys(), (x for x in [1]), object()):
        with pytest.raises(TypeError, match="cannot store a"):
            document.to_json({"odd": odd})


def test_names_of_blocks_give_distinct_files_inside_the_report():
    frame = pd.DataFrame({"a": [1]})
    blocks = [
        tables.Table(name, "", ("a",), (("1",),), frame)
        for name in ("a/b", "a b", "../../evil", "漢字", "/")
    ]
    files = document.render(make_report(sections=[document.Section("a", "A", blocks)]))
    assert {name for name in files if name.endswith(".csv")} == {
        f"tables/{name}.csv" for name in ("a-b", "a-b-2", "evil", "漢字", "unnamed")
    }
    for outside in ("../x", "/x", "a/../x", "javascript:alert(1)", ".x"):
        with pytest.raises(ValueError, match="must be inside the report's folder"):
            document.Links({"x": outside})
        with pytest.raises(ValueError, match="must be inside the report's folder"):
            document.render(make_report(files={outside: ""}))


def test_sections_without_blocks_are_left_out():
    blocks = {"a": document.Text([]), "b": None, "c": document.Text("third")}
    titles = {"a": "First", "b": "Second", "c": "Third"}
    makers = [
        document.SectionMaker(name, title, lambda blocks, name=name: [blocks[name]])
        for name, title in titles.items()
    ]
    sections = document.make_sections(makers, blocks)
    page = document.render(make_report(sections=sections))["index.html"]
    assert "Third" in page and "First" not in page and "Second" not in page


def test_files_of_an_earlier_report_are_removed_and_other_files_stay(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    document.write(make_report(frames={"one": frame, "two": frame}), tmp_path)
    (tmp_path / "tables" / "own.csv").write_text("")
    document.write(make_report(frames={"one": frame}), tmp_path)
    left = {path.name for path in (tmp_path / "tables").iterdir()}
    assert left == {"one.csv", "one.parquet", "own.csv"}


def test_a_figure_is_drawn_once_and_only_when_needed():
    """A figure is drawn once for all formats, when files are written."""
    calls = []

    def draw():
        calls.append(1)
        return plots.blank(1, 1)

    figure = document.Figure("f", "", draw)
    assert not calls
    assert figure.drawn is figure.drawn and len(calls) == 1


def test_figures_have_the_requested_formats_and_the_page_names_the_flag(tmp_path):
    """SVG is always written; files of an earlier report are removed."""
    figure = document.Figure("f", "", plots.blank(1, 1))
    report = make_report(sections=[document.Section("a", "A", [figure])])

    def written(**forms) -> dict[str, bytes]:
        document.write(report, tmp_path, **forms)
        return {x.name: x.read_bytes()[:4] for x in (tmp_path / "figures").iterdir()}

    every = {"f.svg": b"<?xm", "f.pdf": b"%PDF", "f.png": b"\x89PNG"}
    assert written(figures=["png", "pdf"]) == every
    assert "--figures" not in (tmp_path / "index.html").read_text()
    assert written(figures=["pdf"]) == {k: every[k] for k in ("f.svg", "f.pdf")}
    assert written() == {"f.svg": every["f.svg"]}
    words = "figures as SVG (the flag --figures=pdf,png adds PDF and PNG)"
    assert words in (tmp_path / "index.html").read_text()
    with pytest.raises(
        ValueError, match=r"figures: must be one or more of svg, pdf, png, got \['gif'"
    ):
        written(figures=["gif"])


@cases.each(
    "command",
    [cli, biases, correlate, distortion, measured, shifts]
    + [audit, papers_biases, papers_distortion, papers_shifts],
)
def test_every_report_command_checks_formats_of_figures(command, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--figures=gif"])
    assert "--figures: must be one or more of svg, pdf, png" in capsys.readouterr().err


@cases.each(
    ("text", "forms"),
    [
        ("svg", ("svg",)),
        ("pdf", ("svg", "pdf")),
        ("PNG, pdf", ("svg", "pdf", "png")),
        ("svg,pdf,png", ("svg", "pdf", "png")),
    ],
)
def test_formats_of_figures_always_include_svg(text, forms):
    assert runtime_cli.figure_formats(text) == forms


def test_nothing_is_written_if_a_figure_fails(tmp_path, monkeypatch):
    def fails(fig):
        raise ValueError("no ink")

    monkeypatch.setattr(plots, "to_svg", fails)
    figure = document.Figure("f", "", plots.blank(1, 1))
    section = document.Section("a", "A", [figure])
    with pytest.raises(ValueError, match="no ink"):
        document.write(make_report(sections=[section]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parquet_keeps_types_and_numbers_repeated_names():
    frame = pd.DataFrame({"x": [1.0, 2.0], "n": [1, None], "w": ["a", None]})
    frame.insert(3, "x", [3, 4], allow_duplicates=True)
    frame["n"] = frame["n"].astype(object)
    back = parquet.read_table(io.BytesIO(tables.to_parquet(frame)))
    assert back.column_names == ["x", "n", "w", "x.1"]
    assert [str(kind) for kind in back.schema.types[:2]] == ["double", "int64"]


def test_tables_are_built_from_rows():
    rows = [{"a": "x", "n": 1.26, "gone": None}, {"a": "y", "n": None, "gone": None}]
    columns = {"a": ("A", str), "n": ("N", tables.digits(1)), "gone": ("G", str)}
    table = tables.from_rows("t", "c", rows, columns, bold=lambda row: ["n"])
    assert (table.head, table.texts) == (("A", "N"), 1)
    assert table.rows == (("x", "1.3"), ("y", "–"))
    assert table.bold == {(0, 1), (1, 1)}
    assert tables.from_rows("t", "c", [], columns) is None


def test_the_content_policy_allows_only_the_script_of_the_page():
    """The policy has the hash of the whole script element, as browsers compute it."""
    page = document.render(make_report())["index.html"]
    policy = html.unescape(
        re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    )
    assert page.index("Content-Security-Policy") < page.index("<style")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    hashes = [hashlib.sha256(script.encode()).digest() for script in scripts]
    allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes]
    assert len(scripts) == 1 and rules["script-src"].split() == allowed
    assert rules["default-src"] == "'none'" and rules["img-src"] == "data:"
    assert rules.keys() == {
        *(
            "default-src",
            "script-src",
            "style-src",
            "img-src",
            "base-uri",
            "form-action",
        )
    }
    assert not re.search(r"\son[a-z]+=|javascript:", page)
