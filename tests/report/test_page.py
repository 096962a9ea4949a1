"""Page of a report: works offline, is well formed, escapes names, explains numbers."""

import html.parser
import json
import re
import xml.etree.ElementTree as ET

import pytest

from jbias import report
from jbias.report import document
from jbias.stats.reading import score_cells

pytestmark = pytest.mark.slow

MARKUP_NAMES = ["<script>alert(1)</script>", 'a & b_{x}^2 "q"', r"50% of $x$ #1 ~\n"]


class Reader(html.parser.HTMLParser):
    """A parser that collects tags, nesting, ids, loaded files and words of a page."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.loads, self.words = [], [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "data", "action"):
                self.loads.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def report_dir(many_runs, tmp_path_factory):
    report_dir = tmp_path_factory.mktemp("page")
    assert (
        report.main([f"--runs={many_runs}/*", f"--out={report_dir}", "--reference=ERM"])
        == 0
    )
    return report_dir


@pytest.fixture(scope="module")
def markup_report(tmp_path_factory):
    """Return the report of algorithms with markup in names, and of the names without it."""
    folder = tmp_path_factory.mktemp("nasty")
    rows = ["algorithm,dataset,score"]
    for i, name in enumerate(
        [*MARKUP_NAMES, *map(score_cells.bare_name, MARKUP_NAMES)]
    ):
        quoted = '"' + name.replace('"', '""') + '"'
        rows += [f"{quoted},set_{j} & more,{i + j % 2}" for j in range(4)]
    (folder / "scores.csv").write_text("\n".join(rows))
    report_dir = folder / "out"
    assert (
        report.main([f"--scores={folder / 'scores.csv'}", f"--out={report_dir}"]) == 0
    )
    return report_dir


@pytest.mark.slow
def test_the_page_needs_no_network(report_dir):
    page = (report_dir / "index.html").read_text()
    reader = Reader(page)
    assert reader.open == []
    assert all(target.startswith("#") for target in reader.loads)
    assert not {"link", "iframe", "img"} & set(reader.tags)
    # The script sorts tables and loads nothing.
    assert reader.tags.count("script") == 1
    assert not re.findall(
        "fetch|XMLHttp|import|http", (document.FOLDER / "page.js").read_text()
    )
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []


@pytest.mark.slow
def test_links_on_the_page_have_targets(report_dir):
    reader = Reader((report_dir / "index.html").read_text())
    assert len(set(reader.ids)) == len(reader.ids)
    assert {target[1:] for target in reader.loads} <= set(reader.ids)


def test_the_page_explains_its_numbers(report_dir):
    words = "".join(Reader((report_dir / "index.html").read_text()).words)
    for phrase in (
        "larger is better",
        "± std (n - 1) over 3 seeds",
        "the best validation accuracy of each seed",
        "edge (n=800)",
        "p of Nemenyi's test",
        "Critical difference",
        "oracle (not a result)",
        "mean ± one standard deviation over seeds",
        "artefact of the approximation",
        "embedded set of drawn shapes",
        "a demonstration on drawn shapes",
        "packages.jax",
        "algo.name",
        "Hermann & Lampinen",
    ):
        assert phrase in words, phrase


def test_figures_adapt_to_dark_mode_and_print(report_dir):
    page = (report_dir / "index.html").read_text()
    assert page.count("<svg") == len(list((report_dir / "figures").glob("*.svg"))) > 2
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_figure_files_are_well_formed_svg(report_dir):
    for path in (report_dir / "figures").glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    assert not [
        path for path in (report_dir / "figures").iterdir() if path.suffix != ".svg"
    ]


def test_names_are_escaped_in_html(markup_report):
    page = (markup_report / "index.html").read_text()
    reader = Reader(page)
    assert (reader.open, reader.tags.count("script")) == ([], 1)
    words = "".join(reader.words)
    for name in MARKUP_NAMES:
        assert name in words


def test_names_are_escaped_in_latex(markup_report):
    text = (markup_report / "tables" / "scores.tex").read_text()
    assert r"a \& b\_\{x\}\textasciicircum{}2" in text
    assert r"50\% of \$x\$ \#1 \textasciitilde{}\textbackslash{}n" in text
    rows = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1]
    for row in rows:
        assert row.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1
    for word in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(word) == 1


def test_names_are_unchanged_in_csv_and_json(markup_report):
    tree = json.loads((markup_report / "results.json").read_text())
    assert tree["algorithms"][: len(MARKUP_NAMES)] == MARKUP_NAMES
    assert (markup_report / "tables" / "scores.csv").read_text().count("<script>") == 4


def test_json_is_strict_where_f_is_infinite(markup_report):
    tree = json.loads(
        (markup_report / "results.json").read_text(), parse_constant=pytest.fail
    )
    assert (tree["friedman"]["F"], tree["friedman"]["F_is_infinite"]) == (None, True)
    assert tree["friedman"]["p"] == 0
    assert all(cell["std"] is None for cell in tree["table"])
